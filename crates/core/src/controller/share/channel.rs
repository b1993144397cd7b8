//! Estimates the rate of a channel that several cameras share, from all frames that the edge receives over the channel.

use crate::controller::flight::{FASTER, PACKET_BYTES, ms_between};
use crate::units::{BitsPerSecond, Instant};

/// The weight of a sample that took [`SAMPLE_MS`]. Shorter samples weigh less.
const GAIN: f64 = 0.6;
/// The weight of a sample in the moving average of the error.
const SPREAD_GAIN: f64 = 0.02;
/// The duration of a sample that has the full weight [`GAIN`], in milliseconds.
const SAMPLE_MS: f64 = 66.0;
/// The share of airtime that is given to cameras is `exp(−CAUTION · spread)`: less of an unsteady channel.
const CAUTION: f64 = 0.15;
/// A busy time that has lasted this long, in milliseconds, is measured even if it goes on.
const BUSY_MS_MAX: f64 = 100.0;
/// A shorter busy time gives only a lower bound of the rate, in milliseconds.
const BUSY_MS_MIN: f64 = 2.0;
/// If nothing has measured the channel for this long, in milliseconds, frames that are far apart give a lower bound of the rate.
const UNMEASURED_MS: f64 = 1_000.0;
/// The shortest time between two frames that give a lower bound, in milliseconds.
/// If the receiving host is late, frames look closer together than they were.
const APART_MS_MIN: f64 = 5.0;

/// Measures the rate of a channel while it is busy.
///
/// Frames of several cameras overlap on the channel, so each looks slow by itself. Bytes are therefore
/// counted over the time in which at least one frame was arriving.
#[derive(Debug, Default)]
pub struct Channel {
    /// The present busy time: its beginning, the end of its last frame, and the bytes that have arrived in it.
    busy: Option<(Instant, Instant, f64)>,
    /// When the rate was last measured.
    measured: Option<Instant>,
    /// Natural logarithm of bytes per millisecond.
    log_rate: Option<f64>,
    /// The mean absolute error of the estimate, in natural logarithms.
    spread: f64,
}

/// The estimated rate of a channel, and its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelRate {
    /// Bytes per millisecond while the channel is busy.
    pub bytes_per_ms: f64,
    /// The mean absolute error of the natural logarithm of the rate.
    pub spread: f64,
    /// Bytes per second that messages and acknowledgements of all cameras on the channel take.
    pub control_bytes_per_second: f64,
}

impl ChannelRate {
    /// The share of the channel's time that is given to cameras: all of a steady channel, less of one that
    /// varies.
    pub fn airtime_share(&self) -> f64 {
        (-CAUTION * self.spread).exp()
    }
}

impl Channel {
    /// Takes in a frame of any camera whose first packet arrived at `first` and whose last packet arrived
    /// at `last`. `first_bytes`: the frame's bytes that had arrived at `first`. `None`: not known.
    pub fn handle_frame(&mut self, (first, last): (Instant, Instant), bytes: u32, first_bytes: Option<u32>) {
        let bytes = f64::from(bytes);
        // The first packet after an idle time had passed by `first`, so its bytes do not count.
        let after_rest = (bytes - first_bytes.map_or(PACKET_BYTES, f64::from)).max(0.0);
        self.busy = match self.busy {
            Some((begin, end, before)) if first <= end => {
                // A time that an earlier sample covers does not count again.
                let begin = if end > begin { begin.min(first) } else { begin };
                let end = end.max(last);
                if ms_between(begin, end) < BUSY_MS_MAX {
                    Some((begin, end, before + bytes))
                } else {
                    self.measure(begin, end, before + bytes);
                    Some((end, end, 0.0))
                }
            }
            Some((begin, end, before)) => {
                self.measure(begin, end, before);
                self.pass(end, last, bytes);
                Some((first, last, after_rest))
            }
            None => Some((first, last, after_rest)),
        };
    }

    /// Raises the estimate to the rate at which `bytes` came between `end` and `last`, if nothing else measures the
    /// channel. The channel carries at least this rate, because it may have been idle for part of that time. This matters
    /// where all frames are single packets: if the rate were estimated too low, frames would stay small for ever.
    fn pass(&mut self, end: Instant, last: Instant, bytes: f64) {
        let is_unmeasured = self.measured.is_none_or(|at| ms_between(at, last) >= UNMEASURED_MS);
        let (Some(known), took_ms) = (self.log_rate, ms_between(end, last)) else { return };
        let error = (bytes / took_ms.max(APART_MS_MIN)).ln() - known;
        if is_unmeasured && took_ms >= APART_MS_MIN && error > 0.0 {
            self.log_rate = Some(known + gain(took_ms) * error);
        }
    }

    fn measure(&mut self, begin: Instant, end: Instant, bytes: f64) {
        let took_ms = ms_between(begin, end);
        if bytes <= 0.0 || took_ms < BUSY_MS_MIN && self.log_rate.is_none() {
            return;
        }
        let at_most_ms = took_ms.max(BUSY_MS_MIN);
        let measured = (bytes / at_most_ms).ln();
        let error = self.log_rate.map_or(0.0, |known| measured - known);
        if took_ms < BUSY_MS_MIN && error <= 0.0 {
            return;
        }
        // A sample that shows a faster channel weighs as if it had taken as long as the estimate predicts.
        // Otherwise a faster channel would be known only by short samples, which weigh little.
        let weight_ms =
            if error > FASTER { (at_most_ms * error.exp()).min(SAMPLE_MS).max(took_ms) } else { took_ms };
        self.measured = Some(end);
        self.spread += SPREAD_GAIN * (error.abs() - self.spread);
        self.log_rate = Some(self.log_rate.map_or(measured, |known| known + gain(weight_ms) * error));
    }

    /// The estimate. `None` until something was measured.
    pub fn known(&self) -> Option<ChannelRate> {
        let bytes_per_ms = self.log_rate?.exp();
        Some(ChannelRate { bytes_per_ms, spread: self.spread, control_bytes_per_second: 0.0 })
    }

    /// The estimated rate, for display.
    pub fn rate(&self) -> Option<BitsPerSecond> {
        self.known().map(|known| BitsPerSecond(known.bytes_per_ms * 8e3))
    }
}

/// The weight of a sample that took `took_ms`.
fn gain(took_ms: f64) -> f64 {
    1.0 - (1.0 - GAIN).powf(took_ms / SAMPLE_MS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn frames_that_overlap_are_measured_together() {
        let mut channel = Channel::default();
        assert_eq!(channel.known(), None);
        for round in 0..20 {
            // Three cameras at once, each of which looks a third as fast as the channel is.
            for _ in 0..3 {
                channel.handle_frame((at(round * 100), at(round * 100 + 60)), 60_000, None);
            }
        }
        let rate = channel.known().expect("sixty frames").bytes_per_ms;
        assert!((rate / 3_000.0 - 1.0).abs() < 0.01, "{rate}");
    }

    /// Records of 1,560 bytes on a channel of 7.5 bytes per millisecond: the first packet has 1,300 bytes, and not 1,200.
    #[test]
    fn small_frames_are_measured_by_what_came_after_their_first_packet() {
        let rate = |first_bytes| {
            let mut channel = Channel::default();
            for frame in 0..60u64 {
                let first = at(frame * 250);
                channel.handle_frame((first, first + Duration::from_micros(34_667)), 1_560, first_bytes);
            }
            channel.known().expect("sixty frames").bytes_per_ms
        };
        assert!((rate(Some(1_300)) - 7.5).abs() < 0.01, "{}", rate(Some(1_300)));
        assert!(rate(None) > 10.0, "{}", rate(None));
    }

    #[test]
    fn an_unsteady_channel_is_given_away_more_carefully() {
        let share = |rates: [u32; 2]| {
            let mut channel = Channel::default();
            for frame in 0..200u64 {
                let bytes = rates[(frame / 3 % 2) as usize] * 60;
                channel.handle_frame((at(frame * 70), at(frame * 70 + 60)), bytes, None);
            }
            channel.known().expect("two hundred frames").airtime_share()
        };
        let (steady, unsteady) = (share([3_000, 3_000]), share([1_500, 6_000]));
        assert!(steady > 0.99 && unsteady < 0.95, "{steady} and {unsteady}");
    }

    /// Frames that were made small for a slow channel take almost no time on a fast one. They show its rate nevertheless.
    #[test]
    fn a_channel_that_has_become_faster_is_known_by_short_frames() {
        let mut channel = Channel::default();
        for frame in 0..100 {
            channel.handle_frame((at(frame * 70), at(frame * 70 + 60)), 6_000, None);
        }
        let rate = |channel: &Channel| channel.known().expect("many frames").bytes_per_ms;
        assert!((rate(&channel) - 80.0).abs() < 1.0, "the first packet is there when it is first heard of");
        for frame in 100..180 {
            channel.handle_frame((at(frame * 70), at(frame * 70 + 1)), 6_000, None);
        }
        let fast = rate(&channel);
        assert!(fast > 1_800.0, "{fast}");
        for frame in 180..200 {
            channel.handle_frame((at(frame * 70), at(frame * 70 + 1)), 600, None);
        }
        assert!(rate(&channel) >= fast, "it carries at least that, though less was sent: {}", rate(&channel));
    }

    /// After an outage a channel seems to carry almost nothing. All frames become single packets, which measure nothing.
    #[test]
    fn a_rate_that_is_much_too_low_does_not_stay() {
        let mut channel = Channel::default();
        channel.handle_frame((at(0), at(900)), 3_000, None);
        channel.handle_frame((at(950), at(950)), 700, Some(700));
        let low = channel.known().expect("a frame").bytes_per_ms;
        assert!(low < 3.0, "{low}");
        for frame in 0..200 {
            channel.handle_frame((at(1_000 + 50 * frame), at(1_000 + 50 * frame)), 700, Some(700));
        }
        let found = channel.known().expect("a frame").bytes_per_ms;
        assert!((found / 14.0 - 1.0).abs() < 0.05, "700 bytes in 50 ms: {found}");
        // The estimate is never raised above the rate of the frames that came.
        let mut steady = Channel::default();
        for frame in 0..100 {
            steady.handle_frame((at(frame * 100), at(frame * 100 + 60)), 13_200, None);
        }
        let before = steady.known().expect("many frames").bytes_per_ms;
        for frame in 0..100 {
            steady.handle_frame((at(20_000 + 50 * frame), at(20_000 + 50 * frame)), 700, Some(700));
        }
        assert_eq!(steady.known().expect("more").bytes_per_ms, before);
    }

    #[test]
    fn a_channel_without_a_pause_is_measured_all_the_same() {
        let mut channel = Channel::default();
        for frame in 0..100 {
            channel.handle_frame((at(frame * 20), at(frame * 20 + 25)), 20_000, None);
        }
        let rate = channel.known().expect("two seconds").bytes_per_ms;
        assert!((rate / 1_000.0 - 1.0).abs() < 0.1, "{rate}");
    }
}
