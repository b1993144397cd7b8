//! Frames that are given up: refused, too large, without progress, or no longer wanted.

use super::*;

/// A frame that the edge refuses has this skip reason, and makes room for the next one.
#[test]
fn a_frame_that_the_edge_stops_makes_room() {
    let mut rig = Rig::connected(Contract::default());
    for number in 0..40u64 {
        let frame = rig.publish(10);
        let sent = frames_sent(&rig.take());
        assert_eq!(sent.len(), 1, "frame {number} waits");
        let expected = (number > 0).then(|| skipped(0, number, SkipReason::Refused));
        assert_eq!(sent[0].1, Vec::from_iter(expected));
        if number % 2 == 0 {
            rig.sent(1, frame);
        }
        rig.message(1, Message::Report(Report::Refused { frame }));
    }
}

#[test]
fn a_frame_above_the_edges_limit_is_not_sent() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish(1001);
    assert_eq!(frames_sent(&rig.take()), []);
    let next = rig.publish(1000);
    assert_eq!(frames_sent(&rig.take()), [(next, vec![skipped(0, 1, SkipReason::Refused)])]);
}

/// Each frame of a camera that publishes rarely has its full time, also after an outage.
#[test]
fn the_time_without_progress_begins_with_the_frame() {
    let mut rig = Rig::connected(bound(100 * MS));
    let first = rig.publish(10);
    rig.pass(400 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [first]);
    rig.pass(Duration::from_secs(60), &[1]);
    rig.answer(1);
    let second = rig.publish(10);
    assert_eq!(frames_sent(&rig.take())[0].0, second);
    rig.pass(100 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [], "the second frame was given up at once");
}

/// A report about a frame that was given up shows that the link is slow and not dead.
#[test]
fn a_report_of_a_frame_given_up_ends_the_outage() {
    let mut rig = Rig::connected(bound(100 * MS));
    let first = rig.publish(10);
    rig.pass(400 * MS, &[1]);
    rig.publish(10);
    let newest = rig.publish(10);
    let outputs = rig.take();
    assert_eq!((resets(&outputs), frames_sent(&outputs).len()), (vec![first], 1), "a frame was tried");
    rig.complete(1, first, 10);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent.iter().map(|(frame, _)| *frame).collect::<Vec<_>>(), [newest], "the outage goes on");
}

/// During an outage pings show when the link is back. Frames sent meanwhile would be stale by then, and would delay the newest.
#[test]
fn after_an_outage_the_first_frame_is_the_newest() {
    let mut rig = Rig::connected(bound(100 * MS));
    rig.answer(1);
    let lost = rig.publish(10);
    rig.sent(1, lost);
    rig.pass(400 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [lost]);
    let asked = rig.now;
    let mut pings = 0;
    let mut newest = lost;
    for _ in 0..20 {
        newest = rig.publish(10);
        rig.now += 100 * MS;
        rig.broker.handle_timeout(rig.now);
        while let Some(output) = rig.broker.poll_output() {
            pings += u32::from(matches!(output, CameraOutput::Send { message: Message::Ping { .. }, .. }));
            assert!(!matches!(output, CameraOutput::SendFrame { .. }), "a frame is tried");
        }
    }
    assert!(pings >= 19, "{pings} pings in two seconds");
    let before = Instant::from_nanos(asked.as_nanos() - 350_000_000);
    rig.message(1, Message::Pong { t1: before, t2: before, t3: before });
    assert_eq!(frames_sent(&rig.take()), [], "an answer to a ping from before the outage");
    rig.answer(1);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent.iter().map(|(frame, _)| *frame).collect::<Vec<_>>(), [newest]);
}

/// The limit doubles with every frame that is given up, up to five seconds, until a frame arrives.
#[test]
fn patience_grows_with_every_frame_given_up() {
    let mut rig = Rig::connected(bound(100 * MS));
    let mut limits = Vec::new();
    for _ in 0..8 {
        rig.answer(1);
        let frame = rig.publish(10);
        let begun = rig.now;
        while !resets(&rig.take()).contains(&frame) {
            rig.pass(10 * MS, &[1]);
        }
        limits.push(rig.now.saturating_since(begun).as_millis());
    }
    assert!(limits.is_sorted() && limits[0] <= 320 && limits[1] >= 2 * limits[0] - 20, "{limits:?}");
    assert_eq!(limits[7], 5000);
}

/// Pauses after which bytes go on are usual for the link: they do not count as outages again.
#[test]
fn patience_follows_the_pauses_of_the_link() {
    let mut rig = Rig::connected(bound(100 * MS));
    for _ in 0..3 {
        let frame = rig.publish(10);
        rig.take();
        rig.pass(290 * MS, &[1]);
        assert_eq!(resets(&rig.take()), []);
        rig.complete(1, frame, 10);
    }
    let frame = rig.publish(10);
    rig.take();
    rig.pass(570 * MS, &[1]);
    assert_eq!(resets(&rig.take()), []);
    rig.pass(30 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [frame]);
}

#[test]
fn what_nobody_wants_any_more_is_cancelled() {
    let mut rig = Rig::connected(Contract::default());
    let sending = rig.publish(10);
    rig.publish(10);
    rig.take();
    rig.demand(1, 2, vec![]);
    assert_eq!(resets(&rig.take()), [sending]);
    rig.pass(Duration::from_secs(1), &[1]);
    rig.demand(1, 3, vec![Contract::default()]);
    assert_eq!(frames_sent(&rig.take()), [], "a frame from before the demand was sent");
    let frame = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(frame, vec![skipped(0, 2, SkipReason::NotWanted)])]);
}

/// Frames that were on their way when the link went down may have arrived. Later frames keep their reason.
#[test]
fn a_welcome_acknowledges_what_arrived_and_no_more() {
    let mut rig = Rig::connected(Contract::default());
    let arrived = rig.publish(10);
    rig.sent(1, arrived);
    let lost = rig.publish(10);
    rig.sent(1, lost);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.publish(10);
    rig.publish(10);
    rig.take();
    rig.welcome(2, Some(arrived));
    rig.demand(2, 1, vec![Contract::default()]);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent[0].1, [skipped(1, 2, SkipReason::LinkDown)]);
}
