//! Serves the applications' interface: the broker as programs in any language see it.
//!
//! `proto/mez/v1/mez.proto` describes it for authors of clients. The same code serves gRPC, over TLS and over a
//! Unix socket, and the lighter [local protocol](crate::local) of our own client library, on the same Unix socket.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`pb`] | the messages and services, generated |
//! | [`request`] | checks of requests |
//! | [`contract`] | conversion of contracts to and from messages |
//! | [`convert`] | conversion of the core's values to and from messages |
//! | [`group`] | checks of group requests and settlements |
//! | `groups` | an edge broker's handling of requests about groups |
//! | [`image`] | checks whether a payload matches its description |
//! | [`error`] | errors with machine-readable details |
//! | [`edge`], [`camera`] | each broker's handling of requests, for both protocols |
//! | [`derived`] | an edge broker's intake of derived streams |
//! | `page` | requests over HTTP (`web/`) |
//! | [`principal`] | the identity of the caller |
//! | `access` | checks of rights; no other module checks them |
//! | [`check`] | tells a caller which rights it has |
//! | `subscriptions` | the open subscriptions, and requests to them from outside their streams |
//! | [`feed`] | a subscription as a stream of events |
//! | `source` | the source of a subscription's frames |
//! | `lent` | payloads on their way, and the memory that they use meanwhile |
//! | `answers` | the answers of a camera, for the one program that takes them |
//! | `events` | a subscription, or a stream of answers, as the body of a gRPC response |
//! | `places` | the number of connections of each principal |
//! | `calls` | the common part of all gRPC calls: limits, errors with details |
//! | `grpc` | the generated services, implemented with `edge` and `camera` |
//! | [`socket`] | the Unix socket: its path, its permissions, its lock |
//! | [`serve`] | listeners and their connections |

mod access;
pub(crate) mod answers;
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

pub use self::answers::ANSWERS_TAKEN;
pub use self::error::{ApiError, Limit};
pub use self::principal::Principal;
pub use self::serve::{ApiServer, Listens, ServeError};
pub use mez_core::reader_memory::ReaderMemoryLimits;

use mez_core::answers::ANSWER_BYTES_MAX;
use mez_core::broker::edge::DERIVED_BYTES_MAX;

use self::camera::CameraApi;
use self::edge::EdgeApi;
use crate::audit::Audit;

/// The version of the interface. There is only one.
pub const VERSION: u32 = 1;
/// The reason when a stream ends because rights have changed: subscribe again, possibly with other cameras of the pattern.
pub(crate) const RIGHTS_CHANGED: &str = "RIGHTS_CHANGED";
/// The most bytes of an application's name.
pub const APPLICATION_BYTES_MAX: usize = 128;
/// The most bytes of a profile in a request.
pub const PROFILE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a message, without a frame's payload: a profile, and 64 KiB for everything else.
pub const MESSAGE_BYTES_MAX: usize = PROFILE_BYTES_MAX + (64 << 10);
/// The name and version of the software, as brokers and clients announce them.
pub const SOFTWARE: &str = concat!("mez ", env!("CARGO_PKG_VERSION"));

/// The limits of a broker, in total and for each principal: a certificate's identity, or a user of the broker's host. A
/// request beyond a limit is refused with `RESOURCE_EXHAUSTED` and the limit's name. `docs/limits.md` lists all limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiLimits {
    /// The most connections of all kinds. Default 512, half of the file descriptors
    /// that a process usually has. Further connections are closed at once.
    pub connections_max: usize,
    /// The most connections of one principal. Default 384, three quarters of all. Further connections are closed at once.
    pub connections_per_principal_max: usize,
    /// The most subscriptions. Default 1024.
    pub subscriptions_max: usize,
    /// The most subscriptions of one principal. Default 256, a quarter of all.
    pub subscriptions_per_principal_max: usize,
    /// The most calls in progress on one gRPC connection, including subscriptions and publishing streams.
    /// Default 256.
    pub calls_per_connection_max: usize,
    /// Bytes held for applications that do not take them, in addition to the logs. Default 16 MiB for all applications,
    /// and 8 MiB for those of one principal. An application that is stalled for 5 s makes room for others.
    pub reader_memory: ReaderMemoryLimits,
    /// The most bytes of frames of the past that one principal may read per second, with
    /// a burst of one second. Beyond that, its readings wait. Default `None`: no limit.
    pub past_bytes_per_second: Option<u64>,
    /// How many programs on this host that decode video must follow a camera before the edge
    /// decodes it once for all of them. Default 2. 0: never, each program decodes for itself.
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

/// The broker that answers.
#[derive(Clone)]
pub(crate) enum Broker {
    Edge(Box<EdgeApi>),
    Camera(CameraApi),
}

impl Broker {
    /// The audit log that records connections. A camera broker has none.
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

    /// The largest payload of any request. The limit of a specific request may be smaller.
    pub(crate) fn payload_bytes_max(&self) -> u32 {
        match self {
            Self::Edge(_) => DERIVED_BYTES_MAX.max(ANSWER_BYTES_MAX),
            Self::Camera(api) => api.camera.frame_bytes_max(),
        }
    }
}
