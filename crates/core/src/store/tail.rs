//! What stands at the end of the newest segment: was it being written when the broker ended, or was it written and is damaged?
//!
//! A broker that is killed leaves the beginning of what it was writing, so a record that is cut short. A power cut leaves of what was not
//! durable anything, zeros among it. Only what is remembered outside of the log ([`Progress`]) tells either from a file that somebody
//! has cut, or from bytes that have rotted.

use super::format::{DamageKind, SEGMENT_HEADER_BYTES_MAX};
use super::scan::Damage;
use super::storage::Progress;

/// The most pieces of damage at the end of a segment that are looked at as such; of more, the first ones are damage.
pub(super) const TAIL_PIECES_MAX: usize = 1_024;

/// What bytes at the end of the newest segment are that make no whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// They were being written when the broker was killed or the power went, and nobody was told that they are there.
    Torn,
    /// They were there, and are not any more.
    Damaged,
}

/// What `damage` at the end of the newest segment is.
pub(super) fn judge_tail(progress: Option<&Progress>, damage: &Damage) -> Tail {
    let Some(progress) = progress else {
        // Whoever knows nothing of the log takes for torn only what a killed broker leaves.
        return if damage.kind == DamageKind::Cut { Tail::Torn } else { Tail::Damaged };
    };
    let was_there = damage.index < progress.reached();
    // Where there was no power cut, all bytes of a record are those that were written. A writer whose segments come to nothing, since writes fail,
    // remembers that as well; what stands here is then of a writer before it, and there may have been a power cut between the two.
    let may_be_torn = progress.written.is_none() || progress.segment > damage.segment;
    if was_there || !may_be_torn && damage.kind != DamageKind::Cut { Tail::Damaged } else { Tail::Torn }
}

/// Whether a newest segment whose header is torn had only just been begun: nothing in it was said to be there. `end` is the index
/// after the newest record before it.
pub(super) fn was_just_begun(progress: Option<&Progress>, end: u64, bytes: u64) -> bool {
    match progress {
        Some(progress) => progress.reached() <= end,
        None => bytes <= SEGMENT_HEADER_BYTES_MAX as u64,
    }
}

#[cfg(all(test, not(loom)))]
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
