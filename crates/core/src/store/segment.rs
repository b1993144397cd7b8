//! The number of a segment.

use std::fmt;

/// The number of a segment in one camera's log. Each number is one above the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u64);

impl fmt::Display for SegmentNumber {
    /// `000000000000001f`, as in the names of the files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl SegmentNumber {
    /// The next number.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
