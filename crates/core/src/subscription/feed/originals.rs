//! Reads the originals of the newest frames, whatever rung the contracts on their camera have.
//!
//! A frame that crosses the link as it was published is taken from memory. Otherwise the camera is asked
//! for the original of its newest frame, one at a time. The camera sends it with the capacity that the
//! contracts leave of the link. Frames that are published meanwhile are passed over and counted.

use std::time::Duration;

use super::{Feed, Question};
use crate::frame::{FrameId, SkipReason};
use crate::history::{PastAnswer, PastQuery, Tier, is_unmodified};
use crate::log::Record;
use crate::subscription::{Delivery, Span};
use crate::units::Timestamp;

/// The camera is asked again when it has given an original, when another frame has crossed
/// the link, and otherwise after this time, because a contract may want no frame to cross.
const ASKS_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Reasons that hold for a frame's original as well as for the frame that was sent.
/// Of all other frames, the original was not asked for, because the link had no room.
const OF_THE_FRAME: [SkipReason; 5] = [
    SkipReason::LinkDown,
    SkipReason::NotWanted,
    SkipReason::ApplicationBusy,
    SkipReason::Evicted,
    SkipReason::Refused,
];

impl Feed {
    /// The newest original that was not read yet. If there is none, asks the camera for one.
    pub(super) fn next_original(&mut self, span: Span, now: Timestamp) -> Option<Delivery> {
        let end = self.reader.held().end;
        if let Some(originals) = &mut self.originals {
            originals.handle_ready(end);
        }
        self.look_for_originals(span);
        let found = match std::mem::replace(&mut self.question, Question::None) {
            Question::Found(record) => Some(record),
            other => {
                self.question = other;
                None
            }
        };
        let place = self.originals.as_mut().and_then(|originals| originals.held.take());
        let held = place.and_then(|place| self.reader.get(place));
        // The application may already have got a newer frame through a question.
        let held = held.filter(|record| self.tally.last().is_none_or(|last| record.frame.meta.id > last));
        let id_of = |record: &Option<Record>| record.as_ref().map(|record| record.frame.meta.id);
        let from_memory = id_of(&held) >= id_of(&found);
        let Some(record) = (if from_memory { held } else { found }) else {
            self.ask_for_original(span, now);
            return None;
        };
        self.pass_over_before(record.frame.meta.id);
        self.account_for(&record);
        self.tally.keep_only(&OF_THE_FRAME, SkipReason::LinkBusy);
        if let Some(originals) = &mut self.originals {
            originals.handle_delivered(end);
        }
        let log = from_memory.then(|| self.reader.clone());
        self.hand(record, log, span.deliver)
    }

    /// Takes in the answer to a question for the newest original.
    pub(super) fn handle_original(&mut self, span: Span, query: PastQuery, answer: PastAnswer) {
        let found = answer.record.filter(|record| {
            let meta = &record.frame.meta;
            query.spans(meta.id)
                && is_unmodified(&meta.rung)
                && self.tally.last().is_none_or(|last| meta.id > last)
                && span.end.is_none_or(|end| meta.captured <= end)
        });
        let end = self.reader.held().end;
        if let Some(originals) = &mut self.originals {
            originals.asked_in_vain = found.is_none().then_some(end);
            originals.goes_on = found.is_some();
        }
        self.question = found.map_or(Question::None, Question::Found);
    }

    /// Counts the frames in memory up to the end as passed over, when nothing more comes.
    pub(super) fn pass_over_rest(&mut self, span: Span) {
        let held = self.reader.held();
        for index in self.live.max(held.start)..held.end {
            let Some(record) = self.reader.get(index) else { continue };
            let meta = &record.frame.meta;
            let is_wanted = span.end.is_none_or(|end| meta.captured <= end);
            if is_wanted && self.tally.last().is_none_or(|last| meta.id > last) {
                self.pass_over_one(index, &record);
            }
        }
        self.tally.keep_only(&OF_THE_FRAME, SkipReason::LinkBusy);
    }

    /// Notes the newest original among the records that have come since the last look.
    fn look_for_originals(&mut self, span: Span) {
        let held = self.reader.held();
        let Some(looked) = self.originals.as_ref().map(|originals| originals.looked) else { return };
        for index in looked.max(held.start)..held.end {
            let Some(record) = self.reader.get(index) else { continue };
            let meta = &record.frame.meta;
            let is_known = self.tally.last().is_some_and(|last| meta.id <= last) && !self.numbered_anew(meta);
            let is_wanted = span.end.is_none_or(|end| meta.captured <= end) && !record.is_overtaken();
            if let Some(originals) = &mut self.originals
                && !is_known
                && is_wanted
                && is_unmodified(&meta.rung)
            {
                originals.held = Some(index);
            }
        }
        if let Some(originals) = &mut self.originals {
            originals.looked = held.end;
        }
    }

    /// Asks the camera for the original of its newest frame, if it is likely to have one.
    fn ask_for_original(&mut self, span: Span, now: Timestamp) {
        let is_over = span.end.is_some_and(|end| end < now);
        if is_over || self.past_options.tier_max < Tier::Camera || !matches!(self.question, Question::None) {
            return;
        }
        let end = self.reader.held().end;
        let Some(originals) = &mut self.originals else { return };
        let newest = end.checked_sub(1).and_then(|newest| self.reader.get(newest));
        let newest = newest.map(|record| record.frame.meta.id);
        let after = self.tally.last().max(self.floor);
        // A newer frame has crossed that was no original.
        let has_crossed = newest > after && originals.asked_in_vain.is_none_or(|before| before < end);
        let asked = *originals.asked.get_or_insert(now);
        let goes_on = std::mem::take(&mut originals.goes_on);
        if has_crossed || goes_on || now.saturating_since(asked) >= ASKS_AGAIN_AFTER {
            originals.asked = Some(now);
            let end = span.end.unwrap_or(Timestamp::MAX);
            self.question = Question::Due(PastQuery::newest_original(after, end));
        }
    }

    /// Counts the records before this frame as passed over.
    fn pass_over_before(&mut self, next: FrameId) {
        let held = self.reader.held();
        if self.live < held.start {
            if self.tally.last().is_some_and(|last| last.epoch == next.epoch) {
                self.tally.note_evicted_some();
            }
            self.live = held.start;
        }
        while self.live < held.end {
            let Some(record) = self.reader.get(self.live) else {
                // The record was evicted between the two looks.
                self.live += 1;
                continue;
            };
            let id = record.frame.meta.id;
            if id >= next {
                break;
            }
            if self.tally.last().is_none_or(|last| id > last) {
                self.pass_over_one(self.live, &record);
            }
            self.live += 1;
        }
    }

    /// Counts a record as passed over. The application was the reason if the original was here, or if
    /// the record came while the application was busy. Otherwise the link had no room for the original.
    fn pass_over_one(&mut self, index: u64, record: &Record) {
        let meta = &record.frame.meta;
        self.account_before(record);
        self.has_read(meta);
        let was_busy = self.originals.as_ref().is_some_and(|originals| originals.busy.contains(&index));
        let is_here = is_unmodified(&meta.rung);
        self.tally.skip(if is_here || was_busy { SkipReason::ApplicationBusy } else { SkipReason::LinkBusy });
    }

    /// Accounts for the frames between the last one and an original that is delivered next. If the original's
    /// frame has crossed, or the frame behind it, that record states which frames were never sent.
    fn account_for(&mut self, original: &Record) {
        let id = original.frame.meta.id;
        let stated = self.reader.get(self.live).filter(|record| record.frame.meta.id.epoch == id.epoch);
        let skipped = stated.map_or_else(|| original.skipped.clone(), |record| record.skipped);
        self.account_before(&Record { skipped, ..original.clone() });
        self.live = self.live.max(self.reader.index_of(id.next()));
    }
}
