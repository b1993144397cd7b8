//! Defines the inputs and outputs of a link.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, FrameId, Sequence};

use crate::time::ms;

/// The stream of a frame of the past, named after the request. It goes behind live frames.
pub(crate) const fn past_stream(request: u64) -> FrameId {
    FrameId { epoch: Epoch(u64::MAX), sequence: Sequence(request) }
}

/// The request of a stream, if the stream carries a frame of the past.
pub(crate) fn request_of(stream: FrameId) -> Option<u64> {
    (stream.epoch == Epoch(u64::MAX)).then_some(stream.sequence.0)
}

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The camera host, which dials.
    Camera = 0,
    /// The edge, which sends answers to frames.
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

/// The parameters of a link.
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
    /// One piece in this many is lost, and sent again about a round trip later. 0: none. Default 0.
    pub lost_once_in: u64,
    /// Whether senders bound their bytes in flight, as real senders do. If not, they fill the queue. Default true.
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
    /// The round trip time without queues.
    pub fn round_trip_time(&self) -> Duration {
        self.delay_up + self.delay_down
    }
}

/// An event on a link.
#[derive(Clone, Debug)]
pub enum LinkOutput {
    /// A connection exists at the camera.
    Dialled {
        /// The connection.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// A dial was given up.
    DialFailed {
        /// The process that dialled.
        owner: u64,
    },
    /// The first packet of a connection has arrived at the edge.
    Knocked {
        /// The connection to be.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// A connection exists at the edge.
    Accepted {
        /// The connection.
        connection: LinkId,
        /// The process that dialled.
        owner: u64,
    },
    /// A message arrived.
    Message {
        /// The side at which the message arrived.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The message, with its length prefix.
        bytes: Bytes,
    },
    /// The beginning of a frame or an answer arrived.
    FrameOpened {
        /// The side at which it arrived.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The header, with its length prefix.
        header: Bytes,
    },
    /// More bytes of a frame or an answer arrived.
    FrameProgress {
        /// The side at which it arrived.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// Payload bytes that have arrived so far.
        bytes: u32,
    },
    /// The last byte of a frame or an answer arrived.
    FrameFinished {
        /// The side at which it arrived.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// All of its payload.
        payload: Bytes,
    },
    /// The receiver learns that the rest of a frame or an answer will not come.
    FrameCancelled {
        /// The side at which it arrived.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// The last byte of a frame or an answer left its sender.
    FrameSent {
        /// The side that sends the frame.
        from: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// Bytes of a frame or an answer have left its sender; others are unsent.
    FrameLeft {
        /// The side that sends the frame.
        from: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
        /// Payload bytes that are unsent.
        unsent: u64,
    },
    /// The sender of a frame or an answer learns that the other side does not want it.
    FrameStopped {
        /// The side that sends the frame.
        to: Side,
        /// The connection.
        connection: LinkId,
        /// The frame.
        frame: FrameId,
    },
    /// A connection has ended.
    Closed {
        /// The side that learns of the end.
        to: Side,
        /// The connection.
        connection: LinkId,
    },
}

impl LinkOutput {
    /// The side to which the event happens.
    pub const fn side(&self) -> Side {
        match self {
            Self::Dialled { .. } | Self::DialFailed { .. } => Side::Camera,
            Self::Knocked { .. } | Self::Accepted { .. } => Side::Edge,
            Self::FrameSent { from: side, .. }
            | Self::FrameLeft { from: side, .. }
            | Self::FrameStopped { to: side, .. }
            | Self::FrameOpened { to: side, .. }
            | Self::FrameProgress { to: side, .. }
            | Self::FrameFinished { to: side, .. }
            | Self::FrameCancelled { to: side, .. }
            | Self::Message { to: side, .. }
            | Self::Closed { to: side, .. } => *side,
        }
    }
}

/// Queues an output about a frame's unsent bytes. It replaces an earlier [`LinkOutput::FrameLeft`] of the frame.
pub(super) fn tell(outputs: &mut VecDeque<LinkOutput>, told: Option<LinkOutput>) {
    let Some(told) = told else { return };
    if let LinkOutput::FrameLeft { from, connection, frame, .. }
    | LinkOutput::FrameSent { from, connection, frame } = told
    {
        outputs.retain(|before| {
            !matches!(before, LinkOutput::FrameLeft { from: side, connection: on, frame: of, .. } if (*side, *on, *of) == (from, connection, frame))
        });
    }
    outputs.push_back(told);
}
