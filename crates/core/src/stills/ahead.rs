//! Keeps stills that were made ahead of queries, for readers of every frame that share one decoder.
//!
//! A decoder only goes forwards. Two readers at different places of a chain would send it through the chain again for each still. So
//! while the decoder is where one reader is, it makes the stills that this reader takes next, and then goes back for the other reader.

use std::collections::{BTreeMap, VecDeque};

use super::places::{AHEAD_FRAMES, IDLE_MAX};
use crate::frame::FrameId;
use crate::log::{LogReader, RECORD_OVERHEAD_BYTES, Record};
use crate::units::Instant;

/// The most readers that are remembered. Further readers are served one still at a time.
const READERS_MAX: usize = 64;

/// A reader whose next query is at most this many frames later reads frame by frame. A data record may lie in between.
const NEXT_FRAMES_MAX: u64 = 2;

/// A still that was made ahead.
struct Made {
    still: Record,
    at: Instant,
    /// Whether a reader has taken the still.
    is_taken: bool,
}

/// A reader, as far as its queries show.
struct Reader {
    /// The frame of the last query.
    at: FrameId,
    /// When the last query came.
    asked: Instant,
    /// Whether the reader reads frame by frame. After a single query, the reader may want one frame only.
    reads_on: bool,
}

/// The places of readers of every frame, and the stills made ahead for them.
#[derive(Default)]
pub(super) struct Ahead {
    /// The reader of the last query is last.
    readers: VecDeque<Reader>,
    stills: BTreeMap<FrameId, Made>,
    bytes: u64,
    bytes_max: u64,
    /// The size of the last still.
    usual_bytes: u64,
}

impl Ahead {
    /// Bytes of stills that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no still is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.stills.is_empty()
    }

    /// Changes the budget. Stills that a reader has taken are evicted first.
    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        while self.bytes > bytes_max {
            let taken = self.stills.iter().find(|(_, made)| made.is_taken).or(self.stills.iter().next());
            let Some(frame) = taken.map(|(frame, _)| *frame) else { return };
            self.remove(frame);
        }
    }

    /// A reader queries a frame that is not the newest.
    pub(super) fn asked(&mut self, now: Instant, frame: FrameId, log: &LogReader) {
        let before = self.readers.iter().enumerate().filter(|(_, reader)| leads_to(reader.at, frame, log));
        let nearest = before.max_by_key(|(_, reader)| reader.at).map(|(place, _)| place);
        let same = self.readers.iter().position(|reader| reader.at == frame);
        let was = nearest.or(same).and_then(|place| self.readers.remove(place));
        let reads_on = was.is_some_and(|was| was.reads_on || is_within(was.at, frame, NEXT_FRAMES_MAX, log));
        if self.readers.len() == READERS_MAX {
            self.readers.pop_front();
        }
        self.readers.push_back(Reader { at: frame, asked: now, reads_on });
    }

    /// Whether a still of a frame should be made now: a reader takes it soon, it is not kept yet, and there is room.
    pub(super) fn wants(&self, frame: FrameId, log: &LogReader) -> bool {
        let takes_soon = |reader: &Reader| reader.reads_on && leads_to(reader.at, frame, log);
        let is_taken_soon = || self.readers.iter().any(takes_soon);
        !self.stills.contains_key(&frame) && self.has_room(self.usual_bytes) && is_taken_soon()
    }

    /// The still of a frame, if it is kept. It then counts as taken.
    pub(super) fn take(&mut self, frame: FrameId) -> Option<Record> {
        let made = self.stills.get_mut(&frame)?;
        made.is_taken = true;
        Some(made.still.clone())
    }

    /// Keeps a still that is wanted, if there is room beside the stills that no reader has taken yet.
    pub(super) fn keep(&mut self, now: Instant, still: &Record, log: &LogReader) {
        let (frame, bytes) = (still.frame.meta.id, bytes_of(still));
        self.usual_bytes = bytes;
        if !self.wants(frame, log) {
            return;
        }
        while self.bytes + bytes > self.bytes_max {
            let taken = self.stills.iter().find(|(_, made)| made.is_taken).map(|(frame, _)| *frame);
            // `wants` has checked that there is room.
            let Some(taken) = taken else { return };
            self.remove(taken);
        }
        self.bytes += bytes;
        self.stills.insert(frame, Made { still: still.clone(), at: now, is_taken: false });
    }

    /// Forgets readers that made no query for [`IDLE_MAX`], and stills that were kept for so long.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.readers.retain(|reader| now < reader.asked + IDLE_MAX);
        let old = self.stills.iter().filter(|(_, made)| now >= made.at + IDLE_MAX);
        for frame in old.map(|(frame, _)| *frame).collect::<Vec<_>>() {
            self.remove(frame);
        }
    }

    /// When the next still is forgotten.
    pub(super) fn due(&self) -> Option<Instant> {
        self.stills.values().map(|made| made.at + IDLE_MAX).min()
    }

    fn has_room(&self, bytes: u64) -> bool {
        let kept = self.stills.values().filter(|made| !made.is_taken).map(|made| bytes_of(&made.still));
        bytes > 0 && kept.sum::<u64>() + bytes <= self.bytes_max
    }

    fn remove(&mut self, frame: FrameId) {
        if let Some(made) = self.stills.remove(&frame) {
            self.bytes -= bytes_of(&made.still);
        }
    }
}

fn bytes_of(still: &Record) -> u64 {
    still.frame.payload.len() as u64 + RECORD_OVERHEAD_BYTES
}

/// Whether a reader at `at` takes `frame` soon.
fn leads_to(at: FrameId, frame: FrameId, log: &LogReader) -> bool {
    is_within(at, frame, AHEAD_FRAMES, log)
}

/// Whether `frame` follows `at` within `frames` frames of the log.
fn is_within(at: FrameId, frame: FrameId, frames: u64, log: &LogReader) -> bool {
    at < frame
        && at.epoch == frame.epoch
        && frame.sequence.0 - at.sequence.0 <= u64::from(u32::MAX)
        && log.index_of(frame).saturating_sub(log.index_of(at)) <= frames
}
