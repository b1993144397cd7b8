//! Tests of readings of originals next to contracts that make frames smaller.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use crate::frame::{Epoch, Frame, FrameId, FrameMeta, Rung, Sequence, SkipCounts, SkipRange, SkipReason};
use crate::log::{LogConfig, LogWriter, Record, log};
use crate::sample;

const SMALL: &str = "jpeg/w32/q50/420";

fn record(sequence: u64, rung: &str, skipped: &[(u64, u64, SkipReason)]) -> Record {
    let meta = FrameMeta {
        rung: Rung::new(rung).unwrap(),
        ..sample::meta(
            FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            Timestamp::from_nanos(sequence),
        )
    };
    let range = |&(first, count, reason)| SkipRange { first: Sequence(first), count, reason };
    Record {
        skipped: skipped.iter().map(range).collect(),
        ..sample::record(Frame { meta, payload: Bytes::from_static(b"x") })
    }
}

fn append(writer: &mut LogWriter, record: Record) {
    let Record { frame, skipped, arrived, .. } = record;
    writer.append(frame, skipped, arrived).unwrap();
}

/// The wall clock, in milliseconds.
fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(1_000_000_000_000 + ms * 1_000_000)
}

fn sequence_and_skips(next: Next) -> (u64, Vec<(SkipReason, u64)>) {
    let Next::Frame(delivery) = next else { panic!("no frame: {next:?}") };
    (delivery.record.frame.meta.id.sequence.0, delivery.skipped.iter().collect())
}

fn reading() -> (Subscription, LogWriter, CameraName) {
    let (writer, reader) = log(LogConfig::default());
    let mut reading = Subscription::with_past(Span::LIVE, PastOptions::ORIGINALS);
    let camera: CameraName = "dock/cam1".parse().unwrap();
    reading.attach(camera.clone(), reader);
    (reading, writer, camera)
}

fn found(sequence: u64) -> PastAnswer {
    PastAnswer { record: Some(record(sequence, "original", &[])), ..PastAnswer::default() }
}

/// Frames that crossed as they were published are delivered from memory. If frames crossed
/// smaller, the newest original is asked for once, and frames published meanwhile are counted.
#[test]
fn the_newest_original_is_asked_for_where_frames_cross_smaller() {
    let (mut reading, mut writer, camera) = reading();
    append(&mut writer, record(3, "original", &[]));
    assert_eq!(sequence_and_skips(reading.next(at(0))), (3, vec![]));
    assert!(matches!(reading.next(at(0)), Next::Pending), "the application is ready again");
    assert_eq!(reading.poll_past(), None, "it was here");
    append(&mut writer, record(4, SMALL, &[]));
    assert!(matches!(reading.next(at(10)), Next::Pending));
    let (_, query) = reading.poll_past().expect("the camera has the original");
    assert!(query.is_for_present() && !query.asks_disk(), "{query:?}");
    assert_eq!(query.after.map(|after| after.sequence.0), Some(3));
    append(&mut writer, record(7, SMALL, &[(5, 1, SkipReason::LinkDown), (6, 1, SkipReason::LeftOut)]));
    append(&mut writer, record(8, SMALL, &[]));
    assert!(matches!(reading.next(at(20)), Next::Pending));
    assert_eq!(reading.poll_past(), None, "one question at a time");
    reading.handle_past(&camera, found(7));
    // The original of the frame that the contract's rung left out was not asked for.
    let skipped = vec![(SkipReason::LinkBusy, 2), (SkipReason::LinkDown, 1)];
    assert_eq!(sequence_and_skips(reading.next(at(30))), (7, skipped));
    assert!(matches!(reading.next(at(30)), Next::Pending));
    assert!(reading.poll_past().is_some(), "frame 8 has crossed smaller");
    // The rung of the contract is the original now.
    append(&mut writer, record(9, "original", &[]));
    assert_eq!(sequence_and_skips(reading.next(at(40))), (9, vec![(SkipReason::LinkBusy, 1)]));
    // The requested original comes too late, and is not delivered behind a newer one.
    reading.handle_past(&camera, found(8));
    assert!(matches!(reading.next(at(50)), Next::Pending));
}

/// Frames that cross while the application is busy with an original count as skipped because the application was busy.
#[test]
fn what_comes_while_the_application_is_busy_is_counted_so() {
    let (mut reading, mut writer, camera) = reading();
    append(&mut writer, record(1, SMALL, &[]));
    assert!(matches!(reading.next(at(0)), Next::Pending));
    reading.poll_past().expect("the camera has the original");
    append(&mut writer, record(2, SMALL, &[]));
    reading.handle_past(&camera, found(1));
    assert_eq!(sequence_and_skips(reading.next(at(10))), (1, vec![]));
    // The application works on the last original.
    append(&mut writer, record(3, SMALL, &[]));
    append(&mut writer, record(4, SMALL, &[]));
    assert!(matches!(reading.next(at(500)), Next::Pending));
    reading.poll_past().expect("it is ready again");
    append(&mut writer, record(5, SMALL, &[]));
    append(&mut writer, record(6, SMALL, &[]));
    reading.handle_past(&camera, found(6));
    let skipped = vec![(SkipReason::LinkBusy, 2), (SkipReason::ApplicationBusy, 2)];
    assert_eq!(sequence_and_skips(reading.next(at(900))), (6, skipped));
}

/// A camera without a newer frame is asked again when another frame has crossed,
/// or after half a second, because a contract may want no frame to cross.
#[test]
fn a_camera_without_a_newer_frame_is_asked_again() {
    let (mut reading, mut writer, camera) = reading();
    let asks = |reading: &mut Subscription, ms| {
        assert!(matches!(reading.next(at(ms)), Next::Pending));
        reading.poll_past().is_some()
    };
    assert!(!asks(&mut reading, 0), "frames may come as they are");
    assert!(!asks(&mut reading, 499));
    assert!(asks(&mut reading, 500));
    reading.handle_past(&camera, PastAnswer::default());
    assert!(!asks(&mut reading, 501));
    append(&mut writer, record(1, SMALL, &[]));
    assert!(asks(&mut reading, 510));
    reading.handle_past(&camera, PastAnswer::default());
    assert!(!asks(&mut reading, 520));
    assert!(asks(&mut reading, 1_020));
    reading.handle_past(&camera, found(2));
    // Frame 1 had crossed, and its original did not come.
    assert_eq!(sequence_and_skips(reading.next(at(1_030))), (2, vec![(SkipReason::LinkBusy, 1)]));
}

/// At the end, frames that crossed smaller behind the last original are counted. The reading does not wait for an original on its way.
#[test]
fn what_is_lacking_at_the_end_is_counted() {
    let (mut writer, reader) = log(LogConfig::default());
    let end = Timestamp::from_nanos(6);
    let span = Span { end: Some(end), ..Span::LIVE };
    let mut reading = Subscription::with_past(span, PastOptions::ORIGINALS);
    reading.attach("dock/cam1".parse().unwrap(), reader);
    append(&mut writer, record(1, "original", &[]));
    let now = |nanos| Timestamp::from_nanos(nanos);
    assert_eq!(sequence_and_skips(reading.next(now(1))).0, 1);
    assert!(matches!(reading.next(now(1)), Next::Pending));
    append(&mut writer, record(4, SMALL, &[]));
    assert!(matches!(reading.next(now(4)), Next::Pending));
    assert!(reading.poll_past().is_some());
    append(&mut writer, record(7, SMALL, &[]));
    assert!(matches!(reading.next(now(7)), Next::Pending));
    let Next::Ended { rest } = reading.next(end + types::END_GRACE) else { panic!("it ends") };
    assert_eq!(rest[0].1.iter().collect::<Vec<_>>(), [(SkipReason::LinkBusy, 3)]);
}

/// An event of a camera.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A frame is published. It crosses as it is, smaller, or not at all.
    Crosses(Option<bool>),
    /// The application looks.
    Look,
    /// The camera answers the open question.
    Answer,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => prop::option::of(prop::bool::weighted(0.2)).prop_map(Happens::Crosses),
        2 => Just(Happens::Look),
        1 => Just(Happens::Answer),
    ]
}

proptest! {
    /// Whatever crosses and whenever the camera answers, only originals come, in order, each at most once, and
    /// delivered + skipped = published. A frame that crosses as it is, is never asked for while it is the newest.
    #[test]
    fn every_frame_is_delivered_or_counted(all in prop::collection::vec(happens(), 1..120)) {
        let (mut reading, mut writer, camera) = reading();
        let (mut published, mut crossed) = (0, BTreeMap::new());
        let (mut question, mut last, mut skipped) = (None, None, SkipCounts::default());
        for (step, one) in all.into_iter().enumerate() {
            match one {
                Happens::Crosses(how) => {
                    if let Some(as_it_is) = how {
                        append(&mut writer, record(published, if as_it_is { "original" } else { SMALL }, &[]));
                        crossed.insert(published, as_it_is);
                    }
                    published += 1;
                }
                Happens::Look => {
                    if let Next::Frame(delivery) = reading.next(at(step as u64 * 60)) {
                        let meta = &delivery.record.frame.meta;
                        let sequence = meta.id.sequence.0;
                        prop_assert_eq!(meta.rung.as_str(), "original");
                        prop_assert!(last.is_none_or(|last| sequence > last), "{} after {:?}", sequence, last);
                        if let Some(last) = last {
                            prop_assert_eq!(delivery.skipped.total(), sequence - last - 1);
                        }
                        prop_assert_eq!(delivery.skipped.of(SkipReason::LateOrLost), 0);
                        skipped.merge(&delivery.skipped);
                        last = Some(sequence);
                    }
                    if let Some((_, query)) = reading.poll_past() {
                        let newest = crossed.last_key_value();
                        let is_here = newest.is_some_and(|(of, as_it_is)| *as_it_is && Some(*of) > last);
                        prop_assert!(!is_here, "the newest frame is here as it was published");
                        prop_assert!(question.replace(query).is_none());
                    }
                }
                Happens::Answer => {
                    let Some(query) = question.take() else { continue };
                    let newest = (published > 0).then(|| record(published - 1, "original", &[]));
                    let answer = newest.filter(|newest| query.admits(&newest.frame.meta));
                    reading.handle_past(&camera, PastAnswer { record: answer, ..PastAnswer::default() });
                }
            }
        }
    }
}
