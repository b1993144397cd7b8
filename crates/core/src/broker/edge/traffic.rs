//! Measures what a camera publishes and what of that crosses the link at present.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::Traffic;
use crate::units::{BitsPerSecond, Instant};

/// The time over which rates are averaged.
const WINDOW: Duration = Duration::from_secs(5);
/// The most samples that are kept. Cameras report once a second.
const SAMPLES_MAX: usize = 8;

/// The counts at the time of a camera's report.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    /// Bytes of all frames that the camera has published.
    published: u64,
    /// Bytes of all payloads that have crossed the link.
    crossed: u64,
}

/// The last counts of one connection of a camera.
#[derive(Default)]
pub(super) struct TrafficMeter {
    /// Oldest first.
    samples: VecDeque<Sample>,
}

impl TrafficMeter {
    /// The camera reports that it has published this many bytes in all. `crossed` payload bytes have crossed the link in all.
    pub(super) fn handle_status(&mut self, at: Instant, published: u64, crossed: u64) {
        if self.samples.back().is_some_and(|last| last.published > published) {
            // Another start of the camera counts from zero.
            self.samples.clear();
        }
        if self.begins(crossed) {
            // Frames that were published while nobody wanted them do not count as saved bytes.
            self.samples.clear();
        }
        self.samples.push_back(Sample { at, published, crossed });
        // One sample older than the window remains, so that a late report still has one to compare with.
        let is_old = |sample: &Sample| at.saturating_since(sample.at) >= WINDOW;
        while self.samples.len() > SAMPLES_MAX || self.samples.get(1).is_some_and(is_old) {
            self.samples.pop_front();
        }
    }

    /// Whether bytes cross the link that did not for the last two reports, although frames were published.
    /// One interval is not enough: the only frame of a camera with 1 frame/s may be on its way.
    fn begins(&self, crossed: u64) -> bool {
        let mut latest = self.samples.iter().rev();
        let (Some(last), Some(before), Some(first)) = (latest.next(), latest.next(), latest.next()) else {
            return false;
        };
        let is_idle =
            |from: &Sample, to: &Sample| from.crossed == to.crossed && from.published < to.published;
        is_idle(first, before) && is_idle(before, last) && last.crossed < crossed
    }

    /// The camera is gone.
    pub(super) fn handle_gone(&mut self) {
        self.samples.clear();
    }

    /// The rates of the last seconds, or since frames began to cross. `None` before two reports.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.at.saturating_since(first.at).as_secs_f64();
        let rate = |from: u64, to: u64| BitsPerSecond(to.saturating_sub(from) as f64 * 8.0 / seconds);
        (seconds > 0.0).then(|| Traffic {
            published: rate(first.published, last.published),
            crossed: rate(first.crossed, last.crossed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// A camera publishes 136 kB ten times a second. Nobody is subscribed at first, then 5 kB of each frame cross the link.
    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut meter = TrafficMeter::default();
        assert_eq!(meter.traffic(), None);
        for second in 0..10 {
            meter.handle_status(at(second), second * 1_360_000, 0);
        }
        let idle = meter.traffic().unwrap();
        assert_eq!((idle.published.0, idle.crossed.0), (10_880_000.0, 0.0));
        meter.handle_status(at(10), 10 * 1_360_000, 50_000);
        assert_eq!(meter.traffic(), None, "how much of the last second somebody wanted frames is not known");
        for second in 11..20 {
            meter.handle_status(at(second), second * 1_360_000, (second - 9) * 50_000);
            let busy = meter.traffic().unwrap();
            assert_eq!((busy.published.0, busy.crossed.0), (10_880_000.0, 400_000.0), "at {second} s");
        }
    }

    #[test]
    fn a_start_of_the_camera_counts_from_zero() {
        let mut meter = TrafficMeter::default();
        meter.handle_status(at(1), 9_000_000, 100);
        meter.handle_status(at(2), 1_000, 100);
        assert_eq!(meter.traffic(), None);
        meter.handle_status(at(3), 2_000, 350);
        let traffic = meter.traffic().unwrap();
        assert_eq!((traffic.published.0, traffic.crossed.0), (8_000.0, 2_000.0));
        meter.handle_gone();
        assert_eq!(meter.traffic(), None);
    }

    /// A report that comes late is compared with the one before, however old.
    #[test]
    fn a_late_report_still_has_a_rate() {
        let mut meter = TrafficMeter::default();
        meter.handle_status(at(0), 0, 0);
        meter.handle_status(at(20), 20_000, 10_000);
        let traffic = meter.traffic().unwrap();
        assert_eq!((traffic.published.0, traffic.crossed.0), (8_000.0, 4_000.0));
    }
}
