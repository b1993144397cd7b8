//! What is on a medium, and what changes there.

use super::Constants;

/// A station: a camera, or the access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Its highest rate, in Mbit/s.
    pub phy_mbps: f64,
    /// Lost MPDUs, as a share.
    pub mpdu_loss: f64,
    /// Packets in its driver's queue, at most.
    pub queue_packets_max: usize,
}

/// What a camera sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean bytes of a frame.
    pub bytes: f64,
    /// Frames in a second.
    pub frames_per_second: f64,
    /// How much the sizes vary, as a share.
    pub size_noise: f64,
    /// Mean times for which it sends and is silent, both exponential, in milliseconds; left out, it always sends.
    pub on_off_ms: Option<(f64, f64)>,
}

/// What radiates without asking whether the medium is free: a microwave oven, a radio of another kind. It works in bursts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interferer {
    /// Mean time for which it is at work, exponential, in milliseconds.
    pub on_ms_mean: f64,
    /// Mean time between, exponential, in milliseconds. It begins with such a time.
    pub off_ms_mean: f64,
    /// A burst, in microseconds. What is on the air beside it is lost.
    pub burst_us: f64,
    /// Between two bursts, in microseconds.
    pub gap_us: f64,
    /// Whether stations sense it and wait.
    pub is_sensed: bool,
}

impl Interferer {
    /// A microwave oven, which radiates in half of each period of the mains: 8.3 of 16.7 ms at 60 Hz.
    pub const fn oven(on_ms_mean: f64, off_ms_mean: f64) -> Self {
        Self { on_ms_mean, off_ms_mean, burst_us: 8_300.0, gap_us: 8_400.0, is_sensed: false }
    }
}

/// Something that becomes different at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When, in milliseconds.
    pub at_ms: f64,
    /// What.
    pub what: What,
}

/// What becomes different. Stations are counted from 0; the one after the cameras is the access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A station moves.
    Station {
        /// Which.
        station: usize,
        /// Its rate, losses and queue from now on.
        to: Station,
    },
    /// A camera sends something else, or nothing, after the frame in service.
    Load {
        /// Which.
        camera: usize,
        /// What it sends.
        to: Option<Load>,
    },
    /// Two stations cease or begin to sense each other.
    Hidden {
        /// They do not sense each other.
        stations: (usize, usize),
        /// Whether that begins or ends.
        is_hidden: bool,
    },
    /// An interferer is switched on or off, and stays so.
    Interferer {
        /// Which.
        interferer: usize,
        /// Whether it is at work.
        is_on: bool,
    },
}

/// What is on a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// What all stations have in common.
    pub constants: Constants,
    /// The cameras: what each is like, and what it sends.
    pub cameras: Vec<(Station, Option<Load>)>,
    /// The access point, which has answers for all.
    pub access_point: Station,
    /// Pairs of stations that do not sense each other. The access point senses everybody and is sensed by everybody, or nobody
    /// could have associated.
    pub hidden: Vec<(usize, usize)>,
    /// What disturbs them.
    pub interferers: Vec<Interferer>,
    /// What becomes different, in the order of time.
    pub changes: Vec<Change>,
}

impl Scene {
    /// Cameras that all sense each other, undisturbed.
    pub fn new(constants: &Constants, loads: &[Load]) -> Self {
        let station = constants.station();
        Self {
            constants: *constants,
            cameras: loads.iter().map(|load| (station, Some(*load))).collect(),
            access_point: station,
            hidden: Vec::new(),
            interferers: Vec::new(),
            changes: Vec::new(),
        }
    }
}
