//! Stories of a policy in front of a link.

mod chains;

use super::*;
use crate::controller::tests::{arrival, frame_id, ladder, offer, sent};
use crate::controller::{Cap, Coding};
use crate::frame::Rung;
use crate::profile::{ByteSizes, Ladder, Profile, RungProfile};

/// A camera in front of a link with a given rate in bytes per millisecond and 3 ms of delay each way.
struct Story {
    policy: Quantile,
    ladder: Ladder,
    now: Instant,
    free: Instant,
    sequence: u64,
}

const DELAY: Duration = Duration::from_millis(3);
const INTERVAL: Duration = Duration::from_millis(67);

impl Story {
    fn new() -> Self {
        let policy = Quantile::new(Config::default());
        Self { policy, ladder: ladder(), now: Instant::ZERO, free: Instant::ZERO, sequence: 0 }
    }

    fn decide(&mut self) -> Decision {
        self.policy.decide(&offer(self.now, &self.ladder))
    }

    fn choice(&mut self) -> Choice {
        match self.decide() {
            Decision::Send(choice) => choice,
            Decision::Wait { until } => panic!("it waits until {until:?} at {:?}", self.now),
        }
    }

    /// Sends a frame and lets it arrive before the next one. Returns the rung.
    fn frame(&mut self, bytes_per_ms: f64) -> usize {
        let choice = self.choice();
        let bytes = self.ladder.rungs()[choice.rung].bytes.mean;
        self.policy.handle_sent(&sent(self.sequence, choice.rung, bytes, self.now));
        let begin = self.free.max(self.now);
        self.free = begin + Duration::from_secs_f64(bytes / bytes_per_ms / 1e3);
        let whole = arrival(self.sequence, bytes, begin + DELAY, self.free + DELAY);
        self.policy.handle_arrival(self.free + DELAY + DELAY, &whole);
        self.sequence += 1;
        self.now = (self.now + INTERVAL).max(self.free + DELAY + DELAY);
        choice.rung
    }
}

#[test]
fn a_steady_link_is_used_and_not_overused() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(3_000.0);
    }
    // 96 ms carry 288 kB less what sizes vary by: 200 kB is the rung.
    assert_eq!(story.frame(3_000.0), 6);
    assert_eq!(story.frame(1_000.0), 6, "nobody can have known");
    for _ in 0..20 {
        story.frame(1_000.0);
    }
    // 65 kB would fit, but the policy still remembers how wrong the estimate can be.
    assert!((2..=3).contains(&story.frame(1_000.0)));
    let rate = story.policy.link_rate().expect("frames were measured");
    assert!((rate.0 / 8e6 - 1.0).abs() < 0.05, "{rate:?}");
}

/// By day, rungs from the sixth on gain nothing, so they may take only a quarter of the link. In a scene that the profile does
/// not describe, the finest rung on time is wanted, unless it takes time of the next frame: then fewer frames would arrive.
#[test]
fn the_finest_rung_in_a_drift_takes_no_time_of_the_next_frame() {
    let distinct = ladder();
    let rungs = distinct.rungs().iter().enumerate().map(|(place, rung)| RungProfile {
        rung: Rung::new(&format!("jpeg/q{}/420", 10 * place + 5)).expect("a valid name"),
        accuracy: if place < 5 { rung.accuracy } else { 0.92 + 1e-4 * place as f64 },
        ..rung.clone()
    });
    let ladder = Profile::new(rungs.collect()).expect("ten different rungs").ladder();
    let mut story = Story { ladder, ..Story::new() };
    for _ in 0..30 {
        story.frame(3_300.0);
    }
    let [by_day, drifted] = [false, true].map(|prefers_finer| {
        let bound = Duration::from_secs(1);
        let offer = Offer { latency_bound: bound, prefers_finer, ..offer(story.now, &story.ladder) };
        match story.policy.decide(&offer) {
            Decision::Send(choice) => choice.rung,
            Decision::Wait { until } => panic!("it waits until {until:?}"),
        }
    });
    // 140 kB take 42 ms, 200 kB take 61, 290 kB take 88. The next frame comes after 67.
    assert_eq!((by_day, drifted), (5, 6));
}

/// The profile's accuracies may not hold at night, but coarser frames gain nothing. If others make one
/// frame in five late at every rung, no rung is on time often enough, and frames are as fine as by day.
#[test]
fn a_drift_makes_no_frame_coarser_on_a_link_that_is_late_at_every_rung() {
    let mut story = Story::new();
    for number in 0..400 {
        let others = Duration::from_millis(if number % 5 == 4 { 150 } else { 0 });
        story.free = story.free.max(story.now) + others;
        story.frame(5_000.0);
    }
    let [by_day, drifted] = [false, true].map(|prefers_finer| {
        let offer = Offer { prefers_finer, ..offer(story.now, &story.ladder) };
        match story.policy.decide(&offer) {
            Decision::Send(choice) => choice.rung,
            Decision::Wait { until } => panic!("it waits until {until:?}"),
        }
    });
    assert!(by_day > 4, "rung {by_day}");
    assert_eq!(drifted, by_day);
}

#[test]
fn late_frames_cost_no_more_where_no_rung_would_avoid_them() {
    let mut story = Story::new();
    let mut rung = 0;
    for number in 0..400 {
        // One frame in five waits for others, for longer than the bound.
        let others = Duration::from_millis(if number % 5 == 4 { 150 } else { 0 });
        story.free = story.free.max(story.now) + others;
        rung = story.frame(5_000.0);
    }
    assert!(story.policy.is_infeasible(), "a fifth is late at any rung");
    assert_eq!(rung, 8, "the others are as good as the link allows");
    let rise = story.policy.knows.price.of(&story.policy.knows.config, false);
    assert!(rise < 0.5, "{rise}: only while it was not known yet");
}

#[test]
fn the_first_frames_grow_at_most_to_twice_the_last() {
    let mut story = Story::new();
    let rungs: Vec<usize> = (0..10).map(|_| story.frame(100e3)).collect();
    let bytes = |rung: usize| story.ladder.rungs()[rung].bytes.mean;
    assert_eq!(rungs[0], 0, "nothing is known yet");
    assert!(rungs.windows(2).all(|pair| bytes(pair[1]) <= 2.0 * bytes(pair[0])), "{rungs:?}");
    assert_eq!(rungs[9], 9);
}

#[test]
fn an_idle_link_is_never_silent_however_bad_the_prospects() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(10.0);
    }
    let mut stale = offer(story.now, &story.ladder);
    stale.captured = story.now - Duration::from_millis(99);
    let Decision::Send(choice) = story.policy.decide(&stale) else { panic!("the link is idle") };
    assert_eq!(choice.rung, 0);
    assert!(choice.infeasible, "one millisecond is left, at 10 bytes per millisecond");
}

#[test]
fn while_the_link_is_out_a_small_frame_is_tried_ten_times_a_second() {
    let mut story = Story::new();
    for _ in 0..10 {
        story.frame(10e3);
    }
    let at = story.now;
    let choice = story.choice();
    let bytes = story.ladder.rungs()[choice.rung].bytes.mean;
    story.policy.handle_sent(&sent(99, choice.rung, bytes, at));
    story.now = at + Duration::from_millis(150);
    story.policy.handle_reset(story.now, frame_id(99));
    assert_eq!(story.choice().rung, 0);
    story.policy.handle_sent(&sent(100, 0, 20e3, story.now));
    assert_eq!(story.decide(), Decision::Wait { until: story.now + OUTAGE_INTERVAL });
    // The link is back, at a third of its rate.
    let back = story.now + Duration::from_millis(20);
    story.policy.handle_arrival(back, &arrival(100, 20e3, back - Duration::from_millis(7), back - DELAY));
    story.now = back;
    story.free = back;
    for _ in 0..6 {
        story.frame(3_300.0);
    }
    let rate = story.policy.link_rate().expect("frames were measured").0 / 8e3;
    assert!(
        (rate / 3_300.0 - 1.0).abs() < 0.1,
        "six frames later the estimate is {rate} bytes per millisecond"
    );
    assert!(story.policy.calibration().expect("it predicts").actual_late > 0.0, "the lost frame was late");
}

#[test]
fn a_frame_in_service_for_long_holds_back_the_next() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(5_000.0);
    }
    let usual = story.choice().rung;
    story.policy.handle_sent(&sent(99, usual, 290e3, story.now));
    // After 60 ms a tenth of it is there.
    let part = Arrival {
        bytes: 29_000,
        complete: false,
        ..arrival(99, 0.0, story.now + DELAY, story.now + Duration::from_millis(57))
    };
    story.policy.handle_arrival(story.now + Duration::from_millis(60), &part);
    story.now += Duration::from_millis(60);
    assert!(matches!(story.decide(), Decision::Wait { .. }), "it would only be late as well");
}

#[test]
fn a_frame_is_not_in_service_while_the_one_before_it_is() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(5_000.0);
    }
    let (begun, usual) = (story.now, story.choice().rung);
    story.policy.handle_sent(&sent(98, usual, 290e3, begun));
    story.policy.handle_sent(&sent(99, usual, 290e3, begun));
    let end = begun + DELAY + Duration::from_millis(58);
    story.policy.handle_arrival(end + DELAY, &arrival(98, 290e3, begun + DELAY, end));
    let service = story.policy.knows.flights.in_service(end + DELAY).expect("the second is on its way");
    assert!(service.whole.ms < 1.0, "the link could only begin with it now: {service:?}");
}

/// A policy that has seen twenty frames of 20 kB arrive at 5,000 bytes per millisecond, 70 ms away.
fn far() -> Quantile {
    let mut far = Quantile::new(Config::default());
    for sequence in 0..20 {
        let at = Instant::ZERO + Duration::from_millis(200) * sequence as u32;
        let (first, last) = (at + Duration::from_millis(70), at + Duration::from_millis(74));
        far.handle_sent(&sent(sequence, 0, 20e3, at));
        far.handle_arrival(last + Duration::from_millis(66), &arrival(sequence, 20e3, first, last));
    }
    far
}

#[test]
fn what_a_new_connections_window_holds_back_says_nothing_of_the_link() {
    let mut far = far();
    let before = far.link_rate().expect("frames were measured").0;
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(5_000 + ms);
    let of_window = |sequence, at| SentFrame { window: Some(12_000), ..sent(sequence, 0, 60e3, at) };
    // 12 kB at once, 24 kB a round trip later, and the rest after another.
    far.handle_sent(&of_window(98, at(0)));
    far.handle_arrival(at(420), &arrival(98, 60e3, at(70), at(350)));
    far.handle_sent(&of_window(99, at(420)));
    let part = Arrival { complete: false, ..arrival(99, 12e3, at(490), at(490)) };
    far.handle_arrival(at(560), &part);
    far.handle_cancelled(at(600), frame_id(99), 12_000);
    assert_eq!(far.link_rate().expect("frames were measured").0, before);
    // A frame that takes longer than the window needs to open shows a slower link.
    far.handle_sent(&of_window(100, at(700)));
    far.handle_arrival(at(1_840), &arrival(100, 60e3, at(770), at(1_770)));
    assert!(far.link_rate().expect("frames were measured").0 < before / 2.0);
}

/// At first ten packets may be on their way, and twice as many with every round trip.
#[test]
fn larger_frames_wait_until_the_window_of_a_new_connection_is_open() {
    let ladder = ladder();
    let mut far = far();
    let now = Instant::ZERO + Duration::from_secs(5);
    let on_time = |far: &mut Quantile, window| {
        let latency_bound = Duration::from_millis(200);
        match far.decide(&Offer { latency_bound, window, ..offer(now, &ladder) }) {
            Decision::Send(choice) => choice.on_time_probability.expect("it predicts"),
            Decision::Wait { .. } => panic!("the link is idle"),
        }
    };
    assert!(on_time(&mut far, None) > 0.9);
    assert!(on_time(&mut far, Some(24_000)) > 0.9, "the smallest rung has 20 kB");
    assert!(on_time(&mut far, Some(12_000)) < 0.1, "its last bytes leave after a round trip");
    let in_time = |window| {
        let latency_bound = Duration::from_millis(300);
        let offer = Offer { latency_bound, window, ..offer(now, &ladder) };
        far.bytes_in_time(&offer, Duration::ZERO).expect("the link was measured")
    };
    assert!((in_time(Some(12_000)) - 36e3).abs() < 1.0, "12 kB at once, and 24 kB a round trip later");
    assert!(in_time(None) > 300e3);
}

#[test]
fn what_a_cancelled_frame_shows_last_is_what_the_link_has_become() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(5_000.0);
    }
    let usual = story.choice().rung;
    let begun = story.now;
    story.policy.handle_sent(&sent(99, usual, 290e3, begun));
    // 100 kB of it at 5,000 bytes per millisecond, then the link carries a tenth of that.
    let at = |ms: u64| begun + DELAY + Duration::from_millis(ms);
    for ms in (0..=60).step_by(10) {
        let bytes = if ms <= 20 { ms * 5_000 } else { 100_000 + (ms - 20) * 500 };
        let part = Arrival { bytes: bytes as u32, complete: false, ..arrival(99, 0.0, at(0), at(ms)) };
        story.policy.handle_arrival(at(ms) + DELAY, &part);
    }
    story.policy.handle_cancelled(at(60) + DELAY, frame_id(99), 130_000);
    let rate = story.policy.link_rate().expect("frames were measured").0 / 8e3;
    assert!(
        (rate / 500.0 - 1.0).abs() < 0.01,
        "{rate} bytes per millisecond; 2,000 were it all of the frame"
    );
}

#[test]
fn a_cap_is_kept_and_what_is_left_of_an_expired_one_is_less() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(9_000.0);
    }
    let free = story.choice().rung;
    let (now, ladder) = (story.now, story.ladder.clone());
    let mut rung = |cap: Option<Cap>| {
        let Decision::Send(choice) = story.policy.decide(&Offer { cap, ..offer(now, &ladder) }) else {
            panic!("the link is idle")
        };
        choice.rung
    };
    let cap = Cap { frame_bytes_max: 100e3, until: now + Duration::from_millis(300) };
    assert_eq!(rung(Some(cap)), 4);
    let expired = Cap { until: now, ..cap };
    assert!(rung(Some(expired)) < free);
    assert_eq!(rung(None), free);
}

#[test]
fn what_the_detector_takes_counts_where_the_result_is_bound() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(9_000.0);
    }
    let mut rungs = story.ladder.rungs().to_vec();
    for (place, rung) in rungs.iter_mut().enumerate() {
        rung.detector_time = Some(Duration::from_millis(10 * place as u64));
    }
    let ladder = crate::profile::Profile::new(rungs).expect("sound").ladder();
    let bound = Duration::from_millis(100);
    let with = Offer { result_latency_bound: Some(bound), ..offer(story.now, &ladder) };
    let without = offer(story.now, &ladder);
    let Decision::Send(with) = story.policy.decide(&with) else { panic!("the link is idle") };
    let Decision::Send(without) = story.policy.decide(&without) else { panic!("the link is idle") };
    // 600 kB take 67 ms and the detector 90: not both. 290 kB take 32 ms and it 70.
    assert_eq!(without.rung, 9);
    assert!(with.rung < 8, "rung {}", with.rung);
}

#[test]
fn without_degrading_nothing_goes_below_the_bounds_but_a_probe() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(1_000.0);
    }
    let (mut sent_frames, begin) = (0, story.now);
    while story.now < begin + Duration::from_secs(6) {
        // 0.99 needs 420 kB, which take 420 ms.
        let strict = Offer { accuracy_floor: Some(0.99), degrade: false, ..offer(story.now, &story.ladder) };
        if let Decision::Send(choice) = story.policy.decide(&strict) {
            assert!(choice.infeasible);
            story.policy.handle_sent(&sent(1_000 + sent_frames, choice.rung, 420e3, story.now));
            let end = story.now + Duration::from_millis(420);
            story.policy.handle_arrival(
                end + DELAY,
                &arrival(1_000 + sent_frames, 420e3, story.now + DELAY, end + DELAY),
            );
            sent_frames += 1;
        }
        story.now += INTERVAL;
    }
    assert!((3..=5).contains(&sent_frames), "{sent_frames} probes in six seconds");
}

fn two_rungs(bytes: [f64; 2]) -> Ladder {
    let rung = |bytes: f64, accuracy: f64| RungProfile {
        rung: Rung::new(&format!("bytes/{bytes}")).expect("a valid name"),
        bytes: ByteSizes::around(bytes, 0.08),
        accuracy,
        camera_time: Duration::ZERO,
        detector_time: None,
    };
    Profile::new(vec![rung(bytes[0], 0.7), rung(bytes[1], 0.9)]).expect("two rungs").ladder()
}

#[test]
fn a_ladder_with_a_gap_is_climbed() {
    let mut story = Story::new();
    story.ladder = two_rungs([20e3, 120e3]);
    for _ in 0..5 {
        story.frame(4_000.0);
    }
    assert_eq!(story.frame(4_000.0), 1, "30 ms, though the frame is six times as large as any before");
}

/// Video whose finest rung brings nothing in the profile's scene.
fn with_a_tie() -> Ladder {
    let rungs = [("h264/q38", 20e3, 0.97), ("h264/q30", 65e3, 0.996), ("h264/q22", 200e3, 0.9961)];
    let rungs = rungs.map(|(name, bytes, accuracy)| RungProfile {
        rung: Rung::new(name).expect("a valid name"),
        bytes: ByteSizes::around(bytes, 0.08),
        accuracy,
        camera_time: Duration::ZERO,
        detector_time: None,
    });
    Profile::new(rungs.to_vec()).expect("sound").ladder()
}

/// In another light the finest rung may be worth its bytes. It is chosen if it leaves three quarters of the link to others.
#[test]
fn of_rungs_that_tie_the_finest_goes_if_the_link_has_room_to_spare() {
    let last = |bytes_per_ms: f64| {
        let mut story = Story { ladder: with_a_tie(), ..Story::new() };
        (0..60).map(|_| story.frame(bytes_per_ms)).last()
    };
    assert_eq!(last(30e3), Some(2), "200 kB in 67 ms are a tenth of this link");
    assert_eq!(last(9e3), Some(1), "and a third of this one");
}

/// Frames have drifted from the profile, so its accuracies may not hold. Nothing is spared, but frames stay on time.
#[test]
fn where_the_profile_does_not_hold_the_finest_rung_that_is_on_time_goes() {
    let chosen = |bytes_per_ms: f64| {
        let mut story = Story { ladder: with_a_tie(), ..Story::new() };
        for _ in 0..60 {
            story.frame(bytes_per_ms);
        }
        let offer = Offer { prefers_finer: true, ..offer(story.now, &story.ladder) };
        match story.policy.decide(&offer) {
            Decision::Send(choice) => choice.rung,
            Decision::Wait { until } => panic!("it waits until {until:?}"),
        }
    };
    assert_eq!(chosen(9e3), 2);
    assert_eq!(chosen(1.5e3), 1, "200 kB would be late");
}

/// A frame that is cancelled at its first report has shown one packet, which says nothing about the rate. The bytes
/// that had left are measured: by a report of the frame if there is one, otherwise by the first packet behind it.
#[test]
fn what_is_left_of_a_cancelled_frame_shows_what_the_link_has_become() {
    for reported in [true, false] {
        let mut story = Story::new();
        for _ in 0..30 {
            story.frame(5_000.0);
        }
        let begun = story.now;
        let at = |ms: u64| begun + DELAY + Duration::from_millis(ms);
        story.policy.handle_sent(&sent(99, 6, 200e3, begun));
        let packet = Arrival { complete: false, ..arrival(99, 1_200.0, at(2), at(2)) };
        story.policy.handle_arrival(at(2) + DELAY, &packet);
        story.policy.handle_cancelled(at(2) + DELAY, frame_id(99), 65_200);
        let rate = |story: &Story| story.policy.link_rate().expect("frames were measured").0 / 8e3;
        assert!(rate(&story) > 4_000.0, "one packet tells nothing: {}", rate(&story));
        story.policy.handle_sent(&sent(100, 0, 20e3, at(2) + DELAY));
        // 64 kB at 500 bytes per millisecond.
        let tail = match reported {
            true => Arrival { bytes: 65_200, complete: false, ..arrival(99, 0.0, at(2), at(130)) },
            false => Arrival { complete: false, ..arrival(100, 1_200.0, at(130), at(130)) },
        };
        story.policy.handle_arrival(at(130) + DELAY, &tail);
        assert!((rate(&story) / 500.0 - 1.0).abs() < 0.1, "{} bytes per millisecond", rate(&story));
        let waits = story.policy.knows.rate.pairs().map(|pair| pair.wait_at(500.0, 20e3));
        assert!(waits.fold(0.0, f64::max) < 10.0, "its own bytes are no wait behind others");
    }
}

/// A frame that finds the link idle does not show when the bytes before it were through.
#[test]
fn bytes_of_a_cancelled_frame_that_were_through_long_before_the_next_are_no_measurement() {
    let mut story = Story::new();
    for _ in 0..30 {
        story.frame(5_000.0);
    }
    let before = story.policy.link_rate();
    let begun = story.now;
    let at = |ms: u64| begun + DELAY + Duration::from_millis(ms);
    story.policy.handle_sent(&sent(99, 6, 200e3, begun));
    let packet = Arrival { complete: false, ..arrival(99, 1_200.0, at(0), at(0)) };
    story.policy.handle_arrival(at(0) + DELAY, &packet);
    story.policy.handle_cancelled(at(0) + DELAY, frame_id(99), 65_200);
    story.policy.handle_sent(&sent(100, 0, 20e3, at(500)));
    let next = Arrival { complete: false, ..arrival(100, 1_200.0, at(500) + DELAY, at(500) + DELAY) };
    story.policy.handle_arrival(at(500) + DELAY + DELAY, &next);
    assert_eq!(story.policy.link_rate(), before);
}

/// Frames of one packet measure no rate, but their waits count. One long wait at the start is forgotten like any other.
#[test]
fn a_long_first_wait_is_outweighed_by_frames_of_one_packet() {
    let mut policy = Quantile::new(Config::default());
    let ladder = two_rungs([800.0, 2_400.0]);
    let mut pass = |sequence: u64, bytes: f64, wait_ms: u64, took_ms: u64| {
        let at = Instant::ZERO + INTERVAL * 4 * sequence as u32;
        let first = at + DELAY + Duration::from_millis(wait_ms);
        let last = first + Duration::from_millis(took_ms);
        policy.handle_sent(&sent(sequence, 0, bytes, at));
        policy.handle_arrival(last + DELAY, &arrival(sequence, bytes, first, last));
        match policy.decide(&offer(last + DELAY, &ladder)) {
            Decision::Send(choice) => choice.on_time_probability,
            Decision::Wait { until } => panic!("the link is idle, and it waits until {until:?}"),
        }
    };
    pass(0, 2_400.0, 0, 2);
    assert_eq!(pass(1, 2_400.0, 150, 2), Some(0.0), "all that is known is a wait beyond the bound");
    // One frame in six waits as long, so five in six are on time.
    let on_time =
        (2..100).map(|sequence| pass(sequence, 800.0, if sequence % 6 == 0 { 150 } else { 0 }, 0)).last();
    let on_time = on_time.flatten().expect("it predicts");
    assert!((on_time - 5.0 / 6.0).abs() < 0.05, "{on_time}");
}

/// A frame of one packet takes the time of its own bytes, not the time of smaller frames before it: 40 ms and 115 ms at 10
/// bytes per millisecond, with a bound of 100. Sizes vary by 8 %: the smallest of the larger frames has 992 bytes, and 965
/// are in time. One pair of 29 knows no wait: until a small frame comes, the time of a full packet is taken for the delay.
#[test]
fn a_larger_frame_of_one_packet_takes_longer_than_smaller_ones_did() {
    let mut policy = Quantile::new(Config::default());
    let ladder = two_rungs([400.0, 1_150.0]);
    let mut now = Instant::ZERO;
    for sequence in 0..30 {
        let bytes: f64 = if sequence < 2 { 2_400.0 } else { 400.0 };
        let through = |bytes: f64| now + DELAY + Duration::from_secs_f64(bytes / 10e3);
        policy.handle_sent(&sent(sequence, 0, bytes, now));
        let (first, last) = (through(bytes.min(1_200.0)), through(bytes));
        policy.handle_arrival(last + DELAY, &arrival(sequence, bytes, first, last));
        now += INTERVAL * 4;
    }
    let offer = offer(now, &ladder);
    let rate = policy.knows.rate_now(now).expect("the first two frames were measured");
    let [small, large] = [0, 1].map(|rung| policy.knows.forecast(&offer, rate).on_time(rung));
    assert!(small > 0.99 && large < 0.05, "{small}, {large}");
    let in_time = policy.bytes_in_time(&offer, Duration::ZERO).expect("the link is known");
    assert!((900.0..1_000.0).contains(&in_time), "96.5 ms carry 965 bytes: {in_time}");
}
