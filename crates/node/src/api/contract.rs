//! Converts a contract to a message of the applications' interface, and back.

use std::time::Duration;

use bytes::Bytes;
use mez_core::contract::{Contract, ContractError, OnInfeasible};

use super::duration::nanos;
use super::{ApiError, pb};

/// A profile in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The content of the profile.
    Inline(Bytes),
    /// The profile's name in the edge's profile folder.
    Name(String),
}

impl Profile {
    /// The message field of this variant.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Inline(_) => "profile_inline",
            Self::Name(_) => "profile_name",
        }
    }
}

/// Converts a contract into a message, with the profile of the request. A message cannot contain a profile that is known only by its hash.
pub fn message(contract: &Contract, profile: Option<&Profile>) -> pb::Contract {
    use pb::contract::Profile as Message;
    pb::Contract {
        latency_bound_ns: contract.latency_bound.map(nanos),
        accuracy_floor: contract.accuracy_floor,
        on_time_share: Some(contract.on_time_share),
        profile: profile.cloned().map(|profile| match profile {
            Profile::Inline(content) => Message::ProfileInline(content),
            Profile::Name(name) => Message::ProfileName(name),
        }),
        min_fps: contract.min_fps,
        on_infeasible: contract.on_infeasible as i32,
        priority: contract.priority,
    }
}

/// Checks a requested contract. Also returns its profile, which must still be looked up.
pub fn parse(message: Option<pb::Contract>) -> Result<(Contract, Option<Profile>), ApiError> {
    use pb::contract::Profile as Message;
    let message = message.unwrap_or_default();
    let contract = Contract {
        latency_bound: message.latency_bound_ns.map(Duration::from_nanos),
        accuracy_floor: message.accuracy_floor,
        on_time_share: message.on_time_share.unwrap_or(Contract::default().on_time_share),
        profile: None,
        min_fps: message.min_fps,
        on_infeasible: match message.on_infeasible {
            0 => OnInfeasible::default(),
            code => u8::try_from(code)
                .ok()
                .and_then(OnInfeasible::from_code)
                .ok_or_else(|| ApiError::unknown_value("on_infeasible", code))?,
        },
        priority: message.priority,
    };
    contract.validate().map_err(|error| {
        let field = match error {
            ContractError::LatencyBound => "latency_bound_ns",
            ContractError::AccuracyFloor { .. } => "accuracy_floor",
            ContractError::OnTimeShare { .. } => "on_time_share",
            ContractError::MinFps { .. } => "min_fps",
        };
        ApiError::invalid(field, "INVALID_CONTRACT", error.to_string())
    })?;
    let profile = message.profile.map(|profile| match profile {
        Message::ProfileInline(content) => Profile::Inline(content),
        Message::ProfileName(name) => Profile::Name(name),
    });
    Ok((contract, profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker reads back the contract that a client requests.
    #[test]
    fn a_contract_comes_back_from_its_message() {
        let contract = Contract {
            latency_bound: Some(Duration::from_millis(100)),
            accuracy_floor: Some(0.95),
            on_time_share: 0.9,
            profile: None,
            min_fps: 5.0,
            on_infeasible: OnInfeasible::Stop,
            priority: -3,
        };
        for profile in [None, Some(Profile::Name("people".into())), Some(Profile::Inline("{}".into()))] {
            let back = parse(Some(message(&contract, profile.as_ref())));
            assert_eq!(back, Ok((contract.clone(), profile)));
        }
        assert_eq!(parse(None), Ok((Contract::default(), None)), "who says nothing asks nothing");
    }
}
