//! Creates the groups of a world, and passes events to them.

use mez_core::broker::edge::SubscriptionId;
use mez_core::group::Account;

use super::World;
use super::application::Access;
use super::edge::EdgeHost;
use super::events::WorkerStep;
use super::group::{GroupEvent, GroupHost};
use super::spec::{GroupId, GroupSpec};
use super::stage::{Stage, stage};

impl World {
    /// Creates a group, whose workers join now.
    pub fn group(&mut self, spec: GroupSpec) -> GroupId {
        let id = GroupId(self.groups.len());
        let who = id.who();
        let member = who.to_string().parse().expect("it is a member");
        let certificate = self.site.issue(self.now, &member);
        let group = GroupHost::new(id.0, spec, Access::new(who, certificate), &mut stage!(self));
        self.groups.push(group);
        id
    }

    /// The events of a group's records so far, in order.
    pub fn group_events(&self, group: GroupId) -> &[GroupEvent] {
        &self.groups[group.0].events
    }

    /// A group's account since its edge started. `None`: no worker has joined since.
    pub fn group_account(&self, group: GroupId) -> Option<&Account> {
        self.groups[group.0].account()
    }

    // ---- events of a group --------------------------------------------------------------------------------

    /// Calls `f` with a group and its edge.
    pub(super) fn with_group<R>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut GroupHost, &mut EdgeHost, &mut Stage<'_>) -> R,
    ) -> R {
        let group = &mut self.groups[index];
        f(group, &mut self.edges[group.spec.edge.0], &mut stage!(self))
    }

    /// The group that has a subscription.
    pub(super) fn group_of(&self, subscription: SubscriptionId) -> Option<usize> {
        self.groups.iter().position(|known| known.subscription() == Some(subscription))
    }

    /// Opens a group, if a worker is connected and the group is not open.
    pub(super) fn open_group(&mut self, index: usize) {
        let id = SubscriptionId(self.subscriptions + 1);
        let used = self.with_group(index, |group, edge, stage| group.open(id, edge, stage));
        self.subscriptions += u64::from(used);
    }

    pub(super) fn serve_group(&mut self, index: usize) {
        self.look_at_rights_of_group(index);
        self.with_group(index, GroupHost::serve);
    }

    /// Lets a group's stream check the edge's rights, if they have changed.
    pub(super) fn look_at_rights_of_group(&mut self, index: usize) {
        if self.with_group(index, GroupHost::look_at_rights) {
            self.open_group(index);
        }
    }

    /// A worker of a group takes its next step.
    pub(super) fn worker_goes_on(&mut self, index: usize, worker: usize, step: WorkerStep) {
        match step {
            WorkerStep::Joins { program } => {
                if self.groups[index].may_join(worker, program)
                    && self.with_group(index, |group, edge, stage| group.connect(worker, edge, stage))
                {
                    self.open_group(index);
                    self.with_group(index, |group, edge, stage| group.join(worker, edge, stage));
                }
            }
            WorkerStep::Worked { program, job } => self.with_group(index, |group, edge, stage| {
                group.handle_worked(worker, (program, job), edge, stage);
            }),
            WorkerStep::Missed { connection } => self.with_group(index, |group, edge, stage| {
                group.handle_missed(connection, edge, stage);
            }),
        }
    }
}
