//! Switches off the mechanisms of Mez's own policy one by one, on the same links and frames, to measure the value of each.
//!
//! A mechanism is off if its constant has a value at which it does nothing. Mechanisms without such a constant are switched off with
//! [`quantile::Mechanism`](Mechanism). Two kinds are left out: mechanisms that the policy needs to work (the delay, the rate, π), and decisions that
//! do not concern a single link (several applications of a camera, frame skip as a property of the ladder).

use std::time::Duration;

use mez_core::controller::Policy;
use mez_core::controller::quantile::{Config, Mechanism, Quantile};
use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Ladder, Profile, RungProfile};

use super::reference::{ACCURACY_BYTES, ACCURACY_BYTES_OF_FIVE, RUNG_BYTES, SIZE_NOISE, ladder};
use super::run::run;
use super::score::score;
use super::setting::{CameraSetting, Coded, Queueing, Setting, Sizes, Slots};
use crate::chance::Chance;
use crate::channel::capacity::Capacity;
use crate::random::Random;

/// The interval between frames of the reference set: 15 frames a second.
const INTERVAL: Duration = Duration::from_nanos(66_666_667);
/// The latency bound of the reference set.
const LATENCY_BOUND: Duration = Duration::from_millis(100);
/// How many bytes of a frame may be in the network.
const WINDOW_BYTES: f64 = 65_536.0;
/// The share of one link's capacity for each of several cameras. Five cameras have three links' capacity.
const CAPACITY_PER_CAMERA: f64 = 0.6;
/// The size of video frames relative to the reference set: 0.4 to 12 kB. Links are slower by the same factor.
const VIDEO_SCALE: f64 = 0.02;
/// How many bytes of a video frame may be in the network.
const VIDEO_WINDOW_BYTES: f64 = 6e3;
/// The relative deviation of the sizes of video frames.
const VIDEO_NOISE: f64 = 0.25;
/// How many times larger a keyframe is than a frame that refers to the previous one.
const KEYFRAME_RATIO: f64 = 8.0;
/// The encoder makes a keyframe at this interval, in frames.
const KEYFRAME_EVERY: usize = 150;
/// The widths of the rungs of video.
const WIDTHS: [u16; 10] = [256, 256, 256, 384, 384, 512, 512, 768, 768, 768];

/// A mechanism, and how to switch it off.
#[derive(Clone, Copy)]
pub struct Ablation {
    /// The name in results.
    pub name: &'static str,
    off: fn(&mut Config),
    /// Whether the edge sends the cameras of one link their shares.
    shares: bool,
}

const fn ablation(name: &'static str, off: fn(&mut Config)) -> Ablation {
    Ablation { name, off, shares: true }
}

/// All ablations. The first one switches nothing off.
pub const ABLATIONS: [Ablation; 27] = [
    ablation("nothing", |_| {}),
    ablation("backlog", |config| config.off = Some(Mechanism::Backlog)),
    ablation("errors", |config| config.off = Some(Mechanism::Errors)),
    ablation("waits", |config| config.off = Some(Mechanism::Waits)),
    ablation("short_samples", |config| config.gain_short = config.gain),
    ablation("at_least_samples", |config| (config.sample_ms_min, config.sample_bytes_min) = (0.01, 0.0)),
    ablation("new_rate", |config| (config.gain_renewed, config.renewed_samples) = (config.gain, 0)),
    ablation("one_surprise", |config| config.off = Some(Mechanism::OneSurprise)),
    ablation("single_packets", |config| config.off = Some(Mechanism::SinglePackets)),
    ablation("in_service", |config| config.off = Some(Mechanism::InService)),
    ablation("another_link", |config| config.off = Some(Mechanism::AnotherLink)),
    ablation("size_spread", |config| config.off = Some(Mechanism::SizeSpread)),
    ablation("size_ratio", |config| config.size_gain = 0.0),
    ablation("growth", |config| config.ramp = f64::INFINITY),
    ablation("guard", |config| config.guard_ms = 0.0),
    ablation("late_price", |config| config.late_cost_step = 0.0),
    ablation("late_chain_price", |config| config.late_chain_cost = 0.0),
    ablation("displaced", |config| config.off = Some(Mechanism::Displaced)),
    ablation("chain_horizon", |config| config.chain_horizon = Duration::ZERO),
    ablation("cancelling", |config| config.off = Some(Mechanism::Cancelling)),
    ablation("waiting", |config| config.off = Some(Mechanism::Waiting)),
    ablation("holding_back", |config| config.off = Some(Mechanism::HoldingBack)),
    ablation("sparing_next", |config| config.off = Some(Mechanism::SparingNext)),
    ablation("steadiness", |config| config.off = Some(Mechanism::Steadiness)),
    ablation("probing", |config| config.off = Some(Mechanism::Probing)),
    ablation("stretching", |config| config.off = Some(Mechanism::Stretching)),
    Ablation { name: "shares", off: |_| {}, shares: false },
];

impl Ablation {
    /// The ablation of this name.
    pub fn named(name: &str) -> Option<Self> {
        ABLATIONS.into_iter().find(|known| known.name == name)
    }

    fn policy(&self) -> Box<dyn Policy> {
        let mut config = Config::default();
        (self.off)(&mut config);
        Box::new(Quantile::new(config))
    }

    /// The mean [`Score::utility`](super::score::Score::utility) of the cameras of a setting, and the mean of their on-time shares.
    pub fn run(&self, setting: &Setting) -> (f64, f64) {
        let share = setting.share.filter(|_| self.shares);
        let setting = Setting { share, ..setting.clone() };
        let mut policies: Vec<_> = setting.cameras.iter().map(|_| self.policy()).collect();
        let slots = Slots::new(&setting);
        let results = run(&setting, &slots, &mut policies);
        let scores = results.iter().enumerate().map(|(camera, results)| score(&setting, camera, results));
        let cameras = setting.cameras.len() as f64;
        scores.fold((0.0, 0.0), |(utility, on_time), score| {
            (utility + score.utility / cameras, on_time + score.on_time_share / cameras)
        })
    }
}

/// The traffic on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// One camera of the reference set: stills of 20 to 600 kB.
    Stills,
    /// One camera with stills of 0.4 to 12 kB: the smallest are single packets.
    SmallStills,
    /// One camera with frames of 0.4 to 12 kB that refer to each other.
    Video,
    /// Five cameras of the reference set, with shares from the edge.
    FiveCameras,
}

impl Traffic {
    /// All kinds of traffic, with their names in results.
    pub const ALL: [(&'static str, Self); 4] = [
        ("stills", Self::Stills),
        ("small_stills", Self::SmallStills),
        ("video", Self::Video),
        ("five_cameras", Self::FiveCameras),
    ];

    /// The traffic of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, traffic)| traffic)
    }

    /// A setting with this traffic on a link.
    pub fn setting(self, link: &Capacity, delay: Duration, duration: Duration, seed: u64) -> Setting {
        let camera = |ladder: Ladder, phase| CameraSetting {
            ladder,
            phase,
            latency_bound: LATENCY_BOUND,
            accuracy_floor: None,
        };
        let one = Setting {
            capacity: link.clone(),
            delay,
            interval: INTERVAL,
            cameras: vec![camera(ladder(ACCURACY_BYTES), Duration::ZERO)],
            window_bytes: WINDOW_BYTES,
            duration,
            sizes: Sizes::Drawn { noise: SIZE_NOISE, seed },
            queueing: Queueing::NewestWins,
            share: None,
        };
        match self {
            Self::Stills => one,
            Self::SmallStills => Setting {
                capacity: link.times(VIDEO_SCALE),
                cameras: vec![camera(small_ladder(SIZE_NOISE), Duration::ZERO)],
                window_bytes: VIDEO_WINDOW_BYTES,
                ..one
            },
            Self::Video => Setting {
                capacity: link.times(VIDEO_SCALE),
                cameras: vec![camera(small_ladder(VIDEO_NOISE), Duration::ZERO)],
                window_bytes: VIDEO_WINDOW_BYTES,
                sizes: Sizes::Coded(video((duration.as_secs_f64() / INTERVAL.as_secs_f64()) as usize, seed)),
                ..one
            },
            Self::FiveCameras => {
                let cameras = ACCURACY_BYTES_OF_FIVE.iter().zip(0..);
                let phase = |place: u32| INTERVAL * place / 5;
                Setting {
                    capacity: link.times(CAPACITY_PER_CAMERA * 5.0),
                    cameras: cameras.map(|(bytes, place)| camera(ladder(*bytes), phase(place))).collect(),
                    share: Some(mez_core::controller::share::Goal::MaxMin),
                    ..one
                }
            }
        }
    }
}

fn small_ladder(noise: f64) -> Ladder {
    let rungs = RUNG_BYTES.map(|bytes| RungProfile {
        rung: Rung::new(&format!("bytes/{}", bytes * VIDEO_SCALE)).expect("short and printable"),
        bytes: ByteSizes::around(bytes * VIDEO_SCALE, noise),
        accuracy: 1.0 - 0.30 * (-bytes / ACCURACY_BYTES).exp(),
        camera_time: Duration::ZERO,
        detector_time: None,
    });
    Profile::new(rungs.to_vec()).expect("ten different rungs").ladder()
}

/// Frames as from an encoder: a busy scene is large at every rung.
fn video(frames: usize, seed: u64) -> Coded {
    let mut chance = Chance::new(Random::seeded(seed).split());
    let alone = |bytes: f64| bytes * VIDEO_SCALE * KEYFRAME_RATIO;
    let bytes = (0..frames.max(1)).map(|frame| {
        let factor = (1.0 + VIDEO_NOISE * chance.normal()).max(0.2);
        let is_keyframe = frame % KEYFRAME_EVERY == 0;
        let of = |bytes: f64| {
            if is_keyframe { alone(bytes) * factor.max(1.0) } else { bytes * VIDEO_SCALE * factor }
        };
        RUNG_BYTES.iter().map(|bytes| of(*bytes).round() as u32).collect()
    });
    Coded {
        bytes: bytes.collect(),
        alone: RUNG_BYTES.iter().map(|bytes| ByteSizes::around(alone(*bytes), 0.1)).collect(),
        every: vec![1; RUNG_BYTES.len()],
        widths: WIDTHS.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::links::Kind;

    /// Each mechanism has its own name and changes a result. Without any, the policy is that of the product.
    #[test]
    fn every_mechanism_changes_something() {
        let kinds = ["mixed", "step_60_12", "wifi_oven"].map(|name| Kind::named(name).expect("a link"));
        let mut settings = Vec::new();
        for (place, kind) in kinds.iter().enumerate() {
            let link = kind.link(35_000, &mut Random::seeded(40 + place as u64)).capacity;
            for (_, traffic) in Traffic::ALL {
                settings.push(traffic.setting(&link, Duration::from_millis(3), Duration::from_secs(30), 7));
            }
        }
        let figures = |ablation: &Ablation| -> Vec<(f64, f64)> {
            settings.iter().map(|setting| ablation.run(setting)).collect()
        };
        let whole = figures(&ABLATIONS[0]);
        for ablation in &ABLATIONS[1..] {
            assert_ne!(figures(ablation), whole, "{}", ablation.name);
            assert!(ABLATIONS.iter().filter(|other| other.name == ablation.name).count() == 1);
        }
    }
}
