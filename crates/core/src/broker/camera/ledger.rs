//! Keeps the account of frames that will not reach the edge, as ranges with reasons.

use std::collections::VecDeque;

use crate::frame::{Sequence, SkipRange, SkipReason};
use crate::wire::SKIP_RANGES_MAX;

/// Ranges of skipped frames since the last frame that the edge has acknowledged, in order,
/// without overlap. Every header carries all ranges, so the loss of a frame loses none of them.
#[derive(Debug, Default)]
pub(super) struct SkipLedger {
    ranges: VecDeque<SkipRange>,
}

impl SkipLedger {
    /// Notes a skipped frame. Frames come in any order, because a frame that is being sent may be given up late.
    pub(super) fn add(&mut self, sequence: Sequence, reason: SkipReason) {
        let at = self.ranges.partition_point(|range| range.first < sequence);
        if at > 0 && self.ranges[at - 1].end() > sequence
            || self.ranges.get(at).is_some_and(|range| range.first == sequence)
        {
            return;
        }
        self.ranges.insert(at, SkipRange { first: sequence, count: 1, reason });
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
        while self.ranges.len() > SKIP_RANGES_MAX {
            self.merge_narrowest();
        }
        self.assert_ordered();
    }

    /// Forgets the ranges up to a frame that the edge has, because its header has told them. A range may
    /// reach beyond the frame, if the frame was on its way when the link was lost, and arrived all the same.
    pub(super) fn acknowledged(&mut self, sequence: Sequence) {
        let after = Sequence(sequence.0.saturating_add(1));
        while let Some(range) = self.ranges.pop_front_if(|range| range.first < after) {
            if let Some(rest) = range.clipped(after, range.end()) {
                self.ranges.push_front(rest);
            }
        }
        self.assert_ordered();
    }

    /// Forgets everything: a new epoch begins.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The ranges before `sequence`.
    pub(super) fn before(&self, sequence: Sequence) -> Vec<SkipRange> {
        self.ranges.iter().copied().filter(|range| range.first < sequence).collect()
    }

    /// Asserts that the ranges are in order: frames are never inserted inside a range, and only neighbours are joined.
    fn assert_ordered(&self) {
        let mut pairs = self.ranges.iter().zip(self.ranges.iter().skip(1));
        debug_assert!(self.ranges.len() <= SKIP_RANGES_MAX, "a header has no room for so many ranges");
        debug_assert!(pairs.all(|(one, next)| one.end() <= next.first), "ranges overlap: {:?}", self.ranges);
    }

    /// Joins the range at `at` with the next one if they touch and agree.
    fn join(&mut self, at: usize) {
        if let (Some(&a), Some(&b)) = (self.ranges.get(at), self.ranges.get(at + 1))
            && a.end() == b.first
            && a.reason == b.reason
        {
            self.ranges[at].count += b.count;
            self.ranges.remove(at + 1);
        }
    }

    /// Makes room: the smaller of two touching ranges takes the reason of the other. If no two
    /// ranges touch, the oldest is dropped, and the edge counts its frames as late or lost.
    fn merge_narrowest(&mut self) {
        let touching = (0..self.ranges.len() - 1)
            .filter(|&at| self.ranges[at].end() == self.ranges[at + 1].first)
            .min_by_key(|&at| self.ranges[at].count.min(self.ranges[at + 1].count));
        match touching {
            Some(at) => {
                let next = self.ranges.remove(at + 1).expect("at + 1 is within the ranges");
                let range = &mut self.ranges[at];
                if next.count > range.count {
                    range.reason = next.reason;
                }
                range.count += next.count;
            }
            None => {
                self.ranges.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_in_any_order_of_arrival() {
        let mut ledger = SkipLedger::default();
        for sequence in [5, 3, 4, 9, 4] {
            ledger.add(Sequence(sequence), SkipReason::LinkBusy);
        }
        let range = |first, count| SkipRange { first: Sequence(first), count, reason: SkipReason::LinkBusy };
        assert_eq!(ledger.before(Sequence(100)), [range(3, 3), range(9, 1)]);
        ledger.acknowledged(Sequence(7));
        assert_eq!(ledger.before(Sequence(100)), [range(9, 1)]);
    }

    #[test]
    fn what_lies_beyond_an_acknowledged_frame_is_kept() {
        let mut ledger = SkipLedger::default();
        for sequence in 3..9 {
            ledger.add(Sequence(sequence), SkipReason::LinkDown);
        }
        ledger.acknowledged(Sequence(5));
        let rest = SkipRange { first: Sequence(6), count: 3, reason: SkipReason::LinkDown };
        assert_eq!(ledger.before(Sequence(100)), [rest]);
    }

    #[test]
    fn the_ledger_is_bounded_and_loses_no_frame_while_ranges_touch() {
        let mut ledger = SkipLedger::default();
        for sequence in 0..1000 {
            let reason = if sequence % 2 == 0 { SkipReason::LinkBusy } else { SkipReason::LinkDown };
            ledger.add(Sequence(sequence), reason);
        }
        let ranges = ledger.before(Sequence(5000));
        assert!(ranges.len() <= SKIP_RANGES_MAX);
        assert_eq!(ranges.iter().map(|range| range.count).sum::<u64>(), 1000);
    }
}
