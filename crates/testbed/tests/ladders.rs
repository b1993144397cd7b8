//! Ladders of several codecs keep contracts as well as those of one codec. A change of the codec costs a whole frame, and a frame with too few bytes
//! becomes coarser than any measured rung.

use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::frame::SkipReason;
use mez_core::profile::{Profile, SizedProfile};
use mez_testbed::world::MediumSpec;
use mez_testbed::{Action, ApplicationSpec, CameraSpec, Footage, Moment, World, ms, secs};

/// The number of seeds. `MEZ_SEEDS` overrides it.
const SEEDS: u64 = 4;
const SECONDS: u64 = 40;

/// From these seconds on, the link carries so many Mbit/s.
type Rates = Vec<(f64, f64)>;

/// 20 and 1 Mbit/s in turn, each for two seconds.
fn square_wave() -> Rates {
    (0..SECONDS / 2).map(|phase| (2.0 * phase as f64, if phase % 2 == 0 { 20.0 } else { 1.0 })).collect()
}

/// From one rate to another, by the same factor every half second.
fn ramp(from: f64, to: f64) -> Rates {
    let steps = 2 * SECONDS;
    (0..steps).map(|step| (step as f64 / 2.0, from * (to / from).powf(step as f64 / steps as f64))).collect()
}

/// The results for frames from the fourth second on.
#[derive(Debug, Default)]
struct Frames {
    all: f64,
    infeasible: f64,
    /// Frames of a rung without a measured accuracy.
    unmeasured: f64,
    not_made: f64,
}

/// Cameras that see pedestrians, with the pedestrians' profile, or with only its H.264 rungs. Several cameras share one queue.
fn frames(seed: u64, cameras: usize, rates: &Rates, h264_alone: bool) -> Frames {
    let mut world = World::seeded(seed);
    let bits_per_second = |mbps: f64| (mbps * 1e6) as u64;
    let medium = (cameras > 1).then(|| {
        let bits_per_second = bits_per_second(rates[0].1);
        world.medium(MediumSpec::Queue { bits_per_second, queue_bytes_max: 48_000, cameras })
    });
    for camera in 0..cameras {
        let spec = CameraSpec::filming(Footage::PEDESTRIANS).at_rate(bits_per_second(rates[0].1));
        let camera = world.camera(&format!("dock/cam{camera}"), CameraSpec { medium, ..spec });
        for (at, mbps) in rates {
            let at = Moment::START + Duration::from_secs_f64(*at);
            world.at(at, Action::Rate(camera, bits_per_second(*mbps)));
        }
    }
    let SizedProfile { size, interval, profile } =
        Footage::PEDESTRIANS.profile().expect("its accuracies were measured");
    let is_wanted = |name: &str| !h264_alone || name.starts_with("h264/");
    let rungs = profile.rungs().iter().filter(|rung| is_wanted(rung.rung.as_str())).cloned().collect();
    let profile = Profile::new(rungs).expect("as sound as before");
    let contract = Contract {
        latency_bound: Some(ms(if cameras > 1 { 150 } else { 100 })),
        accuracy_floor: Some(0.9),
        profile: Some(world.profile(SizedProfile { size, interval, profile })),
        ..Contract::default()
    };
    let application = world.application(ApplicationSpec { contract, ..ApplicationSpec::newest("dock/*") });
    world.codecs_fail(false);
    world.run(secs(SECONDS));
    let mut frames = Frames::default();
    for got in world.deliveries_since(application, Moment::START + secs(4)) {
        let verdict = got.verdict.as_ref().expect("it reads live");
        frames.all += 1.0;
        frames.infeasible += f64::from(u8::from(verdict.infeasible));
        frames.unmeasured += f64::from(u8::from(verdict.expected_accuracy.is_none()));
        frames.not_made += got.skipped.of(SkipReason::NotMade) as f64;
    }
    frames
}

/// All frames of several seeds.
fn of_all_seeds(cameras: usize, rates: &Rates, h264_alone: bool) -> Frames {
    let seeds = std::env::var("MEZ_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    (1..=seeds).map(|seed| frames(seed, cameras, rates, h264_alone)).fold(Frames::default(), |sum, one| {
        Frames {
            all: sum.all + one.all,
            infeasible: sum.infeasible + one.infeasible,
            unmeasured: sum.unmeasured + one.unmeasured,
            not_made: sum.not_made + one.not_made,
        }
    })
}

fn assert_as_good_as_h264_alone(name: &str, cameras: usize, rates: &Rates) {
    let (mixed, alone) = (of_all_seeds(cameras, rates, false), of_all_seeds(cameras, rates, true));
    println!("{name}: {mixed:?}, H.264 alone {alone:?}");
    let minus_best = mixed.infeasible / mixed.all - alone.infeasible / alone.all;
    assert!(minus_best <= 0.01, "{name}: {minus_best:.4} more of the frames are infeasible");
    let unmeasured = mixed.unmeasured / mixed.all;
    assert!(unmeasured <= 0.005, "{name}: nobody knows what {unmeasured:.4} of the frames are worth");
    let not_made = mixed.not_made / mixed.all;
    assert!(not_made <= 0.002, "{name}: {not_made:.4} of the frames did not fit");
}

#[test]
fn on_a_square_wave() {
    assert_as_good_as_h264_alone("square wave", 1, &square_wave());
}

#[test]
fn on_a_ramp() {
    assert_as_good_as_h264_alone("ramp", 1, &ramp(10.0, 0.2));
}

#[test]
fn on_a_queue_that_three_cameras_share_and_that_falls() {
    assert_as_good_as_h264_alone("falling queue", 3, &ramp(6.0, 0.3));
}
