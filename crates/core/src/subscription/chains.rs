//! Decides what a reader that decodes chains itself gets of a camera's log.
//!
//! A reader inside a chain gets every frame of it in order. A reader outside gets stills until a chain begins.
//! Frames of a chain may be left out only where no later frame needs them: before another chain begins, and
//! before the newest frame of a burst after a silence, if that frame refers to no frame of the burst.

use std::ops::Range;

use super::types::Deliver;
use crate::chain::{ChainFollower, begins_chain};
use crate::frame::{ChainKinds, FrameId, FrameMeta};
use crate::log::LogReader;

/// A chain with more frames than this is not entered any more: the next stills are newer.
const ENTRY_FRAMES_MAX: u64 = 8;
/// A reader of the newest frame that is further behind than this has lost its chain:
/// one or two seconds of a stream. Older frames would come too late to be useful.
pub(super) const BEHIND_FRAMES_MAX: u64 = 32;

/// A reader's place among the frames of one camera.
pub(super) struct ChainPlace {
    kinds: ChainKinds,
    /// The frames that the application's decoder holds, if it decodes everything it gets. In no chain: the reader
    /// is outside.
    follower: ChainFollower,
    /// How often the application was too slow for a chain.
    lost: u64,
}

/// What to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The frame at this index, as it came. Frames before it are passed over.
    Frame(u64),
    /// Nothing now.
    Nothing,
    /// A still, if there is one.
    Still,
}

/// What is read, and up to where it was read.
#[derive(Clone, Copy)]
pub(super) struct Unread<'a> {
    pub(super) log: &'a LogReader,
    /// The index to read next.
    pub(super) next: u64,
    /// The last frame that was delivered or passed over.
    pub(super) last: Option<FrameId>,
    pub(super) deliver: Deliver,
}

impl ChainPlace {
    /// A place outside any chain.
    pub(super) fn new(kinds: ChainKinds) -> Self {
        Self { kinds, follower: ChainFollower::default(), lost: 0 }
    }

    /// What to read next.
    pub(super) fn look(&mut self, unread: Unread<'_>) -> Look {
        let Unread { log, next, deliver, .. } = unread;
        let held = log.held();
        if self.is_inside() {
            let is_behind = deliver == Deliver::Newest && held.end.saturating_sub(next) > BEHIND_FRAMES_MAX;
            if next < held.start && deliver == Deliver::Every {
                // The rest of its chain may be on disk.
                return Look::Still;
            }
            if next < held.start || is_behind {
                self.lost += 1;
            } else if next >= held.end || deliver == Deliver::Newest && newer_follows(log, next..held.end) {
                return Look::Nothing;
            } else if let Some(to) = self.ahead(unread, next..held.end) {
                return Look::Frame(to);
            }
            self.leave();
        }
        self.entry(unread, held).map_or(Look::Still, Look::Frame)
    }

    /// Whether the application can decode a frame as it came, with what it was given.
    pub(super) fn allows(&self, meta: &FrameMeta) -> bool {
        self.kinds.takes(meta.encoding) && self.follower.allows(meta)
    }

    /// Notes that a frame is delivered to the application.
    pub(super) fn handed(&mut self, meta: &FrameMeta) {
        self.follower.note(meta);
    }

    /// Leaves the chain. Stills follow until another chain begins.
    pub(super) fn leave(&mut self) {
        self.follower.forget();
    }

    /// How often the application was too slow for a chain.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn is_inside(&self) -> bool {
        self.follower.chain().is_some()
    }

    /// The next of these frames, for a reader inside a chain.
    fn ahead(&self, unread: Unread<'_>, frames: Range<u64>) -> Option<u64> {
        let log = unread.log;
        let first = frames.start;
        let newest = match unread.deliver {
            Deliver::Every => None,
            Deliver::Newest => {
                // Frames before the beginning of a chain are not needed after it. Of successive stills, the
                // last one is enough.
                let begins = frames.clone().rev().find(|index| self.begins_chain(log, *index));
                let stills = frames
                    .clone()
                    .take_while(|index| is(log, *index, |meta| !meta.encoding.is_chained()))
                    .last();
                begins.or(stills).or_else(|| self.fresh(log, frames))
            }
        };
        let next = newest.unwrap_or(first);
        is(log, next, |meta| self.allows(meta)).then_some(next)
    }

    /// The first frame of a burst after a silence that is not overtaken, if it needs no frame before it in the burst.
    fn fresh(&self, log: &LogReader, mut frames: Range<u64>) -> Option<u64> {
        let fresh = frames.find(|index| !is_overtaken(log, *index))?;
        is(log, fresh, |meta| self.follower.allows(meta)).then_some(fresh)
    }

    /// The index at which a reader outside can enter a chain: the beginning of the newest chain,
    /// if that is recent. If every frame is wanted, the next frame, if a chain begins with it.
    fn entry(&self, unread: Unread<'_>, held: Range<u64>) -> Option<u64> {
        let Unread { log, next, last, deliver } = unread;
        let is_later = |index| is(log, index, |meta| last.is_none_or(|last| meta.id > last));
        let next = next.max(held.start);
        if deliver == Deliver::Every {
            return Some(next).filter(|next| self.begins_chain(log, *next) && is_later(*next));
        }
        let oldest = held.end.saturating_sub(ENTRY_FRAMES_MAX).max(next);
        let mut begins = (oldest..held.end).rev();
        let to = begins.find(|index| self.begins_chain(log, *index) && is_later(*index))?;
        (!newer_follows(log, to..held.end)).then_some(to)
    }

    fn begins_chain(&self, log: &LogReader, index: u64) -> bool {
        is(log, index, |meta| self.kinds.takes(meta.encoding) && begins_chain(meta))
    }
}

/// Whether all of these frames belong to a burst after a silence, and the newest frame of the burst is about to enter the log.
fn newer_follows(log: &LogReader, mut frames: Range<u64>) -> bool {
    frames.all(|index| is_overtaken(log, index))
}

fn is_overtaken(log: &LogReader, index: u64) -> bool {
    log.get(index).is_some_and(|record| record.is_overtaken())
}

fn is(log: &LogReader, index: u64, test: impl Fn(&FrameMeta) -> bool) -> bool {
    log.get(index).is_some_and(|record| test(&record.frame.meta))
}
