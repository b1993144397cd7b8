//! The state that a subscription's program and its tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::group::Member;
use super::taken::TakenFrames;
use crate::api::pb;
use crate::client::dial::Dialler;
use crate::client::frame::ReceivedFrame;
use crate::client::mailbox::Mailbox;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) mailbox: Mutex<Mailbox>,
    /// Signals that something was put into the mailbox.
    pub(super) came: Notify,
    /// Signals that something was taken out of the mailbox.
    pub(super) went: Notify,
    pub(super) opened: Mutex<Opened>,
    /// The membership in a group, if there is one.
    pub(super) member: Option<Member>,
    /// Frames that the program took, to be reported to the edge.
    pub(super) taken: TakenFrames,
}

/// The request, and the broker that got it. Both may change.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) edge: Dialler,
    /// The edge's number for the subscription.
    pub(super) id: u64,
    pub(super) request: pb::SubscribeRequest,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Mailbox> {
        // Each method leaves the mailbox consistent, so a poisoned lock is safe to use.
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn opened(&self) -> MutexGuard<'_, Opened> {
        // Each statement leaves the value consistent, so a poisoned lock is safe to use.
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, put: impl FnOnce(&mut Mailbox)) {
        put(&mut self.lock());
        self.came.notify_one();
    }

    /// Puts in a frame, which may replace an older one.
    pub(super) fn put_frame(&self, frame: Box<ReceivedFrame>) {
        let superseded = self.lock().put_frame(frame);
        if let Some(superseded) = superseded {
            self.taken.note(&superseded);
        }
        self.came.notify_one();
    }

    /// Puts in a record that a group has given to the program.
    pub(super) fn put_given(&self, frame: Box<ReceivedFrame>) {
        if let Some(member) = &self.member {
            member.came(&frame.camera, frame.meta.id);
        }
        self.put(|mailbox| mailbox.put_given(frame));
    }

    /// Waits until one more frame may come. Returns whether it had to wait. A member that leaves a group takes
    /// what is on its way, because the confirmation of its reports comes behind it.
    pub(super) async fn has_room(&self) -> bool {
        let mut waited = false;
        let leaves = || self.member.as_ref().is_some_and(Member::is_leaving);
        while !self.lock().has_room() && !leaves() {
            waited = true;
            self.went.notified().await;
        }
        waited
    }
}
