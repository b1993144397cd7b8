//! Reads the clocks of this host, in the units of `mez-core`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::units::{ClockAnchor, Instant, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// The host's monotonic clock. All processes of a host share its origin, so an instant is comparable between them.
pub fn monotonic_now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The wall clock. For labels and queries of the past; never for order, ages or deadlines.
pub fn wall_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// An anchor taken now.
pub fn anchor() -> ClockAnchor {
    ClockAnchor { wall: wall_now(), monotonic: monotonic_now() }
}

/// Sleeps until an instant of the monotonic clock.
pub(crate) async fn sleep_until(instant: Instant) {
    let wait = instant.saturating_since(monotonic_now());
    if wait > Duration::ZERO {
        tokio::time::sleep(wait).await;
    }
}

/// A time stamp of another process, or the present if the stamp is implausible.
pub(crate) fn plausible(captured: Instant) -> Instant {
    let now = monotonic_now();
    let is_plausible = captured <= now && now.saturating_since(captured) < Duration::from_secs(60);
    if is_plausible { captured } else { now }
}
