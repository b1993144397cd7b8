//! Reads one log for a subscription: the past from wherever it is held, then the present from memory.
//!
//! This file decides what is read next. `questions.rs` asks others for frames that memory does not hold. `stills.rs` asks for stills
//! of frames that need others. `originals.rs` reads the originals of the newest frames. `tally.rs` counts frames that are passed over.

mod originals;
mod questions;
mod stills;

use std::collections::VecDeque;
use std::ops::Range;

use super::chains::{ChainPlace, Look, Unread};
use super::holes::NotHeld;
use super::originals::Originals;
use super::tally::Tally;
use super::types::{Deliver, Delivery, LastFrame, Span};
use crate::frame::{ChainKinds, Epoch, FrameId, FrameMeta, SkipCounts, SkipReason};
use crate::history::{PastOptions, PastQuery, Tier};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::stills::StillQuery;
use crate::units::Timestamp;

/// A question of a feed to others, and how far it has got.
enum Question {
    /// There is no question.
    None,
    /// To be asked.
    Due(PastQuery),
    /// Asked; the answer is still to come.
    Open(PastQuery),
    /// Answered with a frame, which comes next.
    Found(Record),
    /// Answered with a frame, which comes next once the camera has said whether it holds frames
    /// between the beginning and that frame. The last field says whether the camera was asked.
    Verify(Record, PastQuery, bool),
}

/// A frame that was chosen, and how far its still has got.
#[derive(Default)]
enum Chosen {
    /// No frame is chosen.
    #[default]
    None,
    /// To be asked for.
    Due(StillQuery),
    /// Asked for; the answer is still to come.
    Open(FrameId),
    /// No still can be made here, for this reason. Others are asked for the frame.
    Elsewhere(FrameId, SkipReason),
    /// The still is there, with the log that holds it.
    Made(Box<Record>, Option<LogReader>),
}

pub(super) struct Feed {
    pub(super) camera: CameraName,
    reader: LogReader,
    /// The place in chains, if the application decodes them itself.
    pub(super) chains: Option<ChainPlace>,
    /// The frame that was chosen for the application and needs a still.
    chosen: Chosen,
    /// The last frames of which no still could be made.
    undecoded: VecDeque<FrameMeta>,
    /// The end of the log in memory when the last still was there.
    made_to: u64,
    /// Whether a frame was just passed over, so that the next one is looked for.
    goes_on: bool,
    /// What is known of originals, if only originals are wanted.
    originals: Option<Originals>,
    past_options: PastOptions,
    /// The beginning for this camera: the subscription's beginning, or the whole past after a frame that the application already has.
    begin: Option<Timestamp>,
    /// Indices of the past to read, in order.
    past: VecDeque<Range<u64>>,
    /// The next index of the present to read.
    live: u64,
    /// The newest frame when reading began. Later frames are the present, which is wanted whatever its
    /// capture time.
    newest_before: Option<FrameId>,
    /// Whether the present is being read.
    is_live: bool,
    /// Whether the past has no more frames. Others hold nothing between the past in memory
    /// and the present, or they gave the newest frame, and only the newest was wanted.
    past_is_over: bool,
    question: Question,
    /// The last frame that was found elsewhere.
    elsewhere: Option<FrameId>,
    /// Nobody else holds a frame before this one.
    asked_before: Option<FrameId>,
    /// The index up to which the question was about present frames that memory has lost.
    asked_to: u64,
    /// Whether nobody had the present frames that memory has lost, and no frame has come since. Another
    /// question before the next frame would take as long again, and memory might lose as much meanwhile. An
    /// application that is slow enough would then never get a frame.
    asked_in_vain: bool,
    /// Whether a frame captured at or after the beginning was seen.
    begun: bool,
    /// Frames up to this one are outside the span that was asked for.
    floor: Option<FrameId>,
    /// The frame of the present up to which others are asked, because it would have been the first.
    asks_to: Option<FrameId>,
    /// The epoch in which a frame captured after the end was seen. No further frame of that epoch is wanted.
    /// Another start of the camera may state other times, so this counts for one epoch only.
    saw_end: Option<Epoch>,
    /// The account of the frames so far.
    tally: Tally,
    /// Whether the end has come, and frames that may lie before it were asked for.
    asked_for_rest: bool,
}

impl Feed {
    pub(super) fn new(
        camera: CameraName,
        reader: LogReader,
        present: u64,
        (span, past, kinds): (Span, PastOptions, ChainKinds),
        after: Option<LastFrame>,
    ) -> Self {
        let newest = present.checked_sub(1).and_then(|newest| reader.get(newest));
        let newest_before = newest.map(|record| record.frame.meta.id);
        // Everything after the last frame that the application already has is asked for, whatever its capture
        // time.
        let behind = after.filter(|_| past.fill || span.begin.is_some()).map(|_| Timestamp::MIN);
        let begin = behind.or(span.begin);
        let wants_originals =
            begin.is_none() && !past.fill && span.deliver == Deliver::Newest && past.wants_originals();
        let mut feed = Self {
            camera,
            newest_before,
            chains: (!kinds.is_none() && !wants_originals).then(|| ChainPlace::new(kinds)),
            chosen: Chosen::None,
            undecoded: VecDeque::new(),
            made_to: 0,
            goes_on: false,
            originals: wants_originals.then(|| Originals::new(present)),
            past_options: PastOptions {
                tier_max: if begin.is_some() || past.fill || wants_originals {
                    past.tier_max
                } else {
                    past.tier_max.min(Tier::Disk)
                },
                ..past
            },
            begin,
            past: VecDeque::new(),
            live: present,
            is_live: begin.is_none(),
            past_is_over: false,
            question: Question::None,
            elsewhere: None,
            asked_before: None,
            asked_to: 0,
            asked_in_vain: false,
            begun: after.is_some(),
            floor: None,
            asks_to: None,
            saw_end: None,
            tally: Tally::new(after),
            asked_for_rest: false,
            reader,
        };
        if let Some(begin) = begin {
            let end = span.end.unwrap_or(Timestamp::MAX);
            feed.past = feed.past_in_memory(feed.own(span));
            let held_from = feed.reader.held_from().unwrap_or(end).min(end);
            // If memory's newest frame is enough, nobody is asked how far back others reach.
            let known = feed.past_options.tier_max == Tier::Memory
                || span.deliver == Deliver::Every
                || feed.past.is_empty();
            feed.tally.begin_at(begin, known.then_some(held_from));
        } else {
            feed.floor = newest_before;
        }
        feed
    }

    /// The log in memory.
    pub(super) fn log(&self) -> &LogReader {
        &self.reader
    }

    /// Whether the present has nothing unread, and no frame was chosen.
    pub(super) fn has_nothing(&self) -> bool {
        self.chooses_next() && self.live >= self.reader.held().end
    }

    /// The log, if its newest frame is what the application gets next, as a still.
    pub(super) fn unread(&self, span: Span) -> Option<&LogReader> {
        let of_stills = self.originals.is_none() && self.chains.is_none() && span.deliver == Deliver::Newest;
        (self.chooses_next() && of_stills && self.live < self.reader.held().end).then_some(&self.reader)
    }

    /// Whether the next frame of the present is still to be chosen.
    fn chooses_next(&self) -> bool {
        self.is_live && !self.waits_for_past() && matches!(self.chosen, Chosen::None)
    }

    /// The next delivery. `now` is the edge broker's wall clock.
    pub(super) fn next(&mut self, span: Span, begun: bool, now: Timestamp) -> Option<Delivery> {
        self.begun |= begun;
        let span = self.own(span);
        loop {
            self.goes_on = false;
            let delivery = self.look(span, now);
            if delivery.is_some() || !self.goes_on {
                return delivery;
            }
        }
    }

    /// The next delivery. `None` with `goes_on` set if a frame was passed over because nobody can make a still of it.
    fn look(&mut self, span: Span, now: Timestamp) -> Option<Delivery> {
        if let Some(still) = self.take_still() {
            return Some(still);
        }
        if self.waits_for_still() {
            return None;
        }
        if self.originals.is_some() {
            return self.next_original(span, now);
        }
        let may = self.is_live && !self.waits_for_past();
        if let Some(mut chains) = self.chains.take_if(|_| may) {
            let (next, last) = (self.live, self.tally.last().max(self.floor));
            let look = chains.look(Unread { log: &self.reader, next, last, deliver: span.deliver });
            self.chains = Some(chains);
            match look {
                Look::Frame(to) => return self.next_as_came(to, span),
                Look::Nothing => return None,
                Look::Still => {}
            }
        }
        self.next_chosen(span)
    }

    /// The newest frame, or the next one if every frame is wanted.
    fn next_chosen(&mut self, span: Span) -> Option<Delivery> {
        let mut newest: Option<(Record, u64)> = None;
        while let Some(record) = self.step(span, newest.as_ref().map(|(newest, _)| newest.frame.meta.id)) {
            if newest.as_ref().is_some_and(|(newest, _)| record.frame.meta.id <= newest.frame.meta.id) {
                // The frame was found elsewhere, and has crossed live meanwhile.
                continue;
            }
            if let Some((skipped, end)) = newest.replace((record, self.live)) {
                self.tally.skip(self.passed_over(&skipped, end));
                self.has_read(&skipped.frame.meta);
            }
            let (record, _) = newest.as_ref().expect("just put there");
            self.account_before(record);
            if span.deliver == Deliver::Every {
                break;
            }
        }
        let (record, end) = newest?;
        if span.deliver == Deliver::Newest && self.is_live && record.is_overtaken() {
            // A newer frame is about to enter the log.
            self.tally.skip(self.passed_over(&record, end));
            self.has_read(&record.frame.meta);
            return None;
        }
        let log = (self.elsewhere != Some(record.frame.meta.id)).then(|| self.reader.clone());
        self.hand(record, log, span.deliver)
    }

    /// The frame of the present at index `to`, as it came. Frames before it are passed over.
    fn next_as_came(&mut self, to: u64, span: Span) -> Option<Delivery> {
        while let Some(record) = self.step_live(span) {
            self.account_before(&record);
            if self.live > to {
                return self.hand(record, Some(self.reader.clone()), span.deliver);
            }
            self.tally.skip(self.passed_over(&record, self.live));
            self.has_read(&record.frame.meta);
        }
        None
    }

    fn delivery(&mut self, record: Record, log: Option<LogReader>) -> Delivery {
        self.has_read(&record.frame.meta);
        let (skipped, not_held) = self.tally.take();
        Delivery { camera: self.camera.clone(), record, skipped, not_held, log }
    }

    /// The last frame that was delivered or counted, or that the application already had.
    pub(super) fn last(&self) -> Option<LastFrame> {
        self.tally.last_known().map(|(id, captured)| LastFrame { id, captured })
    }

    /// The rest of the account when nothing more comes.
    pub(super) fn rest(mut self, span: Span) -> (CameraName, SkipCounts, Option<NotHeld>) {
        self.drop_chosen();
        if self.originals.is_some() {
            self.pass_over_rest(self.own(span));
        }
        let (skipped, not_held) = self.tally.rest(span.end);
        (self.camera, skipped, not_held)
    }

    /// The rest of the account when the log is no longer read. Unread frames in the log are not delivered any more.
    pub(super) fn abandon(mut self, span: Span) -> (CameraName, SkipCounts, Option<NotHeld>) {
        self.drop_chosen();
        if !self.is_live || self.waits_for_past() {
            self.tally.give_up_from(self.begin, span.end, self.reader.newest().as_ref());
        } else if self.originals.is_none() {
            self.skip_unread(span.end);
        }
        self.rest(span)
    }

    /// Counts the frames of the present that memory holds and nobody read.
    fn skip_unread(&mut self, end: Option<Timestamp>) {
        let held = self.reader.held();
        for index in self.live.max(held.start)..held.end {
            let Some(record) = self.reader.get(index) else { continue };
            let meta = &record.frame.meta;
            let is_wanted = end.is_none_or(|end| meta.captured <= end);
            if is_wanted && self.tally.last().is_none_or(|last| meta.id > last) {
                self.account_before(&record);
                self.has_read(meta);
                self.tally.skip(SkipReason::Evicted);
            }
        }
    }

    /// The span as it applies to this camera.
    fn own(&self, span: Span) -> Span {
        Span { begin: self.begin, ..span }
    }

    fn has_read(&mut self, meta: &FrameMeta) {
        self.tally.read(meta);
        self.asked_for_rest = false;
    }

    // ---- what is read next --------------------------------------------------------------------------------

    /// The next record of the past or the present within the span. `None` if there is none, or if an answer
    /// is still to come.
    ///
    /// `found`: the frame of the past that comes next, if nothing newer is found. It
    /// comes before the present if frames that were not asked for lie between the two.
    fn step(&mut self, span: Span, found: Option<FrameId>) -> Option<Record> {
        match std::mem::replace(&mut self.question, Question::None) {
            Question::None => {}
            Question::Found(record) => {
                self.elsewhere = Some(record.frame.meta.id);
                return Some(record);
            }
            waiting @ (Question::Due(_) | Question::Open(_) | Question::Verify(..)) => {
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
            let before = self.live.checked_sub(1).and_then(|before| self.reader.get(before));
            if found.is_some_and(|found| before.is_some_and(|before| found < before.frame.meta.id)) {
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
                Some(record) if self.tally.last().is_some_and(|last| record.frame.meta.id <= last) => {
                    // The frame came from elsewhere, at the wanted quality.
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
                None if self.past_options.tier_max == Tier::Memory => {
                    self.take_from_past();
                    self.tally.note_evicted(1);
                }
                // The record was evicted, and may be on disk: ask about the time before the next frame in memory.
                None => self.past = self.past_in_memory(span),
            }
        }
        let asks = match (self.past_options.tier_max, span.deliver) {
            (Tier::Memory, _) => false,
            (_, Deliver::Newest) => self.tally.last().is_none(),
            (Tier::Disk, _) => !self.memory_reaches_present(),
            (Tier::Camera, _) => true,
        };
        if asks && !self.past_is_over {
            self.ask(span, self.first_of_present());
            return None;
        }
        self.past.extend(self.rest_in_memory(span));
        if self.past.is_empty() { None } else { self.step_past(span) }
    }

    /// The first frame of the present in memory that comes after the last frame. Frames of the present may be older than the last
    /// frame: if the camera was restarted, others may have given frames of its new start that were not here when reading began.
    fn first_of_present(&self) -> Option<FrameId> {
        let behind = self.tally.last().map_or(0, |last| self.reader.index_of(last.next()));
        let first = self.reader.get(self.live.max(self.reader.held().start).max(behind));
        first.map(|record| record.frame.meta.id)
    }

    fn take_from_past(&mut self) {
        if let Some(range) = self.past.front_mut() {
            range.start += 1;
        }
    }

    fn step_live(&mut self, span: Span) -> Option<Record> {
        loop {
            let held = self.reader.held();
            if self.live < held.start {
                let bounded = span.begin.is_some() || self.tally.last().max(self.floor).is_some();
                // If memory is empty, asking again misses nothing.
                let in_vain = self.asked_in_vain && !held.is_empty() && !self.past_options.fill;
                let asks = self.past_options.tier_max > Tier::Memory && !in_vain;
                if asks && span.deliver == Deliver::Every && bounded {
                    let before = self.reader.get(held.start).map(|record| record.frame.meta.id);
                    if before.is_none() && !held.is_empty() {
                        // The record was evicted between the two looks.
                        continue;
                    }
                    self.asked_to = held.start;
                    self.ask(span, before);
                    return None;
                }
                self.tally.note_evicted(held.start - self.live);
                self.live = held.start;
            }
            if self.live >= held.end {
                return None;
            }
            let Some(record) = self.reader.get(self.live) else { continue };
            let meta = &record.frame.meta;
            if self.tally.last().is_some_and(|last| meta.id <= last) && !self.numbered_anew(meta) {
                // The frame came from elsewhere.
                self.live += 1;
                continue;
            }
            if self.is_to_be_filled_before(span, meta.id) {
                if self.tally.last().is_none() {
                    self.asks_to = Some(meta.id);
                }
                self.ask(span, Some(meta.id));
                return None;
            }
            self.live += 1;
            if span.end.is_some_and(|end| meta.captured > end) {
                self.saw_end = Some(meta.id.epoch);
            } else if self.begun || span.begin.is_none_or(|begin| meta.captured >= begin) {
                (self.begun, self.asked_in_vain, self.saw_end) = (true, false, None);
                return Some(record);
            }
        }
    }

    /// Whether the camera is to be asked for frames before this present one. It is asked only if every frame
    /// is wanted from as far as the camera, and not twice about the same stretch.
    ///
    /// Behind another frame, it is asked if frames are missing between the two and all of them are wanted. The
    /// first frame of a reader of the past is different, since no count tells what was passed over before it:
    /// the camera is asked unless memory shows that the frame just before lies before the beginning.
    fn is_to_be_filled_before(&self, span: Span, id: FrameId) -> bool {
        let may = self.begun && span.deliver == Deliver::Every && self.past_options.tier_max == Tier::Camera;
        let asked = self.asked_before.is_some_and(|asked| id <= asked);
        may && !asked
            && match self.tally.last() {
                Some(last) => self.wants_all() && last.next() != id,
                None => self.begin.is_some() && !self.follows(span, id),
            }
    }

    /// Whether frames that were passed over when they were new are wanted too.
    fn wants_all(&self) -> bool {
        self.past_options.fill || self.asks_to > self.tally.last()
    }

    /// Begins anew if a present frame is not after the frame that the application already had. This happens if the camera has lost its
    /// memory and the edge did not know its counter. Epochs then count from 1 again, and nobody knows which frames lie between the two.
    fn numbered_anew(&mut self, meta: &FrameMeta) -> bool {
        let is_anew = self.tally.numbered_anew(meta);
        if is_anew {
            // From here on, the feed reads like one that begins now.
            (self.begin, self.floor, self.newest_before, self.asked_before) = (None, None, None, None);
        }
        is_anew
    }

    /// The past that memory holds and that was not read yet. Later frames are read as the present.
    fn past_in_memory(&self, span: Span) -> VecDeque<Range<u64>> {
        let Some(begin) = span.begin else { return VecDeque::new() };
        let from = self.tally.last().map_or(0, |last| self.reader.index_of(last.next()));
        let end = span.end.unwrap_or(Timestamp::MAX);
        // A reader that decodes chains needs them from their beginnings. For other readers, a still of each frame can be made.
        let ranges = match &self.chains {
            Some(_) => self.reader.between(begin, end),
            None => self.reader.within(begin, end),
        };
        let ranges = ranges.into_iter();
        let ranges = ranges.map(|range| range.start.max(from)..range.end.min(self.live));
        ranges.filter(|range| !range.is_empty()).collect()
    }

    /// The indices in memory behind the last frame, of a chain whose beginning memory no longer holds.
    /// For a reader that got the beginning from elsewhere. Later frames are read as the present.
    fn rest_in_memory(&self, span: Span) -> Option<Range<u64>> {
        let last = self.tally.last().filter(|_| span.deliver == Deliver::Every)?;
        let start = self.reader.index_of(last.next());
        let (begin, end) = (span.begin.unwrap_or(Timestamp::MIN), span.end.unwrap_or(Timestamp::MAX));
        let is_within = |index: &u64| {
            let record = self.reader.get(*index);
            record.is_some_and(|record| (begin..=end).contains(&record.frame.meta.captured))
        };
        let count = (start..self.live).take_while(is_within).count() as u64;
        (count > 0).then_some(start..start + count)
    }

    /// Continues at `index`. Frames before it in the log are outside the span, so they do not count as
    /// skipped. The rest of a chain without its beginning is not outside the span, and counts as evicted.
    fn pass_over(&mut self, index: u64) {
        let before = index.checked_sub(1).filter(|before| *before >= self.reader.entry());
        let before = before.and_then(|before| self.reader.get(before));
        let Some(before) = before.map(|record| record.frame.meta) else { return };
        if let Some(last) = self.tally.last().filter(|last| *last < before.id) {
            // Later frames of the same epoch in memory are outside the span too.
            let next = self.reader.get(self.reader.index_of(last.next()));
            let restarted = next.is_some_and(|next| next.frame.meta.id.epoch != last.epoch);
            self.tally.pass_over(&before, restarted);
        }
        self.floor = self.floor.max(Some(before.id));
    }

    /// Accounts for the frames between the last one and `record`, which is delivered or skipped next.
    fn account_before(&mut self, record: &Record) {
        let first = self.tally.last().is_none();
        let follows = first && self.follows(Span { begin: self.begin, ..Span::LIVE }, record.frame.meta.id);
        self.tally.before(record, self.begin.is_none(), follows);
    }

    pub(super) fn beyond(&self, end: Timestamp) -> bool {
        if self.originals.is_some() {
            // An original that was captured before the end may still come.
            return false;
        }
        self.saw_end.is_some()
            || self.reader.newest().is_some_and(|record| record.frame.meta.captured >= end)
                && self.past.is_empty()
                && self.is_live
                && self.live >= self.reader.held().end
    }
}
