//! Slow links and slow applications.

use mez_core::frame::SkipReason;
use mez_testbed::{Action, ApplicationSpec, CameraSpec, World, mbps, ms, secs};

use crate::story::{ages_max, sequences, skipped};

/// The link carries one frame in 320 ms, and 20 a second are published. Newest wins: no queue builds up, and a frame is never older than the time for
/// itself and the frame being sent when it was published.
#[test]
fn a_slow_link_carries_the_newest_frames() {
    let mut world = World::seeded(8);
    let slow = CameraSpec::frames(20, 40_000).at_rate(mbps(1));
    let dock = world.camera("dock/cam1", CameraSpec { frame_bytes: 38_000..=40_000, ..slow });
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(60));
    let got = world.deliveries(application);
    assert!(got.len() > 160, "{} frames", got.len());
    // Two service times, 5 % of headers, the link's queue, and the delay.
    let queue = ms(262);
    let bound = ms(320) * 2 * 21 / 20 + queue + ms(20);
    assert!(ages_max(got) < bound, "{:?}", ages_max(got));
    let skipped = skipped(got);
    assert_eq!(skipped.of(SkipReason::LinkBusy), skipped.total(), "{skipped:?}");
    assert!(world.camera_counts(dock).published - world.camera_counts(dock).sent > 900);
}

/// When a link slows down and recovers, no frame of the slow time remains in the way.
#[test]
fn a_fade_leaves_no_backlog() {
    let mut world = World::seeded(9);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 40_000).at_rate(mbps(20)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).rate(dock, mbps(1)).run(secs(10)).rate(dock, mbps(20)).run(ms(500));
    let after = world.now();
    world.run(secs(5));
    let got = world.deliveries_since(application, after);
    assert!(got.len() >= 98 && ages_max(got) < ms(60), "{} frames, {:?}", got.len(), ages_max(got));
}

/// Frames are sent one after the other without waiting for acknowledgements: a round trip of 140 ms does not cost rate.
#[test]
fn distance_does_not_cost_frame_rate() {
    let mut world = World::seeded(10);
    world.camera("dock/cam1", CameraSpec::frames(30, 20_000).at_distance(ms(70)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    // The first frames wait for the connection, and then for its window, which doubles with every round trip.
    world.run(secs(1));
    let grown = world.now();
    world.run(secs(9));
    let (began, got) = (world.deliveries(application).len(), world.deliveries_since(application, grown));
    assert!(began - got.len() >= 8, "{began} frames, {} after the first second", got.len());
    assert!(got.len() >= 267, "{} frames", got.len());
    assert!(ages_max(got) < ms(100), "{:?}", ages_max(got));
}

/// A slow application gets the newest frame each time, or every frame in order, as requested. The rest is counted.
#[test]
fn a_slow_application_gets_newest_or_every_frame() {
    let mut world = World::seeded(11);
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let newest = world.application(ApplicationSpec::newest("dock/*").consuming(ms(220)));
    let every = world.application(ApplicationSpec::every("dock/*").consuming(ms(220)));
    world.run(secs(20));
    let (newest, every) = (world.deliveries(newest), world.deliveries(every));
    assert!(ages_max(newest) < ms(80), "{:?}", ages_max(newest));
    let busy = skipped(newest);
    assert!(busy.of(SkipReason::ApplicationBusy) == busy.total() && busy.total() > 280, "{busy:?}");
    assert!(ages_max(every) > secs(10));
    assert_eq!(skipped(every).total(), 0);
    assert!(sequences(every).windows(2).all(|pair| pair[1] == pair[0] + 1));
}

/// Guarantee I8: what one application gets, and when, does not depend on another that has stopped taking frames.
#[test]
fn a_stalled_application_changes_nothing_for_others() {
    let run = |stalls: bool| {
        let mut world = World::seeded(12);
        world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let brisk = world.application(ApplicationSpec::newest("dock/*"));
        let other = world.application(ApplicationSpec::every("dock/*"));
        world.run(secs(2));
        if stalls {
            world.act(Action::Stall(other));
        }
        world.run(secs(20));
        world.deliveries(brisk).iter().map(|got| (got.at, got.frame)).collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}
