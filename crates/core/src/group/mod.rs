//! Shares the records of cameras among the members of a group.
//!
//! A group reads like one application. What it reads goes to whichever member is free. It has no input or
//! output of its own.
//!
//! | question | where |
//! | --- | --- |
//! | who gets which record, and how does each end? | this file: [`Group`] |
//! | which members are there, and what can they take? | `readers.rs` |
//! | how far has the group come, and what must survive a restart? | `place.rs` |
//! | what has become of all records, in numbers? | `account.rs` |
//! | whose group is it, and who may be a member? | `members.rs` |
//! | where do records come from, new ones and those that are given again? | `session/`, which serves a group as an edge does |
//!
//! Whoever holds a [`Group`] drives it:
//!
//! 1. It reports what members do: [`Group::handle_join`], [`Group::handle_ready`], [`Group::handle_done`],
//!    [`Group::handle_failed`], [`Group::handle_away`] and [`Group::handle_leave`]. It reports the time:
//!    [`Group::handle_timeout`], at [`Group::poll_timeout`] at the latest.
//! 2. It calls [`Group::poll_again`] until that returns nothing. Each answer is a record that was given before
//!    and is to be given again. It looks for it, and then says for whom it has it ([`Group::give_again`]) or that it is gone
//!    ([`Group::handle_gone`]).
//! 3. While [`Group::wants`] a camera, it takes the camera's next record and asks [`Group::give`] for whom it is.
//! 4. It writes down what [`Group::poll_change`] returns before anybody hears of it. After a restart
//!    [`Place::apply`] of all of them gives the place from which the group goes on.
//!
//! With [`Deliver::Every`] each record is given until a member has done its work, at least once: it is given
//! again when its member leaves, says that it failed, or says nothing in time. It ends done, as a dead letter, or
//! lost because the edge no longer holds it. Two members have it at once only after the first has had its time. With
//! [`Deliver::Newest`] each record is given once.

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
    /// Who works on which record, and until when. Also on records that somebody else has settled meanwhile.
    leases: BTreeMap<Key, Lease>,
    /// Records that are to be given again.
    waiting: BTreeSet<Key>,
    /// Those of them that somebody looks for.
    looked_for: BTreeSet<Key>,
    account: Account,
    /// What is to be written down.
    changes: VecDeque<Change>,
    /// Grows with each record that is given: who was given one longest ago comes first.
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
    /// A group that goes on where it was. Members that worked on something may come back for a while.
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

    /// How far the group has come.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// How it shares its records.
    pub fn options(&self) -> &GroupOptions {
        &self.options
    }

    /// Takes other options from now on. What is given keeps its time.
    pub fn set_options(&mut self, options: GroupOptions) {
        self.options = options;
    }

    /// What has become of its records.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Each member that is here: how many records it works on, and what it has done.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, usize, &MemberAccount)> {
        let here = self.readers.iter().filter(|(_, member)| member.is_here());
        here.map(|(id, member)| (id, member.open, &member.account))
    }

    /// Whether it is a member: it is here, or may come back.
    pub fn has_member(&self, member: MemberId) -> bool {
        self.readers.contains(member)
    }

    /// How many members have left so far. It tells cheaply whether any has.
    pub fn left_count(&self) -> u64 {
        self.readers.left()
    }

    /// Whether nobody is here, nor may come back.
    pub fn is_deserted(&self) -> bool {
        self.readers.is_empty()
    }

    /// Whether somebody is free for a record that was not given before.
    pub fn has_room(&self) -> bool {
        self.readers.free() > self.looked_for.len() && self.place.open_count() < self.options.open_max
    }

    /// Whether somebody is free, and gets nothing because too many records are not settled.
    pub fn is_held_back(&self) -> bool {
        self.readers.free() > 0 && self.place.open_count() >= self.options.open_max
    }

    /// Whether a record of this camera can be given that was not given before.
    pub fn wants(&self, camera: &CameraName) -> bool {
        self.has_room() && self.is_idle(camera)
    }

    // ---- what members do ----------------------------------------------------------------------------------

    /// A member is here, for the first time or again. What it worked on stays with it.
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

    /// A member can take so many records more. In a group of the newest, it has done what it was given.
    ///
    /// What it says is counted in full, also beyond [`GroupOptions::open_max`]: a member that hangs at one record can still take another.
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

    /// A member can be given so many records more, and says nothing of those that it has. For drivers that pass on what a
    /// member asked for little by little.
    ///
    /// # Errors
    ///
    /// [`GroupError::NoMember`].
    pub fn handle_room(&mut self, member: MemberId, records: u32) -> Result<(), GroupError> {
        if self.readers.make_room(member, records) { Ok(()) } else { Err(GroupError::NoMember(member.0)) }
    }

    /// A member that is back says which records it has. What else it was given has not reached it, and is given again at
    /// once.
    pub fn handle_holds(&mut self, member: MemberId, holds: &BTreeSet<(CameraName, FrameId)>) {
        for key in self.held_by(member).into_iter().filter(|key| !holds.contains(key)) {
            self.end_try(key, Failure::Left);
        }
    }

    /// A member has done the work of a record. That counts also if the record was given to others since.
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

    /// A member could not do the work of a record, and says why. It is given again at once, to another if one is free.
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

    /// A member leaves. What it worked on is given to others at once.
    pub fn handle_leave(&mut self, member: MemberId) {
        for key in self.held_by(member) {
            self.end_try(key, Failure::Left);
        }
        self.readers.remove(member);
    }

    /// A record is looked for no more, and nobody knows whether it can be given again.
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

    /// The edge has forgotten a camera, or the camera counts its frames anew. What was open of it is lost.
    pub fn handle_forgotten(&mut self, camera: &CameraName) {
        let open: Vec<_> =
            self.place.open().filter(|(of, _)| *of == camera).map(|(_, frame)| frame).collect();
        for frame in open {
            self.settle((camera.clone(), frame), End::Lost(LostReason::Forgotten));
        }
        // Who still works on one of its records works for nobody.
        for key in self.leases.keys().filter(|(of, _)| of == camera).cloned().collect::<Vec<_>>() {
            self.release(&key, None);
        }
        self.note(Change::Forgotten { camera: camera.clone() });
    }

    // ---- what is given ------------------------------------------------------------------------------------

    /// Ends the time of members that have had a record for too long, or that did not come back.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let gone: Vec<_> = self
            .readers
            .iter()
            .filter(|(_, member)| is_over(member.away_until()))
            .map(|(id, _)| id)
            .collect();
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

    /// A record that was given before and is to be given again, now that somebody is free for it. Whoever asks looks for
    /// it, and then calls [`Group::give_again`] or [`Group::handle_gone`]. One of each camera is looked for at a time: several
    /// would send decoders to and fro.
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

    /// Gives a record again that was looked for and found. `None` if nobody is free for it any more, or it has ended
    /// meanwhile. If it has not, it is asked for again.
    pub fn give_again(&mut self, now: Instant, camera: &CameraName, frame: FrameId) -> Option<Given> {
        let key = (camera.clone(), frame);
        if !self.looked_for.remove(&key) {
            return None;
        }
        let Some(next) = self.readers.next() else {
            self.waiting.insert(key);
            return None;
        };
        // Somebody else tries it, if somebody else is free.
        let last = self.place.holders(camera, frame).last().copied();
        let other = self
            .readers
            .free_members()
            .filter(|(id, _)| Some(*id) != last)
            .min_by_key(|(_, m)| (m.open, m.turn));
        let member = other.map_or(next, |(id, _)| id);
        Some(self.lease(now, member, camera.clone(), frame))
    }

    /// Gives a camera's next record to a member. `None` if the group does not want it ([`Group::wants`]), or had
    /// it before.
    pub fn give(&mut self, now: Instant, camera: &CameraName, frame: FrameId) -> Option<Given> {
        if !self.wants(camera) || self.place.has_passed(camera, frame) {
            return None;
        }
        let member = self.readers.next()?;
        Some(self.lease(now, member, camera.clone(), frame))
    }

    /// What has happened to a record, in order.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// When to call [`Group::handle_timeout`] at the latest, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let leases = self.leases.values().filter_map(|lease| lease.until);
        leases.chain(self.readers.iter().filter_map(|(_, member)| member.away_until())).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Whether a new record of this camera may be given: not while an older one is open, if order is kept.
    fn is_idle(&self, camera: &CameraName) -> bool {
        !self.options.ordered || !self.place.has_open(camera) && self.is_free_of_leases(camera)
    }

    /// Whether a record of this camera may be given again: not while another is worked on, if order is kept. That may be
    /// one that was settled by a member whose time was over.
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

    /// The member that has a record no longer works on it. `only`: if it is this one.
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
        // Whoever else works on it goes on, until it says something or its time is over.
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

    /// A try has ended without its work done: the record is given again, or has been tried often enough.
    fn end_try(&mut self, key: Key, last: Failure) {
        let tries = self.place.holders(&key.0, key.1).len();
        if let Some(member) = self.leases.get(&key).and_then(|lease| self.readers.get_mut(lease.member)) {
            member.account.failed += 1;
        }
        self.release(&key, None);
        if tries == 0 {
            // Somebody else has settled it meanwhile.
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
