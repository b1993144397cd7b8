//! Decides when frames are made larger than the policy would choose, to measure what the link carries.
//!
//! The chosen frames cannot measure the link in two cases: the congestion window limits
//! and grows only when it is used, or a frame is a single packet, which has no duration.

use std::time::Duration;

use super::config::Mechanism;
use super::forecast::{Forecast, Prospect};
use crate::controller::Offer;
use crate::units::Instant;

/// The largest size to which a frame is enlarged to measure the link, in bytes. A frame of this size gives a
/// full measurement.
const STRETCH_BYTES_MAX: f64 = 14e3;
/// The smallest size to which a frame is enlarged to measure the link, in bytes: two packets.
const STRETCH_BYTES_MIN: f64 = 2.4e3;
/// A frame is enlarged to this share of the bytes that would be in time.
const STRETCH_SHARE: f64 = 0.6;
/// The time to the next enlarged frame after an enlarged frame that could not be on time, although others could.
const STRETCH_LATE_INTERVAL: Duration = Duration::from_secs(5);
/// The least share of frames that may be late for measuring the link, whatever the
/// contract allows. If it were 0, nobody would notice that a link has become faster.
const LATE_SHARE_MIN: f64 = 0.01;
/// The time to the next enlarged frame after one that showed a faster link.
const STRETCH_AGAIN: Duration = Duration::from_millis(150);

/// The interval between late frames if as many are late as the contract allows. Frames
/// that are enlarged to measure the link, and may be late for it, come at most this often.
fn late_interval(offer: &Offer<'_>) -> Duration {
    offer.interval.div_f64((1.0 - offer.on_time_share).max(LATE_SHARE_MIN))
}

/// When frames were enlarged, and may be again.
#[derive(Debug)]
pub(super) struct Probing {
    /// When a frame may be sent one rung higher again.
    raise_due: Instant,
    /// The last rung that was tried while frames were too small to measure the link.
    blind_rung: usize,
    /// When a frame may be made larger at its own rung.
    stretch_due: Instant,
}

impl Probing {
    pub(super) fn new() -> Self {
        Self { raise_due: Instant::ZERO, blind_rung: 0, stretch_due: Instant::ZERO }
    }

    /// Makes the next enlarged frame due soon, because the link carries more than was estimated.
    pub(super) fn handle_faster(&mut self, now: Instant) {
        self.stretch_due = self.stretch_due.min(now + STRETCH_AGAIN);
    }

    /// Lets the next try begin from below, after a frame that measured the link or was late.
    pub(super) fn forget_tried(&mut self) {
        self.blind_rung = 0;
    }

    /// Returns the prospect one rung above `best` from time to time, while the congestion
    /// window limits or frames are too small to measure the link. Otherwise returns `best`.
    pub(super) fn raise(&mut self, forecast: &Forecast<'_>, best: Prospect) -> Prospect {
        let (offer, rate) = (&forecast.offer, &forecast.knows.rate);
        // While nothing is measured, each try is one rung above the last. Otherwise nothing would ever be measured.
        let tried = if rate.blind { self.blind_rung } else { 0 };
        let rung = best.rung.max(tried) + 1;
        let stretches = offer.coding.is_some_and(|coding| coding.stretches);
        let config = &forecast.knows.config;
        let due = (rate.window_limited || rate.blind && !stretches)
            && offer.now >= self.raise_due
            && config.has(Mechanism::Probing);
        if !due || rung >= offer.ladder.len() {
            return best;
        }
        let higher = forecast.prospect(rung);
        if higher.on_time < offer.on_time_share && !rate.blind {
            return best;
        }
        let mut interval = config.probe_interval;
        if higher.on_time < offer.on_time_share {
            interval = interval.max(late_interval(offer));
        }
        (self.raise_due, self.blind_rung) = (offer.now + interval, rung);
        higher
    }

    /// The size in bytes to which this frame should be enlarged to measure the link. Frames are enlarged
    /// from time to time, while they are too small to measure the link and can be enlarged at the rung
    /// of their chain. The next rung may be a hundred times as large, where video ends and stills begin.
    pub(super) fn stretch(
        &mut self,
        forecast: &Forecast<'_>,
        best: Prospect,
        infeasible: bool,
    ) -> Option<f64> {
        let (offer, knows) = (&forecast.offer, forecast.knows);
        let stretches =
            offer.coding.is_some_and(|coding| coding.stretches && coding.continues == Some(best.rung));
        if !stretches
            || !knows.rate.is_dull
            || offer.now < self.stretch_due
            || !knows.config.has(Mechanism::Stretching)
        {
            return None;
        }
        let camera_time = offer.ladder.rungs()[best.rung].camera_time;
        let in_time = knows.bytes_in_time(offer, camera_time)? * STRETCH_SHARE;
        let bytes = in_time.clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX);
        let late = bytes > in_time && !infeasible;
        let interval = if late { STRETCH_LATE_INTERVAL } else { knows.config.probe_interval };
        self.stretch_due = offer.now + interval;
        (bytes > knows.sizes.as_now(offer.bytes(best.rung).mean)).then_some(bytes)
    }
}
