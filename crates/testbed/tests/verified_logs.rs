//! `mez store verify` against logs that were flipped, cut, filled with zeros, deleted, swapped and copied. It names all damage that costs a frame and
//! how many, and finds nothing wrong with undamaged logs, however their brokers ended.
//!
//! A reader, not verify, says which damage costs a frame: it reads the log before and after.

use std::collections::BTreeSet;

use mez_core::frame::FrameId;
use mez_core::store::{FindingKind, SegmentNumber};
use mez_testbed::disk::{DiskBug, Ending, SampleLog};
use mez_testbed::random::Random;

/// How many times the usual number of logs is damaged. `MEZ_DAMAGES=10 cargo test -p mez-testbed --test verified_logs` damages ten times as many.
fn times() -> u64 {
    std::env::var("MEZ_DAMAGES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// A kind of damage to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Flip,
    FlipSeveral,
    Zeros,
    Truncate,
    CutOut,
    Delete,
    Swap,
    Copy,
}

fn damage(sample: &mut SampleLog, what: Damage, random: &mut Random) -> String {
    let segments = sample.disk.segments();
    let segment = *random.pick(&segments);
    let length = sample.disk.bytes(segment).unwrap().len() as u64;
    let place = random.within(0..=length - 1) as usize;
    let flip = random.within(1..=255) as u8;
    let bytes = sample.disk.bytes(segment).unwrap();
    match what {
        Damage::Flip => bytes[place] ^= flip,
        Damage::FlipSeveral => {
            // Also so many bytes in one header that it cannot be corrected.
            for offset in 0..random.within(2..=40) as usize {
                bytes[(place / 3 + offset * 7) % length as usize] ^= flip;
            }
        }
        Damage::Zeros => bytes[place..].fill(0),
        Damage::Truncate => bytes.truncate(place),
        Damage::CutOut => drop(bytes.drain(place..(place + 300).min(length as usize))),
        Damage::Delete => drop(sample.disk.take(segment)),
        Damage::Swap => {
            let other = *random.pick(&segments);
            let (one, two) = (sample.disk.bytes(segment).cloned(), sample.disk.bytes(other).cloned());
            sample.disk.put(segment, two.unwrap());
            sample.disk.put(other, one.unwrap());
        }
        Damage::Copy => {
            let to = SegmentNumber(random.within(0..=segments.last().unwrap().0 + 3));
            let copy = bytes.clone();
            sample.disk.put(to, copy);
        }
    }
    format!("{what:?} of segment {} of {segments:?} at {place} of {length}", segment.0)
}

/// Compares the results of verify, readers and a broker's start for a damaged log. Returns the first error; `None`: all are right.
fn judge(sample: &mut SampleLog, before: &[(FrameId, bytes::Bytes)]) -> Option<String> {
    let reading = sample.read();
    let whole: BTreeSet<_> = before.iter().collect();
    if let Some(wrong) = reading.frames.iter().find(|frame| !whole.contains(frame)) {
        return Some(format!("frame {} was never written so", wrong.0));
    }
    if !reading.frames.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        return Some("the reader's frames are out of order".into());
    }
    let lost = (before.len() - reading.frames.len()) as u64;
    let report = sample.verify();
    let told = (report.records_lost, report.records());
    if lost > 0 && report.is_whole() {
        return Some(format!("{lost} frames are lost, and it is called whole"));
    }
    if told.1 != reading.frames.len() as u64 {
        return Some(format!("readers get {} frames: {report:?}", reading.frames.len()));
    }
    if !report.more_may_be_lost && told.0 != lost || told.0 > lost {
        return Some(format!("{lost} frames are lost: {report:?}"));
    }
    if lost > 0 && !report.bytes_unreadable() > 0 && report.findings.is_empty() {
        return Some(format!("nothing is named: {report:?}"));
    }
    // A reader cannot know of records before the oldest one that is left.
    let oldest = reading.frames.first().map(|(id, _)| *id);
    let between = before.iter().filter(|(id, _)| oldest.is_some_and(|oldest| *id > oldest)).count() as u64;
    let missed = between - (reading.frames.len() as u64).saturating_sub(1);
    if missed > 0 && (!reading.broken || reading.damaged != missed) {
        return Some(format!("{missed} frames are missing between others: {} told", reading.damaged));
    }
    let recovery = sample.recover();
    if recovery.records.len() != reading.frames.len() {
        return Some(format!("a start brings back {} of {}", recovery.records.len(), reading.frames.len()));
    }
    if recovery.report.records_lost() != told.0 && !report.more_may_be_lost {
        return Some(format!("a start counts another loss: {:?}", recovery.report));
    }
    if lost > 0 && recovery.report.is_clean() {
        return Some(format!("a start finds nothing wrong: {:?}", recovery.report));
    }
    let (mut copy, repaired) = sample.repair(7);
    let copied = copy.read();
    if copied.frames != reading.frames || repaired.records != told.1 {
        return Some(format!("the copy has {} frames of {}", copied.frames.len(), reading.frames.len()));
    }
    let checked = copy.verify();
    if !checked.is_whole() || copied.damaged > 0 || copied.stated < reading.stated {
        return Some(format!("the copy is not in order: {checked:?}"));
    }
    None
}

/// Damages `count` logs and returns how many lost frames, or the first wrong result.
fn sweep(what: Damage, count: u64, bug: Option<DiskBug>) -> Result<u64, String> {
    let mut cost = 0;
    for seed in 0..count {
        let ending = if seed % 2 == 0 { Ending::Stopped } else { Ending::Killed };
        let mut sample = SampleLog::seeded(seed / 10, ending, bug);
        let before = sample.read().frames;
        let mut random = Random::seeded(seed ^ 0xda3a_9e00);
        let said = damage(&mut sample, what, &mut random);
        if let Some(wrong) = judge(&mut sample, &before) {
            return Err(format!("seed {seed}, {ending:?}, {said}: {wrong}"));
        }
        cost += u64::from(sample.read().frames.len() < before.len());
    }
    Ok(cost)
}

#[track_caller]
fn assert_named(what: Damage, count: u64) {
    let cost = sweep(what, count * times(), None).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{what:?}: {cost} of {} cost frames, and all were named", count * times());
    // Damage that costs nothing would show nothing.
    assert!(
        cost > count / 4 || what == Damage::Copy && cost > 0,
        "{what:?}: only {cost} of {count} cost anything"
    );
}

#[test]
fn flipped_bytes_are_named() {
    assert_named(Damage::Flip, 1_000);
}

#[test]
fn many_flipped_bytes_are_named() {
    assert_named(Damage::FlipSeveral, 200);
}

#[test]
fn zeros_at_the_end_are_named() {
    assert_named(Damage::Zeros, 200);
}

#[test]
fn truncations_are_named() {
    assert_named(Damage::Truncate, 200);
}

#[test]
fn holes_are_named() {
    assert_named(Damage::CutOut, 200);
}

#[test]
fn deleted_segments_are_named() {
    assert_named(Damage::Delete, 50);
}

#[test]
fn swapped_segments_are_named() {
    assert_named(Damage::Swap, 50);
}

#[test]
fn copied_segments_are_named() {
    assert_named(Damage::Copy, 50);
}

/// Logs of brokers that were stopped, and of killed ones, some of them in the middle of a write.
#[test]
fn nothing_is_wrong_with_logs_that_are_in_order() {
    let mut torn = 0;
    for seed in 0..200 * times() {
        for ending in [Ending::Stopped, Ending::Killed] {
            let mut sample = SampleLog::seeded(seed, ending, None);
            let report = sample.verify();
            assert!(report.is_whole(), "seed {seed}, {ending:?}: {report:?}");
            let reading = sample.read();
            assert_eq!(
                (report.records(), reading.damaged, reading.broken),
                (reading.frames.len() as u64, 0, false)
            );
            torn += u64::from(report.torn_bytes > 0);
            // Without any state besides its segments, the log does not count as damaged either.
            *sample.disk.bounds() = None;
            sample.disk.progress().clear();
            let report = sample.verify();
            assert!(report.is_whole(), "seed {seed}, {ending:?}, without state: {report:?}");
        }
    }
    assert!(torn > 20, "only {torn} of them end within a record");
}

/// After a power cut, a log counts as whole if and only if nothing is missing between its first and last record, and all durable records are there.
#[test]
fn power_cuts_are_no_damage_unless_they_leave_holes() {
    let (mut whole, mut torn) = (0, 0);
    for seed in 0..200 * times() {
        let mut sample = SampleLog::seeded(seed, Ending::PowerCut, None);
        let (report, reading) = (sample.verify(), sample.read());
        assert_eq!(report.is_whole(), reading.damaged == 0, "seed {seed}: {report:?}");
        assert_eq!(report.records_lost, reading.damaged, "seed {seed}: {report:?}");
        whole += u64::from(report.is_whole());
        torn += u64::from(report.torn_bytes > 0);
    }
    assert!(whole > 100 && torn > 20, "{whole} whole, {torn} torn");
}

/// A finding states which segment, how many records and which times.
#[test]
fn what_is_lost_is_told_with_its_times() {
    let mut samples = (0..).map(|seed| SampleLog::seeded(seed, Ending::Stopped, None));
    let mut sample = samples.find(|sample| sample.disk.segments().len() > 4).unwrap();
    let before = sample.verify();
    let middle = &before.segments[2];
    sample.disk.take(middle.number);
    let report = sample.verify();
    let [finding] = &report.findings[..] else { panic!("{report:?}") };
    assert_eq!((finding.segment, finding.records), (middle.number, Some(middle.records)));
    assert_eq!(finding.kind, FindingKind::Missing { to: middle.number });
    let (first, last) = middle.captured.unwrap();
    assert!(finding.after.unwrap() < first && finding.before.unwrap() > last, "{finding}");
    let said = finding.to_string();
    assert!(said.contains("is missing") && said.contains("frames are lost"), "{said}");
}

// ---- planted bugs -----------------------------------------------------------------------------------------

fn assert_noticed(bug: DiskBug, what: Damage, words: &str) {
    let wrong = sweep(what, 200, Some(bug)).expect_err("it goes unnoticed");
    assert!(wrong.contains(words), "{bug:?} is taken for something else: {wrong}");
}

#[test]
fn a_writer_that_remembers_no_progress_is_noticed() {
    assert_noticed(DiskBug::ForgottenProgress, Damage::Truncate, "it is called whole");
}

#[test]
fn a_writer_that_forgets_where_the_log_begins_is_noticed() {
    assert_noticed(DiskBug::ForgottenBeginning, Damage::Delete, "it is called whole");
}

#[test]
fn a_reader_that_takes_zeros_for_the_end_is_noticed() {
    assert_noticed(DiskBug::ZerosAreTheEnd, Damage::Zeros, "it is called whole");
}
