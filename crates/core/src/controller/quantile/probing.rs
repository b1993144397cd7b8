//! Frames that are larger than the policy would choose, to learn what the link carries.
//!
//! Two links cannot be measured by the frames that are chosen: one on which the congestion window limits, which grows only when it
//! is used, and one on which a frame is a single packet, which has no duration.

use std::time::Duration;

use super::config::Mechanism;
use super::forecast::{Forecast, Prospect};
use crate::units::Instant;

/// A frame that is made larger to measure the link by is at most as large as what gives a full measurement,
const STRETCH_BYTES_MAX: f64 = 14e3;
/// and at least so large: two packets.
const STRETCH_BYTES_MIN: f64 = 2.4e3;
/// Of the bytes that are there in time, it takes this share.
const STRETCH_SHARE: f64 = 0.6;
/// Where it cannot be on time, and others can, so long passes between two.
const STRETCH_LATE_INTERVAL: Duration = Duration::from_secs(5);
/// After one that showed that the link is faster, the next comes after this.
const STRETCH_AGAIN: Duration = Duration::from_millis(150);

/// When frames were larger than chosen, and may be again.
#[derive(Debug)]
pub(super) struct Probing {
    /// When a frame last went a rung up.
    probed: Instant,
    /// The rung that was tried last while frames were too small to measure the link by.
    blind_rung: usize,
    /// When a frame may be made larger at its own rung.
    stretch_due: Instant,
}

impl Probing {
    pub(super) fn new() -> Self {
        Self { probed: Instant::ZERO, blind_rung: 0, stretch_due: Instant::ZERO }
    }

    /// The link carries more than was thought: how much more is to be known soon.
    pub(super) fn handle_faster(&mut self, now: Instant) {
        self.stretch_due = self.stretch_due.min(now + STRETCH_AGAIN);
    }

    /// A frame measured the link, or was late: the next try begins from below.
    pub(super) fn forget_tried(&mut self) {
        self.blind_rung = 0;
    }

    /// One rung more, from time to time, while it is the congestion window that limits, or while frames are too small to measure
    /// the link by.
    pub(super) fn raise(&mut self, forecast: &Forecast<'_>, best: Prospect) -> Prospect {
        let (offer, rate) = (&forecast.offer, &forecast.knows.rate);
        // As long as nothing is measured each try goes above the last, or it would never be.
        let tried = if rate.blind { self.blind_rung } else { 0 };
        let rung = best.rung.max(tried) + 1;
        let stretches = offer.coding.is_some_and(|coding| coding.stretches);
        let config = &forecast.knows.config;
        let due = (rate.window_limited || rate.blind && !stretches)
            && offer.now >= self.probed + config.probe_interval
            && config.has(Mechanism::Probing);
        if !due || rung >= offer.ladder.len() {
            return best;
        }
        let higher = forecast.prospect(rung);
        if higher.on_time < offer.on_time_share && !rate.blind {
            return best;
        }
        (self.probed, self.blind_rung) = (offer.now, rung);
        higher
    }

    /// While frames are too small to measure the link by, and can be made larger at the rung that they go on at: so many bytes for
    /// this one, from time to time. A rung more may be a hundred times as large, where video ends and stills begin.
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
