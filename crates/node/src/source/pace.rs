//! Decides when a frame is due, which frames are left out, and how long to wait before a retry.
//!
//! This module is pure: time is an argument.

use std::time::{Duration, Instant};

/// The open-loop schedule of a recording: frame k is due at start + k / rate, whatever happens to other frames.
/// Lost time is never made up by sending faster; the slots that passed meanwhile are counted as skipped.
#[derive(Debug)]
pub(super) struct Schedule {
    start: Instant,
    frames_per_second: f64,
    /// The next slot that has no frame yet.
    slot: u64,
}

/// The slot that a frame got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    /// When the frame is due. A late frame is due up to one interval ago.
    pub(super) due: Instant,
    /// The number of slots before it that passed without a frame.
    pub(super) skipped: u64,
}

impl Schedule {
    pub(super) fn new(start: Instant, frames_per_second: f64) -> Self {
        Self { start, frames_per_second, slot: 0 }
    }

    fn due(&self, slot: u64) -> Instant {
        // Computed from the start each time: a sum of intervals would drift by rounding.
        self.start + Duration::from_secs_f64(slot as f64 / self.frames_per_second)
    }

    /// Whole intervals by which the next slot is overdue.
    fn slots_late(&self, now: Instant) -> u64 {
        let late = now.saturating_duration_since(self.due(self.slot));
        (late.as_secs_f64() * self.frames_per_second) as u64
    }

    /// Whether to leave out the current frame: it has missed its slot by an interval or more, and the next
    /// frame is ready. Leaving it out uses up its slot, and saves encoding it.
    pub(super) fn leave_out(&mut self, now: Instant, next_is_ready: bool) -> bool {
        let leave_out = next_is_ready && self.slots_late(now) > 0;
        self.slot += u64::from(leave_out);
        leave_out
    }

    /// Assigns the next slot that is at most one interval late to the current frame.
    pub(super) fn take(&mut self, now: Instant) -> Slot {
        let skipped = self.slots_late(now);
        let due = self.due(self.slot + skipped);
        self.slot += skipped + 1;
        Slot { due, skipped }
    }
}

/// Reduces the rate of a live source evenly: keeps the frames nearest to an even grid.
#[derive(Debug)]
pub(super) struct Thinning {
    interval: Duration,
    next: Option<Instant>,
    last_arrival: Option<Instant>,
    /// Running mean of the time between arrivals.
    arrival_interval: Option<Duration>,
}

impl Thinning {
    pub(super) fn new(frames_per_second: f64) -> Self {
        Self {
            interval: Duration::from_secs_f64(1.0 / frames_per_second),
            next: None,
            last_arrival: None,
            arrival_interval: None,
        }
    }

    /// True if the frame that arrived at `arrival` is to be kept.
    pub(super) fn keep(&mut self, arrival: Instant) -> bool {
        if let Some(last) = self.last_arrival.replace(arrival) {
            let gap = arrival.saturating_duration_since(last);
            self.arrival_interval = Some(match self.arrival_interval {
                // An outage says nothing about the source's rate.
                Some(mean) => (mean * 7 + gap.min(mean * 4)) / 8,
                None => gap,
            });
        }
        let Some(next) = self.next else {
            self.next = Some(arrival + self.interval);
            return true;
        };
        // A frame half a source interval early is as near to the grid as a frame half an interval late.
        let tolerance = self.arrival_interval.unwrap_or_default().min(self.interval) / 2;
        if arrival + tolerance < next {
            return false;
        }
        // The grid stays fixed, so that the rate is exact. After a gap the grid restarts, so that there is no burst.
        let from = if arrival >= next + self.interval { arrival } else { next };
        self.next = Some(from + self.interval);
        true
    }
}

/// How long to wait before a source is opened again. The wait doubles, so that an absent camera costs
/// little. It is short again once the source has worked.
#[derive(Debug)]
pub(super) struct BackOff {
    wait: Duration,
}

impl BackOff {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(8);
    /// A source that has delivered frames for this long counts as working, so the next pause is short again.
    const WORKED_FOR: Duration = Duration::from_secs(10);

    pub(super) fn new() -> Self {
        Self { wait: Self::FIRST }
    }

    /// The wait after a run that gave frames for `worked_for`, from its first frame to its last.
    pub(super) fn after(&mut self, worked_for: Duration) -> Duration {
        if worked_for >= Self::WORKED_FOR {
            self.wait = Self::FIRST;
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(Self::LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn frames_in_time_get_every_slot() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 10.0);
        for k in 0..50 {
            // From early to just under an interval late.
            let slot = schedule.take(start + ms(k * 100 + (k * 37) % 100));
            assert_eq!(slot, Slot { due: start + ms(k * 100), skipped: 0 });
        }
    }

    /// A day at 29.97 fps ends at the computed time; a sum of rounded intervals would not.
    #[test]
    fn a_day_does_not_drift() {
        let start = Instant::now();
        let rate = 30_000.0 / 1001.0;
        let mut schedule = Schedule::new(start, rate);
        let frames = (86_400.0 * rate) as u64;
        for _ in 0..frames {
            schedule.take(start);
        }
        let due = schedule.take(start).due - start;
        assert!(
            due.abs_diff(Duration::from_secs_f64(frames as f64 * 1001.0 / 30_000.0))
                < Duration::from_micros(1)
        );
    }

    /// A stop of 350 ms loses the three slots that ended meanwhile, once, and the grid does not move.
    #[test]
    fn a_stop_is_counted_and_not_made_up() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 10.0);
        schedule.take(start);
        let slot = schedule.take(start + ms(100 + 350));
        assert_eq!(slot, Slot { due: start + ms(400), skipped: 3 });
        assert_eq!(schedule.take(start + ms(460)), Slot { due: start + ms(500), skipped: 0 });
    }

    /// Late frames are left out only while a newer one is there to take their place.
    #[test]
    fn a_late_frame_gives_way_to_a_newer_one_only() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 10.0);
        let now = start + ms(250);
        assert!(schedule.leave_out(now, true));
        assert!(schedule.leave_out(now, true));
        assert!(!schedule.leave_out(now, true), "slot 2 is due at 200 ms, half an interval ago");
        assert_eq!(schedule.take(now), Slot { due: start + ms(200), skipped: 0 });
        assert!(!schedule.leave_out(start + ms(900), false), "a decoder that is too slow has nothing newer");
        assert_eq!(schedule.take(start + ms(900)), Slot { due: start + ms(900), skipped: 6 });
    }

    proptest! {
        /// Every slot up to the last is used once, skipped once, or left out once; due times strictly increase and
        /// never lie an interval or more in the past.
        #[test]
        fn slots_are_accounted_for(
            steps in prop::collection::vec((0u64..400, any::<bool>()), 1..200),
            rate in 1.0f64..120.0,
        ) {
            let start = Instant::now();
            let mut schedule = Schedule::new(start, rate);
            let mut now = start;
            let mut used = 0;
            let mut last_due = None;
            for (step_ms, next_is_ready) in steps {
                now += ms(step_ms);
                if schedule.leave_out(now, next_is_ready) {
                    used += 1;
                    continue;
                }
                let slot = schedule.take(now);
                used += 1 + slot.skipped;
                prop_assert!(last_due < Some(slot.due));
                last_due = Some(slot.due);
                let late = now.saturating_duration_since(slot.due).as_secs_f64();
                prop_assert!(late < 1.0 / rate + 1e-6, "{} s late", late);
            }
            prop_assert_eq!(schedule.slot, used);
        }

        /// Thinned to any rate below its own, a jittery source gives that rate, and no gap is much larger than
        /// the grid plus one interval of the source.
        #[test]
        fn thinning_is_even(source_ms in 10u64..60, divisor in 1.0f64..9.0, seed in any::<u64>()) {
            let start = Instant::now();
            let rate = 1000.0 / source_ms as f64 / divisor;
            let mut thinning = Thinning::new(rate);
            let (mut random, mut kept) = (seed, Vec::new());
            for k in 0..2000u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let jitter = Duration::from_secs_f64(source_ms as f64 / 1000.0 * ((random >> 40) as f64 / (1u64 << 24) as f64) * 0.3);
                let arrival = start + ms(k * source_ms) + jitter;
                if thinning.keep(arrival) {
                    kept.push(arrival);
                }
            }
            let expected = 2000.0 / divisor;
            prop_assert!((kept.len() as f64 - expected).abs() <= 3.0 + expected * 0.005, "{} of {}", kept.len(), expected);
            let interval = Duration::from_secs_f64(1.0 / rate);
            for pair in kept.windows(2).skip(2) {
                let gap = pair[1] - pair[0];
                prop_assert!(gap <= interval + ms(source_ms) * 3 / 2 + ms(1), "{:?} for {:?}", gap, interval);
            }
        }
    }

    #[test]
    fn thinning_to_more_than_there_is_keeps_everything() {
        let start = Instant::now();
        let mut thinning = Thinning::new(100.0);
        assert!((0..100).all(|k| thinning.keep(start + ms(k * 33))));
    }

    #[test]
    fn after_an_outage_there_is_no_burst() {
        let start = Instant::now();
        let mut thinning = Thinning::new(10.0);
        let before = (0..30).filter(|k| thinning.keep(start + ms(k * 33))).count();
        let after = (0..30).filter(|k| thinning.keep(start + ms(60_000 + k * 33))).count();
        assert_eq!((before, after), (10, 10));
    }

    #[test]
    fn waits_double_up_to_a_bound_and_start_over_after_success() {
        let mut back_off = BackOff::new();
        let waits: Vec<u128> = (0..8).map(|_| back_off.after(ms(9_999)).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(back_off.after(ms(10_000)), ms(250));
        assert_eq!(back_off.after(ms(0)), ms(500));
    }
}
