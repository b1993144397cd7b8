//! Counts a group's records by how they ended.
//!
//! Every record that was given is open, done, a dead letter, or lost with a reason. The numbers
//! count since the start of the edge. Records that were open at the start count as given.

use std::collections::{BTreeMap, VecDeque};

use super::types::{Change, End, Failure, LostReason};
use crate::frame::FrameId;
use crate::name::CameraName;

/// The most dead letters that are kept. The counts include all of them.
pub const DEAD_LETTERS_MAX: usize = 100;

/// The counts of a group's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records that were given for the first time, and records that were open at the start.
    pub given: u64,
    /// How often records were given again.
    pub given_again: u64,
    /// Records whose work was done.
    pub done: u64,
    /// How often a record was acknowledged that had already ended: its work was done twice, or too late.
    pub again: u64,
    /// Tries that a member ended with an error.
    pub failed: u64,
    /// Tries whose member said nothing in time.
    pub silent: u64,
    /// Tries whose member left, or lost its connection and did not come back in time.
    pub left: u64,
    /// Records that ended as dead letters.
    pub dead: u64,
    /// Lost records, by reason.
    pub lost: BTreeMap<LostReason, u64>,
    /// The newest dead letters, the oldest of them first.
    pub dead_letters: VecDeque<DeadLetter>,
}

/// A record that was given as often as allowed, without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record's camera.
    pub camera: CameraName,
    /// The record's frame.
    pub frame: FrameId,
    /// How often it was given.
    pub tries: usize,
    /// How the last try ended.
    pub last: Failure,
}

/// The counts of one member, since it last joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberAccount {
    /// Records that it was given.
    pub given: u64,
    /// Records that it has settled as done.
    pub done: u64,
    /// Records that it failed at, or did not settle in time.
    pub failed: u64,
}

impl Account {
    /// The account of a group that continues with `open` open records.
    pub(super) fn resumed(open: usize) -> Self {
        Self { given: open as u64, ..Self::default() }
    }

    pub(super) fn count_failure(&mut self, failure: &Failure) {
        match failure {
            Failure::Told(_) => self.failed += 1,
            Failure::Silent => self.silent += 1,
            Failure::Left => self.left += 1,
        }
    }

    /// Counts how a record ends.
    pub(super) fn apply(&mut self, change: &Change) {
        let Change::Settled { camera, frame, end } = change else { return };
        match end {
            End::Done(_) => self.done += 1,
            End::Lost(reason) => *self.lost.entry(*reason).or_default() += 1,
            End::Dead { tries, last } => {
                self.dead += 1;
                if self.dead_letters.len() == DEAD_LETTERS_MAX {
                    self.dead_letters.pop_front();
                }
                let (camera, frame, tries, last) = (camera.clone(), *frame, *tries, last.clone());
                self.dead_letters.push_back(DeadLetter { camera, frame, tries, last });
            }
        }
    }

    /// Whether every record is accounted for, if `open` records are open.
    pub fn is_complete(&self, open: usize) -> bool {
        self.given == self.done + self.dead + self.lost.values().sum::<u64>() + open as u64
    }
}
