//! A member's seat in a group: what the group has for the member's stream, and what the stream reports to the group.
//!
//! A stream holds at most one record. The group gives the next record when the member has asked for it
//! and the stream can take it. So the newest record of that moment is chosen.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use mez_core::frame::FrameId;
use mez_core::group::MemberId;
use mez_core::name::CameraName;
use tokio::sync::Notify;

use crate::edge::lock;
use crate::edge::subscription::Served;

/// The most news items that wait for a stream. Beyond that the oldest is dropped.
const NEWS_MAX: usize = 256;

/// How a member's stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Going {
    /// The stream was lost. The member may come back.
    Away,
    /// The member leaves.
    Left,
}

/// A record that was not passed on to the member, and why.
pub(super) type NotPassed = (CameraName, FrameId, String);

#[derive(Default)]
struct State {
    /// The stream can take a record.
    pulls: bool,
    /// The group wants to be rung when the stream can take a record.
    is_wanted: bool,
    record: Option<Served>,
    /// That the member has joined. It is the first message, and none of `news`, which may be dropped.
    joined: Option<Served>,
    news: VecDeque<Served>,
    /// The last message of the stream, such as its end.
    last: Option<Served>,
    going: Option<Going>,
    not_passed: Vec<NotPassed>,
}

/// Names the members that the group must look at. So a record costs a large group no more than a small one.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<BTreeSet<MemberId>>,
    wake: Notify,
}

impl Bell {
    /// Wakes the group to look at this member: the member has something for the group, or can take something.
    pub(super) fn ring(&self, member: MemberId) {
        self.note(member);
        self.wake.notify_one();
    }

    /// Names a member without waking the group, for a group that is awake.
    pub(super) fn note(&self, member: MemberId) {
        lock(&self.rung).insert(member);
    }

    /// Waits until [`Bell::ring`] is called. Cancel-safe.
    pub(super) async fn wait(&self) {
        self.wake.notified().await;
    }

    /// The members named since the last call.
    pub(super) fn take(&self) -> BTreeSet<MemberId> {
        std::mem::take(&mut lock(&self.rung))
    }
}

/// What a group and one stream of a member share.
#[derive(Default)]
pub(super) struct Seat {
    state: Mutex<State>,
    filled: Notify,
}

impl Seat {
    /// Whether the stream can take a record now. If not, the group is rung when it can.
    pub(super) fn can_take(&self) -> bool {
        let mut state = lock(&self.state);
        let can = state.pulls && state.record.is_none();
        state.is_wanted = !can;
        can
    }

    /// Gives the stream a record. `wants_more`: the member has asked for more, so the group is rung when the stream can take the next record.
    pub(super) fn give(&self, record: Served, wants_more: bool) {
        let mut state = lock(&self.state);
        state.record = Some(record);
        state.is_wanted = wants_more;
        self.filled.notify_one();
    }

    /// A seat whose stream gets `joined` first.
    pub(super) fn new(joined: Served) -> Self {
        let state = State { joined: Some(joined), ..State::default() };
        Self { state: Mutex::new(state), filled: Notify::new() }
    }

    /// Queues news for the stream.
    pub(super) fn tell(&self, news: Served) {
        let mut state = lock(&self.state);
        if state.news.len() == NEWS_MAX {
            state.news.pop_front();
        }
        state.news.push_back(news);
        self.filled.notify_one();
    }

    /// Ends the stream with this message, after everything that is queued.
    pub(super) fn end(&self, last: Served) {
        lock(&self.state).last.get_or_insert(last);
        self.filled.notify_one();
    }

    /// How the stream ended, if it has, and the records that were not passed on since the last call.
    pub(super) fn told(&self) -> (Option<Going>, Vec<NotPassed>) {
        let mut state = lock(&self.state);
        (state.going, std::mem::take(&mut state.not_passed))
    }
}

/// A member of a group as its stream holds it. Dropping it reports the stream as lost.
pub struct GroupMember {
    id: MemberId,
    seat: Arc<Seat>,
    group: Arc<Bell>,
}

impl GroupMember {
    pub(super) fn new(id: MemberId, seat: Arc<Seat>, group: Arc<Bell>) -> Self {
        Self { id, seat, group }
    }

    /// The member.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// Waits for the next message. Cancel-safe.
    pub async fn next(&mut self) -> Served {
        loop {
            {
                let mut state = lock(&self.seat.state);
                if let Some(joined) = state.joined.take() {
                    return joined;
                }
                if let Some(news) = state.news.pop_front() {
                    return news;
                }
                if let Some(record) = state.record.take() {
                    state.pulls = false;
                    return record;
                }
                if let Some(last) = state.last.take() {
                    return last;
                }
                state.pulls = true;
                if std::mem::take(&mut state.is_wanted) {
                    self.group.ring(self.id);
                }
            }
            self.seat.filled.notified().await;
        }
    }

    /// Reports that a record cannot be passed on to the member.
    pub fn not_passed(&mut self, camera: CameraName, frame: FrameId, why: String) {
        lock(&self.seat.state).not_passed.push((camera, frame, why));
        self.group.ring(self.id);
    }

    /// Reports that the member leaves.
    pub fn leave(&mut self) {
        self.go(Going::Left);
    }

    fn go(&self, how: Going) {
        lock(&self.seat.state).going.get_or_insert(how);
        self.group.ring(self.id);
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.go(Going::Away);
    }
}

impl std::fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupMember")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Without it, the member would say nothing of its records.
    #[tokio::test]
    async fn that_it_has_joined_is_told_first_however_much_news_waits() {
        let seat = Arc::new(Seat::new(Served::Held(Some(7))));
        (0..2 * NEWS_MAX).for_each(|matching| seat.tell(Served::Waiting { matching }));
        let mut member = GroupMember::new(MemberId(1), seat, Arc::default());
        assert!(matches!(member.next().await, Served::Held(Some(7))));
        assert!(matches!(member.next().await, Served::Waiting { matching: NEWS_MAX }));
    }

    /// A member that works on many records at once gets them one after the other. The group is not woken for anything else in between.
    #[tokio::test]
    async fn the_group_hears_when_a_member_that_asked_for_more_can_take_it() {
        for wants_more in [true, false] {
            let (id, seat, group) = (MemberId(1), Arc::<Seat>::default(), Arc::<Bell>::default());
            let mut member = GroupMember::new(id, Arc::clone(&seat), Arc::clone(&group));
            let heard = || group.wait().now_or_never().is_some() && group.take() == BTreeSet::from([id]);
            assert!(!seat.can_take(), "its stream has not asked");
            assert!(member.next().now_or_never().is_none());
            assert!(heard() && seat.can_take());

            seat.give(Served::Waiting { matching: 1 }, wants_more);
            assert!(member.next().now_or_never().is_some());
            assert!(!heard(), "its stream has not asked for the next one");
            assert!(member.next().now_or_never().is_none());
            assert_eq!(heard(), wants_more);
        }
    }
}
