//! The bytes of a group's journal.
//!
//! The first line is JSON: the owner of the group, and what its members asked for last. Each further line is a change with its own checksum:
//! `given EPOCH SEQUENCE MEMBER CAMERA SUM`, `settled EPOCH SEQUENCE CAMERA SUM`, `forgotten CAMERA SUM`. The journal ends at the first
//! incomplete line, which a power cut tore off.

use std::fmt::Write as _;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::group::members::{Asks, GroupKey};
use mez_core::group::{Change, End, GroupOptions, MemberId, Place};
use mez_core::name::CameraName;
use mez_core::rights::{Bearer, Granted};
use mez_core::store::checksum;
use serde::{Deserialize, Serialize};

/// The first line of a journal.
#[derive(Serialize, Deserialize)]
struct Head {
    /// The version of the format.
    mez_group: u32,
    owner: String,
    name: String,
    cameras: String,
    ordered: bool,
    again_after_ms: u64,
    away_max_ms: u64,
    tries: usize,
    open_max: usize,
}

/// The owner of a journal as its first line names it: `app/counter`, `owner`.
pub(crate) fn owner_text(owner: &Bearer) -> String {
    match owner {
        Bearer::Owner => "owner".into(),
        other => other.to_string(),
    }
}

fn owner_of(text: &str) -> Option<Bearer> {
    if text == "owner" {
        return Some(Bearer::Owner);
    }
    let (role, name) = text.split_once('/')?;
    Some(match role {
        "camera" => Bearer::Camera(name.parse().ok()?),
        "edge" => Bearer::Edge(name.parse().ok()?),
        "app" => Bearer::App(name.parse().ok()?),
        "user" => Bearer::User(name.parse().ok()?),
        _ => return None,
    })
}

/// The first line, including its newline.
pub(super) fn head(key: &GroupKey, asks: &Asks) -> String {
    let GroupOptions { ordered, again_after, away_max, tries_max, open_max, .. } = asks.options;
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let head = Head {
        mez_group: 1,
        owner: owner_text(&key.owner),
        name: key.name.to_string(),
        cameras: asks.cameras.to_string(),
        ordered,
        again_after_ms: ms(again_after),
        away_max_ms: ms(away_max),
        tries: tries_max,
        open_max,
    };
    let mut line = serde_json::to_string(&head).unwrap_or_default();
    line.push('\n');
    line
}

/// The group and what its members asked for, from a journal's first line. `None`: the line is not valid.
pub(super) fn parse_head(line: &str) -> Option<(GroupKey, Asks)> {
    let head: Head = serde_json::from_str(line).ok().filter(|head: &Head| head.mez_group == 1)?;
    let key = GroupKey { owner: owner_of(&head.owner)?, name: head.name.parse().ok()? };
    let options = GroupOptions {
        ordered: head.ordered,
        again_after: Duration::from_millis(head.again_after_ms),
        away_max: Duration::from_millis(head.away_max_ms),
        tries_max: head.tries,
        open_max: head.open_max,
        ..GroupOptions::EVERY
    };
    options.validate().ok()?;
    let (granted, contract) = (Granted::EVERYTHING, Contract::default());
    Some((key, Asks { cameras: head.cameras.parse().ok()?, granted, contract, options }))
}

/// Appends the line of a change. How a record ended is of no use after a restart, so it is not written.
pub(super) fn put(change: &Change, text: &mut String) {
    let begin = text.len();
    let _ = match change {
        Change::Given { camera, frame: FrameId { epoch, sequence }, member } => {
            write!(text, "given {} {} {:x} {camera}", epoch.0, sequence.0, member.0)
        }
        Change::Settled { camera, frame: FrameId { epoch, sequence }, .. } => {
            write!(text, "settled {} {} {camera}", epoch.0, sequence.0)
        }
        Change::Forgotten { camera } => write!(text, "forgotten {camera}"),
    };
    let sum = checksum(&text.as_bytes()[begin..]);
    let _ = writeln!(text, " {sum:08x}");
}

fn parse(line: &str) -> Option<Change> {
    let (body, sum) = line.rsplit_once(' ')?;
    if sum.len() != 8 || u32::from_str_radix(sum, 16).ok()? != checksum(body.as_bytes()) {
        return None;
    }
    let mut words = body.split(' ');
    let kind = words.next()?;
    let mut frame = || -> Option<FrameId> {
        let (epoch, sequence) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) })
    };
    let change = match kind {
        "given" => {
            let frame = frame()?;
            let member = MemberId(u128::from_str_radix(words.next()?, 16).ok()?);
            Change::Given { camera: camera(&mut words)?, frame, member }
        }
        "settled" => {
            let frame = frame()?;
            Change::Settled { camera: camera(&mut words)?, frame, end: End::Done(MemberId(0)) }
        }
        "forgotten" => Change::Forgotten { camera: camera(&mut words)? },
        _ => return None,
    };
    words.next().is_none().then_some(change)
}

fn camera<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<CameraName> {
    words.next()?.parse().ok()
}

/// The content of a journal.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    pub(super) key: GroupKey,
    pub(super) asks: Asks,
    pub(super) place: Place,
    /// The length up to the end of the last complete line, in bytes.
    pub(super) bytes: usize,
}

/// Reads a journal up to the first incomplete or damaged line. `None`: the content is not a journal.
pub(super) fn read(content: &[u8]) -> Option<Written> {
    let line_at = |at: usize| {
        let rest = content.get(at..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        Some((std::str::from_utf8(&rest[..end]).ok()?, at + end + 1))
    };
    let (first, mut bytes) = line_at(0)?;
    let (key, asks) = parse_head(first)?;
    let mut place = Place::new();
    while let Some((line, next)) = line_at(bytes) {
        let Some(change) = parse(line) else { break };
        place.apply(&change);
        bytes = next;
    }
    Some(Written { key, asks, place, bytes })
}

#[cfg(test)]
mod tests {
    use mez_core::group::LostReason;
    use mez_core::subscription::SubscriptionSpec;
    use proptest::prelude::*;

    use super::*;

    fn key() -> GroupKey {
        GroupKey { owner: Bearer::App("line1/counter".parse().unwrap()), name: "detect".parse().unwrap() }
    }

    fn asks() -> Asks {
        let options = GroupOptions { ordered: true, tries_max: 3, ..GroupOptions::EVERY };
        Asks::of(&SubscriptionSpec::live("dock/*".parse().unwrap()), options).unwrap()
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let frame = || (0..3u64, 0..20u64);
        let id = |(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let camera = || (0..3u8).prop_map(|n| format!("dock/cam{n}").parse::<CameraName>().unwrap());
        let change = prop_oneof![
            4 => (camera(), frame(), any::<u128>()).prop_map(move |(camera, frame, member)| {
                Change::Given { camera, frame: id(frame), member: MemberId(member) }
            }),
            3 => (camera(), frame()).prop_map(move |(camera, frame)| {
                Change::Settled { camera, frame: id(frame), end: End::Lost(LostReason::Evicted) }
            }),
            1 => camera().prop_map(|camera| Change::Forgotten { camera }),
        ];
        proptest::collection::vec(change, 0..40)
    }

    proptest! {
        /// Wherever a journal is cut, it gives the place of the complete lines before the cut.
        #[test]
        fn a_journal_gives_the_place_of_its_whole_lines(changes in changes(), cut in any::<proptest::sample::Index>()) {
            let mut text = head(&key(), &asks());
            let mut ends = vec![text.len()];
            for change in &changes {
                put(change, &mut text);
                ends.push(text.len());
            }
            let cut = cut.index(text.len() + 1);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let written = read(&text.as_bytes()[..cut]);
            if whole == 0 {
                prop_assert!(written.is_none());
                return Ok(());
            }
            let mut place = Place::new();
            changes[..whole - 1].iter().for_each(|change| place.apply(change));
            let bytes = ends[whole - 1];
            prop_assert_eq!(written, Some(Written { key: key(), asks: asks(), place, bytes }));
        }

        /// A flipped byte ends the journal before its line, or makes the content invalid. It never gives another place.
        #[test]
        fn damage_ends_a_journal(changes in changes(), at in any::<proptest::sample::Index>(), with in 1..=255u8) {
            let mut text = head(&key(), &asks());
            let first = text.len();
            let mut places = vec![Place::new()];
            for change in &changes {
                put(change, &mut text);
                let mut next = places[places.len() - 1].clone();
                next.apply(change);
                places.push(next);
            }
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            if let Some(written) = read(&bytes) {
                prop_assert!(at < first || places.contains(&written.place));
            }
        }
    }

    #[test]
    fn every_owner_is_read_as_it_was_written() {
        let app = "line1/counter".parse::<CameraName>().unwrap();
        let all = [
            Bearer::Owner,
            Bearer::User(1000),
            Bearer::App(app.clone()),
            Bearer::Edge(app.clone()),
            Bearer::Camera(app),
        ];
        for owner in all {
            assert_eq!(owner_of(&owner_text(&owner)), Some(owner));
        }
        for text in ["", "app", "app/", "user/x", "root/1"] {
            assert_eq!(owner_of(text), None, "{text:?}");
        }
    }
}
