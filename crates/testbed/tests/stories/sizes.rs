//! Frames and logs that are too large.

use std::time::Duration;

use mez_core::frame::SkipReason;
use mez_testbed::{ApplicationSpec, CameraSpec, EdgeSpec, World, secs};

use crate::story::skipped;

/// Frames that are too large for the edge are skipped with their own reason, and delay no other frames.
#[test]
fn frames_that_are_too_large_hold_up_nothing() {
    let mut world = World::seeded_with(28, EdgeSpec { frame_bytes_max: 35_000, ..EdgeSpec::default() });
    world.camera("dock/cam1", CameraSpec { frame_bytes: 30_000..=40_000, ..CameraSpec::frames(20, 0) });
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(20));
    let got = world.deliveries(application);
    let skipped = skipped(got);
    assert!(got.len() > 80, "{} frames", got.len());
    assert!(
        skipped.of(SkipReason::Refused) > 80 && skipped.of(SkipReason::Refused) == skipped.total(),
        "{skipped:?}"
    );
}

/// The replica logs keep to their budget even when more cameras come.
#[test]
fn replica_logs_share_their_budget() {
    let mut world = World::seeded_with(29, EdgeSpec { log_bytes_max: 8 << 20, ..EdgeSpec::default() });
    let every = world.application(ApplicationSpec::every("**").consuming(Duration::from_millis(3)));
    for number in 0..8 {
        world.camera(&format!("dock/cam{number}"), CameraSpec::frames(20, 60_000));
        world.run(secs(2));
    }
    world.run(secs(5));
    for number in 0..8 {
        let camera = format!("dock/cam{number}");
        let frames = world.deliveries(every).iter().filter(|got| got.camera.as_str() == camera).count();
        assert!(frames > 80, "{camera} came to {frames} frames");
    }
}
