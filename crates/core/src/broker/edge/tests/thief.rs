//! Somebody else with a camera's valid identity.

use super::*;
use crate::broker::{CAPTURED_MAX, EPOCH_BASE, EPOCH_JUMP_MAX, EPOCH_MAX, NUMBER_MAX, highest_believed};
use crate::frame::Sequence;
use crate::units::Timestamp;

const HIGHEST: Epoch = Epoch(EPOCH_BASE.0 + EPOCH_JUMP_MAX);

fn newest(messages: &[Message]) -> Option<Epoch> {
    messages.iter().find_map(|message| match message {
        Message::Welcome(welcome) => welcome.newest.map(|id| id.epoch),
        _ => None,
    })
}

fn refused(messages: &[Message]) -> Option<(RefuseCode, String)> {
    messages.iter().find_map(|message| match message {
        Message::Refuse { code, text } => Some((*code, text.clone())),
        _ => None,
    })
}

fn is_welcome(messages: &[Message]) -> bool {
    messages.iter().any(|message| matches!(message, Message::Welcome(_)))
}

/// A claim near the highest number once kept the real camera out for good.
#[test]
fn an_absurd_epoch_is_refused_and_disturbs_nobody() {
    let mut rig = Rig::new();
    assert!(is_welcome(&rig.hello(1, "a", 3, 1, 10)));
    rig.frame(1, header(3, 0, 10, vec![])).unwrap();
    for (link, epoch) in
        [NUMBER_MAX - 1, NUMBER_MAX, EPOCH_MAX.0, HIGHEST.0 + EPOCH_JUMP_MAX * 9].iter().enumerate()
    {
        let (code, text) = refused(&rig.hello(2 + link as u64, "a", *epoch, 1, 20)).expect("it is refused");
        assert_eq!(code, RefuseCode::Protocol);
        assert!(text.contains(&epoch.to_string()) && text.contains("mez cameras reset dock/cam1"), "{text}");
    }
    rig.frame(1, header(3, 1, 10, vec![])).expect("the camera goes on");
    assert!(rig.info().connected);
}

/// The thief takes the highest epoch that it may, and leaves. The camera continues above that epoch by itself.
#[test]
fn after_the_highest_claim_the_camera_goes_on_above_it() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    assert!(is_welcome(&rig.hello(2, "a", HIGHEST.0, 1, 20)));
    let mut last = header(HIGHEST.0, NUMBER_MAX - 1, 10, vec![]);
    last.meta.captured = CAPTURED_MAX;
    rig.frame(2, last).expect("a frame of the thief, with the last number and time that there are");
    rig.broker.handle_closed(rig.now, LinkId(2));
    assert_eq!(newest(&rig.hello(3, "a", 3, 2, 10)), Some(HIGHEST), "it is asked for a later epoch");
    assert!(is_welcome(&rig.hello(4, "a", HIGHEST.0 + 1, 3, 10)));
    rig.frame(4, header(HIGHEST.0 + 1, 0, 10, vec![])).expect("its frames flow");
    assert_eq!(
        rig.info().newest.map(|(id, _)| id),
        Some(FrameId { epoch: Epoch(HIGHEST.0 + 1), sequence: Sequence(0) })
    );
}

/// After a thief at another edge, the camera's epoch is higher than this edge believes. The camera gets in by itself.
#[test]
fn a_camera_that_another_edge_has_brought_far_persists() {
    let mut rig = Rig::new();
    let far = HIGHEST.0 + 3 * EPOCH_JUMP_MAX;
    let attempts =
        (1..20).take_while(|link| refused(&rig.hello(*link, "a", far, *link, 10)).is_some()).count();
    assert_eq!(attempts, 3, "one for each step");
    assert!(rig.info().connected);
}

#[test]
fn capture_times_after_which_there_are_none_are_refused() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let mut late = header(3, 0, 10, vec![]);
    late.meta.captured = Timestamp::MAX;
    assert!(matches!(rig.frame(1, late.clone()), Err(FrameRefused::Captured { .. })));
    late.meta.captured = CAPTURED_MAX;
    rig.frame(1, late).expect("the last one");
    // The last time holds for its epoch: frames of the next start are accepted whatever their times.
    rig.hello(2, "a", 4, 1, 20);
    rig.frame(2, header(4, 0, 10, vec![])).unwrap();
    assert_eq!(rig.info().counters.received, 2);
}

/// A log from before epochs were bounded.
#[test]
fn what_no_camera_reaches_is_cured_by_a_reset() {
    let mut rig = Rig::new();
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let (absurd, anchor) =
        (Epoch(NUMBER_MAX - 1), ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO });
    rig.broker.restore(vec![(camera.clone(), (absurd, anchor), Vec::new())]);
    let (code, text) = refused(&rig.hello(1, "a", 3, 1, 10)).expect("nothing can come after it");
    assert_eq!(code, RefuseCode::NameHeld);
    assert!(text.contains("mez cameras reset dock/cam1"), "{text}");

    let forgotten = rig.broker.handle_reset(&camera).expect("it was known");
    assert_eq!(forgotten, Forgotten { epoch: absurd, identity: String::new(), connected: false });
    assert!(rig.broker.cameras(rig.now).is_empty());
    assert_eq!(newest(&rig.hello(2, "a", 3, 2, 10)), None);
    rig.frame(2, header(3, 7, 10, vec![])).expect("with its own numbers");
}

/// After a reset the camera still has its own counter, however far a thief has raised it.
#[test]
fn after_a_reset_the_next_start_is_taken_whatever_its_epoch() {
    let mut rig = Rig::new();
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let far = Epoch(1 << 47);
    assert!(rig.broker.handle_reset(&camera).is_none(), "not known, and believed all the same");
    assert!(is_welcome(&rig.hello(1, "a", far.0, 1, 10)));
    // This counts once: the next epoch must be within a step again.
    let next = highest_believed(far, EPOCH_JUMP_MAX);
    assert!(refused(&rig.hello(2, "a", next.0 + 1, 1, 20)).is_some());
    assert!(is_welcome(&rig.hello(3, "a", far.0 + 1, 1, 30)));
}

#[test]
fn a_reset_closes_the_connection_and_ends_who_reads() {
    let mut rig = Rig::new();
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let spec = |pattern: &str| SubscriptionSpec::live(pattern.parse().unwrap());
    let clock = ClockAnchor { wall: Timestamp::from_nanos(1 << 60), monotonic: rig.now };
    rig.hello(1, "a", 3, 1, 10);
    rig.broker.handle_subscribe(clock, SubscriptionId(1), spec("dock/*"));
    rig.broker.handle_subscribe(clock, SubscriptionId(2), spec("yard/*"));
    rig.frame(1, header(3, 0, 10, vec![])).unwrap();
    rig.take();
    rig.broker.handle_reset(&camera);
    let outputs = rig.take();
    let ended: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            EdgeOutput::Ended { subscription, camera } => Some((subscription.0, camera.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(1, "dock/cam1")]);
    assert!(outputs.iter().any(|output| matches!(output, EdgeOutput::Close { link: LinkId(1) })));
    assert!(rig.frame(1, header(3, 1, 10, vec![])).is_err(), "what was on its way is not taken");
    // A new subscription reads the frames from now on, in their own order.
    rig.broker.handle_subscribe(clock, SubscriptionId(3), spec("dock/*"));
    let messages = rig.hello(4, "a", 2, 1, 40);
    assert!(is_welcome(&messages), "{messages:?}");
    rig.frame(4, header(2, 0, 10, vec![])).expect("an earlier epoch");
}
