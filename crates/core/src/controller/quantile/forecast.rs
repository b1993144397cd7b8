//! Predicts for a frame at a rung its on-time probability π and the rung's worth.
//!
//! Each remembered pair of a wait and an error is one way in which the link may behave. π is the share of
//! pairs with which the frame is on time: the empirical distribution in place of a model of the link. The
//! [module above](super) has the formula.

use std::iter::repeat;
use std::time::Duration;

use super::config::{Config, LEARNING_INTERVAL, Mechanism};
use super::price::LatePrice;
use super::rate::{PAIRS_MAX, Rate};
use super::sizes::Sizes;
use crate::controller::flight::{Backlog, Flights, Service, ms};
use crate::controller::{Coding, Offer, SourceFrame};
use crate::units::Instant;

/// A frame with an on-time probability below this is probably late. It waits for own bytes
/// on their way: if it were sent at once, it would only make the next frame late too.
pub(super) const WORTH_QUEUEING: f64 = 0.5;
/// A link has room to spare for frames that occupy it for at most this share of the time.
const SPARE_SHARE: f64 = 0.25;

/// Everything that the policy knows about the link and its frames.
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

    /// Sets the share of frames that must be on time, and the weight of one frame. A frame of a slow stream
    /// counts for as much as all frames of a faster stream in the same time ([`LEARNING_INTERVAL`]).
    pub(super) fn set_terms(&mut self, offer: &Offer<'_>) {
        let steps = offer.interval.div_duration_f64(LEARNING_INTERVAL).max(1.0);
        self.price.ask(offer.on_time_share, steps);
        self.rate.set_steps(steps);
    }

    /// The estimated rate of the link in bytes per millisecond. `None` until a frame was measured.
    pub(super) fn rate_now(&self, now: Instant) -> Option<f64> {
        self.rate.estimate(&self.config, self.in_service(now))
    }

    /// What the frame in service shows about the link.
    fn in_service(&self, now: Instant) -> Option<Service> {
        self.flights.in_service(now).filter(|_| self.config.has(Mechanism::InService))
    }

    /// Own bytes on their way.
    pub(super) fn backlog(&self, now: Instant) -> Backlog {
        if self.config.has(Mechanism::Backlog) { self.flights.backlog(now) } else { Backlog::default() }
    }

    /// Milliseconds of the bound that are left, less the age of the frame, the network's delay and the guard.
    pub(super) fn left_ms(&self, offer: &Offer<'_>) -> f64 {
        ms(offer.latency_bound) - ms(offer.age()) - self.flights.delay_ms() - self.config.guard_ms
    }

    /// The forecast for a frame that is sent now, on a link of this rate.
    pub(super) fn forecast<'a>(&'a self, offer: &Offer<'a>, rate: f64) -> Forecast<'a> {
        let (left_ms, backlog) = (self.left_ms(offer), self.backlog(offer.now));
        Forecast { knows: self, offer: *offer, left_ms, backlog, rate }
    }

    /// The largest size in bytes at which a frame is on time with the required
    /// probability, if it takes `camera_time` to make. `None` until a frame was measured.
    pub(super) fn bytes_in_time(&self, offer: &Offer<'_>, camera_time: Duration) -> Option<f64> {
        let rate = self.rate_now(offer.now)?;
        let (left_ms, backlog) = (self.left_ms(offer) - ms(camera_time), self.backlog(offer.now));
        let mut bytes = [0.0f64; PAIRS_MAX];
        let mut known = 0;
        for (bytes, pair) in bytes.iter_mut().zip(self.rate.pairs()) {
            let ms_per_byte = pair.slowness / rate;
            let drained_ms = backlog.drained_in_ms(ms_per_byte);
            let packet_ms = if drained_ms > 0.0 { pair.first_bytes * ms_per_byte } else { 0.0 };
            let first_ms = (drained_ms + packet_ms).max(pair.wait_at(rate, pair.first_bytes));
            let by_rate = (pair.first_bytes + (left_ms - first_ms) / ms_per_byte).max(0.0);
            *bytes = offer.window.map_or(by_rate, |window| {
                // The number of round trips in which the window of a new connection can open.
                let rounds = (left_ms - first_ms).max(0.0) / self.flights.round_trip_ms().max(1.0);
                by_rate.min(window as f64 * ((rounds.floor() + 1.0).exp2() - 1.0))
            });
            known += 1;
        }
        let bytes = bytes.get_mut(..known).filter(|bytes| !bytes.is_empty())?;
        // The number of remembered errors that may make the frame late.
        let late = ((1.0 - offer.on_time_share) * known as f64) as usize;
        let (_, bytes, _) = bytes.select_nth_unstable_by(late.min(known - 1), f64::total_cmp);
        Some(*bytes)
    }
}

/// The part of a forecast that is the same for all rungs of one decision.
#[derive(Clone, Copy)]
pub(super) struct Forecast<'a> {
    pub(super) knows: &'a Knowledge,
    pub(super) offer: Offer<'a>,
    /// Milliseconds of the bound that are left ([`Knowledge::left_ms`]). The times to encode a frame and to
    /// detect in it are still to be subtracted.
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
    /// The on-time probability π.
    pub(super) on_time: f64,
    /// The worth of the rung, which is to be maximised.
    pub(super) worth: f64,
}

impl Forecast<'_> {
    /// Whether own bytes hold anything back. Bytes that are known to have passed the link do not.
    pub(super) fn is_busy(&self) -> bool {
        self.backlog.drained_in_ms(1.0 / self.rate) > 0.0
    }

    /// Whether a frame of this rung is wanted if it is on time. If the profile no
    /// longer holds, the frame may take all of the link, but no time of the next frame.
    pub(super) fn wants(&self, rung: usize) -> bool {
        if self.offer.prefers_finer { self.occupies(rung) <= 1.0 } else { self.wants_undrifted(rung) }
    }

    /// Whether a frame of this rung is wanted if it is on time and the profile holds. A frame that is
    /// finer than the profile's scene needs is wanted only if it leaves most of the link to others.
    pub(super) fn wants_undrifted(&self, rung: usize) -> bool {
        !self.offer.ladder.is_tied(rung) || self.occupies(rung) <= SPARE_SHARE
    }

    /// The share of the time in which frames of this rung occupy the link.
    fn occupies(&self, rung: usize) -> f64 {
        let took_ms = self.offer.ladder.rungs()[rung].bytes.mean / self.rate;
        took_ms / ms(self.offer.interval_at(rung)).max(f64::MIN_POSITIVE)
    }

    /// The part of `left_ms` that remains for the network at this rung. The time to encode a frame
    /// is subtracted, and the detector's time beyond what a bound on results leaves to the detector.
    fn left_for(&self, left_ms: f64, rung: usize) -> f64 {
        let offer = &self.offer;
        let profile = &offer.ladder.rungs()[rung];
        let detector_ms = match (offer.result_latency_bound, profile.detector_time) {
            (Some(bound), Some(time)) => ms(offer.latency_bound) - (ms(bound) - ms(time)),
            _ => 0.0,
        };
        left_ms - ms(profile.camera_time) - detector_ms.max(0.0)
    }

    /// Returns the share of remembered waits and errors with which a frame of this rung would
    /// be on time, and the mean number of later frames that it would keep from being sent.
    fn foresee(&self, rung: usize) -> (f64, f64) {
        let (offer, left_ms) = (&self.offer, self.left_for(self.left_ms, rung));
        let sizes = offer.bytes(rung);
        let sizes = self.knows.sizes.spread(&self.knows.config, &sizes);
        self.foresee_sizes(sizes, left_ms, offer.interval_at(rung), offer.coding.is_some())
    }

    /// The same for a frame that has one of these sizes with each remembered pair. `left_ms`: the time left for the network. `interval`: until
    /// the next frame. `is_chained`: other frames may refer to it.
    fn foresee_sizes(
        &self,
        sizes: impl Iterator<Item = f64>,
        left_ms: f64,
        interval: Duration,
        is_chained: bool,
    ) -> (f64, f64) {
        let (offer, knows) = (&self.offer, self.knows);
        let (age_ms, interval_ms) = (ms(offer.age()), ms(interval).max(1.0));
        let (mut on_time, mut displaced, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, bytes) in knows.rate.pairs().zip(sizes) {
            pairs += 1;
            let ms_per_byte = pair.slowness / self.rate;
            // The first packet's time is part of the delay, and its excess over the smallest time
            // is part of the wait. Behind own frames, the first packet's time is in neither.
            let drained_ms = self.backlog.drained_in_ms(ms_per_byte);
            let first_bytes = pair.first_bytes.min(bytes);
            let packet_ms = if drained_ms > 0.0 { first_bytes * ms_per_byte } else { 0.0 };
            let first_ms = (drained_ms + packet_ms).max(pair.wait_at(self.rate, bytes));
            let end_ms = first_ms + (bytes - first_bytes) * ms_per_byte;
            let end_ms = end_ms.max(first_ms + knows.flights.opening_ms(offer.window, bytes));
            on_time += u32::from(end_ms <= left_ms);
            // The next frame waits until this one ends or is cancelled for being late. A frame that others
            // refer to is seldom cancelled, because the next one would have to stand alone. It counts as
            // never cancelled. If the frame after the next comes first, the next one has waited in vain.
            let held_ms = if is_chained { end_ms } else { end_ms.min(left_ms) };
            let frames = ((age_ms + held_ms) / interval_ms).floor() - 1.0;
            displaced += frames.max(0.0);
        }
        (f64::from(on_time) / f64::from(pairs), displaced / f64::from(pairs))
    }

    /// Predicts successive frames at this rung, each referring to the last, each on an idle link. Returns the on-time share
    /// as [`Self::foresee`] does, and the number of later frames that a frame of mean duration keeps from being sent.
    fn foresee_going_on(&self, rung: usize) -> (f64, f64) {
        let (offer, left_ms) = (&self.offer, self.left_for(self.left_when_fresh(), rung));
        let sizes = &offer.ladder.rungs()[rung].bytes;
        let sizes = self.knows.sizes.spread(&self.knows.config, sizes);
        self.foresee_successive(sizes, left_ms, offer.interval_at(rung))
    }

    /// The time left for the network of a frame that has just been captured, before [`Self::left_for`].
    fn left_when_fresh(&self) -> f64 {
        ms(self.offer.latency_bound) - self.knows.flights.delay_ms() - self.knows.config.guard_ms
    }

    /// The same for frames that have one of these sizes with each remembered pair. `left_ms`: the time left for the network. `interval`: between
    /// the frames.
    fn foresee_successive(
        &self,
        sizes: impl Iterator<Item = f64>,
        left_ms: f64,
        interval: Duration,
    ) -> (f64, f64) {
        let interval_ms = ms(interval).max(1.0);
        let (mut on_time, mut took_ms, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, bytes) in self.knows.rate.pairs().zip(sizes) {
            pairs += 1;
            let ms_per_byte = pair.slowness / self.rate;
            let end_ms = pair.wait_at(self.rate, bytes) + (bytes - pair.first_bytes).max(0.0) * ms_per_byte;
            on_time += u32::from(end_ms <= left_ms);
            took_ms += end_ms;
        }
        let displaced = took_ms / f64::from(pairs) / interval_ms - 1.0;
        (f64::from(on_time) / f64::from(pairs), displaced.max(0.0))
    }

    /// The on-time probability of this frame at a rung.
    pub(super) fn on_time(&self, rung: usize) -> f64 {
        self.foresee(rung).0
    }

    /// The on-time probability of successive frames at a rung, each referring to the last.
    pub(super) fn on_time_going_on(&self, rung: usize) -> f64 {
        self.foresee_going_on(rung).0
    }

    /// The worth `π · accuracy − λ (1 − π) − n · missed` of a frame with this on-time probability `π` and this number `n` of displaced frames.
    /// `missed`: the worth of a frame that is not sent. `is_chained`: other frames may refer to it.
    fn worth(&self, (on_time, displaced): (f64, f64), accuracy: f64, missed: f64, is_chained: bool) -> f64 {
        let config = &self.knows.config;
        let late_cost = self.knows.price.of(config, is_chained);
        let displaced = if config.has(Mechanism::Displaced) { displaced } else { 0.0 };
        on_time * accuracy - late_cost * (1.0 - on_time) - displaced * missed
    }

    /// The worth `π · accuracy − λ (1 − π) − n · accuracy` of a rung. For a rung of a chain, it covers
    /// [`Config::chain_horizon`].
    pub(super) fn prospect(&self, rung: usize) -> Prospect {
        // A frame that is not sent is worth as much as this one.
        self.prospect_if(rung, self.offer.ladder.rungs()[rung].accuracy)
    }

    /// The same where a frame that is not sent is worth `missed`.
    fn prospect_if(&self, rung: usize, missed: f64) -> Prospect {
        let (offer, now) = (&self.offer, self.foresee(rung));
        let accuracy = offer.ladder.rungs()[rung].accuracy;
        let worth = |foreseen| self.worth(foreseen, accuracy, missed, offer.coding.is_some());
        let Some(coding) = offer.coding else {
            return Prospect { rung, on_time: now.0, worth: worth(now) };
        };
        // A keyframe is expensive once, and the frames that follow at its rung are not. Both count, weighted by how long they last.
        let later = self.foresee_going_on(rung);
        let share = self.share_of_horizon(coding.every[rung]);
        Prospect { rung, on_time: now.0, worth: share * worth(now) + (1.0 - share) * worth(later) }
    }

    /// The share of [`Config::chain_horizon`] that one frame covers if one in `every` captured frames is sent.
    fn share_of_horizon(&self, every: u32) -> f64 {
        let horizon = ms(self.knows.config.chain_horizon) / ms(self.offer.interval).max(1.0);
        (f64::from(every) / horizon).min(1.0)
    }

    /// The on-time probability of a frame of the source's own video, if it is worth at least as much as a frame at `rung`. It is of full accuracy,
    /// and costs no time to make. A frame that is not sent counts the same for both.
    pub(super) fn on_time_of_source(&self, source: SourceFrame, rung: usize) -> Option<f64> {
        let interval = self.offer.interval;
        let now = self.foresee_sizes(repeat(source.bytes), self.left_ms, interval, true);
        let later = self.foresee_successive(repeat(source.mean_bytes), self.left_when_fresh(), interval);
        let worth = |foreseen| self.worth(foreseen, 1.0, 1.0, true);
        let share = self.share_of_horizon(1);
        let of_source = share * worth(now) + (1.0 - share) * worth(later);
        (of_source >= self.prospect_if(rung, 1.0).worth).then_some(now.0)
    }

    /// The best on-time probability among the lowest rung and the rungs above it that leave out fewer frames. Frames of such rungs may be smaller.
    pub(super) fn safest(&self, lowest: Prospect) -> f64 {
        let offer = &self.offer;
        let interval = offer.interval_at(lowest.rung);
        let above = (lowest.rung + 1..offer.ladder.len()).filter(|rung| offer.interval_at(*rung) < interval);
        above.map(|rung| self.on_time(rung)).fold(lowest.on_time, f64::max)
    }

    /// Whether the next frame would probably be on time although this one is sent first, if both continue the chain
    /// at this rung. If so, leaving this frame out saves nothing, because the next one would carry its changes.
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

    /// Until when a frame of a chain that would probably be late waits. `None`: it is sent now.
    ///
    /// The frame waits for own bytes on their way, until `silent_until`, unless the next frame would be on time behind it.
    /// Otherwise it waits for the next frame, until `quiet_until` at most, if three things hold: it would have to stand alone,
    /// it is at least half an interval old, and the next frame would probably be on time. No frame waits after `silent_until`.
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
        // A camera's frames are not evenly spaced, so the next one may be late.
        let due = (next + offer.interval / 2).min(quiet_until);
        if coding.continues == Some(best.rung) || offer.age() < interval / 2 || offer.now >= due {
            return None;
        }
        let (left_ms, backlog) = (self.left_ms + ms(offer.age()), self.knows.backlog(next));
        let fresh = Forecast { left_ms, backlog, ..*self };
        (fresh.on_time(best.rung) >= WORTH_QUEUEING).then_some(due)
    }
}
