//! Frames of the past that the edge asks for: one at a time, behind live frames, with a bounded share of the link.

use std::collections::VecDeque;
use std::time::Duration;

use super::link::Link;
use super::{CameraBroker, CameraOutput};
use crate::broker::LinkId;
use crate::frame::Rung;
use crate::history::PastAnswer;
use crate::log::Record;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, HistoryCode, HistoryEnd, HistoryRequest, Message};

/// Questions for the past that may wait at a camera; one more is answered with [`HistoryCode::Busy`].
pub const HISTORY_REQUESTS_MAX: usize = 16;
/// The part of the time for which frames of the past may use the link, beside live ones. Default a quarter.
pub const HISTORY_SHARE: f64 = 0.25;

/// What is being done about the oldest question.
enum Stage {
    /// The log is being looked at.
    Reading,
    /// It was found, and waits for the link to have nothing better to do.
    Ready(Box<Record>),
    /// It was given to the link at this instant.
    Sending(Instant),
}

/// The edge's questions.
pub(super) struct History {
    /// The oldest first; the stage is that of the first.
    requests: VecDeque<(LinkId, HistoryRequest)>,
    stage: Option<Stage>,
    /// Counts what was looked for: an answer may come when nobody waits for it any more.
    ticket: u64,
    /// Before this, frames of the past would take more than their share.
    rests_until: Instant,
}

impl History {
    pub(super) fn new(now: Instant) -> Self {
        Self { requests: VecDeque::new(), stage: None, ticket: 0, rests_until: now }
    }

    /// When a frame that waits may be sent, if nothing else keeps it.
    pub(super) fn due(&self) -> Option<Instant> {
        matches!(self.stage, Some(Stage::Ready(_))).then_some(self.rests_until)
    }
}

impl CameraBroker {
    /// What the log holds of the past that [`CameraOutput::ReadHistory`] asked for.
    pub fn handle_history(&mut self, now: Instant, ticket: u64, answer: PastAnswer) {
        let reading = matches!(self.history.stage, Some(Stage::Reading)) && self.history.ticket == ticket;
        let Some((link, _)) = self.history.requests.front().filter(|_| reading) else { return };
        let frame_bytes_max = self.links.iter().find(|known| known.id == *link).map(|l| l.frame_bytes_max);
        match answer.record {
            Some(record) if record.frame.payload.len() <= frame_bytes_max.unwrap_or(0) as usize => {
                self.history.stage = Some(Stage::Ready(Box::new(record)));
                self.pump(now);
            }
            found => {
                let code = if found.is_some() { HistoryCode::TooLarge } else { HistoryCode::None };
                self.end_history(code, answer.held_from);
            }
        }
    }

    /// The last byte of a frame of the past has left.
    pub fn handle_history_sent(&mut self, now: Instant, link: LinkId, request: u64) {
        let first = self.history.requests.front();
        let is_first = first.is_some_and(|(of, asked)| *of == link && asked.request == request);
        if let (Some(Stage::Sending(begun)), true) = (&self.history.stage, is_first) {
            let took = now.saturating_since(*begun);
            self.history.rests_until = now + self.rest_after(took);
            self.next_history();
        }
    }

    /// How long the link is left to others after it was used for so long. Where nobody wants live frames there are no others.
    fn rest_after(&self, took: Duration) -> Duration {
        if self.demand().is_none() {
            return Duration::ZERO;
        }
        took.mul_f64(1.0 / HISTORY_SHARE - 1.0)
    }

    pub(super) fn ask_history(&mut self, link: LinkId, request: HistoryRequest) {
        let refused = if request.rung != Rung::original() {
            Some(HistoryCode::Rung)
        } else if self.history.requests.len() >= HISTORY_REQUESTS_MAX {
            Some(HistoryCode::Busy)
        } else {
            None
        };
        if let Some(code) = refused {
            let end = HistoryEnd { request: request.request, code, held_from: None };
            return self.outputs.push_back(CameraOutput::Send { link, message: Message::HistoryEnd(end) });
        }
        self.history.requests.push_back((link, request));
        if self.history.stage.is_none() {
            self.begin_history();
        }
    }

    /// Whether the link has nothing better to do than to carry a frame of the past.
    pub(super) fn history_can_go(&self) -> bool {
        let wants_live = self.making.is_some() || self.waiting.is_some() && self.demand().is_some();
        let link =
            self.history.requests.front().map(|(link, _)| *link).filter(|link| self.active == Some(*link));
        let is_idle = |known: &Link| Some(known.id) == link && !known.is_sending() && !known.is_out();
        !wants_live && self.links.iter().any(is_idle)
    }

    /// Gives a frame of the past to the link, if that is free of live ones.
    pub(super) fn pump_history(&mut self, now: Instant) {
        let Some((link, asked)) = self.history.requests.front() else { return };
        let (link, request) = (*link, asked.request);
        if !self.history_can_go() || now < self.history.rests_until {
            return;
        }
        let Some(Stage::Ready(record)) = self.history.stage.take_if(|stage| matches!(stage, Stage::Ready(_)))
        else {
            return;
        };
        self.history.stage = Some(Stage::Sending(now));
        let frame = record.frame;
        let header = FrameHeader {
            payload_bytes: frame.payload.len() as u32,
            sent: now,
            expected_accuracy: None,
            infeasible: false,
            skipped: Vec::new(),
            meta: frame.meta,
            history: request,
        };
        let payload = frame.payload;
        self.outputs.push_back(CameraOutput::SendFrame { link, header: Box::new(header), payload });
    }

    /// Forgets what was asked for on a connection that is gone.
    pub(super) fn forget_history(&mut self, link: LinkId) {
        let first = self.history.requests.front().map(|(of, _)| *of);
        self.history.requests.retain(|(of, _)| *of != link);
        if first == Some(link) {
            self.history.stage = None;
            self.begin_history();
        }
    }

    fn end_history(&mut self, code: HistoryCode, held_from: Option<Timestamp>) {
        if let Some((link, asked)) = self.history.requests.front() {
            let end = HistoryEnd { request: asked.request, code, held_from };
            self.outputs.push_back(CameraOutput::Send { link: *link, message: Message::HistoryEnd(end) });
        }
        self.next_history();
    }

    fn next_history(&mut self) {
        self.history.requests.pop_front();
        self.history.stage = None;
        self.begin_history();
    }

    fn begin_history(&mut self) {
        if let Some((_, asked)) = self.history.requests.front() {
            self.history.stage = Some(Stage::Reading);
            self.history.ticket += 1;
            let (ticket, query) = (self.history.ticket, asked.query);
            self.outputs.push_back(CameraOutput::ReadHistory { ticket, query });
        }
    }
}
