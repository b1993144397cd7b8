//! How long the edge waits for a camera that nobody wants frames of, and what it tells the camera.

use super::*;

/// With a camera whose path is measured, and that was told to rest.
fn resting() -> Rig {
    let mut rig = Rig::new();
    let said = rig.hello(1, "a", 3, 1, 10);
    assert_eq!(said.iter().filter(|message| matches!(message, Message::Rest)).count(), 1, "{said:?}");
    for _ in 0..8 {
        rig.now += 250 * MS;
        answer(&mut rig);
    }
    rig
}

/// The camera answers all pings that are due. Returns how many there were.
fn answer(rig: &mut Rig) -> usize {
    rig.broker.handle_timeout(rig.now);
    let mut pings = 0;
    for message in rig.messages(1) {
        if let Message::Ping { t1 } = message {
            pings += 1;
            rig.broker.handle_message(rig.now, LinkId(1), Message::Pong { t1, t2: t1, t3: t1 });
        }
    }
    pings
}

/// Lets time pass without a message of the camera. Returns the reasons for which the camera was reported as silent.
fn silence(rig: &mut Rig, lasts: Duration) -> Vec<String> {
    let (end, mut reasons) = (rig.now + lasts, Vec::new());
    while rig.now < end {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
        reasons.extend(rig.take().into_iter().filter_map(|output| match output {
            EdgeOutput::CameraChanged { reason, up: false, .. } => reason,
            _ => None,
        }));
    }
    reasons
}

fn subscribe(rig: &mut Rig) {
    let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
    let spec = SubscriptionSpec::live("dock/*".parse().unwrap());
    rig.broker.handle_subscribe(clock, SubscriptionId(1), spec);
}

/// The pings of ten seconds, which the camera answers.
fn pings(rig: &mut Rig) -> usize {
    let mut pings = 0;
    for _ in 0..1_000 {
        rig.now += 10 * MS;
        pings += answer(rig);
    }
    pings
}

#[test]
fn a_camera_that_nobody_wants_is_pinged_once_a_second() {
    let mut rig = resting();
    assert!(pings(&mut rig).abs_diff(10) <= 1);
    rig.now += 500 * MS;
    assert_eq!(answer(&mut rig), 0);
    subscribe(&mut rig);
    assert_eq!(answer(&mut rig), 1, "at once");
    assert!(pings(&mut rig).abs_diff(40) <= 1);
    rig.broker.handle_unsubscribe(SubscriptionId(1));
    let said = rig.messages(1);
    assert!(matches!(&said[..], [Message::Demand(_), Message::Rest]), "{said:?}");
    assert!(pings(&mut rig).abs_diff(10) <= 1);
}

/// Between two slow pings lies more than the silence that a wanted camera may keep.
#[test]
fn a_resting_camera_may_be_silent_for_longer() {
    let mut rig = resting();
    assert_eq!(silence(&mut rig, 1_750 * MS), Vec::<String>::new());
    let due = rig.broker.poll_timeout().unwrap();
    assert!(due <= rig.now + MS, "the timer knows");
    assert_eq!(silence(&mut rig, 10 * MS), ["no message from the camera for 1760 ms"]);
    rig.now += 250 * MS;
    assert_eq!(answer(&mut rig), 1, "pings that are not answered come as often as ever");
    assert!(!rig.info().connected);
    assert!(rig.broker.poll_timeout().unwrap() <= rig.now);
    rig.broker.handle_timeout(rig.now);
    assert!(rig.info().connected);
}

/// Whoever is told that a camera is silent may leave. That alone does not bring the camera back.
#[test]
fn a_silent_camera_stays_silent_when_nobody_wants_it_any_more() {
    let mut rig = resting();
    rig.now += 500 * MS;
    subscribe(&mut rig);
    assert_eq!(answer(&mut rig), 1);
    assert_eq!(silence(&mut rig, 800 * MS).len(), 1);
    rig.broker.handle_unsubscribe(SubscriptionId(1));
    for _ in 0..300 {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
        assert!(!rig.info().connected);
    }
    let up = rig.take().into_iter().filter(|output| matches!(output, EdgeOutput::CameraChanged { .. }));
    assert_eq!(up.count(), 0);
}

/// The demand has a way to go before the camera pings faster.
#[test]
fn a_camera_that_is_wanted_again_has_time_to_hear_of_it() {
    let mut rig = resting();
    silence(&mut rig, 900 * MS);
    subscribe(&mut rig);
    let said = rig.messages(1);
    assert!(said.iter().all(|message| !matches!(message, Message::Rest)), "{said:?}");
    assert_eq!(
        silence(&mut rig, 740 * MS),
        Vec::<String>::new(),
        "no answer to a faster ping can be there yet"
    );
    assert_eq!(silence(&mut rig, 30 * MS).len(), 1, "as soon as of a camera that was wanted all the time");
}
