//! Subscriptions that only look on.

use super::*;

/// A subscription that only looks on asks for small frames where no other wants
/// frames. Beside others, also those without a floor, it asks for nothing.
#[test]
fn a_subscription_that_looks_on_asks_nothing_beside_others() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let subscribe = |rig: &mut Rig, id, accuracy_floor, looks_on| {
        let contract = Contract { accuracy_floor, ..Contract::default() };
        let spec =
            SubscriptionSpec { contract, looks_on, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
        let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
        rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
    };
    let asked = |rig: &mut Rig| -> Vec<Option<f64>> {
        let demand = rig.messages(1).into_iter().rev().find_map(|message| match message {
            Message::Demand(demand) => Some(demand),
            _ => None,
        });
        let contracts = demand.expect("something else is asked for").contracts;
        contracts.iter().map(|contract| contract.accuracy_floor).collect()
    };
    subscribe(&mut rig, 1, Some(0.0), true);
    assert_eq!(asked(&mut rig), [Some(0.0)]);
    subscribe(&mut rig, 2, None, false);
    assert_eq!(asked(&mut rig), [None], "whoever wants frames as they were published gets them");
    subscribe(&mut rig, 3, Some(0.9), false);
    assert_eq!(asked(&mut rig), [Some(0.9), None]);
    for id in [2, 3] {
        rig.broker.handle_unsubscribe(SubscriptionId(id));
    }
    assert_eq!(asked(&mut rig), [Some(0.0)]);
}
