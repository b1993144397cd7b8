//! Implements the controller of the Mez paper (A. George et al. 2020, Algorithm 1): a proportional-integral
//! controller of the frame size on the error of the latency.
//!
//! A linear regression of latency on frame size, fitted to the deployment beforehand, gives the nominal size
//! for the target latency. The error between the sampled latency and the target corrects it:
//!
//! ```text
//! error = latency − target
//! size  = regression(target) − K1 · error − K2 · Σ error
//! ```
//!
//! Taken literally, the published algorithm cannot work. Its signs make late frames larger. It acts only while frames are late,
//! so quality never returns. The authors' code sums |error| and mixes kilobytes with bytes. This implementation has the signs
//! that the paper's text means, and acts on errors of both signs. It keeps the sum within the range of the ladder, and has all
//! sizes in bytes. The gains by band of |error|, the sampling of every fifth frame and the regression are the published ones.

use crate::controller::flight::{ms, ms_between};
use crate::controller::{Arrival, Choice, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame};
use crate::frame::FrameId;
use crate::profile::Ladder;
use crate::units::Instant;

/// The latency of a frame as a linear function of its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regression {
    /// The latency of an empty frame, in milliseconds.
    pub base_ms: f64,
    /// Milliseconds per kilobyte.
    pub ms_per_kilobyte: f64,
}

impl Regression {
    /// The published regression, for one camera beside four others on 802.11ac.
    pub const PUBLISHED: Self = Self { base_ms: 2.137_46, ms_per_kilobyte: 0.029_82 };

    /// The size with this latency, in bytes.
    fn bytes(&self, latency_ms: f64) -> f64 {
        ((latency_ms - self.base_ms) / self.ms_per_kilobyte * 1e3).max(0.0)
    }
}

/// The gains for a band of errors, in bytes per millisecond of error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// The upper limit of |error| in this band, in milliseconds. The previous band gives the lower limit.
    pub error_ms_below: f64,
    /// The proportional gain, K1.
    pub proportional: f64,
    /// The integral gain, K2.
    pub integral: f64,
}

/// The published gains.
pub const PUBLISHED_GAINS: [Gains; 7] = [
    Gains { error_ms_below: 10.0, proportional: 3568.9, integral: 2446.32 },
    Gains { error_ms_below: 20.0, proportional: 4523.67, integral: 4094.9 },
    Gains { error_ms_below: 40.0, proportional: 4860.33, integral: 2979.11 },
    Gains { error_ms_below: 80.0, proportional: 3661.5, integral: 7189.39 },
    Gains { error_ms_below: 100.0, proportional: 3546.87, integral: 7375.38 },
    Gains { error_ms_below: 200.0, proportional: 2470.48, integral: 6127.73 },
    Gains { error_ms_below: f64::INFINITY, proportional: 2149.77, integral: 2807.32 },
];

/// Constants of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The latency as a function of size, measured in the deployment. Default: as published.
    pub regression: Regression,
    /// Multiplies all gains, since the published ones belong to the authors' network. Default 1.
    pub gain_factor: f64,
    /// The target as a share of the latency bound. Default 1. Below 1, frames at the target latency are early.
    pub target_share: f64,
    /// The number of frames from one sample of the latency, and update of the size, to the next. Default 5.
    pub sample_frames: u32,
    /// Smaller errors, in milliseconds, are ignored. Default 2.
    pub error_ms_min: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            regression: Regression::PUBLISHED,
            gain_factor: 1.0,
            target_share: 1.0,
            sample_frames: 5,
            error_ms_min: 2.0,
        }
    }
}

/// The controller. See the [module](self).
#[derive(Debug)]
pub struct Pi {
    config: Config,
    /// The target size in bytes, once a frame was sent.
    bytes: Option<f64>,
    /// K2 · Σ error, in bytes.
    integral_bytes: f64,
    target_ms: f64,
    /// The smallest and the largest frame size of the ladder.
    range: (f64, f64),
    arrived: u32,
    /// Frames on their way, with their capture times.
    captured: Vec<(FrameId, Instant)>,
    out: bool,
    tried: Option<Instant>,
}

/// The most frames whose capture time is remembered until they arrive.
const CAPTURED_MAX: usize = 64;

impl Pi {
    /// A controller with these constants.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            bytes: None,
            integral_bytes: 0.0,
            target_ms: 0.0,
            range: (0.0, 0.0),
            arrived: 0,
            captured: Vec::with_capacity(CAPTURED_MAX),
            out: false,
            tried: None,
        }
    }

    fn sample(&mut self, latency_ms: f64) {
        let error = latency_ms - self.target_ms;
        if error.abs() < self.config.error_ms_min {
            return;
        }
        let band = PUBLISHED_GAINS.iter().find(|gains| error.abs() < gains.error_ms_below);
        let gains = band.unwrap_or(&PUBLISHED_GAINS[PUBLISHED_GAINS.len() - 1]);
        let nominal = self.config.regression.bytes(self.target_ms);
        let step = gains.integral * self.config.gain_factor * error;
        // Anti-windup: beyond the ends of the ladder the sum would only grow, and would have to be worked off
        // later.
        let (least, most) = (nominal - self.range.1, nominal - self.range.0);
        self.integral_bytes = (self.integral_bytes + step).clamp(least.min(0.0), most.max(0.0));
        let correction = gains.proportional * self.config.gain_factor * error + self.integral_bytes;
        self.bytes = Some((nominal - correction).clamp(self.range.0, self.range.1));
    }
}

fn range(ladder: &Ladder) -> (f64, f64) {
    let rungs = ladder.rungs();
    (rungs[0].bytes.mean, rungs[rungs.len() - 1].bytes.mean)
}

impl Policy for Pi {
    fn name(&self) -> &'static str {
        "pi"
    }

    fn handle_sent(&mut self, frame: &SentFrame) {
        self.tried = Some(frame.sent);
        if self.captured.len() == CAPTURED_MAX {
            self.captured.remove(0);
        }
        self.captured.push((frame.frame, frame.captured));
    }

    fn handle_arrival(&mut self, _: Instant, arrival: &Arrival) {
        self.out = false;
        if !arrival.complete {
            return;
        }
        let Some(position) = self.captured.iter().position(|(frame, _)| *frame == arrival.frame) else {
            return;
        };
        let (_, captured) = self.captured.remove(position);
        self.arrived += 1;
        if self.arrived >= self.config.sample_frames {
            self.arrived = 0;
            self.sample(ms_between(captured, arrival.last));
        }
    }

    fn handle_reset(&mut self, _: Instant, frame: FrameId) {
        self.out = true;
        self.captured.retain(|(other, _)| *other != frame);
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        self.target_ms = ms(offer.latency_bound) * self.config.target_share;
        self.range = range(offer.ladder);
        let (floor, reaches_floor) = offer.floor_rung();
        if self.out {
            return match self.tried.map(|tried| tried + OUTAGE_INTERVAL) {
                Some(due) if offer.now < due => Decision::Wait { until: due },
                _ => Decision::Send(Choice::plain(floor, true)),
            };
        }
        let nominal = self.config.regression.bytes(self.target_ms);
        let bytes = *self.bytes.get_or_insert(nominal.clamp(self.range.0, self.range.1));
        let rung = offer.ladder.best_within(bytes).unwrap_or(0);
        let infeasible = !reaches_floor || rung < floor;
        Decision::Send(Choice::plain(offer.capped(rung.max(floor), floor), infeasible))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::tests::{arrival, ladder, offer, sent};

    /// On a link with this `ms_per_kilobyte`, the size settles where the latency meets the target.
    #[test]
    fn the_latency_settles_at_the_target() {
        let ladder = ladder();
        let config = Config { target_share: 0.7, gain_factor: 0.1, ..Config::default() };
        let mut pi = Pi::new(config);
        let mut last = Vec::new();
        for frame in 0..600u64 {
            let now = Instant::ZERO + Duration::from_millis(100) * frame as u32;
            let Decision::Send(choice) = pi.decide(&offer(now, &ladder)) else { panic!("a frame waits") };
            let bytes = ladder.rungs()[choice.rung].bytes.mean;
            let end = now + Duration::from_secs_f64(bytes * 0.3 / 1e6);
            pi.handle_sent(&sent(frame, choice.rung, bytes, now));
            pi.handle_arrival(end, &arrival(frame, bytes, now, end));
            last.push(bytes * 0.3 / 1e3);
        }
        let settled = last[500..].iter().sum::<f64>() / 100.0;
        assert!((50.0..=75.0).contains(&settled), "{settled} ms on average, target 70 ms");
    }

    #[test]
    fn the_sum_of_errors_does_not_wind_up() {
        let ladder = ladder();
        let mut pi = Pi::new(Config { sample_frames: 1, ..Config::default() });
        let at = |frame: u64| Instant::ZERO + Duration::from_secs(frame);
        for frame in 0..200 {
            let Decision::Send(choice) = pi.decide(&offer(at(frame), &ladder)) else {
                panic!("a frame waits")
            };
            pi.handle_sent(&sent(frame, choice.rung, 20e3, at(frame)));
            // Frames are very late for a long time, and then early.
            let late = if frame < 150 { 900 } else { 5 };
            pi.handle_arrival(
                at(frame),
                &arrival(frame, 20e3, at(frame), at(frame) + Duration::from_millis(late)),
            );
        }
        let Decision::Send(choice) = pi.decide(&offer(at(200), &ladder)) else { panic!("a frame waits") };
        assert_eq!(choice.rung, ladder.len() - 1, "fifty early frames bring the quality back");
    }
}
