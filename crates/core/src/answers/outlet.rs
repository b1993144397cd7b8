//! Decides at the edge which answer goes to a camera next, and counts all others.

use std::collections::VecDeque;
use std::time::Duration;

use super::downlink::Downlink;
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
/// An answer may always have this many bytes: with fewer, it would be no picture.
const ROOM_BYTES_MIN: u32 = 2 << 10;

/// The answers to the frames of one camera, on their way from the edge to the camera.
///
/// The newest answer wins: at most one waits, and at most one has unsent bytes. An answer is given up once
/// it is older than the publisher's bound, or once it is known to become too old while a newer answer waits.
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
            let took = arrived.unwrap_or(now).min(now).saturating_since(known.begun);
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
            let left = self.bound?.saturating_sub(self.age? + self.path);
            let carried = self.downlink.rate(now)? * left.as_secs_f64() * ROOM_SHARE;
            Some((carried as u32).max(ROOM_BYTES_MIN))
        };
        Room { bound: self.bound, bytes: bytes() }
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
            let needs = Duration::try_from_secs_f64(sending.unsent as f64 / self.downlink.rate(now)?).ok()?;
            Some(now + needs > deadline)
        };
        left().unwrap_or(false)
    }

    /// Gives up answers that are too old, sends the newest one if the path is free, and sends an account if it is due.
    fn pump(&mut self, now: Instant) -> Vec<OutletStep> {
        let mut steps = Vec::new();
        if let Some(sending) = self.sending {
            if self.is_late(now, sending.captured) {
                steps.extend(self.give_up(AnswerSkip::Late));
            } else if self.waiting.is_some() && self.will_be_late(now, &sending) {
                steps.extend(self.give_up(AnswerSkip::Replaced));
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
