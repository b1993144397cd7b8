//! Stories of one port, and properties that hold for any events.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

fn address(last: u8) -> Address {
    IpAddr::from([10, 0, 0, last]).into()
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn outputs(admission: &mut Admission) -> Vec<Dropped> {
    std::iter::from_fn(|| admission.poll_output()).collect()
}

/// A client that takes a hundred milliseconds for its handshake, while an attacker opens a connection every millisecond.
#[test]
fn a_thousand_of_one_address_hurt_nobody_of_another() {
    let mut admission = Admission::new(Limits::default());
    let attackers: Vec<Ticket> = (0..1000).map(|n| admission.handle_arrived(at(n), address(66))).collect();
    let dropped = outputs(&mut admission);
    // The oldest connections made room, and the newest kept their places.
    assert_eq!(dropped.len(), 1000 - STRANGERS_OF_ADDRESS_MAX);
    assert!(dropped.iter().zip(&attackers).all(|(dropped, ticket)| dropped.ticket == *ticket));

    let honest = admission.handle_arrived(at(1000), address(1));
    admission.handle_heard(honest);
    for n in 1000..1100 {
        admission.handle_arrived(at(n), address(66));
    }
    assert!(outputs(&mut admission).iter().all(|dropped| dropped.address == address(66)));
    admission.handle_authenticated(at(1100), honest);
    assert_eq!((admission.holds(honest), admission.prefaces()), (true, 1));
}

#[test]
fn a_client_behind_the_address_of_an_attacker_still_gets_in() {
    let mut admission = Admission::new(Limits::default());
    for n in 0..1000 {
        admission.handle_arrived(at(n), address(66));
    }
    let honest = admission.handle_arrived(at(1000), address(66));
    // The client keeps its place while fewer connections come after it than its address has places.
    for n in 0..STRANGERS_OF_ADDRESS_MAX as u64 - 1 {
        admission.handle_arrived(at(1000 + n), address(66));
    }
    assert!(admission.holds(honest));
    admission.handle_arrived(at(2000), address(66));
    assert!(!admission.holds(honest));
}

#[test]
fn many_addresses_with_one_connection_each_give_way_in_their_order() {
    let limits = Limits { strangers_max: 4, ..Limits::default() };
    let mut admission = Admission::new(limits);
    let tickets: Vec<Ticket> =
        (0..6).map(|n| admission.handle_arrived(at(u64::from(n)), address(n))).collect();
    let dropped: Vec<Ticket> = outputs(&mut admission).iter().map(|dropped| dropped.ticket).collect();
    assert_eq!(dropped, tickets[..2]);
    // An address that comes a second time then holds the most places, and gives way itself.
    admission.handle_arrived(at(7), address(5));
    assert_eq!(outputs(&mut admission)[0].ticket, tickets[5]);
}

#[test]
fn every_stage_ends_and_bytes_that_dribble_buy_no_time() {
    let mut admission = Admission::new(Limits::default());
    let silent = admission.handle_arrived(at(0), address(1));
    let slow = admission.handle_arrived(at(0), address(2));
    let half = admission.handle_arrived(at(0), address(3));
    admission.handle_heard(slow);
    admission.handle_authenticated(at(1000), half);
    for (now, ticket, text) in [
        (2000, silent, "it sent nothing within 2s"),
        (5000, slow, "it did not finish its handshake within 5s"),
        (6000, half, "it finished its handshake, but was not admitted within 5s"),
    ] {
        assert_eq!(admission.poll_timeout(), Some(at(now)));
        admission.handle_heard(slow);
        admission.handle_timeout(at(now - 1));
        assert_eq!(outputs(&mut admission), []);
        admission.handle_timeout(at(now));
        let dropped = outputs(&mut admission);
        assert_eq!((dropped.len(), dropped[0].ticket, dropped[0].to_string().as_str()), (1, ticket, text));
    }
    assert_eq!((admission.poll_timeout(), admission.strangers(), admission.prefaces()), (None, 0, 0));
}

#[test]
fn whoever_is_admitted_takes_no_place_and_is_never_dropped() {
    let mut admission = Admission::new(Limits::default());
    for n in 0..1000 {
        let ticket = admission.handle_arrived(at(n), address(1));
        admission.handle_heard(ticket);
        admission.handle_authenticated(at(n), ticket);
        admission.handle_left(ticket);
    }
    admission.handle_timeout(at(1_000_000));
    assert_eq!(outputs(&mut admission), []);
}

#[test]
fn without_file_descriptors_strangers_go_first() {
    let mut admission = Admission::new(Limits::default());
    assert!(!admission.handle_no_descriptor());
    let half = admission.handle_arrived(at(0), address(1));
    admission.handle_authenticated(at(0), half);
    let attacker = admission.handle_arrived(at(1), address(66));
    assert!(admission.handle_no_descriptor() && admission.handle_no_descriptor());
    let dropped: Vec<_> = outputs(&mut admission).iter().map(|d| (d.ticket, d.reason)).collect();
    assert_eq!(dropped, [(attacker, DropReason::NoDescriptor), (half, DropReason::NoDescriptor)]);
}

#[test]
fn few_file_descriptors_are_never_taken_by_strangers() {
    for descriptors in [16, 256, 1024, 4096, u64::MAX] {
        let limits = Limits::default().within(descriptors);
        let most = (limits.strangers_max + limits.prefaces_max) as u64;
        assert!(most <= (descriptors / DESCRIPTORS_PART).max(4), "{descriptors}: {limits:?}");
        assert!(limits.strangers_of_address_max >= 1 && limits.prefaces_of_address_max >= 1);
    }
    assert_eq!(Limits::default().within(4096), Limits::default());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u8),
    Hear(usize),
    Authenticate(usize),
    Leave(usize),
    NoDescriptor,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![Just(66), Just(66), Just(66), 0_u8..8].prop_map(Step::Arrive),
        2 => (0_usize..40).prop_map(Step::Hear),
        2 => (0_usize..40).prop_map(Step::Authenticate),
        1 => (0_usize..40).prop_map(Step::Leave),
        1 => Just(Step::NoDescriptor),
        1 => (0_u64..3000).prop_map(Step::Wait),
    ]
}

/// What a bystander knows of the waiting connections: address, phase, when they came and when they were authenticated.
type Known = BTreeMap<Ticket, (Address, Phase, u64, u64)>;

fn held(known: &Known, preface: bool) -> BTreeMap<Address, usize> {
    let mut held = BTreeMap::new();
    for (address, phase, ..) in known.values() {
        if (*phase == Phase::Preface) == preface {
            *held.entry(*address).or_default() += 1;
        }
    }
    held
}

const LIMITS: Limits = Limits {
    strangers_max: 12,
    strangers_of_address_max: 8,
    prefaces_max: 6,
    prefaces_of_address_max: 4,
    silence_time_max: SILENCE_TIME_MAX,
    handshake_time_max: HANDSHAKE_TIME_MAX,
    preface_time_max: PREFACE_TIME_MAX,
};

/// Rooms, and what a bystander knows of them.
struct Watched {
    admission: Admission,
    known: Known,
    now: u64,
}

impl Watched {
    /// Does a step. Returns the connection that entered a room in it.
    fn step(&mut self, step: Step) -> Result<Option<Ticket>, TestCaseError> {
        let Self { admission, known, now } = self;
        let nth = |index: usize| known.keys().nth(index).copied();
        match step {
            Step::Arrive(from) => {
                let ticket = admission.handle_arrived(at(*now), address(from));
                known.insert(ticket, (address(from), Phase::Silent, *now, 0));
                return Ok(Some(ticket));
            }
            Step::Hear(index) => {
                if let Some(ticket) = nth(index) {
                    admission.handle_heard(ticket);
                    let phase = &mut known.get_mut(&ticket).unwrap().1;
                    *phase = (*phase).max(Phase::Handshake);
                }
            }
            Step::Authenticate(index) => {
                if let Some(ticket) = nth(index) {
                    admission.handle_authenticated(at(*now), ticket);
                    let entry = known.get_mut(&ticket).unwrap();
                    if entry.1 != Phase::Preface {
                        (entry.1, entry.3) = (Phase::Preface, *now);
                        return Ok(Some(ticket));
                    }
                }
            }
            Step::Leave(index) => {
                if let Some(ticket) = nth(index) {
                    admission.handle_left(ticket);
                    known.remove(&ticket);
                }
            }
            Step::NoDescriptor => prop_assert_eq!(admission.handle_no_descriptor(), !known.is_empty()),
            Step::Wait(millis) => {
                *now += millis;
                admission.handle_timeout(at(*now));
            }
        }
        Ok(None)
    }

    /// A connection is dropped, while `came` entered a room.
    fn drops(&mut self, dropped: Dropped, came: Option<Ticket>) -> Result<(), TestCaseError> {
        let Self { known, now, .. } = self;
        let (from, phase, arrived, authenticated) = known[&dropped.ticket];
        prop_assert_eq!((from, phase), (dropped.address, dropped.phase));
        let preface = phase == Phase::Preface;
        match dropped.reason {
            DropReason::TooSlow(limit) => {
                let since = if preface { authenticated } else { arrived };
                prop_assert!(*now - since >= limit.as_millis() as u64);
            }
            DropReason::Crowded | DropReason::NoDescriptor => {
                prop_assert!(came != Some(dropped.ticket), "who comes gets a place");
                let held = held(known, preface);
                let share =
                    if preface { LIMITS.prefaces_of_address_max } else { LIMITS.strangers_of_address_max };
                let own_share_is_full =
                    came.is_some_and(|ticket| known[&ticket].0 == from) && held[&from] > share;
                prop_assert!(own_share_is_full || held[&from] == *held.values().max().unwrap());
                let older = known.iter().find(|(ticket, (address, phase, ..))| {
                    *address == from && (*phase == Phase::Preface) == preface && Some(**ticket) != came
                });
                prop_assert_eq!(*older.unwrap().0, dropped.ticket);
            }
        }
        known.remove(&dropped.ticket);
        Ok(())
    }

    /// The rooms are as the bystander expects, and within their bounds.
    fn check(&self) -> Result<(), TestCaseError> {
        let Self { admission, known, .. } = self;
        let (strangers, prefaces) = (held(known, false), held(known, true));
        prop_assert_eq!(admission.strangers(), strangers.values().sum::<usize>());
        prop_assert_eq!(admission.prefaces(), prefaces.values().sum::<usize>());
        prop_assert!(admission.strangers() <= LIMITS.strangers_max);
        prop_assert!(admission.prefaces() <= LIMITS.prefaces_max);
        prop_assert!(strangers.values().all(|held| *held <= LIMITS.strangers_of_address_max));
        prop_assert!(prefaces.values().all(|held| *held <= LIMITS.prefaces_of_address_max));
        for (ticket, (_, phase, arrived, authenticated)) in known {
            prop_assert!(admission.holds(*ticket));
            let until = match phase {
                Phase::Silent => arrived + 2000,
                Phase::Handshake => arrived + 5000,
                Phase::Preface => authenticated + 5000,
            };
            prop_assert_eq!(admission.due(*ticket), Some(at(until)));
        }
        let due = known.keys().filter_map(|ticket| admission.due(*ticket)).min();
        prop_assert_eq!(admission.poll_timeout(), due);
        Ok(())
    }
}

proptest! {
    /// For any events: the rooms keep their bounds, and only the oldest connection of an address that holds the
    /// most places makes room. Every connection that is too slow is dropped, no other is, and each is dropped once.
    #[test]
    fn rooms_are_bounded_and_fair(steps in proptest::collection::vec(step(), 1..400)) {
        let mut watched = Watched { admission: Admission::new(LIMITS), known: Known::new(), now: 0 };
        for step in steps {
            let came = watched.step(step)?;
            for dropped in outputs(&mut watched.admission) {
                watched.drops(dropped, came)?;
            }
            watched.check()?;
        }
    }
}
