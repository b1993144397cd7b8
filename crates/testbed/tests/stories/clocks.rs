//! Clocks that differ, are stepped or stand still.

use mez_testbed::{Action, ApplicationSpec, CameraSpec, Counter, EdgeId, EdgeSpec, Host, World, ms, secs};

use crate::story::{ages_max, resumed_after, sequences, skipped};

/// Wall clocks that are stepped by an hour, each way and on both hosts, do not change deliveries, ages and order.
#[test]
fn a_wall_clock_that_is_set_changes_nothing() {
    let mut world = World::seeded(25);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    for host in [Host::Camera(dock), Host::Edge(EdgeId::default())] {
        for seconds in [3600, -7200, 3600] {
            world.run(secs(2)).act(Action::StepWall(host, seconds));
        }
    }
    world.run(secs(3));
    let got = world.deliveries(application);
    assert!(got.len() > 290 && ages_max(got) < ms(40), "{} frames, {:?}", got.len(), ages_max(got));
    assert_eq!(skipped(got).total(), 0);
}

/// A camera whose wall clock is an hour behind loses no live frame of a subscription that began a little earlier.
#[test]
fn a_camera_an_hour_behind_is_delivered_all_the_same() {
    let mut world = World::seeded(26);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::since("dock/*", secs(1)));
    world.run(secs(3)).act(Action::StepWall(Host::Camera(dock), -3600));
    world.restart_camera(dock, Counter::Kept);
    let start = world.now();
    world.run(secs(3));
    assert!(resumed_after(&world, application, start) < ms(300));
}

/// Capture times that a publisher gives out of order are refused and counted, and take no number.
#[test]
fn capture_times_out_of_order_are_refused() {
    let mut world = World::seeded(27);
    let capture_times = mez_testbed::CaptureTimes::Publisher { wrong_once_in: 5 };
    let dock = world.camera("dock/cam1", CameraSpec { capture_times, ..CameraSpec::frames(20, 30_000) });
    let application = world.application(ApplicationSpec::every("dock/*"));
    world.run(secs(10));
    let counts = world.camera_counts(dock);
    assert!(counts.refused > 20 && counts.published > 100, "{counts:?}");
    let got = world.deliveries(application);
    assert_eq!(skipped(got).total(), 0);
    assert!(sequences(got).windows(2).all(|pair| pair[1] == pair[0] + 1));
    // The camera tells the edge once a second.
    let told = world.camera_info(dock).unwrap().status.refused;
    assert!((counts.refused - 12..=counts.refused).contains(&told), "{told} of {counts:?}");
}

/// A camera host that is frozen for three seconds continues where it was. Frames in flight are accounted for.
#[test]
fn a_frozen_camera_host_goes_on() {
    let mut world = World::seeded(30);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).act(Action::Freeze(Host::Camera(dock))).run(secs(3));
    let end = world.now();
    assert_eq!(world.camera_info(dock).map(|info| info.connected), Some(false));
    world.act(Action::Thaw(Host::Camera(dock))).run(secs(3));
    assert!(resumed_after(&world, application, end) < ms(500));
    assert_eq!(world.epoch(dock), world.deliveries(application).first().map(|got| got.frame.epoch.0));
}

/// Two edges know nothing of each other, though their cameras may share a name.
#[test]
fn edges_are_worlds_of_their_own() {
    let mut world = World::seeded(31);
    let other = world.edge(EdgeSpec::default());
    let here = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let there = world.camera("dock/cam1", CameraSpec { edge: other, ..CameraSpec::frames(10, 20_000) });
    let application = world.application(ApplicationSpec { edge: other, ..ApplicationSpec::every("dock/*") });
    world.run(secs(5));
    assert_eq!(world.camera_counts(here).sent, 0);
    let got = world.deliveries(application);
    assert!(got.len() as u64 + 2 >= world.camera_counts(there).published && got.len() < 55);
}

/// Replies of applications come back to the camera, once each.
#[test]
fn replies_come_back() {
    let mut world = World::seeded(32);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    for _ in 0..2 {
        world.application(ApplicationSpec { replies: true, ..ApplicationSpec::every("dock/*") });
    }
    world.run(secs(10));
    let counts = world.camera_counts(dock);
    assert!(
        counts.replies <= 2 * counts.published && counts.replies + 4 >= 2 * counts.published,
        "{counts:?}"
    );
}
