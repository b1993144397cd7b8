//! The reports about the camera's source to the edge.

use super::*;
use crate::broker::camera::SourceNews;
use crate::source::SourceState;
use crate::wire::SourceReport;

fn reports(outputs: &[CameraOutput]) -> Vec<(u64, SourceReport)> {
    let reported = |output: &CameraOutput| match output {
        CameraOutput::Send { link, message: Message::SourceReport(report) } => Some((link.0, report.clone())),
        _ => None,
    };
    outputs.iter().filter_map(reported).collect()
}

/// Publishes 15 frames a second for a second.
fn publish_for_a_second(rig: &mut Rig) {
    for _ in 0..15 {
        rig.publish(10);
        rig.pass(66 * MS, &[1]);
    }
}

/// As long as frames come, nothing is reported about their source. A silent source is reported without any news from outside.
#[test]
fn a_source_that_falls_silent_is_told() {
    let mut rig = Rig::connected(Contract::default());
    publish_for_a_second(&mut rig);
    assert_eq!(reports(&rig.take()), []);
    let last = rig.now - 66 * MS;
    rig.pass(2_000 * MS, &[1]);
    let told = reports(&rig.take());
    let [(1, report)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(report.state, SourceState::Stalled);
    assert!(report.reason.contains("it gave 15.2 per second"), "{report:?}");
    assert_eq!(report.lasts, 330 * MS, "five intervals after its last frame, at {last:?}");
    rig.publish(10);
    let told = reports(&rig.take());
    assert!(matches!(&told[..], [(1, report)] if report.state == SourceState::Live), "{told:?}");
}

/// The state is reported again on the next connection, with the time that has passed.
#[test]
fn every_edge_is_told_that_the_source_is_lost() {
    let mut rig = Rig::connected(Contract::default());
    publish_for_a_second(&mut rig);
    let news = SourceNews::Lost { reason: "the server closed".into(), retry: Some(8_000 * MS) };
    rig.broker.handle_source(rig.now, news);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.take();
    rig.pass(1_000 * MS, &[]);
    assert_eq!(reports(&rig.take()), [], "there is nobody to tell");
    rig.welcome(2, None);
    let told = reports(&rig.take());
    let expected = SourceReport {
        state: SourceState::Lost,
        reason: "the server closed".into(),
        lasts: 1_000 * MS,
        retry: Some(7_000 * MS),
    };
    assert_eq!(told, [(2, expected)]);
}
