//! Chooses a rung by the most common estimator: a moving average of the measured rate, times a safety factor.
//!
//! This is a baseline. It knows as much as [`mez_core::controller::quantile`] about delays and bytes in flight. It lacks the distribution of its
//! errors; the safety factor takes its place.

use std::time::Duration;

use mez_core::controller::flight::{Flights, PACKET_BYTES, ms};
use mez_core::controller::{Arrival, Choice, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame};
use mez_core::frame::FrameId;
use mez_core::units::{BitsPerSecond, Instant};

/// The weight of the newest sample of the rate.
const GAIN: f64 = 0.3;
/// How long a frame that does not fit waits for frames in flight before it is offered again.
const PATIENCE: Duration = Duration::from_millis(250);

/// Sends the best rung that fits into the rest of the latency bound at `safety` times the average rate.
#[derive(Debug)]
pub struct Ewma {
    safety: f64,
    /// Whether the rate also counts a frame's wait for the link.
    counts_waits: bool,
    flights: Flights,
    /// The rate, in bytes per millisecond.
    rate: Option<f64>,
    out: bool,
    tried: Option<Instant>,
}

impl Ewma {
    /// A policy with this safety factor, which multiplies the rate. Usual factors are 0.5 to 0.9.
    pub fn new(safety: f64) -> Self {
        Self { safety, counts_waits: false, flights: Flights::new(), rate: None, out: false, tried: None }
    }

    /// A policy whose rate also counts the wait for the link. On Wi-Fi, the time between a frame's first and last aggregate says little. On links
    /// without other users, the wait says nothing about the rate.
    pub fn counting_waits(safety: f64) -> Self {
        Self { counts_waits: true, ..Self::new(safety) }
    }
}

impl Policy for Ewma {
    fn name(&self) -> &'static str {
        "ewma"
    }

    fn handle_sent(&mut self, frame: &SentFrame) {
        self.tried = Some(frame.sent);
        self.flights.send(frame, None);
    }

    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.out = false;
        let Some(landed) = self.flights.report(now, arrival) else { return };
        let (bytes, took_ms) = if self.counts_waits {
            (landed.flight.bytes, landed.took_ms + landed.wait_ms.max(0.0))
        } else {
            // Time begins with the arrival of the first packet, so its bytes do not count.
            (landed.flight.bytes - PACKET_BYTES, landed.took_ms)
        };
        if took_ms > 1.0 && bytes > 0.0 {
            let rate = bytes / took_ms;
            self.rate = Some(self.rate.map_or(rate, |known| known + GAIN * (rate - known)));
        }
    }

    fn handle_reset(&mut self, _: Instant, frame: FrameId) {
        self.out = true;
        self.flights.give_up(frame);
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        let (floor, reaches_floor) = offer.floor_rung();
        let Some(rate) = self.rate.filter(|_| !self.out).map(|rate| rate * self.safety) else {
            // One packet measures nothing, so the first frame takes a rung of several packets, if there is one.
            let rung = offer.ladder.rungs().partition_point(|rung| rung.bytes.mean < 2.0 * PACKET_BYTES);
            let floor = if self.out { floor } else { rung.min(offer.ladder.len() - 1).max(floor) };
            return match self.tried.map(|tried| tried + OUTAGE_INTERVAL) {
                Some(due) if offer.now < due => Decision::Wait { until: due },
                _ => Decision::Send(Choice::plain(floor, !reaches_floor)),
            };
        };
        let queued = self.flights.backlog(offer.now).drained_in_ms(1.0 / rate).max(0.0) * rate;
        let left_ms = ms(offer.latency_bound) - ms(offer.age()) - self.flights.delay_ms();
        match offer.ladder.best_within(left_ms * rate - queued) {
            Some(rung) => {
                let rung = offer.capped(rung.max(floor), floor);
                Decision::Send(Choice::plain(rung, !reaches_floor))
            }
            None if queued <= 0.0 => Decision::Send(Choice::plain(floor, true)),
            None => Decision::Wait { until: offer.now + PATIENCE },
        }
    }

    fn link_rate(&self) -> Option<BitsPerSecond> {
        self.rate.map(|bytes_per_ms| BitsPerSecond(bytes_per_ms * 8e3))
    }
}
