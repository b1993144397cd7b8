//! Exchanges the site's deny list with other edges.

use mez_core::revocation::Offer;
use tonic::Code;
use tracing::warn;

use super::edge::EdgeApi;
use super::principal::{Member, Principal};
use super::{ApiError, pb};
use crate::identity::Role;
use crate::revocation::{CONFLICT, Taken};

impl EdgeApi {
    /// Takes in the caller's list if it is newer, or returns this edge's list if that is newer. An edge
    /// that is on the list itself gets the list too: its connection ends soon, and so it learns why.
    pub fn exchange_revocations(
        &self,
        principal: &Principal,
        request: pb::ExchangeRevocationsRequest,
    ) -> Result<pb::ExchangeRevocationsResponse, ApiError> {
        let Principal::Member(Member { identity, .. }) = principal else { return Err(only_edges()) };
        if identity.role != Role::Edge {
            return Err(only_edges());
        }
        let (revoked, from) = (self.edge.revoked(), identity.short());
        if !request.signed.is_empty() {
            match revoked.take(request.signed, &from) {
                Ok(Taken::Refused(Offer::Conflict)) => {
                    warn!(from, "an edge has {CONFLICT}");
                }
                // A newer list may have arrived meanwhile.
                Ok(_) => {}
                Err(error) => return Err(ApiError::invalid("signed", "BAD_DENY_LIST", error.to_string())),
            }
        }
        let held = revoked.now();
        let is_newer = held.list.version() > request.version;
        let signed = if is_newer { held.bytes.clone() } else { bytes::Bytes::new() };
        Ok(pb::ExchangeRevocationsResponse { version: held.list.version(), signed })
    }
}

fn only_edges() -> ApiError {
    let message = "deny lists are exchanged only between edges of the site, over TLS; for other programs, copy revoked.list";
    ApiError::new(Code::PermissionDenied, "NEEDS_EDGE", message)
}
