//! Knows the groups of an edge, and the task of each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use mez_core::group::MemberId;
use mez_core::group::members::{GroupKey, Groups};
use mez_core::units::Instant;
use tokio::sync::mpsc;

use super::command::Command;
use crate::edge::lock;

/// The groups, and the command channels of groups that had a member since the edge started.
#[derive(Default)]
pub(super) struct Known {
    pub(super) groups: Groups,
    pub(super) tasks: HashMap<GroupKey, mpsc::Sender<Command>>,
}

/// What becomes of a group after a member has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// The group has other members.
    Others,
    /// The group has no members. Its place is kept.
    Nobody,
    /// The group has no members and no place: it ends.
    Over,
}

/// The registry that the tasks of groups and their callers share.
#[derive(Default)]
pub(super) struct Registry(Mutex<Known>);

impl Registry {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// Removes a member that has left, or did not come back in time.
    pub(super) fn leave(&self, now: Instant, key: &GroupKey, member: MemberId) -> Without {
        let mut known = self.lock();
        if !known.groups.leave(now, key, member) {
            return Without::Others;
        }
        if known.groups.all().any(|(other, ..)| other == key) {
            return Without::Nobody;
        }
        known.tasks.remove(key);
        Without::Over
    }
}
