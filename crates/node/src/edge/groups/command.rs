//! What a group's task is told to do, and what it answers.

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

/// Somebody who wants to be a member of a group.
#[derive(Clone, Debug)]
pub struct Joining {
    /// Which group.
    pub key: GroupKey,
    /// Who.
    pub member: MemberId,
    /// What is asked for, alike by all members.
    pub asks: Asks,
    /// The same as the request that it came from.
    pub spec: SubscriptionSpec,
    /// The profile that its contract names.
    pub profile: Option<Arc<HeldProfile>>,
    /// The life of the group that it knows.
    pub knows: Option<Life>,
    /// How many records it can take now.
    pub at_once: u32,
    /// The records that it has.
    pub holds: BTreeSet<(CameraName, FrameId)>,
}

/// What a member says of records.
#[derive(Clone, Debug)]
pub struct Settlements {
    /// Who says it.
    pub member: MemberId,
    /// Which record, and why its work was not done, if it was not.
    pub records: Vec<(CameraName, FrameId, Option<String>)>,
    /// How many records it can take more.
    pub ready: u32,
}

/// What settlements were worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledRecords {
    /// Of each record.
    pub results: Vec<Result<mez_core::group::Acknowledged, GroupError>>,
    /// Whether the member is connected.
    pub joined: bool,
}

/// Why somebody is no member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinFailure {
    /// The group does not admit it.
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
    /// Which group.
    pub key: GroupKey,
    /// What its members ask for, or asked for last.
    pub asks: Asks,
    /// How far it has come. `None`: nobody was in it since the edge was started, and its place is still to be read.
    pub standing: Option<GroupStanding>,
}

/// How far a group has come.
#[derive(Clone, Debug, Default)]
pub struct GroupStanding {
    /// Whether its place outlives a restart of the edge.
    pub survives: bool,
    /// Why its place is not written at present.
    pub degraded: Option<String>,
    /// Its members that are connected: who, its application, how many records it works on, and what it has done.
    pub members: Vec<(MemberId, String, usize, MemberAccount)>,
    /// Of each camera the last record that was given, and how many are not settled.
    pub lanes: Vec<(CameraName, FrameId, usize)>,
    /// What has become of its records.
    pub account: Account,
    /// How many are not settled.
    pub open: usize,
}

impl GroupStanding {
    /// Without lanes of cameras that the group no longer reads: members may ask for others than before, and rights may be taken back.
    pub(super) fn within(mut self, asks: &Asks) -> Self {
        self.lanes.retain(|(camera, ..)| asks.cameras.matches(camera) && asks.granted.allows(camera));
        self
    }
}

/// What a group's task is told.
pub(super) enum Command {
    Join(Box<Joining>, oneshot::Sender<Result<GroupMember, JoinFailure>>),
    Settle(Settlements, oneshot::Sender<SettledRecords>),
    /// When members had records.
    Taken(Vec<(CameraName, TakenReport)>),
    Report(oneshot::Sender<GroupStanding>),
}
