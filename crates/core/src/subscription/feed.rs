//! A subscription's place in one log: the past from wherever it is held, then the present from memory.

use std::collections::VecDeque;
use std::ops::Range;

use super::chains::{ChainPlace, Look, Stills};
use super::{Deliver, Delivery, NotHeld, Span};
use crate::frame::{FrameId, Sequence, SkipCounts, SkipReason};
use crate::history::{PastAnswer, PastQuery, PastWish, Reach};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::units::Timestamp;

/// A question to those who hold what memory does not.
enum Question {
    /// There is none.
    None,
    /// To be put.
    Due(PastQuery),
    /// Put; the answer is to come.
    Open(PastQuery),
    /// Answered with a frame, which comes next.
    Found(Record),
}

/// What there is for an application that decodes chains itself.
enum AsCame {
    /// A frame as it came.
    Frame(Record),
    /// Nothing new.
    Nothing,
    /// A still, if there is one.
    Still,
}

pub(super) struct Feed {
    pub(super) camera: CameraName,
    reader: LogReader,
    /// Its place among frames as they came, where the application decodes chains itself.
    pub(super) chains: Option<ChainPlace>,
    past_wish: PastWish,
    /// Indices of the past still to be read, in order.
    past: VecDeque<Range<u64>>,
    /// The next index of the present.
    live: u64,
    /// The newest frame when reading began. What comes after it is the present, which is wanted whatever its capture time.
    newest_before: Option<FrameId>,
    /// The present is being read.
    is_live: bool,
    /// What comes after the past that memory holds, up to the present, was asked for.
    past_is_over: bool,
    question: Question,
    /// The last frame that was found elsewhere.
    elsewhere: Option<FrameId>,
    /// Before this frame there is nothing elsewhere.
    asked_before: Option<FrameId>,
    /// Up to this index the question was for what memory has lost of the present.
    asked_to: u64,
    /// Nobody had what memory has lost of the present, and no frame has come since. Asking once more before one does would take as
    /// long again, in which memory may lose as much: an application that is slow enough would get nothing for ever.
    asked_in_vain: bool,
    /// A frame captured at or after the beginning was seen.
    begun: bool,
    /// The last frame that was delivered or skipped.
    last: Option<FrameId>,
    /// Frames up to this one lie outside of what was asked for.
    floor: Option<FrameId>,
    /// A frame captured after the end was seen.
    saw_end: bool,
    /// Records that were evicted before they were read, since `last`.
    evicted: u64,
    /// Frames since `last` were held once and cannot be read.
    broken: bool,
    pub(super) skipped: SkipCounts,
    pub(super) not_held: Option<NotHeld>,
}

impl Feed {
    pub(super) fn new(
        camera: CameraName,
        reader: LogReader,
        present: u64,
        (span, wish): (Span, PastWish),
    ) -> Self {
        let newest = present.checked_sub(1).and_then(|newest| reader.get(newest));
        let newest_before = newest.map(|record| record.frame.meta.id);
        let mut feed = Self {
            camera,
            newest_before,
            chains: None,
            past_wish: PastWish {
                reach: if span.begin.is_some() { wish.reach } else { wish.reach.min(Reach::Disk) },
                ..wish
            },
            past: VecDeque::new(),
            live: present,
            is_live: span.begin.is_none(),
            past_is_over: false,
            question: Question::None,
            elsewhere: None,
            asked_before: None,
            asked_to: 0,
            asked_in_vain: false,
            begun: false,
            last: None,
            floor: None,
            saw_end: false,
            evicted: 0,
            broken: false,
            skipped: SkipCounts::default(),
            not_held: None,
            reader,
        };
        if let Some(begin) = span.begin {
            let end = span.end.unwrap_or(Timestamp::MAX);
            feed.past = feed.past_in_memory(span);
            let held_from = feed.reader.held_from().unwrap_or(end).min(end);
            // Where the newest frame of memory is enough, nobody is asked how far back others reach.
            let known = feed.past_wish.reach == Reach::Memory
                || span.deliver == Deliver::Every
                || feed.past.is_empty();
            feed.not_held = (known && begin < held_from).then_some(NotHeld { begin, end: held_from });
        } else {
            feed.floor = newest_before;
        }
        feed
    }

    pub(super) fn next(&mut self, span: Span, begun: bool) -> Option<Delivery> {
        self.begun |= begun;
        // Frames of the past are stills, and so is what is asked of others.
        let may = self.is_live && !self.waits_for_past();
        if let Some(mut chains) = self.chains.take_if(|_| may) {
            let came = self.next_as_came(&mut chains, span);
            self.chains = Some(chains);
            match came {
                AsCame::Frame(record) => {
                    let log = self.chains.as_ref().map(|chains| chains.log.clone());
                    return Some(self.delivery(record, log));
                }
                AsCame::Nothing => return None,
                AsCame::Still => {}
            }
        }
        let mut newest: Option<Record> = None;
        while let Some(record) = self.step(span) {
            if newest.as_ref().is_some_and(|newest| record.frame.meta.id <= newest.frame.meta.id) {
                // It was found elsewhere, and has crossed live meanwhile.
                continue;
            }
            if let Some(skipped) = newest.replace(record) {
                self.skipped.add(SkipReason::ApplicationBusy, 1);
                self.last = Some(skipped.frame.meta.id);
            }
            let record = newest.as_ref().expect("just put there");
            self.account_before(record);
            if span.deliver == Deliver::Every {
                break;
            }
        }
        let record = newest?;
        let log = (self.elsewhere != Some(record.frame.meta.id)).then(|| self.reader.clone());
        Some(self.delivery(record, log))
    }

    fn delivery(&mut self, record: Record, log: Option<LogReader>) -> Delivery {
        self.last = Some(record.frame.meta.id);
        Delivery {
            camera: self.camera.clone(),
            record,
            skipped: std::mem::take(&mut self.skipped),
            not_held: self.not_held.take(),
            log,
        }
    }

    // ---- frames as they came ------------------------------------------------------------------------------

    /// Whether chains may be read here: of the past there are stills only.
    pub(super) fn takes_chains(&self) -> bool {
        self.is_live
    }

    /// The next frame as it came, with the account of those before it.
    fn next_as_came(&mut self, chains: &mut ChainPlace, span: Span) -> AsCame {
        let after = self.last.max(self.floor);
        let next = after.map_or(self.live, |after| self.reader.index_of(after.next()));
        let id_of = |record: Record| record.frame.meta.id;
        let stills =
            Stills { next: self.reader.get(next).map(id_of), newest: self.reader.newest().map(id_of) };
        let (from, to, enters) = match chains.look(after, stills, span.deliver) {
            Look::Frame { from, to, enters } => (from, to, enters),
            Look::Nothing => return AsCame::Nothing,
            Look::Still => return AsCame::Still,
        };
        let Some(record) = chains.log.get(to) else {
            // Evicted between the two looks.
            chains.leave();
            return AsCame::Still;
        };
        let (id, captured) = (record.frame.meta.id, record.frame.meta.captured);
        if span.end.is_some_and(|end| captured > end) {
            // Outside of a chain, stills of frames before it may be on their way.
            self.saw_end |= !enters;
            return if enters { AsCame::Still } else { AsCame::Nothing };
        }
        // Between this and the last delivery more has come than is held.
        let is_lapped = enters && from > 0 && from <= chains.log.held().start;
        if is_lapped && self.last.is_some_and(|last| last.epoch == id.epoch) {
            self.evicted = self.evicted.max(1);
        }
        for passed in (from..to).filter_map(|index| chains.log.get(index)) {
            self.account_before(&passed);
            self.last = Some(passed.frame.meta.id);
            // Who comes from stills could have had none of a frame that the edge was still decoding.
            let had_none = enters && stills.newest < self.last;
            let reason = if had_none { SkipReason::EdgeBusy } else { SkipReason::ApplicationBusy };
            self.skipped.add(reason, 1);
        }
        chains.handed(to, &record.frame.meta);
        self.account_before(&record);
        // Stills of what was delivered, or passed over, are not looked at any more.
        self.live = self.live.max(self.reader.index_of(id.next()));
        AsCame::Frame(record)
    }

    // ---- questions ----------------------------------------------------------------------------------------

    pub(super) fn poll_past(&mut self) -> Option<PastQuery> {
        let Question::Due(query) = self.question else { return None };
        self.question = Question::Open(query);
        Some(query)
    }

    pub(super) fn handle_past(&mut self, span: Span, answer: PastAnswer) {
        let Question::Open(query) = self.question else { return };
        self.question = Question::None;
        self.broken |= answer.broken;
        if let Some(not_held) = &mut self.not_held
            && let Some(held_from) = answer.held_from
        {
            not_held.end = not_held.end.min(held_from);
            if not_held.end <= not_held.begin {
                self.not_held = None;
            }
        }
        // An answer out of its place would come twice, or in the place of others.
        let found = answer.record.filter(|record| {
            let id = record.frame.meta.id;
            query.spans(id)
                && self.last.is_none_or(|last| id > last)
                && span.end.is_none_or(|end| record.frame.meta.captured <= end)
        });
        match found {
            Some(record) => {
                // There is but one newest frame.
                self.past_is_over |= query.newest;
                if self.is_live && self.live < self.reader.held().start {
                    // What memory has lost is found one by one on disk, where it has the same order.
                    self.live += 1;
                }
                self.question = Question::Found(record);
            }
            None => {
                self.asked_before = self.asked_before.max(query.before);
                if self.is_live {
                    self.evicted += self.asked_to.saturating_sub(self.live);
                    self.live = self.live.max(self.asked_to);
                    self.asked_in_vain = true;
                }
                self.past_is_over |= !self.is_live && self.past.is_empty();
            }
        }
    }

    pub(super) fn waits_for_past(&self) -> bool {
        !matches!(self.question, Question::None)
    }

    fn ask(&mut self, span: Span, before: Option<FrameId>) {
        // Without a frame to begin the present at, its beginning in time has to do.
        let whenever = self.is_live && self.begun && self.newest_before.is_some();
        let begin = span.begin.filter(|_| !whenever);
        let present = self.newest_before.filter(|_| self.is_live);
        self.question = Question::Due(PastQuery {
            after: self.last.max(self.floor).max(present),
            before,
            begin: begin.unwrap_or(Timestamp::MIN),
            end: span.end.unwrap_or(Timestamp::MAX),
            newest: span.deliver == Deliver::Newest,
            reach: if self.is_live { Reach::Disk } else { self.past_wish.reach },
            quality: self.past_wish.quality.filter(|_| !self.is_live),
        });
    }

    /// Whether others may hold a frame between the last one and the one at `index`.
    fn may_lack_before(&self, index: u64, record: &Record, span: Span) -> bool {
        let id = record.frame.meta.id;
        if self.past_wish.reach == Reach::Memory
            || span.deliver == Deliver::Newest
            || self.asked_before.is_some_and(|asked| id <= asked)
        {
            return false;
        }
        let before = index.checked_sub(1).and_then(|before| self.reader.get(before));
        let before = before.map(|record| record.frame.meta);
        // What comes right before it in memory lies before the span or has been read: nothing was evicted in between.
        let reaches = before.as_ref().filter(|before| match self.last {
            Some(last) => before.id <= last,
            None => span.begin.is_none_or(|begin| before.captured < begin),
        });
        match (self.past_wish.reach, reaches) {
            (_, None) => true,
            (Reach::Camera, Some(before)) => self.last.unwrap_or(before.id).max(before.id).next() != id,
            (_, Some(_)) => false,
        }
    }

    /// Before which frame is to be asked, if the one that memory holds at `index` is not the next that there may be, or not as it is wanted.
    fn to_ask_before(&self, index: u64, record: &Record, span: Span) -> Option<FrameId> {
        let id = record.frame.meta.id;
        let PastWish { reach, quality } = self.past_wish;
        let at_hand = quality.is_none()
            || reach < Reach::Camera
            || span.deliver == Deliver::Newest
            || self.asked_before.is_some_and(|asked| id < asked)
            || PastQuery { quality, ..PastQuery::EVERY }.is_served_by(&record.frame.meta);
        if !at_hand {
            // The frame itself as well.
            return Some(id.next());
        }
        self.may_lack_before(index, record, span).then_some(id)
    }

    /// Whether memory holds all of this broker's log between the last frame and the present.
    fn memory_reaches_present(&self) -> bool {
        let newest = self.live.checked_sub(1).and_then(|newest| self.reader.get(newest));
        newest.is_some_and(|newest| self.last.is_some_and(|last| newest.frame.meta.id <= last))
    }

    // ---- reading ------------------------------------------------------------------------------------------

    /// The next record of the past or the present that lies within the span; `None` also while an answer is to come.
    fn step(&mut self, span: Span) -> Option<Record> {
        match std::mem::replace(&mut self.question, Question::None) {
            Question::None => {}
            Question::Found(record) => {
                self.elsewhere = Some(record.frame.meta.id);
                return Some(record);
            }
            waiting => {
                self.question = waiting;
                return None;
            }
        }
        if !self.is_live {
            if let Some(record) = self.step_past(span) {
                return Some(record);
            }
            if self.waits_for_past() {
                return None;
            }
            self.is_live = true;
            self.pass_over(self.live);
        }
        self.step_live(span)
    }

    fn step_past(&mut self, span: Span) -> Option<Record> {
        while let Some(range) = self.past.front_mut() {
            if range.is_empty() {
                self.past.pop_front();
                if let Some(next) = self.past.front() {
                    let start = next.start;
                    self.pass_over(start);
                }
                continue;
            }
            let index = range.start;
            match self.reader.get(index) {
                Some(record) if self.last.is_some_and(|last| record.frame.meta.id <= last) => {
                    // It came from elsewhere, as it was wanted.
                    self.take_from_past();
                }
                Some(record) => {
                    if let Some(before) = self.to_ask_before(index, &record, span) {
                        self.ask(span, Some(before));
                        return None;
                    }
                    self.take_from_past();
                    return Some(record);
                }
                None if self.past_wish.reach == Reach::Memory => {
                    self.take_from_past();
                    self.evicted += 1;
                }
                // Evicted, and perhaps on disk: the next frame that memory does hold is asked about.
                None => self.past = self.past_in_memory(span),
            }
        }
        let asks = match (self.past_wish.reach, span.deliver) {
            (Reach::Memory, _) => false,
            (_, Deliver::Newest) => self.last.is_none(),
            (Reach::Disk, _) => !self.memory_reaches_present(),
            (Reach::Camera, _) => true,
        };
        if asks && !self.past_is_over {
            let present = self.live.max(self.reader.held().start);
            let before = self.reader.get(present).map(|record| record.frame.meta.id);
            self.ask(span, before);
        }
        None
    }

    fn take_from_past(&mut self) {
        if let Some(range) = self.past.front_mut() {
            range.start += 1;
        }
    }

    fn step_live(&mut self, span: Span) -> Option<Record> {
        while !self.saw_end {
            let held = self.reader.held();
            if self.live < held.start {
                let bounded = span.begin.is_some() || self.last.max(self.floor).is_some();
                // With nothing in memory there is nothing to be missed by asking again.
                let in_vain = self.asked_in_vain && !held.is_empty();
                let asks = self.past_wish.reach > Reach::Memory && !in_vain;
                if asks && span.deliver == Deliver::Every && bounded {
                    let before = self.reader.get(held.start).map(|record| record.frame.meta.id);
                    if before.is_none() && !held.is_empty() {
                        // Evicted between the two looks.
                        continue;
                    }
                    self.asked_to = held.start;
                    self.ask(span, before);
                    return None;
                }
                self.evicted += held.start - self.live;
                self.live = held.start;
            }
            if self.live >= held.end {
                return None;
            }
            let Some(record) = self.reader.get(self.live) else { continue };
            self.live += 1;
            let meta = &record.frame.meta;
            if self.last.is_some_and(|last| meta.id <= last) {
                // It came from elsewhere.
                continue;
            }
            if span.end.is_some_and(|end| meta.captured > end) {
                self.saw_end = true;
            } else if self.begun || span.begin.is_none_or(|begin| meta.captured >= begin) {
                (self.begun, self.asked_in_vain) = (true, false);
                return Some(record);
            }
        }
        None
    }

    /// The part of the past that memory holds and that was not read yet. What lies beyond is read as the present.
    fn past_in_memory(&self, span: Span) -> VecDeque<Range<u64>> {
        let Some(begin) = span.begin else { return VecDeque::new() };
        let from = self.last.map_or(0, |last| self.reader.index_of(last.next()));
        let ranges = self.reader.between(begin, span.end.unwrap_or(Timestamp::MAX)).into_iter();
        let ranges = ranges.map(|range| range.start.max(from)..range.end.min(self.live));
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// Reading goes on at `index`. What the log holds before it lies outside of the span, so it is not skipped.
    fn pass_over(&mut self, index: u64) {
        let before = index.checked_sub(1).and_then(|before| self.reader.get(before));
        let Some(before) = before.map(|record| record.frame.meta.id) else { return };
        self.last = self.last.map(|last| last.max(before));
        self.floor = self.floor.max(Some(before));
    }

    /// Accounts for the frames between the last one and `record`, which is delivered or skipped next.
    fn account_before(&mut self, record: &Record) {
        let evicted = std::mem::take(&mut self.evicted);
        let broken = std::mem::take(&mut self.broken);
        self.skipped.merge(&skipped_between(self.last, record, (evicted, broken)));
    }

    pub(super) fn beyond(&self, end: Timestamp) -> bool {
        self.saw_end
            || self.reader.newest().is_some_and(|record| record.frame.meta.captured >= end)
                && self.past.is_empty()
                && self.is_live
                && self.live >= self.reader.held().end
    }
}

/// Frames between `last` and `record`, the one that was read next, by why they were not. Of those that nobody explains, `evicted`
/// were once held here, and others if `broken`. Without a `last` there is nothing in between.
pub fn skipped_between(last: Option<FrameId>, record: &Record, (evicted, broken): (u64, bool)) -> SkipCounts {
    let mut skipped = SkipCounts::default();
    let Some(last) = last else { return skipped };
    let id = record.frame.meta.id;
    let from = if last.epoch == id.epoch { Sequence(last.sequence.0 + 1) } else { Sequence(0) };
    let mut unexplained = id.sequence.0.saturating_sub(from.0);
    for range in record.skipped.iter().filter_map(|range| range.clipped(from, id.sequence)) {
        let count = range.count.min(unexplained);
        unexplained -= count;
        skipped.add(range.reason, count);
    }
    if unexplained > 0 {
        let reason = match (evicted > 0, broken) {
            (true, _) => SkipReason::Evicted,
            (false, true) => SkipReason::NotHeld,
            (false, false) => SkipReason::LateOrLost,
        };
        skipped.add(reason, unexplained);
    }
    if last.epoch != id.epoch {
        // Evicted records of this epoch are among the unexplained; the others ended the one before.
        skipped.add(SkipReason::Evicted, evicted.saturating_sub(unexplained));
    }
    skipped
}
