//! Shares the records of cameras among the members of a group.
//!
//! A group reads like one application. Each record that it reads goes to a member that is free. It has no input or output of its own.
//!
//! | question | where |
//! | --- | --- |
//! | which member gets which record, and how does each record end? | this file: [`Group`] |
//! | which members are there, and how many records can they take? | `readers.rs` |
//! | how far has the group come, and what must survive a restart? | `place.rs` |
//! | how many records have ended, and how? | `account.rs` |
//! | who owns a group, and who may be a member? | `members.rs` |
//! | where do records come from, both new ones and repeated ones? | `session/`, which serves a group as an edge does |
//!
//! The owner of a [`Group`] drives it:
//!
//! 1. It reports what members do: [`Group::handle_join`], [`Group::handle_ready`], [`Group::handle_done`],
//!    [`Group::handle_failed`], [`Group::handle_away`] and [`Group::handle_leave`]. It reports the time:
//!    [`Group::handle_timeout`], at [`Group::poll_timeout`] at the latest.
//! 2. It calls [`Group::poll_again`] until that returns nothing. Each answer is a record that was given before and is to be given again.
//!    It looks for the record, and calls [`Group::give_again`] if it has the record, or [`Group::handle_gone`] if the record is gone.
//! 3. While [`Group::wants`] a camera, it takes the camera's next record and calls [`Group::give`], which names the member that gets it.
//! 4. It writes down what [`Group::poll_change`] returns before anybody hears of it. After a restart, [`Place::apply`] of all these
//!    changes gives the place at which the group continues.
//!
//! With [`Deliver::Every`] each record is given until a member has done its work, at least once. It is given again if its member leaves,
//! says that it failed, or says nothing in time. A record ends as done, as a dead letter, or as lost because the edge no longer holds
//! it. Two members have a record at once only after the first one's time is over. With [`Deliver::Newest`] each record is given once.

mod account;
pub mod members;
mod place;
mod readers;
pub mod session;
mod types;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use account::{Account, DEAD_LETTERS_MAX, DeadLetter, MemberAccount};
pub use place::Place;
pub use types::{
    Acknowledged, Change, ERROR_BYTES_MAX, End, Failure, Given, GroupError, GroupOptions, LostReason,
    MEMBERS_MAX, MemberId, OptionsError,
};

use self::readers::Readers;
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::subscription::Deliver;
use crate::units::Instant;

/// A record of a group.
type Key = (CameraName, FrameId);

/// A group of readers.
#[derive(Debug)]
pub struct Group {
    options: GroupOptions,
    place: Place,
    readers: Readers,
    /// Which member works on which record, and until when. Includes records that another member has settled meanwhile.
    leases: BTreeMap<Key, Lease>,
    /// Records that are to be given again.
    waiting: BTreeSet<Key>,
    /// Records that are to be given again and that the driver is looking for.
    looked_for: BTreeSet<Key>,
    account: Account,
    /// Changes that are to be written down.
    changes: VecDeque<Change>,
    /// Grows with each record that is given. The member that was given a record longest ago comes first.
    turn: u64,
}

/// A member's time for a record.
#[derive(Clone, Copy, Debug)]
struct Lease {
    member: MemberId,
    /// `None`: no end.
    until: Option<Instant>,
}

impl Group {
    /// A group that continues at `place`. Members that worked on records may come back for [`GroupOptions::away_max`].
    pub fn new(now: Instant, options: GroupOptions, place: Place) -> Self {
        let mut group = Self {
            options,
            place: Place::new(),
            readers: Readers::default(),
            leases: BTreeMap::new(),
            waiting: BTreeSet::new(),
            looked_for: BTreeSet::new(),
            account: Account::resumed(place.open_count()),
            changes: VecDeque::new(),
            turn: 0,
        };
        for (camera, frame) in place.open() {
            let Some(member) = place.holders(camera, frame).last().copied() else { continue };
            let until = group.lease_end(now);
            group.leases.insert((camera.clone(), frame), Lease { member, until });
            group.readers.restore(member, now + options.away_max).open += 1;
        }
        group.place = place;
        group
    }

    // ---- what is known ------------------------------------------------------------------------------------

    /// The group's place: how far it has come.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// How the group shares its records.
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// Takes other options from now on. Records that are already given keep their time.
    pub fn set_options(&mut self, options: GroupOptions) {
        self.options = options;
    }

    /// The counts of the group's records, by how they ended.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Each member that is here, with the number of records that it works on, and its account.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, usize, &MemberAccount)> {
        let here = self.readers.iter().filter(|(_, member)| member.is_here());
        here.map(|(id, member)| (id, member.open, &member.account))
    }

    /// Whether `member` is a member: it is here, or may come back.
    pub fn has_member(&self, member: MemberId) -> bool {
        self.readers.contains(member)
    }

    /// How many members have left so far. A change of this number shows cheaply that a member has left.
    pub fn left_count(&self) -> u64 {
        self.readers.left()
    }

    /// Whether no member is here, and none may come back.
    pub fn is_deserted(&self) -> bool {
        self.readers.is_empty()
    }

    /// Whether a member is free for a record that was not given before.
    pub fn has_room(&self) -> bool {
        self.readers.free() > self.looked_for.len() && self.place.open_count() < self.options.open_max
    }

    /// Whether a member is free but gets nothing, because too many records are not settled.
    pub fn is_held_back(&self) -> bool {
        self.readers.free() > 0 && self.place.open_count() >= self.options.open_max
    }

    /// Whether a new record of this camera can be given.
    pub fn wants(&self, camera: &CameraName) -> bool {
        self.has_room() && self.is_idle(camera)
    }

    // ---- what members do ----------------------------------------------------------------------------------

    /// A member is here, for the first time or again. It keeps the records that it worked on.
    ///
    /// # Errors
    ///
    /// [`GroupError::Full`].
    pub fn handle_join(&mut self, member: MemberId) -> Result<(), GroupError> {
        if self.readers.len() >= MEMBERS_MAX && !self.readers.contains(member) {
            return Err(GroupError::Full);
        }
        self.readers.join(member);
        Ok(())
    }

    /// A member can take `records` more records. In a group of the newest, it has also done the work of the records that it was given.
    ///
    /// The number is counted in full, even beyond [`GroupOptions::open_max`]: a member that hangs at one record can still take another.
    ///
    /// # Errors
    ///
    /// [`GroupError::NoMember`].
    pub fn handle_ready(&mut self, member: MemberId, records: u32) -> Result<(), GroupError> {
        if self.options.deliver == Deliver::Newest {
            for (camera, frame) in self.held_by(member) {
                self.settle((camera, frame), End::Done(member));
            }
        }
        self.handle_room(member, records)
    }

    /// A member can take `records` more records, which says nothing about the records
    /// that it has. For drivers that pass on a member's requests little by little.
    ///
    /// # Errors
    ///
    /// [`GroupError::NoMember`].
    pub fn handle_room(&mut self, member: MemberId, records: u32) -> Result<(), GroupError> {
        if self.readers.make_room(member, records) { Ok(()) } else { Err(GroupError::NoMember(member.0)) }
    }

    /// A member that is back says which records it has. Other records that it was given have not reached it, and are given again at once.
    pub fn handle_holds(&mut self, member: MemberId, holds: &BTreeSet<(CameraName, FrameId)>) {
        for key in self.held_by(member).into_iter().filter(|key| !holds.contains(key)) {
            self.end_try(key, Failure::Left);
        }
    }

    /// A member has done the work of a record. This counts even if the record was given to others since.
    ///
    /// # Errors
    ///
    /// [`GroupError::NotGiven`] for a record that it never had.
    pub fn handle_done(
        &mut self,
        member: MemberId,
        camera: &CameraName,
        frame: FrameId,
    ) -> Result<Acknowledged, GroupError> {
        self.check_given(member, camera, frame)?;
        let key = (camera.clone(), frame);
        if self.place.holders(camera, frame).is_empty() {
            self.account.again += 1;
            self.release(&key, Some(member));
            return Ok(Acknowledged::Again);
        }
        self.settle(key, End::Done(member));
        Ok(Acknowledged::Settled)
    }

    /// A member could not do the work of a record, and says why. The record is given again at once, to another member if one is free.
    ///
    /// # Errors
    ///
    /// [`GroupError::NotGiven`] for a record that it never had.
    pub fn handle_failed(
        &mut self,
        member: MemberId,
        camera: &CameraName,
        frame: FrameId,
        why: &str,
    ) -> Result<Acknowledged, GroupError> {
        self.check_given(member, camera, frame)?;
        let key = (camera.clone(), frame);
        if self.leases.get(&key).is_none_or(|lease| lease.member != member) {
            return Ok(Acknowledged::Again);
        }
        let was_open = !self.place.holders(camera, frame).is_empty();
        self.end_try(key, Failure::told(why));
        Ok(if was_open { Acknowledged::Settled } else { Acknowledged::Again })
    }

    /// A member's connection was lost. It may come back for [`GroupOptions::away_max`].
    pub fn handle_away(&mut self, now: Instant, member: MemberId) {
        self.readers.lose(member, now + self.options.away_max);
    }

    /// A member leaves. The records that it worked on are given to others at once.
    pub fn handle_leave(&mut self, member: MemberId) {
        for key in self.held_by(member) {
            self.end_try(key, Failure::Left);
        }
        self.readers.remove(member);
    }

    /// The driver no longer looks for a record, and it is not known whether the record can be given again.
    pub fn handle_put_off(&mut self, camera: &CameraName, frame: FrameId) {
        let key = (camera.clone(), frame);
        if self.looked_for.remove(&key) {
            self.waiting.insert(key);
        }
    }

    /// A record that was to be given again cannot be given any more.
    pub fn handle_gone(&mut self, camera: &CameraName, frame: FrameId, why: LostReason) {
        let key = (camera.clone(), frame);
        if self.looked_for.remove(&key) || self.waiting.contains(&key) {
            self.settle(key, End::Lost(why));
        }
    }

    /// The edge has forgotten a camera, or the camera counts its frames anew. The camera's open records are lost.
    pub fn handle_forgotten(&mut self, camera: &CameraName) {
        let open: Vec<_> =
            self.place.open().filter(|(of, _)| *of == camera).map(|(_, frame)| frame).collect();
        for frame in open {
            self.settle((camera.clone(), frame), End::Lost(LostReason::Forgotten));
        }
        // Members that still work on the camera's records work in vain.
        for key in self.leases.keys().filter(|(of, _)| of == camera).cloned().collect::<Vec<_>>() {
            self.release(&key, None);
        }
        self.note(Change::Forgotten { camera: camera.clone() });
    }

    // ---- what is given ------------------------------------------------------------------------------------

    /// Ends the time of members that have had a record for too long, and removes members that did not come back in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let gone: Vec<_> = self.readers.away().filter(|(_, until)| *until <= now).map(|(id, _)| id).collect();
        for member in gone {
            self.handle_leave(member);
        }
        let late: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, lease)| is_over(lease.until))
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            self.end_try(key, Failure::Silent);
        }
    }

    /// A record that was given before and is to be given again, now that a member is free for it. The
    /// driver looks for the record, and then calls [`Group::give_again`] or [`Group::handle_gone`]. One
    /// record of each camera is looked for at a time, because several would send decoders to and fro.
    pub fn poll_again(&mut self) -> Option<(CameraName, FrameId)> {
        if self.readers.free() <= self.looked_for.len() {
            return None;
        }
        let may = |camera: &CameraName| {
            self.looked_for.iter().all(|(of, _)| of != camera) && self.is_free_of_leases(camera)
        };
        let key = self.waiting.iter().find(|(camera, _)| may(camera))?.clone();
        self.waiting.remove(&key);
        self.looked_for.insert(key.clone());
        Some(key)
    }

    /// Gives a record again that was looked for and found. `None` if no member is free for it any more,
    /// or if it has ended meanwhile. If it has not ended, [`Group::poll_again`] returns it again.
    pub fn give_again(&mut self, now: Instant, camera: &CameraName, frame: FrameId) -> Option<Given> {
        let key = (camera.clone(), frame);
        if !self.looked_for.remove(&key) {
            return None;
        }
        let Some(next) = self.readers.next() else {
            self.waiting.insert(key);
            return None;
        };
        // Prefers a member other than the last one.
        let last = self.place.holders(camera, frame).last().copied();
        let other = self
            .readers
            .free_members()
            .filter(|(id, _)| Some(*id) != last)
            .min_by_key(|(_, m)| (m.open, m.turn));
        let member = other.map_or(next, |(id, _)| id);
        Some(self.lease(now, member, camera.clone(), frame))
    }

    /// Gives a camera's next record to a member. `None` if the group does not want the record ([`Group::wants`]), or had it before.
    pub fn give(&mut self, now: Instant, camera: &CameraName, frame: FrameId) -> Option<Given> {
        if !self.wants(camera) || self.place.has_passed(camera, frame) {
            return None;
        }
        let member = self.readers.next()?;
        Some(self.lease(now, member, camera.clone(), frame))
    }

    /// The next change of a record, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When to call [`Group::handle_timeout`] at the latest, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let leases = self.leases.values().filter_map(|lease| lease.until);
        leases.chain(self.readers.away().map(|(_, until)| until)).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Whether a new record of this camera may be given. If order is kept, not while an older one is open.
    fn is_idle(&self, camera: &CameraName) -> bool {
        !self.options.ordered || !self.place.has_open(camera) && self.is_free_of_leases(camera)
    }

    /// Whether a record of this camera may be given again. If order is kept, not while a member works on
    /// another record of the camera. That other record may have been settled by a member whose time was over.
    fn is_free_of_leases(&self, camera: &CameraName) -> bool {
        let mut at_work = self.leases.keys().chain(&self.looked_for);
        !self.options.ordered || at_work.all(|(of, _)| of != camera)
    }

    fn lease_end(&self, now: Instant) -> Option<Instant> {
        (self.options.deliver == Deliver::Every).then(|| now + self.options.again_after)
    }

    fn held_by(&self, member: MemberId) -> Vec<Key> {
        let held = self.leases.iter().filter(|(_, lease)| lease.member == member);
        held.map(|(key, _)| key.clone()).collect()
    }

    fn check_given(&self, member: MemberId, camera: &CameraName, frame: FrameId) -> Result<(), GroupError> {
        let holders = self.place.holders(camera, frame);
        let was_given =
            holders.contains(&member) || (holders.is_empty() && self.place.has_passed(camera, frame));
        if was_given { Ok(()) } else { Err(GroupError::NotGiven { camera: camera.clone(), frame }) }
    }

    fn lease(&mut self, now: Instant, member: MemberId, camera: CameraName, frame: FrameId) -> Given {
        self.turn += 1;
        self.readers.give(member, self.turn);
        let until = self.lease_end(now);
        self.leases.insert((camera.clone(), frame), Lease { member, until });
        if self.place.holders(&camera, frame).is_empty() {
            self.account.given += 1;
        } else {
            self.account.given_again += 1;
        }
        self.note(Change::Given { camera: camera.clone(), frame, member });
        let attempt = self.place.holders(&camera, frame).len();
        Given { member, camera, frame, attempt }
    }

    /// Ends the lease of a record. With `only`, only if this member holds it.
    fn release(&mut self, key: &Key, only: Option<MemberId>) {
        let is_meant = |lease: &Lease| only.is_none_or(|member| lease.member == member);
        if self.leases.get(key).is_some_and(is_meant)
            && let Some(lease) = self.leases.remove(key)
            && let Some(member) = self.readers.get_mut(lease.member)
        {
            member.open -= 1;
        }
    }

    fn settle(&mut self, key: Key, end: End) {
        // Another member that works on the record keeps its lease, until it says something or its time is over.
        let by = if let End::Done(member) = end { Some(member) } else { None };
        self.release(&key, by);
        self.waiting.remove(&key);
        self.looked_for.remove(&key);
        if let Some(member) = by.and_then(|member| self.readers.get_mut(member)) {
            member.account.done += 1;
        }
        let (camera, frame) = key;
        self.note(Change::Settled { camera, frame, end });
    }

    /// A try has ended without its work done. The record is given again, or ends because it has been tried often enough.
    fn end_try(&mut self, key: Key, last: Failure) {
        let tries = self.place.holders(&key.0, key.1).len();
        if let Some(member) = self.leases.get(&key).and_then(|lease| self.readers.get_mut(lease.member)) {
            member.account.failed += 1;
        }
        self.release(&key, None);
        if tries == 0 {
            // Another member has settled the record meanwhile.
            return;
        }
        self.account.count_failure(&last);
        let tries_max = if self.options.keeps_place() { self.options.tries_max } else { 1 };
        let was_told = matches!(last, Failure::Told(_));
        if !self.options.keeps_place() && !was_told {
            self.settle(key, End::Lost(LostReason::MemberLeft));
        } else if tries >= tries_max {
            self.settle(key, End::Dead { tries, last });
        } else {
            self.waiting.insert(key);
        }
    }

    fn note(&mut self, change: Change) {
        self.place.apply(&change);
        self.account.apply(&change);
        self.changes.push_back(change);
        debug_assert!(
            self.account.is_complete(self.place.open_count()),
            "every record that was given is open or has ended: {:?}",
            self.account
        );
    }
}

#[cfg(test)]
mod tests;
