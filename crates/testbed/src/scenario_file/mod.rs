//! Runs worlds that a TOML file describes: cameras, links, applications, changes, and expectations. `docs/scenarios.md` describes every field. The
//! files in `crates/testbed/scenarios/` are examples and tests.
//!
//! ```
//! use mez_testbed::scenario_file::Scenario;
//!
//! let scenario: Scenario = r#"
//!     name = "one_camera"
//!     seconds = 5
//!     [[camera]]
//!     name = "dock/cam1"
//!     [[subscription]]
//!     name = "people"
//!     cameras = "dock/*"
//!     [[expect]]
//!     subscription = "people"
//!     frames_min = 40
//! "#
//! .parse()?;
//! let report = scenario.run(scenario.seed())?;
//! assert!(report.missed().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod read;
mod real;
mod run;
mod shipped;

use std::time::Duration;

use mez_core::controller::share::Channels;

pub use self::read::ScenarioError;
pub use self::real::Wanted;
pub use self::run::{Report, Seen};
pub use self::shipped::SHIPPED;
use crate::channel::links::Kind;
use crate::disk::Faults;
use crate::footage::Footage;
use crate::world::{ApplicationSpec, CameraSpec, Counter, DiskSpec};

/// A scenario whose file was read without an error.
#[derive(Clone, Debug)]
pub struct Scenario {
    name: String,
    about: String,
    seed: u64,
    length: Duration,
    /// How the edge keeps its replicas on disk.
    edge_disk: Option<DiskSpec>,
    codecs_fail: bool,
    /// The channels declared to the edge.
    declared: Channels,
    cameras: Vec<(String, CameraSpec)>,
    /// The kind of each camera's link, if its rates are drawn for every seed.
    channels: Vec<Option<Kind>>,
    /// The medium that links share, and the cameras that share it.
    shared: Option<(Sharing, Vec<usize>)>,
    subscriptions: Vec<(String, ApplicationSpec)>,
    /// The footage whose profile each subscription names.
    profiles: Vec<Option<Footage>>,
    changes: Vec<Change>,
    expectations: Vec<Expectation>,
}

impl Scenario {
    /// The name of the scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The subject of the scenario, in a sentence.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The seed of the file.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The duration of the scenario, in virtual time.
    pub const fn length(&self) -> Duration {
        self.length
    }
}

/// A medium that cameras share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// One queue before one bottleneck.
    Queue,
    /// A Wi-Fi medium on which all stations hear each other.
    Wifi,
    /// A Wi-Fi medium on which the first two stations do not hear each other. A station that failed sends an RTS before it tries again.
    WifiHidden,
    /// A Wi-Fi medium beside a microwave oven that is on half of the time.
    WifiOven,
}

impl Sharing {
    /// All media, with their names in files.
    const ALL: [(&'static str, Self); 4] = [
        ("queue", Self::Queue),
        ("wifi", Self::Wifi),
        ("wifi_hidden", Self::WifiHidden),
        ("wifi_oven", Self::WifiOven),
    ];
}

/// A change at a moment.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// The index of the `[[change]]` in the file.
    entry: usize,
    at: Duration,
    what: Happening,
}

/// The kind of a change. Cameras and subscriptions are given by index.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Rate(usize, u64),
    Cut(usize),
    Restore(usize),
    Break(usize),
    KillCamera(usize),
    StartCamera(usize, Counter),
    FreezeCamera(usize),
    ThawCamera(usize),
    SilenceCamera(usize),
    PublishCamera(usize),
    StepWallOfCamera(usize, i64),
    CutPowerOfCamera(usize),
    DiskOfCamera(usize, Faults),
    CutPowerOfEdge,
    KillEdge,
    StartEdge,
    FreezeEdge,
    ThawEdge,
    Stall(usize),
    Resume(usize),
    Subscribe(usize),
    Unsubscribe(usize),
    Heal,
}

/// What is expected of one subscription, and perhaps of one camera, in a time span.
#[derive(Clone, Debug)]
struct Expectation {
    subscription: usize,
    camera: Option<String>,
    from: Duration,
    until: Duration,
    frames_min: Option<u64>,
    frames_max: Option<u64>,
    /// Frames within the latency bound of the subscription's contract.
    on_time_min: Option<u64>,
    first_age_max: Option<Duration>,
    age_p50_max: Option<Duration>,
    age_p95_max: Option<Duration>,
    gap_max: Option<Duration>,
    infeasible_share_max: Option<f64>,
    /// Share of frames whose accuracy the profile does not state.
    unmeasured_share_max: Option<f64>,
    /// Share of frames whose rung has an accuracy below the floor, for what the camera sees.
    below_floor_share_max: Option<f64>,
    /// Share of frames below the floor that come while the contract is stated as kept.
    ok_below_floor_share_max: Option<f64>,
}
