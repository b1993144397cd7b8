//! Chooses rungs by Mez's own policy: it predicts for every rung the probability that the frame arrives in
//! time, and takes the rung with the best prospect.
//!
//! The question before every frame is how many bytes may go now so that the frame arrives within the bound.
//! The rate of the link (`rate.rs`) and the bytes that are already on their way ([`super::flight`]) give an
//! expected time. The last 120 waits and errors of such expectations give the distribution around it. For a
//! rung with `S` bytes, `Q` bytes on their way and `h` milliseconds left, the on-time probability π is the
//! share of the remembered pairs `(w, ε)` with
//!
//! ```text
//! max(drain(Q, x + ε), w) + S / exp(x + ε) ≤ h
//! ```
//!
//! The policy chooses the rung with the greatest `π · accuracy − λ (1 − π) − n · accuracy`, where `n` is the number
//! of later frames that this frame keeps from being sent. `λ` is the price of a late frame beyond the frame's own
//! worth. `λ` rises while more frames are late than the contract allows. If no rung can keep the contract, it rises
//! while more are late than at the safest rung. For frames that refer to others, `λ` is at least 0.2.
//!
//! | file | what it holds | source |
//! | --- | --- | --- |
//! | `config.rs` | the constants; what experiments switch off | set on a few seeds of the reference links |
//! | `rate.rs` | how fast the link is, and the remembered errors | packet dispersion; declustering of extremes |
//! | `sizes.rs` | how large frames become | van der Corput's sequence |
//! | `forecast.rs` | π, the worth of a rung, what a frame waits for | expected utility |
//! | `price.rs` | λ | dual ascent |
//! | `steadiness.rs` | when a better rung waits after a fall | exponential backoff |
//! | `probing.rs` | frames that are larger than chosen, to measure | ours |
//! | `calibration.rs` | predicted against actual lateness | |
//!
//! `docs/controller-mechanisms.md` lists every mechanism. `docs/controller-results.md` gives the worth
//! of each mechanism, and `docs/controller-rejected.md` the mechanisms that were tried and rejected.

mod calibration;
mod config;
mod forecast;
mod price;
mod probing;
mod rate;
mod sizes;
mod steadiness;

use std::time::Duration;

pub use self::calibration::Calibration;
pub use self::config::{Config, Mechanism};
use self::forecast::{Forecast, Knowledge, Prospect, WORTH_QUEUEING};
use self::probing::Probing;
use self::rate::Sample;
use self::steadiness::Steadiness;
use super::flight::{Flight, Passage, ms, ms_between};
use super::{Arrival, Choice, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame, SourceFrame};
use crate::frame::FrameId;
use crate::units::{BitsPerSecond, Instant};

/// The longest time without a frame on an idle link while frames wait, outside an outage.
pub const SEND_GAP_MAX: Duration = Duration::from_millis(250);

/// Own bytes on their way may hold back a frame until at least this long after the last report.
const HEARD_MAX: Duration = Duration::from_millis(150);
/// A frame on its way whose on-time probability is below this may be cancelled for the next.
const DOOMED: f64 = 0.02;

/// The policy. See the [module](self).
#[derive(Debug)]
pub struct Quantile {
    knows: Knowledge,
    probing: Probing,
    steadiness: Steadiness,
    calibration: Calibration,
    /// Whether the link is out: nothing gets through.
    out: bool,
    /// Whether the floor was called infeasible at the last decision.
    infeasible: bool,
    /// The on-time probability of the safest rung at the last decision.
    safest: f64,
    /// When the last frame was sent.
    tried: Option<Instant>,
    /// When the receiver last reported bytes.
    heard: Option<Instant>,
    /// The on-time probability that was predicted for the frame that was chosen last.
    predicted: Option<f64>,
}

impl Quantile {
    /// A policy that knows nothing about its link.
    pub fn new(config: Config) -> Self {
        Self {
            knows: Knowledge::new(config),
            probing: Probing::new(),
            steadiness: Steadiness::new(),
            calibration: Calibration::default(),
            out: false,
            infeasible: false,
            safest: 1.0,
            tried: None,
            heard: None,
            predicted: None,
        }
    }

    /// The best rung from `lowest` up, within the growth limit of frames and the cap.
    fn best(&self, forecast: &Forecast<'_>, lowest: Prospect) -> Prospect {
        let (offer, config) = (&forecast.offer, &self.knows.config);
        let (mut best, mut finest) = (lowest, None);
        for rung in lowest.rung + 1..=self.knows.sizes.highest(config, offer.ladder) {
            if self.steadiness.holds(config, offer, rung) || !offer.allows(rung) {
                continue;
            }
            let prospect = forecast.prospect(rung);
            if prospect.worth > best.worth && forecast.wants_undrifted(rung) {
                best = prospect;
            }
            if offer.prefers_finer && prospect.on_time >= offer.on_time_share && forecast.wants(rung) {
                finest = Some(prospect);
            }
        }
        // A drift makes no frame coarser. If no finer rung is on time often enough, the rung with the greatest worth is chosen.
        let best = finest.filter(|finest| finest.rung > best.rung).unwrap_or(best);
        let expired = offer.cap.is_some_and(|cap| offer.now >= cap.until);
        match offer.capped(best.rung, lowest.rung) {
            // The remainder of the camera's own choice after its cap has expired.
            rung if expired && rung != best.rung => forecast.prospect(rung),
            _ => best,
        }
    }

    /// The latest time at which an idle link must send a frame.
    fn quiet_until(&self, now: Instant) -> Instant {
        self.tried.map_or(now, |tried| tried + SEND_GAP_MAX)
    }

    /// Until when a late frame may wait for own bytes on their way. While the receiver reports bytes, the link is not silent.
    fn silent_until(&self, now: Instant) -> Instant {
        let heard_until = self.heard.map_or(now, |heard| heard + HEARD_MAX);
        self.quiet_until(now).max(heard_until)
    }

    /// Whether a frame waits because own bytes on their way hold it up: it would be late at every rung, and
    /// would make the next one late.
    fn waits_for_own(&self, forecast: &Forecast<'_>, safest: f64, silent_until: Instant) -> bool {
        let offer = &forecast.offer;
        // A report that comes after the next frame comes too late to wait for.
        let is_answered = self.knows.flights.round_trip_ms() < ms(offer.interval);
        let spares_next = || {
            let going_on = offer.coding.and_then(|coding| coding.continues);
            going_on.is_some_and(|rung| forecast.spares_next(rung))
        };
        self.knows.config.has(Mechanism::Waiting)
            && safest < WORTH_QUEUEING
            && is_answered
            && forecast.is_busy()
            && offer.now < silent_until
            && !spares_next()
    }

    fn send(&mut self, rung: usize, on_time_probability: Option<f64>, infeasible: bool) -> Decision {
        self.predicted = on_time_probability;
        self.infeasible = infeasible;
        Decision::Send(Choice { rung, on_time_probability, infeasible, probe_bytes: 0, stretch_bytes: None })
    }

    /// Takes in whether a frame was on time.
    fn learn(&mut self, flight: &Flight, on_time: bool) {
        match flight.on_time_probability {
            Some(predicted) => self.calibration.record(predicted, on_time),
            // A frame of the source's own video has no prediction. It was sent because it was likely enough to be on time.
            None if flight.of_source => {}
            None => return,
        }
        self.knows.price.learn(&self.knows.config, on_time, self.safest);
    }

    /// Sends the smallest frame that keeps the floor every [`OUTAGE_INTERVAL`], while nothing is known about the link or nothing gets through.
    fn try_out(&mut self, offer: &Offer<'_>, rung: usize, infeasible: bool) -> Decision {
        match self.tried.map(|tried| tried + OUTAGE_INTERVAL) {
            Some(due) if offer.now < due => Decision::Wait { until: due },
            _ => self.send(rung, None, infeasible),
        }
    }

    /// Sends larger frames until one can be measured: a frame of one packet arrives without a measurable
    /// duration.
    fn try_larger(&mut self, offer: &Offer<'_>, floor: usize, reaches_floor: bool) -> Decision {
        let rung = if self.knows.rate.blind {
            let highest = self.knows.sizes.highest(&self.knows.config, offer.ladder);
            offer.capped(highest.max(floor), floor)
        } else {
            floor
        };
        self.try_out(offer, rung, !reaches_floor)
    }
}

impl Policy for Quantile {
    fn name(&self) -> &'static str {
        "quantile"
    }

    fn handle_sent(&mut self, frame: &SentFrame) {
        self.tried = Some(frame.sent);
        // The link has room for this frame of its source. Whether any rung keeps the contract was not computed.
        if frame.of_source && !frame.infeasible {
            (self.infeasible, self.safest) = (false, 1.0);
        }
        self.steadiness.note(frame.sent, frame.rung);
        self.knows.sizes.handle_sent(&self.knows.config, frame);
        self.knows.flights.send(frame, self.predicted.take());
    }

    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.heard = Some(now);
        let Knowledge { config, flights, rate, .. } = &mut self.knows;
        if std::mem::take(&mut self.out) {
            rate.renew(config);
        }
        let landed = flights.report(now, arrival);
        // A frame that is cancelled at its first report has shown only one packet. The bytes that had left measure the
        // present rate of the link. Without this measurement, the next frame would be as large, and be cancelled too.
        if let Some(Passage { bytes, ms: took_ms }) = flights.take_tail() {
            rate.record(config, &Sample::passed(bytes, took_ms));
        }
        let Some(landed) = landed else { return };
        let sample = Sample {
            first_bytes: landed.flight.first_bytes,
            bytes: landed.flight.bytes - landed.flight.first_bytes,
            took_ms: landed.took_ms,
            lately: landed.lately,
            wait_ms: landed.wait_ms,
            on_way_ms_max: landed.held_ms + flights.round_trip_ms(),
            window_limited: landed.window_limited,
            cancelled: false,
        };
        rate.record(config, &sample);
        if rate.is_faster {
            self.probing.handle_faster(now);
        }
        if rate.is_another {
            self.steadiness.forget(now);
        }
        let on_time = arrival.last <= landed.flight.due;
        if !rate.blind || !on_time {
            self.probing.forget_tried();
        }
        self.learn(&landed.flight, on_time);
    }

    fn handle_reset(&mut self, _: Instant, frame: FrameId) {
        self.out = true;
        if let Some(flight) = self.knows.flights.give_up(frame) {
            self.calibration.record_lost(flight.on_time_probability);
        }
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        self.knows.set_terms(offer);
        let (floor, reaches_floor) = offer.floor_rung();
        if self.out {
            return self.try_out(offer, floor, true);
        }
        let Some(rate) = self.knows.rate_now(offer.now) else {
            return self.try_larger(offer, floor, reaches_floor);
        };
        let forecast = self.knows.forecast(offer, rate);
        let lowest = forecast.prospect(floor);
        // A frame that refers to the last one, at its rung, may be smaller than a keyframe of the lowest
        // rung.
        let going_on = offer.coding.and_then(|coding| coding.continues).filter(|rung| *rung > floor);
        let safest = forecast.safest(lowest).max(going_on.map_or(0.0, |rung| forecast.on_time(rung)));
        let infeasible = !reaches_floor || safest < offer.on_time_share;
        self.safest = safest;
        let silent_until = self.silent_until(offer.now);
        if self.waits_for_own(&forecast, safest, silent_until) {
            // Own bytes on their way hold the frame up. That does not mean that the link is too slow.
            self.infeasible = !reaches_floor || forecast.on_time_going_on(floor) < WORTH_QUEUEING;
            // Reports of these bytes trigger the next decision. If no report comes, the link is out and will be tested.
            return Decision::Wait { until: silent_until };
        }
        if infeasible
            && !offer.degrade
            && let Some(due) = self.tried.map(|tried| tried + self.knows.config.probe_interval)
            && offer.now < due
        {
            self.infeasible = true;
            // Frames below the bounds are not wanted. But without any frame, the policy could not detect that the bounds can be kept again.
            return Decision::Wait { until: due };
        }
        let best = self.best(&forecast, lowest);
        if let Some(bytes) = self.probing.stretch(&forecast, best, infeasible) {
            let decision = self.send(best.rung, Some(best.on_time), infeasible);
            let Decision::Send(choice) = decision else { return decision };
            return Decision::Send(Choice { stretch_bytes: Some(bytes), ..choice });
        }
        let higher = self.probing.raise(&forecast, best);
        let best = if offer.allows(higher.rung) && forecast.wants(higher.rung) { higher } else { best };
        if let Some(until) = forecast.held_back(best, self.quiet_until(offer.now), silent_until) {
            return Decision::Wait { until };
        }
        self.send(best.rung, Some(best.on_time), infeasible)
    }

    fn prefers_source(&mut self, offer: &Offer<'_>, source: SourceFrame, choice: Choice) -> Option<Choice> {
        if self.out {
            return None;
        }
        let forecast = self.knows.forecast(offer, self.knows.rate_now(offer.now)?);
        let on_time = forecast.on_time_of_source(source, choice.rung)?;
        self.predicted = Some(on_time);
        Some(Choice { on_time_probability: self.predicted, stretch_bytes: None, ..choice })
    }

    fn measured_little(&self) -> bool {
        self.knows.rate.is_dull
    }

    fn gives_up(&mut self, offer: &Offer<'_>) -> bool {
        let Knowledge { config, flights, rate: known, .. } = &self.knows;
        if !config.has(Mechanism::Cancelling) {
            return false;
        }
        let Some(sending) = flights.newest() else { return false };
        let Some(rate) = self.knows.rate_now(offer.now) else { return false };
        let left_ms = ms_between(offer.now, sending.due) - flights.delay_ms();
        let backlog = self.knows.backlog(offer.now);
        let pairs = known.pairs();
        let in_time =
            pairs.clone().filter(|pair| backlog.drained_in_ms(pair.slowness / rate) <= left_ms).count();
        if in_time as f64 > DOOMED * pairs.count() as f64 {
            return false;
        }
        let (floor, _) = offer.floor_rung();
        // The next frame may have to stand alone. At the rung of this frame, a keyframe must not cost more extra bytes
        // than cancelling saves. A frame of the source's own video has no rung, so the floor's rung counts instead.
        let rung = if sending.of_source { floor } else { sending.rung.min(offer.ladder.len() - 1) };
        if (offer.unsent_bytes as f64) < offer.bytes(rung).mean - offer.ladder.rungs()[rung].bytes.mean {
            return false;
        }
        // Cancelling helps the frame that waits, if that frame would then be on time.
        let backlog = backlog.without(offer.unsent_bytes as f64);
        let forecast = Forecast { backlog, ..self.knows.forecast(offer, rate) };
        if forecast.on_time(floor) >= WORTH_QUEUEING {
            return true;
        }
        // Otherwise cancelling helps only later frames: if the unsent bytes take at least an interval, and later frames can be on time at all.
        let unsent_ms = offer.unsent_bytes as f64 / rate;
        unsent_ms >= ms(offer.interval) && forecast.on_time_going_on(floor) >= WORTH_QUEUEING
    }

    fn handle_cancelled(&mut self, now: Instant, frame: FrameId, left_bytes: u64) {
        let newest = self.knows.flights.newest().filter(|flight| flight.frame == frame);
        let Some(sending) = newest.copied() else { return };
        self.learn(&sending, false);
        // The frame will never be whole, so the bytes that are through are its measurement. Without it, the
        // next frame would be as large. The choice was right when it was made, so the link has become slower
        // since; the last bytes show how slow.
        let Knowledge { config, flights, rate, .. } = &mut self.knows;
        if let Some(Passage { bytes, ms: took_ms }) = flights.in_service(now).map(|service| service.slower())
        {
            rate.record(config, &Sample { cancelled: true, ..Sample::passed(bytes, took_ms) });
        }
        flights.cancel(frame, left_bytes as f64);
    }

    fn bytes_in_time(&self, offer: &Offer<'_>, camera_time: Duration) -> Option<f64> {
        if self.out { None } else { self.knows.bytes_in_time(offer, camera_time) }
    }

    fn steady_on_time(&self, offer: &Offer<'_>, rung: usize) -> Option<f64> {
        if self.out {
            return None;
        }
        // If no frame was large enough to measure the link, the link holds nothing back.
        let known = self.knows.rate.estimate(&self.knows.config, None);
        Some(known.map_or(1.0, |rate| self.knows.forecast(offer, rate).on_time_going_on(rung)))
    }

    fn is_infeasible(&self) -> bool {
        self.infeasible
    }

    fn link_rate(&self) -> Option<BitsPerSecond> {
        let bytes_per_ms = self.knows.rate.estimate(&self.knows.config, None)?;
        Some(BitsPerSecond(bytes_per_ms * 8e3))
    }

    fn calibration(&self) -> Option<Calibration> {
        Some(self.calibration)
    }
}

#[cfg(test)]
mod tests;
