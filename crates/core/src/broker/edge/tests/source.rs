//! Reports of a camera about the source of its frames, and who is told.

use super::*;
use crate::source::{SourceStanding, SourceState};
use crate::wire::SourceReport;

fn camera() -> CameraName {
    "dock/cam1".parse().expect("a valid name")
}

fn say(rig: &mut Rig, state: SourceState, reason: &str, retry: Option<Duration>) -> Vec<EdgeOutput> {
    let report = SourceReport { state, reason: reason.into(), lasts: 300 * MS, retry };
    rig.broker.handle_message(rig.now, LinkId(1), Message::SourceReport(report));
    rig.take()
}

fn told(outputs: &[EdgeOutput]) -> Vec<SourceState> {
    let changed = outputs.iter().filter_map(|output| match output {
        EdgeOutput::SourceChanged { source, .. } => Some(source.state),
        _ => None,
    });
    changed.collect()
}

fn source(rig: &Rig) -> Option<SourceStanding> {
    rig.info().source
}

/// Each new state is told once. Each attempt to reopen the source changes the view.
#[test]
fn a_lost_source_is_told_and_seen() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    assert_eq!(source(&rig), None, "it has published nothing");
    let status = Status { published: 7, ..Status::default() };
    rig.broker.handle_message(rig.now, LinkId(1), Message::Status(status));
    assert_eq!(source(&rig).expect("it gives frames").state, SourceState::Live);
    rig.take();

    let lost_at = rig.now - 300 * MS;
    let outputs = say(&mut rig, SourceState::Lost, "connection refused", Some(250 * MS));
    assert_eq!(told(&outputs), [SourceState::Lost]);
    assert!(outputs.iter().any(|output| matches!(output, EdgeOutput::ViewChanged { .. })));
    rig.now += 1_000 * MS;
    let again = say(&mut rig, SourceState::Lost, "connection refused", Some(500 * MS));
    assert_eq!(told(&again), [], "another try is no news");
    let seen = source(&rig).expect("it said so");
    assert_eq!((seen.since, seen.retry), (Some(lost_at), Some(rig.now + 500 * MS)));
    assert_eq!(told(&say(&mut rig, SourceState::Lost, "no such stream", None)), [SourceState::Lost]);
    assert_eq!(told(&say(&mut rig, SourceState::Live, "", None)), [SourceState::Live]);
    assert_eq!(rig.broker.view(rig.now, &camera()).source.expect("known").state, SourceState::Live);
}

/// After a camera is gone, it stays known that its source had ended. Nothing is kept that may have changed since.
#[test]
fn a_source_that_ended_outlives_the_connection() {
    for (state, reason, stays) in [
        (SourceState::Ended, "", true),
        (SourceState::Lost, "the password is wrong", true),
        (SourceState::Stalled, "no frames any more", false),
    ] {
        let mut rig = Rig::new();
        rig.hello(1, "a", 3, 1, 10);
        say(&mut rig, state, reason, None);
        rig.broker.handle_closed(rig.now, LinkId(1));
        assert_eq!(source(&rig).is_some(), stays, "{state:?}");
        let down = rig.take().into_iter().find_map(|output| match output {
            EdgeOutput::CameraChanged { up: false, reason, .. } => reason,
            _ => None,
        });
        let text = down.expect("it went");
        assert_eq!(text.starts_with("the camera's source"), stays, "{text}");
        // Another start has another source.
        rig.hello(2, "a", 4, 1, 11);
        assert_eq!(source(&rig), None);
    }
}
