//! Names the members that a group must look at, and wakes the group.

use std::collections::BTreeSet;
use std::sync::Mutex;

use mez_core::group::MemberId;
use tokio::sync::Notify;

use crate::edge::lock;

#[derive(Default)]
struct State {
    rung: BTreeSet<MemberId>,
    /// The next record finds a free member, so reports can wait for it.
    at_ease: bool,
}

/// Names the members that the group must look at. So a record costs a large group no more than a small one.
#[derive(Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    wake: Notify,
}

impl Bell {
    /// Wakes the group to look at this member.
    pub(super) fn ring(&self, member: MemberId) {
        self.note(member);
        self.wake.notify_one();
    }

    /// The member can take a record, or has done the work of one. Wakes the group, unless the group is at ease.
    pub(super) fn ring_unless_at_ease(&self, member: MemberId) {
        let at_ease = {
            let mut state = lock(&self.state);
            state.rung.insert(member);
            state.at_ease
        };
        if !at_ease {
            self.wake.notify_one();
        }
    }

    /// Names a member without waking the group, for a group that is awake.
    pub(super) fn note(&self, member: MemberId) {
        lock(&self.state).rung.insert(member);
    }

    /// Waits until the group is woken. Cancel-safe.
    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// The members named since the last call.
    pub(super) fn take(&self) -> BTreeSet<MemberId> {
        std::mem::take(&mut lock(&self.state).rung)
    }

    /// The group is about to wait. A group that is not at ease is woken if members are named that it has not looked at.
    pub(super) fn set_at_ease(&self, at_ease: bool) {
        let must_look = {
            let mut state = lock(&self.state);
            state.at_ease = at_ease;
            !at_ease && !state.rung.is_empty()
        };
        if must_look {
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Otherwise, a record would wait although a member is free for it.
    #[test]
    fn a_group_that_is_not_at_ease_misses_nobody() {
        let (bell, member) = (Bell::default(), MemberId(1));
        let is_woken = || bell.wait().now_or_never().is_some();
        bell.set_at_ease(true);
        bell.ring_unless_at_ease(member);
        assert!(!is_woken());
        bell.set_at_ease(true);
        assert!(!is_woken());
        bell.set_at_ease(false);
        assert!(is_woken(), "the member is named, and nobody else wakes the group");
        assert_eq!(bell.take(), BTreeSet::from([member]));
        bell.set_at_ease(false);
        assert!(!is_woken());
        bell.ring_unless_at_ease(member);
        assert!(is_woken());
    }

    #[test]
    fn a_member_that_goes_wakes_a_group_at_ease() {
        let bell = Bell::default();
        bell.set_at_ease(true);
        bell.ring(MemberId(1));
        assert!(bell.wait().now_or_never().is_some());
    }
}
