//! How far a camera's epoch is believed ([decision 0018](../../../../docs/decisions/0018-bounded-epochs.md)).
//!
//! An epoch only ever rises, so one number near the end would be the last of its camera: nothing could come after it. Neither side
//! takes more than a bounded step at the other's word.

use std::collections::BTreeMap;

use crate::frame::Epoch;
use crate::name::CameraName;

/// The highest epoch that anybody is believed, 2⁶². As many numbers lie beyond it, so that whatever was believed can be followed.
pub const EPOCH_MAX: Epoch = Epoch(1 << 62);
/// Up to here, 2³², an epoch is believed of whoever comes: a camera that starts once a second gets there in 136 years.
pub const EPOCH_BASE: Epoch = Epoch(1 << 32);
/// Beyond [`EPOCH_BASE`], how far one claim of a camera may lie above the highest that its edge knows, 2²⁴: a camera that starts once a second, and
/// is heard of after 194 days. A claim that is refused moves the bound by as much, so that a camera which another edge has brought further gets in after a few
/// attempts. Whoever wants to use up all numbers needs 2³⁸ connections: at a thousand a second, eight years.
pub const EPOCH_JUMP_MAX: u64 = 1 << 24;
/// How far an edge may raise the epoch of a camera at once, 2⁴⁸: as far as a thief of its identity can have brought the edge with sixteen
/// million connections.
pub const EPOCH_RAISE_MAX: u64 = 1 << 48;
/// Cameras of which an edge remembers how far it believes them, besides those that it knows.
const CLAIMS_MAX: usize = 256;

/// The highest epoch that is believed in one step of `step`, of a camera of which `known` is the highest.
pub fn highest_believed(known: Epoch, step: u64) -> Epoch {
    Epoch(known.max(EPOCH_BASE).0.saturating_add(step)).min(EPOCH_MAX)
}

/// How far an edge believes cameras, beyond what it knows of them.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<CameraName, Epoch>);

impl Claims {
    /// Whether a camera of which `known` is the highest epoch may claim this one. A claim that goes too far moves the bound by one step.
    pub(super) fn admits(&mut self, camera: &CameraName, known: Epoch, claimed: Epoch) -> bool {
        let moved = self.0.get(camera).copied().unwrap_or_default();
        let bound = highest_believed(known.max(moved), EPOCH_JUMP_MAX);
        if claimed > bound {
            self.remember(camera, bound);
        }
        claimed <= bound
    }

    /// The next start of a camera is believed as far as a camera would follow it: a thief that comes first keeps nobody out.
    pub(super) fn vouch(&mut self, camera: &CameraName) {
        let followed = highest_believed(Epoch::default(), EPOCH_RAISE_MAX);
        self.remember(camera, Epoch(followed.0 - EPOCH_JUMP_MAX));
    }

    /// A start was taken in: from now on its own epoch is what counts.
    pub(super) fn settled(&mut self, camera: &CameraName) {
        self.0.remove(camera);
    }

    fn remember(&mut self, camera: &CameraName, bound: Epoch) {
        if self.0.len() >= CLAIMS_MAX && !self.0.contains_key(camera) {
            // It costs the camera that is forgotten a few attempts.
            self.0.pop_first();
        }
        self.0.insert(camera.clone(), bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn camera(number: usize) -> CameraName {
        format!("dock/cam{number}").parse().unwrap()
    }

    #[test]
    fn a_claim_moves_the_bound_by_one_step_whether_or_not_it_is_taken() {
        let (mut claims, camera) = (Claims::default(), camera(1));
        let first = highest_believed(Epoch(0), EPOCH_JUMP_MAX);
        assert_eq!(first, Epoch((1 << 32) + (1 << 24)));
        assert!(!claims.admits(&camera, Epoch(0), Epoch(first.0 + 1)));
        assert!(claims.admits(&camera, Epoch(0), Epoch(first.0 + 1)), "it persisted");
        assert!(!claims.admits(&camera, Epoch(0), Epoch(first.0 + EPOCH_JUMP_MAX + 1)));
        claims.settled(&camera);
        assert!(!claims.admits(&camera, Epoch(7), Epoch(first.0 + 1)), "a later claim begins anew");
    }

    #[test]
    fn nobody_is_believed_beyond_the_highest() {
        let (mut claims, camera) = (Claims::default(), camera(1));
        claims.vouch(&camera);
        let followed = highest_believed(Epoch(0), EPOCH_RAISE_MAX);
        assert!(claims.admits(&camera, Epoch(0), followed), "a camera that knows nothing follows this");
        assert!(!claims.admits(&camera, Epoch(0), Epoch(followed.0 + 1)));
        for _ in 0..3 {
            assert!(!claims.admits(&camera, EPOCH_MAX, Epoch(EPOCH_MAX.0 + 1)));
        }
        assert_eq!(highest_believed(Epoch(u64::MAX), u64::MAX), EPOCH_MAX);
    }

    #[test]
    fn what_is_remembered_of_cameras_that_are_not_known_is_bounded() {
        let mut claims = Claims::default();
        for number in 0..2 * CLAIMS_MAX {
            assert!(!claims.admits(&camera(number), Epoch(0), EPOCH_MAX));
        }
        assert_eq!(claims.0.len(), CLAIMS_MAX);
    }
}
