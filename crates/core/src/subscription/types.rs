//! What a subscription is asked for, and what it gives.

use std::time::Duration;

use super::holes::NotHeld;
use crate::frame::{FrameId, SkipCounts};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// How long after an end that lay in the future a subscription still waits for frames on their way. One whose end had passed when it
/// began waits for none: it is over once everybody who holds frames has said that there are no more.
pub(super) const END_GRACE: Duration = Duration::from_secs(2);

/// Which part of time, and which frames of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first capture time wanted. `None`: what is published from now on. Once it lies in the past, everything that
    /// comes is wanted, whatever it says of its capture time: a camera whose clock is behind loses nothing.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. `None`: no end.
    pub end: Option<Timestamp>,
    /// Newest or every.
    pub deliver: Deliver,
}

impl Span {
    /// From now on, newest wins.
    pub const LIVE: Self = Self { begin: None, end: None, deliver: Deliver::Newest };

    /// Refuses an end before the beginning.
    pub fn validate(&self) -> Result<(), SpanError> {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) if end < begin => Err(SpanError { begin, end }),
            _ => Ok(()),
        }
    }

    /// Whether frames published from `now` on can still be wanted.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| end + END_GRACE > now)
    }

    /// The instant from which on no frame can be wanted any more.
    pub fn ends_at(&self, clock: &ClockAnchor) -> Option<Instant> {
        self.end.map(|end| clock.instant_at(end + END_GRACE))
    }
}

/// The end of a span lies before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end {end} lies before the beginning {begin}; swap them")]
pub struct SpanError {
    /// The beginning that was asked for.
    pub begin: Timestamp,
    /// The end that was asked for.
    pub end: Timestamp,
}

/// Which frames an application gets when it is slower than the camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// The newest at the moment when it is ready; older ones are skipped and counted.
    Newest,
    /// Every frame that crossed the link, in order, for as long as a log holds them; of the past also those that are fetched
    /// from the camera.
    Every,
}

/// A frame for the application.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The camera.
    pub camera: CameraName,
    /// The frame.
    pub record: Record,
    /// Frames of this camera since the delivery before that were not delivered.
    pub skipped: SkipCounts,
    /// A stretch before this frame that is not held, or not known to be, where counts do not tell it.
    pub not_held: Option<NotHeld>,
    /// The log that it was read from; nothing for a frame that was found elsewhere, whose memory is in no log's budget.
    pub log: Option<LogReader>,
}

/// The last frame of a camera that an application has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFrame {
    /// Which.
    pub id: FrameId,
    /// Its capture time, if that is known.
    pub captured: Option<Timestamp>,
}

/// What a subscription has for its application.
#[derive(Clone, Debug)]
pub enum Next {
    /// A frame.
    Frame(Box<Delivery>),
    /// Nothing now. Ask again when a camera is attached or a log grows, or when the end has passed.
    Pending,
    /// Nothing any more: the end has passed.
    Ended {
        /// What was skipped since each camera's last delivery, and what is not held of it.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
}
