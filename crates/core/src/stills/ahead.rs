//! Keeps stills that were made before anybody asked, for readers of every frame whom one decoder serves in turn.
//!
//! A decoder goes forwards only. Two readers at different places of a chain would send it through the chain again for each still. So
//! while it is where a reader is, it makes stills of what that reader takes next, and then goes back for the other one.

use std::collections::{BTreeMap, VecDeque};

use super::places::{AHEAD_FRAMES, IDLE_MAX};
use crate::frame::FrameId;
use crate::log::{LogReader, RECORD_OVERHEAD_BYTES, Record};
use crate::units::Instant;

/// The most readers that are remembered. Those beyond are served one still at a time.
const READERS_MAX: usize = 64;

/// Who asks for a frame so near behind the one before reads frame by frame. A data record may lie in between.
const NEXT_FRAMES_MAX: u64 = 2;

/// A still that was made ahead.
struct Made {
    still: Record,
    at: Instant,
    /// Somebody has taken it.
    is_taken: bool,
}

/// Somebody who asked for a frame.
struct Reader {
    /// The last frame that it asked for, and when.
    at: FrameId,
    asked: Instant,
    /// It asked for the one before as well. Whoever has asked once may look at one frame only.
    reads_on: bool,
}

/// Where readers of every frame are, and what they will ask for.
#[derive(Default)]
pub(super) struct Ahead {
    /// Those that asked lately are last.
    readers: VecDeque<Reader>,
    stills: BTreeMap<FrameId, Made>,
    bytes: u64,
    bytes_max: u64,
    /// The size of the still that was made last.
    usual_bytes: u64,
}

impl Ahead {
    /// Bytes of stills that are held.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.stills.is_empty()
    }

    /// Changes the budget. Stills that somebody has taken go first.
    pub(super) fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        while self.bytes > bytes_max {
            let taken = self.stills.iter().find(|(_, made)| made.is_taken).or(self.stills.iter().next());
            let Some(frame) = taken.map(|(frame, _)| *frame) else { return };
            self.remove(frame);
        }
    }

    /// A reader asks for a frame that is not the newest.
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

    /// Whether a still of a frame is worth making now: a reader takes it soon, it is not there, and there is room.
    pub(super) fn wants(&self, frame: FrameId, log: &LogReader) -> bool {
        let takes_soon = |reader: &Reader| reader.reads_on && leads_to(reader.at, frame, log);
        let is_taken_soon = || self.readers.iter().any(takes_soon);
        !self.stills.contains_key(&frame) && self.has_room(self.usual_bytes) && is_taken_soon()
    }

    /// A still that was made, if it is here.
    pub(super) fn take(&mut self, frame: FrameId) -> Option<Record> {
        let made = self.stills.get_mut(&frame)?;
        made.is_taken = true;
        Some(made.still.clone())
    }

    /// Keeps a still that is wanted, if there is room without those that nobody has taken yet.
    pub(super) fn keep(&mut self, now: Instant, still: &Record, log: &LogReader) {
        let (frame, bytes) = (still.frame.meta.id, bytes_of(still));
        self.usual_bytes = bytes;
        if !self.wants(frame, log) {
            return;
        }
        while self.bytes + bytes > self.bytes_max {
            let taken = self.stills.iter().find(|(_, made)| made.is_taken).map(|(frame, _)| *frame);
            // `wants` saw the room.
            let Some(taken) = taken else { return };
            self.remove(taken);
        }
        self.bytes += bytes;
        self.stills.insert(frame, Made { still: still.clone(), at: now, is_taken: false });
    }

    /// Forgets stills and readers of which nothing was heard for a while.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.readers.retain(|reader| now < reader.asked + IDLE_MAX);
        let old = self.stills.iter().filter(|(_, made)| now >= made.at + IDLE_MAX);
        for frame in old.map(|(frame, _)| *frame).collect::<Vec<_>>() {
            self.remove(frame);
        }
    }

    /// When a still is to be forgotten.
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

/// Whether a reader that asked for one frame takes the other one soon.
fn leads_to(at: FrameId, frame: FrameId, log: &LogReader) -> bool {
    is_within(at, frame, AHEAD_FRAMES, log)
}

/// Whether one frame lies behind another, by so many frames of the log at most.
fn is_within(at: FrameId, frame: FrameId, frames: u64, log: &LogReader) -> bool {
    at < frame
        && at.epoch == frame.epoch
        && frame.sequence.0 - at.sequence.0 <= u64::from(u32::MAX)
        && log.index_of(frame).saturating_sub(log.index_of(at)) <= frames
}
