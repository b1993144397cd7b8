//! Serves the applications' interface: what programs in any language see of a broker.
//!
//! `proto/mez/v1/mez.proto` describes it for people who write clients. Two ways lead to the same code: gRPC,
//! over TLS and over a Unix socket, and the lighter [local protocol](crate::local) of our own client library,
//! on the same Unix socket.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`pb`] | the messages and services, generated |
//! | [`request`] | requests, checked once |
//! | [`contract`] | a contract as a message, and back |
//! | [`convert`] | what the core says, as messages |
//! | [`group`] | what a member asks of a group and says of its records, checked once |
//! | `groups` | what an edge broker answers about groups |
//! | [`image`] | whether a payload is the image that it is said to be |
//! | [`error`] | errors with machine-readable details |
//! | [`edge`], [`camera`] | what each broker answers, whichever way the question came |
//! | [`derived`] | what an edge broker takes in of those who publish derived streams |
//! | `page` | what is asked over HTTP (`web/`) |
//! | [`principal`] | who is asking |
//! | `access` | whether they may: the one place that asks the rights |
//! | [`check`] | whether they would be allowed to, for whoever only asks |
//! | `subscriptions` | the open subscriptions, and what is asked of one from outside its stream |
//! | [`feed`] | a subscription as a stream of events |
//! | `source` | where its frames come from |
//! | `lent` | payloads on their way, and the memory that they hold meanwhile |
//! | `events` | a subscription as the body of a gRPC response |
//! | `places` | how many connections each principal has |
//! | `calls` | what every gRPC call goes through: how many there may be, errors with details |
//! | `grpc` | the generated services, in terms of the two |
//! | [`socket`] | the Unix socket: its path, its permissions, who listens on it |
//! | [`serve`] | listeners and their connections |

mod access;
mod calls;
pub mod camera;
pub mod check;
mod connect;
pub mod contract;
pub mod convert;
pub mod derived;
pub(crate) mod duration;
pub mod edge;
pub mod error;
mod events;
pub mod feed;
pub mod group;
mod groups;
mod grpc;
pub mod image;
pub(crate) mod lent;
mod notes;
pub(crate) mod page;
pub(crate) mod past;
mod places;
pub mod principal;
mod renewal;
pub mod request;
mod revocations;
pub mod serve;
pub mod socket;
mod source;
mod subscriptions;

/// The messages and services of `mez.proto`.
#[allow(missing_docs, clippy::all, reason = "generated; documented in mez.proto")]
pub mod pb {
    tonic::include_proto!("mez.v1");

    /// The descriptors of the interface, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mez.v1.bin"));
}

pub use self::error::{ApiError, Limit};
pub use self::principal::Principal;
pub use self::serve::{ApiServer, ServeError};
pub use mez_core::reader_memory::ReaderMemoryLimits;

use mez_core::answers::ANSWER_BYTES_MAX;
use mez_core::broker::edge::DERIVED_BYTES_MAX;

use self::camera::CameraApi;
use self::edge::EdgeApi;
use crate::audit::Audit;

/// The version of the interface. There is only one.
pub const VERSION: u32 = 1;
/// The reason of a stream's end that says: subscribe again, and have other cameras of the pattern than before.
pub(crate) const RIGHTS_CHANGED: &str = "RIGHTS_CHANGED";
/// The most bytes in an application's name.
pub const APPLICATION_BYTES_MAX: usize = 128;
/// The most bytes in a profile that a request carries.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;
/// The most bytes in a message, without a frame's payload: a profile and 64 KiB for everything else.
pub const MESSAGE_BYTES_MAX: usize = PROFILE_BYTES_MAX + (64 << 10);
/// The name under which brokers and clients of this version announce their software.
pub const SOFTWARE: &str = concat!("mez ", env!("CARGO_PKG_VERSION"));

/// The limits of what a broker serves at once, in all and for each principal: a certificate's identity, or a
/// user of its host. A request beyond a limit is refused with `RESOURCE_EXHAUSTED` and the limit's name.
/// `docs/limits.md` lists all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// The most connections of all kinds. Default 512, half of the file descriptors that a process usually
    /// has. One more is closed at once.
    pub connections_max: usize,
    /// The most connections of one principal. Default 384, three quarters of all. One more is closed at once.
    pub connections_per_principal_max: usize,
    /// The most subscriptions. Default 1024.
    pub subscriptions_max: usize,
    /// The most subscriptions of one principal. Default 256, a quarter of all.
    pub subscriptions_per_principal_max: usize,
    /// The most calls in progress on one gRPC connection, including subscriptions and publishing streams.
    /// Default 256.
    pub calls_per_connection_max: usize,
    /// Bytes held for applications that do not take them, besides what logs hold. Default 16 MiB for all
    /// applications, and 8 MiB for those of one principal. An application that stands still for 5 s makes
    /// room for others.
    pub reader_memory: ReaderMemoryLimits,
    /// The most bytes of frames of the past that one principal reads in a second, with a second's worth in advance.
    /// Its readings wait beyond that. Default `None`: as many as come.
    pub past_bytes_per_second: Option<u64>,
    /// How many programs of this host that decode video have to follow a camera before the edge decodes it once for all
    /// of them. Default 2. 0: never; each program decodes for itself.
    pub shared_pictures_from: usize,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            connections_max: 512,
            connections_per_principal_max: 384,
            subscriptions_max: 1024,
            subscriptions_per_principal_max: 256,
            calls_per_connection_max: 256,
            reader_memory: ReaderMemoryLimits::default(),
            past_bytes_per_second: None,
            shared_pictures_from: 2,
        }
    }
}

/// Which broker answers.
#[derive(Clone)]
pub(crate) enum Broker {
    Edge(Box<EdgeApi>),
    Camera(CameraApi),
}

impl Broker {
    /// Where it is recorded who joined; nowhere at a camera broker.
    pub(crate) fn audit(&self) -> Audit {
        match self {
            Self::Edge(api) => api.edge.audit().clone(),
            Self::Camera(_) => Audit::off(),
        }
    }

    /// Becomes true when the broker's server stops.
    pub(crate) fn stopping(&self) -> tokio::sync::watch::Receiver<bool> {
        match self {
            Self::Edge(api) => api.stopping.clone(),
            Self::Camera(api) => api.stopping.clone(),
        }
    }

    /// The largest payload that any request may have. What it is of may have a smaller limit.
    pub(crate) fn payload_bytes_max(&self) -> u32 {
        match self {
            Self::Edge(_) => DERIVED_BYTES_MAX.max(ANSWER_BYTES_MAX),
            Self::Camera(api) => api.camera.frame_bytes_max(),
        }
    }
}
