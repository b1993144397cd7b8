//! Shared helpers for tests of policies, and properties that every policy keeps.

use std::time::Duration;

use proptest::prelude::*;

use super::baselines::awstream::{AwStream, Constants};
use super::named::PolicyName;
use super::*;
use crate::frame::{Epoch, Rung, Sequence};
use crate::profile::{ByteSizes, Profile, RungProfile};

/// Ten rungs from 20 to 600 kB.
pub(crate) fn ladder() -> Ladder {
    let rungs =
        [20e3, 30e3, 45e3, 65e3, 95e3, 140e3, 200e3, 290e3, 420e3, 600e3].map(|bytes: f64| RungProfile {
            rung: Rung::new(&format!("bytes/{bytes}")).expect("a valid name"),
            bytes: ByteSizes::around(bytes, 0.08),
            accuracy: 1.0 - 0.3 * (-bytes / 110e3).exp(),
            camera_time: Duration::ZERO,
            detector_time: None,
        });
    Profile::new(rungs.to_vec()).expect("ten different rungs").ladder()
}

/// A frame that was captured just now, with a bound of 100 ms.
pub(crate) fn offer(now: Instant, ladder: &Ladder) -> Offer<'_> {
    Offer {
        now,
        captured: now,
        interval: Duration::from_millis(67),
        ladder,
        latency_bound: Duration::from_millis(100),
        result_latency_bound: None,
        accuracy_floor: None,
        on_time_share: 0.98,
        degrade: true,
        cap: None,
        unsent_bytes: 0,
        window: None,
        coding: None,
        prefers_finer: false,
    }
}

pub(crate) fn frame_id(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

/// A frame that is sent as soon as it is captured.
pub(crate) fn sent(sequence: u64, rung: usize, bytes: f64, at: Instant) -> SentFrame {
    SentFrame {
        frame: frame_id(sequence),
        rung,
        expected_bytes: bytes as u32,
        bytes: bytes as u32,
        captured: at,
        sent: at,
        due: at + Duration::from_millis(100),
        window: None,
        first_packet_bytes: None,
        of_source: false,
        infeasible: false,
    }
}

/// A whole frame.
pub(crate) fn arrival(sequence: u64, bytes: f64, first: Instant, last: Instant) -> Arrival {
    Arrival { frame: frame_id(sequence), bytes: bytes as u32, first, last, complete: true }
}

/// A rung that leaves frames out has larger frames. A cap may have room for a better rung but not for this one.
#[test]
fn a_cap_is_kept_though_a_better_rung_needs_less() {
    let rung = |name: &str, bytes: f64, accuracy: f64| RungProfile {
        rung: Rung::new(name).expect("a valid name"),
        bytes: ByteSizes::around(bytes, 0.08),
        accuracy,
        camera_time: Duration::ZERO,
        detector_time: None,
    };
    let rungs = [("h264/q34/skip2", 2.1e3, 0.9), ("h264/q32/skip2", 3e3, 0.93), ("h264/q32", 2e3, 0.95)];
    let rungs = rungs.map(|(name, bytes, accuracy)| rung(name, bytes, accuracy));
    let ladder = Profile::new(rungs.to_vec()).expect("three different rungs").ladder();
    assert_eq!(ladder.len(), 3);
    let cap = Cap { frame_bytes_max: 2.2e3, until: Instant::ZERO + Duration::from_millis(300) };
    let offer = Offer { cap: Some(cap), ..offer(Instant::ZERO, &ladder) };
    assert_eq!([0, 1, 2].map(|chosen| offer.capped(chosen, 0)), [0, 0, 2]);
}

fn policies() -> Vec<Box<dyn Policy>> {
    let named = PolicyName::ALL.into_iter().map(PolicyName::policy);
    named.chain([Box::new(AwStream::new(Constants::EARLIER)) as Box<dyn Policy>]).collect()
}

/// What an arbitrary link may do.
#[derive(Clone, Debug)]
enum Happens {
    Offer,
    Left(u64),
    Arrives { sequence: u64, bytes: u32, first_ms: u64, took_ms: u64, complete: bool },
    Reset(u64),
    Cancelled(u64, u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => Just(Happens::Offer),
        1 => (0u64..40).prop_map(Happens::Left),
        4 => (0u64..40, any::<u32>(), 0u64..5_000, 0u64..5_000, any::<bool>()).prop_map(
            |(sequence, bytes, first_ms, took_ms, complete)| Happens::Arrives {
                sequence, bytes, first_ms, took_ms, complete,
            }
        ),
        1 => (0u64..40).prop_map(Happens::Reset),
        1 => (0u64..40, 0u64..1_000_000).prop_map(|(sequence, bytes)| Happens::Cancelled(sequence, bytes)),
    ]
}

proptest! {
    /// Whatever is reported, in whatever order, a decision is a rung of the ladder that keeps the floor, or an instant in the future.
    #[test]
    fn decisions_make_sense_whatever_the_link_reports(
        script in proptest::collection::vec((happens(), 0u64..300), 1..120),
        floor in proptest::option::of(0.0f64..1.0),
        bound_ms in 1u64..2_000,
        degrade in any::<bool>(),
        cap in proptest::option::of((0.0f64..1e6, 0u64..10_000)),
        window in proptest::option::of(0u64..1_000_000),
    ) {
        let ladder = ladder();
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        for mut policy in policies() {
            let (mut now_ms, mut sequence) = (0, 0);
            for (happens, later_ms) in &script {
                now_ms += later_ms;
                let now = at(now_ms);
                match happens {
                    Happens::Offer => {
                        let cap = cap.map(|(frame_bytes_max, until)| Cap { frame_bytes_max, until: at(until) });
                        let latency_bound = Duration::from_millis(bound_ms);
                        let offer = Offer { latency_bound, accuracy_floor: floor, degrade, cap, window, ..offer(now, &ladder) };
                        match policy.decide(&offer) {
                            Decision::Wait { until } => prop_assert!(until > now, "{} waits for the past", policy.name()),
                            Decision::Send(choice) => {
                                prop_assert!(choice.rung < ladder.len());
                                prop_assert!(choice.on_time_probability.is_none_or(|p| (0.0..=1.0).contains(&p)));
                                let (lowest, reaches) = offer.floor_rung();
                                let below = choice.rung < lowest;
                                prop_assert!(!below || choice.infeasible, "{} goes below the floor in silence", policy.name());
                                prop_assert!(reaches || choice.infeasible);
                                let bytes = ladder.rungs()[choice.rung].bytes.mean;
                                                                policy.handle_sent(&SentFrame { window, ..sent(sequence, choice.rung, bytes, now) });
                                sequence += 1;
                            }
                        }
                    }
                    Happens::Left(sequence) => policy.handle_left(now, frame_id(*sequence)),
                    Happens::Arrives { sequence, bytes, first_ms, took_ms, complete } => {
                        let first = at(now_ms.saturating_sub(*first_ms));
                        let last = first + Duration::from_millis(*took_ms);
                        let whole = arrival(*sequence, 0.0, first, last);
                        policy.handle_arrival(now, &Arrival { bytes: *bytes, complete: *complete, ..whole });
                    }
                    Happens::Cancelled(sequence, bytes) => {
                        let offer = Offer { unsent_bytes: *bytes, ..offer(now, &ladder) };
                        if policy.gives_up(&offer) {
                            policy.handle_cancelled(now, frame_id(*sequence), *bytes);
                        }
                    }
                    Happens::Reset(sequence) => policy.handle_reset(now, frame_id(*sequence)),
                }
            }
        }
    }
}
