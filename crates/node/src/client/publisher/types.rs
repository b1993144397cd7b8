//! Defines the settings, events and errors of publishers.

use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::name::CameraName;

use crate::api::ApiError;
use crate::client::ClientError;
use crate::reply::ReplyContent;

/// How a publisher behaves.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// How long to go on dialling before the first connection is given up. Default 5 s.
    pub patience: Duration,
    /// The most frames that may wait for the broker. Beyond that, the oldest is dropped and counted. Default
    /// 4.
    pub waiting_frames_max: usize,
}

/// What a derived stream is, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedStream {
    /// Its name.
    pub name: CameraName,
    /// The streams that it is made of. Empty: the one below which its name lies.
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
    /// No pixels, or no bytes.
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
    /// A data record without bytes.
    #[error("the record is empty; publish at least one byte")]
    EmptyData,
    /// Larger than the broker takes.
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
    /// The broker reported a lasting failure, and nothing is sent any more.
    #[error("the broker does not take frames any more: {0}")]
    Over(ClientError),
}

/// What happens to a publisher.
#[derive(Clone, Debug, PartialEq)]
pub enum PublisherEvent {
    /// A frame is in the camera's log.
    Accepted {
        /// What [`PublisherClient::send`] returned.
        number: u64,
        /// The identity that it was given, which replies name.
        frame: FrameId,
    },
    /// A frame was not taken.
    Refused {
        /// What [`PublisherClient::send`] returned.
        number: u64,
        /// Why.
        error: ApiError,
    },
    /// The answer to [`PublisherClient::await_on_disk`](super::PublisherClient::await_on_disk).
    OnDisk {
        /// What that returned.
        number: u64,
        /// Why the record is not known to be on disk; `None` if it is. With the reason `LOG_DEGRADED` it is in the stream: ask again.
        error: Option<ApiError>,
    },
    /// An application's result for a frame.
    Reply {
        /// The frame.
        frame: FrameId,
        /// The application.
        application: String,
        /// The result. Detections are in the pixels of the frame as it was published.
        content: ReplyContent,
    },
    /// The broker was lost, and is being dialled. Frames sent meanwhile are dropped and counted.
    Disconnected {
        /// Why.
        reason: ClientError,
    },
    /// The broker is back.
    Reconnected,
    /// The broker said something that will not pass by itself. The last event.
    Failed {
        /// Why.
        reason: ClientError,
    },
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublisherCounts {
    /// Handed in.
    pub sent: u64,
    /// Taken by the broker.
    pub accepted: u64,
    /// Not taken by the broker.
    pub refused: u64,
    /// Dropped here: newer ones were waiting, or there was no connection.
    pub dropped: u64,
    /// Lost with the connection: sent, and never answered for.
    pub lost: u64,
}
