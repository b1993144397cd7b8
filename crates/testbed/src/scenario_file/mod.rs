//! Runs worlds that a TOML file describes: cameras, links, applications, what changes when, and what is expected.
//! `docs/scenarios.md` describes every field. The files in `crates/testbed/scenarios/` are examples, and are tests.
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
    /// The channels that are declared to the edge.
    declared: Channels,
    cameras: Vec<(String, CameraSpec)>,
    /// The kind of each camera's link, if its rates are drawn anew for every seed.
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
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its subject, in a sentence.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The seed that its file gives.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// How long it lasts, in virtual time.
    pub const fn length(&self) -> Duration {
        self.length
    }
}

/// A medium that cameras share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// One queue in front of one bottleneck.
    Queue,
    /// A Wi-Fi medium on which all stations hear each other.
    Wifi,
    /// A Wi-Fi medium on which the first two stations do not hear each other. A station that failed asks first (RTS, CTS).
    WifiHidden,
    /// A Wi-Fi medium beside a microwave oven, which runs for half of the time.
    WifiOven,
}

impl Sharing {
    /// All of them, by the names that files use.
    const ALL: [(&'static str, Self); 4] = [
        ("queue", Self::Queue),
        ("wifi", Self::Wifi),
        ("wifi_hidden", Self::WifiHidden),
        ("wifi_oven", Self::WifiOven),
    ];
}

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Which `[[change]]` of the file says so.
    entry: usize,
    at: Duration,
    what: Happening,
}

/// What happens. Cameras and subscriptions are named by their places in the lists.
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

/// What is expected of one subscription, and perhaps of one camera, in a span of time.
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
    /// Frames whose accuracy nobody knows by the profile.
    unmeasured_share_max: Option<f64>,
    /// Frames of a rung that takes more than the floor away from what the camera sees.
    below_floor_share_max: Option<f64>,
    /// Those of them whose contract is called kept.
    ok_below_floor_share_max: Option<f64>,
}
