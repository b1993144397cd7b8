//! Estimates how fast answers reach the camera.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// The most answers that are remembered.
const REMEMBERED_MAX: usize = 16;
/// How long an answer is remembered. The rate of a changed path is known again within this time.
const REMEMBERED_TIME: Duration = Duration::from_secs(3);
/// Smaller answers do not count. They go in a few packets, so they measure the delay of the path, not its rate.
const TELLING_BYTES_MIN: u64 = 4 << 10;
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
        if bytes < TELLING_BYTES_MIN {
            return;
        }
        if self.rates.len() == REMEMBERED_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back((now, bytes as f64 / took.max(TOOK_MIN).as_secs_f64()));
    }

    /// The lower quartile of the recent rates, in bytes per second. `None`: no rate is known.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let recent = self.rates.iter().filter(|(at, _)| now.saturating_since(*at) <= REMEMBERED_TIME);
        let mut rates: Vec<f64> = recent.map(|(_, rate)| *rate).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 4).copied()
    }

    /// Forgets all rates, because the path has changed.
    pub(super) fn clear(&mut self) {
        self.rates.clear();
    }
}
