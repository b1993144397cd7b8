//! The identity of cameras, over starts and lost counters.

use mez_testbed::{Action, ApplicationSpec, CameraSpec, Counter, World, ms, secs};

use crate::story::{resumed_after, sequences};

/// A later start of the same camera, for example on another host, replaces the connected one. The old start stays out.
#[test]
fn a_later_start_takes_over_at_once() {
    let mut world = World::seeded(19);
    let old = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3));
    let newer = world.rival(old, None);
    world.set_persisted_epoch(newer, world.persisted_epoch(old) + 10);
    let start = world.now();
    world.act(Action::StartCamera(newer, Counter::Kept)).run(ms(500));
    assert!(resumed_after(&world, application, start + ms(100)) < ms(200));
    world.run(secs(20));
    assert!(world.is_up(newer) && !world.is_up(old));
    let last = world.deliveries(application).last().unwrap();
    assert_eq!(Some(last.frame.epoch.0), world.epoch(newer));
    assert!(last.published + ms(200) > world.now());
}

/// An old start that still runs and dials disturbs nothing.
#[test]
fn an_old_start_disturbs_nobody() {
    let run = |old_start: bool| {
        let mut world = World::seeded(20);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let application = world.application(ApplicationSpec::newest("dock/*"));
        let old = world.rival(dock, None);
        world.run(secs(3));
        if old_start {
            world.act(Action::StartCamera(old, Counter::Kept));
        }
        world.run(secs(20));
        assert!(world.is_up(dock) && !world.is_up(old));
        (sequences(world.deliveries(application)), world.camera_counts(old).greetings)
    };
    let ((with, greetings), (without, _)) = (run(true), run(false));
    assert!((2..=6).contains(&greetings), "{greetings} greetings in 20 s");
    assert_eq!(with, without);
}

/// Another identity, though its certificate is for the name, is refused while the camera holds the name.
#[test]
fn another_identity_does_not_get_a_held_name() {
    let mut world = World::seeded(21);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    let other = world.rival(dock, Some("spiffe://world/camera/other"));
    world.set_persisted_epoch(other, 1_000);
    world.run(secs(3)).act(Action::StartCamera(other, Counter::Kept)).run(secs(20));
    assert!(world.is_up(dock) && !world.is_up(other));
    assert_eq!(world.camera_counts(other).sent, 0);
    assert!(world.deliveries(application).len() > 450);
    assert_eq!(world.camera_info(dock).unwrap().identity, "spiffe://world/camera/dock/cam1");
}

/// A start that has lost the last write of its counter comes with a used epoch. It takes another one, and its frames are never taken for those of the
/// previous start, even while the previous connection counts as alive.
#[test]
fn a_used_epoch_is_not_used_again() {
    for seed in [22, 23] {
        let mut world = World::seeded(seed);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let application = world.application(ApplicationSpec::newest("dock/*"));
        world.run(secs(3));
        let before = world.epoch(dock).unwrap();
        let killed = world.now();
        world.restart_camera(dock, Counter::LastWriteLost).run(secs(4));
        assert!(resumed_after(&world, application, killed + ms(50)) < secs(2));
        assert_eq!((world.epoch(dock), world.persisted_epoch(dock)), (Some(before + 1), before + 1));
    }
}

/// A start that was cut off for long may have published more frames than the previous one. The edge's
/// newest frame then looks like its own, but the used epoch is not used again.
#[test]
fn a_used_epoch_is_not_used_again_by_who_has_come_further() {
    let mut world = World::seeded(25);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 10_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(1)).act(Action::KillCamera(dock)).cut(dock);
    world.act(Action::StartCamera(dock, Counter::LastWriteLost)).run(secs(3));
    let restored = world.now();
    world.restore(dock).run(secs(6));
    assert_eq!(world.epoch(dock), Some(5));
    assert!(resumed_after(&world, application, restored) < secs(3));
    let of_fourth = world.deliveries(application).iter().filter(|got| got.frame.epoch.0 == 4);
    assert!(of_fourth.map(|got| got.frame.sequence.0).max() < Some(21), "frames of two starts");
}

/// A counter that is lost completely: the edge corrects the epoch once the old connection is given up.
#[test]
fn a_lost_counter_is_mended_by_the_edge() {
    let mut world = World::seeded(24);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3));
    let before = world.epoch(dock).unwrap();
    world.restart_camera(dock, Counter::Lost).run(secs(20));
    assert_eq!(world.epoch(dock), Some(before + 1));
    assert!(world.deliveries(application).last().unwrap().published + ms(200) > world.now());
}
