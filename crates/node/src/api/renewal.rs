//! Renews the certificates of applications.

use prost::Message;
use tonic::Code;

use super::edge::EdgeApi;
use super::principal::Principal;
use super::{ApiError, pb};
use crate::identity::{Identity, Role};

impl EdgeApi {
    /// Issues the next certificate of the principal, or of whom an edge asks for.
    pub async fn renew_certificate(
        &self,
        principal: &Principal,
        request: &pb::RenewCertificateRequest,
    ) -> Result<pb::RenewCertificateResponse, ApiError> {
        let shown = match principal {
            // What it passes on proves by itself whose it is.
            Principal::Member(Identity { role: Role::Edge, .. }) => None,
            Principal::Member(identity) => Some(identity.to_string()),
            Principal::User { .. } => {
                let message = "certificates are renewed over TLS, where the old one is shown; the Unix socket asks for none";
                return Err(ApiError::new(Code::PermissionDenied, "NEEDS_CERTIFICATE", message));
            }
        };
        let answer = self.edge.renew(request.encode_to_vec().into(), shown.as_deref()).await;
        pb::RenewCertificateResponse::decode(answer).map_err(|_| {
            ApiError::new(Code::Internal, "SIGNER", "the edge's signer failed; its log says why")
        })
    }
}
