//! Checks the group requests and settlements of members.

use std::collections::BTreeSet;
use std::time::Duration;

use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::group::members::{Asks, GroupKey, GroupName, Refused};
use mez_core::group::session::Life;
use mez_core::group::{GroupOptions, MemberId};
use mez_core::name::CameraName;
use mez_core::rights::Bearer;
use mez_core::subscription::SubscriptionSpec;

use super::contract::Profile;
use super::error::ApiError;
use super::pb;
use crate::edge::Settlement;

/// The most records that one call may settle.
pub const SETTLEMENTS_MAX: usize = 1_024;
/// The most records that a member may report as held.
pub const HOLDS_MAX: usize = 10_000;

/// A member's request to a group, without cameras, contract and time span.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupAsk {
    /// The group's name.
    pub name: GroupName,
    /// The member's identifier.
    pub member: MemberId,
    /// How the group shares its records.
    pub options: GroupOptions,
    /// The life of the group that the member last knew.
    pub knows: Option<Life>,
    /// How many records the member can take now.
    pub at_once: u32,
    /// The records that the member holds.
    pub holds: BTreeSet<(CameraName, FrameId)>,
}

impl GroupAsk {
    /// Checks the group part of a request for `spec`.
    pub fn parse(
        request: pb::GroupRequest,
        spec: &SubscriptionSpec,
        profile: Option<&Profile>,
        for_export: bool,
    ) -> Result<Self, ApiError> {
        let name = name(&request.name)?;
        let member = member(&request.member)?;
        let base = GroupOptions { deliver: spec.span.deliver, ..GroupOptions::NEWEST };
        let number = |given: Option<u32>, default: usize| given.map_or(default, |number| number as usize);
        let options = GroupOptions {
            ordered: request.ordered,
            fresh: request.fresh,
            again_after: request
                .again_after_ms
                .map_or(base.again_after, |ms| Duration::from_millis(ms.into())),
            tries_max: number(request.tries, base.tries_max),
            open_max: number(request.open_max, base.open_max),
            ..base
        };
        if for_export {
            let message = "a group cannot export, because its records are shared among its members; to export, read without a group";
            return Err(ApiError::invalid("for_export", "EXPORT_IN_GROUP", message));
        }
        if matches!(profile, Some(Profile::Inline(_))) {
            let message = "all members of a group share one profile; put the profile into the edge's folder of profiles, and give its name";
            return Err(ApiError::invalid("profile", "PROFILE_IN_GROUP", message));
        }
        // An unsupported request is refused before rights are checked.
        Asks::of(spec, options)?;
        let knows =
            if request.life.is_empty() { None } else { Some(Life(number_of("group.life", &request.life)?)) };
        if request.holds.len() > HOLDS_MAX {
            let message =
                format!("the member holds {} records; give at most {HOLDS_MAX}", request.holds.len());
            return Err(ApiError::invalid("group.holds", "TOO_MANY_RECORDS", message));
        }
        let holds =
            request.holds.iter().map(|held| record("group.holds", &held.camera, (held.epoch, held.sequence)));
        let holds = holds.collect::<Result<_, _>>()?;
        Ok(Self { name, member, options, knows, at_once: request.at_once, holds })
    }

    /// The group's key and options for a principal that subscribes to `spec`.
    pub fn of(&self, owner: Bearer, spec: &SubscriptionSpec) -> Result<(GroupKey, Asks), ApiError> {
        let asks = Asks::of(spec, self.options)?;
        Ok((GroupKey { owner, name: self.name.clone() }, asks))
    }
}

/// Parses the name of a group.
pub fn name(text: &str) -> Result<GroupName, ApiError> {
    text.parse().map_err(|error: mez_core::group::members::GroupNameError| {
        ApiError::invalid("group", "INVALID_GROUP", error.to_string())
    })
}

/// Parses a member's identifier.
pub fn member(bytes: &[u8]) -> Result<MemberId, ApiError> {
    number_of("group.member", bytes).map(MemberId)
}

fn number_of(field: &str, bytes: &[u8]) -> Result<u128, ApiError> {
    bytes.try_into().map(u128::from_be_bytes).map_err(|_| {
        let message = format!("{field} has {} bytes; give 16 random bytes", bytes.len());
        ApiError::invalid(field, "INVALID_MEMBER", message)
    })
}

/// Parses the settlements of a member: the record, and why the work failed, if it did.
pub fn settlements(settlements: Vec<pb::Settlement>) -> Result<Vec<Settlement>, ApiError> {
    if settlements.len() > SETTLEMENTS_MAX {
        let message =
            format!("{} records were settled; settle at most {SETTLEMENTS_MAX} at once", settlements.len());
        return Err(ApiError::invalid("settlements", "TOO_MANY_RECORDS", message));
    }
    let parsed = settlements.into_iter().map(|said| {
        let (camera, frame) = record("settlements", &said.camera, (said.epoch, said.sequence))?;
        Ok((camera, frame, said.failed.then_some(said.error)))
    });
    parsed.collect()
}

fn record(
    field: &str,
    camera: &str,
    (epoch, sequence): (u64, u64),
) -> Result<(CameraName, FrameId), ApiError> {
    let camera = camera.parse().map_err(|error: mez_core::name::NameError| {
        ApiError::invalid(field, "INVALID_CAMERA", error.to_string())
    })?;
    Ok((camera, FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }))
}

impl From<Refused> for ApiError {
    fn from(refused: Refused) -> Self {
        use tonic::Code;
        let message = refused.to_string();
        match refused {
            Refused::Differs { .. } => {
                Self::new(Code::FailedPrecondition, "GROUP_DIFFERS", message).at("group")
            }
            Refused::Options(_) => Self::invalid("group", "INVALID_GROUP_OPTION", message),
            Refused::Span => Self::invalid("begin_utc_ns", "SPAN_IN_GROUP", message),
            Refused::Past => Self::invalid("resume", "PAST_IN_GROUP", message),
            Refused::Members { .. } => {
                Self::new(Code::ResourceExhausted, "TOO_MANY_MEMBERS", message).at("group")
            }
            Refused::Groups { .. } | Refused::Full => {
                Self::new(Code::ResourceExhausted, "TOO_MANY_GROUPS", message).at("group")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::subscription::Deliver;

    use super::*;

    fn request() -> pb::GroupRequest {
        pb::GroupRequest { name: "detect".into(), member: vec![7; 16].into(), ..Default::default() }
    }

    fn spec(deliver: Deliver) -> SubscriptionSpec {
        let mut spec = SubscriptionSpec::live("dock/*".parse().unwrap());
        spec.span.deliver = deliver;
        spec
    }

    #[test]
    fn a_name_and_a_member_are_enough() {
        let ask = GroupAsk::parse(request(), &spec(Deliver::Every), None, false).unwrap();
        assert_eq!((ask.options, ask.knows, ask.at_once), (GroupOptions::EVERY, None, 0));
        assert_eq!(ask.member, MemberId(u128::from_be_bytes([7; 16])));
        let (key, asks) = ask.of(Bearer::User(7), &spec(Deliver::Every)).unwrap();
        assert_eq!((key.name.to_string().as_str(), asks.options), ("detect", GroupOptions::EVERY));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_field() {
        let begun = SubscriptionSpec {
            span: mez_core::subscription::Span {
                begin: Some(mez_core::units::Timestamp::from_nanos(1)),
                ..spec(Deliver::Every).span
            },
            ..spec(Deliver::Every)
        };
        let table = [
            (pb::GroupRequest { name: "a/b".into(), ..request() }, "group"),
            (pb::GroupRequest { name: String::new(), ..request() }, "group"),
            (pb::GroupRequest { member: vec![1; 15].into(), ..request() }, "group.member"),
            (pb::GroupRequest { life: vec![1; 3].into(), ..request() }, "group.life"),
            (pb::GroupRequest { tries: Some(0), ..request() }, "group"),
            (pb::GroupRequest { fresh: true, ..request() }, "group"),
            (pb::GroupRequest { open_max: Some(10_001), ..request() }, "group"),
            (pb::GroupRequest { again_after_ms: Some(99), ..request() }, "group"),
            (
                pb::GroupRequest {
                    holds: vec![pb::HeldRecord { camera: "a//b".into(), ..Default::default() }],
                    ..request()
                },
                "group.holds",
            ),
            (
                pb::GroupRequest { holds: vec![pb::HeldRecord::default(); HOLDS_MAX + 1], ..request() },
                "group.holds",
            ),
        ];
        for (request, field) in table {
            let error = GroupAsk::parse(request, &spec(Deliver::Every), None, false).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{error}");
        }
        let refused = |spec, profile: Option<&Profile>, for_export| {
            GroupAsk::parse(request(), &spec, profile, for_export).unwrap_err().reason
        };
        assert_eq!(refused(begun, None, false), "SPAN_IN_GROUP");
        assert_eq!(refused(spec(Deliver::Every), None, true), "EXPORT_IN_GROUP");
        let inline = Profile::Inline(bytes::Bytes::new());
        assert_eq!(refused(spec(Deliver::Newest), Some(&inline), false), "PROFILE_IN_GROUP");
        let too_many = vec![pb::Settlement::default(); SETTLEMENTS_MAX + 1];
        assert_eq!(settlements(too_many).unwrap_err().field.as_deref(), Some("settlements"));
    }
}
