//! Defines the units that the rest of the code uses: instants, wall-clock times and rates.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point on one process's monotonic clock, in nanoseconds from an origin that the process chooses. Only
/// instants of the same clock may be compared; [`crate::clock::ClockEstimate`] converts between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant that lies `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(rhs)))
    }
}

/// A wall-clock time: nanoseconds since 1970-01-01T00:00:00Z. It labels frames for people and for queries of
/// the past. It never decides order, age or a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The earliest representable time, 1970-01-01T00:00:00Z.
    pub const MIN: Self = Self(0);
    /// The latest representable time, in the year 2554.
    pub const MAX: Self = Self(u64::MAX);

    /// The time that lies `nanos` nanoseconds after 1970-01-01T00:00:00Z.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since 1970-01-01T00:00:00Z.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero if `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(rhs)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(rhs)))
    }
}

impl fmt::Display for Timestamp {
    /// `2026-11-20T21:38:46.123456789Z`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let (year, month, day) = civil_from_days(seconds / 86_400);
        let of_day = seconds % 86_400;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

/// A rate of payload, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BitsPerSecond(pub f64);

impl BitsPerSecond {
    /// `from_mbps(20.0)` is 20,000,000 bits per second.
    pub const fn from_mbps(mbps: f64) -> Self {
        Self(mbps * 1e6)
    }

    /// How long `bytes` take at this rate. A rate of zero takes [`Duration::MAX`].
    pub fn time_for(self, bytes: u64) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 * 8.0 / self.0).unwrap_or(Duration::MAX)
    }
}

/// Stamps frames with wall-clock times that never step: a wall-clock time read once, plus the monotonic
/// clock.
///
/// So setting the wall clock while the broker runs changes nothing until the next start, which begins a new
/// epoch with a new anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAnchor {
    /// The wall-clock time at the anchor.
    pub wall: Timestamp,
    /// The monotonic instant at the anchor.
    pub monotonic: Instant,
}

impl ClockAnchor {
    /// The wall-clock time of a monotonic instant.
    pub fn wall_at(&self, instant: Instant) -> Timestamp {
        if instant >= self.monotonic {
            self.wall + instant.saturating_since(self.monotonic)
        } else {
            self.wall - self.monotonic.saturating_since(instant)
        }
    }

    /// The monotonic instant of a wall-clock time.
    pub fn instant_at(&self, wall: Timestamp) -> Instant {
        if wall >= self.wall {
            self.monotonic + wall.saturating_since(self.wall)
        } else {
            self.monotonic - self.wall.saturating_since(wall)
        }
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Year, month and day of the proleptic Gregorian calendar (H. Hinnant, "chrono-compatible low-level date algorithms").
fn civil_from_days(days_since_1970: u64) -> (u64, u64, u64) {
    let z = days_since_1970 + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_print_as_utc() {
        assert_eq!(Timestamp::MIN.to_string(), "1970-01-01T00:00:00.000000000Z");
        let leap_day = Timestamp::from_nanos(1_709_210_096_000_000_007);
        assert_eq!(leap_day.to_string(), "2024-02-29T12:34:56.000000007Z");
    }

    #[test]
    fn an_anchor_maps_both_ways_and_before_itself() {
        let anchor =
            ClockAnchor { wall: Timestamp::from_nanos(1_000_000), monotonic: Instant::from_nanos(500) };
        for nanos in [0, 499, 500, 501, 90_000] {
            let instant = Instant::from_nanos(nanos);
            assert_eq!(anchor.instant_at(anchor.wall_at(instant)), instant);
        }
        assert!(anchor.wall_at(Instant::ZERO) < anchor.wall);
    }

    #[test]
    fn a_rate_of_zero_takes_for_ever() {
        assert_eq!(BitsPerSecond(0.0).time_for(1), Duration::MAX);
        assert_eq!(BitsPerSecond::from_mbps(8.0).time_for(1_000_000), Duration::from_secs(1));
    }
}
