//! Checks groups of workers: every given record is done, given again or stated as lost, and statements about it are true.
//!
//! The rules see what members are given and what they report. The rules keep their own account of this, and do not look into a group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::group::session::PlaceTold;
use mez_core::group::{Account, Acknowledged, Change, End, Given, GroupOptions, LostReason, MemberId};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::subscription::Deliver;

use super::Checks;
use super::known::{Fate, Shared};
use crate::time::{Moment, ms, secs};

/// How soon an unfinished record is given again, if a member is free all that time.
const AGAIN_MAX: Duration = secs(2);
/// The same time, if a still of the record has to be made first, from the beginning of its chain.
const AGAIN_STILL_MAX: Duration = secs(10);
/// By how much the edge's clock may be wrong over a member's time for a record.
const CLOCK_ERROR: Duration = ms(5);
/// A power cut leaves changes on the disk that are at least this old.
pub(crate) const WRITTEN_AFTER: Duration = ms(250);

/// What the rules see of a group from time to time.
pub(crate) struct GroupSeen<'a> {
    pub(crate) account: &'a Account,
    pub(crate) open: usize,
    /// Whether a member is free.
    pub(crate) is_free: bool,
    /// The newest record of each camera, and when it arrived, if the group waits for fresh records and its edge runs. Only records that
    /// arrived since the group was opened, and of which no still has to be made.
    pub(crate) newest: Vec<(CameraName, FrameId, Moment)>,
}

/// A member's report about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Done,
    Failed,
}

impl Checks {
    fn shared(&mut self, group: usize) -> &mut Shared {
        self.groups.entry(group).or_default()
    }

    /// Begins a group in a process that has just started. `kept`: its changes were on disk. `cut`: the power was cut.
    pub(crate) fn group_begins(&mut self, group: usize, options: GroupOptions, (kept, cut): (bool, bool)) {
        let now = self.now;
        let shared = self.shared(group);
        let is_first = shared.options.is_none();
        shared.options = Some(options);
        if is_first {
            return;
        }
        if !kept {
            *shared = Shared { options: Some(options), place: Some(PlaceTold::Lost), ..Shared::default() };
            return;
        }
        (shared.place, shared.is_unsure) = (Some(PlaceTold::Restored), shared.is_unsure || cut);
        // Every holder may return for a while, and gets its full time again.
        let holders: Vec<MemberId> =
            shared.records.values().filter_map(|fate| fate.holders.last()).copied().collect();
        shared.away = holders.into_iter().map(|member| (member, now)).collect();
        for fate in shared.records.values_mut() {
            fate.until = now + options.again_after;
        }
        shared.account = Account { given: shared.open() as u64, ..Account::default() };
    }

    /// The power is cut: the last writes may be lost.
    pub(crate) fn group_unplugged(&mut self, group: usize) {
        let now = self.now;
        let shared = self.shared(group);
        let is_kept = |at: Moment| at + WRITTEN_AFTER < now;
        let (mut lanes, mut records) = (BTreeMap::new(), BTreeMap::new());
        for ((camera, frame), fate) in std::mem::take(&mut shared.records) {
            if is_kept(fate.given) {
                let lane = lanes.entry(camera.clone()).or_insert(frame);
                *lane = frame.max(*lane);
                let ended = fate.ended.filter(|ended| is_kept(*ended));
                // A record whose end may be lost may come again or not, so the rules forget it.
                if ended == fate.ended && is_kept(fate.at) {
                    records.insert((camera, frame), Fate { ended, ..fate });
                }
            }
        }
        (shared.lanes, shared.records) = (lanes, records);
        shared.account = Account::default();
    }

    /// Checks what a member was told about the place that it `knew`, if it knew the place of another life.
    pub(crate) fn group_joined(&mut self, group: usize, member: MemberId, (knew, told): (bool, PlaceTold)) {
        let now = self.now;
        let shared = self.shared(group);
        let away_max = shared.options().away_max;
        let away = shared.away.remove(&member).filter(|away| *away + away_max <= now + CLOCK_ERROR);
        if let Some(away) = away {
            // The member has returned too late for its records, or just in time, because clocks differ.
            let is_close = away + away_max + CLOCK_ERROR > now;
            for fate in shared.records.values_mut().filter(|fate| fate.holders.last() == Some(&member)) {
                fate.until = fate.until.min(now);
                fate.is_unsure |= is_close;
            }
        }
        let keeps = shared.options().keeps_place();
        let wanted = shared.place.filter(|_| knew && keeps).unwrap_or(PlaceTold::Kept);
        self.expect(told == wanted, "place", || {
            format!("member {member:?} of group {group} was told {told:?} of the place, and it is {wanted:?}")
        });
    }

    /// A member that has returned has these records. Other records that it was given did not reach it.
    pub(crate) fn group_holds(
        &mut self,
        group: usize,
        member: MemberId,
        holds: &BTreeSet<(CameraName, FrameId)>,
    ) {
        let now = self.now;
        let records = self.shared(group).records.iter_mut();
        let of_it =
            records.filter(|(key, fate)| fate.holders.last() == Some(&member) && !holds.contains(key));
        of_it.for_each(|(_, fate)| fate.until = fate.until.min(now));
    }

    /// The edge knows that a member's connection is lost.
    pub(crate) fn group_away(&mut self, group: usize, member: MemberId) {
        let now = self.now;
        self.shared(group).away.entry(member).or_insert(now);
    }

    /// A member has left.
    pub(crate) fn group_left(&mut self, group: usize, member: MemberId) {
        let now = self.now;
        let shared = self.shared(group);
        shared.away.remove(&member);
        for fate in shared.records.values_mut().filter(|fate| fate.holders.last() == Some(&member)) {
            fate.until = fate.until.min(now);
        }
    }

    /// Checks a record that a member was given. `newest`: the newest record in the edge's log. `is_made`: the record is a still that had to be made.
    pub(crate) fn group_given(
        &mut self,
        group: usize,
        given: &Given,
        record: &Record,
        (newest, is_made): (Option<FrameId>, bool),
    ) {
        let now = self.now;
        let Given { member, camera, frame, attempt } = given;
        let meta = &record.frame.meta;
        self.matching_runs(camera, meta, &record.frame.payload, "a member of a group got");
        self.check_origin(camera, meta, &record.frame.payload);
        let shared = self.shared(group);
        let options = shared.options();
        let key = (camera.clone(), *frame);
        let known = shared.records.get(&key).cloned();
        let lane = shared.lanes.get(camera).copied();
        let until = |fate: &Fate| shared.alone_until(fate);
        let works = |fate: &Fate| fate.ended.is_none() && until(fate) > now + CLOCK_ERROR;
        let holder = known.as_ref().filter(|fate| works(fate)).and_then(|fate| fate.holders.last().copied());
        let other = shared.records.iter().find(|((of, id), fate)| of == camera && id != frame && works(fate));
        let other = other.map(|((_, id), _)| *id);
        let ended = known.as_ref().and_then(|fate| fate.ended);
        let is_again = *attempt > 1;
        self.expect(holder.is_none(), "alone", || {
            format!("{frame} of {camera} was given to {member:?} while it was {holder:?}'s")
        });
        self.expect(ended.is_none(), "settled", || format!("{frame} of {camera} was given after its end"));
        self.expect(*attempt <= options.tries_max, "settled", || {
            format!("{frame} of {camera} was given for the {attempt}th time")
        });
        self.expect(!options.ordered || other.is_none(), "turns", || {
            format!("{frame} of {camera} was given while a member works on {other:?}")
        });
        self.expect(is_again || lane.is_none_or(|lane| *frame > lane), "place", || {
            format!("{frame} of {camera} was given for the first time after {lane:?}")
        });
        let is_old = options.deliver == Deliver::Newest && !is_made && newest.is_some_and(|id| id > *frame);
        self.expect(!is_old || record.is_overtaken(), "freshest", || {
            format!("{frame} of {camera} was given, and {newest:?} was there")
        });
        let shared = self.shared(group);
        // Whoever is free after this may not have been before.
        shared.ready_since = None;
        shared.lanes.insert(camera.clone(), lane.map_or(*frame, |lane| lane.max(*frame)));
        let count = if is_again { &mut shared.account.given_again } else { &mut shared.account.given };
        *count += 1;
        let until = if options.keeps_place() { now + options.again_after } else { Moment::NEVER };
        let fate = shared.records.entry(key).or_insert_with(|| Fate {
            holders: Vec::new(),
            at: now,
            until,
            given: now,
            ended: None,
            is_made,
            tries: 0,
            is_unsure: is_again,
        });
        fate.tries = *attempt;
        fate.holders.push(*member);
        (fate.at, fate.until) = (now, until);
    }

    /// Checks the answer to a member's report about a record.
    pub(crate) fn group_said(
        &mut self,
        group: usize,
        member: MemberId,
        (camera, frame): (&CameraName, FrameId),
        said: Said,
        answer: Option<Acknowledged>,
    ) {
        let now = self.now;
        let shared = self.shared(group);
        let has_passed = shared.lanes.get(camera).is_some_and(|lane| frame <= *lane);
        let Some(fate) = shared.records.get_mut(&(camera.clone(), frame)) else {
            // The record was given in an earlier life of the group, or to no member. The report settles nothing.
            let counts = said == Said::Done && answer == Some(Acknowledged::Again);
            shared.account.again += u64::from(counts);
            let is_again = has_passed && answer == Some(Acknowledged::Again);
            let may_be = answer.is_none() || is_again || shared.is_unsure;
            return self.expect(may_be, "answers", || {
                format!("{member:?} said {said:?} of {frame} of {camera}, which nobody was given: {answer:?}")
            });
        };
        let (was_given, is_unsure) = (fate.holders.contains(&member), fate.is_unsure);
        let is_last = fate.holders.last() == Some(&member);
        let is_open = fate.ended.is_none();
        // A member that reported a failure, or whose time is over, does not have the record any more.
        let has_it = is_last && fate.until > now;
        let wanted = match said {
            _ if !is_open => Some(Acknowledged::Again),
            _ if !was_given => None,
            Said::Done => Some(Acknowledged::Settled),
            Said::Failed if has_it => Some(Acknowledged::Settled),
            Said::Failed => Some(Acknowledged::Again),
        };
        let is_close =
            is_last && said == Said::Failed && fate.until.since(now).max(now.since(fate.until)) < CLOCK_ERROR;
        if was_given && is_open && said == Said::Failed && has_it {
            fate.until = now;
        }
        if said == Said::Done && !is_open {
            shared.account.again += 1;
        }
        self.expect(answer == wanted || is_close || is_unsure, "answers", || {
            format!("{member:?} said {said:?} of {frame} of {camera}, given to it: {was_given}, open: {is_open}; the answer was {answer:?}")
        });
    }

    /// Checks a change that a group states about its records.
    pub(crate) fn group_changed(&mut self, group: usize, change: &Change, is_held: bool) {
        let now = self.now;
        let shared = self.shared(group);
        match change {
            Change::Given { .. } => {}
            Change::Forgotten { camera } => {
                shared.records.retain(|(of, _), _| of != camera);
                shared.lanes.remove(camera);
            }
            Change::Settled { camera, frame, end } => {
                let is_every = shared.options().keeps_place();
                let tries_max = if is_every { shared.options().tries_max } else { 1 };
                let Some(fate) = shared.records.get_mut(&(camera.clone(), *frame)) else { return };
                let was = fate.ended.replace(now);
                let (holders, over) = (fate.holders.clone(), fate.clone());
                match end {
                    End::Done(_) => shared.account.done += 1,
                    End::Dead { .. } => shared.account.dead += 1,
                    End::Lost(reason) => *shared.account.lost.entry(*reason).or_default() += 1,
                }
                let is_over = shared.alone_until(&over) <= now + CLOCK_ERROR;
                let is_so = match end {
                    End::Done(member) => holders.contains(member) || over.is_unsure,
                    End::Dead { tries, .. } => *tries == over.tries && *tries == tries_max && is_over,
                    End::Lost(LostReason::Evicted) => !is_held && is_over,
                    End::Lost(LostReason::MemberLeft) => !is_every,
                    End::Lost(_) => true,
                };
                self.expect(was.is_none(), "settled", || format!("{frame} of {camera} ended twice"));
                self.expect(is_so, "settled", || {
                    format!("{frame} of {camera} ended as {end:?}; it was given to {holders:?}, is held: {is_held}")
                });
            }
        }
    }

    /// Checks that no record is forgotten, and that the account is right.
    pub(crate) fn watch_group(&mut self, group: usize, seen: &GroupSeen<'_>) {
        let now = self.now;
        let shared = self.shared(group);
        let options = shared.options();
        shared.free_since = seen.is_free.then(|| shared.free_since.unwrap_or(now));
        let at_work: BTreeSet<&CameraName> = (shared.records.iter())
            .filter(|(_, fate)| shared.alone_until(fate) > now)
            .map(|((camera, _), _)| camera)
            .collect();
        let forgotten = shared.free_since.filter(|_| options.keeps_place()).and_then(|free_since| {
            shared.records.iter().find(|((camera, _), fate)| {
                let over = shared.alone_until(fate).max(free_since);
                let patience = if fate.is_made { AGAIN_STILL_MAX } else { AGAIN_MAX };
                let waits = options.ordered && at_work.contains(camera);
                fate.ended.is_none() && !fate.is_unsure && !waits && over + patience < now
            })
        });
        let forgotten = forgotten.map(|((camera, frame), fate)| format!("{frame} of {camera}: {fate:?}"));
        // In an ordered group, a record may also wait for the one before it.
        let may_take = options.fresh && !options.ordered && seen.is_free && seen.open < options.open_max;
        shared.ready_since = may_take.then(|| shared.ready_since.unwrap_or(now));
        for (camera, frame, _) in &seen.newest {
            // A record may be appended long after it arrived.
            let since = shared.newest_since.entry(camera.clone()).or_insert((*frame, now));
            if since.0 != *frame {
                *since = (*frame, now);
            }
        }
        let waits = shared.ready_since.and_then(|ready_since| {
            seen.newest.iter().find(|(camera, frame, arrived)| {
                let is_unread = shared.lanes.get(camera).is_none_or(|lane| frame > lane);
                let began = shared.newest_since.get(camera).map_or(now, |(_, since)| ready_since.max(*since));
                // The next record was due in less than the age. The wait ends when that is late by a quarter of the gap, which is less than twice the age.
                is_unread && now.since(began) > began.since(*arrived) * 3 / 2 + CLOCK_ERROR
            })
        });
        let waits =
            waits.map(|(camera, frame, arrived)| format!("{frame} of {camera}, which came {arrived}"));
        let open = shared.open();
        let is_unsure = shared.is_unsure;
        let (mut told, mut known) = (seen.account.clone(), shared.account.clone());
        for account in [&mut told, &mut known] {
            // Members report these counts. The rules check each report.
            (account.failed, account.silent, account.left) = (0, 0, 0);
            account.dead_letters.clear();
        }
        let is_complete = seen.account.is_complete(seen.open);
        self.expect(forgotten.is_none(), "settled", || {
            format!("nobody works on {} since {}, and somebody is free", forgotten.unwrap_or_default(), now)
        });
        self.expect(waits.is_none(), "patient", || {
            format!("nobody was given {} until {now}, and somebody is free", waits.unwrap_or_default())
        });
        self.expect(is_complete, "account", || format!("{:?} with {} open", seen.account, seen.open));
        self.expect(is_unsure || (told == known && open == seen.open), "account", || {
            format!("{told:?} with {} open is told, and it is {known:?} with {open}", seen.open)
        });
    }
}
