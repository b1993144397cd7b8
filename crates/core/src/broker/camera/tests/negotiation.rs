//! Applications with different contracts on one camera.

use super::adapting::{Delivered, HASH, contract, rig, run, run_while, sized, still};
use super::*;
use crate::contract::negotiation::ContractOutcome;
use crate::wire::NegotiationResult;

/// The floor of the second rung, and a tight bound. At 9.6 Mbit/s a frame of that rung takes 28 ms, one of the third rung 61.
fn hasty() -> Contract {
    Contract { latency_bound: Some(50 * MS), ..contract(true) }
}

/// The floor of the third rung, and a wide bound.
fn patient(priority: i32) -> Contract {
    Contract { accuracy_floor: Some(0.95), latency_bound: Some(200 * MS), priority, ..contract(true) }
}

fn on_time(delivered: &[Delivered]) -> f64 {
    delivered.iter().filter(|frame| frame.latency <= 50 * MS).count() as f64 / delivered.len() as f64
}

/// What the edge was last told.
fn told(rig: &Rig) -> Vec<Option<ContractOutcome>> {
    told_of(rig).outcomes
}

fn told_of(rig: &Rig) -> NegotiationResult {
    let link = rig.broker.connections.active().expect("it is connected");
    rig.broker.negotiation.contracts.negotiated(link)
}

fn negotiated(rig: &mut Rig, seconds: u64, bytes_per_ms: f64) -> Vec<Delivered> {
    let mut delivered = run(rig, seconds, bytes_per_ms);
    delivered.split_off(delivered.len() / 2)
}

const SLOW: f64 = 1_200.0;
const FAST: f64 = 3_000.0;

/// No rung keeps all three contracts: as many as possible are kept, and all again once the link is faster.
#[test]
fn the_most_contracts_are_kept_and_the_others_are_taken_back() {
    let mut rig = rig(vec![hasty(), hasty(), patient(0)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let slow = negotiated(&mut rig, 6, SLOW);
    assert!(on_time(&slow) > 0.95, "{slow:?}");
    assert!(slow.iter().all(|frame| frame.rung == "jpeg/w640/q60/420" && !frame.infeasible), "{slow:?}");
    let kept = Some(ContractOutcome::Kept);
    assert_eq!(told(&rig), [kept, kept, Some(ContractOutcome::Conflict { with: 0 })]);
    let fast = negotiated(&mut rig, 8, FAST);
    assert!(on_time(&fast) > 0.95, "{fast:?}");
    assert!(fast.iter().all(|frame| frame.expected_accuracy >= Some(0.95)), "{fast:?}");
    assert_eq!(told(&rig), [kept; 3]);
}

/// A contract of a higher priority goes before any number of others. These get what it leaves, and are told so.
#[test]
fn priority_goes_before_number_on_the_link() {
    let mut rig = rig(vec![patient(1), hasty(), hasty()]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let slow = negotiated(&mut rig, 6, SLOW);
    assert!(slow.iter().all(|frame| frame.rung == "jpeg/w1280/q70/420" && !frame.infeasible), "{slow:?}");
    let against = Some(ContractOutcome::Conflict { with: 0 });
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept), against, against]);
}

/// A contract of a lower priority is kept wherever that costs those above it nothing.
#[test]
fn a_contract_of_a_lower_priority_is_kept_where_that_is_possible() {
    let strict = Contract { accuracy_floor: Some(0.95), priority: -1, ..hasty() };
    let mut rig = rig(vec![hasty(), strict]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let fast = negotiated(&mut rig, 6, FAST);
    assert!(fast.iter().all(|frame| frame.expected_accuracy >= Some(0.95)), "{fast:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept); 2]);
    // A contract that no rung keeps on a slow link is given up, and counts as in conflict with none.
    let slow = negotiated(&mut rig, 6, SLOW);
    assert!(on_time(&slow) > 0.95, "{slow:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept), Some(ContractOutcome::Infeasible)]);
}

/// Before the link is known, a contract of lower priority is not served: the first keyframes would
/// be made for its floor. It is served once the frames of the first contract have come in time.
#[test]
fn a_contract_of_lower_priority_waits_until_the_frames_of_the_first_come_in_time() {
    let mut rig = rig(vec![Contract { priority: 1, ..hasty() }, patient(0)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    for _ in 0..6 {
        run_while(&mut rig, 300 * MS, FAST, |_, _| ());
        assert_ne!(told(&rig).get(1), Some(&Some(ContractOutcome::Kept)), "{:?}", rig.now);
    }
    negotiated(&mut rig, 4, FAST);
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept); 2]);
}

/// A link keeps the first contract for most of its frames only. A contract of lower priority is not served, because
/// its large frames would make all frames of the first late. Its application is told which contract it conflicts with.
#[test]
fn a_contract_of_lower_priority_takes_nothing_from_a_marginal_one() {
    let first = Contract { latency_bound: Some(34 * MS), priority: 1, ..contract(true) };
    let second = Contract { latency_bound: Some(1_000 * MS), ..patient(0) };
    // In one fifth of the time, a frame of the first contract's rung takes 48 ms.
    let in_time = |contracts: Vec<Contract>| {
        let mut rig = rig(contracts);
        rig.broker.handle_profile(rig.now, HASH, Some(sized()));
        let (mut in_time, mut told_of_it) = (0, Vec::new());
        for step in 0..100 {
            let rate = if step % 5 == 4 { 500.0 } else { SLOW };
            let delivered = run_while(&mut rig, 200 * MS, rate, |_, _| ());
            in_time += delivered.iter().filter(|frame| frame.latency <= 34 * MS).count();
            told_of_it.push(told(&rig));
        }
        (in_time, told_of_it)
    };
    let (alone, _) = in_time(vec![first.clone()]);
    let (beside, told) = in_time(vec![first.clone(), second]);
    assert!(alone > 50, "{alone} frames in time");
    assert!(beside * 100 >= alone * 95, "{beside} of the {alone} frames that it has alone");
    let against = Some(ContractOutcome::Conflict { with: 0 });
    assert!(told.iter().any(|told| *told == [Some(ContractOutcome::Kept), against]), "{told:?}");
}

/// A contract that needs more frames a second than a rung sends does not keep others from that
/// rung, as long as no rung with more frames is in time. Once one is, both contracts are kept.
#[test]
fn who_needs_more_frames_does_not_keep_others_from_fewer() {
    let seldom = "jpeg/w640/q60/420/skip1";
    let profile = Profile::new(vec![still(seldom, 15e3, 0.92), still("jpeg/w1280/q70/420", 60e3, 0.96)]);
    let profile = SizedProfile { profile: profile.expect("a valid profile"), ..sized() };
    let often = Contract { min_fps: 12.0, ..contract(true) };
    let mut rig = rig(vec![often, contract(true)]);
    rig.broker.handle_profile(rig.now, HASH, Some(profile));
    let slow = negotiated(&mut rig, 8, 500.0);
    assert!(slow.iter().all(|frame| frame.rung == seldom && !frame.infeasible), "{slow:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Infeasible), Some(ContractOutcome::Kept)]);
    let fast = negotiated(&mut rig, 8, 8_000.0);
    assert!(fast.iter().all(|frame| frame.rung == "jpeg/w1280/q70/420" && !frame.infeasible), "{fast:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept); 2]);
}

/// A contract that no rung keeps does not affect those that can be kept.
#[test]
fn what_nobody_could_keep_costs_the_others_nothing() {
    let hopeless = Contract { latency_bound: Some(4 * MS), ..contract(true) };
    let mut rig = rig(vec![hopeless, hasty()]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    let slow = negotiated(&mut rig, 6, SLOW);
    assert!(on_time(&slow) > 0.95 && slow.iter().all(|frame| !frame.infeasible), "{slow:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Infeasible), Some(ContractOutcome::Kept)]);
}

/// If two applications have different profiles, each floor counts by its own profile.
#[test]
fn a_floor_counts_by_its_own_profile() {
    const OTHER: [u8; 32] = [8; 32];
    let mut rungs = sized().profile.rungs().to_vec();
    // To this application the second rung is worth little.
    rungs.iter_mut().find(|rung| rung.rung.as_str() == "jpeg/w640/q60/420").expect("it has one").accuracy =
        0.87;
    let other = Profile::new(rungs).expect("a valid profile");
    let other = SizedProfile { profile: other, ..sized() };
    let second = Contract { accuracy_floor: Some(0.89), profile: Some(OTHER), ..hasty() };
    let mut rig = rig(vec![hasty(), second]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    rig.broker.handle_profile(rig.now, OTHER, Some(other));
    let fast = negotiated(&mut rig, 6, FAST);
    assert!(fast.iter().all(|frame| frame.expected_accuracy >= Some(0.95)), "{fast:?}");
    assert_eq!(told(&rig), [Some(ContractOutcome::Kept); 2]);
    let slow = negotiated(&mut rig, 6, SLOW);
    assert!(slow.iter().all(|frame| frame.rung != "jpeg/w1280/q70/420"), "{slow:?}");
    assert_eq!(told(&rig).iter().filter(|verdict| **verdict == Some(ContractOutcome::Kept)).count(), 1);
}

/// The edge is told when the kept contracts change, and with every status. It is told nothing if there is nothing to negotiate.
#[test]
fn the_edge_is_told_whose_contracts_are_kept() {
    let said = |contracts: Vec<Contract>| {
        let mut rig = rig(contracts);
        rig.broker.handle_profile(rig.now, HASH, Some(sized()));
        run(&mut rig, 4, SLOW);
        rig.now += 2_000 * MS;
        rig.broker.handle_timeout(rig.now);
        let said = rig.take().into_iter().filter_map(|output| match output {
            CameraOutput::Send { message: Message::NegotiationResult(negotiated), .. } => Some(negotiated),
            _ => None,
        });
        said.last()
    };
    assert_eq!(said(vec![contract(true), Contract { priority: 1, ..contract(true) }]), None);
    let negotiated = said(vec![hasty(), hasty(), patient(0)]).expect("they cannot all be kept");
    assert_eq!((negotiated.revision, negotiated.outcomes.len()), (1, 3));
}

/// Results are told by the revision of a demand. So a second demand of the same revision is ignored.
#[test]
fn a_second_demand_of_one_revision_is_ignored() {
    let mut rig = rig(vec![hasty(), patient(0)]);
    rig.broker.handle_profile(rig.now, HASH, Some(sized()));
    negotiated(&mut rig, 6, SLOW);
    let (before, revision) = (told(&rig), told_of(&rig).revision);
    assert_eq!(before.len(), 2);
    rig.demand(1, revision, vec![hasty(), patient(0), hasty()]);
    negotiated(&mut rig, 2, SLOW);
    assert_eq!(told(&rig), before);
    rig.demand(1, revision + 1, vec![hasty(), patient(0), hasty()]);
    negotiated(&mut rig, 2, SLOW);
    assert_eq!(told(&rig).len(), 3);
}
