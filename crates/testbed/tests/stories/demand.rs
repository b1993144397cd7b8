//! What crosses a link, and when nothing does.

use mez_core::frame::SkipCounts;
use mez_testbed::{Action, ApplicationSpec, CameraSpec, EdgeSpec, HostClock, World, mbps, ms, secs};

use crate::story::{reasons, sequences};

/// However many applications subscribe, each frame crosses once.
#[test]
fn thirty_two_subscribers_cost_one_crossing() {
    let mut world = World::seeded(13);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let applications: Vec<_> =
        (0..32).map(|_| world.application(ApplicationSpec::newest("dock/*"))).collect();
    world.run(secs(10));
    let sent = world.camera_counts(dock).sent;
    assert!((195..=205).contains(&sent), "{sent} frames crossed");
    for application in applications {
        assert!(world.deliveries(application).len() as u64 >= sent - 3);
    }
    let bytes = world.camera_info(dock).unwrap().counters.bytes;
    assert!(bytes <= sent * 30_000, "{bytes} bytes crossed");
}

/// Before the first subscription, and after the last one has ended, nothing crosses.
#[test]
fn nothing_crosses_that_nobody_wants() {
    let mut world = World::seeded(14);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.run(secs(5));
    assert!(world.is_up(dock));
    assert_eq!(world.camera_counts(dock).sent, 0);

    let first = world.application(ApplicationSpec::newest("dock/*"));
    let second = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::Unsubscribe(first)).run(secs(5));
    assert!(world.deliveries(second).len() > 190);
    world.act(Action::Unsubscribe(second)).run(ms(200));
    let sent = world.camera_counts(dock).sent;
    world.run(secs(5));
    assert_eq!(world.camera_counts(dock).sent, sent);
}

/// A frame that takes seconds is cancelled when the last subscriber leaves.
#[test]
fn the_rest_of_a_frame_does_not_cross_for_nobody() {
    let mut world = World::seeded(15);
    let dock = world.camera("dock/cam1", CameraSpec::frames(1, 2_000_000).at_rate(mbps(2)));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(4)).act(Action::Unsubscribe(application)).run(secs(20));
    let counters = world.camera_info(dock).unwrap().counters;
    assert_eq!((counters.received, counters.cancelled, counters.bytes), (0, 1, 0), "{counters:?}");
}

/// A late subscriber gets frames from then on, and earlier frames do not count as skipped.
#[test]
fn a_late_subscriber_starts_with_the_present() {
    let mut world = World::seeded(16);
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5));
    let joined = world.now();
    let late = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(2));
    let first = &world.deliveries(late)[0];
    assert!(first.published + ms(30) >= joined, "{first:?}");
    assert_eq!(first.skipped, SkipCounts::default());
}

/// The past that the edge holds flows into the present without a gap. What is not held is stated.
#[test]
fn the_past_flows_into_the_present() {
    let clock = |origin| Some(HostClock::right(origin));
    let mut world = World::seeded_with(17, EdgeSpec { clock: clock(secs(50)), ..EdgeSpec::default() });
    world.camera("dock/cam1", CameraSpec { clock: clock(secs(9_000)), ..CameraSpec::frames(20, 30_000) });
    world.run(secs(3));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(4));
    let since = world.application(ApplicationSpec::since("dock/*", secs(2)));
    let before_all = world.application(ApplicationSpec::since("dock/*", secs(100)));
    world.run(secs(3));
    for (application, frames) in [(since, 98..=102), (before_all, 135..=145)] {
        let got = world.deliveries(application);
        assert!(frames.contains(&got.len()), "{} frames", got.len());
        assert!(sequences(got).windows(2).all(|pair| pair[1] == pair[0] + 1), "{:?}", reasons(got));
        assert!(got[1..].iter().all(|got| got.not_held.is_none()));
    }
    assert_eq!(world.deliveries(since)[0].not_held, None);
    assert!(world.deliveries(before_all)[0].not_held.is_some());
}

/// A span with an end delivers frames up to it. Then the demand on the camera ends.
#[test]
fn a_subscription_ends_by_itself_and_takes_its_demand_along() {
    let mut world = World::seeded(18);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let spec = ApplicationSpec { end_after_ms: Some(3_000), ..ApplicationSpec::every("dock/*") };
    let application = world.application(spec);
    world.run(secs(10));
    assert!(world.has_ended(application));
    let sent = world.camera_counts(dock).sent;
    world.run(secs(5));
    assert_eq!(world.camera_counts(dock).sent, sent);
}
