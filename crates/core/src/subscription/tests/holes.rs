//! Tests of readings that resume, at any moment of a restart, against the published
//! frames: every frame is delivered, counted, or lies in a stretch that is reported.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::super::types::END_GRACE;
use super::super::*;
use crate::frame::{Epoch, Frame, FrameId, Sequence, SkipReason};
use crate::history::Unanswered;
use crate::log::{LogConfig, LogWriter, Record, log};
use crate::sample;
use crate::units::Instant;

fn id(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn frame(id: FrameId, captured: Timestamp) -> Frame {
    let meta = sample::meta(id, captured);
    Frame { meta, payload: Bytes::from_static(b"pixels") }
}

fn record(id: FrameId, captured: Timestamp) -> Record {
    let frame = frame(id, captured);
    sample::record(frame)
}

fn append(writer: &mut LogWriter, id: FrameId, captured: Timestamp) {
    writer.append(frame(id, captured), [].into(), Instant::ZERO).unwrap();
}

fn camera() -> CameraName {
    "dock/cam1".parse().unwrap()
}

const LATER: Timestamp = Timestamp::from_nanos(1 << 60);

/// A frame that was published.
#[derive(Clone, Copy, Debug)]
struct Published {
    id: FrameId,
    captured: Timestamp,
    /// Whether it crossed live.
    crossed: bool,
    /// Whether the camera still has it.
    kept: bool,
}

/// The frames published in one start of a camera: which of them crossed, and how many of the last were lost when the camera was killed.
type Start = (Vec<bool>, usize);

fn all(starts: &[Start], forgets: usize) -> Vec<Published> {
    let mut all = Vec::new();
    for (epoch, (frames, lost)) in starts.iter().enumerate() {
        for (sequence, crossed) in frames.iter().enumerate() {
            let captured = at(1_000 + 10 * all.len() as u64);
            let kept = sequence + lost < frames.len() && all.len() >= forgets;
            all.push(Published {
                id: id(epoch as u64 + 1, sequence as u64),
                captured,
                crossed: *crossed,
                kept,
            });
        }
    }
    all
}

/// The camera's answer.
fn answer(all: &[Published], query: &PastQuery) -> PastAnswer {
    let mut kept = all.iter().filter(|frame| frame.kept).map(|frame| record(frame.id, frame.captured));
    let from = kept.clone().next().map_or(Timestamp::MAX, |oldest| oldest.frame.meta.captured);
    match kept.find(|record| query.admits(&record.frame.meta)) {
        Some(record) => PastAnswer { record: Some(record), ..PastAnswer::default() },
        None => PastAnswer { camera_holds_from: Some(from), ..PastAnswer::default() },
    }
}

fn any_start() -> impl Strategy<Value = Start> {
    (prop::collection::vec(any::<bool>(), 1..12), 0..3usize)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumes {
    /// From a capture time on.
    Begin,
    /// Behind a frame.
    After,
    /// Behind a frame, with all missing frames.
    Fill,
}

/// What an application has heard of frames: delivered frames, counted frames, and stretches that are not held.
struct Heard {
    got: Vec<FrameId>,
    counted: Vec<FrameId>,
    told: Vec<NotHeld>,
}

/// Asserts that every frame behind the last one that the application had is delivered, reported, or may still come.
fn account(
    all: &[Published],
    last: FrameId,
    (resumes, patient): (Resumes, bool),
    Heard { got, counted, told }: &Heard,
) -> Result<(), TestCaseError> {
    let filled = resumes == Resumes::Fill;
    let newest_crossed = all.iter().rfind(|frame| frame.crossed).map(|frame| frame.id);
    for frame in all.iter().filter(|frame| frame.id > last) {
        let is_told = counted.contains(&frame.id)
            || told.iter().any(|hole| (hole.begin..hole.end).contains(&frame.captured));
        let has = got.contains(&frame.id);
        prop_assert!(
            !filled || !patient || !frame.kept || has,
            "{frame:?} is not delivered, and the camera has it: {got:?}"
        );
        // Frames behind the last one that came may still come.
        let still_to_come = !filled && Some(frame.id) > newest_crossed
            || resumes == Resumes::After && got.is_empty()
            || !frame.kept && Some(frame.id) > got.last().copied().max(newest_crossed);
        // An application that asks by a time in the last moments of a start is not told of frames
        // that only the camera saw before it was killed. An application that asks by a frame is told.
        let unseen =
            resumes == Resumes::Begin && !frame.kept && !frame.crossed && Some(&frame.id) < got.first();
        prop_assert!(
            has || is_told || still_to_come || unseen,
            "{frame:?} is neither delivered nor told: {got:?} {told:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Holds whatever crossed, was lost, forgotten or not answered, and wherever the edge is when the application comes back.
    #[test]
    fn every_frame_is_delivered_or_told(
        starts in prop::collection::vec(any_start(), 1..4),
        forgets in 0..8usize,
        restored in 0..30usize,
        has in 0..30usize,
        resumes in prop::sample::select(vec![Resumes::Begin, Resumes::After, Resumes::Fill]),
        silences in prop::collection::vec(prop::option::weighted(0.3, Just(Unanswered::CameraAbsent)), 40),
        patient in any::<bool>(),
    ) {
        let all = all(&starts, forgets);
        let has = all[has % all.len()];
        let (mut writer, reader) = log(LogConfig::default());
        let restored = restored.min(all.len());
        for frame in all[..restored].iter().filter(|frame| frame.crossed) {
            append(&mut writer, frame.id, frame.captured);
        }
        let last = LastFrame { id: has.id, captured: Some(has.captured) };
        let end = Some(LATER - END_GRACE * 2);
        let begin = (resumes == Resumes::Begin).then(|| has.captured + std::time::Duration::from_nanos(1));
        let deliver = Deliver::Every;
        let wish = if resumes == Resumes::Fill { PastOptions::FILLED } else { PastOptions::ALL };
        let mut reading = Subscription::with_past(Span { begin, end, deliver }, wish);
        if resumes != Resumes::Begin {
            reading = reading.resuming_after(vec![(camera(), last)]);
        }
        reading.attach(camera(), reader);
        let mut silences = silences.into_iter();
        let mut to_come = all[restored..].iter().filter(|frame| frame.crossed);
        let (mut got, mut told, mut counted): (Vec<FrameId>, Vec<NotHeld>, Vec<FrameId>) = Default::default();
        let mut was_silent = false;
        let mut now = at(1);
        loop {
            match reading.next(now) {
                Next::Frame(delivery) => {
                    let id = delivery.record.frame.meta.id;
                    let before = got.last().copied().or((resumes != Resumes::Begin).then_some(has.id));
                    prop_assert!(before < Some(id), "{id} after {before:?}");
                    if let Some(before) = before {
                        let from = if before.epoch == id.epoch { before.sequence.0 + 1 } else { 0 };
                        let gap = id.sequence.0 - from;
                        prop_assert_eq!(delivery.skipped.total(), gap, "between {:?} and {}", before, id);
                        counted.extend((from..id.sequence.0).map(|sequence| FrameId { sequence: Sequence(sequence), ..id }));
                        let silent = std::mem::take(&mut was_silent);
                        let alarm = delivery.not_held.is_some();
                        prop_assert!(!alarm || silent || before.epoch != id.epoch, "{:?} before {}", delivery.not_held, id);
                        prop_assert!(alarm || before.epoch == id.epoch, "nothing is told before {}", id);
                    }
                    told.extend(delivery.not_held);
                    got.push(id);
                }
                Next::Pending => match reading.poll_past() {
                    Some((camera, query)) => {
                        let silent = if patient { None } else { silences.next().flatten() };
                        was_silent |= silent.is_some();
                        let answer = silent.map_or_else(|| answer(&all, &query), PastAnswer::unanswered);
                        reading.handle_past(&camera, answer);
                    }
                    // Nothing is asked: another frame crosses, or time passes.
                    None => match to_come.next() {
                        Some(frame) => append(&mut writer, frame.id, frame.captured),
                        None if now == LATER => prop_assert!(false, "it does not end"),
                        None => now = LATER,
                    }
                },
                Next::Ended { rest } => {
                    told.extend(rest.into_iter().filter_map(|(.., not_held)| not_held));
                    break;
                }
            }
        }
        account(&all, has.id, (resumes, patient), &Heard { got, counted, told })?;
    }
}

/// A case that once failed: the log that an edge recovered ends before the requested beginning, and the camera is not back.
#[test]
fn a_camera_that_is_not_there_is_not_one_that_has_nothing() {
    let (mut writer, reader) = log(LogConfig::default());
    (0..=174).for_each(|sequence| append(&mut writer, id(1, sequence), at(1_000 + 10 * sequence)));
    let begin = Some(at(1_000 + 1_741));
    let live = Span { begin, end: None, deliver: Deliver::Every };
    let mut reading = Subscription::with_tier_max(live, Tier::Camera);
    reading.attach(camera(), reader.clone());
    assert!(matches!(reading.next(at(5_000)), Next::Pending));
    let (name, _) = reading.poll_past().expect("the camera is asked");
    reading.handle_past(&name, PastAnswer::unanswered(Unanswered::CameraAbsent));
    assert!(matches!(reading.next(at(5_000)), Next::Pending));
    append(&mut writer, id(1, 193), at(2_930));
    // The camera is asked once more, because frames behind the hole are there now.
    assert!(matches!(reading.next(at(5_000)), Next::Pending));
    let (name, query) = reading.poll_past().expect("the camera is asked");
    assert_eq!((query.after, query.before, query.begin), (None, Some(id(1, 193)), at(2_741)));
    reading.handle_past(&name, PastAnswer::unanswered(Unanswered::CameraAbsent));
    let Next::Frame(first) = reading.next(at(5_000)) else { panic!("a frame has come") };
    let hole = NotHeld { begin: at(2_741), end: at(2_930), reason: NotHeldReason::CameraAbsent };
    assert_eq!(first.not_held, Some(hole));

    // The same for a span that has passed: there is nothing, and the reason is reported.
    let past = Span { end: Some(at(2_900)), ..live };
    let mut reading = Subscription::with_tier_max(past, Tier::Camera);
    reading.attach(camera(), reader);
    assert!(matches!(reading.next(at(5_000)), Next::Pending));
    let (name, _) = reading.poll_past().expect("the camera is asked");
    reading.handle_past(&name, PastAnswer::unanswered(Unanswered::CameraAbsent));
    let Next::Ended { rest } = reading.next(at(5_000)) else { panic!("nothing comes any more") };
    assert_eq!(rest[0].2, Some(NotHeld { end: at(2_900), ..hole }));
}

/// A live subscription that asks for nothing of the past is told once that the camera was restarted.
#[test]
fn the_end_of_an_epoch_is_told_once() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut reading = Subscription::new(Span::LIVE);
    reading.attach(camera(), reader);
    let mut told = Vec::new();
    for (id, captured) in [(id(1, 0), 10), (id(1, 1), 20), (id(2, 3), 90), (id(2, 4), 100)] {
        append(&mut writer, id, at(captured));
        let Next::Frame(delivery) = reading.next(at(1_000)) else { panic!("{id} was appended") };
        told.push((delivery.not_held, delivery.skipped.total()));
    }
    let hole = NotHeld { begin: at(20), end: at(90), reason: NotHeldReason::CameraRestarted };
    assert_eq!(told, [(None, 0), (None, 0), (Some(hole), 3), (None, 0)]);
}

/// Frames that passed while the application was away are counted as such if nobody fetches them.
#[test]
fn the_account_goes_on_behind_the_last_frame_of_the_application() {
    let (mut writer, reader) = log(LogConfig::default());
    (0..5).for_each(|sequence| append(&mut writer, id(1, sequence), at(10 * sequence + 10)));
    let last = LastFrame { id: id(1, 1), captured: None };
    let mut reading = Subscription::new(Span::LIVE).resuming_after(vec![(camera(), last)]);
    reading.attach(camera(), reader);
    assert!(matches!(reading.next(at(1_000)), Next::Pending));
    append(&mut writer, id(1, 7), at(80));
    let Next::Frame(delivery) = reading.next(at(1_000)) else { panic!("a frame has come") };
    assert_eq!(delivery.skipped.iter().collect::<Vec<_>>(), [(SkipReason::LinkDown, 5)]);
    assert_eq!(delivery.not_held, None);
}

/// A camera that has lost its memory counts from 1 again, and an edge that does not
/// know the camera accepts that. The application is told, and continues to get frames.
#[test]
fn a_camera_that_counts_anew_is_not_ignored() {
    for wish in [PastOptions::ALL, PastOptions::FILLED] {
        let (mut writer, reader) = log(LogConfig::default());
        let last = LastFrame { id: id(7, 100), captured: Some(at(500)) };
        let mut reading = Subscription::with_past(Span::LIVE, wish).resuming_after(vec![(camera(), last)]);
        reading.attach(camera(), reader);
        append(&mut writer, id(1, 4), at(900));
        let next = loop {
            match reading.next(at(1_000)) {
                Next::Pending => {
                    let (name, _) = reading.poll_past().expect("it is given, or asked for");
                    reading.handle_past(
                        &name,
                        PastAnswer { camera_holds_from: Some(at(600)), ..PastAnswer::default() },
                    );
                }
                next => break next,
            }
        };
        let Next::Frame(delivery) = next else { panic!("a frame has come") };
        let hole = NotHeld { begin: at(500), end: at(900), reason: NotHeldReason::CameraRestarted };
        assert_eq!((delivery.record.frame.meta.id, delivery.not_held), (id(1, 4), Some(hole)));
    }
}

/// A camera that counts from 1 again after its clock was set back, such as a small computer that was set
/// up anew and has no clock of its own. A frame that was only held up is not given behind a later one.
#[test]
fn a_camera_that_counts_anew_by_a_clock_that_was_set_back_is_not_ignored() {
    const HOUR: u64 = 3_600_000_000_000;
    let last = LastFrame { id: id(7, 100), captured: Some(at(2 * HOUR)) };
    let just_before = at(2 * HOUR - 1_000_000_000);
    for (first, captured, is_given) in
        [(id(1, 4), at(HOUR), true), (id(6, 3), just_before, false), (id(7, 5), at(HOUR), false)]
    {
        let (mut writer, reader) = log(LogConfig::default());
        let mut reading = Subscription::new(Span::LIVE).resuming_after(vec![(camera(), last)]);
        reading.attach(camera(), reader);
        append(&mut writer, first, captured);
        let told = match reading.next(LATER) {
            Next::Frame(delivery) => delivery.not_held,
            _ => None,
        };
        let reason = NotHeldReason::CameraRestarted;
        let hole = NotHeld { begin: at(2 * HOUR), end: at(2 * HOUR), reason };
        assert_eq!(told, is_given.then_some(hole), "{first}");
    }
}

/// Memory holds later frames that nobody asked for. The stretch behind the last frame is reported all the same.
#[test]
fn an_absent_camera_is_told_before_frames_behind_the_end() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, id(1, 0), at(10));
    append(&mut writer, id(1, 4), at(50));
    let span = Span { begin: Some(at(5)), end: Some(at(30)), deliver: Deliver::Every };
    let mut reading = Subscription::with_past(span, PastOptions::ALL);
    reading.attach(camera(), reader);
    let mut got = Vec::new();
    let rest = loop {
        match reading.next(LATER) {
            Next::Frame(delivery) => got.push(delivery.record.frame.meta.id),
            Next::Pending => {
                let (name, _) = reading.poll_past().expect("it has ended, or asks");
                reading.handle_past(&name, PastAnswer::unanswered(Unanswered::CameraAbsent));
            }
            Next::Ended { rest } => break rest,
        }
    };
    assert_eq!(got, [id(1, 0)]);
    let told = rest[0].2.expect("the camera may hold frames behind the first");
    assert_eq!((told.begin, told.reason), (at(10), NotHeldReason::CameraAbsent));
    assert!(told.end >= at(30), "{told:?}");
}

/// A start whose clock was set back was captured earlier, and says nothing about the starts before it.
#[test]
fn what_is_held_behind_a_question_does_not_answer_it() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, id(6, 0), at(100));
    let oldest = reader.oldest().map(|oldest| (oldest.id, oldest.captured));
    let held_from = |before| PastQuery { before: Some(before), ..PastQuery::EVERY }.held_from(oldest);
    assert_eq!((held_from(id(5, 1)), held_from(id(6, 1))), (None, Some(at(100))));
}

/// A case that once failed: a reading began when memory was empty, and the camera gave the first frame of a new start. A frame of the start
/// before it, which had come meanwhile, was taken for the beginning of the present. So nobody was asked for the rest of the new start.
#[test]
fn the_present_begins_behind_the_last_frame() {
    let (mut writer, reader) = log(LogConfig::default());
    let held: Vec<Record> = (0..3).map(|sequence| record(id(5, sequence), at(50 + 10 * sequence))).collect();
    let span = Span { begin: Some(at(5)), end: Some(at(200)), deliver: Deliver::Every };
    let mut reading = Subscription::with_past(span, PastOptions::ALL);
    reading.attach(camera(), reader);
    let mut got = Vec::new();
    loop {
        match reading.next(LATER) {
            Next::Frame(delivery) => got.push(delivery.record.frame.meta.id),
            Next::Pending => {
                let (name, query) = reading.poll_past().expect("it has ended, or asks");
                if got.is_empty() && query.before.is_none() {
                    append(&mut writer, id(4, 0), at(40));
                    append(&mut writer, id(5, 3), at(300));
                }
                let found = held.iter().find(|record| query.admits(&record.frame.meta));
                let camera_holds_from = found.is_none().then_some(at(50));
                let answer =
                    PastAnswer { record: found.cloned(), camera_holds_from, ..PastAnswer::default() };
                reading.handle_past(&name, answer);
            }
            Next::Ended { .. } => break,
        }
    }
    assert_eq!(got, [id(5, 0), id(5, 1), id(5, 2)]);
}
