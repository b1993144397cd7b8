//! Asks for the still of a chain's frame that was chosen for an application which cannot decode it.
//!
//! The frame is accounted for when it is chosen, and delivered when its still is there. Frames that come meanwhile wait.

use super::{Chosen, Feed, Question};
use crate::chain::is_parent;
use crate::frame::{FrameId, FrameMeta, Sequence, SkipReason};
use crate::history::{PastAnswer, PastQuery, Tier};
use crate::log::{LogReader, Record};
use crate::stills::{StillAnswer, StillQuery};
use crate::subscription::{Deliver, Delivery, Span};

/// The most frames that are remembered because they were not decoded.
const UNDECODED_MAX: usize = 16;

impl Feed {
    pub(in crate::subscription) fn poll_still(&mut self) -> Option<StillQuery> {
        let Chosen::Due(query) = self.chosen else { return None };
        self.chosen = Chosen::Open(query.frame);
        Some(query)
    }

    pub(in crate::subscription) fn handle_still(&mut self, span: Span, frame: FrameId, answer: StillAnswer) {
        if !matches!(self.chosen, Chosen::Open(asked) if asked == frame) {
            return;
        }
        self.chosen = Chosen::None;
        self.made_to = self.reader.held().end;
        match answer {
            StillAnswer::Still(still, log) => self.chosen = Chosen::Made(still, log),
            StillAnswer::NotDecoded => self.look_elsewhere(span, frame, SkipReason::NotDecoded),
            StillAnswer::Overtaken => self.tally.skip(SkipReason::EdgeBusy),
            StillAnswer::Gone => self.look_elsewhere(span, frame, SkipReason::Evicted),
        }
    }

    /// No still could be made of the chosen frame. If every frame is wanted from as far as
    /// the camera, others are asked for the frame. Otherwise the frame counts as skipped.
    fn look_elsewhere(&mut self, span: Span, frame: FrameId, why: SkipReason) {
        let wants_it = span.deliver == Deliver::Every && (!self.is_live || self.wants_all());
        let captured = self.tally.last_known().filter(|(last, _)| *last == frame).and_then(|(_, at)| at);
        let asks = wants_it && self.past_options.tier_max == Tier::Camera;
        let Some(captured) = captured.filter(|_| asks && matches!(self.question, Question::None)) else {
            if let Some(record) = self.reader.get_frame(frame).filter(|_| why == SkipReason::NotDecoded) {
                self.remember_undecoded(&record.frame.meta);
            }
            return self.tally.skip(why);
        };
        let before = frame.sequence.0.checked_sub(1);
        self.question = Question::Due(PastQuery {
            after: before.map(|sequence| FrameId { sequence: Sequence(sequence), ..frame }),
            before: Some(frame.next()),
            begin: captured,
            end: captured,
            newest: false,
            tier_max: Tier::Camera,
            quality: self.past_options.quality,
        });
        self.chosen = Chosen::Elsewhere(frame, why);
    }

    /// Takes in the answer of others about the chosen frame. False if the answer is to another question.
    pub(super) fn handle_found_elsewhere(&mut self, answer: &PastAnswer) -> bool {
        let Chosen::Elsewhere(frame, why) = self.chosen else { return false };
        let is_it = |meta: &FrameMeta| meta.id == frame && !meta.encoding.is_chained();
        self.chosen = match &answer.record {
            Some(record) if is_it(&record.frame.meta) => Chosen::Made(Box::new(record.clone()), None),
            _ => {
                self.tally.skip_unheld(why, answer.unanswered);
                Chosen::None
            }
        };
        true
    }

    /// Whether the still of a chosen frame is awaited.
    pub(super) fn waits_for_still(&self) -> bool {
        matches!(self.chosen, Chosen::Due(_) | Chosen::Open(_))
    }

    /// The still of the frame that was chosen, if it is there.
    pub(super) fn take_still(&mut self) -> Option<Delivery> {
        if !matches!(self.chosen, Chosen::Made(..)) {
            return None;
        }
        let Chosen::Made(still, log) = std::mem::take(&mut self.chosen) else { return None };
        Some(self.delivery(*still, log))
    }

    /// Delivers a frame that was accounted for: as it is, or as its still once the still is there. `log`: the log that holds the frame's memory.
    pub(super) fn hand(
        &mut self,
        record: Record,
        log: Option<LogReader>,
        deliver: Deliver,
    ) -> Option<Delivery> {
        let meta = &record.frame.meta;
        if !meta.encoding.is_chained() {
            return Some(self.delivery(record, log));
        }
        if let Some(chains) = self.chains.as_mut().filter(|chains| chains.allows(meta)) {
            chains.handed(meta);
            return Some(self.delivery(record, log));
        }
        let id = meta.id;
        self.has_read(&record.frame.meta);
        // For readers of the newest frame, one failure of a decoder need not end the chain.
        if log.is_some() && deliver == Deliver::Every && self.needs_undecoded(&record.frame.meta) {
            self.tally.skip(SkipReason::NotDecoded);
            self.goes_on = true;
        } else if log.is_some() {
            let newest = self.is_live && deliver == Deliver::Newest;
            self.chosen = Chosen::Due(StillQuery { frame: id, newest });
        } else {
            // The frame is of the past, and its holder could make no still of it.
            self.tally.skip(SkipReason::NotDecoded);
            self.goes_on = true;
        }
        None
    }

    /// Whether a frame needs one that was not decoded. Then no still of it can be made either. Without this check, a slow application
    /// would pass over one frame of a broken chain for each frame that it takes of another camera.
    fn needs_undecoded(&mut self, meta: &FrameMeta) -> bool {
        let Some(parent) = self.undecoded.iter().position(|undecoded| is_parent(undecoded, meta)) else {
            return false;
        };
        // Other frames may need the same one.
        let parent = self.undecoded.remove(parent);
        self.undecoded.extend(parent);
        self.remember_undecoded(meta);
        true
    }

    fn remember_undecoded(&mut self, meta: &FrameMeta) {
        if self.undecoded.len() == UNDECODED_MAX {
            self.undecoded.pop_front();
        }
        self.undecoded.push_back(meta.clone());
    }

    /// Why a frame was passed over. `end`: one past the frame's index in memory.
    pub(super) fn passed_over(&self, record: &Record, end: u64) -> SkipReason {
        if record.is_overtaken() {
            SkipReason::LateOrLost
        } else if end <= self.made_to {
            // The frame came while the previous still was made.
            SkipReason::EdgeBusy
        } else {
            SkipReason::ApplicationBusy
        }
    }

    /// Counts the chosen frame as skipped, when nothing more is delivered.
    pub(super) fn drop_chosen(&mut self) {
        match std::mem::take(&mut self.chosen) {
            Chosen::None => {}
            Chosen::Elsewhere(_, why) => {
                self.question = Question::None;
                self.tally.skip(why);
            }
            Chosen::Due(_) | Chosen::Open(_) | Chosen::Made(..) => self.tally.skip(SkipReason::Evicted),
        }
    }
}
