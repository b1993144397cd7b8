//! Tests of frames that refer to each other: the worth of a late frame.

use super::*;

/// An offer of a frame that may refer to others.
fn coded<'a>(
    now: Instant,
    ladder: &'a Ladder,
    alone: &'a [ByteSizes],
    continues: Option<usize>,
) -> Offer<'a> {
    let coding = Coding { continues, left_out: 0, alone, every: &[1, 1], stretches: false, goes_on: &[] };
    Offer { coding: Some(coding), ..offer(now, ladder) }
}

#[test]
fn a_late_frame_is_accepted_where_a_better_chain_begins_with_it() {
    let mut story = Story::new();
    story.ladder = two_rungs([20e3, 40e3]);
    for _ in 0..10 {
        story.frame(1_000.0);
    }
    let ladder = story.ladder.clone();
    let rung = |story: &mut Story, alone: &[f64; 2], continues| {
        let alone = alone.map(|bytes| ByteSizes::around(bytes, 0.08));
        let Decision::Send(choice) = story.policy.decide(&coded(story.now, &ladder, &alone, continues))
        else {
            panic!("the link is idle")
        };
        (choice.rung, choice.on_time_probability.expect("it predicts"))
    };
    let (chosen, on_time) = rung(&mut story, &[60e3, 150e3], Some(0));
    assert_eq!(chosen, 1, "one frame of 150 ms, and then frames of 40 ms that are better");
    assert!(on_time < 0.1, "{on_time}");
    assert_eq!(rung(&mut story, &[60e3, 150e3], Some(1)).0, 1, "it stays there");
    let dear = [60e3, 40e6];
    assert_eq!(rung(&mut story, &dear, Some(0)).0, 0, "a frame of 40 s does not pay within 5 s");
}

#[test]
fn a_frame_that_goes_on_too_late_waits_only_where_it_would_make_the_next_late() {
    // A frame that takes 95 or 180 ms is on its way. 10 ms later, a frame of 20 ms continues the chain.
    let decide = |bytes_on_their_way: f64| {
        let mut story = Story::new();
        story.ladder = two_rungs([20e3, 40e3]);
        for _ in 0..10 {
            story.frame(1_000.0);
        }
        let (ladder, alone) =
            (story.ladder.clone(), [60e3, 40e6].map(|bytes| ByteSizes::around(bytes, 0.08)));
        story.policy.handle_sent(&sent(99, 0, bytes_on_their_way, story.now));
        story.now += Duration::from_millis(10);
        story.policy.decide(&coded(story.now, &ladder, &alone, Some(0)))
    };
    let Decision::Send(choice) = decide(95e3) else { panic!("the next one is on time nevertheless") };
    assert!(choice.rung == 0 && choice.on_time_probability.expect("it predicts") < 0.5);
    assert!(matches!(decide(180e3), Decision::Wait { .. }), "it would be late as well");
}

#[test]
fn a_late_frame_that_stands_alone_waits_for_the_next_if_that_is_on_time() {
    let mut story = Story::new();
    story.ladder = two_rungs([20e3, 40e3]);
    for _ in 0..10 {
        story.frame(1_000.0);
    }
    let ladder = story.ladder.clone();
    let decide = |story: &mut Story, alone_bytes: f64| {
        let alone = [alone_bytes, 40e6].map(|bytes| ByteSizes::around(bytes, 0.08));
        let captured = story.now - Duration::from_millis(50);
        story.policy.decide(&Offer { captured, ..coded(story.now, &ladder, &alone, None) })
    };
    // 80 ms are too long for a frame that is 50 ms old; the next comes in 17 ms.
    let Decision::Wait { until } = decide(&mut story, 80e3) else { panic!("it would be late") };
    let next = story.now + Duration::from_millis(17);
    assert!(until >= next && until < next + INTERVAL, "the camera may be late by less than a frame");
    assert!(matches!(decide(&mut story, 150e3), Decision::Send(_)), "the next one would be late as well");
}

#[test]
fn what_was_left_out_comes_with_the_next_frame_but_at_most_a_new_beginning() {
    let ladder = two_rungs([20e3, 40e3]);
    let alone = [60e3, 100e3].map(|bytes| ByteSizes::around(bytes, 0.08));
    let bytes = |left_out| {
        let coding = Coding {
            continues: Some(1),
            left_out,
            alone: &alone,
            every: &[1, 3],
            stretches: false,
            goes_on: &[],
        };
        let offer = Offer { coding: Some(coding), ..offer(Instant::ZERO, &ladder) };
        assert_eq!(offer.interval_at(1), offer.interval * 3);
        (offer.bytes(0).mean.round(), offer.bytes(1).mean.round())
    };
    assert_eq!(bytes(0), (60e3, 40e3));
    assert_eq!(bytes(1), (60e3, 80e3));
    assert_eq!(bytes(9), (60e3, 100e3));
}

/// After a source's frame, a frame of the cheapest rung stands alone. The cost of a better rung does not matter.
#[test]
fn a_late_key_frame_of_a_source_is_cancelled_unless_it_has_nearly_left() {
    let gives_up = |of_source, unsent_bytes| {
        let mut story = Story::new();
        story.ladder = two_rungs([2e3, 40e3]);
        for _ in 0..30 {
            story.frame(3_000.0);
        }
        let (key, at) = (60e3, story.now);
        story.policy.handle_sent(&SentFrame { of_source, ..sent(99, 1, key, at) });
        // The link has become forty times slower.
        let first = at + DELAY + Duration::from_millis(16);
        for packets in 1..=4u32 {
            let last = first + Duration::from_millis(16) * (packets - 1);
            let bytes = 1.2e3 * f64::from(packets);
            story.policy.handle_arrival(
                last + DELAY,
                &Arrival { complete: false, ..arrival(99, bytes, first, last) },
            );
        }
        story.now = at + INTERVAL + DELAY * 2;
        let alone = [8e3, 200e3].map(|bytes| ByteSizes::around(bytes, 0.08));
        story.policy.gives_up(&Offer { unsent_bytes, ..coded(story.now, &story.ladder, &alone, None) })
    };
    assert!(gives_up(true, 20_000));
    assert!(!gives_up(true, 5_000), "6 kB more for a frame that stands alone");
    assert!(!gives_up(false, 20_000), "160 kB more at its own rung");
}

/// Where every frame waits for something else than its own bytes, making it smaller gains nothing, and the source's frame is as good. Where the
/// link itself is slow, a smaller frame arrives sooner.
#[test]
fn a_frame_of_the_source_serves_where_a_smaller_one_would_be_as_late() {
    let prefers = |bytes_per_ms: f64, others_ms: u64| {
        let mut story = Story { ladder: two_rungs([2e3, 6e3]), ..Story::new() };
        for _ in 0..100 {
            story.free = story.free.max(story.now) + Duration::from_millis(others_ms);
            story.frame(bytes_per_ms);
        }
        let alone = [8e3, 20e3].map(|bytes| ByteSizes::around(bytes, 0.08));
        let ladder = story.ladder.clone();
        let offer = coded(story.now, &ladder, &alone, Some(0));
        let Decision::Send(choice) = story.policy.decide(&offer) else { panic!("the link is idle") };
        assert!(choice.infeasible, "{choice:?}");
        let source = SourceFrame { bytes: 12e3, mean_bytes: 12e3 };
        story.policy.prefers_source(&offer, source, choice)
    };
    let choice = prefers(5_000.0, 150).expect("it would be late in any case");
    assert!(choice.on_time_probability.expect("it predicts") < 0.1, "{choice:?}");
    assert_eq!(prefers(15.0, 0), None, "12 kB take 800 ms, and 2 kB take 133 ms");
}
