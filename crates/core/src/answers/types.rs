//! Defines the inputs and outputs of the parts that bring answers back.

use std::time::Duration;

use bytes::Bytes;

use crate::frame::{Encoding, FrameId};
use crate::units::{Instant, Timestamp};
use crate::wire::{AnswerAccount, FrameHeader};

/// The most bytes of an answer, coded: a JPEG of 4K at high quality.
pub const ANSWER_BYTES_MAX: u32 = 8 << 20;

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnswerKind {
    /// A picture that takes the place of the frame: a JPEG.
    Picture,
    /// A picture that is drawn over the frame: a PNG of 8-bit red, green, blue and alpha.
    Overlay,
    /// Boxes that are drawn over the frame: a message `Detections` of the application API.
    Boxes,
}

impl AnswerKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Picture, Self::Overlay, Self::Boxes];

    /// How an answer of this kind is coded on the wire.
    pub const fn encoding(self) -> Encoding {
        match self {
            Self::Picture => Encoding::Jpeg,
            Self::Overlay => Encoding::Png,
            Self::Boxes => Encoding::Data,
        }
    }

    /// The media type of its payload.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Picture => "image/jpeg",
            Self::Overlay => "image/png",
            Self::Boxes => "application/vnd.mez.detections",
        }
    }

    /// The kind of an answer whose payload has this media type. `None`: no kind has it.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.content_type() == content_type)
    }

    /// The kind of an answer that is coded like this. `None`: no kind has this encoding.
    pub fn of(encoding: Encoding) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.encoding() == encoding)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Picture => "picture",
            Self::Overlay => "overlay",
            Self::Boxes => "boxes",
        }
    }
}

/// An answer that an application has made.
#[derive(Clone, Debug)]
pub struct MadeAnswer {
    /// The header, with the identity and the capture time of the frame that the answer was made of.
    pub header: Box<FrameHeader>,
    /// The answer, coded as its header says.
    pub payload: Bytes,
    /// When the frame was captured, by the edge's clock. `None`: the camera's clock is not known yet.
    pub captured: Option<Instant>,
}

impl MadeAnswer {
    /// The frame that the answer was made of.
    pub const fn frame(&self) -> FrameId {
        self.header.meta.id
    }
}

/// An action for the driver of an outlet.
#[derive(Clone, Debug)]
pub enum OutletStep {
    /// Send an answer on a stream of its own, ahead of older ones; report with [`Outlet::handle_sent`](super::Outlet::handle_sent) once its last byte has
    /// left.
    Send(MadeAnswer),
    /// Cancel an answer's stream.
    Reset(FrameId),
    /// Send the camera the account of its answers.
    Tell(AnswerAccount),
}

/// What an application may send next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The longest time from a frame's capture until its answer has left the edge. `None`: the publisher takes no answers.
    pub bound: Option<Duration>,
    /// The most bytes of an answer that is in time if it is given at the same age as
    /// the last one. `None`: no limit, because the path to the camera is not known yet.
    pub bytes: Option<u32>,
}

/// An answer as its publisher gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The frame that the answer was made of.
    pub frame: FrameId,
    /// When the frame was captured.
    pub captured: Timestamp,
    /// What the answer is.
    pub kind: AnswerKind,
    /// Width in pixels, which may differ from the width of the frame. Of boxes: the width of the frame as it was published.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Width and height of a picture as the application made it. It is shown in this size, also if it was made smaller for the way to the camera.
    pub shown: (u32, u32),
    /// The answer, coded as its kind is. Only its number of bytes has been checked: the checks of the edge are not trusted here.
    pub payload: Bytes,
    /// When the answer passed each stage.
    pub times: AnswerTimes,
}

/// When an answer and its frame passed each stage, by the camera's clock. The times never run backwards, whatever the edge claims. `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// The frame was captured.
    pub captured: Instant,
    /// The edge had the frame.
    pub up: Option<Instant>,
    /// The edge had the answer, which the application made after it took the frame.
    pub made: Option<Instant>,
    /// The answer's first byte left the edge.
    pub sent: Option<Instant>,
    /// The answer's first bytes reached the camera.
    pub arriving: Instant,
    /// The whole answer had reached the camera.
    pub arrived: Instant,
}
