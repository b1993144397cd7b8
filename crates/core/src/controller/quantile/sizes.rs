//! Predicts how large frames become, compared with the sizes of the profile.

use super::config::{Config, Mechanism};
use super::rate::PAIRS_MAX;
use crate::controller::SentFrame;
use crate::profile::{ByteSizes, Ladder};

/// The factor by which the largest recent size shrinks with every frame, so that about a second is
/// remembered.
const LARGEST_KEPT: f64 = 0.97;

/// The sizes of recent frames.
#[derive(Debug)]
pub(super) struct Sizes {
    /// For each index of a pair, a quantile of the size, so that one sum covers the errors of both rate and size.
    quantiles: [f64; PAIRS_MAX],
    /// The moving average of actual sizes ÷ sizes of the profile.
    ratio: f64,
    /// The largest recent size, slowly forgotten.
    largest_bytes: f64,
}

impl Sizes {
    pub(super) fn new() -> Self {
        Self { quantiles: scattered(), ratio: 1.0, largest_bytes: 0.0 }
    }

    /// A frame was given to the link.
    pub(super) fn handle_sent(&mut self, config: &Config, frame: &SentFrame) {
        let bytes = f64::from(frame.bytes);
        self.largest_bytes = bytes.max(self.largest_bytes * LARGEST_KEPT);
        let ratio = bytes / f64::from(frame.expected_bytes.max(1));
        self.ratio += config.size_gain * (ratio - self.ratio);
    }

    /// Scales a size of the profile to the present frames.
    pub(super) fn as_now(&self, bytes: f64) -> f64 {
        bytes * self.ratio
    }

    /// Possible sizes of a frame, evenly spread: one for each remembered pair.
    pub(super) fn spread<'a>(
        &'a self,
        config: &Config,
        sizes: &'a ByteSizes,
    ) -> impl Iterator<Item = f64> + use<'a> {
        let varies = config.has(Mechanism::SizeSpread);
        self.quantiles
            .iter()
            .map(move |quantile| self.as_now(if varies { sizes.quantile(*quantile) } else { sizes.mean }))
    }

    /// The highest rung whose frames are at most [`Config::ramp`] times as large as the largest recent frame.
    /// The first rung above may also be tried, however far it is: otherwise a ladder with a gap could not be
    /// climbed.
    pub(super) fn highest(&self, config: &Config, ladder: &Ladder) -> usize {
        let within = |bytes: f64| ladder.best_within(bytes / self.ratio.max(f64::MIN_POSITIVE));
        let reached = within(self.largest_bytes * config.ramp).unwrap_or(0);
        let next = within(self.largest_bytes).map_or(0, |place| place + 1);
        reached.max(next).min(ladder.len() - 1)
    }
}

/// The van der Corput sequence in base 2. Any number of its first terms fills 0 to 1 evenly.
fn scattered() -> [f64; PAIRS_MAX] {
    std::array::from_fn(|index| f64::from((index as u32 + 1).reverse_bits()) / (f64::from(u32::MAX) + 1.0))
}
