//! Handles requests about groups of readers.

use std::collections::HashMap;
use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::group::{Account, Acknowledged, DeadLetter, Failure, GroupError, LostReason};
use mez_core::name::CameraName;
use mez_core::rights::Bearer;
use mez_core::subscription::Deliver;
use tonic::Code;

use super::edge::EdgeApi;
use super::principal::Principal;
use super::{ApiError, group, pb};
use crate::edge::{ForgetGroupFailure, GroupReport, GroupStanding, JoinFailure, MemberReports, Settlements};

impl EdgeApi {
    /// Takes in the settlements of a member, and says what each is worth.
    pub async fn settle_records(
        &self,
        principal: &Principal,
        request: pb::SettleRecordsRequest,
    ) -> Result<pb::SettleRecordsResponse, ApiError> {
        let pb::SettleRecordsRequest { group, member, settlements, ready } = request;
        let key = GroupKey { owner: principal.bearer(), name: group::name(&group)? };
        let member = group::member(&member)?;
        let settlements = Settlements { member, records: group::settlements(settlements)?, ready };
        self.access.check_not_revoked(principal)?;
        let Some(settled) = self.edge.settle(&key, settlements).await else {
            let GroupKey { owner, name } = &key;
            let message = format!("group {name} of {owner} has no members; join the group first");
            return Err(ApiError::new(Code::NotFound, "UNKNOWN_GROUP", message).at("group"));
        };
        let results = settled.results.iter().map(|result| worth(result) as i32).collect();
        Ok(pb::SettleRecordsResponse { results, joined: settled.joined })
    }

    /// Takes in the settlements that come on the connection of a member's stream. They are carried out later.
    pub(crate) async fn pass_on_settlements(
        &self,
        principal: &Principal,
        member: &MemberReports,
        request: pb::SettleRecordsRequest,
    ) -> Result<(), ApiError> {
        let pb::SettleRecordsRequest { settlements, ready, .. } = request;
        let records = group::settlements(settlements)?;
        self.access.check_not_revoked(principal)?;
        member.pass_on(records, ready).await;
        Ok(())
    }

    /// The groups of a principal with their state. [`Bearer::Owner`] gets the groups of all principals.
    pub async fn groups(&self, principal: &Principal) -> Result<pb::GetGroupsResponse, ApiError> {
        self.access.check_not_revoked(principal)?;
        let who = principal.bearer();
        let reports = self.edge.groups(|key| who == Bearer::Owner || key.owner == who).await;
        let newest = self.edge.cameras().await?.into_iter();
        let newest: HashMap<CameraName, FrameId> =
            newest.filter_map(|info| Some((info.camera, info.newest?.0))).collect();
        let groups = reports.into_iter().map(|report| info(report, &newest)).collect();
        Ok(pb::GetGroupsResponse { groups })
    }

    /// Forgets a group without members.
    pub async fn forget_group(
        &self,
        principal: &Principal,
        request: &pb::ForgetGroupRequest,
    ) -> Result<pb::ForgetGroupResponse, ApiError> {
        self.access.check_not_revoked(principal)?;
        let (who, name) = (principal.bearer(), group::name(&request.name)?);
        let is_of_others = !request.owner.is_empty() && request.owner != who.to_string();
        if is_of_others && who != Bearer::Owner {
            let message = format!(
                "group {name} of {} can be forgotten only by {} and by the user that the edge runs as",
                request.owner, request.owner
            );
            return Err(ApiError::new(Code::PermissionDenied, "PERMISSION_DENIED", message));
        }
        let owner = if is_of_others {
            let all = self.edge.groups(|key| key.name == name).await;
            let found = all.into_iter().find(|report| report.key.owner.to_string() == request.owner);
            found.map_or(who, |report| report.key.owner)
        } else {
            who
        };
        let key = GroupKey { owner, name };
        self.edge.forget_group(&key).await.map_err(|failure| {
            let message = format!(
                "group {} of {}: {failure}",
                key.name,
                if is_of_others { &request.owner } else { "yours" }
            );
            match failure {
                ForgetGroupFailure::Unknown => ApiError::new(Code::NotFound, "UNKNOWN_GROUP", message),
                ForgetGroupFailure::InUse => ApiError::new(Code::FailedPrecondition, "GROUP_IN_USE", message),
            }
            .at("name")
        })?;
        self.access.forgot_group(principal, &key.name.to_string());
        Ok(pb::ForgetGroupResponse {})
    }
}

fn worth(result: &Result<Acknowledged, GroupError>) -> pb::Settled {
    match result {
        Ok(Acknowledged::Settled) => pb::Settled::Counts,
        Ok(Acknowledged::Again) => pb::Settled::Again,
        Err(_) => pb::Settled::NotGiven,
    }
}

fn info(report: GroupReport, newest: &HashMap<CameraName, FrameId>) -> pb::GroupInfo {
    let GroupReport { key, asks, standing } = report;
    let options = asks.options;
    let asleep = standing.is_none();
    let GroupStanding { survives, degraded, members, lanes, account, open } = standing.unwrap_or_default();
    let members = members.into_iter().map(|(member, application, open, account)| pb::GroupMember {
        member: member.0.to_be_bytes().to_vec().into(),
        application,
        given: account.given,
        done: account.done,
        failed: account.failed,
        open: small(open),
    });
    let lanes = lanes.into_iter().map(|(camera, last, open)| {
        let ahead = newest.get(&camera).filter(|newest| newest.epoch == last.epoch);
        pb::GroupLane {
            epoch: last.epoch.0,
            sequence: last.sequence.0,
            open: small(open),
            lag: ahead.map(|newest| newest.sequence.0.saturating_sub(last.sequence.0)),
            camera: camera.as_str().into(),
        }
    });
    pb::GroupInfo {
        name: key.name.to_string(),
        owner: key.owner.to_string(),
        pattern: asks.cameras.to_string(),
        deliver: match options.deliver {
            Deliver::Newest => pb::Deliver::Newest,
            Deliver::Every => pb::Deliver::Every,
        } as i32,
        ordered: options.ordered,
        fresh: options.fresh,
        again_after_ms: ms(options.again_after),
        tries: small(options.tries_max),
        open_max: small(options.open_max),
        survives: survives || (asleep && options.keeps_place()),
        degraded: degraded.unwrap_or_default(),
        members: members.collect(),
        lanes: lanes.collect(),
        dead_letters: account.dead_letters.iter().map(dead_letter).collect(),
        account: Some(counts(&account, open)),
        asleep,
    }
}

fn counts(account: &Account, open: usize) -> pb::GroupAccount {
    let lost = |reason| account.lost.get(&reason).copied().unwrap_or_default();
    pb::GroupAccount {
        given: account.given,
        given_again: account.given_again,
        done: account.done,
        again: account.again,
        failed: account.failed,
        silent: account.silent,
        left: account.left,
        dead: account.dead,
        lost_evicted: lost(LostReason::Evicted),
        lost_not_decoded: lost(LostReason::NotDecoded),
        lost_member_left: lost(LostReason::MemberLeft),
        lost_forgotten: lost(LostReason::Forgotten),
        lost_not_read: lost(LostReason::NotRead),
        open: small(open),
    }
}

fn dead_letter(letter: &DeadLetter) -> pb::DeadLetter {
    pb::DeadLetter {
        camera: letter.camera.as_str().into(),
        epoch: letter.frame.epoch.0,
        sequence: letter.frame.sequence.0,
        tries: small(letter.tries),
        last: match &letter.last {
            Failure::Told(error) => error.clone(),
            Failure::Silent => "the member did not settle the record in time".into(),
            Failure::Left => "the member left, or was lost".into(),
        },
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

impl From<JoinFailure> for ApiError {
    fn from(failure: JoinFailure) -> Self {
        match failure {
            JoinFailure::Refused(refused) => refused.into(),
            JoinFailure::Full(full) => {
                Self::new(Code::ResourceExhausted, "TOO_MANY_MEMBERS", full.to_string()).at("group")
            }
            JoinFailure::Stopped(stopped) => stopped.into(),
        }
    }
}
