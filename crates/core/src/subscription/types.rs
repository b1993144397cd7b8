//! What a subscription is asked for, and what it delivers.

use std::time::Duration;

use super::holes::NotHeld;
use crate::frame::{FrameId, SkipCounts};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// How long a subscription waits for frames on their way, after a requested end that lay in the future. If the end had
/// passed at the beginning, the subscription ends once everybody who holds frames has said that there are no more.
pub(super) const END_GRACE: Duration = Duration::from_secs(2);

/// A span of capture times, and which frames of it are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first capture time wanted. `None`: frames published from now on. Once this time has passed, every
    /// present frame is wanted, whatever its capture time. So a camera whose clock is behind loses nothing.
    pub begin: Option<Timestamp>,
    /// The last capture time wanted. `None`: no end.
    pub end: Option<Timestamp>,
    /// Whether the newest frame or every frame is wanted.
    pub deliver: Deliver,
}

impl Span {
    /// From now on, the newest frame wins.
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

    /// The instant from which on no frame can be wanted.
    pub fn ends_at(&self, clock: &ClockAnchor) -> Option<Instant> {
        self.end.map(|end| clock.instant_at(end + END_GRACE))
    }
}

/// The end of a span is before its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end {end} is before the beginning {begin}; swap the two")]
pub struct SpanError {
    /// The beginning that was asked for.
    pub begin: Timestamp,
    /// The end that was asked for.
    pub end: Timestamp,
}

/// Which frames an application gets if it is slower than the camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliver {
    /// The newest frame when the application is ready. Older ones are skipped and counted.
    Newest,
    /// Every frame that crossed the link, in order, as long as a log holds it. Of the past, also frames that
    /// are fetched from the camera.
    Every,
}

/// A frame for the application.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The camera.
    pub camera: CameraName,
    /// The frame.
    pub record: Record,
    /// Frames of this camera that were skipped since its previous delivery.
    pub skipped: SkipCounts,
    /// A stretch of time before this frame that is not held, or not known to be held, if counts cannot express the loss.
    pub not_held: Option<NotHeld>,
    /// The log from which the record was read. `None` for a frame from elsewhere, whose memory counts in no log's budget.
    pub log: Option<LogReader>,
}

/// The last frame of a camera that an application already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastFrame {
    /// The frame's identity.
    pub id: FrameId,
    /// Its capture time, if that is known.
    pub captured: Option<Timestamp>,
}

/// The next output of a subscription for its application.
#[derive(Clone, Debug)]
pub enum Next {
    /// A frame.
    Frame(Box<Delivery>),
    /// Nothing now. Ask again when a camera is attached, a log grows, or the end has passed.
    Pending,
    /// There are no more frames: the end has passed.
    Ended {
        /// The account of each camera since its last delivery.
        rest: Vec<(CameraName, SkipCounts, Option<NotHeld>)>,
    },
}
