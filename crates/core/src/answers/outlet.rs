//! Decides at the edge which answer goes to a camera next, and counts all others.

use std::collections::VecDeque;
use std::time::Duration;

use super::downlink::{Downlink, TELLING_BYTES_MIN};
use super::types::{MadeAnswer, OutletStep, Room};
use crate::frame::{Epoch, FrameId};
use crate::units::{ClockAnchor, Instant};
use crate::wire::{AnswerAccount, AnswerSkip, AnswerSkips};

/// The most answers that were sent in full and are not confirmed. Beyond this, the newest answer waits.
pub const UNCONFIRMED_ANSWERS_MAX: usize = 8;
/// If a camera has not confirmed an answer this long after the bound, it did not understand the answer.
const UNCONFIRMED_TIME_MAX: Duration = Duration::from_secs(1);
/// The shortest time between two accounts to a camera. Accounts have totals, so they can wait.
const TELL_INTERVAL: Duration = Duration::from_millis(100);
/// The most given-up answers whose reason is remembered. If such an answer had left in full, it is confirmed within a round trip.
const GIVEN_UP_MAX: usize = 16;
/// The share of the path's capacity until the deadline that an answer may use. The rest is for variation.
const ROOM_SHARE: f64 = 0.8;
/// The share of what the path carries between two answers that an answer may use. With more, each answer would wait for those before it.
const SUSTAINED_SHARE: f64 = 0.75;
/// An answer that arrived within this part of an interval shows that the path keeps up with answers of its size.
const KEPT_UP: f64 = 0.9;
/// The budget may be larger than the largest answer with which the path keeps up, by this factor.
const GROWTH: f64 = 1.1;
/// A confirmation that has been absent for this long, beyond the usual time, limits the rate.
const ABSENT_MIN: Duration = Duration::from_millis(20);
/// Longer times to carry an answer count as this.
const CARRIED_MAX: Duration = Duration::from_secs(10);
/// How many intervals between answers, and times of confirmations, are remembered.
const REMEMBERED_MAX: usize = 8;
/// A longer interval counts as this: it was a pause.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// How many intervals are needed before they count.
const INTERVALS_MIN: usize = 3;
/// An answer may always have this many bytes: with fewer, it would be no picture.
const ROOM_BYTES_MIN: u32 = 2 << 10;

/// The answers to the frames of one camera, on their way from the edge to the camera.
///
/// The newest answer wins: at most one waits, and at most one has unsent bytes. An answer also waits while those ahead of it
/// would make it too late. An answer is given up once it is older than the publisher's bound, or once it is known to become
/// too old while a newer answer waits.
#[derive(Debug, Default)]
pub struct Outlet {
    /// The start of the camera whose answers are counted.
    start: Option<(Epoch, ClockAnchor)>,
    /// The number of the account.
    since: u64,
    /// How old an answer may be. `None`: the publisher takes no answers.
    bound: Option<Duration>,
    /// The newest answered frame.
    newest: Option<FrameId>,
    waiting: Option<MadeAnswer>,
    /// The answer that has unsent bytes.
    sending: Option<OnItsWay>,
    /// Answers that were sent in full, oldest first.
    unconfirmed: VecDeque<OnItsWay>,
    /// Answers that were given up but may still be confirmed, with the reason, oldest first.
    given_up: VecDeque<(FrameId, AnswerSkip)>,
    answered: u64,
    confirmed: u64,
    skipped: AnswerSkips,
    /// The last account that was sent on this connection, and when. `None`: the camera has not asked.
    told: Option<(Instant, AnswerSkips)>,
    downlink: Downlink,
    /// The least time that the path to the camera takes.
    path: Duration,
    /// The age of the last answer's frame when the answer was given.
    age: Option<Duration>,
    /// When the newest confirmed answer had arrived.
    arrived: Option<Instant>,
    /// How long the last confirmations took to come back.
    returned: VecDeque<Duration>,
    /// The bytes of the largest recent answer with which the path kept up.
    kept_up: u64,
    /// When an application last gave an answer.
    given: Option<Instant>,
    /// The last intervals between answers of applications.
    intervals: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct OnItsWay {
    frame: FrameId,
    /// When the frame was captured; if unknown, when sending began.
    captured: Instant,
    bytes: u64,
    unsent: u64,
    begun: Instant,
}

impl Outlet {
    /// A start of the camera was accepted on its connection number `attempt`. A new start begins a new account.
    pub fn handle_taken_in(&mut self, start: (Epoch, ClockAnchor), attempt: u64) {
        debug_assert!(self.waiting.is_none() && self.on_its_way() == 0, "an older connection is still there");
        if self.start != Some(start) {
            *self = Self { start: Some(start), since: attempt, ..Self::default() };
        }
    }

    /// The camera tells whether its publisher takes answers, and how old they may be.
    pub fn handle_request(&mut self, now: Instant, bound: Option<Duration>) -> Vec<OutletStep> {
        self.bound = bound;
        let mut steps = Vec::new();
        if bound.is_none() {
            if self.waiting.take().is_some() {
                self.skipped.add(AnswerSkip::NotWanted, 1);
            }
            steps.extend(self.give_up(AnswerSkip::NotWanted));
        }
        self.told = Some((now, self.skipped));
        steps.push(self.account());
        steps.extend(self.pump(now));
        steps
    }

    /// An application has made an answer. `path`: the least time that the path to the camera takes.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        answer: MadeAnswer,
        path: Duration,
    ) -> (Room, Vec<OutletStep>) {
        (self.path, self.age) = (path, answer.captured.map(|captured| now.saturating_since(captured)));
        self.answered += 1;
        let frame = answer.frame();
        let why_not = match self.newest {
            _ if self.bound.is_none() => Some(AnswerSkip::NotWanted),
            Some(newest) if newest == frame => Some(AnswerSkip::Repeated),
            Some(newest) if newest > frame => Some(AnswerSkip::Overtaken),
            _ => None,
        };
        if let Some(reason) = why_not {
            self.skipped.add(reason, 1);
        } else {
            self.newest = Some(frame);
            self.note_given(now);
            if self.waiting.replace(answer).is_some() {
                self.skipped.add(AnswerSkip::Replaced, 1);
            }
        }
        let steps = self.pump(now);
        (self.room(now), steps)
    }

    /// An application itself replaced `count` answers by newer ones.
    pub fn handle_replaced(&mut self, count: u32) {
        self.answered += u64::from(count);
        self.skipped.add(AnswerSkip::Replaced, u64::from(count));
    }

    /// An application has made an answer to a frame that the edge no longer holds.
    pub fn handle_gone(&mut self, now: Instant) -> (Room, Vec<OutletStep>) {
        self.answered += 1;
        self.skipped.add(if self.bound.is_some() { AnswerSkip::Late } else { AnswerSkip::NotWanted }, 1);
        let steps = self.pump(now);
        (self.room(now), steps)
    }

    /// The last byte of an answer has left.
    pub fn handle_sent(&mut self, now: Instant, frame: FrameId) -> Vec<OutletStep> {
        self.unconfirmed.extend(self.sending.take_if(|sending| sending.frame == frame));
        self.pump(now)
    }

    /// `bytes` of an answer have not left yet.
    pub fn handle_unsent(&mut self, now: Instant, frame: FrameId, bytes: u64) -> Vec<OutletStep> {
        if let Some(sending) = self.sending.as_mut().filter(|sending| sending.frame == frame) {
            sending.unsent = sending.unsent.min(bytes);
        }
        self.pump(now)
    }

    /// The camera has a whole answer. `arrived`: since when, by the edge's clock, if known.
    pub fn handle_confirmed(
        &mut self,
        now: Instant,
        frame: FrameId,
        arrived: Option<Instant>,
    ) -> Vec<OutletStep> {
        let mut steps = Vec::new();
        if let Some((known, reset)) = self.take(frame) {
            self.confirmed += 1;
            steps.extend(reset);
            let arrived = arrived.unwrap_or(now).min(now);
            self.arrived = self.arrived.max(Some(arrived));
            if self.returned.len() == REMEMBERED_MAX {
                self.returned.pop_front();
            }
            self.returned.push_back(now.saturating_since(arrived));
            let took = arrived.saturating_since(known.begun);
            let keeps_up =
                self.interval().is_some_and(|interval| took <= self.path + interval.mul_f64(KEPT_UP));
            // Larger ones are forgotten slowly.
            let faded = self.kept_up - self.kept_up / REMEMBERED_MAX as u64;
            self.kept_up = if keeps_up { faded.max(known.bytes) } else { faded };
            self.downlink.note(now, known.bytes, took.saturating_sub(self.path));
        } else if let Some(place) = self.given_up.iter().position(|(known, _)| *known == frame)
            && let Some((_, reason)) = self.given_up.remove(place)
        {
            // The whole answer had left before it was given up.
            self.skipped.remove(reason);
            self.confirmed += 1;
        }
        steps.extend(self.pump(now));
        steps
    }

    /// The camera refuses an answer.
    pub fn handle_refused(&mut self, now: Instant, frame: FrameId) -> Vec<OutletStep> {
        let mut steps = Vec::new();
        if let Some((_, reset)) = self.take(frame) {
            self.skipped.add(AnswerSkip::Refused, 1);
            steps.extend(reset);
        }
        steps.extend(self.pump(now));
        steps
    }

    /// The connection has ended. The camera asks again on the next one.
    pub fn handle_closed(&mut self) {
        let cut = u64::from(self.waiting.take().is_some()) + u64::from(self.sending.take().is_some());
        self.skipped.add(AnswerSkip::LinkLost, cut);
        self.skipped.add(AnswerSkip::Unconfirmed, self.unconfirmed.drain(..).len() as u64);
        self.given_up.clear();
        self.downlink.clear();
        (self.arrived, self.kept_up) = (None, 0);
        self.returned.clear();
        (self.bound, self.told) = (None, None);
        self.assert_counted();
    }

    /// Handles the instant of [`Outlet::due`]. It may be called at any time.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<OutletStep> {
        self.pump(now)
    }

    /// When an answer becomes too old, or the camera is due an account.
    pub fn due(&self) -> Option<Instant> {
        let waiting = self.waiting.as_ref().and_then(|answer| answer.captured);
        let sending = self.sending.map(|sending| sending.captured);
        let old = waiting.into_iter().chain(sending).filter_map(|captured| self.deadline(captured));
        old.chain(self.given_up_at()).chain(self.tell_at()).min()
    }

    /// When the oldest unconfirmed answer is given up.
    fn given_up_at(&self) -> Option<Instant> {
        Some(self.unconfirmed.front()?.begun + self.bound? + UNCONFIRMED_TIME_MAX)
    }

    /// When the camera gets the next account, if the counts have changed.
    fn tell_at(&self) -> Option<Instant> {
        self.told.filter(|(_, told)| *told != self.skipped).map(|(at, _)| at + TELL_INTERVAL)
    }

    /// The numbers of answers that applications gave, that the camera confirmed, and that were skipped.
    pub const fn counts(&self) -> (u64, u64, AnswerSkips) {
        (self.answered, self.confirmed, self.skipped)
    }

    /// Answers that wait, are being sent, or are not confirmed.
    pub fn on_its_way(&self) -> u64 {
        let ahead = u64::from(self.waiting.is_some()) + u64::from(self.sending.is_some());
        ahead + self.unconfirmed.len() as u64
    }

    /// What an application may send next.
    fn room(&self, now: Instant) -> Room {
        let bytes = || {
            let rate = self.rate(now)?;
            let interval = self.interval();
            // How long the path still carries earlier answers when the next one is given.
            let ahead = interval.map(|interval| self.free_at(rate).saturating_since(now + interval));
            let left = self.bound?.saturating_sub(self.age? + self.path + ahead.unwrap_or_default());
            let carried = rate * left.as_secs_f64() * ROOM_SHARE;
            let sustained = interval.map(|interval| {
                let share = rate * interval.as_secs_f64() * SUSTAINED_SHARE;
                // The rate of small answers contains the delays of the path. So the budget may grow beyond it while the path keeps up.
                share.max(self.kept_up as f64 * GROWTH)
            });
            Some((carried.min(sustained.unwrap_or(f64::INFINITY)) as u32).max(ROOM_BYTES_MIN))
        };
        Room { bound: self.bound, bytes: bytes() }
    }

    /// How many bytes the path carries per second: what the last answers say, and at most what the absence of the oldest confirmation says.
    fn rate(&self, now: Instant) -> Option<f64> {
        let at_most = || {
            let oldest = self.unconfirmed.front().filter(|oldest| oldest.bytes >= TELLING_BYTES_MIN)?;
            let begun = self.arrived.map_or(oldest.begun, |arrived| arrived.max(oldest.begun));
            // Confirmations may wait behind the camera's frames.
            let back = self.returned.iter().max().copied().unwrap_or(self.path);
            let took = now.saturating_since(begun).checked_sub(self.path + back)?;
            (took >= ABSENT_MIN).then(|| oldest.bytes as f64 / took.as_secs_f64())
        };
        let known = self.downlink.rate(now);
        known.into_iter().chain(at_most()).reduce(f64::min)
    }

    /// When the path has carried what was given to it, at this rate.
    fn free_at(&self, rate: f64) -> Instant {
        let carry = |free: Instant, sent: &OnItsWay| free.max(sent.begun) + carried_in(sent.bytes, rate);
        self.unconfirmed.iter().chain(&self.sending).fold(Instant::ZERO, carry)
    }

    /// Whether to send this answer now. If the answers ahead of it would make it late, it waits: a newer one may take its place, and the path
    /// carries what it has.
    fn may_go(&self, now: Instant, answer: &MadeAnswer) -> bool {
        let is_held = || {
            let (rate, captured) = (self.rate(now)?, answer.captured?);
            let free = self.free_at(rate);
            // If nothing is ahead of it, waiting does not help.
            Some(
                free > now
                    && free + carried_in(answer.payload.len() as u64, rate) > self.deadline(captured)?,
            )
        };
        self.unconfirmed.is_empty() || !is_held().unwrap_or(false)
    }

    fn note_given(&mut self, now: Instant) {
        if let Some(last) = self.given.replace(now) {
            if self.intervals.len() == REMEMBERED_MAX {
                self.intervals.pop_front();
            }
            self.intervals.push_back(now.saturating_since(last).min(INTERVAL_MAX));
        }
    }

    /// The mean of the last intervals between answers. `None`: there were too few.
    fn interval(&self) -> Option<Duration> {
        let count = self.intervals.len();
        (count >= INTERVALS_MIN).then(|| self.intervals.iter().sum::<Duration>() / count as u32)
    }

    fn deadline(&self, captured: Instant) -> Option<Instant> {
        Some(captured + self.bound?)
    }

    fn is_late(&self, now: Instant, captured: Instant) -> bool {
        self.deadline(captured).is_some_and(|deadline| now >= deadline)
    }

    /// Whether the answer that is being sent will be too old before its last byte has left.
    fn will_be_late(&self, now: Instant, sending: &OnItsWay) -> bool {
        let left = || {
            let deadline = self.deadline(sending.captured)?;
            Some(now + carried_in(sending.unsent, self.rate(now)?) > deadline)
        };
        left().unwrap_or(false)
    }

    /// Gives up answers that are too old, sends the newest one if the path is free, and sends an account if it is due.
    fn pump(&mut self, now: Instant) -> Vec<OutletStep> {
        let mut steps = Vec::new();
        if let Some(sending) = self.sending {
            let is_late = self.is_late(now, sending.captured);
            if is_late || self.waiting.is_some() && self.will_be_late(now, &sending) {
                // It is never confirmed, but what has left of it measures the path.
                self.downlink.note_left(
                    now,
                    sending.bytes - sending.unsent,
                    now.saturating_since(sending.begun),
                );
                steps.extend(self.give_up(if is_late { AnswerSkip::Late } else { AnswerSkip::Replaced }));
            }
        }
        let waiting = self.waiting.as_ref().and_then(|answer| answer.captured);
        if waiting.is_some_and(|captured| self.is_late(now, captured)) {
            self.waiting = None;
            self.skipped.add(AnswerSkip::Late, 1);
        }
        while self.given_up_at().is_some_and(|at| now >= at)
            && let Some(lost) = self.unconfirmed.pop_front()
        {
            self.note_given_up(lost.frame, AnswerSkip::Unconfirmed);
        }
        if self.sending.is_none()
            && self.unconfirmed.len() < UNCONFIRMED_ANSWERS_MAX
            && self.waiting.as_ref().is_some_and(|answer| self.may_go(now, answer))
            && let Some(mut answer) = self.waiting.take()
        {
            let (frame, bytes) = (answer.frame(), answer.payload.len() as u64);
            answer.header.sent = now;
            let captured = answer.captured.unwrap_or(now);
            self.sending = Some(OnItsWay { frame, captured, bytes, unsent: bytes, begun: now });
            steps.push(OutletStep::Send(answer));
        }
        if self.tell_at().is_some_and(|at| now >= at) {
            self.told = Some((now, self.skipped));
            steps.push(self.account());
        }
        self.assert_counted();
        steps
    }

    /// Gives up the answer that is being sent.
    fn give_up(&mut self, reason: AnswerSkip) -> Option<OutletStep> {
        let sending = self.sending.take()?;
        self.note_given_up(sending.frame, reason);
        Some(OutletStep::Reset(sending.frame))
    }

    /// Counts an answer as skipped. It may have arrived all the same.
    fn note_given_up(&mut self, frame: FrameId, reason: AnswerSkip) {
        self.skipped.add(reason, 1);
        if self.given_up.len() == GIVEN_UP_MAX {
            self.given_up.pop_front();
        }
        self.given_up.push_back((frame, reason));
    }

    /// Removes an answer that is being sent or is unconfirmed. The camera may confirm or refuse an answer before
    /// its last byte is reported to have left. Its stream is then reset, so that the rest does not stay in memory.
    fn take(&mut self, frame: FrameId) -> Option<(OnItsWay, Option<OutletStep>)> {
        if let Some(place) = self.unconfirmed.iter().position(|known| known.frame == frame) {
            return self.unconfirmed.remove(place).map(|known| (known, None));
        }
        let sending = self.sending.take_if(|sending| sending.frame == frame)?;
        Some((sending, Some(OutletStep::Reset(frame))))
    }

    fn account(&self) -> OutletStep {
        let Self { since, answered, skipped, .. } = *self;
        OutletStep::Tell(AnswerAccount { since, answered, skipped })
    }

    fn assert_counted(&self) {
        debug_assert_eq!(
            self.answered,
            self.confirmed + self.skipped.total() + self.on_its_way(),
            "an answer is counted twice, or not at all"
        );
    }
}

/// How long the path carries this many bytes.
fn carried_in(bytes: u64, rate: f64) -> Duration {
    Duration::try_from_secs_f64(bytes as f64 / rate).map_or(CARRIED_MAX, |time| time.min(CARRIED_MAX))
}
