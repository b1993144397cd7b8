//! How large frames become, against what the profile says.

use super::config::{Config, Mechanism};
use super::rate::PAIRS_MAX;
use crate::controller::SentFrame;
use crate::profile::{ByteSizes, Ladder};

/// The share of the largest recent frame that is left of it with every frame: a second's worth is remembered.
const LARGEST_KEPT: f64 = 0.97;

/// The sizes of recent frames.
#[derive(Debug)]
pub(super) struct Sizes {
    /// For the pair at each place a quantile of the size, so that one sum covers the errors of rate and of size.
    quantiles: [f64; PAIRS_MAX],
    /// Sizes of frames ÷ sizes in the profile: a moving average.
    ratio: f64,
    /// The largest of the last frames, slowly forgotten.
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

    /// A size of the profile as frames are now.
    pub(super) fn as_now(&self, bytes: f64) -> f64 {
        bytes * self.ratio
    }

    /// Possible sizes of a frame, evenly spread: one for each of the remembered pairs.
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

    /// The highest rung whose frames are at most [`Config::ramp`] times as large as the largest that were sent lately; or the first
    /// above those, however far it is: a ladder with a gap could not be climbed otherwise.
    pub(super) fn highest(&self, config: &Config, ladder: &Ladder) -> usize {
        let within = |bytes: f64| ladder.best_within(bytes / self.ratio.max(f64::MIN_POSITIVE));
        let reached = within(self.largest_bytes * config.ramp).unwrap_or(0);
        let next = within(self.largest_bytes).map_or(0, |place| place + 1);
        reached.max(next).min(ladder.len() - 1)
    }
}

/// The van der Corput sequence in base 2: however many of its first terms are taken, they fill 0 to 1 evenly.
fn scattered() -> [f64; PAIRS_MAX] {
    std::array::from_fn(|index| f64::from((index as u32 + 1).reverse_bits()) / (f64::from(u32::MAX) + 1.0))
}
