//! Simulates which station sends when, and what gets through: carrier sense, back-off, aggregation and collisions.
//!
//! Times are whole nanoseconds, so that stations that count the same slots reach zero at the same instant, and collide. A station counts only while
//! it senses no transmission. It collides with transmissions that it does not sense. Durations are those of IEEE 802.11 for OFDM at 5 GHz.

use super::{Constants, Interferer, Station};
use crate::chance::Chance;
use crate::random::Random;

/// An idle slot (aSlotTime), in nanoseconds.
const SLOT: u64 = 9_000;
/// The gap before an acknowledgement (aSIFSTime), in nanoseconds.
const SIFS: u64 = 16_000;
/// The preamble and header of a PPDU, in nanoseconds.
const PREAMBLE: u64 = 40_000;
/// A block acknowledgement, in nanoseconds. If none comes, all stations wait this long.
const BLOCK_ACK: u64 = 32_000;
/// A request to send (RTS) with its preamble, at a basic rate, in nanoseconds.
const REQUEST: u64 = 52_000;
/// The gap and the clear to send (CTS) that answers an RTS, in nanoseconds.
const LEAVE: u64 = SIFS + 44_000;
/// The most bytes of a PPDU: an A-MPDU of 802.11n.
const PPDU_BYTES_MAX: f64 = 65_535.0;
/// The longest PPDU (aPPDUMaxTime), in nanoseconds.
const PPDU_TIME_MAX: u64 = 5_484_000;

/// A PPDU on the air.
struct Ppdu {
    mpdus: usize,
    phase: Phase,
    phase_until: u64,
    /// Whether stations that do not hear the sender know of the PPDU, from the receiver's answer.
    is_known_to_all: bool,
    /// Whether another transmission or a burst overlapped the PPDU.
    is_spoiled: bool,
}

impl Ppdu {
    const fn is_vulnerable(&self) -> bool {
        matches!(self.phase, Phase::Request | Phase::Data)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The sender sends an RTS.
    Request,
    /// The data, and before it the CTS, if the sender sent an RTS.
    Data,
    /// The receiver acknowledges.
    Answer,
    /// No answer comes. All stations wait as long as an answer would take.
    Silence,
}

/// A station that contends for the medium.
struct Contender {
    station: Station,
    /// Bytes of an MPDU on the air.
    mpdu_bytes: f64,
    /// MPDUs that wait for the medium.
    queued: usize,
    mbps: f64,
    cw: u64,
    failures: u32,
    backoff: Option<u64>,
    /// Since when or from when slots are counted. `None` while a transmission is sensed.
    counts_from: Option<u64>,
    /// How many transmissions the station senses.
    sensed: u32,
    sending: Option<Ppdu>,
}

impl Contender {
    /// How many waiting MPDUs fit into one PPDU.
    fn aggregate(&self, mpdus_max: usize) -> usize {
        let in_bytes = PPDU_BYTES_MAX / self.mpdu_bytes;
        let in_time = (PPDU_TIME_MAX - PREAMBLE) as f64 / 1e3 * self.mbps / (self.mpdu_bytes * 8.0);
        self.queued.min(mpdus_max).min(in_bytes.min(in_time).max(1.0) as usize)
    }

    /// The airtime of MPDUs in one PPDU at the present rate.
    fn air_time(&self, mpdus: usize) -> u64 {
        PREAMBLE + nanos(mpdus as f64 * self.mpdu_bytes * 8.0 / self.mbps)
    }

    /// When the station will send, unless it senses a transmission before.
    fn expiry(&self) -> Option<u64> {
        let (backoff, from) = (self.backoff?, self.counts_from?);
        self.sending.is_none().then(|| from + backoff * SLOT)
    }
}

/// A device that radiates without contending, such as a microwave oven, a camera of another kind, or a network on an overlapping channel.
struct Source {
    spec: Interferer,
    /// Whether the device is active, until `phase_until`.
    is_on: bool,
    phase_until: u64,
    /// When the burst on the air ends; `None` if there is none.
    bursting_until: Option<u64>,
    burst_due: u64,
}

/// The result of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passed {
    pub(super) from: usize,
    /// MPDUs that arrived.
    pub(super) arrived: usize,
    /// MPDUs that were given up, after the most attempts.
    pub(super) dropped: usize,
}

/// The medium. The last station is the access point.
pub(super) struct Air {
    constants: Constants,
    chance: Chance,
    now: u64,
    contenders: Vec<Contender>,
    /// Pairs of stations that do not sense each other.
    hidden: Vec<(usize, usize)>,
    sources: Vec<Source>,
}

enum Event {
    /// An exchange has ended.
    Ends(usize),
    /// A part of an exchange has ended.
    Goes(usize),
    Burst(usize),
    BurstEnds(usize),
    Turns(usize),
    Starts(usize),
}

impl Air {
    /// An idle medium. Each station comes with the bytes of its MPDUs.
    pub(super) fn new(
        constants: &Constants,
        stations: impl IntoIterator<Item = (Station, f64)>,
        hidden: Vec<(usize, usize)>,
        interferers: &[Interferer],
        seed: u64,
    ) -> Self {
        let mut chance = Chance::new(Random::seeded(seed));
        let contenders = stations.into_iter().map(|(station, mpdu_bytes)| Contender {
            station,
            mpdu_bytes,
            queued: 0,
            mbps: station.phy_mbps,
            cw: constants.cw_min,
            failures: 0,
            backoff: None,
            counts_from: Some(0),
            sensed: 0,
            sending: None,
        });
        let sources = interferers.iter().map(|spec| Source {
            spec: *spec,
            is_on: false,
            phase_until: nanos(chance.exponential(spec.off_ms_mean * 1e3)),
            bursting_until: None,
            burst_due: u64::MAX,
        });
        Self {
            constants: *constants,
            contenders: contenders.collect(),
            sources: sources.collect(),
            chance,
            now: 0,
            hidden,
        }
    }

    /// MPDUs of a station that wait for the medium or are on it.
    pub(super) fn queued(&self, station: usize) -> usize {
        self.contenders[station].queued
    }

    /// Queues more MPDUs of a station. No event may be due before `now`.
    pub(super) fn queue(&mut self, now: u64, station: usize, mpdus: usize) {
        self.now = self.now.max(now);
        let contender = &mut self.contenders[station];
        contender.queued += mpdus;
        if contender.backoff.is_none() && contender.sending.is_none() && contender.queued > 0 {
            contender.backoff = Some(self.chance.within(0..=contender.cw));
            // Slots are counted from the end of the last sensed transmission, so that all stations that sensed it have the same slot borders.
            let earliest = self.now + nanos(self.constants.aifs_us);
            contender.counts_from =
                contender.counts_from.map(|from| from + earliest.saturating_sub(from).div_ceil(SLOT) * SLOT);
        }
    }

    /// Changes a station's highest rate and its share of lost MPDUs, as when it moves.
    pub(super) fn alter(&mut self, station: usize, spec: Station) {
        self.contenders[station].station = spec;
        let contender = &mut self.contenders[station];
        contender.mbps = contender.mbps.min(spec.phy_mbps);
    }

    /// Makes two stations cease or begin to sense each other. Transmissions on the air are not affected.
    pub(super) fn hide(&mut self, one: usize, other: usize, is_hidden: bool) {
        self.hidden.retain(|pair| *pair != (one, other) && *pair != (other, one));
        if is_hidden {
            self.hidden.push((one, other));
        }
    }

    /// Switches an interferer on or off for good.
    pub(super) fn switch(&mut self, now: u64, interferer: usize, is_on: bool) {
        let source = &mut self.sources[interferer];
        (source.is_on, source.phase_until, source.burst_due) = (is_on, u64::MAX, now);
    }

    /// When the next event is due.
    pub(super) fn due(&self) -> Option<u64> {
        self.next().map(|(at, _)| at)
    }

    /// Handles the next event. Returns the result of a transmission if one ended.
    pub(super) fn step(&mut self) -> Option<Passed> {
        let (at, event) = self.next()?;
        self.now = at;
        match event {
            Event::Ends(index) => return Some(self.end(index)),
            Event::Goes(index) => self.go_on(index),
            Event::Starts(index) => self.start(index),
            Event::Burst(index) => self.burst(index),
            Event::BurstEnds(index) => self.end_burst(index),
            Event::Turns(index) => self.turn(index),
        }
        None
    }

    /// The next event. At the same instant, ends come before beginnings, so that adjacent transmissions do not overlap.
    fn next(&self) -> Option<(u64, Event)> {
        let mut next: Option<(u64, u8, Event)> = None;
        let mut offer = |at: u64, order: u8, event: Event| {
            if next.as_ref().is_none_or(|(known, before, _)| (at, order) < (*known, *before)) {
                next = Some((at, order, event));
            }
        };
        for (index, contender) in self.contenders.iter().enumerate() {
            match &contender.sending {
                Some(ppdu) if ppdu.is_vulnerable() => {
                    offer(ppdu.phase_until, 1, Event::Goes(index));
                }
                Some(ppdu) => offer(ppdu.phase_until, 0, Event::Ends(index)),
                None => {
                    if let Some(at) = contender.expiry() {
                        offer(at.max(self.now), 4, Event::Starts(index));
                    }
                }
            }
        }
        for (index, source) in self.sources.iter().enumerate() {
            offer(source.phase_until, 2, Event::Turns(index));
            match source.bursting_until {
                Some(until) => offer(until, 2, Event::BurstEnds(index)),
                None if source.is_on => offer(source.burst_due, 3, Event::Burst(index)),
                None => {}
            }
        }
        next.map(|(at, _, event)| (at, event))
    }

    fn hears(&self, listener: usize, speaker: usize) -> bool {
        listener != speaker
            && !self.hidden.contains(&(listener, speaker))
            && !self.hidden.contains(&(speaker, listener))
    }

    fn start(&mut self, index: usize) {
        let now = self.now;
        let contender = &mut self.contenders[index];
        contender.backoff = None;
        let mpdus = contender.aggregate(self.constants.mpdus_max);
        let (phase, phase_until) = if contender.failures >= self.constants.request_after_failures {
            (Phase::Request, now + REQUEST)
        } else {
            (Phase::Data, now + contender.air_time(mpdus))
        };
        let mut is_spoiled = self.sources.iter().any(|source| source.bursting_until.is_some());
        for other in self.contenders.iter_mut().filter_map(|other| other.sending.as_mut()) {
            is_spoiled |= other.phase != Phase::Silence;
            other.is_spoiled |= other.is_vulnerable();
        }
        self.contenders[index].sending =
            Some(Ppdu { mpdus, phase, phase_until, is_known_to_all: false, is_spoiled });
        for listener in 0..self.contenders.len() {
            if self.hears(listener, index) {
                self.sense(listener);
            }
        }
    }

    /// Ends a part of an exchange. The receiver's answer reaches stations that did not hear the sender.
    fn go_on(&mut self, index: usize) {
        let now = self.now;
        let contender = &mut self.contenders[index];
        let Some(mut ppdu) = contender.sending.take() else { return };
        (ppdu.phase, ppdu.phase_until) = match ppdu.phase {
            Phase::Request if ppdu.is_spoiled => (Phase::Silence, now + LEAVE),
            Phase::Request => (Phase::Data, now + LEAVE + SIFS + contender.air_time(ppdu.mpdus)),
            _ if ppdu.is_spoiled => (Phase::Silence, now + SIFS + BLOCK_ACK),
            _ => (Phase::Answer, now + SIFS + BLOCK_ACK),
        };
        let news = ppdu.phase != Phase::Silence && !ppdu.is_known_to_all;
        ppdu.is_known_to_all |= news;
        contender.sending = Some(ppdu);
        for listener in 0..self.contenders.len() {
            if news && listener != index && !self.hears(listener, index) {
                self.sense(listener);
            }
        }
    }

    fn end(&mut self, index: usize) -> Passed {
        let Some(ppdu) = self.contenders[index].sending.take() else {
            unreachable!("only what was begun ends")
        };
        for listener in 0..self.contenders.len() {
            if self.hears(listener, index) || (listener != index && ppdu.is_known_to_all) {
                self.hush(listener);
            }
        }
        let Constants { cw_min, cw_max, rate_rise, rate_fall, rate_mbps_min, .. } = self.constants;
        let contender = &mut self.contenders[index];
        let (mut arrived, mut dropped) = (0, 0);
        if ppdu.is_spoiled {
            contender.cw = (2 * contender.cw + 1).min(cw_max);
            contender.failures += 1;
            if contender.failures > self.constants.retries_max {
                (dropped, contender.failures, contender.cw) = (ppdu.mpdus, 0, cw_min);
            }
        } else {
            let loss = contender.station.mpdu_loss;
            arrived = (0..ppdu.mpdus).filter(|_| self.chance.unit() >= loss).count();
            (contender.failures, contender.cw) = (0, cw_min);
        }
        let factor = if arrived > 0 { rate_rise } else { rate_fall };
        let slowest = rate_mbps_min.min(contender.station.phy_mbps);
        contender.mbps = (contender.mbps * factor).clamp(slowest, contender.station.phy_mbps);
        contender.queued -= arrived + dropped;
        contender.backoff = (contender.queued > 0).then(|| self.chance.within(0..=contender.cw));
        let aifs = nanos(self.constants.aifs_us);
        contender.counts_from = (contender.sensed == 0).then_some(self.now + aifs);
        Passed { from: index, arrived, dropped }
    }

    /// A station senses one more transmission. If it is about to send within the same slot, it cannot react in time.
    fn sense(&mut self, index: usize) {
        let now = self.now;
        let contender = &mut self.contenders[index];
        contender.sensed += 1;
        if contender.expiry().is_some_and(|expiry| expiry < now + SLOT) {
            return;
        }
        if let (Some(from), Some(backoff)) = (contender.counts_from, &mut contender.backoff) {
            *backoff -= now.saturating_sub(from) / SLOT;
        }
        contender.counts_from = None;
    }

    fn hush(&mut self, index: usize) {
        let contender = &mut self.contenders[index];
        contender.sensed -= 1;
        if contender.sensed == 0 && contender.sending.is_none() {
            contender.counts_from = Some(self.now + nanos(self.constants.aifs_us));
        }
    }

    fn burst(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.bursting_until = Some(self.now + nanos(source.spec.burst_us));
        for ppdu in self.contenders.iter_mut().filter_map(|contender| contender.sending.as_mut()) {
            ppdu.is_spoiled |= ppdu.is_vulnerable();
        }
        if source.spec.is_sensed {
            for listener in 0..self.contenders.len() {
                self.sense(listener);
            }
        }
    }

    fn end_burst(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.bursting_until = None;
        source.burst_due = self.now + nanos(source.spec.gap_us);
        if source.spec.is_sensed {
            for listener in 0..self.contenders.len() {
                self.hush(listener);
            }
        }
    }

    /// Makes an interferer active or inactive. A burst on the air still ends at its time.
    fn turn(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.is_on = !source.is_on;
        let mean_ms = if source.is_on { source.spec.on_ms_mean } else { source.spec.off_ms_mean };
        source.phase_until = self.now.saturating_add(nanos(self.chance.exponential(mean_ms * 1e3)));
        source.burst_due = self.now;
    }
}

/// Converts microseconds to nanoseconds.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1e3) as u64
}
