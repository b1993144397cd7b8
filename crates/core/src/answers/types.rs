//! What enters and leaves the parts that bring answers back.

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
    /// What stands before the picture. It has the identity and the capture time of the frame that the picture was made of.
    pub header: Box<FrameHeader>,
    /// The picture, coded.
    pub payload: Bytes,
    /// When the frame was captured, by the edge's clock. `None`: the camera's clock is not known yet.
    pub captured: Option<Instant>,
}

impl MadeAnswer {
    /// The frame that it was made of.
    pub const fn frame(&self) -> FrameId {
        self.header.meta.id
    }
}

/// What an outlet wants done.
#[derive(Clone, Debug)]
pub enum OutletStep {
    /// Send an answer on a stream of its own, ahead of older ones; report with [`Outlet::handle_sent`](super::Outlet::handle_sent) once its last byte has
    /// left.
    Send(MadeAnswer),
    /// Cancel an answer's stream.
    Reset(FrameId),
    /// Tell the camera how answers are counted.
    Tell(AnswerAccount),
}

/// What an application may send next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The most that may pass from a frame's capture until its answer has left. `None`: the publisher takes no answers.
    pub bound: Option<Duration>,
    /// How many bytes an answer may have that is given at the same age as the last one, to be there in time. `None`: as many as it likes, because nothing
    /// is known of the way to the camera.
    pub bytes: Option<u32>,
}

/// An answer as its publisher gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The frame that it was made of.
    pub frame: FrameId,
    /// When that was captured.
    pub captured: Timestamp,
    /// Pixels in a row. They may be others than those of the frame.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// The picture: a JPEG.
    pub payload: Bytes,
    /// When it passed each stage.
    pub times: AnswerTimes,
}

/// When an answer and its frame passed each stage, by the camera's clock. They never run backwards, whatever the edge claims. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// The frame was captured.
    pub captured: Instant,
    /// The edge had the frame.
    pub up: Option<Instant>,
    /// The edge had the answer: the application had taken the frame, and made it.
    pub made: Option<Instant>,
    /// Its first byte left the edge.
    pub sent: Option<Instant>,
    /// Its first bytes were here.
    pub arriving: Instant,
    /// All of it was here.
    pub arrived: Instant,
}
