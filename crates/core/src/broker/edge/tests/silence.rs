//! Frames that come when a silent link carries again: of the burst, the newest is delivered.

use super::*;

/// A camera whose link was silent for two seconds, with a subscription to the
/// newest frame and one to every frame. The camera's clock is that of the edge.
fn after_silence() -> (Rig, [Subscription; 2]) {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let pong = |now: Instant| Message::Pong { t1: now, t2: now, t3: now };
    rig.broker.handle_message(rig.now, LinkId(1), pong(rig.now));
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let (log, ..) = rig.broker.log(&camera).unwrap();
    let spans = [Span::LIVE, Span { deliver: Deliver::Every, ..Span::LIVE }];
    let readers = spans.map(|span| {
        let mut reader = Subscription::new(span);
        reader.attach(camera.clone(), log.clone());
        reader
    });
    rig.now += 2_000 * MS;
    rig.broker.handle_message(rig.now, LinkId(1), pong(rig.now));
    (rig, readers)
}

/// A frame that was captured `ago` before now.
fn captured(rig: &Rig, sequence: u64, ago: Duration) -> FrameHeader {
    let mut header = header(3, sequence, 100, vec![]);
    header.meta.captured = Timestamp::from_nanos(rig.now.as_nanos() - ago.as_nanos() as u64);
    header
}

fn got(reader: &mut Subscription) -> Vec<(u64, Vec<(SkipReason, u64)>)> {
    let next = || match reader.next(WALL) {
        Next::Frame(delivery) => {
            Some((delivery.record.frame.meta.id.sequence.0, delivery.skipped.iter().collect()))
        }
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

/// When a link is back, the frames in the network's queue come first. Readers of the newest frame wait for the newest.
#[test]
fn of_a_burst_after_a_silence_the_newest_is_delivered() {
    let (mut rig, [mut newest, mut every]) = after_silence();
    for (sequence, ago) in [(0, 1_900), (1, 1_800), (2, 1_700)] {
        let stale = captured(&rig, sequence, ago * MS);
        rig.frame(1, stale).unwrap();
        rig.now += 2 * MS;
        assert_eq!(got(&mut newest), [], "frame {sequence} is stale");
    }
    let fresh = captured(&rig, 3, 20 * MS);
    rig.frame(1, fresh).unwrap();
    assert_eq!(got(&mut newest), [(3, vec![(SkipReason::LateOrLost, 3)])]);
    assert_eq!(got(&mut every).iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

/// The camera learns late that the link is back, and its first frame is a keyframe
/// over a slow link. Meanwhile no frame of the network's queue is delivered.
#[test]
fn a_stale_frame_waits_for_a_newer_one_that_takes_long() {
    let (mut rig, [mut newest, _]) = after_silence();
    let stale = captured(&rig, 0, 1_500 * MS);
    rig.frame(1, stale).unwrap();
    for _ in 0..60 {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
        assert_eq!(got(&mut newest), [], "it is {:?} later", rig.now);
    }
    let fresh = captured(&rig, 1, 100 * MS);
    rig.frame(1, fresh).unwrap();
    assert_eq!(got(&mut newest), [(1, vec![(SkipReason::LateOrLost, 1)])]);
}

/// A link that brings a packet now and then has short silences all the time. A frame waits no longer than the last silence lasted.
#[test]
fn a_frame_of_a_trickle_waits_no_longer_than_its_silence() {
    let (mut rig, [mut newest, _]) = after_silence();
    let first = captured(&rig, 0, 20 * MS);
    rig.frame(1, first).unwrap();
    assert_eq!(got(&mut newest).len(), 1);
    rig.now += 400 * MS;
    let late = captured(&rig, 1, 390 * MS);
    rig.frame(1, late).unwrap();
    assert_eq!(got(&mut newest), []);
    rig.now += 401 * MS;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(got(&mut newest), [(1, vec![])]);
}

/// If no newer frame comes, the newest of those that came is better than nothing.
#[test]
fn a_stale_frame_without_a_newer_one_is_delivered_soon() {
    let (mut rig, [mut newest, _]) = after_silence();
    for (sequence, ago) in [(0, 1_900), (1, 1_800)] {
        let stale = captured(&rig, sequence, ago * MS);
        rig.frame(1, stale).unwrap();
    }
    assert_eq!(got(&mut newest), []);
    for _ in 0..100 {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
    }
    assert_eq!(got(&mut newest), [(1, vec![(SkipReason::LateOrLost, 1)])]);
}

/// A camera whose host stood still reports a low rate afterwards. Its frames show better how
/// often it publishes. So the frame that lay in the network's queue waits for the newest.
#[test]
fn a_camera_that_stood_still_is_not_taken_for_a_slow_one() {
    let (mut rig, [mut newest, _]) = after_silence();
    for sequence in 0..3 {
        let fresh = captured(&rig, sequence, 20 * MS);
        rig.frame(1, fresh).unwrap();
        rig.now += 66 * MS;
    }
    assert_eq!(got(&mut newest).len(), 1);
    rig.now += 2_000 * MS;
    let status = Status { frames_per_second: 0.4, ..Status::default() };
    rig.broker.handle_message(rig.now, LinkId(1), Message::Status(status));
    rig.broker.handle_message(rig.now, LinkId(1), Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now });
    let stale = captured(&rig, 3, 700 * MS);
    rig.frame(1, stale).unwrap();
    assert_eq!(got(&mut newest), []);
    rig.now += 2 * MS;
    let fresh = captured(&rig, 13, 20 * MS);
    rig.frame(1, fresh).unwrap();
    assert_eq!(got(&mut newest).iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [13]);
}

/// A camera that sends rarely, because no rung keeps the contract, is not behind a silent link. Its frames do not wait.
#[test]
fn a_frame_that_has_just_been_sent_is_not_stale() {
    let (mut rig, [mut newest, _]) = after_silence();
    for sequence in 0..4 {
        let mut seldom = captured(&rig, sequence, 330 * MS);
        seldom.sent = Instant::from_nanos(rig.now.as_nanos() - 20_000_000);
        rig.frame(1, seldom).unwrap();
        assert_eq!(got(&mut newest).len(), 1, "frame {sequence} waits");
        rig.now += 1_500 * MS;
        let pong = Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now };
        rig.broker.handle_message(rig.now, LinkId(1), pong);
    }
}
