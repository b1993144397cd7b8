//! Defines the world's true time, and the hosts' clocks, which have an offset, drift, and are stepped.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use mez_core::units::{ClockAnchor, Instant, Timestamp};

/// `s` seconds.
pub const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// `ms` milliseconds.
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A point in the world's true time, in nanoseconds since its beginning. No host can read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The world's beginning.
    pub const START: Self = Self(0);
    /// Later than every event.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`. Zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Moment {
    /// `12.345678901 s`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// One host's two clocks. The monotonic clock has its own origin and rate, and is never stepped. The wall clock follows the monotonic clock, and may
/// be stepped forwards and backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// What the monotonic clock shows when the world begins, in nanoseconds.
    pub origin_nanos: u64,
    /// How much faster the monotonic clock runs than true time, in parts per billion. Quartz stays within ±50,000.
    pub drift_ppb: i64,
    /// What the wall clock would show when the monotonic clock shows 0, in nanoseconds since 1970.
    pub wall_nanos: u64,
}

/// The true wall-clock time when a world begins: 2026-01-01T00:00:00Z.
pub(crate) const WALL_START_NANOS: u64 = 1_767_225_600_000_000_000;

impl HostClock {
    /// Exact clocks: no drift, and the true wall-clock time. The monotonic clock begins at `origin`.
    pub const fn right(origin: Duration) -> Self {
        let origin_nanos = origin.as_nanos() as u64;
        Self { origin_nanos, drift_ppb: 0, wall_nanos: WALL_START_NANOS - origin_nanos }
    }

    /// The reading of the monotonic clock.
    pub fn monotonic(&self, moment: Moment) -> Instant {
        let true_nanos = i128::from(moment.as_nanos());
        let gained = (true_nanos * i128::from(self.drift_ppb)).div_euclid(1_000_000_000);
        Instant::from_nanos((i128::from(self.origin_nanos) + true_nanos + gained) as u64)
    }

    /// The first moment at which the monotonic clock shows at least `instant`.
    pub fn moment_of(&self, instant: Instant) -> Moment {
        let Some(shown) = instant.as_nanos().checked_sub(self.origin_nanos) else { return Moment::START };
        let rate = 1_000_000_000 + i128::from(self.drift_ppb);
        let estimate = (i128::from(shown) * 1_000_000_000).div_euclid(rate);
        // The division rounds. The true answer is at most two nanoseconds away.
        let first = u64::try_from(estimate - 2).unwrap_or(0);
        (first..first.saturating_add(6))
            .map(Moment::from_nanos)
            .find(|moment| self.monotonic(*moment) >= instant)
            .unwrap_or(Moment::NEVER)
    }

    /// The reading of the wall clock.
    pub fn wall(&self, moment: Moment) -> Timestamp {
        Timestamp::from_nanos(self.wall_nanos + self.monotonic(moment).as_nanos())
    }

    /// Steps the wall clock `nanos` forwards, or backwards if negative.
    pub fn step_wall(&mut self, nanos: i64) {
        self.wall_nanos = self.wall_nanos.saturating_add_signed(nanos);
    }

    /// The clock anchor of a broker that starts at `moment`.
    pub fn anchor(&self, moment: Moment) -> ClockAnchor {
        ClockAnchor { wall: self.wall(moment), monotonic: self.monotonic(moment) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_found_again_from_what_the_clock_showed() {
        for drift_ppb in [-50_000, -7, 0, 3, 50_000] {
            let clock = HostClock { origin_nanos: 123_456_789_012, drift_ppb, wall_nanos: 0 };
            for nanos in [0, 1, 999, 1_000_000_007, 86_400_000_000_123] {
                let instant = clock.monotonic(Moment::from_nanos(nanos));
                let found = clock.moment_of(instant);
                assert!(clock.monotonic(found) >= instant);
                assert!(nanos.abs_diff(found.as_nanos()) <= 1, "{nanos} became {found:?} at {drift_ppb}");
                if found > Moment::START {
                    assert!(clock.monotonic(Moment::from_nanos(found.as_nanos() - 1)) < instant);
                }
            }
        }
    }

    #[test]
    fn setting_the_wall_clock_leaves_the_monotonic_one_alone() {
        let mut clock = HostClock { origin_nanos: 5, drift_ppb: 0, wall_nanos: 7_200_000_000_000 };
        let moment = Moment::START + secs(1);
        let before = (clock.monotonic(moment), clock.wall(moment));
        clock.step_wall(-3_600_000_000_000);
        assert_eq!(clock.monotonic(moment), before.0);
        assert_eq!(clock.wall(moment) + secs(3600), before.1);
    }
}
