//! Defines the inputs and outputs of the parts that bring answers back.

use std::time::Duration;

use bytes::Bytes;

use crate::frame::FrameId;
use crate::units::{Instant, Timestamp};
use crate::wire::{AnswerAccount, FrameHeader};

/// The most bytes of an answer, coded: a JPEG of 4K at high quality.
pub const ANSWER_BYTES_MAX: u32 = 8 << 20;

/// An answer that an application has made.
#[derive(Clone, Debug)]
pub struct MadeAnswer {
    /// The header before the picture, with the identity and the capture time of the frame that the picture was made of.
    pub header: Box<FrameHeader>,
    /// The picture, coded.
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
    /// Width in pixels, which may differ from the width of the frame.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// The picture: a JPEG.
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
