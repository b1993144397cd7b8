//! Tests of readings of the past that ask for a quality, against the frames that an edge and a camera hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::types::END_GRACE;
use super::super::*;
use crate::frame::{Epoch, Frame, FrameId, FrameMeta, Rung, Sequence};
use crate::log::{LogConfig, Record, log};
use crate::sample;
use crate::setting::Setting;

const RUNGS: [&str; 4] = ["original", "jpeg/w32/q50/420", "jpeg/w64/q80/420", "h264/w64/q30"];

fn record(sequence: u64, rung: &str) -> Record {
    let meta = FrameMeta {
        rung: Rung::new(rung).unwrap(),
        ..sample::meta(
            FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            Timestamp::from_nanos(sequence),
        )
    };
    let frame = Frame { meta, payload: Bytes::from_static(b"x") };
    sample::record(frame)
}

/// The copies of one frame: the camera's, as it was published, and the edge's, at one of the rungs.
fn any_frame() -> impl Strategy<Value = (bool, Option<usize>)> {
    (any::<bool>(), prop::option::of(0..RUNGS.len()))
}

proptest! {
    /// Every frame that anybody holds comes once and in order. A frame that the edge holds at another quality comes as
    /// wanted while the camera has it, and otherwise as the edge holds it. No frame falsely claims to be an original.
    #[test]
    fn frames_come_as_they_are_wanted_where_anybody_can_make_them_so(
        held in prop::collection::vec(any_frame(), 1..30),
        wanted in prop::option::of(0..3usize),
    ) {
        let (mut writer, reader) = log(LogConfig::default());
        for (sequence, (_, rung)) in held.iter().enumerate() {
            if let Some(rung) = rung {
                let Record { frame, skipped, arrived, .. } = record(sequence as u64, RUNGS[*rung]);
                writer.append(frame, skipped, arrived).unwrap();
            }
        }
        let quality: Option<Setting> = wanted.map(|wanted| RUNGS[wanted].parse().unwrap());
        let end = Some(Timestamp::from_nanos(1_000));
        let span = Span { begin: Some(Timestamp::MIN), end, deliver: Deliver::Every };
        let mut reading = Subscription::with_past(span, PastOptions { quality, ..PastOptions::ALL });
        reading.attach("dock/cam1".parse().unwrap(), reader);
        let (mut got, mut asked) = (BTreeMap::new(), 0);
        loop {
            match reading.next(Timestamp::from_nanos(2_000)) {
                Next::Frame(delivery) => {
                    let meta = &delivery.record.frame.meta;
                    let newer = got.last_key_value().is_none_or(|(last, _)| *last < meta.id.sequence.0);
                    prop_assert!(newer, "{} came twice or late", meta.id);
                    got.insert(meta.id.sequence.0, meta.rung.as_str().to_owned());
                }
                Next::Pending => {
                    let (camera, query) = reading.poll_past().expect("it waits for an answer, or ends");
                    asked += 1;
                    let answers = held.iter().enumerate().filter(|(_, (at_camera, _))| *at_camera);
                    let made = answers.map(|(sequence, _)| record(sequence as u64, query.rung().as_str()));
                    let answer = made.into_iter().find(|record| query.admits(&record.frame.meta));
                    reading.handle_past(&camera, PastAnswer { record: answer, ..PastAnswer::default() });
                }
                Next::Ended { .. } => break,
            }
        }
        let at_camera = wanted.map_or("original", |wanted| RUNGS[wanted]);
        let expected: BTreeMap<u64, String> = held.iter().enumerate().filter_map(|(sequence, (camera, edge))| {
            let as_held = edge.map(|rung| RUNGS[rung]);
            let serves = as_held.filter(|rung| wanted.is_none() || *rung == "original" || *rung == at_camera);
            let rung = serves.or(camera.then_some(at_camera)).or(as_held)?;
            Some((sequence as u64, rung.to_owned()))
        }).collect();
        prop_assert_eq!(got, expected);
        prop_assert!(asked <= 2 * held.len() + 1, "{} questions for {} frames", asked, held.len());
    }
}

/// A reading with an end in the past ends as soon as nobody has more. It does not wait for frames that could still be on their way.
#[test]
fn a_reading_whose_end_has_passed_ends_with_the_last_answer() {
    let (_writer, reader) = log(LogConfig::default());
    let now = Timestamp::from_nanos(5_000);
    let span = Span {
        begin: Some(Timestamp::MIN),
        end: Some(Timestamp::from_nanos(4_999)),
        deliver: Deliver::Every,
    };
    let mut reading = Subscription::with_tier_max(span, Tier::Camera);
    assert!(matches!(reading.next(now), Next::Pending), "no camera is known yet: one may come");
    reading.attach("dock/cam1".parse().unwrap(), reader.clone());
    assert!(matches!(reading.next(now), Next::Pending));
    let (camera, query) = reading.poll_past().expect("the camera is asked");
    reading.handle_past(&camera, PastAnswer { record: Some(record(7, "original")), ..PastAnswer::default() });
    assert!(matches!(reading.next(now), Next::Frame(_)), "{query:?}");
    assert!(matches!(reading.next(now), Next::Pending), "there may be more");
    let (camera, _) = reading.poll_past().expect("the camera is asked for more");
    reading.handle_past(&camera, PastAnswer::default());
    assert!(matches!(reading.next(now), Next::Ended { .. }));

    // An end that is still to come is waited for, and frames on their way as well.
    let span = Span { end: Some(Timestamp::from_nanos(6_000)), ..span };
    let mut reading = Subscription::new(span);
    reading.attach("dock/cam1".parse().unwrap(), reader);
    assert!(matches!(reading.next(now), Next::Pending));
    assert!(
        matches!(reading.next(Timestamp::from_nanos(7_000)), Next::Pending),
        "frames may be on their way"
    );
    assert!(matches!(reading.next(Timestamp::from_nanos(6_000) + END_GRACE), Next::Ended { .. }));
}

/// A reader that reads the past at a lower quality, and continues with the
/// present, may have no right to originals. Its camera is never asked for one.
#[test]
fn a_reading_at_a_lower_quality_asks_for_no_original_of_the_present_either() {
    let (mut writer, reader) = log(LogConfig::with_bytes_max(1 << 20));
    let quality: Setting = RUNGS[1].parse().unwrap();
    let span = Span { begin: Some(Timestamp::MIN), end: None, deliver: Deliver::Every };
    for fill in [false, true] {
        let past = PastOptions { quality: Some(quality), fill, ..PastOptions::ALL };
        let mut reading = Subscription::with_past(span, past);
        reading.attach("dock/cam1".parse().unwrap(), reader.clone());
        let mut asked = 0;
        for sequence in 0..20u64 {
            let Record { frame, skipped, arrived, .. } = record(fill as u64 * 100 + sequence * 3, "original");
            writer.append(frame, skipped, arrived).unwrap();
            while let Next::Frame(_) = reading.next(Timestamp::from_nanos(2_000)) {}
            while let Some((camera, query)) = reading.poll_past() {
                asked += 1;
                assert_eq!(query.rung().as_str(), RUNGS[1], "{query:?}");
                reading.handle_past(&camera, PastAnswer::default());
            }
        }
        assert!(asked > 0, "nobody was asked");
    }
}
