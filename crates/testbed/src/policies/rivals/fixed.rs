//! Always chooses the same rung. A system without adaptation does so, and every other policy has to beat it.

use mez_core::controller::{Arrival, Choice, Decision, Offer, Policy, SentFrame};
use mez_core::frame::FrameId;
use mez_core::units::Instant;

/// Sends every frame at one rung.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    rung: usize,
}

impl Fixed {
    /// Sends at the rung with this index in the ladder, or at the highest if the ladder is shorter.
    pub const fn new(rung: usize) -> Self {
        Self { rung }
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn handle_sent(&mut self, _: &SentFrame) {}

    fn handle_arrival(&mut self, _: Instant, _: &Arrival) {}

    fn handle_reset(&mut self, _: Instant, _: FrameId) {}

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        let rung = self.rung.min(offer.ladder.len() - 1);
        let infeasible =
            offer.accuracy_floor.is_some_and(|floor| offer.ladder.rungs()[rung].accuracy < floor);
        Decision::Send(Choice::plain(rung, infeasible))
    }
}
