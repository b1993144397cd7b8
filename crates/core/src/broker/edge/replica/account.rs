//! Accounts for frames that arrived but are not in a log. The camera reports each skip only once, so the skips in their headers are kept here.

use crate::frame::{Epoch, FrameId, Sequence, SkipRange, SkipReason};
use crate::wire::SKIP_RANGES_MAX;

/// What is known of the frames that are not in a log, since the last frame that is.
#[derive(Default)]
pub(super) struct Account {
    /// Frames that arrived and are not in the log, with the skips that their headers reported. In order,
    /// without overlap.
    unshown: Vec<SkipRange>,
    /// The epoch of these frames.
    epoch: Option<Epoch>,
}

impl Account {
    /// Whether no such frame is known.
    pub(super) fn is_empty(&self) -> bool {
        self.unshown.is_empty()
    }

    /// Notes that a frame does not enter the log, and why. Keeps the skips that its header reported (`told`).
    pub(super) fn not_held(&mut self, id: FrameId, told: &[SkipRange], reason: SkipReason) {
        self.note(id, told);
        self.add(SkipRange { first: id.sequence, count: 1, reason });
        // Frames of the dropped ranges count as late or lost.
        let surplus = self.unshown.len().saturating_sub(SKIP_RANGES_MAX);
        self.unshown.drain(..surplus);
    }

    /// Notes that a frame enters the log. Returns the known skips before it.
    pub(super) fn shown(&mut self, id: FrameId, told: &[SkipRange]) -> Vec<SkipRange> {
        self.note(id, told);
        // Frames that were sent after this one may have arrived earlier.
        let (later, end) = (id.sequence.next(), Sequence(u64::MAX));
        let rest = self.unshown.iter().filter_map(|range| range.clipped(later, end)).collect();
        let unshown = std::mem::replace(&mut self.unshown, rest);
        unshown.into_iter().filter_map(|range| range.clipped(Sequence(0), id.sequence)).collect()
    }

    /// Notes the skips that a header reports. Headers may arrive out of order, and a later header may report more.
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
            // Parts are added only between known ones, so no two ranges cover the same frame.
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
