//! Stories of thieves: hosts with a camera's valid keys. Whatever they claim, the camera's frames flow again once they are gone.

mod story;

use mez_core::broker::{EPOCH_BASE, EPOCH_JUMP_MAX, EPOCH_MAX, NUMBER_MAX};
use mez_testbed::{
    Action, ApplicationSpec, CameraSpec, Counter, DiskSpec, EdgeId, EdgeSpec, HostClock, World, ms, secs,
};

use self::story::{resumed_after, sequences};

/// The highest epoch that an edge accepts of a camera that it does not know, or whose epochs come from the camera alone.
const HIGHEST: u64 = EPOCH_BASE.0 + EPOCH_JUMP_MAX;

const SAME_CLOCK: Option<HostClock> =
    Some(HostClock { origin_nanos: 1_000_000_000, drift_ppb: 0, wall_nanos: 1_700_000_000_000_000_000 });

/// One claim near the end of all numbers used to keep the camera out for good. Now it changes nothing.
#[test]
fn an_absurd_claim_disturbs_nobody() {
    let run = |claims: &[u64]| {
        let mut world = World::seeded(60);
        let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
        let application = world.application(ApplicationSpec::newest("dock/*"));
        let thief = world.thief(dock);
        world.run(secs(3));
        for claim in claims {
            world.act(Action::Claim(thief, *claim)).run(secs(2)).act(Action::Leave(thief));
            assert_eq!(world.camera_counts(thief).sent, 0);
        }
        world.run(secs(12 - 2 * claims.len() as u64));
        assert_eq!(world.epoch(dock), Some(4));
        sequences(world.deliveries(application))
    };
    assert_eq!(run(&[NUMBER_MAX - 1, NUMBER_MAX, EPOCH_MAX.0 + 1, EPOCH_MAX.0]), run(&[]));
}

/// A thief that knows the bound holds the name as long as it stays. Then the camera continues above the
/// bound, without help, and the thief's frames are of another epoch.
#[test]
fn after_the_highest_claim_the_camera_goes_on_by_itself() {
    let mut world = World::seeded(61);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    let thief = world.thief(dock);
    world.run(secs(3)).act(Action::Claim(thief, HIGHEST)).run(secs(3));
    assert!(world.is_up(thief) && !world.is_up(dock));
    assert!(world.deliveries(application).iter().any(|got| got.frame.epoch.0 == HIGHEST));
    let left = world.now();
    world.act(Action::Leave(thief)).run(secs(12));
    assert_eq!(world.epoch(dock), Some(HIGHEST + 1));
    // The camera waits five seconds after it was told that another start is connected.
    assert!(resumed_after(&world, application, left + ms(100)) < secs(6));
    let last = world.deliveries(application).last().unwrap();
    assert!(last.frame.epoch.0 == HIGHEST + 1 && last.published + ms(200) > world.now());
}

/// Thief and camera dial in turn, each with an epoch above the other's.
#[test]
fn a_thief_that_comes_again_and_again_never_wins_for_good() {
    let mut world = World::seeded(62);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    let thief = world.thief(dock);
    world.run(secs(3));
    for visit in 0..6 {
        let claim = HIGHEST + visit * (EPOCH_JUMP_MAX + 1);
        world.act(Action::Claim(thief, claim)).run(secs(2));
        assert!(world.is_up(thief), "visit {visit}");
        world.act(Action::Leave(thief)).run(secs(8));
        assert_eq!((world.is_up(dock), world.epoch(dock)), (true, Some(claim + 1)), "visit {visit}");
    }
    let epochs: Vec<u64> = world.deliveries(application).iter().map(|got| got.frame.epoch.0).collect();
    assert!(epochs.is_sorted());
}

/// A thief has raised the camera's epoch far at another edge. An edge that does not know this accepts the camera after a few attempts.
#[test]
fn a_camera_that_was_brought_far_elsewhere_gets_in_by_itself() {
    let mut world = World::seeded(63);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).act(Action::KillCamera(dock));
    world.set_persisted_epoch(dock, HIGHEST + 4 * EPOCH_JUMP_MAX);
    world.restart_edge(EdgeId::default());
    let start = world.now();
    world.act(Action::StartCamera(dock, Counter::Kept)).run(secs(5));
    assert!(resumed_after(&world, application, start) < secs(2));
}

/// A state without epoch bounds holds an epoch that no start can follow. Only a reset helps.
#[test]
fn a_reset_cures_what_no_camera_reaches() {
    let mut world = World::seeded(64);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(3)).act(Action::Poison(dock)).run(secs(20));
    assert!(!world.is_up(dock));
    let own = world.epoch(dock);
    let reset = world.now();
    world.act(Action::Reset(dock)).run(secs(8));
    assert!(world.is_up(dock));
    assert_eq!(world.epoch(dock), own, "with its own numbers");
    assert!(resumed_after(&world, application, reset) < secs(6));
}

/// A reset of a healthy camera costs one reconnection, and frames continue in order.
#[test]
fn a_reset_without_need_costs_a_reconnection() {
    let mut world = World::seeded(65);
    let dock = world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    let application = world.application(ApplicationSpec::every("dock/*"));
    world.run(secs(3));
    let (reset, own) = (world.now(), world.epoch(dock));
    world.act(Action::Reset(dock)).run(secs(3));
    assert_eq!(world.epoch(dock), own);
    assert!(resumed_after(&world, application, reset) < secs(1));
    assert!(sequences(world.deliveries(application)).is_sorted());
}

/// The edge was down while the camera had a start with the thief's epoch. The edge keeps the thief's frames, the camera its own. A reading that asks
/// both gets one frame of each id, in order. Live frames are only the camera's.
#[test]
fn a_start_that_no_edge_heard_of_may_have_the_epoch_of_a_thief() {
    let disk = Some(DiskSpec::default());
    let edge = EdgeSpec { disk: disk.clone(), clock: SAME_CLOCK, ..EdgeSpec::default() };
    let mut world = World::seeded_with(66, edge);
    let dock =
        world.camera("dock/cam1", CameraSpec { disk, clock: SAME_CLOCK, ..CameraSpec::frames(20, 10_000) });
    world.application(ApplicationSpec::newest("dock/*"));
    let thief = world.thief(dock);
    world.run(secs(3)).act(Action::KillCamera(dock)).act(Action::Claim(thief, 5)).run(secs(2));
    let at_edge = world.camera_counts(thief).sent;
    assert!(at_edge > 20, "{at_edge}");
    world.act(Action::Leave(thief)).act(Action::KillEdge(EdgeId::FIRST));
    world.act(Action::StartCamera(dock, Counter::Kept)).run(secs(4));
    assert_eq!(world.epoch(dock), Some(5));
    world.restart_camera(dock, Counter::Kept).act(Action::StartEdge(EdgeId::FIRST)).run(secs(20));
    assert_eq!((world.is_up(dock), world.epoch(dock)), (true, Some(6)));
    let past = world.application(ApplicationSpec::read("dock/*", secs(30), secs(1)));
    world.run(secs(60));
    assert!(world.has_ended(past));
    let shared = world.deliveries(past).iter().filter(|got| got.frame.epoch.0 == 5).count() as u64;
    assert!(shared > at_edge, "{shared} frames of epoch 5, {at_edge} of them the thief's");
}

/// A camera that was told that its epoch is taken knows that its frames of this epoch have ids of other frames, and sends none of them.
#[test]
fn what_a_camera_knows_to_be_named_twice_it_keeps_back() {
    let mut world = World::seeded_with(67, EdgeSpec { clock: SAME_CLOCK, ..EdgeSpec::default() });
    let dock = world.camera("dock/cam1", CameraSpec { clock: SAME_CLOCK, ..CameraSpec::frames(20, 10_000) });
    world.run(secs(3));
    world.application(ApplicationSpec::newest("dock/*"));
    world.run(secs(1)).act(Action::KillCamera(dock)).cut(dock);
    world.act(Action::StartCamera(dock, Counter::LastWriteLost)).run(secs(2)).restore(dock).run(secs(8));
    assert_eq!(world.epoch(dock), Some(5), "the edge knows the fourth");
    let past = world.application(ApplicationSpec::read("dock/*", secs(20), secs(1)));
    world.run(secs(20));
    assert!(world.has_ended(past));
    let first = world.deliveries(past).iter().find(|got| got.frame.epoch.0 == 4).expect("the edge has some");
    assert!(first.frame.sequence.0 >= 55, "{:?} is of the start that came too late", first.frame);
}

/// Frames that the camera published while a thief had its name are not lost: the edge had accepted the camera with this epoch, so no other start has
/// used its numbers. An application that was away and fills gets all of them, though the camera has continued with a later epoch.
#[test]
fn who_fills_gets_what_the_camera_published_beside_a_thief() {
    let mut world = World::seeded(66);
    let spec = CameraSpec { log_bytes_max: 64 << 20, ..CameraSpec::frames(20, 10_000) };
    let dock = world.camera("dock/cam1", spec);
    let application = world.application(ApplicationSpec::filling("dock/*"));
    let thief = world.thief(dock);
    let own = world.run(secs(3)).epoch(dock).unwrap();
    world.act(Action::Unsubscribe(application)).run(secs(1));
    world.act(Action::Claim(thief, 20)).run(secs(3)).act(Action::Leave(thief)).run(secs(12));
    assert_eq!(world.epoch(dock), Some(21));
    world.act(Action::Subscribe(application)).run(secs(15));
    let got: Vec<_> = world.deliveries(application).iter().map(|got| got.frame).collect();
    assert!(
        got.windows(2).all(|pair| pair[0].epoch != pair[1].epoch || pair[0].next() == pair[1]),
        "{got:?}"
    );
    let of = |epoch| got.iter().filter(|frame| frame.epoch.0 == epoch).count();
    // Three seconds before, one in between, and at least three beside the thief.
    assert!(of(own) >= 140 && of(20) == 0 && of(21) > 100, "{} {} {}", of(own), of(20), of(21));
}
