//! How frames arrive, as the edge tells the camera.

use super::codec::{Reader, WireError, Write};
use crate::frame::FrameId;
use crate::units::Instant;

/// How a frame is arriving, by the edge's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Part of the payload is there. The first such report has the first byte's time.
    Progress {
        /// The frame.
        frame: FrameId,
        /// Payload bytes so far.
        bytes: u32,
        /// When the first of them arrived.
        first: Instant,
        /// When this was true.
        now: Instant,
    },
    /// All of the payload is there; also the frame's acknowledgement.
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
    /// The frame was not taken. The edge stops its stream too, which tells nothing where all of it is there already.
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
