//! Knows the groups of an edge, and the task of each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use mez_core::group::MemberId;
use mez_core::group::members::{GroupKey, Groups};
use mez_core::units::Instant;
use tokio::sync::mpsc;

use super::command::Command;
use crate::edge::lock;

/// The groups, and the ways to the tasks of those that somebody was in since the edge was started.
#[derive(Default)]
pub(super) struct Known {
    pub(super) groups: Groups,
    pub(super) tasks: HashMap<GroupKey, mpsc::Sender<Command>>,
}

/// Whether a group goes on without a member that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Without {
    /// Others are in it.
    Others,
    /// Nobody is in it. Its place is kept.
    Nobody,
    /// It is over: nobody is in it, and it has no place.
    Over,
}

/// What is shared by the tasks of groups and those who want something of them.
#[derive(Default)]
pub(super) struct Registry(Mutex<Known>);

impl Registry {
    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }

    /// A member has left, or did not come back in time.
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
