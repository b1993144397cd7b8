//! Encodes reports of how frames arrive at the edge, and how answers arrive at the camera.

use super::codec::{Reader, WireError, Write};
use crate::frame::FrameId;
use crate::units::Instant;

/// How a frame or an answer is arriving, by the receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A part of the payload has arrived. The first such report has the time of the first byte.
    Progress {
        /// The frame.
        frame: FrameId,
        /// Payload bytes that have arrived so far.
        bytes: u32,
        /// When the first byte arrived.
        first: Instant,
        /// When the report was made.
        now: Instant,
    },
    /// All of the payload has arrived. This is also the frame's acknowledgement.
    Complete {
        /// The frame.
        frame: FrameId,
        /// Payload bytes.
        bytes: u32,
        /// When the first byte arrived.
        first: Instant,
        /// When the last byte arrived.
        last: Instant,
    },
    /// The frame was refused. The receiver also stops the frame's stream, but this tells the sender nothing if the whole frame has already arrived.
    Refused {
        /// The frame.
        frame: FrameId,
    },
}

impl Report {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Progress { frame, bytes, first, now: last }
            | Self::Complete { frame, bytes, first, last } => {
                out.frame_id(frame);
                out.u32(bytes);
                out.instant(first);
                out.instant(last);
            }
            Self::Refused { frame } => out.frame_id(frame),
        }
    }

    pub(super) fn decode_progress(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self::Progress {
            frame: r.frame_id()?,
            bytes: r.u32("bytes")?,
            first: r.instant("first")?,
            now: r.instant("now")?,
        })
    }

    pub(super) fn decode_complete(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self::Complete {
            frame: r.frame_id()?,
            bytes: r.u32("bytes")?,
            first: r.instant("first")?,
            last: r.instant("last")?,
        })
    }
}
