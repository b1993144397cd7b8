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
    // Where there was no power cut, all bytes of a record are those that were written.
    let by_kill = progress.written.is_none() || damage.kind == DamageKind::Cut;
    if was_there || !by_kill { Tail::Damaged } else { Tail::Torn }
}

/// Whether a newest segment whose header is torn had only just been begun: nothing in it was said to be there. `end` is the index
/// after the newest record before it.
pub(super) fn was_just_begun(progress: Option<&Progress>, end: u64, bytes: u64) -> bool {
    match progress {
        Some(progress) => progress.reached() <= end,
        None => bytes <= SEGMENT_HEADER_BYTES_MAX as u64,
    }
}
