//! Mez's own policy: for every rung the probability that the frame arrives in time, and the rung with the best prospect.
//!
//! Before every frame the question is how many bytes may go now so that the frame arrives within the bound. The rate of
//! the link (`rate.rs`) and the bytes that are already on their way (`super::flight`) give an expected time; the
//! last 120 waits and errors of such expectations give the distribution around it. For a rung with `S` bytes, `Q` bytes on their way and
//! `h` milliseconds left, the on-time probability is the share of the remembered pairs `(w, ε)` with
//!
//! ```text
//! max(drain(Q, x + ε), w) + S / exp(x + ε) ≤ h
//! ```
//!
//! and the choice is the rung of the greatest `π · accuracy − λ (1 − π) − n · accuracy`, with `n` later frames that it keeps from
//! being sent. `λ` is the price of a late frame beyond its own worth. It rises while more frames are late than the contract allows,
//! where any rung can keep it, and is 0 otherwise; of frames that refer to others it is 0.2 at least. The figures behind this are
//! in `docs/controller-results.md`; what was tried and rejected, in `docs/controller-rejected.md`.

mod calibration;
mod rate;

use std::time::Duration;

pub use self::calibration::Calibration;
use self::rate::{PAIRS_MAX, Rate, Sample};
use super::flight::{Backlog, Flights, PACKET_BYTES, Passage, ms, ms_between};
use super::{Arrival, Choice, Coding, Decision, OUTAGE_INTERVAL, Offer, Policy, SentFrame};
use crate::frame::FrameId;
use crate::profile::Ladder;
use crate::units::{BitsPerSecond, Instant};

/// An idle link with a frame to send is silent for no longer than this, outside an outage.
pub const SILENCE_MAX: Duration = Duration::from_millis(250);

/// Constants of the policy. They were set on a few seeds of the reference set and are not sensitive: halving or doubling most of
/// them changes the share of the oracle by less than 0.005 (`docs/controller-mechanisms.md`).
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// α, the weight of a sample of the rate. Default 0.3.
    pub gain: f64,
    /// The weight of a sample that took a short time, in which a few bursts of others or of our own decide. Default 0.18.
    pub gain_short: f64,
    /// What counts as short, in milliseconds. Default 10.
    pub short_ms: f64,
    /// The weight of a sample when what was known is old: after an outage, or after two errors in a row of the same sign and above a
    /// standard deviation each. Default 0.6.
    pub gain_renewed: f64,
    /// How many samples have that weight after an outage. Default 5.
    pub renewed_samples: u32,
    /// An error of more standard deviations than this, where the link is slower than thought, is a surprise: those of the same sign
    /// that follow it, while the estimate comes down, are of the same one. Default 3.
    pub surprise: f64,
    /// The weight of what a frame showed that was cancelled because it took too long, or by which the link has become far slower than
    /// it was. Default 1: it replaces the estimate.
    pub gain_another: f64,
    /// Samples of fewer bytes, unless they took long, only show what the link carries at least. Default 12,000: ten packets.
    pub sample_bytes_min: f64,
    /// Samples that took less, in milliseconds, only show what the link carries at least. Default 2.
    pub sample_ms_min: f64,
    /// A frame in service counts once it has taken longer than this, in milliseconds. Default 10.
    pub censor_ms_min: f64,
    /// The least of λ where frames refer to others: those that follow a late one wait for it. Default 0.2.
    pub late_chain_cost: f64,
    /// By how much λ, in units of accuracy, rises with a late frame while too many are late. Default 0.05.
    pub late_cost_step: f64,
    /// The highest rise of λ. Default 2.
    pub late_cost_rise_max: f64,
    /// Kept free before the deadline for what comes after the network, in milliseconds. Default 0.5: the edge takes 0.4 at p95.
    pub guard_ms: f64,
    /// A frame is at most this many times as large as the largest of the last frames. Default 2.
    pub ramp: f64,
    /// The weight of a frame in the ratio between the sizes of frames and those of the profile. Default 0.1.
    pub size_gain: f64,
    /// Where frames refer to each other: how far ahead a change of the rung is looked at, which begins with a frame that stands alone.
    /// Default 5 s, half of the longest chain.
    pub chain_horizon: Duration,
    /// While the congestion window limits, how often one frame goes a rung up. Default 1.5 s.
    pub probe_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            gain: 0.3,
            gain_short: 0.18,
            short_ms: 10.0,
            gain_renewed: 0.6,
            renewed_samples: 5,
            surprise: 3.0,
            gain_another: 1.0,
            sample_bytes_min: 12e3,
            sample_ms_min: 2.0,
            censor_ms_min: 10.0,
            late_chain_cost: 0.2,
            late_cost_step: 0.05,
            late_cost_rise_max: 2.0,
            guard_ms: 0.5,
            ramp: 2.0,
            size_gain: 0.1,
            chain_horizon: Duration::from_secs(5),
            probe_interval: Duration::from_millis(1500),
        }
    }
}

/// The share of the largest recent frame that is left of it with every frame: a second's worth is remembered.
const LARGEST_KEPT: f64 = 0.97;
/// What is on its way holds back a frame for so long after it was last heard of, at least.
const HEARD_MAX: Duration = Duration::from_millis(150);
/// A frame that is made larger to measure the link by is at most as large as what gives a full measurement,
const STRETCH_BYTES_MAX: f64 = 14e3;
/// and at least so large: two packets.
const STRETCH_BYTES_MIN: f64 = 2.4e3;
/// Of the bytes that are there in time, it takes this share.
const STRETCH_SHARE: f64 = 0.6;
/// Where it cannot be on time, and others can, so long passes between two.
const STRETCH_LATE_INTERVAL: Duration = Duration::from_secs(5);
/// After one that showed that the link is faster, the next comes after this.
const STRETCH_AGAIN: Duration = Duration::from_millis(150);
/// After a fall a better rung that a chain begins anew for waits for so long; twice as long after every rise that did not last,
const RISE_WAIT_MIN: Duration = Duration::from_secs(2);
/// and no longer than this.
const RISE_WAIT_MAX: Duration = Duration::from_secs(16);
/// A rise has lasted that was not followed by a fall within this.
const RISE_KEPT_MIN: Duration = Duration::from_secs(10);
/// With own bytes on their way, a frame that is less probable than this to be on time waits for them: it would only make
/// the next one late as well.
const WORTH_QUEUEING: f64 = 0.5;
/// A frame on its way that is less probable than this to be on time may be cancelled for the next.
const DOOMED: f64 = 0.02;

/// The policy. See the [module](self).
#[derive(Debug)]
pub struct Quantile {
    config: Config,
    flights: Flights,
    rate: Rate,
    calibration: Calibration,
    /// For the pair at each place a quantile of the size, so that one sum covers the errors of rate and of size.
    size_quantiles: [f64; PAIRS_MAX],
    /// Sizes of frames ÷ sizes in the profile.
    size_ratio: f64,
    /// The largest of the last frames, slowly forgotten.
    largest_bytes: f64,
    /// The rise of λ.
    late_cost_rise: f64,
    on_time_share: f64,
    /// Nothing gets through.
    out: bool,
    /// What was said of the floor when it was last decided on.
    infeasible: bool,
    /// When the last frame was sent.
    tried: Option<Instant>,
    /// When the receiver last reported bytes.
    heard: Option<Instant>,
    probed: Instant,
    /// When a frame may be made larger to measure the link by.
    stretch_due: Instant,
    /// The rung of the last frame, and when the one before was lower.
    rung: Option<usize>,
    rose: Option<Instant>,
    /// After a fall, when a better rung may be tried that a chain begins anew for, and how long that was to wait.
    rise_wait: Duration,
    rise_due: Instant,
    /// The rung that was tried last while frames were too small to measure the link by.
    probed_blind: usize,
    /// What was predicted for the frame that was chosen last.
    predicted: Option<f64>,
}

/// What is the same for all rungs of one decision.
struct Outlook {
    /// Milliseconds that are left of the bound, without what comes after the network.
    left_ms: f64,
    /// Own bytes on their way.
    backlog: Backlog,
    /// Bytes per millisecond.
    rate: f64,
}

impl Outlook {
    /// What is still on its way but through the link, as far as is known, holds nothing back.
    fn is_busy(&self) -> bool {
        self.backlog.drained_in_ms(1.0 / self.rate) > 0.0
    }
}

/// The prospect of a rung.
#[derive(Clone, Copy)]
struct Prospect {
    rung: usize,
    on_time: f64,
    worth: f64,
}

impl Quantile {
    /// A policy that knows nothing of its link.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            flights: Flights::new(),
            rate: Rate::new(),
            calibration: Calibration::default(),
            size_quantiles: scattered(),
            size_ratio: 1.0,
            largest_bytes: 0.0,
            late_cost_rise: 0.0,
            on_time_share: 1.0,
            out: false,
            infeasible: false,
            tried: None,
            heard: None,
            probed: Instant::ZERO,
            stretch_due: Instant::ZERO,
            rung: None,
            rose: None,
            rise_wait: RISE_WAIT_MIN,
            rise_due: Instant::ZERO,
            probed_blind: 0,
            predicted: None,
        }
    }

    /// Milliseconds of the bound that are left for the network, but for its delay.
    fn left_ms(&self, offer: &Offer<'_>) -> f64 {
        ms(offer.latency_bound) - ms(offer.age()) - self.flights.delay_ms() - self.config.guard_ms
    }

    /// Milliseconds that are left for the network of those that the bound leaves, once a frame of this rung is made and recognised.
    fn left_for(&self, offer: &Offer<'_>, left_ms: f64, rung: usize) -> f64 {
        let profile = &offer.ladder.rungs()[rung];
        let detector_ms = match (offer.result_latency_bound, profile.detector_time) {
            (Some(bound), Some(time)) => ms(offer.latency_bound) - (ms(bound) - ms(time)),
            _ => 0.0,
        };
        left_ms - ms(profile.camera_time) - detector_ms.max(0.0)
    }

    /// What the remembered waits and errors make of a frame of this rung: the share with which it would be on time, and how many
    /// later frames it would keep from being sent, on average.
    fn foresee(&self, offer: &Offer<'_>, outlook: &Outlook, rung: usize) -> (f64, f64) {
        let left_ms = self.left_for(offer, outlook.left_ms, rung);
        let (age_ms, interval_ms) = (ms(offer.age()), ms(offer.interval_at(rung)).max(1.0));
        let sizes = offer.bytes(rung);
        let (mut on_time, mut displaced, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, quantile) in self.rate.pairs().zip(&self.size_quantiles) {
            pairs += 1;
            let ms_per_byte = pair.slowness / outlook.rate;
            // The first packet's time is in the delay, and what it took longer than at best in the wait; behind own frames it is in neither.
            let bytes = sizes.quantile(*quantile) * self.size_ratio;
            let drained_ms = outlook.backlog.drained_in_ms(ms_per_byte);
            let packet_ms = if drained_ms > 0.0 { PACKET_BYTES.min(bytes) * ms_per_byte } else { 0.0 };
            let first_ms = (drained_ms + packet_ms).max(pair.wait_at(outlook.rate));
            let end_ms = first_ms + (bytes - PACKET_BYTES).max(0.0) * ms_per_byte;
            let end_ms = end_ms.max(first_ms + self.flights.opening_ms(offer.window, bytes));
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
    fn foresee_going_on(&self, offer: &Offer<'_>, outlook: &Outlook, rung: usize) -> (f64, f64) {
        let bound_ms = ms(offer.latency_bound) - self.flights.delay_ms() - self.config.guard_ms;
        let left_ms = self.left_for(offer, bound_ms, rung);
        let interval_ms = ms(offer.interval_at(rung)).max(1.0);
        let sizes = &offer.ladder.rungs()[rung].bytes;
        let (mut on_time, mut took_ms, mut pairs) = (0u32, 0.0, 0u32);
        for (pair, quantile) in self.rate.pairs().zip(&self.size_quantiles) {
            pairs += 1;
            let ms_per_byte = pair.slowness / outlook.rate;
            let bytes = sizes.quantile(*quantile) * self.size_ratio;
            let end_ms = pair.wait_at(outlook.rate) + (bytes - PACKET_BYTES).max(0.0) * ms_per_byte;
            on_time += u32::from(end_ms <= left_ms);
            took_ms += end_ms;
        }
        let displaced = took_ms / f64::from(pairs) / interval_ms - 1.0;
        (f64::from(on_time) / f64::from(pairs), displaced.max(0.0))
    }

    fn on_time_probability(&self, offer: &Offer<'_>, outlook: &Outlook, rung: usize) -> f64 {
        self.foresee(offer, outlook, rung).0
    }

    fn prospect(&self, offer: &Offer<'_>, outlook: &Outlook, rung: usize) -> Prospect {
        let late_cost = self.late_cost_rise + offer.coding.map_or(0.0, |_| self.config.late_chain_cost);
        let accuracy = offer.ladder.rungs()[rung].accuracy;
        // A frame that is not sent is worth what this one is.
        let worth = |(on_time, displaced): (f64, f64)| {
            on_time * accuracy - late_cost * (1.0 - on_time) - displaced * accuracy
        };
        let now = self.foresee(offer, outlook, rung);
        let Some(coding) = offer.coding else {
            return Prospect { rung, on_time: now.0, worth: worth(now) };
        };
        // A frame that stands alone is dear once, and what follows it at its rung is not: both count, by the time that they last.
        let later = self.foresee_going_on(offer, outlook, rung);
        let horizon = ms(self.config.chain_horizon) / ms(offer.interval).max(1.0);
        let share = (f64::from(coding.every[rung]) / horizon).min(1.0);
        Prospect { rung, on_time: now.0, worth: share * worth(now) + (1.0 - share) * worth(later) }
    }

    /// The highest rung whose frames are at most [`Config::ramp`] times as large as the largest that were sent lately; or the first
    /// above those, however far it is: a ladder with a gap could not be climbed otherwise.
    fn highest(&self, ladder: &Ladder) -> usize {
        let within = |bytes: f64| ladder.best_within(bytes / self.size_ratio.max(f64::MIN_POSITIVE));
        let reached = within(self.largest_bytes * self.config.ramp).unwrap_or(0);
        let next = within(self.largest_bytes).map_or(0, |place| place + 1);
        reached.max(next).min(ladder.len() - 1)
    }

    /// The best rung from `lowest` up, not above [`Self::highest`], and within the cap, if there is one.
    fn best(&self, offer: &Offer<'_>, outlook: &Outlook, lowest: Prospect) -> Prospect {
        let mut best = lowest;
        for rung in lowest.rung + 1..=self.highest(offer.ladder) {
            if self.is_held(offer, rung) || !offer.allows(rung) {
                continue;
            }
            let prospect = self.prospect(offer, outlook, rung);
            if prospect.worth > best.worth {
                best = prospect;
            }
        }
        let expired = offer.cap.is_some_and(|cap| offer.now >= cap.until);
        match offer.capped(best.rung, lowest.rung) {
            // What is left of it.
            rung if expired && rung != best.rung => self.prospect(offer, outlook, rung),
            _ => best,
        }
    }

    /// The best on-time probability of the lowest rung and of those above it that leave out fewer frames: theirs may be smaller.
    fn safest(&self, offer: &Offer<'_>, outlook: &Outlook, lowest: Prospect) -> f64 {
        let interval = offer.interval_at(lowest.rung);
        let above = (lowest.rung + 1..offer.ladder.len()).filter(|rung| offer.interval_at(*rung) < interval);
        let on_time = above.map(|rung| self.on_time_probability(offer, outlook, rung));
        on_time.fold(lowest.on_time, f64::max)
    }

    /// Whether the frame after this one, if both go on at this rung, would be on time although this one goes first. Not to send it
    /// saves nothing then: what has changed comes with the next.
    fn spares_next(&self, offer: &Offer<'_>, outlook: &Outlook, rung: usize) -> bool {
        let Some(coding) = offer.coding.filter(|coding| coding.continues == Some(rung)) else { return false };
        let mut backlog = outlook.backlog;
        backlog.push(0.0, offer.bytes(rung).mean * self.size_ratio);
        let left_ms = outlook.left_ms + ms(offer.interval_at(rung));
        let next = Offer { coding: Some(Coding { left_out: 0, ..coding }), ..*offer };
        self.on_time_probability(&next, &Outlook { left_ms, backlog, ..*outlook }, rung) >= WORTH_QUEUEING
    }

    /// How long an idle link may be without a frame.
    fn quiet_until(&self, now: Instant) -> Instant {
        self.tried.map_or(now, |tried| tried + SILENCE_MAX)
    }

    /// Until when a frame of a chain waits that would be late: for what is on its way, or, where it would stand alone and is old already,
    /// for the next frame, if that would be on time.
    fn held_back(
        &self,
        offer: &Offer<'_>,
        outlook: &Outlook,
        best: Prospect,
        silent_until: Instant,
    ) -> Option<Instant> {
        let coding = offer.coding?;
        if best.on_time >= WORTH_QUEUEING || offer.now >= silent_until {
            return None;
        }
        if outlook.is_busy() && !self.spares_next(offer, outlook, best.rung) {
            return Some(silent_until);
        }
        let interval = offer.interval_at(best.rung);
        let next = offer.captured + interval;
        // A camera's frames do not come as evenly as its clock ticks.
        let due = (next + offer.interval / 2).min(self.quiet_until(offer.now));
        if coding.continues == Some(best.rung) || offer.age() < interval / 2 || offer.now >= due {
            return None;
        }
        let (left_ms, backlog) = (outlook.left_ms + ms(offer.age()), self.flights.backlog(next));
        let fresh = Outlook { left_ms, backlog, ..*outlook };
        (self.on_time_probability(offer, &fresh, best.rung) >= WORTH_QUEUEING).then_some(due)
    }

    /// Whether a better rung that a chain would have to begin anew for is not to be tried yet, because one was fallen back from.
    fn is_held(&self, offer: &Offer<'_>, rung: usize) -> bool {
        let Some(coding) = offer.coding.filter(|coding| coding.stretches) else { return false };
        let begins = !coding.goes_on.get(rung).copied().unwrap_or(false);
        begins && coding.continues.is_some_and(|place| rung > place) && offer.now < self.rise_due
    }

    /// A frame goes at a rung: notes rises and falls.
    fn note_rung(&mut self, now: Instant, rung: usize) {
        match self.rung.replace(rung) {
            Some(before) if rung > before => self.rose = Some(now),
            Some(before) if rung < before => {
                let soon = self.rose.take().is_some_and(|rose| now.saturating_since(rose) < RISE_KEPT_MIN);
                self.rise_wait = if soon { (self.rise_wait * 2).min(RISE_WAIT_MAX) } else { RISE_WAIT_MIN };
                self.rise_due = now + self.rise_wait;
            }
            _ => {}
        }
    }

    /// One rung more, from time to time, while it is the congestion window that limits, which grows only when it is used; or while
    /// frames are too small to measure the link by.
    fn probe(&mut self, offer: &Offer<'_>, outlook: &Outlook, best: Prospect) -> Prospect {
        // As long as nothing is measured each try goes above the last, or it would never be.
        let tried = if self.rate.blind { self.probed_blind } else { 0 };
        let rung = best.rung.max(tried) + 1;
        let stretches = offer.coding.is_some_and(|coding| coding.stretches);
        let due = (self.rate.window_limited || self.rate.blind && !stretches)
            && offer.now >= self.probed + self.config.probe_interval;
        if !due || rung >= offer.ladder.len() {
            return best;
        }
        let higher = self.prospect(offer, outlook, rung);
        if higher.on_time < offer.on_time_share && !self.rate.blind {
            return best;
        }
        (self.probed, self.probed_blind) = (offer.now, rung);
        higher
    }

    /// While frames are too small to measure the link by, and can be made larger at the rung that they go on at: so many bytes for
    /// this one, from time to time. A rung more may be a hundred times as large, where video ends and stills begin.
    fn stretch(&mut self, offer: &Offer<'_>, best: Prospect, infeasible: bool) -> Option<f64> {
        let stretches =
            offer.coding.is_some_and(|coding| coding.stretches && coding.continues == Some(best.rung));
        if !stretches || !self.rate.is_dull || offer.now < self.stretch_due {
            return None;
        }
        let camera_time = offer.ladder.rungs()[best.rung].camera_time;
        let in_time = self.bytes_in_time(offer, camera_time)? * STRETCH_SHARE;
        let bytes = in_time.clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX);
        let late = bytes > in_time && !infeasible;
        self.stretch_due = offer.now + if late { STRETCH_LATE_INTERVAL } else { self.config.probe_interval };
        (bytes > offer.bytes(best.rung).mean * self.size_ratio).then_some(bytes)
    }

    fn send(&mut self, rung: usize, on_time_probability: Option<f64>, infeasible: bool) -> Decision {
        self.predicted = on_time_probability;
        self.infeasible = infeasible;
        Decision::Send(Choice { rung, on_time_probability, infeasible, probe_bytes: 0, stretch_bytes: None })
    }

    /// A frame was on time, or it was not.
    fn learn(&mut self, on_time_probability: Option<f64>, on_time: bool) {
        let Some(predicted) = on_time_probability else { return };
        self.calibration.record(predicted, on_time);
        if self.infeasible {
            // As many are late at any rung: a price on it would only make them small as well.
            return;
        }
        let late = f64::from(u8::from(!on_time));
        let rise = self.late_cost_rise + self.config.late_cost_step * (late - (1.0 - self.on_time_share));
        self.late_cost_rise = rise.clamp(0.0, self.config.late_cost_rise_max);
    }

    /// Nothing is known of the link, or nothing gets through: the smallest frame that keeps the floor, from time to time.
    fn try_out(&mut self, offer: &Offer<'_>, rung: usize, infeasible: bool) -> Decision {
        match self.tried.map(|tried| tried + OUTAGE_INTERVAL) {
            Some(due) if offer.now < due => Decision::Wait { until: due },
            _ => self.send(rung, None, infeasible),
        }
    }
}

impl Policy for Quantile {
    fn name(&self) -> &'static str {
        "quantile"
    }

    fn handle_sent(&mut self, frame: &SentFrame) {
        self.tried = Some(frame.sent);
        self.note_rung(frame.sent, frame.rung);
        let bytes = f64::from(frame.bytes);
        self.largest_bytes = bytes.max(self.largest_bytes * LARGEST_KEPT);
        let ratio = bytes / f64::from(frame.expected_bytes.max(1));
        self.size_ratio += self.config.size_gain * (ratio - self.size_ratio);
        self.flights.send(frame, self.predicted.take());
    }

    fn handle_arrival(&mut self, now: Instant, arrival: &Arrival) {
        self.heard = Some(now);
        if std::mem::take(&mut self.out) {
            self.rate.renew(&self.config);
        }
        let Some(landed) = self.flights.report(now, arrival) else { return };
        let sample = Sample {
            bytes: landed.flight.bytes - PACKET_BYTES,
            took_ms: landed.took_ms,
            lately: landed.lately,
            wait_ms: landed.wait_ms,
            window_limited: landed.window_limited,
            cancelled: false,
        };
        self.rate.record(&self.config, &sample);
        if self.rate.is_faster {
            // The link carries more than was thought: how much more is to be known soon.
            self.stretch_due = self.stretch_due.min(now + STRETCH_AGAIN);
        }
        if self.rate.is_another {
            self.rise_due = now;
        }
        let on_time = arrival.last <= landed.flight.due;
        if !self.rate.blind || !on_time {
            self.probed_blind = 0;
        }
        self.learn(landed.flight.on_time_probability, on_time);
    }

    fn handle_reset(&mut self, _: Instant, frame: FrameId) {
        self.out = true;
        if let Some(flight) = self.flights.give_up(frame) {
            self.calibration.record_lost(flight.on_time_probability);
        }
    }

    fn decide(&mut self, offer: &Offer<'_>) -> Decision {
        self.on_time_share = offer.on_time_share;
        let (floor, reaches_floor) = offer.floor_rung();
        if self.out {
            return self.try_out(offer, floor, true);
        }
        let Some(rate) = self.rate.estimate(&self.config, self.flights.in_service(offer.now)) else {
            // Frames of one packet arrive and measure nothing: larger ones, until one does.
            let rung = if self.rate.blind { self.highest(offer.ladder).max(floor) } else { floor };
            let rung = if self.rate.blind { offer.capped(rung, floor) } else { floor };
            return self.try_out(offer, rung, !reaches_floor);
        };
        let outlook =
            Outlook { left_ms: self.left_ms(offer), backlog: self.flights.backlog(offer.now), rate };
        let lowest = self.prospect(offer, &outlook, floor);
        // A frame that goes on at the rung of the one before may be smaller than one of the lowest rung that stands alone.
        let going_on = offer.coding.and_then(|coding| coding.continues).filter(|rung| *rung > floor);
        let going_on = going_on.map_or(0.0, |rung| self.on_time_probability(offer, &outlook, rung));
        let safest = self.safest(offer, &outlook, lowest).max(going_on);
        let infeasible = !reaches_floor || safest < offer.on_time_share;
        // While the receiver reports bytes the link is not silent.
        let heard_until = self.heard.map_or(offer.now, |heard| heard + HEARD_MAX);
        let silent_until = self.quiet_until(offer.now).max(heard_until);
        // A report that comes after the next frame does so too late to have waited for.
        let is_answered = self.flights.round_trip_ms() < ms(offer.interval);
        let spares_next = || {
            let going_on = offer.coding.and_then(|coding| coding.continues);
            going_on.is_some_and(|rung| self.spares_next(offer, &outlook, rung))
        };
        if safest < WORTH_QUEUEING
            && is_answered
            && outlook.is_busy()
            && offer.now < silent_until
            && !spares_next()
        {
            // What is on its way holds it up; whether the link is too slow is another question.
            self.infeasible =
                !reaches_floor || self.foresee_going_on(offer, &outlook, floor).0 < WORTH_QUEUEING;
            // Reports of what is on its way wake us; if none comes, the link is out and will be tried.
            return Decision::Wait { until: silent_until };
        }
        if infeasible
            && !offer.degrade
            && let Some(due) = self.tried.map(|tried| tried + self.config.probe_interval)
            && offer.now < due
        {
            self.infeasible = true;
            // Nothing is wanted below the bounds, but without any frame nobody would know when they can be kept again.
            return Decision::Wait { until: due };
        }
        let best = self.best(offer, &outlook, lowest);
        if let Some(bytes) = self.stretch(offer, best, infeasible) {
            let decision = self.send(best.rung, Some(best.on_time), infeasible);
            let Decision::Send(choice) = decision else { return decision };
            return Decision::Send(Choice { stretch_bytes: Some(bytes), ..choice });
        }
        let probe = self.probe(offer, &outlook, best);
        let best = if offer.allows(probe.rung) { probe } else { best };
        if let Some(until) = self.held_back(offer, &outlook, best, silent_until) {
            return Decision::Wait { until };
        }
        self.send(best.rung, Some(best.on_time), infeasible)
    }

    fn gives_up(&mut self, offer: &Offer<'_>) -> bool {
        let Some(sending) = self.flights.newest() else { return false };
        let Some(rate) = self.rate.estimate(&self.config, self.flights.in_service(offer.now)) else {
            return false;
        };
        let left_ms = ms_between(offer.now, sending.due) - self.flights.delay_ms();
        let backlog = self.flights.backlog(offer.now);
        let pairs = self.rate.pairs();
        let in_time =
            pairs.clone().filter(|pair| backlog.drained_in_ms(pair.slowness / rate) <= left_ms).count();
        if in_time as f64 > DOOMED * pairs.count() as f64 {
            return false;
        }
        let (floor, _) = offer.floor_rung();
        // The next frame may have to stand alone. At the rung of this one that must not cost more than is saved.
        let rung = sending.rung.min(offer.ladder.len() - 1);
        if (offer.unsent_bytes as f64) < offer.bytes(rung).mean - offer.ladder.rungs()[rung].bytes.mean {
            return false;
        }
        // Only if that helps the frame that waits,
        let backlog = backlog.without(offer.unsent_bytes as f64);
        let outlook = Outlook { left_ms: self.left_ms(offer), backlog, rate };
        if self.on_time_probability(offer, &outlook, floor) >= WORTH_QUEUEING {
            return true;
        }
        // or some that come after it, where what has left takes longer. On a link on which none would be on time nothing is gained.
        let unsent_ms = offer.unsent_bytes as f64 / rate;
        unsent_ms >= ms(offer.interval) && self.foresee_going_on(offer, &outlook, floor).0 >= WORTH_QUEUEING
    }

    fn handle_cancelled(&mut self, now: Instant, frame: FrameId, left_bytes: u64) {
        let Some(sending) = self.flights.newest().filter(|flight| flight.frame == frame).copied() else {
            return;
        };
        self.learn(sending.on_time_probability, false);
        // It will never be whole, so what is through of it is the measurement. Without it, the next frame would be as large. It was right
        // when it was chosen, so the link has become slower since: the last of it shows how slow.
        if let Some(Passage { bytes, ms: took_ms }) =
            self.flights.in_service(now).map(|service| service.slower())
        {
            let sample =
                Sample { bytes, took_ms, lately: None, wait_ms: 0.0, window_limited: false, cancelled: true };
            self.rate.record(&self.config, &sample);
        }
        self.flights.cancel(frame, left_bytes as f64);
    }

    fn bytes_in_time(&self, offer: &Offer<'_>, camera_time: Duration) -> Option<f64> {
        let rate =
            self.rate.estimate(&self.config, self.flights.in_service(offer.now)).filter(|_| !self.out)?;
        let (left_ms, backlog) = (self.left_ms(offer) - ms(camera_time), self.flights.backlog(offer.now));
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

    fn steady_on_time(&self, offer: &Offer<'_>, rung: usize) -> Option<f64> {
        if self.out {
            return None;
        }
        // A link that no frame was large enough to measure holds nothing back.
        let Some(rate) = self.rate.estimate(&self.config, None) else { return Some(1.0) };
        let outlook = Outlook { left_ms: 0.0, backlog: self.flights.backlog(offer.now), rate };
        Some(self.foresee_going_on(offer, &outlook, rung).0)
    }

    fn is_infeasible(&self) -> bool {
        self.infeasible
    }

    fn link_rate(&self) -> Option<BitsPerSecond> {
        let bytes_per_ms = self.rate.estimate(&self.config, None)?;
        Some(BitsPerSecond(bytes_per_ms * 8e3))
    }

    fn calibration(&self) -> Option<Calibration> {
        Some(self.calibration)
    }
}

/// The van der Corput sequence in base 2: however many of its first terms are taken, they fill 0 to 1 evenly.
fn scattered() -> [f64; PAIRS_MAX] {
    std::array::from_fn(|index| f64::from((index as u32 + 1).reverse_bits()) / (f64::from(u32::MAX) + 1.0))
}

#[cfg(test)]
mod tests;
