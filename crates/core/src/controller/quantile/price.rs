//! Adjusts λ, the price of a late frame beyond its own worth.
//!
//! The method is dual ascent: a late frame raises the price, and a frame on time lowers it. In the long run, as many frames
//! are late as the contract allows (S. Boyd, L. Vandenberghe 2004, chapter 5, on dual variables as prices). If no rung can
//! keep the contract, as many are late as at the safest rung: a higher price would make frames small and change nothing else.

use super::config::Config;

/// The rise of λ above its lowest value.
#[derive(Debug)]
pub(super) struct LatePrice {
    rise: f64,
    /// The on-time share that the contract asks.
    on_time_share: f64,
    /// The number of steps that each frame counts for.
    steps: f64,
}

impl LatePrice {
    pub(super) fn new() -> Self {
        Self { rise: 0.0, on_time_share: 1.0, steps: 1.0 }
    }

    /// Sets the on-time share that the contract asks, and the number of steps that each frame counts for.
    pub(super) fn ask(&mut self, on_time_share: f64, steps: f64) {
        (self.on_time_share, self.steps) = (on_time_share, steps);
    }

    /// Takes in whether a frame was on time. `safest`: the on-time probability of the safest rung.
    pub(super) fn learn(&mut self, config: &Config, on_time: bool, safest: f64) {
        let late = f64::from(u8::from(!on_time));
        let late_share = 1.0 - self.on_time_share.min(safest);
        let rise = self.rise + config.late_cost_step * self.steps * (late - late_share);
        self.rise = rise.clamp(0.0, config.late_cost_rise_max);
    }

    /// The price of a late frame. With `is_chained`, other frames may refer to it.
    pub(super) fn of(&self, config: &Config, is_chained: bool) -> f64 {
        self.rise + if is_chained { config.late_chain_cost } else { 0.0 }
    }
}
