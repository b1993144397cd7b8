//! States where records of a log are missing: the record behind a hole lists them, like any other gap, as
//! skipped frames.

use std::sync::Arc;

use crate::frame::{FrameId, Sequence, SkipRange, SkipReason};
use crate::log::Record;

/// The frames between `last` (the record before) and `record` that `record` does not list as skipped: the
/// first one, and how many. If the two are of different epochs, these are frames of the later epoch.
pub(super) fn unexplained(last: FrameId, record: &Record) -> Option<(Sequence, u64)> {
    let id = record.frame.meta.id;
    let first = if last.epoch == id.epoch { Sequence(last.sequence.0 + 1) } else { Sequence(0) };
    let said = record.skipped.first().map_or(id.sequence, |range| range.first.max(first));
    let count = said.0.saturating_sub(first.0);
    (count > 0).then_some((first, count))
}

/// Makes `record` list the missing frames between `last` and `record` as damaged.
pub(super) fn state(last: Option<FrameId>, record: &mut Record) {
    if let Some((first, count)) = last.and_then(|last| unexplained(last, record)) {
        let lost = SkipRange { first, count, reason: SkipReason::Damaged };
        record.skipped = std::iter::once(lost).chain(record.skipped.iter().copied()).collect::<Arc<_>>();
    }
}
