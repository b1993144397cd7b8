//! The readers of a group: which records each works on and can take, and how many records all of them can take together.

use std::collections::BTreeMap;

use super::account::MemberAccount;
use super::types::MemberId;
use crate::units::Instant;

/// A member's state.
#[derive(Debug, Default)]
pub(super) struct Member {
    /// How many records it works on.
    pub(super) open: usize,
    /// The turn in which it was last given a record.
    pub(super) turn: u64,
    pub(super) account: MemberAccount,
    /// How many records it can take now. 0 while it is away.
    free: u32,
    /// If its connection was lost: until when it may come back.
    away_until: Option<Instant>,
}

impl Member {
    pub(super) fn is_here(&self) -> bool {
        self.away_until.is_none()
    }
}

/// All readers.
#[derive(Debug, Default)]
pub(super) struct Readers {
    members: BTreeMap<MemberId, Member>,
    /// How many records all members can take. The sum is read far more often than it changes.
    free: usize,
    /// How many members are away. Nearly always none.
    away: usize,
    /// How many members have left so far.
    left: u64,
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn contains(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    pub(super) fn get_mut(&mut self, member: MemberId) -> Option<&mut Member> {
        self.members.get_mut(&member)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// The members that are away, and until when each may come back.
    pub(super) fn away(&self) -> impl Iterator<Item = (MemberId, Instant)> {
        debug_assert_eq!(
            self.away,
            self.members.values().filter(|member| !member.is_here()).count(),
            "the number is that of all members that are away"
        );
        let all = if self.away == 0 { None } else { Some(self.iter()) };
        all.into_iter().flatten().filter_map(|(id, member)| Some((id, member.away_until?)))
    }

    /// How many records all members can take now.
    pub(super) fn free(&self) -> usize {
        debug_assert_eq!(
            self.free,
            self.members.values().map(|member| member.free as usize).sum::<usize>(),
            "the sum is that of all members"
        );
        self.free
    }

    /// Members that can take a record.
    pub(super) fn free_members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.iter().filter(|(_, member)| member.free > 0)
    }

    /// The member that gets the next record: among the free members with the fewest records, the one that was given a record longest ago.
    pub(super) fn next(&self) -> Option<MemberId> {
        self.free_members().min_by_key(|(_, member)| (member.open, member.turn)).map(|(id, _)| id)
    }

    /// A member is here, for the first time or again, and can take nothing yet.
    pub(super) fn join(&mut self, member: MemberId) {
        self.set_free(member, 0);
        self.away -= usize::from(self.members.entry(member).or_default().away_until.take().is_some());
    }

    /// A member had records before the edge was started again, and may come back.
    pub(super) fn restore(&mut self, member: MemberId, away_until: Instant) -> &mut Member {
        self.members.entry(member).or_insert_with(|| {
            self.away += 1;
            Member { away_until: Some(away_until), ..Member::default() }
        })
    }

    /// A member can take `records` more records, unless it is away. Returns whether it is a member.
    pub(super) fn make_room(&mut self, member: MemberId, records: u32) -> bool {
        let Some(entry) = self.members.get(&member) else { return false };
        if entry.is_here() {
            self.set_free(member, entry.free.saturating_add(records));
        }
        true
    }

    /// Notes that a member that can take a record is given one.
    pub(super) fn give(&mut self, member: MemberId, turn: u64) {
        let Some(entry) = self.members.get_mut(&member) else { return };
        (entry.open, entry.turn) = (entry.open + 1, turn);
        entry.account.given += 1;
        let free = entry.free - 1;
        self.set_free(member, free);
    }

    /// A member's connection was lost. It may come back until `until`, or until the time that was set before.
    pub(super) fn lose(&mut self, member: MemberId, until: Instant) {
        self.set_free(member, 0);
        if let Some(entry) = self.members.get_mut(&member) {
            self.away += usize::from(entry.away_until.is_none());
            entry.away_until.get_or_insert(until);
        }
    }

    pub(super) fn remove(&mut self, member: MemberId) {
        self.set_free(member, 0);
        if let Some(member) = self.members.remove(&member) {
            self.left += 1;
            self.away -= usize::from(!member.is_here());
        }
    }

    fn set_free(&mut self, member: MemberId, free: u32) {
        if let Some(entry) = self.members.get_mut(&member) {
            let before = std::mem::replace(&mut entry.free, free);
            self.free = self.free - before as usize + free as usize;
        }
    }
}
