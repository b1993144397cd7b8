//! Follows a camera's frames as they came, for an application that decodes chains itself.
//!
//! A reader inside a chain gets every frame of it in order. A reader outside gets the replica's stills until
//! a chain begins. Frames of a chain may be left out only where nothing needs them any more: before another
//! chain begins, and before the newest of a burst after a silence if that refers to none of the burst.

use std::collections::VecDeque;
use std::ops::Range;

use super::types::Deliver;
use crate::frame::{ChainKinds, Encoding, Epoch, FrameId, FrameMeta, Reference, Sequence};
use crate::log::LogReader;

/// A chain with more frames than this is not entered any more: the next stills are newer.
const ENTRY_FRAMES_MAX: u64 = 8;
/// The most delivered frames of a chain that are remembered, because later ones may refer to them. They cover
/// ten seconds at 100 frames per second.
const HANDED_MAX: usize = 1024;

/// A reader's place among the frames of one camera.
pub(super) struct ChainPlace {
    pub(super) log: LogReader,
    kinds: ChainKinds,
    /// The index to read next, while inside a chain.
    next: Option<u64>,
    handed: Handed,
    /// How often the application was too slow for a chain.
    lost: u64,
}

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The frame at `to`, as it came. Frames from `from` up to it are passed over.
    Frame { from: u64, to: u64, enters: bool },
    /// Nothing now.
    Nothing,
    /// A still, if there is one.
    Still,
}

/// What is known about the replica when a reader looks for its next frame. It must be learned before the
/// look: a frame enters the log of frames as they came first, and the replica later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stills {
    /// The first frame after the last delivered one.
    pub(super) next: Option<FrameId>,
    /// The newest frame.
    pub(super) newest: Option<FrameId>,
}

impl ChainPlace {
    /// A place outside any chain.
    pub(super) fn new(log: LogReader, kinds: ChainKinds) -> Self {
        Self { log, kinds, next: None, handed: Handed::default(), lost: 0 }
    }

    /// What to read after `last`.
    pub(super) fn look(&mut self, last: Option<FrameId>, stills: Stills, deliver: Deliver) -> Look {
        let held = self.log.held();
        if let Some(next) = self.next {
            if next < held.start {
                self.lost += 1;
                self.leave();
            } else if next < held.end {
                if deliver == Deliver::Newest && self.newer_follows(next..held.end) {
                    return Look::Nothing;
                }
                if let Some(to) = self.ahead(next..held.end, deliver) {
                    return Look::Frame { from: next, to, enters: false };
                }
                self.leave();
            } else if stills.newest <= last {
                return Look::Nothing;
            } else {
                // The replica has a frame that did not fit here.
                self.leave();
            }
        }
        match self.entry(held, last, stills, deliver) {
            Some((from, to)) => Look::Frame { from, to, enters: true },
            None => Look::Still,
        }
    }

    /// Notes that the frame at `index` goes to the application.
    pub(super) fn handed(&mut self, index: u64, meta: &FrameMeta) {
        self.next = Some(index + 1);
        self.handed.note(meta);
    }

    /// Leaves the chain. Stills follow until another chain begins.
    pub(super) fn leave(&mut self) {
        self.next = None;
        self.handed = Handed::default();
    }

    /// How often the application was too slow for a chain.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// The next of these frames, for a reader inside a chain.
    fn ahead(&self, frames: Range<u64>, deliver: Deliver) -> Option<u64> {
        let first = frames.start;
        let newest = match deliver {
            Deliver::Every => None,
            Deliver::Newest => {
                // Frames before the beginning of a chain are not needed after it. Of successive stills, the
                // last one is enough.
                let begins = frames.clone().rev().find(|index| self.begins_chain(*index));
                let stills = frames
                    .clone()
                    .take_while(|index| self.is(*index, |meta| !meta.encoding.is_chained()))
                    .last();
                begins.or(stills).or_else(|| self.fresh(frames))
            }
        };
        let next = newest.unwrap_or(first);
        self.is(next, |meta| self.kinds.takes(meta.encoding) && self.handed.allows(meta)).then_some(next)
    }

    /// Whether all of these frames are of a burst after a silence, of which the newest is about to enter the log.
    fn newer_follows(&self, mut frames: Range<u64>) -> bool {
        frames.all(|index| self.is_overtaken(index))
    }

    /// The first frame of a burst after a silence that is not stale, if it needs none of those before it.
    fn fresh(&self, mut frames: Range<u64>) -> Option<u64> {
        let fresh = frames.find(|index| !self.is_overtaken(*index))?;
        self.is(fresh, |meta| self.handed.allows(meta)).then_some(fresh)
    }

    fn is_overtaken(&self, index: u64) -> bool {
        self.log.get(index).is_some_and(|record| record.is_overtaken())
    }

    /// Where a reader outside can enter a chain that begins after `last`: the newest chain, or the first if
    /// every frame is wanted. Also returns the first frame that is passed over for it.
    fn entry(
        &self,
        held: Range<u64>,
        last: Option<FrameId>,
        stills: Stills,
        deliver: Deliver,
    ) -> Option<(u64, u64)> {
        let oldest = held.end.saturating_sub(ENTRY_FRAMES_MAX).max(held.start);
        let is_later = |index| self.is(index, |meta| last.is_none_or(|last| meta.id > last));
        let mut begins = (oldest..held.end).filter(|index| self.begins_chain(*index) && is_later(*index));
        let to = match deliver {
            Deliver::Newest => begins.next_back(),
            Deliver::Every => begins.next(),
        }?;
        if deliver == Deliver::Newest && self.newer_follows(to..held.end) {
            return None;
        }
        let waits = |still: FrameId| self.is(to, |meta| still < meta.id);
        if deliver == Deliver::Every && stills.next.is_some_and(waits) {
            return None;
        }
        let from = last.map_or(to, |last| self.log.index_of(last.next()).min(to));
        Some((from, to))
    }

    fn begins_chain(&self, index: u64) -> bool {
        self.is(index, |meta| {
            let stands_alone = meta.chain.reference == Reference::Independent;
            meta.encoding.is_chained() && self.kinds.takes(meta.encoding) && stands_alone
        })
    }

    fn is(&self, index: u64, test: impl Fn(&FrameMeta) -> bool) -> bool {
        self.log.get(index).is_some_and(|record| test(&record.frame.meta))
    }
}

/// The frames that the application's decoder holds, if it decodes everything it gets.
#[derive(Default)]
struct Handed {
    chain: Option<(Encoding, Epoch, Sequence)>,
    /// The last frame's index in its chain.
    index: u32,
    frames: VecDeque<Sequence>,
}

impl Handed {
    /// Whether all frames that a frame refers to were delivered.
    fn allows(&self, meta: &FrameMeta) -> bool {
        let goes_on = self.chain == Some((meta.encoding, meta.id.epoch, meta.chain.chain));
        match meta.chain.reference {
            _ if !meta.encoding.is_chained() => true,
            Reference::Independent => true,
            Reference::Previous => goes_on && self.index.checked_add(1) == Some(meta.chain.index),
            Reference::Acknowledged(refers) => {
                goes_on && meta.chain.index > self.index && self.frames.contains(&refers)
            }
        }
    }

    fn note(&mut self, meta: &FrameMeta) {
        if !meta.encoding.is_chained() {
            return;
        }
        if meta.chain.reference == Reference::Independent {
            self.frames.clear();
        }
        self.chain = Some((meta.encoding, meta.id.epoch, meta.chain.chain));
        self.index = meta.chain.index;
        if self.frames.len() == HANDED_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back(meta.id.sequence);
    }
}
