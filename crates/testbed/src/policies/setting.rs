//! Describes what policies are compared on: a link, cameras, and the frames that they capture.

use std::time::Duration;

use mez_core::controller::Coding;
use mez_core::controller::share::Goal;
use mez_core::profile::{ByteSizes, Ladder};
use mez_core::units::Instant;

use crate::chance::Chance;
use crate::channel::capacity::Capacity;
use crate::random::Random;

/// One camera, with its contract.
#[derive(Clone, Debug)]
pub struct CameraSetting {
    /// The rungs that it can send.
    pub ladder: Ladder,
    /// When its first frame is captured.
    pub phase: Duration,
    /// The latency bound, from capture to arrival.
    pub latency_bound: Duration,
    /// The accuracy floor.
    pub accuracy_floor: Option<f64>,
}

/// What policies are compared on.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The link's future.
    pub capacity: Capacity,
    /// One-way delay of each direction.
    pub delay: Duration,
    /// The time between frames of a camera.
    pub interval: Duration,
    /// The cameras.
    pub cameras: Vec<CameraSetting>,
    /// How many bytes of a frame may be in the network.
    pub window_bytes: f64,
    /// For how long frames are captured.
    pub duration: Duration,
    /// The sizes of frames at each rung.
    pub sizes: Sizes,
    /// What becomes of a frame that finds the link busy.
    pub queueing: Queueing,
    /// The goal by which the edge tells the cameras their shares, if it does.
    pub share: Option<Goal>,
}

/// The sizes of frames at each rung.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// The mean of the profile, times a factor that varies by `noise` of itself from frame to frame.
    Drawn {
        /// Standard deviation of the factor.
        noise: f64,
        /// Where the factors come from.
        seed: u64,
    },
    /// What an encoder made of each frame, for every camera alike.
    Coded(Coded),
}

/// Frames as an encoder made them, whose frames refer to the one before.
#[derive(Clone, Debug, PartialEq)]
pub struct Coded {
    /// Bytes by frame and rung; after the last frame comes the first. A frame of no bytes is left out.
    pub bytes: Vec<Vec<u32>>,
    /// By rung: the bytes of a keyframe. The first frame at a rung is one, and the first after a frame that was given up.
    pub alone: Vec<ByteSizes>,
    /// By rung: one frame in this many is sent.
    pub every: Vec<u32>,
    /// By rung: the width of its pictures, if the encoder can change its quantiser within a chain, as a live camera's can. A chain then
    /// continues at any rung of the same width, and a frame can be made larger than its rung says. Empty: only at its own rung.
    pub widths: Vec<u16>,
}

impl Coded {
    /// Whether a frame at a rung can refer to one at another.
    fn goes_on(&self, from: usize, to: usize) -> bool {
        from == to || !self.widths.is_empty() && self.widths[from] == self.widths[to]
    }
}

/// The sizes that are offered to a policy with the rungs, after a frame at a certain rung.
#[derive(Clone, Debug)]
struct After {
    /// What a frame has at each rung but the last one's, which it does not refer to.
    alone: Vec<ByteSizes>,
    goes_on: Vec<bool>,
}

/// What becomes of a frame that finds the link busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// It waits, and a newer frame replaces it.
    NewestWins,
    /// It is sent after all earlier frames, as through a TCP socket. No frame is given up.
    Every,
}

/// The frames of a setting: their capture times, and how much larger than usual they are.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Frames of each camera.
    pub frames: usize,
    interval: Duration,
    phases: Vec<Duration>,
    /// By camera and frame: the size of every rung, as a multiple of its mean. A busy scene is large at every rung.
    factors: Vec<Vec<f64>>,
    coded: Option<Coded>,
    /// By the rung of the frame before. Empty where a frame goes on only at its own rung.
    after: Vec<After>,
}

impl Slots {
    /// The frames of a setting.
    pub fn new(setting: &Setting) -> Self {
        let frames = (setting.duration.as_secs_f64() / setting.interval.as_secs_f64()) as usize;
        let (mut factors, mut coded) = (Vec::new(), None);
        match &setting.sizes {
            Sizes::Coded(sizes) => coded = Some(sizes.clone()),
            Sizes::Drawn { noise, seed } => {
                let mut random = Random::seeded(*seed);
                for _ in &setting.cameras {
                    let mut chance = Chance::new(random.split());
                    factors.push((0..frames).map(|_| (1.0 + noise * chance.normal()).max(0.2)).collect());
                }
            }
        }
        let phases = setting.cameras.iter().map(|camera| camera.phase).collect();
        let after = coded.as_ref().map_or_else(Vec::new, |coded| after(coded, &setting.cameras[0].ladder));
        Self { frames, interval: setting.interval, factors, coded, after, phases }
    }

    /// When a frame is captured.
    pub fn captured(&self, camera: usize, frame: usize) -> Instant {
        Instant::ZERO + self.phases[camera] + self.interval * frame as u32
    }

    /// What a frame has at a rung if it can refer to the one before.
    pub fn bytes(&self, camera: usize, frame: usize, ladder: &Ladder, rung: usize) -> f64 {
        match &self.coded {
            Some(coded) => f64::from(coded.bytes[frame % coded.bytes.len()][rung]),
            None => (ladder.rungs()[rung].bytes.mean * self.factors[camera][frame]).round(),
        }
    }

    /// Whether a frame is a keyframe in any case, because an encoder begins a new chain from time to time. A frame that is no smaller
    /// than the first one refers to no other.
    pub(super) fn stands_alone(&self, frame: usize, rung: usize) -> bool {
        self.coded.as_ref().is_some_and(|coded| {
            f64::from(coded.bytes[frame % coded.bytes.len()][rung]) >= coded.alone[rung].mean.round()
        })
    }

    /// The bytes of a frame after what was sent before. What changed in frames that were left out comes with it.
    pub(super) fn bytes_after(
        &self,
        camera: usize,
        frame: usize,
        ladder: &Ladder,
        rung: usize,
        chain: Option<&ChainEnd>,
    ) -> f64 {
        let bytes = self.bytes(camera, frame, ladder, rung);
        let Some(coded) = self.coded.as_ref().filter(|_| bytes > 0.0) else { return bytes };
        let alone = coded.alone[rung].mean.round();
        match chain.filter(|chain| coded.goes_on(chain.rung, rung)) {
            Some(chain) => (bytes + chain.left_out_bytes).min(bytes.max(alone)),
            None => bytes.max(alone),
        }
    }

    /// Whether any rung has anything of a frame.
    pub(super) fn is_coded(&self, frame: usize) -> bool {
        self.coded
            .as_ref()
            .is_none_or(|coded| coded.bytes[frame % coded.bytes.len()].iter().any(|bytes| *bytes > 0))
    }

    /// What policies are told of how frames refer to each other.
    pub(super) fn coding(&self, chain: Option<&ChainEnd>) -> Option<Coding<'_>> {
        let Coded { alone, every, widths, .. } = self.coded.as_ref()?;
        let (continues, left_out) = (chain.map(|chain| chain.rung), chain.map_or(0, |chain| chain.left_out));
        let stretches = !widths.is_empty();
        let plain = Coding { continues, left_out, alone, every, stretches, goes_on: &[] };
        Some(match continues.and_then(|rung| self.after.get(rung)) {
            Some(After { alone, goes_on }) => Coding { alone, goes_on, ..plain },
            None => plain,
        })
    }
}

fn after(coded: &Coded, ladder: &Ladder) -> Vec<After> {
    let rungs = if coded.widths.is_empty() { 0..0 } else { 0..ladder.len() };
    let after = |from: usize| {
        let goes_on: Vec<bool> = (0..ladder.len()).map(|to| coded.goes_on(from, to)).collect();
        let sizes = |to: usize| if goes_on[to] { ladder.rungs()[to].bytes } else { coded.alone[to] };
        After { alone: (0..ladder.len()).map(sizes).collect(), goes_on }
    };
    rungs.map(after).collect()
}

/// What the next frame can refer to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChainEnd {
    pub(super) rung: usize,
    /// Frames that the rung would have had since, and their bytes.
    pub(super) left_out: u32,
    pub(super) left_out_bytes: f64,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlotResult {
    /// The rung that it was sent at, if it was sent.
    pub rung: Option<u8>,
    /// From capture to arrival, if it arrived.
    pub latency_ms: Option<f64>,
    /// What the policy had expected.
    pub on_time_probability: Option<f64>,
    /// No rung at or above the floor was expected to be on time often enough.
    pub infeasible: bool,
    /// What it had.
    pub bytes: u32,
    /// When it was sent, after its capture.
    pub sent_after: Option<Duration>,
}
