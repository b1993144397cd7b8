//! Knows in which epochs an edge cannot have frames of another start of the camera.

use std::collections::VecDeque;

use crate::broker::EdgeIndex;
use crate::frame::Epoch;

/// The most epochs that are remembered as accepted by an edge. Frames of older epochs are no longer given to that edge.
const ACCEPTED_MAX: usize = 64;

/// Which epochs belong to this start of the camera.
#[derive(Default)]
pub(super) struct OwnEpochs {
    /// Epochs from this one up to the present one may have been used by another start of this camera too. Two frames may then have the same identity.
    doubtful_from: Option<Epoch>,
    /// Epochs in which an edge has welcomed this start, the latest last. There, these epochs belong to no
    /// other start.
    accepted: VecDeque<(EdgeIndex, Epoch)>,
}

impl OwnEpochs {
    /// An edge has welcomed the camera with this epoch.
    pub(super) fn handle_accepted(&mut self, edge: EdgeIndex, epoch: Epoch) {
        self.accepted.retain(|known| *known != (edge, epoch));
        self.accepted.push_back((edge, epoch));
        if self.accepted.len() > ACCEPTED_MAX {
            self.accepted.pop_front();
        }
    }

    /// An edge has frames of this epoch from another start.
    pub(super) fn handle_taken(&mut self, edge: EdgeIndex, epoch: Epoch) {
        self.accepted.retain(|known| *known != (edge, epoch));
    }

    /// The present epoch was too low: another start may have used it.
    pub(super) fn handle_raised(&mut self, used: Epoch) {
        self.doubtful_from = Some(self.doubtful_from.map_or(used, |from| from.min(used)));
    }

    /// Whether this edge may have a frame of another start with the same identity. `present` is the epoch in
    /// use.
    pub(super) fn is_doubtful(&self, epoch: Epoch, present: Epoch, edge: Option<EdgeIndex>) -> bool {
        let raised = epoch < present && self.doubtful_from.is_some_and(|from| epoch >= from);
        raised && !edge.is_some_and(|edge| self.accepted.contains(&(edge, epoch)))
    }
}
