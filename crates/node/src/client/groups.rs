//! What an edge says of its groups of readers.

use std::time::Duration;

use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::Deliver;

use crate::api::pb;

/// A group of readers, as its edge knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSummary {
    /// Its name.
    pub name: String,
    /// Whose it is, as grants name it.
    pub owner: String,
    /// The cameras that its members ask for, or asked for last.
    pub cameras: CameraPattern,
    /// Whether the newest or every record is given.
    pub deliver: Deliver,
    /// Whether a camera's records are worked on one after the other.
    pub ordered: bool,
    /// How long a member may work on a record.
    pub again_after: Duration,
    /// How often a record is given.
    pub tries: u32,
    /// The most records that are given and not settled.
    pub open_max: u32,
    /// Whether its place outlives a restart of the edge.
    pub survives: bool,
    /// Why its place is not written at present.
    pub degraded: Option<String>,
    /// Members that are connected.
    pub members: Vec<GroupMemberSummary>,
    /// How far it has come with each camera.
    pub lanes: Vec<GroupLane>,
    /// What has become of its records since the edge was started.
    pub account: GroupAccount,
    /// The newest dead letters, the oldest of them first.
    pub dead_letters: Vec<DeadLetter>,
    /// Nobody was in it since the edge was started: its place on disk is still to be read.
    pub asleep: bool,
}

/// A member of a group that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberSummary {
    /// Who it is.
    pub member: u128,
    /// Its application, for people.
    pub application: String,
    /// Records that it was given since it joined last.
    pub given: u64,
    /// Those that it has done.
    pub done: u64,
    /// Those that it failed at, or was too slow for.
    pub failed: u64,
    /// Those that it works on.
    pub open: u32,
}

/// How far a group has come with a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLane {
    /// The camera.
    pub camera: CameraName,
    /// The newest record that was given.
    pub last: FrameId,
    /// Records given and not settled.
    pub open: u32,
    /// How many records the newest at the edge is ahead. `None`: nobody knows.
    pub lag: Option<u64>,
}

/// What has become of a group's records: given = done + dead + lost + open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupAccount {
    /// Given for the first time, and open at the start.
    pub given: u64,
    /// How often one was given again.
    pub given_again: u64,
    /// Done.
    pub done: u64,
    /// How often one was acknowledged that had ended before.
    pub again: u64,
    /// Tries that ended with an error.
    pub failed: u64,
    /// Tries in which the member said nothing in time.
    pub silent: u64,
    /// Tries during which the member left.
    pub left: u64,
    /// Dead letters.
    pub dead: u64,
    /// Lost: evicted, not decoded, their member left, forgotten with their camera, not read any more.
    pub lost: [u64; 5],
    /// Given and not settled.
    pub open: u32,
}

impl GroupAccount {
    /// The names of the parts of [`GroupAccount::lost`].
    pub const LOST: [&'static str; 5] = ["evicted", "not_decoded", "member_left", "forgotten", "not_read"];
}

/// A record that nobody could work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Whose record.
    pub camera: CameraName,
    /// Which.
    pub frame: FrameId,
    /// How often it was given.
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
