//! Measures how long frames take from the edge into the application's client library.
//!
//! The camera works with the part of the latency bound that this time leaves. The
//! camera is told of changes rarely and in steps, because each change is a new demand.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The span of time over which the way is measured.
const SPAN: Duration = Duration::from_secs(5);
/// The most frames that are remembered.
const FRAMES_MAX: usize = 512;
/// The fewest frames for a measurement.
const FRAMES_MIN: usize = 8;
/// This share of the frames takes no longer than the way.
const SHARE: f64 = 0.9;
/// The way is reported in steps of this share of the latency bound. A way below one step counts as zero.
const STEP_SHARE: f64 = 0.05;
/// The largest share of the latency bound that the way takes from the camera. A longer way would
/// leave the camera too little time for any frame. It is reported as a missed latency instead.
const TAKEN_SHARE_MAX: f64 = 0.5;
/// The shortest time between two changes.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// How long frames take from the edge into the application's client library.
#[derive(Debug, Default)]
pub struct Way {
    frames: VecDeque<(Instant, Duration)>,
    /// The time that nine of ten frames take at most, when last computed.
    known: Duration,
    /// When a way was last reported, and its length.
    told: Option<(Instant, Duration)>,
}

impl Way {
    /// Takes in how long one frame took.
    pub fn handle_frame(&mut self, now: Instant, took: Duration) {
        if self.frames.len() == FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back((now, took));
    }

    /// The time that nine of ten frames took at most, as of the last [`Way::poll`].
    pub fn known(&self) -> Duration {
        self.known
    }

    /// The time by which the camera's bound must be shortened, at most half of
    /// `bound`. `None`: it has not changed since the last answer, or is not known.
    pub fn poll(&mut self, now: Instant, bound: Duration) -> Option<Duration> {
        if self.told.is_some_and(|(at, _)| now.saturating_since(at) < TELL_INTERVAL) {
            return None;
        }
        while self.frames.front().is_some_and(|(at, _)| now.saturating_since(*at) > SPAN) {
            self.frames.pop_front();
        }
        if self.frames.len() < FRAMES_MIN {
            return None;
        }
        let mut times: Vec<Duration> = self.frames.iter().map(|(_, took)| *took).collect();
        let place = ((times.len() - 1) as f64 * SHARE).ceil() as usize;
        self.known = *times.select_nth_unstable(place).1;
        let told = self.told.map_or(Duration::ZERO, |(_, told)| told);
        let step = bound.mul_f64(STEP_SHARE).max(Duration::from_nanos(1));
        let most = bound.mul_f64(TAKEN_SHARE_MAX);
        let next = match self.known {
            known if known < step => Duration::ZERO,
            // Rounded up to the next step.
            known => step.mul_f64((known.as_secs_f64() / step.as_secs_f64()).ceil()).min(most),
        };
        // A change is reported if the way is longer, or shorter by more than a step.
        // So a way at the border of two steps does not change the demand every second.
        let is_news = next > told || next + step < told || next == Duration::ZERO && told > Duration::ZERO;
        is_news.then(|| {
            self.told = Some((now, next));
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(100);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The reported ways while frames take `took`, one frame every 50 ms, for ten seconds from `from` on.
    fn told(way: &mut Way, from: Instant, took: impl Fn(u64) -> Duration) -> Vec<Duration> {
        let frames = (0..200).filter_map(|frame| {
            let now = from + ms(50 * frame);
            way.handle_frame(now, took(frame));
            way.poll(now, BOUND)
        });
        frames.collect()
    }

    #[test]
    fn a_way_is_told_in_steps_and_its_end_too() {
        let mut way = Way::default();
        let start = Instant::ZERO;
        assert_eq!(told(&mut way, start, |_| Duration::from_micros(400)), [], "a hop on one host is none");
        assert_eq!(told(&mut way, start + ms(10_000), |frame| ms(28 + frame % 2)), [ms(30)]);
        assert_eq!(
            told(&mut way, start + ms(20_000), |frame| ms(26 + frame % 2 * 3)),
            [],
            "it changes little"
        );
        // The old frames leave the span one by one.
        let shorter = told(&mut way, start + ms(30_000), |_| ms(1));
        assert_eq!(shorter.last(), Some(&Duration::ZERO), "{shorter:?}");
        assert!(shorter.len() <= 2, "{shorter:?}");
        assert_eq!(
            told(&mut way, start + ms(40_000), |_| ms(700)).last(),
            Some(&ms(50)),
            "half of the bound"
        );
    }
}
