//! Tests of what a subscription is told of its own contract and of conflicting ones.

use super::*;
use crate::units::BitsPerSecond;
use crate::wire::FeasibilityReport;

const CAMERA: &str = "dock/cam1";

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn demand(id: u64, bound_ms: u64, floor: f64, priority: i32) -> NamedContract {
    let contract = Contract {
        latency_bound: Some(Duration::from_millis(bound_ms)),
        accuracy_floor: Some(floor),
        priority,
        ..Contract::default()
    };
    NamedContract { subscription: SubscriptionId(id), application: format!("app{id}"), contract }
}

/// What the application of each demand is told after a second without frames, given the camera's report.
fn told(
    demands: Vec<NamedContract>,
    negotiated: &[Option<negotiation::ContractOutcome>],
) -> Vec<(ContractState, String)> {
    let camera: CameraName = CAMERA.parse().expect("a valid name");
    let contracts = demands.clone();
    let view = CameraView {
        connected: true,
        feasibility: FeasibilityReport {
            link_rate: Some(BitsPerSecond(4e6)),
            ..FeasibilityReport::default()
        },
        frames_per_second: 15.0,
        demands,
        negotiated: negotiated.iter().map(|verdict| (*verdict, at(500))).collect(),
        ..CameraView::default()
    };
    let told = contracts.into_iter().map(|NamedContract { subscription, contract, .. }| {
        let mut watch = ContractWatch::new(subscription, contract, None);
        watch.handle_attach(at(0), camera.clone());
        watch.describe(at(2_000), &camera, &view)
    });
    told.collect()
}

/// The application whose contract is given up hears at once that it cannot be kept, and which contract
/// stands against it.
#[test]
fn the_loser_is_told_whose_contract_stands_against_its_own() {
    use negotiation::ContractOutcome::{Conflict, Infeasible as Hopeless, Kept, Outvoted};
    let demands =
        vec![demand(1, 50, 0.9, 2), demand(2, 200, 0.95, 0), demand(3, 100, 0.92, 0), demand(4, 1, 0.9, 0)];
    let outcomes = [Some(Kept), Some(Conflict { with: 0 }), Some(Outvoted), Some(Hopeless)];
    let told = told(demands, &outcomes);
    assert_eq!(told[0].0, ContractState::LatencyMiss, "it is kept, but no frame came: {}", told[0].1);
    let lost = &told[1..];
    assert!(lost.iter().all(|(state, _)| *state == ContractState::Infeasible), "{told:?}");
    let against = "; no rung keeps both this contract and subscription 1 (app1), which asks for the floor 0.9 within 50 ms with priority 2";
    assert!(told[1].1.ends_with(against), "{}", told[1].1);
    assert!(
        told[2].1.ends_with("; no rung keeps this contract together with the contracts that are kept"),
        "{}",
        told[2].1
    );
    assert!(!told[3].1.contains("subscription"), "nobody is to blame: {}", told[3].1);
}

/// Frames that are made for two contracts keep the stricter floor. If the other contract misses frames, its application is told why.
#[test]
fn who_misses_frames_beside_a_stricter_contract_is_told_which() {
    use negotiation::ContractOutcome::{Conflict, Kept};
    let demands = || vec![demand(1, 50, 0.9, 1), demand(2, 1_000, 0.95, 0)];
    let both = told(demands(), &[Some(Kept), Some(Kept)]);
    let because = "; frames are also encoded for subscription 2 (app2), which asks for the floor 0.95";
    assert!(both[0].0 == ContractState::LatencyMiss && both[0].1.ends_with(because), "{both:?}");
    assert!(!both[1].1.contains("subscription"), "{both:?}");
    let alone = told(demands(), &[Some(Kept), Some(Conflict { with: 0 })]);
    assert!(!alone[0].1.contains("subscription"), "{alone:?}");
}

/// If a camera does not say which contracts it keeps, the edge assumes that the strictest of the highest
/// priority count.
#[test]
fn a_camera_that_says_nothing_tries_for_the_strictest() {
    let told = told(vec![demand(1, 50, 0.9, 0), demand(2, 200, 0.95, 0)], &[]);
    assert!(told[0].1.ends_with("; subscription 2 (app2) asks for the floor 0.95"), "{told:?}");
    assert!(told[1].1.ends_with("; subscription 1 (app1) asks for a latency bound of 50 ms"), "{told:?}");
}
