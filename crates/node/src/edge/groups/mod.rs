//! Groups of readers at an edge. Each group has a task that serves it, and members that each read a stream of it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | lets members in, forwards their reports, lists and forgets groups |
//! | `registry` | knows the groups and their tasks |
//! | `task` | serves one group: drives [`GroupSession`](mez_core::group::session::GroupSession) |
//! | `task/seats` | what connected members report, and what they are given |
//! | `member` | what a group and one stream of a member share |
//! | `bell` | names the members that a group must look at, and wakes it |
//! | `finding` | finds stills and frames of the past |
//! | `journal/` | keeps the places of groups on disk |
//! | `waits` | what tasks wait for |
//! | `command` | the commands of tasks, and their answers |

mod bell;
mod command;
mod finding;
mod journal;
mod member;
mod registry;
mod task;
mod waits;

use std::sync::Arc;

use mez_core::contract::monitor::TakenReport;
use mez_core::group::members::{Asks, GroupKey};
use mez_core::name::CameraName;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use self::command::Command;
pub use self::command::{
    GroupReport, GroupStanding, JoinFailure, Joining, SettledRecords, Settlement, Settlements,
};
pub(super) use self::journal::Journals;
pub use self::member::GroupMember;
pub(crate) use self::member::MemberReports;
use self::registry::{Known, Registry};
use self::task::GroupTask;
pub(super) use self::task::Tools;
use super::failure::Stopped;
use crate::clock::monotonic_now;

/// The length of a group's command queue. Senders wait if it is full.
const COMMANDS_MAX: usize = 256;

/// Why a group was not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgetGroupFailure {
    /// There is no such group.
    #[error("the group does not exist; see `mez groups`")]
    Unknown,
    /// The group has members.
    #[error("the group has members; end its members first, and wait a second")]
    InUse,
}

/// The groups of readers of an edge. Cheap to clone.
#[derive(Clone)]
pub(super) struct EdgeGroups {
    registry: Arc<Registry>,
    tools: Arc<Tools>,
}

impl EdgeGroups {
    /// Starts with the groups that have a place on disk.
    pub(super) fn new(tools: Tools, on_disk: Vec<(GroupKey, Asks)>) -> Self {
        let registry = Arc::<Registry>::default();
        for (key, asks) in on_disk {
            registry.lock().groups.restore(monotonic_now(), key, asks);
        }
        Self { registry, tools: Arc::new(tools) }
    }

    /// Lets a member into a group. A new group begins.
    pub(super) async fn join(&self, joining: Joining) -> Result<GroupMember, JoinFailure> {
        self.forget_stale().await;
        loop {
            let answered = self.ask_to_join(&joining).await?;
            match answered.await {
                Ok(joined) => return joined,
                Err(_) if *self.tools.stop.borrow() => return Err(Stopped.into()),
                // The group ended meanwhile; the next attempt begins it anew.
                Err(_) => {}
            }
        }
    }

    async fn ask_to_join(
        &self,
        joining: &Joining,
    ) -> Result<oneshot::Receiver<Result<GroupMember, JoinFailure>>, JoinFailure> {
        let key = &joining.key;
        loop {
            let found = self.registry.lock().tasks.get(key).cloned();
            let way = match found {
                Some(task) => match task.clone().reserve_owned().await {
                    Ok(permit) => Some((task, permit)),
                    Err(_) => {
                        self.drop_ended(key, &task);
                        continue;
                    }
                },
                None => None,
            };
            let mut known = self.registry.lock();
            let is_same = match (known.tasks.get(key), &way) {
                (Some(task), Some((before, _))) => task.same_channel(before),
                (None, None) => true,
                _ => false,
            };
            if !is_same {
                continue;
            }
            if *self.tools.stop.borrow() {
                return Err(Stopped.into());
            }
            // There is no `await` from here on, so the task hears of every member that is admitted.
            known.groups.admit(key, joining.member, &joining.asks)?;
            let (answer, answered) = oneshot::channel();
            let command = Command::Join(Box::new(joining.clone()), answer);
            match way {
                Some((_, permit)) => drop(permit.send(command)),
                None => self.begin(&mut known, joining, command),
            }
            return Ok(answered);
        }
    }

    /// Starts the task of a group, with its first command.
    fn begin(&self, known: &mut Known, joining: &Joining, first: Command) {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        // A new channel has room.
        let _ = commands.try_send(first);
        known.tasks.insert(joining.key.clone(), commands);
        let (key, asks) = (joining.key.clone(), joining.asks.clone());
        let (tools, registry) = (Arc::clone(&self.tools), Arc::clone(&self.registry));
        tokio::spawn(GroupTask::run(key, asks, tools, registry, receiver));
    }

    /// Removes a task that has ended from the registry.
    fn drop_ended(&self, key: &GroupKey, task: &mpsc::Sender<Command>) {
        let mut known = self.registry.lock();
        if known.tasks.get(key).is_some_and(|of| of.same_channel(task)) {
            known.tasks.remove(key);
        }
    }

    /// Passes on what a member reports of records. `None`: the group has no task.
    pub(super) async fn settle(&self, key: &GroupKey, settlements: Settlements) -> Option<SettledRecords> {
        let task = self.registry.lock().tasks.get(key).cloned()?;
        let (answer, answered) = oneshot::channel();
        task.send(Command::Settle(settlements, answer)).await.ok()?;
        answered.await.ok()
    }

    /// Passes on when members had records.
    pub(super) async fn taken(&self, key: &GroupKey, taken: Vec<(CameraName, TakenReport)>) {
        let task = self.registry.lock().tasks.get(key).cloned();
        if let Some(task) = task {
            // A report that is lost is harmless: the time of delivery counts instead.
            let _ = task.send(Command::Taken(taken)).await;
        }
    }

    /// The state of the groups that `wants` selects, by owner and name.
    pub(super) async fn list(&self, wants: impl Fn(&GroupKey) -> bool) -> Vec<GroupReport> {
        self.forget_stale().await;
        let found: Vec<_> = {
            let known = self.registry.lock();
            let all = known.groups.all().filter(|(key, ..)| wants(key));
            all.map(|(key, asks, _)| (key.clone(), asks.clone(), known.tasks.get(key).cloned())).collect()
        };
        let mut reports = Vec::with_capacity(found.len());
        for (key, asks, task) in found {
            let standing = match task {
                Some(task) => {
                    let (answer, answered) = oneshot::channel();
                    let _ = task.send(Command::Report(answer)).await;
                    answered.await.ok()
                }
                None => None,
            };
            let standing = standing.map(|standing| standing.within(&asks));
            reports.push(GroupReport { key, asks, standing });
        }
        reports
    }

    /// Forgets a group without members, with its place.
    pub(super) async fn forget(&self, key: &GroupKey) -> Result<(), ForgetGroupFailure> {
        {
            let mut known = self.registry.lock();
            if !known.groups.forget(key) {
                let is_known = known.groups.all().any(|(other, ..)| other == key);
                return Err(if is_known { ForgetGroupFailure::InUse } else { ForgetGroupFailure::Unknown });
            }
            // The task ends when its channel closes.
            known.tasks.remove(key);
        }
        self.remove_journal(key).await;
        info!(owner = %key.owner, name = %key.name, "the group is forgotten");
        Ok(())
    }

    async fn remove_journal(&self, key: &GroupKey) {
        if let Some(journals) = &self.tools.journals
            && let Err(error) = journals.remove(key).await
        {
            error!(owner = %key.owner, name = %key.name, "the place of the group cannot be removed, so the group would come back after a restart: {error}");
        }
    }

    /// Forgets groups that have had no member for a week.
    async fn forget_stale(&self) {
        let stale: Vec<GroupKey> = self.registry.lock().groups.stale(monotonic_now()).cloned().collect();
        for key in stale {
            let _ = self.forget(&key).await;
        }
    }
}
