//! An edge's report on its groups of readers.

use std::time::Duration;

use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::Deliver;

use crate::api::pb;

/// The state of a group of readers at its edge.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSummary {
    /// The group's name.
    pub name: String,
    /// The group's owner, in the form of grants.
    pub owner: String,
    /// The cameras that its members request, or last requested.
    pub cameras: CameraPattern,
    /// Whether the newest or every record is given.
    pub deliver: Deliver,
    /// Whether the records of a camera are processed one at a time, in order.
    pub ordered: bool,
    /// Whether free members wait for the next record if that comes sooner than the newest one is old.
    pub fresh: bool,
    /// How long a member may work on a record before it is given to another one.
    pub again_after: Duration,
    /// How often a record is given before it is a dead letter.
    pub tries: u32,
    /// The most records that may be given and not settled.
    pub open_max: u32,
    /// Whether the group's place survives a restart of the edge.
    pub survives: bool,
    /// Why the group's place is not written at present.
    pub degraded: Option<String>,
    /// The connected members.
    pub members: Vec<GroupMemberSummary>,
    /// The group's position in each camera's log.
    pub lanes: Vec<GroupLane>,
    /// The counts of records since the edge was started.
    pub account: GroupAccount,
    /// The newest dead letters, the oldest of them first.
    pub dead_letters: Vec<DeadLetter>,
    /// The group had no member since the edge was started: its place is on disk and not read yet.
    pub asleep: bool,
}

/// A connected member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberSummary {
    /// The member's random identifier.
    pub member: u128,
    /// The member's application, for people.
    pub application: String,
    /// Records that the member got since it last joined.
    pub given: u64,
    /// Of these, records that it has done.
    pub done: u64,
    /// Of these, records that it failed at, or was too slow for.
    pub failed: u64,
    /// Of these, records that it works on.
    pub open: u32,
}

/// The position of a group in a camera's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLane {
    /// The camera.
    pub camera: CameraName,
    /// The newest record that was given.
    pub last: FrameId,
    /// Records given and not settled.
    pub open: u32,
    /// How many records the group is behind the newest one at the edge. `None`: unknown.
    pub lag: Option<u64>,
}

/// The counts of a group's records: given = done + dead + lost + open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupAccount {
    /// Records given for the first time, and records open at the start.
    pub given: u64,
    /// How often a record was given again.
    pub given_again: u64,
    /// Done.
    pub done: u64,
    /// Acknowledgements of records that were settled before.
    pub again: u64,
    /// Tries that ended with an error.
    pub failed: u64,
    /// Tries in which the member did not report in time.
    pub silent: u64,
    /// Tries during which the member left.
    pub left: u64,
    /// Dead letters.
    pub dead: u64,
    /// Lost records: evicted, not decoded, member left, forgotten with their camera, no longer read.
    pub lost: [u64; 5],
    /// Given and not settled.
    pub open: u32,
}

impl GroupAccount {
    /// The names of the parts of [`GroupAccount::lost`].
    pub const LOST: [&'static str; 5] = ["evicted", "not_decoded", "member_left", "forgotten", "not_read"];
}

/// A record that no member could process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The camera of the record.
    pub camera: CameraName,
    /// The record.
    pub frame: FrameId,
    /// How often the record was given.
    pub tries: u32,
    /// How the last try ended, for people.
    pub last: String,
}

fn frame(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

impl GroupSummary {
    pub(super) fn from_message(info: pb::GroupInfo) -> Result<Self, &'static str> {
        let deliver = match info.deliver() {
            pb::Deliver::Every => Deliver::Every,
            _ => Deliver::Newest,
        };
        let member = |member: pb::GroupMember| GroupMemberSummary {
            member: member.member[..].try_into().map(u128::from_be_bytes).unwrap_or_default(),
            application: member.application,
            given: member.given,
            done: member.done,
            failed: member.failed,
            open: member.open,
        };
        let camera = |name: &str| name.parse::<CameraName>().map_err(|_| "a camera's name");
        let lane = |lane: pb::GroupLane| {
            let last = frame(lane.epoch, lane.sequence);
            Ok(GroupLane { camera: camera(&lane.camera)?, last, open: lane.open, lag: lane.lag })
        };
        let letter = |letter: pb::DeadLetter| {
            let frame = frame(letter.epoch, letter.sequence);
            Ok(DeadLetter { camera: camera(&letter.camera)?, frame, tries: letter.tries, last: letter.last })
        };
        let account = info.account.unwrap_or_default();
        Ok(Self {
            name: info.name,
            owner: info.owner,
            cameras: info.pattern.parse().map_err(|_| "a pattern of cameras")?,
            deliver,
            ordered: info.ordered,
            fresh: info.fresh,
            again_after: Duration::from_millis(info.again_after_ms.into()),
            tries: info.tries,
            open_max: info.open_max,
            survives: info.survives,
            degraded: Some(info.degraded).filter(|why| !why.is_empty()),
            members: info.members.into_iter().map(member).collect(),
            lanes: info.lanes.into_iter().map(lane).collect::<Result<_, &'static str>>()?,
            account: GroupAccount {
                given: account.given,
                given_again: account.given_again,
                done: account.done,
                again: account.again,
                failed: account.failed,
                silent: account.silent,
                left: account.left,
                dead: account.dead,
                lost: [
                    account.lost_evicted,
                    account.lost_not_decoded,
                    account.lost_member_left,
                    account.lost_forgotten,
                    account.lost_not_read,
                ],
                open: account.open,
            },
            dead_letters: info.dead_letters.into_iter().map(letter).collect::<Result<_, &'static str>>()?,
            asleep: info.asleep,
        })
    }
}
