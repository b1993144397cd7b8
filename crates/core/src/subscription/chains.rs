//! A subscription's place among a camera's frames as they came, for an application that decodes chains itself.
//!
//! It is either in a chain, and gets every frame of it in order, or outside, and gets the replica's stills until a chain begins. What
//! is in a chain may be left out only where nothing needs it any more: before another chain begins.

use std::collections::VecDeque;
use std::ops::Range;

use super::types::Deliver;
use crate::frame::{ChainKinds, Encoding, Epoch, FrameId, FrameMeta, Reference, Sequence};
use crate::log::LogReader;

/// A chain that has gone on for more frames than this is not entered any more: the next stills are newer.
const ENTRY_FRAMES_MAX: u64 = 8;
/// Frames of a chain that were handed on and are kept in mind, since later ones may refer to them; ten seconds at a hundred a second.
const HANDED_MAX: usize = 1024;

/// A camera's place.
pub(super) struct ChainPlace {
    pub(super) log: LogReader,
    kinds: ChainKinds,
    /// The index that is read next, while in a chain.
    next: Option<u64>,
    handed: Handed,
    /// How often the application was too slow for a chain.
    lost: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The frame at `to` as it came; those from `from` on before it are passed over.
    Frame { from: u64, to: u64, enters: bool },
    /// Nothing now.
    Nothing,
    /// A still, if there is one.
    Still,
}

/// What is known of the replica when a place is looked at. It has to be learned first: a frame enters the replica after it has been put
/// among those that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stills {
    /// The first after the last frame that was delivered.
    pub(super) next: Option<FrameId>,
    /// The newest.
    pub(super) newest: Option<FrameId>,
}

impl ChainPlace {
    /// Outside of any chain.
    pub(super) fn new(log: LogReader, kinds: ChainKinds) -> Self {
        Self { log, kinds, next: None, handed: Handed::default(), lost: 0 }
    }

    /// What comes after `last`.
    pub(super) fn look(&mut self, last: Option<FrameId>, stills: Stills, deliver: Deliver) -> Look {
        let held = self.log.held();
        if let Some(next) = self.next {
            if next < held.start {
                self.lost += 1;
                self.leave();
            } else if next < held.end {
                if let Some(to) = self.ahead(next..held.end, deliver) {
                    return Look::Frame { from: next, to, enters: false };
                }
                self.leave();
            } else if stills.newest <= last {
                return Look::Nothing;
            } else {
                // The replica has a frame for which there was no room here.
                self.leave();
            }
        }
        match self.entry(held, last, stills, deliver) {
            Some((from, to)) => Look::Frame { from, to, enters: true },
            None => Look::Still,
        }
    }

    /// The frame at `index` goes to the application.
    pub(super) fn handed(&mut self, index: u64, meta: &FrameMeta) {
        self.next = Some(index + 1);
        self.handed.note(meta);
    }

    /// Goes on with stills, until a chain begins.
    pub(super) fn leave(&mut self) {
        self.next = None;
        self.handed = Handed::default();
    }

    /// How often the application was too slow for a chain.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// In a chain: the one of these frames that comes next.
    fn ahead(&self, frames: Range<u64>, deliver: Deliver) -> Option<u64> {
        let first = frames.start;
        let newest = match deliver {
            Deliver::Every => None,
            Deliver::Newest => {
                // Nothing before the beginning of a chain is needed behind it. Of stills in a row the last will do.
                let begins = frames.clone().rev().find(|index| self.begins_chain(*index));
                let stills = frames.take_while(|index| self.is(*index, |meta| !meta.encoding.is_chained()));
                begins.or(stills.last())
            }
        };
        let next = newest.unwrap_or(first);
        self.is(next, |meta| self.kinds.takes(meta.encoding) && self.handed.allows(meta)).then_some(next)
    }

    /// Outside: where a chain begins after `last`, the newest, or the first if every frame is wanted; and the first of the frames that are
    /// passed over for it.
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

/// What the application's decoder holds, if it decodes what it is given.
#[derive(Default)]
struct Handed {
    chain: Option<(Encoding, Epoch, Sequence)>,
    /// The place in it of the last frame.
    index: u32,
    frames: VecDeque<Sequence>,
}

impl Handed {
    /// Whether all that a frame refers to was handed on.
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
