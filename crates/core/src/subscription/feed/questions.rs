//! Asks others for frames that a feed's memory does not hold, and takes in their answers.

use super::{Feed, Question};
use crate::frame::FrameId;
use crate::history::{PastAnswer, PastOptions, PastQuery, Tier};
use crate::log::Record;
use crate::subscription::{Deliver, Span};
use crate::units::Timestamp;

impl Feed {
    pub(in crate::subscription) fn poll_past(&mut self) -> Option<PastQuery> {
        match &mut self.question {
            Question::Due(query) => {
                let query = *query;
                self.question = Question::Open(query);
                Some(query)
            }
            Question::Verify(_, query, put) => (!std::mem::replace(put, true)).then_some(*query),
            Question::None | Question::Open(_) | Question::Found(_) => None,
        }
    }

    pub(in crate::subscription) fn handle_past(&mut self, span: Span, answer: PastAnswer) {
        let span = self.own(span);
        let query = match std::mem::replace(&mut self.question, Question::None) {
            Question::Open(query) => query,
            Question::Verify(found, query, true) => return self.verified(span, query, found, answer),
            other => {
                self.question = other;
                return;
            }
        };
        if self.handle_found_elsewhere(&answer) {
            return;
        }
        if self.originals.is_some() {
            return self.handle_original(span, query, answer);
        }
        // A question about everything after the last frame replaces earlier ones.
        let covers = query.tier_max == Tier::Camera
            && match self.tally.last() {
                Some(last) => query.after == Some(last),
                None => query.after.is_none(),
            };
        self.tally.handle_answer(&answer, covers);
        // An unexpected frame would be delivered twice, or in place of others.
        let found = answer.record.filter(|record| {
            let id = record.frame.meta.id;
            query.spans(id)
                && self.tally.last().is_none_or(|last| id > last)
                && span.end.is_none_or(|end| record.frame.meta.captured <= end)
        });
        match found {
            Some(record) => {
                // There is only one newest frame.
                self.past_is_over |= query.newest;
                if self.is_live && self.live < self.reader.held().start {
                    // Frames that memory has lost are found one by one on disk, in the same order.
                    self.live += 1;
                }
                self.question = self.found(span, query, record);
            }
            None => {
                self.asked_before = self.asked_before.max(query.before);
                if self.is_live {
                    self.tally.note_evicted(self.asked_to.saturating_sub(self.live));
                    self.live = self.live.max(self.asked_to);
                    self.asked_in_vain = true;
                }
                self.past_is_over |= !self.is_live && self.past.is_empty();
            }
        }
    }

    /// Handles the first frame of a reader, which may be far after the beginning: the camera may have lost the frames between, or
    /// published none. An answer with a frame does not say which of both is true. A question about the time before the frame does.
    fn found(&self, span: Span, query: PastQuery, record: Record) -> Question {
        let id = record.frame.meta.id;
        // A reader that asks for everything begins at no particular time.
        let begin = span.begin.filter(|begin| *begin > Timestamp::MIN);
        let is_first =
            self.tally.last().is_none() && begin.is_some_and(|begin| begin < record.frame.meta.captured);
        let asks = query.tier_max == Tier::Camera && !query.newest && query.after.is_none();
        if is_first && asks && !self.tally.knows_camera() && !self.follows(span, id) {
            return Question::Verify(record, PastQuery { before: Some(id), ..query }, false);
        }
        Question::Found(record)
    }

    fn verified(&mut self, span: Span, query: PastQuery, found: Record, answer: PastAnswer) {
        // The camera was asked again just after it had given the frame.
        let unanswered = answer.unanswered.filter(|_| answer.camera_holds_from.is_none());
        self.tally.handle_answer(&PastAnswer { unanswered, broken: false, ..answer.clone() }, true);
        let earlier = answer.record.filter(|record| record.frame.meta.id < found.frame.meta.id);
        // An earlier frame has been found meanwhile: ask about the time before that frame.
        self.question = match earlier {
            Some(earlier) => self.found(span, query, earlier),
            None => Question::Found(found),
        };
    }

    /// Whether memory shows that the frame before this one was captured before the beginning.
    pub(super) fn follows(&self, span: Span, id: FrameId) -> bool {
        let before = self.reader.index_of(id).checked_sub(1).and_then(|before| self.reader.get(before));
        before.is_some_and(|before| {
            let meta = &before.frame.meta;
            meta.id.next() == id && span.begin.is_some_and(|begin| meta.captured < begin)
        })
    }

    /// Asks for frames that may lie between the last frame and the requested end, once the end has come. False if there is nothing to ask.
    pub(in crate::subscription) fn ask_for_rest(&mut self, span: Span) -> bool {
        let span = self.own(span);
        if !self.past_options.fill
            || self.tally.last().is_none() && span.begin.is_none()
            || self.asked_for_rest
        {
            return false;
        }
        self.asked_for_rest = true;
        self.ask(span, None);
        true
    }

    /// Whether the reading must not end before an answer that may still come. It
    /// does not wait for an original, because the link may have no room for it.
    pub(in crate::subscription) fn waits_for_past(&self) -> bool {
        self.originals.is_none() && !matches!(self.question, Question::None) || self.waits_for_still()
    }

    pub(super) fn ask(&mut self, span: Span, before: Option<FrameId>) {
        // Without a first frame of the present, its beginning in time must do. Before the first frame, that
        // is the requested beginning.
        let is_first =
            self.tally.last().is_none() && self.begin.is_some() && self.past_options.tier_max == Tier::Camera;
        let asks_all = !self.is_live || is_first || self.wants_all();
        let whenever = self.is_live && self.begun && self.newest_before.is_some() && !is_first;
        let begin = span.begin.filter(|_| !whenever);
        let present = self.newest_before.max(self.floor).filter(|_| self.is_live && !is_first);
        let floor = self.floor.filter(|_| !self.is_live);
        // A reader that wants smaller frames may have no right to originals, not even of present frames that it missed.
        let asks_smaller = asks_all && !self.past_options.wants_originals();
        self.question = Question::Due(PastQuery {
            after: self.tally.last().max(floor).max(present),
            before,
            begin: begin.unwrap_or(Timestamp::MIN),
            end: span.end.unwrap_or(Timestamp::MAX),
            newest: span.deliver == Deliver::Newest,
            tier_max: if asks_all { self.past_options.tier_max } else { Tier::Disk },
            quality: self.past_options.quality.filter(|_| !self.is_live || asks_smaller),
        });
    }

    /// Whether others may hold a frame between the last one and the one at `index`.
    fn may_lack_before(&self, index: u64, record: &Record, span: Span) -> bool {
        let id = record.frame.meta.id;
        if self.past_options.tier_max == Tier::Memory
            || span.deliver == Deliver::Newest
            || self.asked_before.is_some_and(|asked| id <= asked)
        {
            return false;
        }
        let before = index.checked_sub(1).and_then(|before| self.reader.get(before));
        let before = before.map(|record| record.frame.meta);
        // The record just before it in memory is before the span or was read, so nothing was evicted between.
        let reaches = before.as_ref().filter(|before| match self.tally.last() {
            Some(last) => before.id <= last,
            None => span.begin.is_none_or(|begin| before.captured < begin),
        });
        match (self.past_options.tier_max, reaches) {
            (_, None) => true,
            (Tier::Camera, Some(before)) => {
                self.tally.last().unwrap_or(before.id).max(before.id).next() != id
            }
            (_, Some(_)) => false,
        }
    }

    /// The frame before which to ask, if the one at `index` may not be the next one, or does not have the
    /// wanted quality.
    pub(super) fn to_ask_before(&self, index: u64, record: &Record, span: Span) -> Option<FrameId> {
        let id = record.frame.meta.id;
        let PastOptions { tier_max, quality, .. } = self.past_options;
        let at_hand = quality.is_none()
            || tier_max < Tier::Camera
            || span.deliver == Deliver::Newest
            || self.asked_before.is_some_and(|asked| id < asked)
            || PastQuery { quality, ..PastQuery::EVERY }.is_served_by(&record.frame.meta);
        if !at_hand {
            // Ask for the frame itself too.
            return Some(id.next());
        }
        self.may_lack_before(index, record, span).then_some(id)
    }

    /// Whether memory holds this broker's whole log between the last frame and the present.
    pub(super) fn memory_reaches_present(&self) -> bool {
        let newest = self.live.checked_sub(1).and_then(|newest| self.reader.get(newest));
        newest.is_some_and(|newest| self.tally.last().is_some_and(|last| newest.frame.meta.id <= last))
    }
}
