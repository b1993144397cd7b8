//! Where records of a log are missing: the record behind the hole says so, in the words of any other gap.

use std::sync::Arc;

use crate::frame::{FrameId, Sequence, SkipRange, SkipReason};
use crate::log::Record;

/// The frames between `last`, the record before, and this one of which this one says nothing. Of two epochs, those of the later one.
pub(super) fn unexplained(last: FrameId, record: &Record) -> Option<(Sequence, u64)> {
    let id = record.frame.meta.id;
    let first = if last.epoch == id.epoch { Sequence(last.sequence.0 + 1) } else { Sequence(0) };
    let said = record.skipped.first().map_or(id.sequence, |range| range.first.max(first));
    let count = said.0.saturating_sub(first.0);
    (count > 0).then_some((first, count))
}

/// Lets `record` state that what is missing between `last` and it is damaged.
pub(super) fn state(last: Option<FrameId>, record: &mut Record) {
    if let Some((first, count)) = last.and_then(|last| unexplained(last, record)) {
        let lost = SkipRange { first, count, reason: SkipReason::Damaged };
        record.skipped = std::iter::once(lost).chain(record.skipped.iter().copied()).collect::<Arc<_>>();
    }
}
