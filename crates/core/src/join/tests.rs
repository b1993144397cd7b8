//! Stories of joins, and a test with any events in any order.

use std::collections::BTreeSet;

use proptest::prelude::*;

use std::time::Duration;

use super::*;
use crate::frame::{Epoch, Sequence};

const MS: Duration = Duration::from_millis(1);

fn camera(number: u8) -> CameraName {
    format!("dock/cam{number}").parse().expect("a valid name")
}

fn id(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

fn captured(sequence: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000 + sequence * 1_000_000)
}

/// A join of frames and records that are identified by numbers.
struct Rig {
    join: Join<u64, u64>,
    now: Instant,
}

impl Rig {
    fn new(config: JoinConfig) -> Self {
        Self { join: Join::new(config), now: Instant::ZERO }
    }

    fn frame(&mut self, sequence: u64) {
        let camera = camera(1);
        self.join.handle_frame(self.now, (&camera, id(sequence), captured(sequence)), sequence, 100);
    }

    fn record(&mut self, of: u64, record: u64) {
        self.record_of(camera(1), of, record);
    }

    fn record_of(&mut self, camera: CameraName, of: u64, record: u64) {
        let origin = Origin { camera, frame: id(of), captured: captured(of) };
        self.join.handle_record(self.now, (Some(&origin), captured(of + 1)), record, 10);
    }

    fn take(&mut self) -> Vec<Joined<u64, u64>> {
        std::iter::from_fn(|| self.join.poll(self.now)).collect()
    }

    fn after(&mut self, time: Duration) -> Vec<Joined<u64, u64>> {
        self.now += time;
        self.take()
    }
}

fn pair(frame: u64, records: &[u64]) -> Joined<u64, u64> {
    Joined::Pair { frame, records: records.to_vec(), missing: None }
}

fn lacks(frame: u64, missing: Missing) -> Joined<u64, u64> {
    Joined::Pair { frame, records: Vec::new(), missing: Some(missing) }
}

fn stray(record: u64, reason: Stray) -> Joined<u64, u64> {
    Joined::Stray { record, reason }
}

/// Two workers finish in another order than that of the frames.
#[test]
fn pairs_come_in_the_order_of_the_frames() {
    let mut rig = Rig::new(JoinConfig::default());
    (0..3).for_each(|sequence| rig.frame(sequence));
    rig.record(1, 11);
    assert_eq!(rig.take(), []);
    rig.record(0, 10);
    assert_eq!(rig.take(), [pair(0, &[10]), pair(1, &[11])]);
    // A record may come before its frame.
    rig.record(3, 13);
    rig.record(2, 12);
    assert_eq!(rig.take(), [pair(2, &[12])]);
    rig.frame(3);
    assert_eq!(rig.take(), [pair(3, &[13])]);
    assert_eq!(rig.join.waiting(), (0, 0, 0));
}

#[test]
fn what_comes_never_late_or_twice_is_told() {
    let mut rig = Rig::new(JoinConfig::default());
    (0..4).for_each(|sequence| rig.frame(sequence));
    rig.record(2, 12);
    assert_eq!(rig.after(999 * MS), []);
    assert_eq!(
        rig.after(MS),
        [lacks(0, Missing::Passed), lacks(1, Missing::Passed), pair(2, &[12]), lacks(3, Missing::Late)]
    );
    rig.record(1, 11);
    rig.record(2, 22);
    assert_eq!(rig.take(), [stray(11, Stray::Late), stray(22, Stray::Twice)]);
    // Another program has frame 4; this program got frame 5.
    rig.record(4, 14);
    assert_eq!(rig.take(), []);
    rig.frame(5);
    assert_eq!(rig.take(), [stray(14, Stray::FrameSkipped)]);
    rig.record(6, 16);
    rig.join.handle_record(rig.now, (None, captured(9)), 99, 10);
    assert_eq!(rig.take(), [stray(99, Stray::NoOrigin)]);
    assert_eq!(rig.after(1_000 * MS), [lacks(5, Missing::Passed), stray(16, Stray::NoFrame)]);
}

#[test]
fn a_frame_waits_for_as_many_records_as_it_is_said_to_have() {
    let mut rig = Rig::new(JoinConfig { records: 2, ..JoinConfig::default() });
    rig.frame(0);
    rig.frame(1);
    rig.record(0, 1);
    assert_eq!(rig.take(), []);
    rig.record(0, 2);
    rig.record(1, 3);
    assert_eq!(rig.take(), [pair(0, &[1, 2])]);
    let one = Joined::Pair { frame: 1, records: vec![3], missing: Some(Missing::Late) };
    assert_eq!(rig.after(Duration::from_secs(1)), [one]);
}

/// A mistyped name is reported.
#[test]
fn streams_that_never_meet_are_told_once_and_again_after_they_met() {
    let mut rig = Rig::new(JoinConfig::default());
    for sequence in 0..100 {
        rig.now += 100 * MS;
        rig.frame(sequence);
        rig.record_of(camera(2), sequence, sequence);
        rig.take();
    }
    let told = rig.after(100 * MS).into_iter().find_map(|joined| match joined {
        Joined::NeverMet(told) => Some(told),
        _ => None,
    });
    let sentence = told.expect("ten seconds are over").to_string();
    assert!(sentence.ends_with("join the records with dock/cam2"), "{sentence}");
    assert!(rig.join.poll_timeout().is_none_or(|due| due > rig.now), "it is told once");
    let told = |rig: &mut Rig| {
        let told = rig.after(Duration::from_secs(11)).into_iter();
        told.filter(|joined| matches!(joined, Joined::NeverMet(_))).count()
    };
    assert_eq!(told(&mut rig), 0);
    rig.frame(200);
    rig.record(200, 7);
    assert_eq!(told(&mut rig), 0, "nothing has come since");
    rig.frame(201);
    assert_eq!(told(&mut rig), 1);
}

/// In the past, nothing is lost however fast one side is read, and no clock is waited for.
#[test]
fn of_the_past_the_records_say_when_a_frame_has_none() {
    let mut rig =
        Rig::new(JoinConfig { within: 10 * MS, frames_max: 4, is_past: true, ..JoinConfig::default() });
    (0..4).for_each(|sequence| rig.frame(sequence));
    assert!(!rig.join.wants_frame() && rig.join.wants_record());
    assert_eq!(rig.after(Duration::from_secs(5)), []);
    rig.record(1, 11);
    assert_eq!(rig.take(), []);
    // Frame 0 is ten milliseconds or more older than this record.
    rig.record(12, 112);
    assert_eq!(rig.take(), [lacks(0, Missing::Passed), pair(1, &[11]), lacks(2, Missing::Passed)]);
    rig.frame(12);
    assert_eq!(rig.take(), []);
    rig.join.handle_records_ended();
    assert_eq!(rig.take(), [lacks(3, Missing::Ended), pair(12, &[112])]);
    rig.join.handle_frames_ended();
    rig.record(13, 113);
    assert_eq!(rig.take(), [stray(113, Stray::NoFrame)]);
}

#[test]
fn names_that_records_make_up_take_no_memory() {
    let mut rig = Rig::new(JoinConfig::default());
    for number in 0..3_000_u64 {
        let made_up = format!("cam{number}").parse().expect("a valid name");
        rig.record_of(made_up, 0, number);
        rig.take();
    }
    assert!(rig.join.lanes.len() <= CAMERAS_MAX);
    assert!(rig.join.waiting().1 <= 256);
}

#[derive(Clone, Debug)]
enum Step {
    Frame { camera: u8, skip: u64, bytes: u64 },
    Record { camera: u8, of: u64, bytes: u64 },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u8..3, 0_u64..3, 0_u64..500).prop_map(|(camera, skip, bytes)| Step::Frame { camera, skip, bytes }),
        4 => (1_u8..4, 0_u64..60, 0_u64..500).prop_map(|(camera, of, bytes)| Step::Record { camera, of, bytes }),
        1 => (0_u64..400).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Every frame and every record comes out once, frames in order and with the records that were made of them, and the bounds are kept.
    #[test]
    fn everything_comes_out_once(
        steps in proptest::collection::vec(step(), 0..200),
        records in 1_usize..3,
        is_past: bool,
    ) {
        let config = JoinConfig {
            within: 100 * MS, records, frames_max: 8, records_max: 8, bytes_max: 2_000, is_past, ..JoinConfig::default()
        };
        let mut join = Join::<(u8, u64), (u8, u64, u64)>::new(config);
        let (mut now, mut next, mut number) = (Instant::ZERO, [0_u64; 4], 0);
        let (mut fed, mut out) = ((0, 0), Vec::new());
        for step in steps {
            match step {
                Step::Frame { camera: of, skip, bytes } if !is_past || join.wants_frame() => {
                    let sequence = next[usize::from(of)] + skip;
                    next[usize::from(of)] = sequence + 1;
                    fed.0 += 1;
                    join.handle_frame(now, (&camera(of), id(sequence), captured(sequence)), (of, sequence), bytes);
                }
                Step::Record { camera: of, of: sequence, bytes } if !is_past || join.wants_record() => {
                    let origin = Origin { camera: camera(of), frame: id(sequence), captured: captured(sequence) };
                    number += 1;
                    fed.1 += 1;
                    let published = captured(sequence + 5);
                    join.handle_record(now, (Some(&origin), published), (of, sequence, number), bytes);
                }
                Step::Wait(time) => now += Duration::from_millis(time),
                _ => {}
            }
            out.extend(std::iter::from_fn(|| join.poll(now)));
            let (frames, early, bytes) = join.waiting();
            prop_assert!(frames <= 8 && early <= 8, "{frames} frames and {early} records wait");
            prop_assert!(bytes <= 2_000 + 500 * u64::from(is_past) || frames + early <= 1, "{bytes} bytes wait");
            prop_assert!(is_past || join.poll_timeout().is_none_or(|due| due > now), "something is due and does not come");
        }
        join.handle_frames_ended();
        join.handle_records_ended();
        out.extend(std::iter::from_fn(|| join.poll(now)));
        prop_assert_eq!(join.waiting(), (0, 0, 0));
        let (mut frames, mut numbers, mut last) = (0, BTreeSet::new(), [None; 4]);
        for joined in out {
            match joined {
                Joined::Pair { frame: (of, sequence), records: its, missing } => {
                    prop_assert!(last[usize::from(of)] < Some(sequence), "frames change their order");
                    last[usize::from(of)] = Some(sequence);
                    frames += 1;
                    prop_assert_eq!(missing.is_some(), its.len() < records);
                    for (camera, made_of, number) in its {
                        prop_assert_eq!((camera, made_of), (of, sequence));
                        prop_assert!(numbers.insert(number), "a record comes twice");
                    }
                }
                Joined::Stray { record: (.., number), .. } => {
                    prop_assert!(numbers.insert(number), "a record comes twice");
                }
                Joined::NeverMet(_) => {}
            }
        }
        prop_assert_eq!((frames, numbers.len()), fed);
        let JoinCounts { whole, missing, matched, strays, .. } = join.counts();
        prop_assert_eq!((whole + missing, matched + strays), (fed.0 as u64, fed.1 as u64));
    }
}
