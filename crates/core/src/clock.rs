//! Estimates the offset between two monotonic clocks from exchanges of four time stamps.
//!
//! The exchange is that of NTP (RFC 5905, section 8). The asker notes `t1` when it sends and `t4` when the answer arrives. The other
//! side notes `t2` on arrival and `t3` on departure, by its own clock. Let `rtt = (t4 − t1) − (t3 − t2)`. The offset of the other
//! clock then lies within `± rtt / 2` of `((t2 − t1) + (t3 − t4)) / 2`. This bound holds however the delays of the two directions
//! differ. The estimate uses the exchange with the tightest bound. A bound widens with age, because the two clocks may drift apart.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// How fast two clocks may drift apart, in seconds per second. A quartz clock stays within ±50 parts per
/// million, so two differ by at most twice that.
pub(crate) const DRIFT_PER_SECOND: f64 = 100e-6;
/// The inverse of [`DRIFT_PER_SECOND`], for integer arithmetic: clocks drift apart by at most one part in
/// 10,000.
const DRIFT_PARTS: u32 = 10_000;
/// Older exchanges are forgotten. After a minute, drift has widened a bound by 6 ms, as much as 12 ms of
/// round trip.
const WINDOW: Duration = Duration::from_secs(60);
/// The most exchanges remembered. At one exchange per 250 ms, [`WINDOW`] holds 240.
const EXCHANGES_MAX: usize = 256;

/// One exchange. `t1` and `t4` are by the asker's clock, `t2` and `t3` by the other side's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the question was sent.
    pub t1: Instant,
    /// When the question arrived.
    pub t2: Instant,
    /// When the answer was sent.
    pub t3: Instant,
    /// When the answer arrived.
    pub t4: Instant,
}

impl Exchange {
    /// The round trip without the other side's processing time. `None` if the stamps are out of order.
    pub fn round_trip_time(&self) -> Option<Duration> {
        if self.t4 < self.t1 || self.t3 < self.t2 {
            return None;
        }
        self.t4.saturating_since(self.t1).checked_sub(self.t3.saturating_since(self.t2))
    }

    /// How many nanoseconds the other clock is ahead of the asker's.
    fn offset_nanos(&self) -> i128 {
        let nanos = |instant: Instant| i128::from(instant.as_nanos());
        ((nanos(self.t2) - nanos(self.t1)) + (nanos(self.t3) - nanos(self.t4))) / 2
    }
}

/// How the other clock relates to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockEstimate {
    offset_nanos: i128,
    /// The offset is wrong by at most this much.
    pub error: Duration,
    /// The round trip of the exchange behind the estimate.
    pub round_trip_time: Duration,
}

impl ClockEstimate {
    /// The estimate for two sides that use the same clock.
    pub const SAME: Self = Self { offset_nanos: 0, error: Duration::ZERO, round_trip_time: Duration::ZERO };

    /// Our instant at which the other clock shows `theirs`.
    pub fn to_ours(self, theirs: Instant) -> Instant {
        shift(theirs, -self.offset_nanos)
    }

    /// What the other clock shows at our instant.
    pub fn to_theirs(self, ours: Instant) -> Instant {
        shift(ours, self.offset_nanos)
    }
}

/// Collects the exchanges with one peer and gives the best estimate.
///
/// All bounds widen at the same rate. So once a later exchange has a tighter bound, an earlier one is never
/// the best again and is dropped. The rest stays ordered with the best first, which makes a query cheap
/// enough for every frame.
#[derive(Debug, Default)]
pub struct ClockEstimator {
    /// Time, round trip and offset in nanoseconds of each exchange. Each has a tighter bound than all later
    /// ones.
    exchanges: VecDeque<(Instant, Duration, i128)>,
    /// Time and round trip of each exchange. Each round trip is shorter than all later ones.
    round_trips: VecDeque<(Instant, Duration)>,
}

impl ClockEstimator {
    /// Records a finished exchange. An exchange whose stamps are out of order is ignored: the peer is wrong
    /// or lies.
    pub fn record(&mut self, exchange: Exchange) {
        let Some(round_trip_time) = exchange.round_trip_time() else { return };
        let now = exchange.t4;
        let error = bound(now, now, round_trip_time);
        while self.exchanges.back().is_some_and(|(at, round_trip, _)| bound(now, *at, *round_trip) >= error) {
            self.exchanges.pop_back();
        }
        self.exchanges.push_back((now, round_trip_time, exchange.offset_nanos()));
        while self.round_trips.back().is_some_and(|(_, round_trip)| *round_trip >= round_trip_time) {
            self.round_trips.pop_back();
        }
        self.round_trips.push_back((now, round_trip_time));
        let is_old = |at: Instant| now.saturating_since(at) > WINDOW;
        while self.exchanges.len() > EXCHANGES_MAX
            || self.exchanges.front().is_some_and(|(at, ..)| is_old(*at))
        {
            self.exchanges.pop_front();
        }
        while self.round_trips.len() > EXCHANGES_MAX
            || self.round_trips.front().is_some_and(|(at, _)| is_old(*at))
        {
            self.round_trips.pop_front();
        }
    }

    /// The best estimate at `now`; `None` before the first exchange.
    pub fn estimate(&self, now: Instant) -> Option<ClockEstimate> {
        let (at, round_trip_time, offset_nanos) = *self.exchanges.front()?;
        Some(ClockEstimate { offset_nanos, error: bound(now, at, round_trip_time), round_trip_time })
    }

    /// The shortest round trip of the last minute.
    pub fn round_trip_time_min(&self) -> Option<Duration> {
        self.round_trips.front().map(|(_, round_trip_time)| *round_trip_time)
    }
}

/// The greatest error at `now` of the offset of an exchange made at `at`.
fn bound(now: Instant, at: Instant, round_trip_time: Duration) -> Duration {
    round_trip_time / 2 + now.saturating_since(at) / DRIFT_PARTS
}

fn shift(instant: Instant, nanos: i128) -> Instant {
    let shifted = i128::from(instant.as_nanos()) + nanos;
    Instant::from_nanos(shifted.clamp(0, i128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> u64 {
        ms * 1_000_000
    }

    proptest! {
        /// Whatever the delays of the two directions, the true offset lies within the stated error.
        #[test]
        fn the_error_bound_holds(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            drift_ppm in -90i64..90,
            delays in proptest::collection::vec((0u64..300, 0u64..300, 0u64..20), 1..60),
        ) {
            let start = 2_000_000_000_000u64;
            let theirs = |ours: u64| {
                let drifted = i128::from(ours - start) * i128::from(drift_ppm) / 1_000_000;
                Instant::from_nanos((i128::from(ours) + i128::from(offset) + drifted) as u64)
            };
            let mut estimator = ClockEstimator::default();
            let mut now = start;
            for (out, back, service) in delays {
                now += ms(250);
                let (arrived, left) = (now + ms(out), now + ms(out) + ms(service));
                let done = left + ms(back);
                estimator.record(Exchange {
                    t1: Instant::from_nanos(now), t2: theirs(arrived), t3: theirs(left), t4: Instant::from_nanos(done),
                });
                // Without any delay, a fast clock claims to have held the question for longer than the whole
                // exchange took. Such an exchange is ignored.
                let Some(estimate) = estimator.estimate(Instant::from_nanos(done)) else {
                    prop_assert_eq!(out + back, 0);
                    continue;
                };
                let error = estimate.to_ours(theirs(done)).as_nanos().abs_diff(done);
                // A clock that runs fast by d ppm also stretches the stamps themselves, by far less than 1 µs here.
                prop_assert!(u128::from(error) <= estimate.error.as_nanos() + 100_000, "{error} ns > {:?}", estimate.error);
            }
        }
    }

    proptest! {
        /// Dropping exchanges that can never be the best again does not change the estimate.
        #[test]
        fn the_best_is_that_of_all_exchanges_of_the_last_minute(
            exchanges in proptest::collection::vec((1u64..2_000, 0u64..80_000), 1..150),
        ) {
            let (mut estimator, mut all) = (ClockEstimator::default(), Vec::new());
            let mut at = Instant::from_nanos(ms(1_000_000));
            for (pause_ms, round_trip_us) in exchanges {
                at += Duration::from_millis(pause_ms);
                let round_trip = Duration::from_micros(round_trip_us);
                let sent = at - round_trip;
                estimator.record(Exchange { t1: sent, t2: sent, t3: sent, t4: at });
                all.push((at, round_trip));
                let recent = || all.iter().filter(|(then, _)| at.saturating_since(*then) <= WINDOW);
                let later = at + Duration::from_millis(700);
                let best = recent().map(|(then, round_trip)| bound(later, *then, *round_trip)).min();
                prop_assert_eq!(estimator.estimate(later).map(|estimate| estimate.error), best);
                prop_assert_eq!(estimator.round_trip_time_min(), recent().map(|(_, round_trip)| *round_trip).min());
            }
        }
    }

    #[test]
    fn stamps_out_of_order_are_ignored() {
        let at = Instant::from_nanos;
        let mut estimator = ClockEstimator::default();
        estimator.record(Exchange { t1: at(10), t2: at(5), t3: at(4), t4: at(20) });
        estimator.record(Exchange { t1: at(10), t2: at(5), t3: at(500), t4: at(20) });
        estimator.record(Exchange { t1: at(30), t2: at(5), t3: at(6), t4: at(20) });
        assert_eq!(estimator.estimate(at(100)), None);
    }
}
