//! Tells a caller whether it has certain rights, without doing anything.

use mez_core::rights::Verb;

use super::edge::EdgeApi;
use super::principal::Principal;
use super::request::parse_pattern;
use super::{ApiError, pb};

/// The most questions of one request.
pub const WANTED_MAX: usize = 64;

impl EdgeApi {
    /// Whether the principal has the wanted rights. Reports nothing about the rights of others.
    pub fn check_rights(
        &self,
        principal: &Principal,
        request: pb::CheckRightsRequest,
    ) -> Result<pb::CheckRightsResponse, ApiError> {
        if request.wanted.len() > WANTED_MAX {
            let message = format!(
                "{} questions are more than the limit of {WANTED_MAX}; split the request",
                request.wanted.len()
            );
            return Err(ApiError::invalid("wanted", "TOO_MANY_QUESTIONS", message));
        }
        let answer = |wanted: pb::WantedRight| {
            let verb: Verb = wanted
                .verb
                .parse()
                .map_err(|error| ApiError::invalid("verb", "INVALID_VERB", format!("{error}")))?;
            Ok(self.access.would(principal, verb, &parse_pattern(&wanted.pattern)?).unwrap_or_default())
        };
        let refusals = request.wanted.into_iter().map(answer).collect::<Result<_, ApiError>>()?;
        let in_force = self.access.in_force(principal);
        Ok(pb::CheckRightsResponse { who: principal.bearer().to_string(), refusals, in_force })
    }
}
