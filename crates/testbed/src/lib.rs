//! Simulates a deterministic world around the brokers of `mez-core`: cameras, links, edges and applications on one virtual clock and one seed. Worlds
//! have faults, and rules that are checked at every event.
//!
//! | module | contents |
//! | --- | --- |
//! | [`world`] | the world: construction, events, faults |
//! | [`scenario`] | random worlds |
//! | [`scenario_file`] | worlds and expectations as TOML files |
//! | [`check`] | the rules that hold in every world |
//! | [`footage`] | what cameras see, and the sizes and accuracies that codecs make of it |
//! | [`disk`] | a disk that tears, fails and fills up under a camera's log, and tests on such disks |
//! | [`link`] | the model of a link and of the connections on it |
//! | [`awstream`] | the experiment of AWStream, replayed from its published measurements |
//! | [`policies`] | policies against an oracle, on links whose future is known |
//! | [`channel`] | models of channels: random models, recordings, a Wi-Fi medium |
//! | [`time`] | true time, and the hosts' inexact clocks |
//! | [`random`] | the only source of random numbers |

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
    Action, AnswerSpec, ApplicationId, ApplicationSpec, Ask, AttackSpec, Bug, By, CameraCounts, CameraId,
    CameraSpec, CaptureTimes, Conduct, Counter, Delivered, DeriveSpec, DiskSpec, EdgeId, EdgeSpec, Failure,
    GroupEvent, GroupId, GroupSpec, Host, Library, MediumId, MediumSpec, Member, Mishaps, Resumes, RightsId,
    SiteAction, SourceVideo, TakeSpec, Told, VisitorId, VisitorSpec, WorkerSpec, World, noticed,
};

/// `mbps(20)` is 20,000,000 bits per second.
pub const fn mbps(mbps: u64) -> u64 {
    mbps * 1_000_000
}
