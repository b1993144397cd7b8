//! Says which frames were given out.

use std::fmt;

use crate::units::Timestamp;

/// Which frames of a camera were given out: frames of a span of capture times, or live frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The capture time of the first frame. [`Timestamp::MIN`]: the oldest frame held. `None`: no frames from before the request.
    pub begin: Option<Timestamp>,
    /// Whether the frames that an earlier subscription had missed were given out too.
    pub missed: bool,
    /// The capture time of the last frame. `None`: no end.
    pub end: Option<Timestamp>,
}

impl Span {
    /// A span that covers both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let begin = match (self.begin, other.begin) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        let end = self.end.zip(other.end).map(|(one, two)| one.max(two));
        Self { begin, missed: self.missed || other.missed, end }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.begin {
            Some(Timestamp::MIN) => write!(f, "from the oldest frame")?,
            Some(begin) if self.missed => write!(f, "from {begin}, and missed frames")?,
            Some(begin) => write!(f, "from {begin}")?,
            None if self.missed => write!(f, "missed frames, then live")?,
            None => write!(f, "live")?,
        }
        match self.end {
            Some(end) => write!(f, ", until {end}"),
            None => write!(f, ", with no end"),
        }
    }
}
