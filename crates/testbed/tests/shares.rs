//! Cameras that share a channel that is declared to the edge, as stories on a virtual clock.

use std::time::Duration;

use mez_core::contract::{Contract, ContractState};
use mez_core::controller::share::{ChannelRate, Channels, Claim, Goal, Overhead, Step, divide};
use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, RungProfile, SizedProfile};
use mez_core::units::Instant;
use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, Bug, CameraId, CameraSpec, EdgeSpec, MediumSpec, Moment, World,
    mbps, ms, secs,
};

const BOUND: Duration = ms(100);
const FPS: u64 = 15;
/// Bytes and accuracies of the rungs.
const RUNGS: [(f64, f64); 8] = [
    (3e3, 0.70),
    (5e3, 0.77),
    (8e3, 0.83),
    (12e3, 0.88),
    (18e3, 0.92),
    (27e3, 0.95),
    (40e3, 0.97),
    (60e3, 0.98),
];

/// An edge with these declared channels.
fn edge(declared: &[&str]) -> EdgeSpec {
    let channels = declared.iter().map(|text| text.parse().expect("a channel")).collect();
    EdgeSpec { channels: Channels::new(channels).expect("different names"), ..EdgeSpec::default() }
}

/// A profile of these rungs. `keeps` computes the accuracy from bytes and accuracy.
fn profile(keeps: impl Fn(f64, f64) -> f64) -> SizedProfile {
    let rung = |(place, (bytes, accuracy)): (usize, &(f64, f64))| RungProfile {
        rung: Rung::new(&format!("jpeg/w{}/q50/420", 16 + 2 * place)).expect("a valid rung"),
        bytes: ByteSizes::around(*bytes, 0.05),
        accuracy: keeps(*bytes, *accuracy),
        camera_time: ms(3),
        detector_time: None,
    };
    let rungs = RUNGS.iter().enumerate().map(rung).collect();
    SizedProfile { size: (64, 48), interval: None, profile: Profile::new(rungs).expect("a sound profile") }
}

/// The profile with the accuracies of [`RUNGS`].
fn plain() -> SizedProfile {
    profile(|_, accuracy| accuracy)
}

/// Cameras in one queue of this rate, each with an application with this profile, floor and priority.
fn cameras(
    world: &mut World,
    bits_per_second: u64,
    asked: &[(&SizedProfile, f64, i32)],
) -> Vec<(CameraId, ApplicationId)> {
    let medium =
        world.medium(MediumSpec::Queue { bits_per_second, queue_bytes_max: 64 << 10, cameras: asked.len() });
    let asked = asked.iter().enumerate().map(|(number, (profile, floor, priority))| {
        let name = format!("dock/cam{number}");
        let spec = CameraSpec { medium: Some(medium), ..CameraSpec::frames(FPS, 60_000) };
        let camera = world.camera(&name, spec);
        let contract = Contract {
            latency_bound: Some(BOUND),
            accuracy_floor: Some(*floor),
            profile: Some(world.profile((*profile).clone())),
            on_time_share: 0.9,
            priority: *priority,
            ..Contract::default()
        };
        (camera, world.application(ApplicationSpec { contract, ..ApplicationSpec::newest(&name) }))
    });
    asked.collect()
}

/// The mean accuracy per published frame that an application got on time since `from`.
fn utility(world: &World, application: ApplicationId, from: Moment) -> f64 {
    let frames = world.deliveries_since(application, from);
    let on_time = frames.iter().filter(|frame| frame.age() <= BOUND);
    let accuracy = |frame: &mez_testbed::Delivered| {
        frame.verdict.as_ref().and_then(|verdict| verdict.expected_accuracy).unwrap_or(0.0)
    };
    on_time.map(accuracy).sum::<f64>() / (world.now().since(from).as_secs_f64() * FPS as f64)
}

/// Five scenes of increasing difficulty: what the worst of their cameras reaches on one link, with or without a declared channel.
fn worst_of_five(seed: u64, bits_per_second: u64, declared: &[&str]) -> f64 {
    let mut world = World::seeded_with(seed, edge(declared));
    let profiles = SCENES.map(scene);
    let asked = profiles.each_ref().map(|profile| (profile, 0.5, 0));
    let cameras = cameras(&mut world, bits_per_second, &asked);
    world.run(secs(4));
    let from = world.now();
    world.run(secs(8));
    cameras.iter().map(|(_, application)| utility(&world, *application, from)).fold(f64::INFINITY, f64::min)
}

/// The difficulty of each scene, in bytes.
const SCENES: [f64; 5] = [8e3, 16e3, 22e3, 40e3, 70e3];

fn scene(hardness_bytes: f64) -> SizedProfile {
    profile(|bytes, _| 1.0 - 0.3 * (-bytes / hardness_bytes).exp())
}

/// Five cameras on one link get what a plan for all of them gives, above all the worst camera. Without shares, the worst camera gets less.
#[test]
fn five_cameras_get_their_shares() {
    let rate = mbps(10);
    // The rate without headers.
    let channel =
        ChannelRate { bytes_per_ms: rate as f64 / 8e3 * 0.94, spread: 0.0, control_bytes_per_second: 0.0 };
    let steps = SCENES.map(|hardness| Step::of(&scene(hardness).profile.ladder()));
    let claims = steps.each_ref().map(|steps| Claim {
        steps,
        floor: 0,
        interval: secs(1) / FPS as u32,
        latency_bound: BOUND,
        priority: 0,
        overhead: Overhead::default(),
    });
    let plan = divide(Instant::ZERO, &channel, &claims, Goal::MaxMin);
    let accuracies = plan.iter().zip(&steps).filter_map(|(grant, steps)| Some(steps[grant.rung?].accuracy));
    let plan = accuracies.fold(f64::INFINITY, f64::min);
    let mean = |declared: &[&str]| {
        let worst = (70..72).map(|seed| worst_of_five(seed, rate, declared));
        worst.sum::<f64>() / 2.0
    };
    let (shared, alone) = (mean(&["hall=dock/*"]), mean(&[]));
    assert!(shared >= 0.97 * plan, "the plan gives the worst {plan}: {shared} with shares, {alone} without");
    assert!(shared > alone + 0.01, "{shared} with shares, {alone} without");
}

/// If the floors do not fit, the camera of the lowest priority is told so and why within two seconds, and still gets some frames. When there is room
/// again, it gets its share again.
#[test]
fn who_finds_no_room_is_told_why() {
    let mut world = World::seeded_with(75, edge(&["hall=dock/*"]));
    let plain = plain();
    let cameras = cameras(&mut world, mbps(20), &[(&plain, 0.92, 0), (&plain, 0.92, 2), (&plain, 0.92, 1)]);
    world.run(secs(5));
    let lowest = cameras[0].1;
    let told = |world: &World, state: ContractState, from: Moment| {
        let mut changes = world.contract_changes(lowest).iter().filter(|told| told.at >= from);
        changes
            .find(|told| told.change.state == state)
            .map(|told| (told.at.since(from), told.change.reason.clone()))
    };
    assert!(told(&world, ContractState::Ok, Moment::START).is_some());
    // 18 kB of each camera are 6.5 Mbit/s.
    let slow = world.now();
    world.act(Action::Rate(cameras[0].0, 5_500_000)).run(secs(8));
    let (after, reason) = told(&world, ContractState::Infeasible, slow).expect("it is told");
    assert!(after < secs(2), "told after {after:?}");
    let last = world.contract_changes(lowest).last().expect("it was told").change.clone();
    assert!(last.state == ContractState::Infeasible, "{last:?}; first it was told: {reason}");
    let from = slow + secs(3);
    for (_, application) in &cameras[1..] {
        assert!(utility(&world, *application, from) > 0.85, "{}", utility(&world, *application, from));
    }
    let got = world.deliveries_since(lowest, from);
    assert!((15..40).contains(&got.len()), "{} frames in five seconds", got.len());
    let reason = got.last().and_then(|frame| frame.verdict.clone()).expect("it has a contract").reason;
    let ends = " Mbit/s; cameras of higher priority leave no room for this camera";
    assert!(reason.starts_with("the channel hall carries ") && reason.ends_with(ends), "{reason}");
    let fast = world.now();
    world.act(Action::Rate(cameras[0].0, mbps(20))).run(secs(6));
    let (after, _) = told(&world, ContractState::Ok, fast).expect("it is told");
    assert!(after < secs(3), "told after {after:?}");
}

/// A camera whose frames are not encoded takes no more than its share, and leaves enough for the others' floors.
#[test]
fn frames_that_go_as_they_are_leave_room() {
    let mut world = World::seeded_with(76, edge(&["hall=**"]));
    let people = plain();
    let cameras = cameras(&mut world, mbps(8), &[(&people, 0.83, 0), (&people, 0.83, 0)]);
    let plain = world.application(ApplicationSpec::newest("dock/cam0"));
    // Beside a contract with a floor, a looker would get the contract's rung.
    world.act(Action::Unsubscribe(cameras[0].1));
    world.run(secs(6));
    let from = world.now();
    world.run(secs(10));
    // 60 kB at 15 frames a second are 7.2 Mbit/s, of 8.
    let frames = world.deliveries_since(plain, from).len();
    assert!((30..120).contains(&frames), "{frames} frames of 150");
    let other = utility(&world, cameras[1].1, from);
    assert!(other > 0.78, "{other}");
}

/// A camera that never learns of its cap encodes frames above it.
#[test]
fn a_cap_that_is_not_kept_is_noticed() {
    let run = |bug: Option<Bug>| {
        let mut world = World::seeded_with(78, edge(&["hall=dock/*"]));
        if let Some(bug) = bug {
            world.plant(bug);
        }
        let plain = plain();
        cameras(&mut world, mbps(10), &[(&plain, 0.75, 0); 3]);
        world.try_run(secs(10))
    };
    if let Err(failure) = run(None) {
        panic!("{failure}");
    }
    let failure = run(Some(Bug::ShareUntold)).expect_err("it went unnoticed");
    assert_eq!(failure.violation.rule, "caps", "{failure}");
}

/// A stream of records with a knob and a camera share a channel that fits neither with the other at full size. Both keep their floors and their
/// bound, and the records take part in the division.
#[test]
fn records_with_knobs_share_a_channel_with_a_camera() {
    let mut world = World::seeded_with(79, edge(&["hall=dock/*"]));
    let medium = MediumSpec::Queue { bits_per_second: mbps(3), queue_bytes_max: 64 << 10, cameras: 2 };
    let medium = Some(world.medium(medium));
    world.camera("dock/cam0", CameraSpec { medium, ..CameraSpec::frames(FPS, 60_000) });
    // Records of 20 kB, ten a second, are 1.6 Mbit/s. The camera's best rung takes 7.2.
    let records = CameraSpec { record_once_in: 1, knobs: true, ..CameraSpec::frames(10, 160_000) };
    world.camera("dock/log0", CameraSpec { medium, ..records });
    let (camera, records) = (world.profile(plain()), world.profile(of_records()));
    let asked = [("dock/cam0", camera, 0.8, FPS), ("dock/log0", records, 0.65, 10)];
    let readers = asked.map(|(name, profile, floor, fps)| {
        let contract = Contract {
            latency_bound: Some(BOUND),
            accuracy_floor: Some(floor),
            profile: Some(profile),
            on_time_share: 0.9,
            ..Contract::default()
        };
        let reader = ApplicationSpec { contract, ..ApplicationSpec::newest(name) };
        (world.application(reader), 20 * fps as usize)
    });
    world.codecs_fail(false).run(secs(5));
    let from = world.now();
    world.run(secs(20));
    for (reader, published) in readers {
        let got = world.deliveries_since(reader, from);
        let is_kept = |got: &&mez_testbed::Delivered| {
            got.age() <= BOUND && got.verdict.as_ref().is_some_and(|verdict| !verdict.infeasible)
        };
        let kept = got.iter().filter(is_kept).count();
        assert!(kept * 10 >= published * 9, "{kept} of {published} frames of {}", got[0].camera);
        // Alone, each would get its best rung.
        let best = got.iter().filter(|got| got.rung.as_str() == "original").count();
        assert!(best * 10 <= got.len(), "{best} of {} frames of {} as they are", got.len(), got[0].camera);
    }
}

/// Records of 20 kB, of which a world's knob keeps a percentage.
fn of_records() -> SizedProfile {
    let rung = |(name, bytes, accuracy): (&str, f64, f64)| RungProfile {
        rung: Rung::new(name).expect("the name of a rung"),
        bytes: ByteSizes::around(bytes, 0.05),
        accuracy,
        camera_time: ms(2),
        detector_time: None,
    };
    let rungs = [
        ("data/keep=10", 2e3, 0.7),
        ("data/keep=25", 5e3, 0.85),
        ("data/keep=50", 10e3, 0.93),
        ("original", 20e3, 1.0),
    ];
    let profile = Profile::new(rungs.map(rung).to_vec()).expect("sizes and accuracies of a profile");
    SizedProfile { size: (0, 0), interval: None, profile }
}
