//! A member's seat in a group: what the group has for the member's stream, and what the stream reports to the group.
//!
//! A stream holds at most one record. The group gives the next record when the member has asked for it
//! and the stream can take it. So the newest record of that moment is chosen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mez_core::frame::FrameId;
use mez_core::group::MemberId;
use mez_core::name::CameraName;
use tokio::sync::Notify;

use super::bell::Bell;
use super::command::{Settlement, Settlements};
use crate::edge::lock;
use crate::edge::subscription::Served;

/// The most news items that wait for a stream. Beyond that the oldest is dropped.
const NEWS_MAX: usize = 256;
/// The most reports of a stream that are not carried out. More wait in the connection.
const REPORTS_MAX: u64 = 4;

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
    /// Reports that the group has not taken yet.
    reports: Vec<Settlements>,
    /// How many reports came.
    reported: u64,
    /// How many of these the group has carried out.
    carried_out: u64,
}

/// What a stream has for its group.
pub(super) struct FromStream {
    /// How the stream ended, if it has.
    pub(super) going: Option<Going>,
    pub(super) not_passed: Vec<NotPassed>,
    /// What the member reported before it went.
    pub(super) reports: Vec<Settlements>,
}

/// What a group and one stream of a member share.
#[derive(Default)]
pub(super) struct Seat {
    state: Mutex<State>,
    filled: Notify,
    /// Signals that reports were carried out.
    heard: Notify,
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
        Self { state: Mutex::new(state), ..Self::default() }
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

    /// What the stream has for the group since the last call.
    pub(super) fn take(&self) -> FromStream {
        let mut state = lock(&self.state);
        FromStream {
            going: state.going,
            not_passed: std::mem::take(&mut state.not_passed),
            reports: std::mem::take(&mut state.reports),
        }
    }

    /// The group has carried out reports, and its place is written down.
    pub(super) fn has_carried_out(&self, reports: usize) {
        lock(&self.state).carried_out += reports as u64;
        self.heard.notify_waiters();
    }

    /// How many reports came.
    fn reported(&self) -> u64 {
        lock(&self.state).reported
    }

    /// How many of these the group has carried out.
    fn carried_out(&self) -> u64 {
        lock(&self.state).carried_out
    }

    /// Waits until this number of reports is carried out. Cancel-safe.
    async fn until_carried_out(&self, reports: u64) {
        loop {
            // Before the look, so that nothing is missed in between.
            let heard = self.heard.notified();
            if self.carried_out() >= reports {
                return;
            }
            heard.await;
        }
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

    /// Passes on what the member reports, until its stream ends.
    pub(crate) fn reports(&self) -> MemberReports {
        MemberReports { id: self.id, seat: Arc::clone(&self.seat), group: Arc::clone(&self.group) }
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
                    self.group.ring_unless_at_ease(self.id);
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

/// The way of a member's reports to its group, beside its stream.
pub(crate) struct MemberReports {
    id: MemberId,
    seat: Arc<Seat>,
    group: Arc<Bell>,
}

impl MemberReports {
    /// The reports of a member without a group. The function carries out what was passed on.
    #[cfg(test)]
    pub(crate) fn without_group() -> (Self, impl Fn()) {
        let seat = Arc::<Seat>::default();
        let (group, of_group) = (Arc::default(), Arc::clone(&seat));
        let carry_out = move || of_group.has_carried_out(of_group.take().reports.len());
        (Self { id: MemberId(1), seat, group }, carry_out)
    }

    /// Passes on a report. Waits while too many are not carried out.
    ///
    /// A group at ease is not woken for it, unless a record failed. It carries the report out when it wakes up next.
    pub(crate) async fn pass_on(&self, records: Vec<Settlement>, ready: u32) {
        let must_be_carried_out = (self.seat.reported() + 1).saturating_sub(REPORTS_MAX);
        if self.seat.carried_out() < must_be_carried_out {
            self.group.ring(self.id);
            self.seat.until_carried_out(must_be_carried_out).await;
        }
        // A record that failed is to be given again.
        let is_urgent = records.iter().any(|(.., failed)| failed.is_some());
        {
            let mut state = lock(&self.seat.state);
            state.reports.push(Settlements { member: self.id, records, ready });
            state.reported += 1;
        }
        if is_urgent {
            self.group.ring(self.id);
        } else {
            self.group.ring_unless_at_ease(self.id);
        }
    }

    /// How many reports of this stream were carried out.
    pub(crate) fn carried_out(&self) -> u64 {
        self.seat.carried_out()
    }

    /// Has the group carry out the reports that were passed on. Waits until it has. Cancel-safe.
    pub(crate) async fn until_carried_out(&self) {
        // Reports that come while this waits do not wake the group.
        let reported = self.seat.reported();
        self.group.ring(self.id);
        self.seat.until_carried_out(reported).await;
    }
}

impl std::fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupMember")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    fn member() -> (Arc<Seat>, Arc<Bell>, GroupMember) {
        let (seat, group) = (Arc::<Seat>::default(), Arc::<Bell>::default());
        (Arc::clone(&seat), Arc::clone(&group), GroupMember::new(MemberId(1), seat, group))
    }

    fn failed() -> Settlement {
        let frame = FrameId { epoch: mez_core::frame::Epoch(1), sequence: mez_core::frame::Sequence(1) };
        ("dock/cam1".parse().unwrap(), frame, Some("no such model".into()))
    }

    /// While other members are free, to be woken for each report would cost as much as the record.
    #[tokio::test]
    async fn a_group_at_ease_is_woken_by_failures_and_by_whoever_wants_a_confirmation() {
        let (seat, group, member) = member();
        let reports = member.reports();
        let is_woken = || group.wait().now_or_never().is_some();
        group.set_at_ease(true);
        reports.pass_on(vec![], 1).await;
        assert!(!is_woken());
        reports.pass_on(vec![failed()], 1).await;
        assert!(is_woken());
        assert_eq!(seat.take().reports.len(), 2);
        seat.has_carried_out(2);

        reports.pass_on(vec![], 1).await;
        assert!(!is_woken() && reports.carried_out() == 2);
        assert!(reports.until_carried_out().now_or_never().is_none());
        assert!(is_woken());
        group.take();
        seat.has_carried_out(seat.take().reports.len());
        assert_eq!(reports.carried_out(), 3);

        group.set_at_ease(false);
        assert!(!is_woken());
        reports.pass_on(vec![], 1).await;
        assert!(is_woken(), "the group is not at ease");
    }

    /// A report that comes while the group carries out others may wait, so nobody may wait for it.
    #[tokio::test]
    async fn whoever_wants_a_confirmation_does_not_wait_for_later_reports() {
        let (seat, group, member) = member();
        let reports = member.reports();
        group.set_at_ease(true);
        reports.pass_on(vec![], 1).await;
        let mut waits = Box::pin(reports.until_carried_out());
        assert!(waits.as_mut().now_or_never().is_none());
        let taken = seat.take().reports.len();
        reports.pass_on(vec![], 1).await;
        seat.has_carried_out(taken);
        waits.await;
        assert_eq!(reports.carried_out(), 1);
    }

    /// Otherwise, a member could fill the memory of its edge with reports.
    #[tokio::test]
    async fn reports_that_are_not_carried_out_are_bounded() {
        let (seat, group, member) = member();
        let reports = member.reports();
        group.set_at_ease(true);
        for _ in 0..REPORTS_MAX {
            reports.pass_on(vec![], 1).await;
        }
        let mut waits = Box::pin(reports.pass_on(vec![], 1));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(group.wait().now_or_never().is_some());
        assert_eq!(seat.take().reports.len() as u64, REPORTS_MAX);
        assert!(waits.as_mut().now_or_never().is_none(), "they are being carried out");
        seat.has_carried_out(REPORTS_MAX as usize);
        waits.await;
        assert_eq!(seat.take().reports.len(), 1);
    }
}
