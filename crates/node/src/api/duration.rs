//! Converts durations into nanoseconds for messages.

use std::time::Duration;

/// A duration in nanoseconds. Durations longer than 584 years are cut to the maximum.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
