//! Which frames somebody was given.

use std::fmt;

use crate::units::Timestamp;

/// Which frames of a camera were given out: by when they were captured, or live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Capture time of the first. [`Timestamp::MIN`]: the oldest that is held. `None`: none of before the request.
    pub begin: Option<Timestamp>,
    /// Also what a subscription of before had missed.
    pub missed: bool,
    /// Capture time of the last. `None`: no end.
    pub end: Option<Timestamp>,
}

impl Span {
    /// What covers both.
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
            Some(Timestamp::MIN) => write!(f, "from the oldest")?,
            Some(begin) if self.missed => write!(f, "from {begin} and what was missed")?,
            Some(begin) => write!(f, "from {begin}")?,
            None if self.missed => write!(f, "what was missed, then live")?,
            None => write!(f, "live")?,
        }
        match self.end {
            Some(end) => write!(f, ", until {end}"),
            None => write!(f, ", with no end"),
        }
    }
}
