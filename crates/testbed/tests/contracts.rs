//! What applications are told about their contracts, as stories on a virtual clock. Every rule of `mez_testbed::check` is checked at every event.

use std::time::Duration;

use mez_core::contract::{Contract, ContractState, OnInfeasible};
use mez_core::frame::{Rung, SkipReason};
use mez_core::profile::{ByteSizes, Profile, RungProfile, SizedProfile};

use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, CameraId, CameraSpec, Footage, Library, Moment, World, mbps, ms,
    secs,
};

/// Frames of 60 kB at 15 fps. A profile's rungs reduce them to 20 kB above the floor of 0.9, and to 5 kB below it.
fn contracted(world: &mut World, on_infeasible: OnInfeasible) -> (CameraId, ApplicationSpec) {
    let rung = |name: &str, bytes: f64, accuracy: f64, ms: u64| RungProfile {
        rung: Rung::new(name).expect("a valid rung"),
        bytes: ByteSizes::around(bytes, 0.05),
        accuracy,
        camera_time: Duration::from_millis(ms),
        detector_time: None,
    };
    let rungs = vec![
        rung("jpeg/w16/q50/420", 5e3, 0.7, 8),
        rung("jpeg/w32/q60/420", 20e3, 0.92, 8),
        rung("original", 60e3, 1.0, 0),
    ];
    let profile = SizedProfile {
        size: (64, 48),
        interval: None,
        profile: Profile::new(rungs).expect("a sound profile"),
    };
    let hash = world.profile(profile);
    let contract = Contract {
        latency_bound: Some(ms(100)),
        accuracy_floor: Some(0.9),
        profile: Some(hash),
        on_time_share: 0.9,
        on_infeasible,
        ..Contract::default()
    };
    // Encoding takes the eight milliseconds that the profile states.
    let spec = CameraSpec { codec_slowness: 8, ..CameraSpec::frames(15, 60_000).at_rate(mbps(20)) };
    let camera = world.camera("dock/cam1", spec);
    (camera, ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") })
}

/// When after `from` an application was first told of a state, and the reason.
fn told(
    world: &World,
    application: ApplicationId,
    state: ContractState,
    from: Moment,
) -> Option<(Duration, String)> {
    let changes = world.contract_changes(application).iter();
    let first = changes.filter(|told| told.at >= from).find(|told| told.change.state == state)?;
    Some((first.at.since(from), first.change.reason.clone()))
}

/// A contract is kept, then the link becomes too slow for the floor, then recovers. The application is told each change in time, with the reason.
#[test]
fn a_contract_says_within_a_second_when_it_breaks_and_when_it_holds_again() {
    let mut world = World::seeded(40);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Degrade);
    let application = world.application(spec);
    world.run(secs(5));
    assert!(told(&world, application, ContractState::Ok, Moment::START).is_some());
    let settled = world.deliveries(application).last().unwrap().clone();
    assert!(settled.verdict.unwrap().expected_accuracy >= Some(0.9));

    let slow = world.now();
    world.act(Action::Rate(dock, mbps(1))).run(secs(6));
    let (after, reason) = told(&world, application, ContractState::Infeasible, slow).expect("it is told");
    assert!(after < secs(1), "told after {after:?}");
    assert!(reason.contains("the floor 0.9 needs"), "{reason}");
    let got = world.deliveries_since(application, slow + secs(2));
    assert!(got.len() > 5, "degrade sends what fits");
    assert!(got.iter().all(|frame| frame.verdict.as_ref().is_some_and(|verdict| verdict.infeasible)));

    let fast = world.now();
    world.act(Action::Rate(dock, mbps(20))).run(secs(6));
    let (after, _) = told(&world, application, ContractState::Ok, fast).expect("it is told");
    assert!(after < secs(3), "told after {after:?}");
}

/// With `skip`, frames below the bounds do not come and are counted under their own reason. Meanwhile the state says so.
#[test]
fn who_wants_nothing_below_the_bounds_gets_nothing_and_is_told() {
    let mut world = World::seeded(41);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Skip);
    let application = world.application(spec);
    world.run(secs(4));
    let slow = world.now();
    world.act(Action::Rate(dock, mbps(1))).run(secs(8));
    let (after, _) = told(&world, application, ContractState::Infeasible, slow).expect("it is told");
    assert!(after <= secs(1), "told after {after:?}");
    assert!(world.deliveries_since(application, slow + secs(2)).is_empty());
    let fast = world.now();
    world.act(Action::Rate(dock, mbps(20))).run(secs(6));
    assert!(told(&world, application, ContractState::Ok, fast).is_some());
    let skipped: u64 =
        world.deliveries(application).iter().map(|got| got.skipped.of(SkipReason::Infeasible)).sum();
    assert!(skipped > 60, "{skipped} skipped as infeasible");
}

/// An application cannot take withheld frames, so it does not count as late when frames come again.
#[test]
fn who_is_given_nothing_below_the_bounds_is_not_called_late() {
    let mut world = World::seeded(53);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Skip);
    let library = Some(Library { way: ms(0), takes_after: ms(1) });
    let application = world.application(ApplicationSpec { library, ..spec });
    world.run(secs(4));
    world.act(Action::Rate(dock, mbps(1))).run(secs(8));
    let fast = world.now();
    world.act(Action::Rate(dock, mbps(20))).run(secs(6));
    assert!(told(&world, application, ContractState::Ok, fast).is_some());
    let late = told(&world, application, ContractState::ApplicationLate, Moment::START);
    let with_frames = world.deliveries(application).iter().filter_map(|got| got.verdict.as_ref());
    let said = with_frames.filter(|said| said.state == ContractState::ApplicationLate).count();
    assert!(late.is_none() && said == 0, "{late:?}; with {said} frames");
}

/// With `stop`, the subscription ends when the bounds cannot both be kept, and states why.
#[test]
fn who_wants_it_all_or_nothing_is_ended() {
    let mut world = World::seeded(42);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Stop);
    let application = world.application(spec);
    world.run(secs(4));
    assert!(!world.has_ended(application), "{:?}", world.contract_changes(application));
    world.act(Action::Rate(dock, mbps(1))).run(secs(4));
    assert!(world.has_ended(application));
    let last = world.contract_changes(application).last().unwrap();
    assert_eq!((last.change.state, last.change.ends), (ContractState::Infeasible, true));
}

/// A camera that is cut off breaks a contract by its silence alone.
#[test]
fn silence_breaks_a_contract() {
    let mut world = World::seeded(43);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Degrade);
    let application = world.application(spec);
    world.run(secs(4));
    let cut = world.now();
    world.act(Action::Cut(dock)).run(secs(4));
    let (after, reason) = told(&world, application, ContractState::LatencyMiss, cut).expect("it is told");
    assert!(after < ms(700), "told after {after:?}");
    assert!(reason.contains("no frame"), "{reason}");
    let (after, reason) = told(&world, application, ContractState::Absent, cut).expect("it is told");
    assert!(after < secs(2), "told after {after:?}");
    assert_eq!(reason, "the camera is not connected");
    let back = world.now();
    world.act(Action::Restore(dock)).run(secs(4));
    let (after, _) = told(&world, application, ContractState::Ok, back).expect("it is told");
    assert!(after < secs(3), "told after {after:?}");
}

/// A latency bound includes the application's own delay. An application that takes frames 100 ms after they arrived misses 40 ms, and is told that it
/// is late itself. Its frames do not become smaller.
#[test]
fn who_takes_frames_late_is_told_so_and_gets_no_smaller_frames() {
    let story = |library: Library| {
        let mut world = World::seeded(48);
        let (_, spec) = contracted(&mut world, OnInfeasible::Degrade);
        let contract = Contract { latency_bound: Some(ms(40)), ..spec.contract.clone() };
        let spec = ApplicationSpec { contract, library: Some(library), ..spec };
        let application = world.application(spec);
        world.run(secs(8));
        let settled = Moment::START + secs(3);
        let states: Vec<(ContractState, String)> = world
            .deliveries_since(application, settled)
            .iter()
            .filter_map(|got| got.verdict.as_ref().map(|said| (said.state, said.reason.clone())))
            .collect();
        let rungs: Vec<_> =
            world.deliveries_since(application, settled).iter().map(|got| got.rung.clone()).collect();
        (states, rungs)
    };
    let (prompt, rungs) = story(Library { way: ms(0), takes_after: ms(1) });
    let kept = prompt.iter().filter(|(state, _)| *state == ContractState::Ok).count();
    assert!(kept * 20 > prompt.len() * 19, "{kept} of {}", prompt.len());
    let (slow, same) = story(Library { way: ms(0), takes_after: ms(100) });
    assert!(slow.iter().all(|(state, _)| *state == ContractState::ApplicationLate), "{slow:?}");
    let (_, reason) = slow.last().expect("frames came");
    assert!(reason.ends_with(" ms; frames wait 100 ms for the application"), "{reason}");
    assert_eq!(rungs, same, "they depend on the link alone");
}

/// An application that works on each frame for longer than its bound allows is late itself, even if it reports nothing.
#[test]
fn who_is_busy_when_frames_arrive_is_late_itself() {
    let mut world = World::seeded(49);
    let (_, spec) = contracted(&mut world, OnInfeasible::Degrade);
    let contract = Contract { latency_bound: Some(ms(45)), on_time_share: 0.98, ..spec.contract.clone() };
    let application = world.application(ApplicationSpec { contract, ..spec }.consuming(ms(210)));
    world.run(secs(8));
    let (_, reason) =
        told(&world, application, ContractState::ApplicationLate, Moment::START).expect("it is told");
    assert!(reason.contains("; the application takes a frame every 2"), "{reason}");
    let settled = Moment::START + secs(3);
    assert!(told(&world, application, ContractState::LatencyMiss, settled).is_none());
}

/// The time from the edge to the application counts: the camera works with the rest of the bound, and frames are in time in the application.
#[test]
fn a_camera_makes_up_for_the_way_to_the_application() {
    let mut world = World::seeded(51);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Degrade);
    // At this rate a frame of 20 kB takes 40 ms, and one of 60 kB takes 120 ms.
    world.act(Action::Rate(dock, mbps(4)));
    let contract =
        Contract { latency_bound: Some(ms(200)), accuracy_floor: Some(0.6), ..spec.contract.clone() };
    let library = Some(Library { way: ms(80), takes_after: ms(1) });
    let application = world.application(ApplicationSpec { contract, library, ..spec });
    world.run(secs(12));
    let settled = Moment::START + secs(4);
    let got = world.deliveries_since(application, settled);
    let in_hand = got.iter().filter(|got| got.age() + ms(81) <= ms(200)).count();
    assert!(got.len() > 60 && in_hand * 20 > got.len() * 19, "{in_hand} of {} frames", got.len());
    let last = got.last().and_then(|got| got.verdict.clone()).expect("frames came");
    assert_eq!(last.state, ContractState::Ok, "{}", last.reason);
}

/// A looker changes nothing. Beside a contract, it gets the contract's rung, whatever its priority. Alone it gets originals.
#[test]
fn a_looker_takes_the_rung_of_the_contract_beside_it() {
    let story = |looks: bool| {
        let mut world = World::seeded(52);
        let (dock, spec) = contracted(&mut world, OnInfeasible::Skip);
        world.act(Action::Rate(dock, mbps(3)));
        let application = world.application(spec);
        world.run(secs(2));
        let looker = looks.then(|| {
            let contract = Contract { priority: 7, ..Contract::default() };
            world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") })
        });
        world.run(secs(8));
        let settled = Moment::START + secs(4);
        let got = world.deliveries_since(application, settled);
        let kept = got.iter().filter(|got| got.age() <= ms(100) && got.rung != Rung::original());
        let (kept, came) = (kept.count(), got.len());
        world.act(Action::Unsubscribe(application)).run(secs(4));
        let alone = looker.map(|looker| {
            let beside =
                world.deliveries_since(looker, settled).iter().filter(|got| got.at < settled + secs(6));
            assert!(
                beside.clone().all(|got| got.rung != Rung::original()),
                "it takes the rung that the contract has"
            );
            assert!(beside.count() > 60, "it gets what the contract gets");
            world.deliveries(looker).last().expect("it got frames").rung.clone()
        });
        (kept, came, alone)
    };
    let (kept, came, _) = story(false);
    let (kept_beside, came_beside, alone) = story(true);
    assert!(
        kept * 20 > came * 19 && kept_beside * 20 > came_beside * 19,
        "{kept} of {came}, {kept_beside} of {came_beside}"
    );
    assert!(came_beside * 20 > came * 19, "{came_beside} frames instead of {came}");
    assert_eq!(alone, Some(Rung::original()));
}

/// Like `contracted`, with a profile of these rungs, all of 20 kB, and another bound.
fn leaving_out(world: &mut World, rungs: &[(&str, f64)], bound: Duration) -> (CameraId, ApplicationSpec) {
    let (camera, spec) = contracted(world, OnInfeasible::Degrade);
    let rungs = rungs.iter().map(|(name, accuracy)| RungProfile {
        rung: Rung::new(name).expect("a valid rung"),
        bytes: ByteSizes::around(20e3, 0.05),
        accuracy: *accuracy,
        camera_time: Duration::from_millis(8),
        detector_time: None,
    });
    let profile = Profile::new(rungs.collect()).expect("a sound profile");
    let profile = Some(world.profile(SizedProfile { size: (64, 48), interval: None, profile }));
    let contract = Contract { profile, latency_bound: Some(bound), ..spec.contract.clone() };
    (camera, ApplicationSpec { contract, ..spec })
}

/// If a frame takes longer than the frame interval, a rung that leaves two of three out keeps the contract. Frames left out are no miss, and have
/// their own reason. With a higher `min_fps`, the application gets the frames that the link carries.
#[test]
fn frames_that_a_rung_leaves_out_are_told_and_are_no_miss() {
    for (min_fps, leaves_out) in [(0.0, true), (10.0, false)] {
        let mut world = World::seeded(46);
        let rungs = [("jpeg/w32/q60/420/skip2", 0.93), ("jpeg/w32/q60/420", 0.95)];
        let (dock, spec) = leaving_out(&mut world, &rungs, ms(300));
        world.act(Action::Rate(dock, mbps(2)));
        let contract = Contract { min_fps, ..spec.contract.clone() };
        let application = world.application(ApplicationSpec { contract, ..spec });
        world.run(secs(12));
        let settled = Moment::START + secs(4);
        let got = world.deliveries_since(application, settled);
        let left_out: u64 = got.iter().map(|got| got.skipped.of(SkipReason::LeftOut)).sum();
        if !leaves_out {
            assert!(got.len() > 60 && left_out == 0, "{} frames came, {left_out} were left out", got.len());
            continue;
        }
        let share = left_out as f64 / (8.0 * 15.0);
        assert!((0.6..0.7).contains(&share), "{share} of all frames were left out");
        // A codec occasionally fails, which is a miss among five frames a second.
        let not_made = got.iter().filter(|got| got.skipped.of(SkipReason::NotMade) > 0);
        let not_made: Vec<Moment> = not_made.map(|got| got.at).collect();
        let mut changes = world.contract_changes(application).iter();
        let missed = changes.find(|told| {
            let explained = not_made.iter().any(|at| told.at >= *at && told.at.since(*at) <= secs(1));
            told.at >= settled && told.change.state != ContractState::Ok && !explained
        });
        assert!(missed.is_none(), "{missed:?}");
    }
}

/// Two frames a second are few, but enough: the contract is kept, and silence still breaks it.
#[test]
fn a_camera_that_leaves_nearly_all_out_is_not_taken_for_silent() {
    let mut world = World::seeded(47);
    let (dock, spec) = leaving_out(&mut world, &[("jpeg/w32/q60/420/skip6", 0.95)], ms(100));
    let application = world.application(spec);
    world.run(secs(10));
    let settled = Moment::START + secs(4);
    let got = world.deliveries_since(application, settled);
    assert!((11..=14).contains(&got.len()), "{} frames in six seconds", got.len());
    assert!(got.iter().all(|got| got.skipped.of(SkipReason::LeftOut) == 6), "{got:?}");
    assert!(told(&world, application, ContractState::LatencyMiss, settled).is_none());
    let cut = world.now();
    world.act(Action::Cut(dock)).run(secs(4));
    assert!(told(&world, application, ContractState::LatencyMiss, cut).is_some());
}

/// Two contracts cannot both be kept. The losing application is told whose contract stands against its own.
#[test]
fn who_loses_is_told_by_whom() {
    let mut world = World::seeded(44);
    let (_, spec) = contracted(&mut world, OnInfeasible::Degrade);
    let hasty = world.application(spec.clone());
    world.run(secs(3));
    assert!(told(&world, hasty, ContractState::Ok, Moment::START).is_some());
    let from = world.now();
    let first = Contract {
        accuracy_floor: Some(0.6),
        latency_bound: Some(ms(20)),
        priority: 1,
        ..spec.contract.clone()
    };
    world.application(ApplicationSpec { contract: first, ..spec });
    world.run(secs(4));
    let (after, reason) = told(&world, hasty, ContractState::Infeasible, from).expect("it is told");
    assert!(
        after < secs(3) && reason.ends_with("the floor 0.6 within 20 ms with priority 1"),
        "after {after:?}: {reason}"
    );
}

/// Two applications want frames early and one wants them accurate, on a link that cannot carry both. The two get theirs. The third is told so, and
/// gets its frames once the link carries all.
#[test]
fn the_most_contracts_are_kept() {
    let mut world = World::seeded(45);
    let (dock, spec) = contracted(&mut world, OnInfeasible::Degrade);
    world.act(Action::Rate(dock, mbps(4)));
    let strict =
        Contract { accuracy_floor: Some(0.95), latency_bound: Some(ms(400)), ..spec.contract.clone() };
    let strict = world.application(ApplicationSpec { contract: strict, ..spec.clone() });
    let soon = [world.application(spec.clone()), world.application(spec)];
    world.run(secs(10));
    let late = Moment::START + secs(4);
    for application in soon {
        let frames = world.deliveries_since(application, late);
        let kept = frames.iter().filter(|frame| {
            frame.age() <= ms(100) && frame.verdict.as_ref().is_some_and(|verdict| !verdict.infeasible)
        });
        let share = kept.count() as f64 / frames.len() as f64;
        assert!(frames.len() > 60 && share >= 0.95, "{share} of {} frames", frames.len());
    }
    let (_, reason) = told(&world, strict, ContractState::Infeasible, Moment::START).expect("it is told");
    assert!(reason.contains("which asks for the floor 0.9 within 100 ms"), "{reason}");
    let fast = world.now();
    world.act(Action::Rate(dock, mbps(20))).run(secs(6));
    let (after, _) = told(&world, strict, ContractState::Ok, fast).expect("it is told");
    assert!(after < secs(4), "told after {after:?}");
}

/// A limit by the window of a new connection does not count as a limit of the link. An edge that is 70 ms away, at 24 Mbit/s, gets nearly every frame
/// of video within 250 ms, and is not told that the link is too slow.
#[test]
fn a_far_edge_is_not_called_infeasible_while_the_window_opens() {
    for seed in 50..54 {
        let mut world = World::seeded(seed);
        let spec = CameraSpec::filming(Footage::PEDESTRIANS).at_rate(mbps(24)).at_distance(ms(70));
        world.camera("dock/cam1", spec);
        let known = Footage::PEDESTRIANS.profile().expect("it was profiled");
        let contract = Contract {
            latency_bound: Some(ms(250)),
            accuracy_floor: Some(0.95),
            profile: Some(world.profile(known)),
            ..Contract::default()
        };
        let application =
            world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
        world.run(secs(20));
        let all = world.deliveries_since(application, Moment::START + secs(1));
        let infeasible =
            all.iter().filter(|got| got.verdict.as_ref().is_some_and(|said| said.infeasible)).count();
        let late = all.iter().filter(|got| got.age() > ms(250)).count();
        assert!(all.len() > 180 && infeasible * 20 < all.len(), "seed {seed}: {infeasible} of {}", all.len());
        assert!(late * 40 < all.len(), "seed {seed}: {late} of {} late", all.len());
    }
}
