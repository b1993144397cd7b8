//! Frames that refer to each other: what a late one is worth.

use super::*;

/// What the policy is told of frames that refer to each other.
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
    // A frame of 95 or of 180 ms is on its way, and one that takes 20 ms goes on 10 ms later.
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
