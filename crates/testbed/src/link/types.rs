//! Defines what a link is given, and what it returns.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, FrameId, Sequence};

use crate::time::ms;

/// The stream that carries a frame of the past. Its name is that of the question. It goes behind live frames.
pub(crate) const fn past_stream(request: u64) -> FrameId {
    FrameId { epoch: Epoch(u64::MAX), sequence: Sequence(request) }
}

/// The request that a stream of the link belongs to, if it carries a frame of the past.
pub(crate) fn request_of(stream: FrameId) -> Option<u64> {
    (stream.epoch == Epoch(u64::MAX)).then_some(stream.sequence.0)
}

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The camera host, which dials.
    Camera = 0,
    /// The edge, which sends no frames.
    Edge = 1,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Camera, Self::Edge];

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Camera => Self::Edge,
            Self::Edge => Self::Camera,
        }
    }
}

/// What a link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// The rate each way, in bits per second. Default 20 Mbit/s.
    pub bits_per_second: u64,
    /// The delay from the camera to the edge. Default 5 ms.
    pub delay_up: Duration,
    /// The delay from the edge to the camera. Default 5 ms.
    pub delay_down: Duration,
    /// How many bytes may wait in the queue. Default 32 KiB, which is 13 ms at 20 Mbit/s.
    pub queue_bytes_max: u64,
    /// One piece in this many is lost, and sent again a round trip later. 0: none. Default 0.
    pub lost_once_in: u64,
    /// Whether senders bound what is on its way, as real ones do. Otherwise they fill the queue. Default true.
    pub bounded: bool,
}

impl Default for LinkSpec {
    fn default() -> Self {
        Self {
            bits_per_second: 20_000_000,
            delay_up: ms(5),
            delay_down: ms(5),
            queue_bytes_max: 32 << 10,
            lost_once_in: 0,
            bounded: true,
        }
    }
}

impl LinkSpec {
    /// The round trip, without queues.
    pub fn round_trip_time(&self) -> Duration {
        self.delay_up + self.delay_down
    }
}

/// What happened on a link.
#[derive(Clone, Debug)]
pub enum LinkOutput {
    /// The camera's side has a connection.
    Dialled {
        /// The connection.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// The attempt to connect was given up.
    DialFailed {
        /// The process that dialled.
        owner: u64,
    },
    /// The first packet of a connection is at the edge.
    Knocked {
        /// The connection that will be.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// The edge has a connection.
    Accepted {
        /// The connection.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// A message arrived.
    Message {
        /// Where.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The message, with its length.
        bytes: Bytes,
    },
    /// The beginning of a frame arrived at the edge.
    FrameOpened {
        /// The connection.
        connection: LinkId,
        /// The header, with its length.
        header: Bytes,
    },
    /// More of a frame arrived.
    FrameProgress {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// Payload bytes in all.
        bytes: u32,
    },
    /// The last byte of a frame arrived.
    FrameFinished {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// All of its payload.
        payload: Bytes,
    },
    /// The edge learns that the rest of a frame will not come.
    FrameCancelled {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// The last byte of a frame left the camera.
    FrameSent {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// Bytes of a frame have left the camera, and some of its payload has not.
    FrameLeft {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// Bytes that have not left.
        unsent: u64,
    },
    /// The camera learns that the edge does not want a frame.
    FrameStopped {
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// A connection is gone.
    Closed {
        /// Where this is known.
        to: Side,
        /// The connection.
        connection: LinkId,
    },
}

impl LinkOutput {
    /// Whom it concerns.
    pub const fn side(&self) -> Side {
        match self {
            Self::Dialled { .. }
            | Self::DialFailed { .. }
            | Self::FrameSent { .. }
            | Self::FrameLeft { .. }
            | Self::FrameStopped { .. } => Side::Camera,
            Self::Knocked { .. }
            | Self::Accepted { .. }
            | Self::FrameOpened { .. }
            | Self::FrameProgress { .. }
            | Self::FrameFinished { .. }
            | Self::FrameCancelled { .. } => Side::Edge,
            Self::Message { to, .. } | Self::Closed { to, .. } => *to,
        }
    }
}
