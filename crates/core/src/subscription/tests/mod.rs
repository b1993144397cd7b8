mod chains;
mod holes;
mod needs;
mod originals;
mod past;
mod quality;
mod seeking;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::frame::{Epoch, Frame, FrameId, Sequence, SkipRange, SkipReason};
use crate::log::{LogConfig, LogWriter, log};
use crate::sample;
use crate::units::Instant;

const LATER: Timestamp = Timestamp::from_nanos(1_000_000_000_000);

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn append(
    writer: &mut LogWriter,
    epoch: u64,
    sequence: u64,
    captured: u64,
    skipped: &[(u64, u64, SkipReason)],
) {
    let frame = Frame {
        meta: sample::meta(FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }, at(captured)),
        payload: Bytes::from(vec![0; 500]),
    };
    let skipped: Arc<[SkipRange]> = skipped
        .iter()
        .map(|&(first, count, reason)| SkipRange { first: Sequence(first), count, reason })
        .collect();
    writer.append(frame, skipped, Instant::ZERO).unwrap();
}

fn camera(name: &str) -> CameraName {
    name.parse().unwrap()
}

fn frame(next: Next) -> Delivery {
    match next {
        Next::Frame(delivery) => *delivery,
        other => panic!("no frame: {other:?}"),
    }
}

fn sequence(delivery: &Delivery) -> u64 {
    delivery.record.frame.meta.id.sequence.0
}

#[test]
fn the_newest_frame_wins_and_the_others_are_counted() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, 1, 0, 10, &[]);
    let mut subscription = Subscription::new(Span::LIVE);
    subscription.attach(camera("a"), reader);
    assert!(
        matches!(subscription.next(LATER), Next::Pending),
        "a frame from before the subscription was delivered"
    );

    append(&mut writer, 1, 1, 20, &[]);
    let first = frame(subscription.next(LATER));
    assert_eq!((sequence(&first), first.skipped.total()), (1, 0));

    append(&mut writer, 1, 4, 50, &[(2, 2, SkipReason::LinkBusy)]);
    append(&mut writer, 1, 6, 70, &[]);
    append(&mut writer, 1, 7, 80, &[]);
    let second = frame(subscription.next(LATER));
    assert_eq!(sequence(&second), 7);
    let counts: Vec<_> = second.skipped.iter().collect();
    assert_eq!(
        counts,
        [(SkipReason::LinkBusy, 2), (SkipReason::LateOrLost, 1), (SkipReason::ApplicationBusy, 2)]
    );
    assert!(matches!(subscription.next(LATER), Next::Pending));
}

#[test]
fn what_came_between_the_wish_and_the_first_look_is_not_missed() {
    for begin in [None, Some(at(5))] {
        let (mut writer, reader) = log(LogConfig::default());
        append(&mut writer, 1, 0, 1, &[]);
        let present = reader.held().end;
        append(&mut writer, 1, 1, 20, &[]);
        append(&mut writer, 1, 2, 30, &[]);
        let mut subscription = Subscription::new(Span { begin, deliver: Deliver::Every, ..Span::LIVE });
        subscription.attach_from(camera("a"), reader, present);
        assert_eq!(sequence(&frame(subscription.next(LATER))), 1);
        assert_eq!(sequence(&frame(subscription.next(LATER))), 2);
        assert!(matches!(subscription.next(LATER), Next::Pending));
    }
}

#[test]
fn every_camera_gets_its_turn() {
    let (mut busy, busy_reader) = log(LogConfig::default());
    let (mut calm, calm_reader) = log(LogConfig::default());
    let mut subscription = Subscription::new(Span { deliver: Deliver::Every, ..Span::LIVE });
    subscription.attach(camera("busy"), busy_reader);
    subscription.attach(camera("calm"), calm_reader);
    for number in 0..10 {
        append(&mut busy, 1, number, number + 1, &[]);
    }
    append(&mut calm, 1, 0, 1, &[]);
    let names: Vec<String> = (0..3).map(|_| frame(subscription.next(LATER)).camera.to_string()).collect();
    assert_eq!(names, ["busy", "calm", "busy"]);
}

#[test]
fn the_past_is_read_in_order_and_what_is_not_held_is_said() {
    let (mut writer, reader) = log(LogConfig::default());
    for number in 5..15 {
        append(&mut writer, 1, number, 100 + number * 10, &[]);
    }
    let span = Span { begin: Some(at(100)), end: Some(at(180)), deliver: Deliver::Every };
    let mut subscription = Subscription::new(span);
    subscription.attach(camera("a"), reader);
    let first = frame(subscription.next(LATER));
    assert_eq!(sequence(&first), 5);
    assert_eq!(first.not_held, Some(NotHeld { begin: at(100), end: at(150), reason: NotHeldReason::Gone }));
    for expected in 6..=8 {
        let next = frame(subscription.next(LATER));
        assert_eq!((sequence(&next), next.not_held), (expected, None));
    }
    assert!(matches!(subscription.next(LATER), Next::Ended { .. }));
}

#[test]
fn a_span_of_which_nothing_is_held_ends_with_that_word() {
    let (mut writer, reader) = log(LogConfig::default());
    append(&mut writer, 1, 50, 1000, &[]);
    let mut subscription =
        Subscription::new(Span { begin: Some(at(100)), end: Some(at(180)), deliver: Deliver::Every });
    subscription.attach(camera("a"), reader);
    let Next::Ended { rest } = subscription.next(LATER) else { panic!("it goes on") };
    assert_eq!(rest[0].2, Some(NotHeld { begin: at(100), end: at(180), reason: NotHeldReason::Gone }));
}

#[test]
fn the_past_flows_into_the_present_without_a_seam() {
    let (mut writer, reader) = log(LogConfig::default());
    for number in 0..5 {
        append(&mut writer, 1, number, 10 * number + 1, &[]);
    }
    let mut subscription =
        Subscription::new(Span { begin: Some(at(15)), end: None, deliver: Deliver::Every });
    subscription.attach(camera("a"), reader);
    let mut seen = Vec::new();
    for number in 5..10 {
        seen.push(sequence(&frame(subscription.next(LATER))));
        append(&mut writer, 1, number, 10 * number + 1, &[]);
    }
    while let Next::Frame(delivery) = subscription.next(LATER) {
        seen.push(sequence(&delivery));
    }
    assert_eq!(seen, (2..10).collect::<Vec<_>>());
}

#[test]
fn an_end_in_the_future_is_waited_for() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut subscription = Subscription::new(Span { end: Some(at(100)), ..Span::LIVE });
    subscription.attach(camera("a"), reader);
    assert!(matches!(subscription.next(at(50)), Next::Pending));
    append(&mut writer, 1, 0, 99, &[]);
    append(&mut writer, 1, 1, 101, &[]);
    assert_eq!(sequence(&frame(subscription.next(at(102)))), 0);
    assert!(matches!(subscription.next(at(102)), Next::Ended { .. }));

    let mut silent = Subscription::new(Span { end: Some(at(100)), ..Span::LIVE });
    assert!(matches!(silent.next(at(102)), Next::Pending));
    assert!(matches!(silent.next(LATER), Next::Ended { .. }));
}

/// A camera whose clock is behind, or was set back between two starts, loses no live frame of a span that has begun. A client
/// with a camera's identity stamped a frame in the year 2200, which once ended every reading with an end, without a report.
#[test]
fn a_time_far_ahead_ends_nothing_before_its_time() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut subscription =
        Subscription::new(Span { end: Some(at(100)), deliver: Deliver::Every, ..Span::LIVE });
    subscription.attach(camera("a"), reader);
    append(&mut writer, 1, 0, 40, &[]);
    append(&mut writer, 7, 0, u64::MAX >> 1, &[]);
    assert_eq!(sequence(&frame(subscription.next(at(50)))), 0);
    assert!(matches!(subscription.next(at(50)), Next::Pending), "it is over before its end");
    append(&mut writer, 8, 5, 60, &[]);
    assert_eq!(sequence(&frame(subscription.next(at(60)))), 5);
    append(&mut writer, 8, 6, 101, &[]);
    assert!(matches!(subscription.next(at(102)), Next::Ended { .. }));
}

#[test]
fn what_comes_after_the_beginning_is_wanted_whatever_its_stamp() {
    let (mut writer, reader) = log(LogConfig::default());
    let begin = |begin| Span { begin: Some(at(begin)), end: None, deliver: Deliver::Every };
    let mut begun = Subscription::new(begin(1_000));
    let mut to_begin = Subscription::new(begin(LATER.as_nanos() + 1_000));
    begun.attach(camera("a"), reader.clone());
    to_begin.attach(camera("a"), reader);
    assert!(matches!((begun.next(LATER), to_begin.next(LATER)), (Next::Pending, Next::Pending)));
    append(&mut writer, 1, 0, 500, &[]);
    assert_eq!(sequence(&frame(begun.next(LATER))), 0);
    assert!(matches!(to_begin.next(LATER), Next::Pending), "a frame from before the beginning was delivered");
    append(&mut writer, 1, 1, LATER.as_nanos() + 1_000, &[]);
    append(&mut writer, 2, 0, 600, &[]);
    let ids: Vec<u64> = (0..2).map(|_| frame(to_begin.next(LATER)).record.frame.meta.id.epoch.0).collect();
    assert_eq!(ids, [1, 2]);
}

/// Frames outside of the span do not count as skipped, even if a clock was set back and epochs overlap in time.
#[test]
fn frames_outside_of_the_span_do_not_count_as_skipped() {
    let (mut writer, reader) = log(LogConfig::default());
    for number in 0..10 {
        append(&mut writer, 1, number, 1000 + 10 * number, &[]);
    }
    for number in 0..10 {
        append(&mut writer, 2, number, 950 + 10 * number, &[]);
    }
    let span = Span { begin: Some(at(1000)), end: Some(at(1020)), deliver: Deliver::Every };
    let mut past = Subscription::new(span);
    past.attach(camera("a"), reader.clone());
    let mut got = Vec::new();
    while let Next::Frame(delivery) = past.next(LATER) {
        got.push((delivery.record.frame.meta.id.epoch.0, sequence(&delivery), delivery.skipped.total()));
    }
    assert_eq!(got, [(1, 0, 0), (1, 1, 0), (1, 2, 0), (2, 5, 0), (2, 6, 0), (2, 7, 0)]);

    let mut open = Subscription::new(Span { begin: Some(at(1090)), end: None, deliver: Deliver::Every });
    open.attach(camera("a"), reader);
    assert_eq!(sequence(&frame(open.next(LATER))), 9);
    append(&mut writer, 2, 12, 2000, &[(10, 1, SkipReason::LinkBusy)]);
    let next = frame(open.next(LATER));
    assert_eq!(
        (sequence(&next), next.skipped.iter().collect()),
        (12, vec![(SkipReason::LinkBusy, 1), (SkipReason::LateOrLost, 1)])
    );
}

/// Frames that a slow reader missed at the end of an epoch are counted like frames missed within an epoch.
#[test]
fn what_was_evicted_is_stated_over_a_change_of_epochs() {
    let (mut writer, reader) = log(LogConfig { bytes_max: 8_000, segment_bytes: 1_000 });
    let mut subscription = Subscription::new(Span { deliver: Deliver::Every, ..Span::LIVE });
    subscription.attach(camera("a"), reader.clone());
    append(&mut writer, 1, 0, 1, &[]);
    assert_eq!(sequence(&frame(subscription.next(LATER))), 0);
    for number in 1..20 {
        append(&mut writer, 1, number, number + 1, &[]);
    }
    for number in 0..3 {
        append(&mut writer, 2, number, number + 1, &[]);
    }
    let oldest = reader.get(reader.held().start).unwrap().frame.meta.id;
    assert_eq!(oldest.epoch, Epoch(1));
    let first = frame(subscription.next(LATER));
    assert_eq!(first.skipped.of(SkipReason::Evicted), oldest.sequence.0 - 1);
    for number in 3..30 {
        append(&mut writer, 2, number, number + 1, &[]);
    }
    let later = frame(subscription.next(LATER));
    let missed = 19 - oldest.sequence.0 + sequence(&later);
    assert_eq!(later.skipped.iter().collect::<Vec<_>>(), [(SkipReason::Evicted, missed)]);
}

/// A reading of the newest frame until an end gives that frame, though the log goes on behind it.
#[test]
fn the_newest_frame_of_a_past_comes_before_what_lies_behind_its_end() {
    let (mut writer, reader) = log(LogConfig::with_bytes_max(1 << 20));
    for sequence in 0..10 {
        append(&mut writer, 1, sequence, 100 + sequence, &[]);
    }
    let span = Span { begin: Some(at(102)), end: Some(at(105)), deliver: Deliver::Newest };
    let mut reading = Subscription::new(span);
    reading.attach("dock/cam1".parse().unwrap(), reader);
    let Next::Frame(delivery) = reading.next(LATER) else { panic!("it has a frame") };
    assert_eq!(delivery.record.frame.meta.id.sequence.0, 5);
    let Next::Ended { rest } = reading.next(LATER) else { panic!("nothing else was asked for") };
    assert!(rest.iter().all(|(_, skipped, _)| skipped.total() == 0), "{rest:?}");
}

proptest! {
    /// Whatever crosses the link, is evicted or restarts, and however slow the application is: its
    /// delivered and skipped frames add up to the published ones, and its frames come in order.
    #[test]
    fn delivered_and_skipped_add_up(
        steps in proptest::collection::vec((0u64..4, prop::bool::weighted(0.3), prop::bool::weighted(0.03)), 1..300),
        every in any::<bool>(),
        budget in 8_000u64..80_000,
    ) {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(budget));
        let deliver = if every { Deliver::Every } else { Deliver::Newest };
        let mut subscription = Subscription::new(Span { deliver, ..Span::LIVE });
        subscription.attach(camera("a"), reader);
        let (mut epoch, mut sequence, mut time) = (1, 0, 0);
        // Published frames of each epoch, and what the application knows of them.
        let (mut first, mut last, mut known) = (None, FrameId::default(), 0);
        let mut lost_tails = 0;
        let mut check = |delivery: Delivery, newest: FrameId| {
            let id = delivery.record.frame.meta.id;
            assert!(first.is_none() || id > last, "{id} after {last}");
            if first.is_none() {
                first = Some(id);
                known = id.sequence.0 + 1;
            } else {
                known += 1 + delivery.skipped.total();
            }
            last = id;
            assert!(id <= newest);
            (id, known)
        };
        for (skip, ready, restart) in steps {
            if restart {
                lost_tails += 1;
                (epoch, sequence) = (epoch + 1, 0);
            }
            let ranges = [(sequence, skip, SkipReason::LinkBusy)];
            sequence += skip;
            time += 1;
            append(&mut writer, epoch, sequence, time, if skip > 1 { &ranges } else { &[] });
            let newest = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
            sequence += 1;
            while ready && let Next::Frame(delivery) = subscription.next(LATER) {
                let (id, known) = check(*delivery, newest);
                if lost_tails == 0 {
                    prop_assert_eq!(known, id.sequence.0 + 1);
                }
            }
        }
    }
}

/// Frames that a program had not taken when its camera was forgotten are counted. A reading of the past reports a stretch instead.
#[test]
fn what_nobody_read_of_a_forgotten_camera_is_accounted_for() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut subscription =
        Subscription::new(Span { end: Some(at(1_000)), deliver: Deliver::Every, ..Span::LIVE });
    subscription.attach(camera("a"), reader);
    (0..5).for_each(|number| append(&mut writer, 1, number, 10 + number, &[]));
    assert_eq!(sequence(&frame(subscription.next(at(20)))), 0);
    subscription.detach(&camera("a"), Missing::default());
    match subscription.next(at(10_000_000_000)) {
        Next::Ended { rest } => assert_eq!(rest[0].1.of(SkipReason::Evicted), 4),
        other => panic!("{other:?}"),
    }

    let (mut writer, reader) = log(LogConfig::default());
    (0..5).for_each(|number| append(&mut writer, 1, number, 10 + number, &[]));
    let mut reading = Subscription::new(Span { begin: Some(at(10)), end: Some(at(14)), ..Span::LIVE });
    reading.attach(camera("a"), reader);
    reading.detach(&camera("a"), Missing::default());
    match reading.next(at(10_000_000_000)) {
        Next::Ended { rest } => {
            let not_held = rest[0].2.expect("it says that frames are missing");
            assert_eq!(
                (not_held.begin, not_held.end, not_held.reason),
                (at(10), at(14), NotHeldReason::Gone)
            );
        }
        other => panic!("{other:?}"),
    }
}

/// If a forgotten camera comes again, its account continues. Losses that were not reported yet are reported then, or at the end.
#[test]
fn the_account_of_a_forgotten_camera_goes_on() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut subscription = Subscription::new(Span { end: Some(at(1_000)), ..Span::LIVE });
    subscription.attach(camera("a"), reader);
    append(&mut writer, 1, 0, 10, &[]);
    assert_eq!(sequence(&frame(subscription.next(at(10)))), 0);
    let mut owed = Missing::default();
    owed.add(SkipReason::Infeasible);
    subscription.detach(&camera("a"), owed);
    subscription.detach(&camera("b"), owed);
    append(&mut writer, 1, 1, 20, &[]);
    assert!(matches!(subscription.next(at(20)), Next::Pending), "it reads that log no more");
    assert_eq!(subscription.cameras().count(), 0);

    let (mut writer, reader) = log(LogConfig::default());
    subscription.attach(camera("a"), reader);
    append(&mut writer, 1, 5, 60, &[(1, 4, SkipReason::LinkDown)]);
    let again = frame(subscription.next(at(60)));
    let counts: Vec<_> = again.skipped.iter().collect();
    assert_eq!(counts, [(SkipReason::LinkDown, 4), (SkipReason::Infeasible, 1)]);

    subscription.detach(&camera("a"), owed);
    match subscription.next(at(10_000_000_000)) {
        Next::Ended { rest } => {
            assert_eq!(rest.iter().map(|(_, skipped, _)| skipped.total()).sum::<u64>(), 1)
        }
        other => panic!("{other:?}"),
    }
}
