//! Counts what has become of a group's records.
//!
//! Every record that was given is open, done, a dead letter, or lost with a reason. The numbers are those since the edge
//! was started; records that were open then count as given.

use std::collections::{BTreeMap, VecDeque};

use super::types::{Change, End, Failure, LostReason};
use crate::frame::FrameId;
use crate::name::CameraName;

/// The most dead letters that are kept. They are all counted.
pub const DEAD_LETTERS_MAX: usize = 100;

/// What has become of a group's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records that were given for the first time, and those that were open at the start.
    pub given: u64,
    /// How often one was given again.
    pub given_again: u64,
    /// Records whose work was done.
    pub done: u64,
    /// How often a record was acknowledged that had ended before: its work was done twice, or too late.
    pub again: u64,
    /// Tries that a member ended with an error.
    pub failed: u64,
    /// Tries whose member said nothing in time.
    pub silent: u64,
    /// Tries whose member left, or lost its connection and did not come back in time.
    pub left: u64,
    /// Records that nobody could work on.
    pub dead: u64,
    /// Records that were lost, by reason.
    pub lost: BTreeMap<LostReason, u64>,
    /// The newest dead letters, the oldest of them first.
    pub dead_letters: VecDeque<DeadLetter>,
}

/// A record that was given as often as it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Whose record.
    pub camera: CameraName,
    /// Which.
    pub frame: FrameId,
    /// How often it was given.
    pub tries: usize,
    /// How the last try ended.
    pub last: Failure,
}

/// What one member has done, since it joined last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberAccount {
    /// Records that it was given.
    pub given: u64,
    /// Those that it has settled.
    pub done: u64,
    /// Those that it failed at, or did not settle in time.
    pub failed: u64,
}

impl Account {
    /// The account of a group that goes on with so many open records.
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

    /// Whether every record is accounted for, if so many are open.
    pub fn is_complete(&self, open: usize) -> bool {
        self.given == self.done + self.dead + self.lost.values().sum::<u64>() + open as u64
    }
}
