//! Simulates a deterministic world around the brokers of `mez-core`: cameras, links, edges and applications on
//! one virtual clock and one seed. It has faults, and rules that are checked at every event.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`world`] | the world: making, running, faults |
//! | [`scenario`] | worlds drawn at random |
//! | [`scenario_file`] | worlds written down in TOML, with what is expected of them |
//! | [`check`] | what must hold in every world |
//! | [`footage`] | what cameras see, and what codecs make of it |
//! | [`disk`] | a disk that tears, fails and runs full under a camera's log, and stories that are played on it |
//! | [`link`] | the model of a link and of the connections on it |
//! | [`awstream`] | the experiment of AWStream, replayed from its published measurements |
//! | [`policies`] | policies against an oracle, on links whose future is known |
//! | [`channel`] | what links carry: models, recordings, a Wi-Fi medium |
//! | [`time`] | true time, and hosts' clocks, which are wrong |
//! | [`random`] | the one source of chance |

pub mod awstream;
mod chance;
pub mod channel;
pub mod check;
pub mod disk;
pub mod footage;
pub mod link;
mod payload;
pub mod policies;
pub mod random;
pub mod scenario;
pub mod scenario_file;
pub mod time;
mod trace;
pub mod world;

pub use crate::footage::Footage;
pub use crate::link::LinkSpec;
pub use crate::payload::PAYLOAD_BYTES_MAX;
pub use crate::time::{HostClock, Moment, ms, secs};
pub use crate::world::{
    Action, ApplicationId, ApplicationSpec, Ask, AttackSpec, Bug, By, CameraCounts, CameraId, CameraSpec,
    CaptureTimes, Conduct, Counter, Delivered, DeriveSpec, DiskSpec, EdgeId, EdgeSpec, Failure, GroupEvent,
    GroupId, GroupSpec, Host, Library, MediumId, MediumSpec, Member, Mishaps, Resumes, RightsId, SiteAction,
    SourceVideo, Told, VisitorId, VisitorSpec, WorkerSpec, World, noticed,
};

/// `mbps(20)` is 20,000,000 bits per second.
pub const fn mbps(mbps: u64) -> u64 {
    mbps * 1_000_000
}
