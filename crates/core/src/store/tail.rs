//! Decides what incomplete bytes at the end of the newest segment are: a write that the end of the broker
//! interrupted, or damage.
//!
//! A killed broker leaves the beginning of the record that it was writing. A power cut can leave anything in
//! place of records that were not durable, including zeros. Only the progress that is remembered outside of
//! the log ([`Progress`]) distinguishes these two from a file that was cut short, and from bytes that rotted.

use super::format::{DamageKind, SEGMENT_HEADER_BYTES_MAX};
use super::scan::Damage;
use super::storage::Progress;

/// The most pieces of damage at the end of a segment that are judged as its tail. If there
/// are more, the first ones count as damage. This limit bounds the memory of a check.
pub(super) const TAIL_PIECES_MAX: usize = 1_024;

/// What incomplete bytes at the end of the newest segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// They were being written when the broker was killed or the power was cut. Nobody was told that they are on disk.
    Torn,
    /// They were on disk before, and are lost.
    Damaged,
}

/// Judges `damage` at the end of the newest segment.
pub(super) fn judge_tail(progress: Option<&Progress>, damage: &Damage) -> Tail {
    let Some(progress) = progress else {
        // Without any progress, only the beginning of a record counts as torn, as a killed broker leaves it.
        return if damage.kind == DamageKind::Cut { Tail::Torn } else { Tail::Damaged };
    };
    let was_there = damage.index < progress.reached();
    // Without a power cut, the bytes of a record are as they were written. The progress may also come from a later start of the writer,
    // whose segments all failed. The bytes here are then from an earlier start, and there may have been a power cut in between.
    let may_be_torn = progress.written.is_none() || progress.segment > damage.segment;
    if was_there || !may_be_torn && damage.kind != DamageKind::Cut { Tail::Damaged } else { Tail::Torn }
}

/// Whether a newest segment with a torn header was only just created, so that no record in it counts as lost.
/// `end` is one past the index of the newest record before it.
pub(super) fn was_just_begun(progress: Option<&Progress>, end: u64, bytes: u64) -> bool {
    match progress {
        Some(progress) => progress.reached() <= end,
        None => bytes <= SEGMENT_HEADER_BYTES_MAX as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SegmentNumber;

    #[test]
    fn what_a_power_cut_tore_is_not_damage_to_the_start_after_one_whose_writes_failed() {
        let judged = |segment: u64, written: Option<u64>, index: u64| {
            let progress = Progress { segment: SegmentNumber(segment), durable: 22, written };
            let (offset, bytes, until) = (13_875, 156, None);
            let kind = DamageKind::Torn;
            let damage = Damage { segment: SegmentNumber(0), index, offset, bytes, kind, until };
            judge_tail(Some(&progress), &damage)
        };
        assert_eq!(judged(0, None, 22), Tail::Torn, "the start after the power cut");
        assert_eq!(judged(3, Some(22), 22), Tail::Torn, "that one wrote nothing, and another came");
        assert_eq!(
            judged(0, Some(22), 22),
            Tail::Damaged,
            "the writer was killed: its bytes are as it wrote them"
        );
        assert_eq!(judged(3, Some(23), 22), Tail::Damaged, "it had been handed over");
        assert_eq!(judged(3, None, 21), Tail::Damaged, "it had been durable");
    }
}
