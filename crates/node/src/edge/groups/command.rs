//! The commands of a group's task, and its answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use mez_core::contract::monitor::TakenReport;
use mez_core::frame::FrameId;
use mez_core::group::members::{Asks, GroupKey, Refused};
use mez_core::group::session::Life;
use mez_core::group::{Account, GroupError, MemberAccount, MemberId};
use mez_core::name::CameraName;
use mez_core::subscription::SubscriptionSpec;
use tokio::sync::oneshot;

use super::member::GroupMember;
use crate::edge::failure::Stopped;
use crate::profiles::HeldProfile;

/// A request to become a member of a group.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The group.
    pub key: GroupKey,
    /// The member.
    pub member: MemberId,
    /// What all members ask for alike.
    pub asks: Asks,
    /// The subscription as this member requested it.
    pub spec: SubscriptionSpec,
    /// The profile that its contract names.
    pub profile: Option<Arc<HeldProfile>>,
    /// The life of the group that the member knows.
    pub knows: Option<Life>,
    /// How many records the member can take now.
    pub at_once: u32,
    /// The records that the member holds.
    pub holds: BTreeSet<(CameraName, FrameId)>,
}

/// A record that a member settles. If its work was not done, the reason.
pub type Settlement = (CameraName, FrameId, Option<String>);

/// What a member reports of records.
#[derive(Clone, Debug)]
pub struct Settlements {
    /// The member that reports.
    pub member: MemberId,
    /// The records.
    pub records: Vec<Settlement>,
    /// How many more records the member can take.
    pub ready: u32,
}

/// The results of settlements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledRecords {
    /// The result for each record, in order.
    pub results: Vec<Result<mez_core::group::Acknowledged, GroupError>>,
    /// Whether the member is connected.
    pub joined: bool,
}

/// Why a member may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinFailure {
    /// The group does not admit the member.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The group is full.
    #[error(transparent)]
    Full(#[from] GroupError),
    /// The broker has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How a group stands.
#[derive(Clone, Debug)]
pub struct GroupReport {
    /// The group.
    pub key: GroupKey,
    /// What its members ask for now, or asked for last.
    pub asks: Asks,
    /// How far the group has come. `None`: it had no member since the edge started, and its place is not read yet.
    pub standing: Option<GroupStanding>,
}

/// How far a group has come.
#[derive(Clone, Debug, Default)]
pub struct GroupStanding {
    /// Whether the group's place survives a restart of the edge.
    pub survives: bool,
    /// Why the place is not being written. `None`: it is written, or is not kept.
    pub degraded: Option<String>,
    /// The connected members: identity, application, number of records in work, and what the member has done.
    pub members: Vec<(MemberId, String, usize, MemberAccount)>,
    /// For each camera the last record that was given, and the number of records that are not settled.
    pub lanes: Vec<(CameraName, FrameId, usize)>,
    /// What became of the group's records.
    pub account: Account,
    /// The number of records that are not settled.
    pub open: usize,
}

impl GroupStanding {
    /// Leaves out lanes of cameras that the group no longer reads: members may ask for other cameras than before, and rights may be revoked.
    pub(super) fn within(mut self, asks: &Asks) -> Self {
        self.lanes.retain(|(camera, ..)| asks.cameras.matches(camera) && asks.granted.allows(camera));
        self
    }
}

/// What a group's task is asked to do.
pub(super) enum Command {
    Join(Box<Joining>, oneshot::Sender<Result<GroupMember, JoinFailure>>),
    Settle(Settlements, oneshot::Sender<SettledRecords>),
    /// Reports when members had records.
    Taken(Vec<(CameraName, TakenReport)>),
    Report(oneshot::Sender<GroupStanding>),
}
