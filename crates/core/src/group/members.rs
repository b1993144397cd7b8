//! Decides who owns a group, and who may be a member of it.
//!
//! A group belongs to the principal that began it, under a name of the principal's own: `detect` of `app/counter` is another
//! group than `detect` of `app/other`. Members are programs of that one principal, on as many hosts as have its certificate. A
//! member settles records for all members, so whoever joins could lose records for the others. No grant of cameras permits that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::types::{GroupOptions, MEMBERS_MAX, MemberId, OptionsError};
use crate::contract::Contract;
use crate::name::{CameraName, CameraPattern, NameError};
use crate::rights::{Bearer, Granted};
use crate::subscription::SubscriptionSpec;
use crate::units::Instant;

/// The most groups of one principal, including groups without members.
pub const GROUPS_OF_PRINCIPAL_MAX: usize = 16;
/// The most groups of an edge.
pub const GROUPS_MAX: usize = 1_024;
/// The place of a group without members is kept for this long.
pub const DESERTED_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The name of a group: one segment of a camera's name, such as `detect`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(CameraName);

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<Self, GroupNameError> {
        if text.contains('/') { Err(GroupNameError::Segments) } else { Ok(Self(text.parse()?)) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not a valid name of a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupNameError {
    /// It has several segments.
    #[error("a group name has one segment, such as detect; leave out the slash")]
    Segments,
    /// It has an invalid character, or too many characters.
    #[error("not a group name: {0}")]
    Name(#[from] NameError),
}

/// The identity of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The principal that owns it.
    pub owner: Bearer,
    /// Its name.
    pub name: GroupName,
}

/// The request that all members of a group share.
#[derive(Clone, Debug, PartialEq)]
pub struct Asks {
    /// The cameras.
    pub cameras: CameraPattern,
    /// Which of these cameras the principal may read.
    pub granted: Granted,
    /// The contract for their frames.
    pub contract: Contract,
    /// How records are shared.
    pub options: GroupOptions,
}

impl Asks {
    /// The request of a member. `options` says which frames are wanted.
    ///
    /// # Errors
    /// The request asks for something that a group cannot give.
    pub fn of(spec: &SubscriptionSpec, options: GroupOptions) -> Result<Self, Refused> {
        options.validate()?;
        if spec.span.begin.is_some() || spec.span.end.is_some() || !spec.after.is_empty() {
            return Err(Refused::Span);
        }
        if spec.past.fill || spec.wants_originals() {
            return Err(Refused::Past);
        }
        let SubscriptionSpec { cameras, granted, contract, .. } = spec.clone();
        Ok(Self { cameras, granted, contract, options })
    }

    /// The first value in which another member's request differs. `None`: both are the same.
    fn differs_from(&self, other: &Self) -> Option<&'static str> {
        let (ours, theirs) = (&self.options, &other.options);
        [
            ("cameras", self.cameras == other.cameras),
            ("the contract", self.contract == other.contract),
            ("deliver", ours.deliver == theirs.deliver),
            ("ordered", ours.ordered == theirs.ordered),
            ("fresh", ours.fresh == theirs.fresh),
            ("again_after", ours.again_after == theirs.again_after),
            ("away_max", ours.away_max == theirs.away_max),
            ("tries", ours.tries_max == theirs.tries_max),
            ("open_max", ours.open_max == theirs.open_max),
        ]
        .into_iter()
        .find_map(|(what, is_same)| (!is_same).then_some(what))
    }
}

/// Why a program is not admitted to a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Other members of the group ask for something else.
    #[error(
        "other members of group {name} use another value of {what}; use the same value, or choose another group name"
    )]
    Differs {
        /// Which group.
        name: GroupName,
        /// What differs.
        what: &'static str,
    },
    /// An option makes no sense.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A span of time was asked for, or frames after a given frame.
    #[error("a group continues at its own place; leave out since, until and after, or read without a group")]
    Span,
    /// Frames were asked for that only their cameras have.
    #[error(
        "a group gets only frames that the edge holds; leave out resume=\"fill\" and quality, or read without a group"
    )]
    Past,
    /// The principal has too many members.
    #[error(
        "{owner} has {MEMBERS_MAX} members in its groups, which is the limit; end some members, or let one member take more records at once"
    )]
    Members {
        /// Whose groups.
        owner: Bearer,
    },
    /// The principal has too many groups.
    #[error(
        "{owner} has {GROUPS_OF_PRINCIPAL_MAX} groups, which is the limit; forget an unused group: mez groups forget NAME"
    )]
    Groups {
        /// Whose groups.
        owner: Bearer,
    },
    /// The edge has too many groups.
    #[error(
        "this edge has {GROUPS_MAX} groups, which is its limit; forget an unused group: mez groups forget NAME"
    )]
    Full,
}

/// A group and its members.
#[derive(Debug)]
struct Known {
    asks: Asks,
    members: BTreeSet<MemberId>,
    /// Since when it has no members. `None`: it has some.
    deserted: Option<Instant>,
}

/// The groups of an edge.
#[derive(Debug, Default)]
pub struct Groups {
    known: BTreeMap<GroupKey, Known>,
}

impl Groups {
    /// Adds a group whose place was found at a start of the edge. It has no members yet.
    pub fn restore(&mut self, now: Instant, key: GroupKey, asks: Asks) {
        self.known.entry(key).or_insert(Known { asks, members: BTreeSet::new(), deserted: Some(now) });
    }

    /// Every group, and how many members it has.
    pub fn all(&self) -> impl Iterator<Item = (&GroupKey, &Asks, usize)> {
        self.known.iter().map(|(key, known)| (key, &known.asks, known.members.len()))
    }

    /// A program wants to become a member, or is back. Returns whether the group has to be opened anew with its request: because it has no other
    /// members, or because the principal's cameras have changed. The cameras are the same for all members, and the latest request knows them best.
    ///
    /// # Errors
    /// Why the program is not admitted.
    pub fn admit(&mut self, key: &GroupKey, member: MemberId, asks: &Asks) -> Result<bool, Refused> {
        let of_owner = || self.known.iter().filter(|(known, _)| known.owner == key.owner);
        let is_new = !self.known.contains_key(key);
        if is_new && of_owner().count() >= GROUPS_OF_PRINCIPAL_MAX {
            return Err(Refused::Groups { owner: key.owner.clone() });
        }
        if is_new && self.known.len() >= GROUPS_MAX {
            return Err(Refused::Full);
        }
        let members: usize = of_owner().map(|(_, known)| known.members.len()).sum();
        let is_known = self.known.get(key).is_some_and(|known| known.members.contains(&member));
        if !is_known && members >= MEMBERS_MAX {
            return Err(Refused::Members { owner: key.owner.clone() });
        }
        let entry = self.known.entry(key.clone());
        let known =
            entry.or_insert_with(|| Known { asks: asks.clone(), members: BTreeSet::new(), deserted: None });
        // A member without others may ask for something else.
        let is_alone = known.members.iter().all(|other| *other == member);
        if is_alone {
            known.asks = asks.clone();
        } else if let Some(what) = known.asks.differs_from(asks) {
            return Err(Refused::Differs { name: key.name.clone(), what });
        }
        let may_others = known.asks.granted != asks.granted;
        known.asks.granted.clone_from(&asks.granted);
        known.members.insert(member);
        known.deserted = None;
        Ok(is_alone || may_others)
    }

    /// A member has left, or did not come back in time. Returns whether no member
    /// is left. If so, the group is closed, and its place is kept if it keeps one.
    pub fn leave(&mut self, now: Instant, key: &GroupKey, member: MemberId) -> bool {
        let Some(known) = self.known.get_mut(key) else { return false };
        if !known.members.remove(&member) || !known.members.is_empty() {
            return false;
        }
        known.deserted = Some(now);
        if !known.asks.options.keeps_place() {
            self.known.remove(key);
        }
        true
    }

    /// Forgets a group without members, and its place. False if it has members, or does not exist.
    pub fn forget(&mut self, key: &GroupKey) -> bool {
        let is_deserted = self.known.get(key).is_some_and(|known| known.members.is_empty());
        is_deserted && self.known.remove(key).is_some()
    }

    /// Groups that had no members for [`DESERTED_MAX`].
    pub fn stale(&self, now: Instant) -> impl Iterator<Item = &GroupKey> {
        let is_stale = move |known: &Known| known.deserted.is_some_and(|since| since + DESERTED_MAX <= now);
        self.known.iter().filter(move |(_, known)| is_stale(known)).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{Grant, Rights, Stance, Verb};
    use crate::subscription::Span;

    const NOW: Instant = Instant::from_nanos(1);

    fn key(owner: &str, name: &str) -> GroupKey {
        GroupKey { owner: Bearer::App(owner.parse().unwrap()), name: name.parse().unwrap() }
    }

    fn asks(cameras: &str, options: GroupOptions) -> Asks {
        Asks::of(&SubscriptionSpec::live(cameras.parse().unwrap()), options).unwrap()
    }

    #[test]
    fn members_of_another_principal_have_a_group_of_their_own_and_take_no_place() {
        let mut groups = Groups::default();
        let asks = asks("dock/*", GroupOptions::EVERY);
        let flooded = key("other", "detect");
        for number in 0..MEMBERS_MAX {
            groups.admit(&flooded, MemberId(number as u128), &asks).unwrap();
        }
        let told = groups.admit(&flooded, MemberId(5_000), &asks).unwrap_err();
        assert!(told.to_string().starts_with("app/other has 1024 members in its groups"), "{told}");
        assert_eq!(groups.admit(&flooded, MemberId(7), &asks), Ok(false), "who is in it may come back");
        for name in 1..GROUPS_OF_PRINCIPAL_MAX {
            let more = key("third", &format!("g{name}"));
            groups.admit(&more, MemberId(1), &asks).unwrap();
        }
        assert_eq!(groups.admit(&key("third", "detect"), MemberId(1), &asks), Ok(true));
        assert!(matches!(
            groups.admit(&key("third", "more"), MemberId(1), &asks),
            Err(Refused::Groups { .. })
        ));
        let ours = key("counter", "detect");
        assert_eq!(groups.admit(&ours, MemberId(1), &asks), Ok(true), "first in it, whatever others do");
        assert_eq!(groups.admit(&ours, MemberId(2), &asks), Ok(false));
    }

    #[test]
    fn members_ask_for_the_same() {
        let mut groups = Groups::default();
        let ours = key("counter", "detect");
        let first = asks("dock/*", GroupOptions::EVERY);
        assert_eq!(groups.admit(&ours, MemberId(1), &first), Ok(true));
        let ordered = asks("dock/*", GroupOptions { ordered: true, ..GroupOptions::EVERY });
        for (other, what) in [(asks("yard/*", GroupOptions::EVERY), "cameras"), (ordered.clone(), "ordered")]
        {
            let told = groups.admit(&ours, MemberId(2), &other).unwrap_err();
            assert_eq!(told, Refused::Differs { name: "detect".parse().unwrap(), what });
        }
        assert_eq!(groups.admit(&ours, MemberId(1), &ordered), Ok(true), "alone, it may change its mind");

        let newest = key("counter", "paint");
        groups.admit(&newest, MemberId(3), &asks("dock/*", GroupOptions::NEWEST)).unwrap();
        let fresh = asks("dock/*", GroupOptions { fresh: true, ..GroupOptions::NEWEST });
        let told = groups.admit(&newest, MemberId(4), &fresh).unwrap_err();
        assert_eq!(told, Refused::Differs { name: "paint".parse().unwrap(), what: "fresh" });
    }

    /// Members of one principal have the same rights. They learn one after the other that these rights have changed.
    #[test]
    fn a_change_of_rights_reaches_the_group_with_the_first_member_that_joins_again() {
        let mut groups = Groups::default();
        let ours = key("counter", "detect");
        let before = asks("dock/*", GroupOptions::EVERY);
        groups.admit(&ours, MemberId(1), &before).unwrap();
        assert_eq!(groups.admit(&ours, MemberId(2), &before), Ok(false));
        let grant = Grant {
            grantee: "app/counter".parse().unwrap(),
            verb: Verb::Watch,
            cameras: "dock/cam1".parse().unwrap(),
        };
        let rights = Rights::new(Stance::Deny, [grant]);
        let granted = rights.select(&ours.owner, &[Verb::Watch], &before.cameras).unwrap();
        let after = Asks { granted: granted.clone(), ..before };
        assert_eq!(
            groups.admit(&ours, MemberId(2), &after),
            Ok(true),
            "it is opened anew, with member 1 in it"
        );
        assert_eq!(groups.all().map(|(_, asks, _)| asks.granted == granted).collect::<Vec<_>>(), [true]);
        assert_eq!(groups.admit(&ours, MemberId(1), &after), Ok(false));
    }

    #[test]
    fn a_group_that_nobody_is_in_is_kept_for_a_week_if_it_has_a_place() {
        let mut groups = Groups::default();
        let (every, newest) = (key("counter", "every"), key("counter", "newest"));
        groups.admit(&every, MemberId(1), &asks("**", GroupOptions::EVERY)).unwrap();
        groups.admit(&newest, MemberId(1), &asks("**", GroupOptions::NEWEST)).unwrap();
        assert!(!groups.leave(NOW, &every, MemberId(2)), "it was no member");
        assert!(!groups.forget(&every), "somebody is in it");
        assert!(groups.leave(NOW, &every, MemberId(1)) && groups.leave(NOW, &newest, MemberId(1)));
        assert_eq!(groups.all().map(|(key, ..)| key).collect::<Vec<_>>(), [&every]);
        assert_eq!(groups.stale(NOW + DESERTED_MAX / 2).count(), 0);
        assert_eq!(groups.stale(NOW + DESERTED_MAX).collect::<Vec<_>>(), [&every]);
        assert!(groups.forget(&every) && !groups.forget(&every));
    }

    #[test]
    fn what_a_group_cannot_give_is_refused_with_a_remedy() {
        let spec = SubscriptionSpec::live("dock/*".parse().unwrap());
        let since = SubscriptionSpec {
            span: Span { begin: Some(crate::units::Timestamp::from_nanos(1)), ..Span::LIVE },
            ..spec.clone()
        };
        assert_eq!(Asks::of(&since, GroupOptions::EVERY), Err(Refused::Span));
        let mut fills = spec.clone();
        fills.past.fill = true;
        assert_eq!(Asks::of(&fills, GroupOptions::EVERY), Err(Refused::Past));
        let never = GroupOptions { tries_max: 0, ..GroupOptions::EVERY };
        let told = Asks::of(&spec, never).unwrap_err().to_string();
        assert_eq!(told, "tries is 0; give a number from 1 to 100");
        for wrong in ["", "a/b", "a b"] {
            assert!(wrong.parse::<GroupName>().is_err(), "{wrong:?}");
        }
    }
}
