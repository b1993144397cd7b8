//! Describes the stations on a medium, and changes there.

use super::Constants;

/// A station: a camera, or the access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// The highest rate, in Mbit/s.
    pub phy_mbps: f64,
    /// The share of lost MPDUs.
    pub mpdu_loss: f64,
    /// The most packets in the driver's queue.
    pub queue_packets_max: usize,
}

impl Constants {
    /// A station with the default rate, losses and queue.
    pub const fn station(&self) -> Station {
        Station {
            phy_mbps: self.phy_mbps,
            mpdu_loss: self.mpdu_loss,
            queue_packets_max: self.queue_packets_max,
        }
    }
}

/// What a camera sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean bytes of a frame.
    pub bytes: f64,
    /// Frames in a second.
    pub frames_per_second: f64,
    /// The relative deviation of the sizes.
    pub size_noise: f64,
    /// Mean times for which the camera sends and pauses, both exponential, in milliseconds. `None`: it always sends.
    pub on_off_ms: Option<(f64, f64)>,
}

/// A device that radiates in bursts without sensing the medium: a microwave oven, a radio of another kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interferer {
    /// Mean time for which the device is active, exponential, in milliseconds.
    pub on_ms_mean: f64,
    /// Mean time for which the device is inactive, exponential, in milliseconds. It is inactive at first.
    pub off_ms_mean: f64,
    /// The length of a burst, in microseconds. A transmission that overlaps a burst is lost.
    pub burst_us: f64,
    /// The time between two bursts, in microseconds.
    pub gap_us: f64,
    /// Whether stations sense the device and wait.
    pub is_sensed: bool,
}

impl Interferer {
    /// A microwave oven, which radiates in half of each period of the mains: 8.3 of 16.7 ms at 60 Hz.
    pub const fn oven(on_ms_mean: f64, off_ms_mean: f64) -> Self {
        Self { on_ms_mean, off_ms_mean, burst_us: 8_300.0, gap_us: 8_400.0, is_sensed: false }
    }
}

/// A change at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When, in milliseconds.
    pub at_ms: f64,
    /// The change.
    pub what: What,
}

/// The kind of a change. Stations are counted from 0. The station after the cameras is the access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A station moves.
    Station {
        /// The station's index.
        station: usize,
        /// The station's rate, losses and queue from now on.
        to: Station,
    },
    /// A camera changes its load, or stops, after the frame in service.
    Load {
        /// The camera's index.
        camera: usize,
        /// What the camera sends. `None`: nothing.
        to: Option<Load>,
    },
    /// Two stations cease or begin to sense each other.
    Hidden {
        /// The two stations.
        stations: (usize, usize),
        /// Whether they cease (true) or begin to sense each other.
        is_hidden: bool,
    },
    /// An interferer is switched on or off, and stays so.
    Interferer {
        /// The interferer's index.
        interferer: usize,
        /// Whether the interferer is active.
        is_on: bool,
    },
}

/// The stations and interferers of a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// The constants that all stations share.
    pub constants: Constants,
    /// The cameras, each with its load.
    pub cameras: Vec<(Station, Option<Load>)>,
    /// The access point, which acknowledges packets of all stations.
    pub access_point: Station,
    /// Pairs of stations that do not sense each other. No pair includes the access point: a station that
    /// the access point does not hear could not have associated.
    pub hidden: Vec<(usize, usize)>,
    /// The interferers.
    pub interferers: Vec<Interferer>,
    /// The changes, in order of time.
    pub changes: Vec<Change>,
}

impl Scene {
    /// A scene of cameras that all sense each other, without interferers.
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
