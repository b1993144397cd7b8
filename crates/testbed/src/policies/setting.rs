//! Describes the settings in which policies are compared: a link, cameras, and their frames.

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
    /// The rungs that the camera can send.
    pub ladder: Ladder,
    /// When the first frame is captured.
    pub phase: Duration,
    /// The latency bound, from capture to arrival.
    pub latency_bound: Duration,
    /// The accuracy floor.
    pub accuracy_floor: Option<f64>,
}

/// A setting in which policies are compared.
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
    /// What happens to a frame that finds the link busy.
    pub queueing: Queueing,
    /// The goal by which the edge divides the channel. `None`: it sends no shares.
    pub share: Option<Goal>,
}

/// The sizes of frames at each rung.
#[derive(Clone, Debug)]
pub enum Sizes {
    /// The mean of the profile, times a factor that varies by `noise` from frame to frame.
    Drawn {
        /// Standard deviation of the factor.
        noise: f64,
        /// The seed of the factors.
        seed: u64,
    },
    /// The sizes of encoded frames, the same for every camera.
    Coded(Coded),
}

/// Frames of an encoder. Each refers to the previous one.
#[derive(Clone, Debug, PartialEq)]
pub struct Coded {
    /// Bytes by frame and rung. After the last frame comes the first. A frame without bytes is left out.
    pub bytes: Vec<Vec<u32>>,
    /// By rung: the bytes of a keyframe. The first frame at a rung is a keyframe, and the first frame after one that was given up.
    pub alone: Vec<ByteSizes>,
    /// By rung: one frame in this many is sent.
    pub every: Vec<u32>,
    /// By rung: the width of the pictures, if the encoder can change its quantiser within a chain, as in a real camera. A chain then continues at any
    /// rung of the same width, and a frame can be made larger than its rung says. Empty: a chain continues only at its own rung.
    pub widths: Vec<u16>,
}

impl Coded {
    /// Whether a frame at rung `to` can refer to one at rung `from`.
    fn goes_on(&self, from: usize, to: usize) -> bool {
        from == to || !self.widths.is_empty() && self.widths[from] == self.widths[to]
    }
}

/// The sizes that are offered to a policy, after a frame at a certain rung.
#[derive(Clone, Debug)]
struct After {
    /// The size at each rung: of a frame that refers to the last one, or of a keyframe if it cannot.
    alone: Vec<ByteSizes>,
    goes_on: Vec<bool>,
}

/// What happens to a frame that finds the link busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// The frame waits, and a newer frame replaces it.
    NewestWins,
    /// The frame is sent after all earlier frames, as through a TCP socket. No frame is given up.
    Every,
}

/// The frames of a setting: their capture times and size factors.
#[derive(Clone, Debug)]
pub struct Slots {
    /// Frames of each camera.
    pub frames: usize,
    interval: Duration,
    phases: Vec<Duration>,
    /// By camera and frame: the size of every rung, as a multiple of its mean. A busy scene is large at every rung.
    factors: Vec<Vec<f64>>,
    coded: Option<Coded>,
    /// By the rung of the previous frame. Empty if a chain continues only at its own rung.
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

    /// The size of a frame at a rung if it can refer to the previous one.
    pub fn bytes(&self, camera: usize, frame: usize, ladder: &Ladder, rung: usize) -> f64 {
        match &self.coded {
            Some(coded) => f64::from(coded.bytes[frame % coded.bytes.len()][rung]),
            None => (ladder.rungs()[rung].bytes.mean * self.factors[camera][frame]).round(),
        }
    }

    /// Whether a frame is a keyframe in any case, because an encoder begins a new chain from time to time.
    /// A frame that is as large as a keyframe refers to no other.
    pub(super) fn stands_alone(&self, frame: usize, rung: usize) -> bool {
        self.coded.as_ref().is_some_and(|coded| {
            f64::from(coded.bytes[frame % coded.bytes.len()][rung]) >= coded.alone[rung].mean.round()
        })
    }

    /// The bytes of a frame after the frames sent before. It includes the changes of frames that were left out.
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

    /// Whether any rung has bytes for a frame.
    pub(super) fn is_coded(&self, frame: usize) -> bool {
        self.coded
            .as_ref()
            .is_none_or(|coded| coded.bytes[frame % coded.bytes.len()].iter().any(|bytes| *bytes > 0))
    }

    /// What policies are told of the references between frames.
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

/// The last frame of a chain, to which the next one can refer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChainEnd {
    pub(super) rung: usize,
    /// How many frames the rung would have had since, and their bytes.
    pub(super) left_out: u32,
    pub(super) left_out_bytes: f64,
}

/// The result of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlotResult {
    /// The rung of the frame, if it was sent.
    pub rung: Option<u8>,
    /// The time from capture to arrival in milliseconds, if the frame arrived.
    pub latency_ms: Option<f64>,
    /// The probability that the policy expected.
    pub on_time_probability: Option<f64>,
    /// Whether no rung at or above the floor was expected to be on time often enough.
    pub infeasible: bool,
    /// The bytes of the frame.
    pub bytes: u32,
    /// The time from capture to sending.
    pub sent_after: Option<Duration>,
}
