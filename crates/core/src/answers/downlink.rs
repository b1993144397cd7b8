//! Estimates how fast answers reach the camera.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The most answers that are remembered.
const REMEMBERED_MAX: usize = 16;
/// How long an answer is remembered. The rate of a changed path is known again within this time.
const REMEMBERED_TIME: Duration = Duration::from_secs(3);
/// If so many answers in succession were slower than the lower quartile, the path has become slower.
const FALLEN_AFTER: usize = 2;
/// Smaller answers go in a few packets. If they are quick, they measure the delay of the path, so its rate is at least theirs.
pub(super) const TELLING_BYTES_MIN: u64 = 4 << 10;
/// A small answer that took this long lowers a rate that is known.
const TELLING_TIME_MIN: Duration = Duration::from_millis(20);
/// The shortest time that counts: scheduling on both sides takes as long.
const TOOK_MIN: Duration = Duration::from_micros(500);

/// The rates of the last answers.
#[derive(Debug, Default)]
pub(super) struct Downlink {
    /// When each answer had arrived, and its rate in bytes per second. Oldest first.
    rates: VecDeque<(Instant, f64)>,
}

impl Downlink {
    /// An answer of `bytes` took `took` to arrive.
    pub(super) fn note(&mut self, now: Instant, bytes: u64, took: Duration) {
        let measured = bytes as f64 / took.max(TOOK_MIN).as_secs_f64();
        let rate = match (bytes >= TELLING_BYTES_MIN, self.rate(now)) {
            (true, _) => measured,
            (false, None) => return,
            (false, Some(_)) if took >= TELLING_TIME_MIN => measured,
            // The rate must not be forgotten while answers are small because of it.
            (false, Some(known)) => measured.max(known),
        };
        self.push(now, rate);
    }

    /// An answer was given up after `took`, when `bytes` of it had left.
    pub(super) fn note_left(&mut self, now: Instant, bytes: u64, took: Duration) {
        // Fewer may have left while this process stood still, or in an outage: they say nothing of the rate.
        if bytes >= TELLING_BYTES_MIN && took >= TELLING_TIME_MIN {
            self.push(now, bytes as f64 / took.as_secs_f64());
        }
    }

    fn push(&mut self, now: Instant, rate: f64) {
        if self.rates.len() == REMEMBERED_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back((now, rate));
    }

    /// The lower quartile of the recent rates, in bytes per second, or what the path has fallen to since. `None`: no rate is known.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let recent = self.rates.iter().filter(|(at, _)| now.saturating_since(*at) <= REMEMBERED_TIME);
        let mut rates: Vec<f64> = recent.map(|(_, rate)| *rate).collect();
        let newest = rates.iter().rev().take(FALLEN_AFTER).copied().reduce(f64::max)?;
        rates.sort_unstable_by(f64::total_cmp);
        // A quartile of sixteen follows a fall after five slow answers. Two answers in succession tell it sooner.
        Some(rates[rates.len() / 4].min(newest))
    }

    /// Forgets all rates, because the path has changed.
    pub(super) fn clear(&mut self) {
        self.rates.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate after a hundred answers of 10 kB, 30 ms apart, that took these milliseconds.
    fn rate_after(took_ms: impl Fn(u64) -> u64) -> f64 {
        let mut downlink = Downlink::default();
        let mut now = Instant::ZERO;
        for number in 0..100 {
            now += Duration::from_millis(30);
            downlink.note(now, 10_000, Duration::from_millis(took_ms(number)));
        }
        downlink.rate(now).unwrap().round()
    }

    #[test]
    fn single_slow_answers_do_not_lower_the_rate_and_two_in_succession_do() {
        assert_eq!(rate_after(|_| 10), 1_000_000.0);
        assert_eq!(rate_after(|number| if number == 99 { 50 } else { 10 }), 1_000_000.0);
        assert_eq!(rate_after(|number| if number >= 98 { 50 - (number - 98) * 10 } else { 10 }), 250_000.0);
        assert_eq!(rate_after(|number| if number % 3 == 0 { 50 } else { 10 }), 200_000.0, "the quartile");
        assert_eq!(
            rate_after(|number| if number >= 90 { 10 } else { 50 }),
            200_000.0,
            "six of sixteen are slow"
        );
        assert_eq!(rate_after(|number| if number >= 87 { 10 } else { 50 }), 1_000_000.0, "three of sixteen");
    }

    /// Small answers keep a low rate known. They raise it as soon as they are quick.
    #[test]
    fn small_answers_do_not_let_a_slow_path_be_forgotten() {
        let (mut downlink, mut now) = (Downlink::default(), Instant::ZERO);
        let mut note = |bytes, took_ms| {
            now += Duration::from_millis(100);
            downlink.note(now, bytes, Duration::from_millis(took_ms));
            downlink.rate(now)
        };
        assert_eq!(note(2_000, 10), None, "nothing is known yet");
        assert_eq!(note(10_000, 100), Some(100_000.0));
        for _ in 0..100 {
            assert_eq!(note(1_000, 15), Some(100_000.0));
        }
        let fast = (0..16).map(|_| note(2_000, 4)).last();
        assert_eq!(fast, Some(Some(500_000.0)));
        assert_eq!(
            (note(2_000, 40), note(2_000, 50)),
            (Some(500_000.0), Some(50_000.0)),
            "the path is slower"
        );
    }
}
