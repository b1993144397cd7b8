//! Writes durations as messages have them: in nanoseconds.

use std::time::Duration;

/// A duration in nanoseconds. What lasts longer than 584 years is cut.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
