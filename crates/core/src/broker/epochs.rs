//! Bounds how far a camera's epoch is believed ([decision
//! 0018](../../../../docs/decisions/0018-bounded-epochs.md)).
//!
//! An epoch only ever rises, so a camera with an epoch near the highest number could never start again.
//! Neither side accepts more than a bounded step from the other.

use std::collections::BTreeMap;

use crate::frame::Epoch;
use crate::name::CameraName;

/// The highest epoch that is ever believed, 2⁶². As many numbers lie above it, so every believed epoch can have a successor.
pub const EPOCH_MAX: Epoch = Epoch(1 << 62);
/// Up to this epoch, 2³², any camera is believed. A camera that starts once a second reaches it after 136 years.
pub const EPOCH_BASE: Epoch = Epoch(1 << 32);
/// Above [`EPOCH_BASE`], a claim of a camera may lie at most this far, 2²⁴, above the highest epoch that its edge knows. A camera that
/// starts once a second may be away for 194 days. A refused claim raises the bound by the same step, so a camera that used higher epochs
/// at another edge is accepted after a few attempts. To use up all numbers takes 2³⁸ connections: at a thousand a second, eight years.
pub const EPOCH_JUMP_MAX: u64 = 1 << 24;
/// The most by which an edge may raise the epoch of a camera at once, 2⁴⁸. A thief of
/// the camera's identity needs sixteen million connections to bring the edge this far.
pub const EPOCH_RAISE_MAX: u64 = 1 << 48;
/// The most unknown cameras for which an edge remembers a raised bound.
const CLAIMS_MAX: usize = 256;

/// The highest epoch that is believed, if `known` is the highest so far and `step` is the largest step.
pub fn highest_believed(known: Epoch, step: u64) -> Epoch {
    Epoch(known.max(EPOCH_BASE).0.saturating_add(step)).min(EPOCH_MAX)
}

/// The raised bounds of cameras, beyond the epochs that the edge knows.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<CameraName, Epoch>);

impl Claims {
    /// Whether a camera may claim this epoch, if `known` is its highest. A claim above the bound raises the bound by one step.
    pub(super) fn admits(&mut self, camera: &CameraName, known: Epoch, claimed: Epoch) -> bool {
        let moved = self.0.get(camera).copied().unwrap_or_default();
        let bound = highest_believed(known.max(moved), EPOCH_JUMP_MAX);
        if claimed > bound {
            self.remember(camera, bound);
        }
        claimed <= bound
    }

    /// Raises the bound for a camera's next start to the highest epoch that a camera would
    /// accept from an edge. So a thief that connects first cannot lock the camera out.
    pub(super) fn vouch(&mut self, camera: &CameraName) {
        let followed = highest_believed(Epoch::default(), EPOCH_RAISE_MAX);
        self.remember(camera, Epoch(followed.0 - EPOCH_JUMP_MAX));
    }

    /// Forgets the raised bound of a camera whose start was accepted: its own epoch counts from now on.
    pub(super) fn settled(&mut self, camera: &CameraName) {
        self.0.remove(camera);
    }

    fn remember(&mut self, camera: &CameraName, bound: Epoch) {
        if self.0.len() >= CLAIMS_MAX && !self.0.contains_key(camera) {
            // The forgotten camera needs a few more attempts.
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
