//! Remembers the last epoch and the owner of each derived stream.

use std::collections::BTreeMap;

use mez_core::broker::edge::Deriving;
use mez_core::frame::Epoch;
use mez_core::name::CameraName;

use crate::world::bug::Bug;

/// The state of derived streams, which outlives a process even without logs on disk.
#[derive(Default)]
pub(super) struct DerivedStates {
    kept: BTreeMap<CameraName, (Epoch, Deriving)>,
}

impl DerivedStates {
    /// Begins the next epoch of a stream.
    pub(super) fn begin(
        &mut self,
        stream: &CameraName,
        deriving: &Deriving,
        above: Epoch,
        bug: Option<Bug>,
    ) -> Epoch {
        let last = self.kept.get(stream).map_or(Epoch(0), |(epoch, _)| *epoch);
        let last = if bug == Some(Bug::StreamEpochForgotten) { Epoch(0) } else { last };
        let epoch = Epoch(above.max(last).0 + 1);
        self.kept.insert(stream.clone(), (epoch, deriving.clone()));
        epoch
    }

    /// The owner and the sources of a stream on disk. `None`: it is a camera.
    pub(super) fn remembered(&self, name: &CameraName, bug: Option<Bug>) -> Option<Deriving> {
        let kept = self.kept.get(name).filter(|_| bug != Some(Bug::StreamTakenForCamera));
        kept.map(|(_, deriving)| deriving.clone())
    }
}
