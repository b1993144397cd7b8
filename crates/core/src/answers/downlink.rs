//! Remembers how fast answers went to the camera lately.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Instant;

/// Answers that are remembered.
const REMEMBERED_MAX: usize = 16;
/// For how long. A path that has changed is known again within this time.
const REMEMBERED_TIME: Duration = Duration::from_secs(3);
/// A smaller answer goes in a few packets. How long that takes says how long the path is, not how fast.
const TELLING_BYTES_MIN: u64 = 4 << 10;
/// The shortest time that counts: scheduling on both sides takes as long.
const TOOK_MIN: Duration = Duration::from_micros(500);

/// The rates of the last answers.
#[derive(Debug, Default)]
pub(super) struct Downlink {
    /// When an answer had arrived, and its bytes per second. Oldest first.
    rates: VecDeque<(Instant, f64)>,
}

impl Downlink {
    /// So many bytes arrived in that time.
    pub(super) fn note(&mut self, now: Instant, bytes: u64, took: Duration) {
        if bytes < TELLING_BYTES_MIN {
            return;
        }
        if self.rates.len() == REMEMBERED_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back((now, bytes as f64 / took.max(TOOK_MIN).as_secs_f64()));
    }

    /// Bytes per second that three of four answers of late were faster than. `None`: nothing is known.
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        let recent = self.rates.iter().filter(|(at, _)| now.saturating_since(*at) <= REMEMBERED_TIME);
        let mut rates: Vec<f64> = recent.map(|(_, rate)| *rate).collect();
        rates.sort_unstable_by(f64::total_cmp);
        rates.get(rates.len() / 4).copied()
    }

    /// The path is another one.
    pub(super) fn clear(&mut self) {
        self.rates.clear();
    }
}
