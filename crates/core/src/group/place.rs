//! Holds how far a group has come, as changes that can be written down and applied again.
//!
//! The place of a group must survive a restart of the edge. For each camera it has the last record that was given, and
//! the earlier records that are not settled. It has no other state, so a journal of [`Change`]s is enough to restore it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::types::{Change, End, MemberId};
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::subscription::LastFrame;

/// How far a group has come with each camera.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    lanes: BTreeMap<CameraName, Lane>,
    /// How many records of all lanes are open. The sum is read far more often than it changes.
    open: usize,
}

/// How far a group has come with one camera.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lane {
    /// The newest record that was given. No record up to this one is given for the first time again.
    given: FrameId,
    /// Records that were given and are not settled. Each has the members that it was given to, in order.
    open: BTreeMap<FrameId, Vec<MemberId>>,
}

impl Place {
    /// The place of a new group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a change. A record is settled once: later changes of a settled record are ignored.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Given { camera, frame, member } => {
                let lane = match self.lanes.entry(camera.clone()) {
                    Entry::Occupied(lane) => lane.into_mut(),
                    Entry::Vacant(none) => none.insert(Lane { given: *frame, open: BTreeMap::new() }),
                };
                let is_new = *frame >= lane.given && !lane.open.contains_key(frame);
                lane.given = lane.given.max(*frame);
                match lane.open.entry(*frame) {
                    Entry::Occupied(mut holders) => holders.get_mut().push(*member),
                    Entry::Vacant(none) if is_new => {
                        none.insert(vec![*member]);
                        self.open += 1;
                    }
                    Entry::Vacant(_) => {}
                }
            }
            Change::Settled { camera, frame, .. } => {
                let lane = self.lanes.get_mut(camera);
                self.open -= usize::from(lane.is_some_and(|lane| lane.open.remove(frame).is_some()));
            }
            Change::Forgotten { camera } => {
                self.open -= self.lanes.remove(camera).map_or(0, |lane| lane.open.len());
            }
        }
    }

    /// The shortest journal that leads to this place. It replaces a long journal.
    pub fn changes(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (camera, lane) in &self.lanes {
            for (frame, holders) in &lane.open {
                let given = |member: &MemberId| Change::Given {
                    camera: camera.clone(),
                    frame: *frame,
                    member: *member,
                };
                changes.extend(holders.iter().map(given));
            }
            if !lane.open.contains_key(&lane.given) {
                let (camera, frame, nobody) = (camera.clone(), lane.given, MemberId(0));
                changes.push(Change::Given { camera: camera.clone(), frame, member: nobody });
                changes.push(Change::Settled { camera, frame, end: End::Done(nobody) });
            }
        }
        changes
    }

    /// The last given record of each camera. The group continues after these records.
    pub fn after(&self) -> impl Iterator<Item = (CameraName, LastFrame)> {
        self.lanes.iter().map(|(camera, lane)| (camera.clone(), LastFrame { id: lane.given, captured: None }))
    }

    /// Records that were given and are not settled, the oldest of each camera first.
    pub fn open(&self) -> impl Iterator<Item = (&CameraName, FrameId)> {
        self.lanes.iter().flat_map(|(camera, lane)| lane.open.keys().map(move |frame| (camera, *frame)))
    }

    /// Whether a record of this camera is not settled.
    pub fn has_open(&self, camera: &CameraName) -> bool {
        self.lanes.get(camera).is_some_and(|lane| !lane.open.is_empty())
    }

    /// How many records are not settled.
    pub fn open_count(&self) -> usize {
        debug_assert_eq!(
            self.open,
            self.lanes.values().map(|lane| lane.open.len()).sum::<usize>(),
            "the sum is that of all lanes"
        );
        self.open
    }

    /// The members that an unsettled record was given to, in order. Empty for any other record.
    pub fn holders(&self, camera: &CameraName, frame: FrameId) -> &[MemberId] {
        let holders = self.lanes.get(camera).and_then(|lane| lane.open.get(&frame));
        holders.map_or(&[], Vec::as_slice)
    }

    /// Whether this record, or a newer one of its camera, was given.
    pub fn has_passed(&self, camera: &CameraName, frame: FrameId) -> bool {
        self.lanes.get(camera).is_some_and(|lane| frame <= lane.given)
    }
}
