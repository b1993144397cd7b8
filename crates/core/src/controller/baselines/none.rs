//! Sends every frame at the best rung, without adaptation. If the ladder ends with the original, the best rung is the original.

use crate::controller::{Arrival, Choice, Decision, Offer, Policy, SentFrame};
use crate::frame::FrameId;
use crate::units::Instant;

/// Sends every frame at the best rung.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unadapted;

impl Policy for Unadapted {
    fn name(&self) -> &'static str {
        "none"
    }

    fn handle_sent(&mut self, _: &SentFrame) {}

    fn handle_arrival(&mut self, _: Instant, _: &Arrival) {}

    fn handle_reset(&mut self, _: Instant, _: FrameId) {}

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        let (_, reaches_floor) = offer.floor_rung();
        let rung = offer.ladder.len() - 1;
        Decision::Send(Choice::plain(rung, !reaches_floor))
    }

    fn carries(&self, _: &Offer<'_>, _: f64) -> bool {
        true
    }
}
