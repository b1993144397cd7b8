//! Cameras that are forgotten: by hand, or because they were absent for long.

use super::*;

fn camera() -> CameraName {
    "dock/cam1".parse().expect("a valid name")
}

fn subscribe(rig: &mut Rig, id: u64, pattern: &str) {
    let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
    let spec = SubscriptionSpec::live(pattern.parse().expect("a valid pattern"));
    rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
}

fn detached(outputs: &[EdgeOutput]) -> Vec<u64> {
    let detached = outputs.iter().filter_map(|output| match output {
        EdgeOutput::Detach { subscription, .. } => Some(subscription.0),
        _ => None,
    });
    detached.collect()
}

/// An absent camera leaves the list, and no subscription ends. The same camera may connect again with any epoch.
#[test]
fn a_camera_that_is_gone_is_forgotten() {
    let mut rig = Rig::new();
    let nobody = rig.broker.handle_forget(&camera());
    assert_eq!(nobody, Err(ForgetError::Unknown { camera: camera() }));
    rig.hello(1, "a", 3, 1, 10);
    rig.frame(1, header(3, 0, 10, vec![])).expect("it is taken");
    subscribe(&mut rig, 1, "dock/*");
    subscribe(&mut rig, 2, "yard/*");
    let error = rig.broker.handle_forget(&camera()).expect_err("it is connected");
    assert!(error.to_string().contains("dock/cam1 is connected"), "{error}");
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.take();

    let forgotten = rig.broker.handle_forget(&camera()).expect("it is gone");
    assert_eq!((forgotten.epoch, forgotten.identity.as_str(), forgotten.connected), (Epoch(3), "a", false));
    let outputs = rig.take();
    assert_eq!(detached(&outputs), [1]);
    assert!(!outputs.iter().any(|output| matches!(output, EdgeOutput::Ended { .. })), "{outputs:?}");
    assert!(rig.broker.cameras(rig.now).is_empty());
    assert!(!rig.broker.view(rig.now, &camera()).connected);

    // The camera's counter of starts was lost, too.
    let welcome = rig.hello(2, "a", 1, 1, 11);
    assert_eq!(welcomed(&welcome), Some(None));
    assert_eq!(rig.broker.cameras(rig.now).len(), 1);
}

/// Subscriptions get the log of a camera that comes back, as of every new camera.
#[test]
fn a_forgotten_camera_is_read_again() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    subscribe(&mut rig, 1, "dock/*");
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.broker.handle_forget(&camera()).expect("it is gone");
    rig.take();
    rig.connect(2, "a");
    rig.broker.handle_message(rig.now, LinkId(2), Message::Hello(hello("dock/cam1", 4, 1, 11)));
    let attached =
        rig.take().into_iter().filter(|output| matches!(output, EdgeOutput::Attach { .. })).count();
    assert_eq!(attached, 1);
}

/// A camera is stale after a while, unless a subscription names it. A pattern does not count.
#[test]
fn a_camera_is_stale_after_a_while() {
    let forget_after = Some(Duration::from_secs(60));
    let mut rig = Rig::with(EdgeConfig { forget_after, ..EdgeConfig::default() });
    rig.broker.handle_started(rig.now);
    rig.hello(1, "a", 3, 1, 10);
    rig.now += Duration::from_secs(100);
    assert!(rig.broker.stale(rig.now).is_empty(), "it is connected");
    rig.broker.handle_message(rig.now, LinkId(1), Message::Ping { t1: rig.now });
    rig.broker.handle_closed(rig.now, LinkId(1));
    subscribe(&mut rig, 1, "**");
    rig.now += Duration::from_secs(59);
    assert!(rig.broker.stale(rig.now).is_empty());
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.broker.stale(rig.now), [camera()]);
    subscribe(&mut rig, 2, "dock/cam1");
    assert!(rig.broker.stale(rig.now).is_empty(), "somebody waits for this very camera");
    rig.broker.handle_unsubscribe(SubscriptionId(2));
    assert_eq!(rig.broker.stale(rig.now), [camera()]);
}

/// A camera that a log on disk remembers counts as absent since the edge began to listen.
#[test]
fn a_restored_camera_has_time_to_come_back() {
    let forget_after = Some(Duration::from_secs(60));
    let mut rig = Rig::with(EdgeConfig { forget_after, ..EdgeConfig::default() });
    let anchor = ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO };
    rig.broker.restore(vec![(camera(), (Epoch(3), anchor), Vec::new())]);
    rig.now += Duration::from_secs(1_000);
    rig.broker.handle_started(rig.now);
    assert!(rig.broker.stale(rig.now + Duration::from_secs(59)).is_empty());
    assert_eq!(rig.broker.stale(rig.now + Duration::from_secs(60)), [camera()]);
}
