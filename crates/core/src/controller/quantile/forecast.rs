//! What the policy knows, and what follows from it for a frame at a rung: the on-time probability π and the rung's worth.
//!
//! Each remembered pair of a wait and an error is one way in which the link may turn out. π is the share of those in which the frame is
//! on time: the empirical distribution in place of a model of the link. The formula is in the [module above](super).

use std::time::Duration;

use super::config::{Config, Mechanism};
use super::price::LatePrice;
use super::rate::{PAIRS_MAX, Rate};
use super::sizes::Sizes;
use crate::controller::flight::{Backlog, Flights, PACKET_BYTES, Service, ms};
use crate::controller::{Coding, Offer};
use crate::units::Instant;

/// With own bytes on their way, a frame that is less probable than this to be on time waits for them: it would only make
/// the next one late as well.
pub(super) const WORTH_QUEUEING: f64 = 0.5;

/// All that is known of link and frames.
#[derive(Debug)]
pub(super) struct Knowledge {
    pub(super) config: Config,
    pub(super) flights: Flights,
    pub(super) rate: Rate,
    pub(super) sizes: Sizes,
    pub(super) price: LatePrice,
}

impl Knowledge {
    pub(super) fn new(config: Config) -> Self {
        let (flights, rate, sizes) = (Flights::new(), Rate::new(), Sizes::new());
        Self { config, flights, rate, sizes, price: LatePrice::new() }
    }

    /// Bytes per millisecond that the link carries now, once a frame was measured.
    pub(super) fn rate_now(&self, now: Instant) -> Option<f64> {
        self.rate.estimate(&self.config, self.in_service(now))
    }

    /// What the frame in service shows.
    fn in_service(&self, now: Instant) -> Option<Service> {
        self.flights.in_service(now).filter(|_| self.config.has(Mechanism::InService))
    }

    /// Own bytes on their way.
    pub(super) fn backlog(&self, now: Instant) -> Backlog {
        if self.config.has(Mechanism::Backlog) { self.flights.backlog(now) } else { Backlog::default() }
    }

    /// Milliseconds of the bound that are left for the network, but for its delay.
    pub(super) fn left_ms(&self, offer: &Offer<'_>) -> f64 {
        ms(offer.latency_bound) - ms(offer.age()) - self.flights.delay_ms() - self.config.guard_ms
    }

    /// What is to be expected of a frame now, on a link of this rate.
    pub(super) fn forecast<'a>(&'a self, offer: &Offer<'a>, rate: f64) -> Forecast<'a> {
        let (left_ms, backlog) = (self.left_ms(offer), self.backlog(offer.now));
        Forecast { knows: self, offer: *offer, left_ms, backlog, rate }
    }

    /// How many bytes a frame may have that takes `camera_time` to be made, to be on time with the asked probability.
    pub(super) fn bytes_in_time(&self, offer: &Offer<'_>, camera_time: Duration) -> Option<f64> {
        let rate = self.rate_now(offer.now)?;
        let (left_ms, backlog) = (self.left_ms(offer) - ms(camera_time), self.backlog(offer.now));
        let mut bytes = [0.0f64; PAIRS_MAX];
        let mut known = 0;
        for (bytes, pair) in bytes.iter_mut().zip(self.rate.pairs()) {
            let ms_per_byte = pair.slowness / rate;
            let drained_ms = backlog.drained_in_ms(ms_per_byte);
            let packet_ms = if drained_ms > 0.0 { PACKET_BYTES * ms_per_byte } else { 0.0 };
            let first_ms = (drained_ms + packet_ms).max(pair.wait_at(rate));
            let by_rate = (PACKET_BYTES + (left_ms - first_ms) / ms_per_byte).max(0.0);
            *bytes = offer.window.map_or(by_rate, |window| {
                // So many round trips are there for the window of a new connection to open.
                let rounds = (left_ms - first_ms).max(0.0) / self.flights.round_trip_ms().max(1.0);
                by_rate.min(window as f64 * ((rounds.floor() + 1.0).exp2() - 1.0))
            });
            known += 1;
        }
        let bytes = bytes.get_mut(..known).filter(|bytes| !bytes.is_empty())?;
        // So many of the remembered errors may make it late.
        let late = ((1.0 - offer.on_time_share) * known as f64) as usize;
        let (_, bytes, _) = bytes.select_nth_unstable_by(late.min(known - 1), f64::total_cmp);
        Some(*bytes)
    }
}

/// What is the same for all rungs of one decision.
#[derive(Clone, Copy)]
pub(super) struct Forecast<'a> {
    pub(super) knows: &'a Knowledge,
    pub(super) offer: Offer<'a>,
    /// Milliseconds that are left of the bound, without what comes after the network.
    pub(super) left_ms: f64,
    /// Own bytes on their way.
    pub(super) backlog: Backlog,
    /// Bytes per millisecond.
    pub(super) rate: f64,
}

/// The prospect of a rung.
#[derive(Clone, Copy)]
pub(super) struct Prospect {
    pub(super) rung: usize,
    /// π.
    pub(super) on_time: f64,
    /// What is to be maximised.
    pub(super) worth: f64,
}

impl Forecast<'_> {
    /// Whether own bytes hold anything back: what is still on its way but through the link, as far as is known, does not.
    pub(super) fn is_busy(&self) -> bool {
        self.backlog.drained_in_ms(1.0 / self.rate) > 0.0
    }

    /// Milliseconds that are left for the network of those that the bound leaves, once a frame of this rung is made and recognised.
    fn left_for(&self, left_ms: f64, rung: usize) -> f64 {
        let offer = &self.offer;
        let profile = &offer.ladder.rungs()[rung];
        let detector_ms = match (offer.result_latency_bound, profile.detector_time) {
            (Some(bound), Some(time)) => ms(offer.latency_bound) - (ms(bound) - ms(time)),
            _ => 0.0,
        };
        left_ms - ms(profile.camera_time) - detector_ms.max(0.0)
    }

    /// What the remembered waits and errors make of a frame of this rung: the share with which it would be on time, and how many
    /// later frames it would keep from being sent, on average.
    fn foresee(&self, rung: usize) -> (f64, f64) {
        let (offer, knows) = (&self.offer, self.knows);
        let left_ms = self.left_for(self.left_ms, rung);
        let (age_ms, interval_ms) = (ms(offer.age()), ms(offer.interval_at(rung)).max(1.0));
        let sizes = offer.bytes(rung);
        let (mut on_time, mut displaced, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, bytes) in knows.rate.pairs().zip(knows.sizes.spread(&knows.config, &sizes)) {
            pairs += 1;
            let ms_per_byte = pair.slowness / self.rate;
            // The first packet's time is in the delay, and what it took longer than at best in the wait; behind own frames it is in neither.
            let drained_ms = self.backlog.drained_in_ms(ms_per_byte);
            let packet_ms = if drained_ms > 0.0 { PACKET_BYTES.min(bytes) * ms_per_byte } else { 0.0 };
            let first_ms = (drained_ms + packet_ms).max(pair.wait_at(self.rate));
            let end_ms = first_ms + (bytes - PACKET_BYTES).max(0.0) * ms_per_byte;
            let end_ms = end_ms.max(first_ms + knows.flights.opening_ms(offer.window, bytes));
            on_time += u32::from(end_ms <= left_ms);
            // The next frame waits for the end of this one, or until it is cancelled for being late, which a frame that others refer
            // to is not. When the one after it comes first, it has waited in vain.
            let held_ms = if offer.coding.is_some() { end_ms } else { end_ms.min(left_ms) };
            let frames = ((age_ms + held_ms) / interval_ms).floor() - 1.0;
            displaced += frames.max(0.0);
        }
        (f64::from(on_time) / f64::from(pairs), displaced / f64::from(pairs))
    }

    /// The same for frames that go on at this rung one after the other, from an idle link on.
    fn foresee_going_on(&self, rung: usize) -> (f64, f64) {
        let (offer, knows) = (&self.offer, self.knows);
        let bound_ms = ms(offer.latency_bound) - knows.flights.delay_ms() - knows.config.guard_ms;
        let left_ms = self.left_for(bound_ms, rung);
        let interval_ms = ms(offer.interval_at(rung)).max(1.0);
        let sizes = &offer.ladder.rungs()[rung].bytes;
        let (mut on_time, mut took_ms, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, bytes) in knows.rate.pairs().zip(knows.sizes.spread(&knows.config, sizes)) {
            pairs += 1;
            let ms_per_byte = pair.slowness / self.rate;
            let end_ms = pair.wait_at(self.rate) + (bytes - PACKET_BYTES).max(0.0) * ms_per_byte;
            on_time += u32::from(end_ms <= left_ms);
            took_ms += end_ms;
        }
        let displaced = took_ms / f64::from(pairs) / interval_ms - 1.0;
        (f64::from(on_time) / f64::from(pairs), displaced.max(0.0))
    }

    /// π of this frame at a rung.
    pub(super) fn on_time(&self, rung: usize) -> f64 {
        self.foresee(rung).0
    }

    /// π of frames that go on at a rung.
    pub(super) fn on_time_going_on(&self, rung: usize) -> f64 {
        self.foresee_going_on(rung).0
    }

    /// `π · accuracy − λ (1 − π) − n · accuracy` of a rung; of a chain's for the time ahead of it.
    pub(super) fn prospect(&self, rung: usize) -> Prospect {
        let (offer, config) = (&self.offer, &self.knows.config);
        let late_cost = self.knows.price.of(config, offer.coding.is_some());
        let accuracy = offer.ladder.rungs()[rung].accuracy;
        let counts_displaced = config.has(Mechanism::Displaced);
        // A frame that is not sent is worth what this one is.
        let worth = |(on_time, displaced): (f64, f64)| {
            let displaced = if counts_displaced { displaced } else { 0.0 };
            on_time * accuracy - late_cost * (1.0 - on_time) - displaced * accuracy
        };
        let now = self.foresee(rung);
        let Some(coding) = offer.coding else {
            return Prospect { rung, on_time: now.0, worth: worth(now) };
        };
        // A frame that stands alone is dear once, and what follows it at its rung is not: both count, by the time that they last.
        let later = self.foresee_going_on(rung);
        let horizon = ms(config.chain_horizon) / ms(offer.interval).max(1.0);
        let share = (f64::from(coding.every[rung]) / horizon).min(1.0);
        Prospect { rung, on_time: now.0, worth: share * worth(now) + (1.0 - share) * worth(later) }
    }

    /// The best on-time probability of the lowest rung and of those above it that leave out fewer frames: theirs may be smaller.
    pub(super) fn safest(&self, lowest: Prospect) -> f64 {
        let offer = &self.offer;
        let interval = offer.interval_at(lowest.rung);
        let above = (lowest.rung + 1..offer.ladder.len()).filter(|rung| offer.interval_at(*rung) < interval);
        above.map(|rung| self.on_time(rung)).fold(lowest.on_time, f64::max)
    }

    /// Whether the frame after this one, if both go on at this rung, would be on time although this one goes first. Not to send it
    /// saves nothing then: what has changed comes with the next.
    pub(super) fn spares_next(&self, rung: usize) -> bool {
        let (offer, knows) = (&self.offer, self.knows);
        let Some(coding) = offer.coding.filter(|coding| coding.continues == Some(rung)) else { return false };
        if !knows.config.has(Mechanism::SparingNext) {
            return false;
        }
        let mut backlog = self.backlog;
        backlog.push(0.0, knows.sizes.as_now(offer.bytes(rung).mean));
        let left_ms = self.left_ms + ms(offer.interval_at(rung));
        let next = Offer { coding: Some(Coding { left_out: 0, ..coding }), ..*offer };
        Forecast { offer: next, left_ms, backlog, ..*self }.on_time(rung) >= WORTH_QUEUEING
    }

    /// Until when a frame of a chain waits that would be late: for what is on its way, or, where it would stand alone and is old already,
    /// for the next frame, if that would be on time. The link is idle without a frame until `quiet_until` at most, and silent until `silent_until`.
    pub(super) fn held_back(
        &self,
        best: Prospect,
        quiet_until: Instant,
        silent_until: Instant,
    ) -> Option<Instant> {
        let offer = &self.offer;
        let coding = offer.coding.filter(|_| self.knows.config.has(Mechanism::HoldingBack))?;
        if best.on_time >= WORTH_QUEUEING || offer.now >= silent_until {
            return None;
        }
        if self.is_busy() && !self.spares_next(best.rung) {
            return Some(silent_until);
        }
        let interval = offer.interval_at(best.rung);
        let next = offer.captured + interval;
        // A camera's frames do not come as evenly as its clock ticks.
        let due = (next + offer.interval / 2).min(quiet_until);
        if coding.continues == Some(best.rung) || offer.age() < interval / 2 || offer.now >= due {
            return None;
        }
        let (left_ms, backlog) = (self.left_ms + ms(offer.age()), self.knows.backlog(next));
        let fresh = Forecast { left_ms, backlog, ..*self };
        (fresh.on_time(best.rung) >= WORTH_QUEUEING).then_some(due)
    }
}
