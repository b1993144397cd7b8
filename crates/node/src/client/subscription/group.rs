//! A member's side of a group: which records it holds, which reports are not sent yet, and how many records it can take.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::FrameId;
use mez_core::group::members::GroupName;
use mez_core::name::CameraName;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, watch};

use crate::api::group::SETTLEMENTS_MAX;
use crate::api::pb;
use crate::client::streams::ReportLine;

/// A program's request to a group. All members must request the same, except for `at_once` and `settles_itself`.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// The group's name.
    pub name: GroupName,
    /// Whether the records of a camera are processed one at a time, in order. Default: no.
    pub ordered: bool,
    /// Whether the program waits for the next record if that comes sooner than the newest one is old. Only for the newest records. Default: no.
    pub fresh: bool,
    /// How long a member may work on a record before it is given to another member. Default: the edge's default, 30 s.
    pub again_after: Option<Duration>,
    /// How often a record is given before it is a dead letter. Default: the edge's default, 5.
    pub tries: Option<u32>,
    /// The most records that are given and not settled. Default: the edge's default, 1,000.
    pub open_max: Option<u32>,
    /// How many records this program holds at once. Default: 1.
    pub at_once: u32,
    /// Whether asking for the next record settles the previous one as done, unless the program has settled it. Only with `at_once` = 1. Default: yes.
    pub settles_itself: bool,
}

impl Membership {
    /// One record at a time, which is done when the next one is requested.
    pub fn new(name: GroupName) -> Self {
        let (again_after, tries, open_max) = (None, None, None);
        Self {
            name,
            ordered: false,
            fresh: false,
            again_after,
            tries,
            open_max,
            at_once: 1,
            settles_itself: true,
        }
    }
}

type Key = (CameraName, FrameId);

/// The state of the membership, shared by the program and its tasks.
#[derive(Debug)]
pub(super) struct Member {
    asks: Membership,
    id: [u8; 16],
    state: Mutex<State>,
    /// Signals that there is something to report.
    pub(super) changed: Notify,
    /// Signals that the program has joined, or never will again.
    pub(super) joined: Notify,
    /// Signals that a report was sent.
    pub(super) said: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The life of the group (`GroupJoined.life`) that this member last got.
    life: Bytes,
    /// The member has a stream, or had its last one. Nothing is reported while it joins.
    is_joined: bool,
    /// The way of reports on the connection of the stream. `None`: reports are calls.
    line: Option<ReportLine>,
    /// How often the member has joined.
    joins: u64,
    /// How many records the member could take, as its last request to join said.
    at_once: u32,
    /// Records that arrived and were not settled by the program.
    holds: BTreeSet<Key>,
    /// Of `holds`, the record that is done when the next one is requested.
    in_hand: Option<Key>,
    unsaid: VecDeque<Said>,
    /// The report that is being sent.
    saying: Vec<Said>,
    /// Reports on the connection of the stream, with their numbers, that the edge has not confirmed.
    unconfirmed: VecDeque<(u64, Vec<Said>)>,
    /// The program leaves, so the edge is asked to confirm reports at once.
    is_leaving: bool,
    /// The edge is to be asked even if there is nothing to report.
    asks_to_confirm: bool,
    /// Requested records that have not arrived.
    asked: u32,
    /// Of these, the number that is not reported to the edge yet.
    untold: u32,
}

/// A member's report on a record.
#[derive(Clone, Debug)]
struct Said {
    key: Key,
    failed: Option<String>,
}

/// A report to send.
pub(super) struct ToSay {
    pub(super) request: pb::SettleRecordsRequest,
    /// The edge is asked to confirm it at once.
    pub(super) confirm: bool,
    /// The way that it goes. `None`: a call.
    pub(super) line: Option<ReportLine>,
    /// How often the member had joined.
    pub(super) joins: u64,
}

impl Member {
    pub(super) fn new(asks: Membership) -> Self {
        let mut id = [0; 16];
        // The system always has randomness. Without it, two programs would have the same identifier, replace each other, and get an error.
        let _ = SystemRandom::new().fill(&mut id);
        let (changed, joined, said) = (Notify::new(), Notify::new(), Notify::new());
        Self { asks, id, state: Mutex::default(), changed, joined, said }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each statement leaves the state consistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request to join the group now. Nothing is reported until the edge has admitted the member.
    pub(super) fn request(&self) -> pb::GroupRequest {
        let mut state = self.lock();
        state.is_joined = false;
        state.leave_line();
        let unsaid = state.unsaid.iter().chain(&state.saying).map(|said| &said.key);
        let holds: BTreeSet<&Key> = state.holds.iter().chain(unsaid).collect();
        let holds = holds.into_iter().map(|(camera, frame)| pb::HeldRecord {
            camera: camera.as_str().into(),
            epoch: frame.epoch.0,
            sequence: frame.sequence.0,
        });
        let (holds, life) = (holds.collect(), state.life.clone());
        if !self.asks.settles_itself {
            let held = u32::try_from(state.holds.len()).unwrap_or(u32::MAX);
            state.asked = self.asks.at_once.saturating_sub(held);
        }
        let at_once = state.asked;
        state.at_once = at_once;
        drop(state);
        self.said.notify_waiters();
        let Membership { name, ordered, fresh, again_after, tries, open_max, .. } = &self.asks;
        pb::GroupRequest {
            name: name.to_string(),
            member: Bytes::copy_from_slice(&self.id),
            ordered: *ordered,
            again_after_ms: again_after.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
            tries: *tries,
            open_max: *open_max,
            life,
            at_once,
            holds,
            fresh: *fresh,
        }
    }

    /// The edge has admitted the member. `line`: the way of its reports, unless they are calls.
    pub(super) fn has_joined(&self, life: Bytes, line: Option<ReportLine>) {
        let mut state = self.lock();
        (state.life, state.line) = (life, line);
        state.joins += 1;
        state.is_joined = true;
        state.untold = state.asked.saturating_sub(state.at_once);
        drop(state);
        self.joined.notify_one();
        self.wake();
    }

    /// There will be no stream any more. What it has not confirmed is reported again, by calls.
    pub(super) fn stream_is_over(&self) {
        let mut state = self.lock();
        state.leave_line();
        // Also where the edge has refused to admit the member again.
        state.is_joined = true;
        drop(state);
        self.joined.notify_one();
        self.wake();
    }

    /// Wakes whoever reports, and whoever waits until everything is reported.
    fn wake(&self) {
        self.changed.notify_one();
        self.said.notify_waiters();
    }

    /// Whether the program leaves the group, or has left.
    pub(super) fn is_leaving(&self) -> bool {
        self.lock().is_leaving
    }

    /// A record has arrived.
    pub(super) fn came(&self, camera: &CameraName, frame: FrameId) {
        let mut state = self.lock();
        state.asked = state.asked.saturating_sub(1);
        state.holds.insert((camera.clone(), frame));
    }

    /// The program asks for the next event. `has_frame`: a frame is waiting.
    pub(super) fn asks_next(&self, has_frame: bool) {
        if !self.asks.settles_itself {
            return;
        }
        let mut state = self.lock();
        if let Some(key) = state.in_hand.take() {
            state.holds.remove(&key);
            state.unsaid.push_back(Said { key, failed: None });
        } else if has_frame || state.asked > 0 {
            return;
        }
        if !has_frame && state.asked == 0 {
            (state.asked, state.untold) = (1, 1);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The program has taken a record.
    pub(super) fn took(&self, camera: &CameraName, frame: FrameId) {
        if self.asks.settles_itself {
            self.lock().in_hand = Some((camera.clone(), frame));
        }
    }

    /// The program settles a record. Returns whether the member held it.
    pub(super) fn settle(&self, camera: &CameraName, frame: FrameId, failed: Option<String>) -> bool {
        let key = (camera.clone(), frame);
        let mut state = self.lock();
        if !state.holds.remove(&key) {
            return false;
        }
        if state.in_hand.as_ref() == Some(&key) {
            state.in_hand = None;
        }
        state.unsaid.push_back(Said { key, failed });
        if !self.asks.settles_itself {
            state.asked += 1;
            state.untold += 1;
        }
        drop(state);
        self.changed.notify_one();
        true
    }

    /// The report to send now.
    pub(super) fn take(&self) -> Option<ToSay> {
        let mut state = self.lock();
        if !state.is_joined || state.unsaid.is_empty() && state.untold == 0 && !state.asks_to_confirm {
            return None;
        }
        state.asks_to_confirm = false;
        state.forget_confirmed();
        let count = state.unsaid.len().min(SETTLEMENTS_MAX);
        state.saying = state.unsaid.drain(..count).collect();
        let ready = std::mem::take(&mut state.untold);
        let settlements = state.saying.iter().map(|Said { key: (camera, frame), failed }| pb::Settlement {
            camera: camera.as_str().into(),
            epoch: frame.epoch.0,
            sequence: frame.sequence.0,
            failed: failed.is_some(),
            error: failed.clone().unwrap_or_default(),
        });
        let settlements = settlements.collect();
        let (line, confirm, joins) = (state.line.clone(), state.is_leaving, state.joins);
        let (group, member) = match line {
            // The edge knows whose stream it is.
            Some(_) => (String::new(), Bytes::new()),
            None => (self.asks.name.to_string(), Bytes::copy_from_slice(&self.id)),
        };
        let request = pb::SettleRecordsRequest { group, member, settlements, ready };
        Some(ToSay { request, confirm, line, joins })
    }

    /// The report was sent. `number`: its number on the connection of the stream, where it is confirmed later. `None`: the edge has answered it.
    pub(super) fn was_said(&self, number: Option<u64>, joins: u64) {
        let mut state = self.lock();
        let said = std::mem::take(&mut state.saying);
        let is_same_line = state.joins == joins && state.line.is_some();
        match number {
            Some(number) if is_same_line => state.unconfirmed.push_back((number, said)),
            // Nobody confirms it any more.
            Some(_) => state.put_back(said),
            None => {}
        }
        drop(state);
        self.said.notify_waiters();
    }

    /// The report could not be sent. Returns whether the program has joined again meanwhile.
    pub(super) fn was_not_said(&self, ready: u32, joins: u64) -> bool {
        let mut state = self.lock();
        let said = std::mem::take(&mut state.saying);
        state.put_back(said);
        let again = state.joins != joins;
        if !again && state.is_joined {
            // Otherwise the request to join says it.
            state.untold += ready;
        }
        again
    }

    /// Whether the edge has got everything.
    pub(super) fn has_said_all(&self) -> bool {
        let mut state = self.lock();
        state.forget_confirmed();
        state.unsaid.is_empty() && state.saying.is_empty() && state.unconfirmed.is_empty()
    }

    /// The program leaves the group, or did not get away. Whoever leaves gets reports confirmed at once.
    pub(super) fn set_leaving(&self, leaves: bool) {
        self.lock().is_leaving = leaves;
    }

    /// Asks the edge to confirm what is reported.
    pub(super) fn asks_to_confirm(&self) {
        let mut state = self.lock();
        state.asks_to_confirm = state.line.is_some();
        drop(state);
        self.changed.notify_one();
    }

    /// Waits until the edge confirms a report that is not confirmed now. Never completes if reports are calls, which have answers.
    pub(super) fn confirmed(&self) -> impl Future<Output = ()> + use<> {
        let mut confirmed = self.lock().line.as_ref().map(|line| line.confirmed.clone());
        confirmed.iter_mut().for_each(watch::Receiver::mark_unchanged);
        async move {
            if let Some(mut confirmed) = confirmed
                && confirmed.changed().await.is_ok()
            {
                return;
            }
            // Without a stream, or after its end, `said` wakes whoever waits.
            std::future::pending().await
        }
    }
}

impl State {
    /// Puts reports back in front of those that were not sent.
    fn put_back(&mut self, said: Vec<Said>) {
        said.into_iter().rev().for_each(|said| self.unsaid.push_front(said));
    }

    fn forget_confirmed(&mut self) {
        let Some(line) = &self.line else { return };
        let confirmed = *line.confirmed.borrow();
        while self.unconfirmed.front().is_some_and(|(number, _)| *number <= confirmed) {
            self.unconfirmed.pop_front();
        }
    }

    /// The connection of the stream is gone. What it has not confirmed is to be reported again.
    fn leave_line(&mut self) {
        self.forget_confirmed();
        self.line = None;
        for (_, said) in std::mem::take(&mut self.unconfirmed).into_iter().rev() {
            self.put_back(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::{Epoch, Sequence};

    use super::*;

    const LIFE: Bytes = Bytes::from_static(&[1; 16]);

    fn camera() -> CameraName {
        "dock/cam1".parse().unwrap()
    }

    fn frame(sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    /// What the member reports now, by a call.
    fn said(member: &Member) -> Option<(Vec<(u64, bool)>, u32)> {
        let ToSay { request, joins, .. } = member.take()?;
        member.was_said(None, joins);
        Some(of(&request))
    }

    fn of(request: &pb::SettleRecordsRequest) -> (Vec<(u64, bool)>, u32) {
        (request.settlements.iter().map(|said| (said.sequence, said.failed)).collect(), request.ready)
    }

    /// A member that the edge has admitted.
    fn joined(asks: Membership) -> Member {
        let member = Member::new(asks);
        let (at_once, held) = (member.asks.at_once, member.request());
        let settles_itself = member.asks.settles_itself;
        assert_eq!(held.at_once, if settles_itself { 0 } else { at_once });
        member.has_joined(LIFE, None);
        member
    }

    /// The same, whose reports go on the connection of its stream.
    fn joined_here(asks: Membership) -> (watch::Sender<u64>, Member) {
        let (member, confirmed) = (joined(asks), watch::Sender::new(0));
        member.request();
        member.has_joined(LIFE, Some(ReportLine::without_stream(confirmed.subscribe())));
        (confirmed, member)
    }

    /// A member that has reported a record, which the edge has not confirmed.
    fn with_one_unconfirmed() -> Member {
        let (_, member) = joined_here(one_at_a_time());
        member.came(&camera(), frame(0));
        member.took(&camera(), frame(0));
        member.asks_next(false);
        let ToSay { joins, .. } = member.take().unwrap();
        member.was_said(Some(1), joins);
        member
    }

    fn one_at_a_time() -> Membership {
        Membership::new("detect".parse().unwrap())
    }

    #[test]
    fn whoever_asks_for_the_next_has_done_the_one_before() {
        let member = joined(one_at_a_time());
        member.asks_next(false);
        member.asks_next(false);
        assert_eq!(said(&member), Some((vec![], 1)));
        member.came(&camera(), frame(4));
        member.took(&camera(), frame(4));
        assert_eq!(said(&member), None, "it is worked on");
        member.asks_next(false);
        assert_eq!(said(&member), Some((vec![(4, false)], 1)));
        member.came(&camera(), frame(5));
        member.took(&camera(), frame(5));
        assert!(member.settle(&camera(), frame(5), Some("no such model".into())));
        assert!(!member.settle(&camera(), frame(5), None), "it has spoken");
        member.asks_next(false);
        assert_eq!(said(&member), Some((vec![(5, true)], 1)));
    }

    #[test]
    fn several_at_once_are_settled_one_by_one() {
        let member = joined(Membership { at_once: 3, settles_itself: false, ..one_at_a_time() });
        for sequence in 0..3 {
            member.came(&camera(), frame(sequence));
            member.took(&camera(), frame(sequence));
            member.asks_next(false);
        }
        assert_eq!(said(&member), None);
        member.settle(&camera(), frame(1), None);
        assert_eq!(said(&member), Some((vec![(1, false)], 1)));
        let again = member.request();
        assert_eq!((again.at_once, again.holds.len()), (1, 2), "when it joins again");
    }

    /// The connection is lost while a report is being sent.
    #[test]
    fn what_was_not_said_is_held_and_said_after_joining_again() {
        let member = joined(one_at_a_time());
        member.asks_next(false);
        assert_eq!(said(&member), Some((vec![], 1)));
        member.came(&camera(), frame(0));
        member.took(&camera(), frame(0));
        member.asks_next(false);
        let ToSay { request, joins, .. } = member.take().unwrap();
        let again = member.request();
        assert_eq!(held(&again), [0]);
        assert_eq!(again.at_once, 1, "it waits for the next");
        member.has_joined(LIFE, None);
        assert!(member.was_not_said(request.ready, joins));
        assert_eq!(said(&member), Some((vec![(0, false)], 0)), "that it is ready was said with the request");
    }

    fn held(request: &pb::GroupRequest) -> Vec<u64> {
        request.holds.iter().map(|held| held.sequence).collect()
    }

    /// The edge confirms reports on the connection of the stream with the next record.
    #[test]
    fn what_was_not_confirmed_is_held_and_said_after_joining_again() {
        let asks = Membership { at_once: 3, settles_itself: false, ..one_at_a_time() };
        let (confirmed, member) = joined_here(asks);
        for sequence in 0..3 {
            member.came(&camera(), frame(sequence));
            member.settle(&camera(), frame(sequence), None);
            let ToSay { request, joins, .. } = member.take().unwrap();
            assert!(
                request.group.is_empty() && request.member.is_empty(),
                "the edge knows whose stream it is"
            );
            member.was_said(Some(1 + sequence), joins);
        }
        confirmed.send_replace(2);
        assert!(!member.has_said_all());
        let again = member.request();
        assert_eq!((held(&again), again.at_once), (vec![2], 3), "two were confirmed");
        assert_eq!(said(&member), None, "it has not joined");
        member.has_joined(LIFE, None);
        assert!(!member.has_said_all());
        assert_eq!(said(&member), Some((vec![(2, false)], 0)));
        assert!(member.has_said_all());
    }

    /// A report that was written to a connection that is lost already.
    #[test]
    fn what_was_said_on_a_lost_connection_is_said_again() {
        let (_confirmed, member) = joined_here(one_at_a_time());
        member.asks_next(false);
        said(&member);
        member.came(&camera(), frame(0));
        member.took(&camera(), frame(0));
        member.asks_next(false);
        let ToSay { joins, .. } = member.take().unwrap();
        assert_eq!(held(&member.request()), [0]);
        member.has_joined(LIFE, None);
        member.was_said(Some(2), joins);
        assert_eq!(said(&member), Some((vec![(0, false)], 0)));
    }

    /// The contract cannot be kept, or another program has the member's number.
    #[test]
    fn what_was_not_confirmed_is_said_by_a_call_after_the_last_stream() {
        let member = with_one_unconfirmed();
        assert_eq!(said(&member), None);
        member.stream_is_over();
        let ToSay { request, line, .. } = member.take().unwrap();
        assert_eq!((of(&request), line.is_none()), ((vec![(0, false)], 0), true));
        assert_eq!((request.group.as_str(), request.member.len()), ("detect", 16));
    }

    /// Its rights have changed, and the edge does not let it in again.
    #[test]
    fn what_was_not_confirmed_is_said_by_a_call_when_the_edge_refuses_the_member() {
        let member = with_one_unconfirmed();
        member.request();
        assert_eq!(said(&member), None);
        member.stream_is_over();
        assert_eq!(said(&member).map(|(records, _)| records), Some(vec![(0, false)]));
    }

    /// The program asks for a record while its request to join is on its way.
    #[test]
    fn what_was_asked_while_joining_is_said_afterwards() {
        let member = Member::new(one_at_a_time());
        assert_eq!(member.request().at_once, 0, "nobody asks yet");
        member.asks_next(false);
        assert_eq!(said(&member), None, "it has not joined");
        member.has_joined(LIFE, None);
        assert_eq!(said(&member), Some((vec![], 1)));
        assert_eq!(member.request().at_once, 1);
        member.has_joined(LIFE, None);
        assert_eq!(said(&member), None, "the request has said it");
    }

    /// Whoever leaves wants to know that its reports have arrived.
    #[tokio::test]
    async fn who_leaves_asks_to_confirm() {
        let (confirmed, member) = joined_here(one_at_a_time());
        member.asks_next(false);
        let ToSay { confirm, joins, .. } = member.take().unwrap();
        assert!(!confirm && !member.is_leaving());
        member.was_said(Some(1), joins);
        assert!(!member.has_said_all(), "what it asked for is a report too");
        let (heard, also) = (member.confirmed(), member.confirmed());
        member.set_leaving(true);
        member.asks_to_confirm();
        let ToSay { request, confirm, .. } = member.take().unwrap();
        assert_eq!((of(&request), confirm), ((vec![], 0), true), "though there is nothing to report");
        assert!(member.take().is_none() && member.is_leaving());
        confirmed.send_replace(1);
        tokio::join!(heard, also);
        assert!(member.has_said_all());
    }
}
