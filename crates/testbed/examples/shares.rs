//! Five cameras on one link of the reference set, with the real brokers above it: how near the worst of them comes to what a plan that knows the
//! link's future gives it, with and without the edge knowing that they share the link. The figures are in
//! `docs/controller-results.md`.
//!
//! There are two such plans. One has the greatest sum; a camera's share of it says how near the goal `sum` comes to its own best. The other gives
//! whoever has least as much as can be; of it a bound from above is known ([`oracle::most_for_worst`]), which max–min is held against. Both have the
//! packets' headers and the time that a frame takes to be made against them, as the cameras have.
//!
//! ```console
//! $ cargo run --release -p mez-testbed --example shares -- [SEEDS] [SECONDS]
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::controller::share::Channels;
use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Ladder, Profile, RungProfile, SizedProfile};
use mez_testbed::channel::capacity::Capacity;
use mez_testbed::channel::classes::CLASSES;
use mez_testbed::policies::oracle;
use mez_testbed::policies::reference::{ACCURACY_BYTES_OF_FIVE, RUNG_BYTES};
use mez_testbed::policies::setting::{CameraSetting, Queueing, Setting, Sizes, Slots};
use mez_testbed::random::Random;
use mez_testbed::{
    Action, ApplicationId, ApplicationSpec, CameraId, CameraSpec, EdgeSpec, MediumId, MediumSpec, Moment,
    World, ms, secs,
};

const BOUND: Duration = ms(100);
const DELAY: Duration = ms(3);
const FPS: u64 = 15;
/// Rungs and links against those of the reference set, so that a frame is a few packets to a hundred.
const SCALE: f64 = 0.2;
/// Five cameras have three times the capacity of one.
const CAPACITY: f64 = 3.0;
/// What the edge is told: nothing, or what all five share.
const DECLARED: [&[&str]; 4] = [&[], &["hall=dock/*"], &["hall:sum=dock/*"], &["hall:bandwidth=dock/*"]];
/// A frame takes so long to be made.
const MAKING: Duration = ms(2);
/// What packets' headers leave of the link for frames: 60 bytes of 1260.
const PAYLOAD_SHARE: f64 = 1_200.0 / 1_260.0;
/// Weights that are tried for the bound of what the worst camera can have.
const ROUNDS: u32 = 16;
/// The link has a new rate every so many milliseconds.
const RATE_MS: usize = 5;

fn profile(accuracy_bytes: f64) -> Profile {
    let rungs = RUNG_BYTES.iter().enumerate().map(|(place, bytes)| RungProfile {
        rung: Rung::new(&format!("jpeg/w{}/q50/420", 16 + 2 * place)).expect("a valid rung"),
        bytes: ByteSizes::around(bytes * SCALE, 0.01),
        accuracy: 1.0 - 0.30 * (-bytes / accuracy_bytes).exp(),
        camera_time: MAKING,
        detector_time: None,
    });
    Profile::new(rungs.collect()).expect("ten different rungs")
}

/// Five cameras on a medium, each with an application; the first camera.
fn cameras(world: &mut World, medium: MediumId) -> (CameraId, Vec<ApplicationId>) {
    let mut applications = Vec::new();
    let mut first = None;
    for (number, accuracy_bytes) in ACCURACY_BYTES_OF_FIVE.iter().enumerate() {
        let name = format!("dock/cam{number}");
        let hash =
            world.profile(SizedProfile { size: (64, 48), interval: None, profile: profile(*accuracy_bytes) });
        let mut spec = CameraSpec { medium: Some(medium), jitter: ms(0), ..CameraSpec::frames(FPS, 120_000) };
        (spec.link.delay_up, spec.link.delay_down) = (DELAY, DELAY);
        let camera = world.camera(&name, spec);
        first.get_or_insert(camera);
        let contract = Contract {
            latency_bound: Some(BOUND),
            accuracy_floor: Some(0.5),
            profile: Some(hash),
            ..Contract::default()
        };
        applications.push(world.application(ApplicationSpec { contract, ..ApplicationSpec::newest(&name) }));
    }
    (first.expect("five cameras"), applications)
}

/// The accuracy that an application got of so many frames, where those that were late count for nothing; and the share of those on time.
fn reached(world: &World, application: ApplicationId, frames: u64) -> (f64, f64) {
    let on_time = || world.deliveries(application).iter().filter(|frame| frame.age() <= BOUND);
    let accuracy: f64 = on_time()
        .filter_map(|frame| frame.verdict.as_ref().and_then(|verdict| verdict.expected_accuracy))
        .sum();
    (accuracy / frames as f64, on_time().count() as f64 / frames as f64)
}

/// A camera of a run: the accuracy that it reached, and the share of its frames that were on time.
type Reached = (f64, f64);

/// What each camera reaches, and what a planner is told of the run.
fn run(seed: u64, capacity: &Capacity, seconds: u64, declared: &[&str]) -> (Vec<Reached>, Setting) {
    let channels = declared.iter().map(|text| text.parse().expect("a channel")).collect();
    let channels = Channels::new(channels).expect("different names");
    let mut world = World::seeded_with(seed, EdgeSpec { channels, ..EdgeSpec::default() });
    let medium = MediumSpec::Queue { bits_per_second: 20_000_000, queue_bytes_max: 64 << 10, cameras: 5 };
    let medium = world.medium(medium);
    let (first, applications) = cameras(&mut world, medium);
    let camera = first;
    for from in (0..capacity.ms()).step_by(RATE_MS) {
        let until = (from + RATE_MS).min(capacity.ms());
        let bytes: f64 = (from..until).map(|ms| capacity.at_ms(ms)).sum();
        let rate = ((bytes * 8e3 / (until - from) as f64) as u64).max(10_000);
        world.at(Moment::START + Duration::from_millis(from as u64), Action::Rate(camera, rate));
    }
    world.run(secs(seconds));
    let interval = Duration::from_nanos(1_000_000_000 / FPS);
    let phase = |application| {
        let published =
            world.deliveries(application).first().map(|first| first.published.since(Moment::START));
        Duration::from_nanos((published.unwrap_or_default().as_nanos() % interval.as_nanos()) as u64)
    };
    let ladder = |bytes: f64| -> Ladder { profile(bytes).ladder() };
    let setting = Setting {
        capacity: capacity.times(PAYLOAD_SHARE),
        delay: DELAY,
        interval,
        cameras: ACCURACY_BYTES_OF_FIVE
            .iter()
            .zip(&applications)
            .map(|(bytes, application)| CameraSetting {
                ladder: ladder(*bytes),
                phase: phase(*application) + MAKING,
                latency_bound: BOUND - MAKING,
                accuracy_floor: None,
            })
            .collect(),
        window_bytes: 16e3,
        duration: secs(seconds),
        sizes: Sizes::Drawn { noise: 0.0, seed },
        queueing: Queueing::NewestWins,
        share: None,
    };
    let frames = Slots::new(&setting).frames as u64;
    (applications.iter().map(|application| reached(&world, *application, frames)).collect(), setting)
}

/// What planners that know the future give: each camera, where the sum is to be greatest; and the worst, at most.
struct Planned {
    each: Vec<f64>,
    worst_max: f64,
}

impl Planned {
    fn of(setting: &Setting) -> Self {
        let slots = Slots::new(setting);
        let plan = oracle::plan(setting, &slots);
        let each = (0..setting.cameras.len()).map(|camera| plan.score(setting, camera).utility);
        Self { each: each.collect(), worst_max: oracle::most_for_worst(setting, &slots, ROUNDS) }
    }
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let (seeds, seconds) = (words.next().unwrap_or(10), words.next().unwrap_or(60));
    println!(
        "| class | shares | worst camera's share of the plan | mean | worst camera's accuracy | of what it could be | on time |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for class in &CLASSES {
        let mut plans: BTreeMap<u64, Planned> = BTreeMap::new();
        for declared in DECLARED {
            let (mut worst, mut mean, mut least, mut could_be, mut on_time) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for seed in 2_000..2_000 + seeds {
                let capacity = class.capacity(seconds as usize * 1_000 + 2_000, &mut Random::seeded(seed));
                let (reached, setting) = run(seed, &capacity.times(CAPACITY * SCALE), seconds, declared);
                // Cameras begin their frames at the same moments whatever the edge is told.
                let planned = plans.entry(seed).or_insert_with(|| Planned::of(&setting));
                let shares = || reached.iter().zip(&planned.each).map(|((reached, _), plan)| reached / plan);
                worst += shares().fold(f64::INFINITY, f64::min) / seeds as f64;
                mean += shares().sum::<f64>() / 5.0 / seeds as f64;
                let accuracies = reached.iter().map(|(reached, _)| *reached);
                least += accuracies.fold(f64::INFINITY, f64::min) / seeds as f64;
                could_be += planned.worst_max / seeds as f64;
                on_time += reached.iter().map(|(_, on_time)| on_time).sum::<f64>() / 5.0 / seeds as f64;
            }
            let shares = declared.first().map_or("none", |text| text.split('=').next().unwrap_or(text));
            let of_most = least / could_be;
            println!(
                "| {} | {shares} | {worst:.3} | {mean:.3} | {least:.3} | {of_most:.3} | {on_time:.3} |",
                class.name
            );
        }
    }
}
