//! Generates the reference set: three classes of link that are shared, fade, stutter and fail.
//!
//! The capacity of a millisecond is 90 Mbit/s ÷ (k + 1) × fading × burst. A number of `k` competing stations, 0 to 6 with equal probability, lasts
//! for 0.2 s plus an exponential time. Fading is log-normal; its logarithm is an Ornstein–Uhlenbeck process. A burst is drawn anew for every
//! millisecond from a gamma distribution with mean 1. During outages of 150 to 1500 ms, 0.002 of the capacity remains.

use super::capacity::Capacity;
use crate::chance::Chance;
use crate::random::Random;

/// Bytes per millisecond of a link without competitors: 90 Mbit/s.
const ALONE_BYTES_PER_MS: f64 = 90e6 / 8.0 / 1e3;
/// The most competing stations.
const COMPETITORS_MAX: u64 = 6;
/// The shortest time, in milliseconds, that a number of competitors lasts.
const DWELL_MS_MIN: f64 = 200.0;
/// The share of the capacity that remains in an outage.
const OUTAGE_SHARE: f64 = 0.002;

/// A class of links, by their difficulty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Class {
    /// The name of the class.
    pub name: &'static str,
    /// Shape of the gamma distribution of bursts. The smaller the shape, the fewer milliseconds carry most of the bytes.
    pub burst_shape: f64,
    /// Standard deviation of the logarithm of the fading.
    pub fading_deviation: f64,
    /// Time constant of the fading, in milliseconds.
    pub fading_ms: f64,
    /// Mean time beyond 0.2 s that a number of competing stations lasts, in milliseconds.
    pub dwell_ms_mean: f64,
    /// Mean time between outages, in milliseconds.
    pub outage_gap_ms_mean: f64,
}

/// The classes of the reference set.
pub const CLASSES: [Class; 3] = [
    Class {
        name: "calm",
        burst_shape: 6.0,
        fading_deviation: 0.12,
        fading_ms: 4_000.0,
        dwell_ms_mean: 20_000.0,
        outage_gap_ms_mean: 120_000.0,
    },
    Class {
        name: "mixed",
        burst_shape: 0.6,
        fading_deviation: 0.35,
        fading_ms: 1_500.0,
        dwell_ms_mean: 8_000.0,
        outage_gap_ms_mean: 40_000.0,
    },
    Class {
        name: "harsh",
        burst_shape: 0.25,
        fading_deviation: 0.6,
        fading_ms: 600.0,
        dwell_ms_mean: 3_000.0,
        outage_gap_ms_mean: 20_000.0,
    },
];

impl Class {
    /// A link of this class, `ms` milliseconds long.
    pub fn capacity(&self, ms: usize, random: &mut Random) -> Capacity {
        let mut chance = Chance::new(random.split());
        let kept = (-1.0 / self.fading_ms).exp();
        let fresh = self.fading_deviation * (1.0 - kept * kept).sqrt();
        let mut fading = self.fading_deviation * chance.normal();
        let mut share = 1.0;
        let mut dwell_until = 0.0;
        let (mut outage_from, mut outage_until) = (chance.exponential(self.outage_gap_ms_mean), 0.0);
        Capacity::new((0..ms).map(|ms| {
            let at = ms as f64;
            if at >= dwell_until {
                share = 1.0 / (chance.within(0..=COMPETITORS_MAX) + 1) as f64;
                dwell_until = at + DWELL_MS_MIN + chance.exponential(self.dwell_ms_mean);
            }
            if at >= outage_from {
                outage_until = at + chance.within(150..=1500) as f64;
                outage_from = outage_until + chance.exponential(self.outage_gap_ms_mean);
            }
            fading = kept * fading + fresh * chance.normal();
            let burst = chance.gamma(self.burst_shape);
            let outage = if at < outage_until { OUTAGE_SHARE } else { 1.0 };
            ALONE_BYTES_PER_MS * share * fading.exp() * burst * outage
        }))
    }
}
