//! Failures, and how soon the brokers recover.

use mez_core::contract::Contract;
use mez_core::frame::SkipReason;
use mez_testbed::{Action, ApplicationSpec, CameraSpec, Counter, EdgeId, World, mbps, ms, secs};

use crate::story::resumed_after;

/// `kill -9` of the camera broker: the next start has a later epoch, and frames come within two seconds.
#[test]
fn a_killed_camera_broker_is_back_within_two_seconds() {
    let mut world = World::seeded(1);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).act(Action::KillCamera(dock)).run(secs(1));
    let start = world.now();
    world.act(Action::StartCamera(dock, Counter::Kept)).run(secs(5));
    assert!(resumed_after(&world, application, start) < ms(200));
    let epochs: Vec<u64> = world.deliveries(application).iter().map(|got| got.frame.epoch.0).collect();
    assert_eq!((epochs[0] + 1, epochs.is_sorted()), (*epochs.last().unwrap(), true));
}

/// `kill -9` of the edge broker, with everything in its memory.
#[test]
fn a_killed_edge_broker_is_back_within_two_seconds() {
    let mut world = World::seeded(2);
    let edge = EdgeId::default();
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    for down in [ms(100), secs(1), secs(20)] {
        world.run(secs(5)).act(Action::KillEdge(edge)).run(down);
        let start = world.now();
        world.act(Action::StartEdge(edge)).run(secs(5));
        let took = resumed_after(&world, application, start);
        assert!(took < secs(2), "after {down:?} it took {took:?}");
    }
}

/// A cut of five seconds that no end is told of. Frames come within two seconds, everything published
/// meanwhile is accounted for, and the reasons are those of a dead link.
#[test]
fn a_cut_of_five_seconds_is_over_within_two_and_accounted_for() {
    let mut world = World::seeded(3);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5)).cut(dock).run(secs(5));
    let end = world.now();
    world.restore(dock).run(secs(5));
    let took = resumed_after(&world, application, end);
    assert!(took < secs(2), "it took {took:?}");

    let first = world.deliveries_since(application, end)[0].clone();
    let lost = first.skipped;
    assert!(lost.total() >= 95, "only {lost:?} for five seconds");
    assert!(lost.of(SkipReason::LinkDown) >= 80, "{lost:?}");
    let by_link = [SkipReason::LinkDown, SkipReason::Stalled, SkipReason::LinkBusy, SkipReason::LateOrLost];
    assert_eq!(by_link.map(|reason| lost.of(reason)).iter().sum::<u64>(), lost.total(), "{lost:?}");
    assert_eq!(world.epoch(dock), Some(first.frame.epoch.0), "the epoch is that of the start");
}

/// A cut that is shorter than the camera's patience costs no connection.
#[test]
fn a_short_cut_keeps_the_connection() {
    let mut world = World::seeded(4);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).cut(dock).run(ms(300)).restore(dock);
    let end = world.now();
    world.run(secs(3));
    assert_eq!(world.camera_counts(dock).greetings, 1);
    assert!(resumed_after(&world, application, end) < secs(1));
}

/// Dials that were in progress while the path was dead all succeed when it is back. One of them is used.
#[test]
fn one_connection_is_taken_of_many_that_succeed_together() {
    for seed in 0..20 {
        let mut world = World::seeded(seed);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000).at_distance(ms(30)));
        world.application(ApplicationSpec::newest("dock/*"));
        world.run(secs(3)).cut(dock).run(secs(4)).restore(dock).run(secs(4));
        let counts = world.camera_counts(dock);
        assert!(counts.dials > 8, "{counts:?}");
        assert!(counts.greetings <= 3, "seed {seed}: {counts:?}");
    }
}

/// A connection that both sides know to be gone is replaced at once.
#[test]
fn a_broken_connection_is_replaced_at_once() {
    let mut world = World::seeded(5);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(5));
    let broken = world.now();
    world.act(Action::Break(dock)).run(secs(3));
    assert!(resumed_after(&world, application, broken) < ms(400));
}

/// A camera with few frames under a tight bound: after an outage, each frame has its time to arrive.
#[test]
fn a_camera_of_few_frames_gets_over_an_outage() {
    let mut world = World::seeded(6);
    let spec = CameraSpec { interval: secs(7), ..CameraSpec::frames(1, 30_000) };
    let dock = world.camera("dock/cam1", spec);
    let contract = Contract { latency_bound: Some(ms(50)), ..Contract::default() };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    world.run(secs(20));
    // The next frame is sent into the dead link. The connection survives.
    let next = world.deliveries(application).last().unwrap().published + secs(7) - ms(20);
    world.at(next, Action::Cut(dock)).at(next + ms(600), Action::Restore(dock)).run(secs(70));
    assert!(world.deliveries_since(application, next).len() >= 9);
}

/// A bound that the link cannot keep at all: frames come late, but they come.
#[test]
fn a_bound_out_of_reach_does_not_silence_a_slow_and_lossy_link() {
    let mut world = World::seeded(7);
    let mut spec = CameraSpec::frames(20, 150_000).at_rate(mbps(1));
    spec.link.lost_once_in = 30;
    world.camera("dock/cam1", spec);
    let contract = Contract { latency_bound: Some(ms(20)), ..Contract::default() };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    world.run(secs(60));
    let got = world.deliveries(application).len();
    assert!(got >= 20, "{got} frames of 1.2 s each came in a minute");
}
