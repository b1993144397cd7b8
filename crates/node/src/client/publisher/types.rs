//! Options, events and errors of publishers.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::name::CameraName;

use crate::api::ApiError;
use crate::client::ClientError;
use crate::reply::ReplyContent;

/// Options of a publisher.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// How long to retry the first connection. Default 5 s.
    pub patience: Duration,
    /// The most frames that may wait for the broker. Beyond that, the oldest is dropped and counted. Default 4.
    pub waiting_frames_max: usize,
}

/// The name and the sources of a derived stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedStream {
    /// The stream's name.
    pub name: CameraName,
    /// The streams that it is made of. Empty: the stream whose name is the parent of this name.
    pub of: Vec<CameraName>,
}

impl Default for PublisherOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(5), waiting_frames_max: 4 }
    }
}

/// Why a frame was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The frame has no pixels or no bytes.
    #[error(
        "the frame is empty ({width}x{height} pixels, {bytes} bytes); publish frames of at least one pixel"
    )]
    Empty {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The payload's size.
        bytes: usize,
    },
    /// The data record has no bytes.
    #[error("the record is empty; publish at least one byte")]
    EmptyData,
    /// The payload is larger than the broker's limit.
    #[error(
        "the frame has {bytes} bytes, more than the broker's limit of {bytes_max}; encode it smaller, or start the \
         broker with a higher --frame-bytes-max"
    )]
    TooLarge {
        /// The payload's size.
        bytes: usize,
        /// The broker's limit.
        bytes_max: u32,
    },
    /// The broker reported a permanent failure, and nothing more is sent.
    #[error("the broker no longer takes frames: {0}")]
    Over(ClientError),
}

/// What happens to a publisher.
#[derive(Clone, Debug, PartialEq)]
pub enum PublisherEvent {
    /// A frame is in the camera's log.
    Accepted {
        /// The number that [`PublisherClient::send`](super::PublisherClient::send) returned.
        number: u64,
        /// The identity of the frame, which replies name.
        frame: FrameId,
    },
    /// A frame was not taken.
    Refused {
        /// The number that [`PublisherClient::send`](super::PublisherClient::send) returned.
        number: u64,
        /// The reason.
        error: ApiError,
    },
    /// The answer to [`PublisherClient::await_on_disk`](super::PublisherClient::await_on_disk).
    OnDisk {
        /// The number that `await_on_disk` returned.
        number: u64,
        /// Why the record is not known to be on disk. `None`: it is on disk. With the reason `LOG_DEGRADED` the record is in the stream: ask again.
        error: Option<ApiError>,
    },
    /// An application's result for a frame.
    Reply {
        /// The frame.
        frame: FrameId,
        /// The application.
        application: String,
        /// The result. Detections are in published pixels.
        content: ReplyContent,
    },
    /// The broker was lost. The client tries to reconnect. Frames sent meanwhile are dropped and counted.
    Disconnected {
        /// The reason.
        reason: ClientError,
    },
    /// The broker is back.
    Reconnected,
    /// The broker reported a permanent failure. This is the last event.
    Failed {
        /// The reason.
        reason: ClientError,
    },
}

/// What happened to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounts {
    /// Passed to [`PublisherClient::send`](super::PublisherClient::send).
    pub sent: u64,
    /// Accepted by the broker.
    pub accepted: u64,
    /// Refused by the broker.
    pub refused: u64,
    /// Dropped here: newer frames were waiting, or there was no connection.
    pub dropped: u64,
    /// Lost with the connection: sent, and never answered.
    pub lost: u64,
}
