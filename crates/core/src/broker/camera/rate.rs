//! Measures how often frames are published.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The assumed time between frames, before two were published.
const INTERVAL_DEFAULT: Duration = Duration::from_millis(66);
/// How many frames are remembered.
const FRAMES_MAX: usize = 64;
/// Frames that were published longer ago than this do not count.
const WINDOW: Duration = Duration::from_secs(4);

/// When the last frames were published.
#[derive(Debug, Default)]
pub(super) struct PublishingRate {
    /// Oldest first.
    published: VecDeque<Instant>,
}

impl PublishingRate {
    /// A frame was published.
    pub(super) fn note(&mut self, now: Instant) {
        self.published.push_back(now);
        if self.published.len() > FRAMES_MAX {
            self.published.pop_front();
        }
    }

    /// The usual time between frames.
    pub(super) fn interval(&self, now: Instant) -> Duration {
        let rate = self.frames_per_second(now);
        if rate > 0.0 { Duration::from_secs_f64(1.0 / rate) } else { INTERVAL_DEFAULT }
    }

    /// Frames per second over the last four seconds, or over the last 64 frames if they span less. 0 before two were published.
    pub(super) fn frames_per_second(&self, now: Instant) -> f64 {
        let old = self.published.partition_point(|at| now.saturating_since(*at) > WINDOW);
        match (self.published.get(old), self.published.len() - old) {
            (Some(first), frames @ 2..) => {
                (frames - 1) as f64 / now.saturating_since(*first).as_secs_f64().max(1e-3)
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_long_ago_does_not_count() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut rate = PublishingRate::default();
        rate.note(at(0));
        assert_eq!(rate.interval(at(0)), INTERVAL_DEFAULT);
        for ms in (10_000..11_000).step_by(100) {
            rate.note(at(ms));
        }
        assert_eq!(rate.frames_per_second(at(10_900)), 10.0);
        assert_eq!(rate.interval(at(10_900)), Duration::from_millis(100));
        assert_eq!(rate.frames_per_second(at(20_000)), 0.0);
    }
}
