//! Floods of connections at an edge's door, as stories on a virtual clock, and planted bugs of the door that the rules must detect.

mod story;

use mez_core::admission::STRANGERS_OF_ADDRESS_MAX;
use mez_testbed::{
    ApplicationSpec, AttackSpec, Bug, CameraSpec, Conduct, EdgeId, Failure, Moment, VisitorSpec, World, ms,
    noticed, secs,
};

use self::story::resumed_after;

/// The address of the first camera.
const OF_CAMERA: u8 = 1;
const ATTACKER: u8 = 66;

fn attack(address: u8, conduct: Conduct) -> AttackSpec {
    AttackSpec { edge: EdgeId::default(), address, conduct, interval: ms(1), connections: 10_000 }
}

fn visitor(address: u8) -> VisitorSpec {
    VisitorSpec { edge: EdgeId::default(), address, round_trip_time: ms(10), interval: ms(200) }
}

/// A thousand connections a second for ten seconds, from another address or the camera's own. A camera that starts meanwhile connects as soon as
/// without them, and honest clients are admitted.
#[test]
fn a_flood_keeps_out_neither_cameras_nor_clients() {
    for conduct in [Conduct::Idle, Conduct::Dribble, Conduct::HalfPreface] {
        for address in [ATTACKER, OF_CAMERA] {
            let mut world = World::seeded(1);
            world.attack(Moment::START, attack(address, conduct));
            let (apart, beside) = (world.visitor(visitor(99)), world.visitor(visitor(address)));
            world.run(secs(3));
            let start = world.now();
            world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
            let application = world.application(ApplicationSpec::newest("dock/*"));
            world.run(secs(5));
            assert!(resumed_after(&world, application, start) < ms(200), "{conduct:?} from {address}");
            // Clients from other addresses are never turned away.
            let ((admitted, turned_away), (beside, _)) = (world.visits(apart), world.visits(beside));
            assert!(admitted > 25 && turned_away == 0, "{admitted} times in, {turned_away} times not");
            assert!(beside > 20, "{beside} times in");
        }
    }
}

/// A client keeps its place even if its handshake takes longer than attackers need to fill the share of an address many times.
#[test]
fn a_slow_client_of_another_address_keeps_its_place() {
    let mut world = World::seeded(2);
    world.attack(Moment::START, AttackSpec { connections: 5_000, ..attack(ATTACKER, Conduct::Idle) });
    let round_trip_time = ms(STRANGERS_OF_ADDRESS_MAX as u64);
    let far = world.visitor(VisitorSpec { round_trip_time, ..visitor(99) });
    world.run(secs(9));
    let (admitted, turned_away) = world.visits(far);
    assert!(admitted > 8 && turned_away == 0, "{admitted} times in, {turned_away} times not");
}

fn run(bug: Option<Bug>) -> Result<(), Box<Failure>> {
    let mut world = World::seeded(3);
    if let Some(bug) = bug {
        world.plant(bug);
        // The door is created with the edge's process.
        world.restart_edge(EdgeId::default());
    }
    world.camera("dock/cam1", CameraSpec::frames(20, 30_000));
    world.application(ApplicationSpec::newest("dock/*"));
    // From three addresses, each faster than an honest handshake could fill the share of its address.
    for address in [ATTACKER, ATTACKER + 1, ATTACKER + 2] {
        let interval = std::time::Duration::from_micros(400);
        let spec = AttackSpec { interval, connections: 20_000, ..attack(address, Conduct::Dribble) };
        world.attack(Moment::START + secs(1), spec);
    }
    world.visitor(VisitorSpec { round_trip_time: ms(25), ..visitor(99) });
    world.try_run(secs(8))
}

fn assert_noticed(bug: Bug, rule: &str) {
    noticed(bug, run(Some(bug)).err(), rule);
}

#[test]
fn nothing_is_noticed_at_a_door_where_nothing_is_planted() {
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
}

#[test]
fn a_full_door_that_stays_shut_is_noticed() {
    assert_noticed(Bug::NobodyMakesRoom, "admitted");
}

#[test]
fn a_door_that_does_not_tell_addresses_apart_is_noticed() {
    assert_noticed(Bug::AddressesMixedUp, "admitted");
}

#[test]
fn connections_that_are_dropped_and_not_closed_are_noticed() {
    assert_noticed(Bug::DroppedKept, "memory");
}
