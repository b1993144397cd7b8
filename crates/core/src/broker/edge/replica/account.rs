//! The account of frames that arrived and are not in a log: the camera tells of what it skipped only once.

use crate::frame::{Epoch, FrameId, Sequence, SkipRange, SkipReason};
use crate::wire::{FrameHeader, SKIP_RANGES_MAX};

/// What is known of frames that are not in a log, since the last one that is.
#[derive(Default)]
pub(super) struct Account {
    /// Frames that arrived and are not in it, with what their headers said of others. In order, without overlap.
    unshown: Vec<SkipRange>,
    /// Of which epoch those are.
    epoch: Option<Epoch>,
}

impl Account {
    /// A frame is not shown, for a reason; what its header said of others is kept.
    pub(super) fn not_shown(&mut self, header: &FrameHeader, reason: SkipReason) {
        let id = header.meta.id;
        self.note(id, &header.skipped);
        self.add(SkipRange { first: id.sequence, count: 1, reason });
        // The oldest then count as late or lost.
        let surplus = self.unshown.len().saturating_sub(SKIP_RANGES_MAX);
        self.unshown.drain(..surplus);
    }

    /// A frame is shown: what was skipped before it, as far as it is known.
    pub(super) fn shown(&mut self, id: FrameId, told: &[SkipRange]) -> Vec<SkipRange> {
        self.note(id, told);
        // Frames that were sent after this one may have come and gone before it.
        let (later, end) = (id.sequence.next(), Sequence(u64::MAX));
        let rest = self.unshown.iter().filter_map(|range| range.clipped(later, end)).collect();
        let unshown = std::mem::replace(&mut self.unshown, rest);
        unshown.into_iter().filter_map(|range| range.clipped(Sequence(0), id.sequence)).collect()
    }

    /// Takes in what a header says. Headers may come in another order than they were written, and a later one may know more.
    pub(super) fn note(&mut self, id: FrameId, told: &[SkipRange]) {
        if self.epoch.replace(id.epoch) != Some(id.epoch) {
            self.unshown.clear();
        }
        let told = told.iter().filter_map(|range| range.clipped(Sequence(0), id.sequence));
        told.for_each(|range| self.add(range));
    }

    /// Adds the part of a range that is not known yet.
    fn add(&mut self, range: SkipRange) {
        let mut from = range.first;
        let mut parts = Vec::new();
        for known in
            self.unshown.iter().filter(|known| known.end() > range.first && known.first < range.end())
        {
            parts.extend(range.clipped(from, known.first));
            from = from.max(known.end());
        }
        parts.extend(range.clipped(from, range.end()));
        for part in parts {
            let at = self.unshown.partition_point(|known| known.first < part.first);
            // Parts lie between those that are known, so none says of a frame what another says of it.
            debug_assert!(
                self.unshown.get(at).is_none_or(|next| part.end() <= next.first),
                "a frame is accounted for twice"
            );
            match at.checked_sub(1).map(|before| &mut self.unshown[before]) {
                Some(before) if before.end() == part.first && before.reason == part.reason => {
                    before.count += part.count;
                }
                _ => self.unshown.insert(at, part),
            }
        }
    }
}
