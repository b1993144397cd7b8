//! The members of a group that are connected: what they report, and what they are given.

use std::sync::Arc;

use mez_core::group::session::GivenRecord;
use mez_core::group::{Acknowledged, GroupError, MemberId};

use super::GroupTask;
use crate::clock::monotonic_now;
use crate::edge::groups::command::{SettledRecords, Settlement, Settlements};
use crate::edge::groups::member::{FromStream, Going, Seat};
use crate::edge::groups::registry::Without;
use crate::edge::subscription::Served;

/// A member that is connected.
pub(super) struct Seated {
    pub(super) seat: Arc<Seat>,
    pub(super) application: String,
    /// How many records the member has asked for and was not given yet.
    pub(super) credits: u32,
    /// The group session knows that the member can take a record.
    pub(super) is_free: bool,
}

impl Drop for Seated {
    /// Ends the stream even if the group's task fails. A stream that has ended, or was told why it ends, does not hear of it.
    fn drop(&mut self) {
        self.seat.end(Served::Stopped);
    }
}

impl GroupTask {
    /// Whether the group may sleep while members report: the next record finds a free member, and no record waits for another one.
    pub(super) fn is_at_ease(&self) -> bool {
        let group = self.session.group();
        group.has_room() && !group.options().ordered
    }

    /// Looks at the seats that the bell names: what their streams report, and whether they can take a record.
    pub(super) fn look_at_seats(&mut self) {
        let (mut reported, mut others) = (Vec::new(), Vec::new());
        for member in self.bell.take() {
            // The member may have gone since.
            let Some(seated) = self.seats.get(&member) else { continue };
            let FromStream { going, not_passed, reports } = seated.seat.take();
            if !reports.is_empty() {
                reported.push((Arc::clone(&seated.seat), reports));
            }
            others.push((member, not_passed, going));
        }
        self.carry_out_reports(reported);
        let now = monotonic_now();
        for (member, not_passed, going) in others {
            for (camera, frame, why) in not_passed {
                // The member has not seen the record, and can take another one.
                let _ = self.session.failed(member, &camera, frame, &why);
                self.add_credits(member, 1);
            }
            match going {
                None => self.make_room(member),
                Some(going) => {
                    self.seats.remove(&member);
                    match going {
                        Going::Away => self.session.away(now, member),
                        Going::Left => self.session.leave(member),
                    }
                }
            }
        }
    }

    /// Carries out reports that came on the streams of members.
    pub(super) fn carry_out_reports(&mut self, reported: Vec<(Arc<Seat>, Vec<Settlements>)>) {
        // The result for each record is not sent. Members that want it use the call.
        let all = || reported.iter().flat_map(|(_, reports)| reports);
        // What was done may have been reported before a failure. It must not become a dead letter.
        for of_failures in [false, true] {
            for Settlements { member, records, .. } in all() {
                for record in records.iter().filter(|(.., failure)| failure.is_some() == of_failures) {
                    let _ = self.settle_one(*member, record);
                }
            }
        }
        all().for_each(|report| self.handle_ready(report.member, report.ready));
        self.carried_out.extend(reported.into_iter().map(|(seat, reports)| (seat, reports.len())));
    }

    /// Carries out a call in which a member settles records.
    pub(super) fn settle(&mut self, settlements: &Settlements) -> SettledRecords {
        let Settlements { member, records, ready } = settlements;
        let results = records.iter().map(|record| self.settle_one(*member, record)).collect();
        self.handle_ready(*member, *ready);
        SettledRecords { results, joined: self.seats.contains_key(member) }
    }

    fn settle_one(
        &mut self,
        member: MemberId,
        (camera, frame, failure): &Settlement,
    ) -> Result<Acknowledged, GroupError> {
        match failure {
            None => self.session.done(member, camera, *frame),
            Some(why) => self.session.failed(member, camera, *frame, why),
        }
    }

    /// A member can take `ready` more records. In a group of the newest, it has also settled the records that it had.
    fn handle_ready(&mut self, member: MemberId, ready: u32) {
        if ready > 0 && self.seats.contains_key(&member) {
            // Room for more is passed on when the stream can take a record.
            let known = self.session.ready(member, 0);
            debug_assert!(known.is_ok(), "who has a seat is a member");
            self.add_credits(member, ready);
            self.make_room(member);
        }
    }

    fn add_credits(&mut self, member: MemberId, records: u32) {
        if let Some(seated) = self.seats.get_mut(&member) {
            seated.credits = seated.credits.saturating_add(records);
        }
    }

    /// Tells the group session that a member can take a record, if it can.
    fn make_room(&mut self, member: MemberId) {
        if let Some(seated) = self.seats.get_mut(&member)
            && seated.credits > 0
            && !seated.is_free
            && seated.seat.can_take()
        {
            seated.is_free = self.session.room(member, 1).is_ok();
        }
    }

    /// Gives a member's stream a record.
    pub(super) fn give(&mut self, record: GivenRecord) {
        let GivenRecord { given, delivery, times, verdict } = record;
        // If the member's stream is being lost, the record is given again once the member is back or gone.
        let Some(seated) = self.seats.get_mut(&given.member) else { return };
        seated.is_free = false;
        seated.credits = seated.credits.saturating_sub(1);
        let attempt = u32::try_from(given.attempt).unwrap_or(u32::MAX);
        let wants_more = seated.credits > 0;
        let served = Served::Frame { delivery: Box::new(delivery), times, verdict, attempt };
        if let Some(open) = &self.open {
            open.account.note_served(&served);
        }
        seated.seat.give(served, wants_more);
    }

    /// Lets go of members that have left.
    pub(super) async fn let_go(&mut self) {
        let group = self.session.group();
        let left_count = group.left_count();
        if self.left.replace(left_count) == Some(left_count) {
            return;
        }
        let left: Vec<MemberId> =
            self.admitted.iter().filter(|member| !group.has_member(**member)).copied().collect();
        for member in left {
            self.admitted.remove(&member);
            match self.registry.leave(monotonic_now(), &self.key, member) {
                Without::Others => {}
                Without::Nobody => self.close().await,
                Without::Over => {
                    self.close().await;
                    self.over = true;
                }
            }
        }
    }
}
