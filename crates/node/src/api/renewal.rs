//! Renews certificates of applications.

use prost::Message;
use tonic::Code;

use super::edge::EdgeApi;
use super::principal::{Member, Principal};
use super::{ApiError, pb};
use crate::edge::renewals::Asker;
use crate::identity::Role;
use crate::identity::renew::refusal;

impl EdgeApi {
    /// Issues the next certificate of the principal, or of the member whose request an edge forwards.
    pub async fn renew_certificate(
        &self,
        principal: &Principal,
        request: &pb::RenewCertificateRequest,
    ) -> Result<pb::RenewCertificateResponse, ApiError> {
        let Principal::Member(Member { identity, certificate }) = principal else {
            let message = "certificates are renewed only over TLS, where the client shows its old certificate; the Unix socket needs no certificate";
            return Err(ApiError::new(Code::PermissionDenied, "NEEDS_CERTIFICATE", message));
        };
        // The signer checks its own list, which may be older.
        if let Some(denial) = self.edge.revoked().denies(certificate) {
            return Ok(refusal(pb::RenewalRefusal::Revoked, denial.to_string()));
        }
        let asker = match identity.role {
            // A forwarded request contains its own proof.
            Role::Edge => Asker::Edge(identity.short()),
            Role::Camera | Role::App => Asker::Member(identity.to_string(), String::new()),
        };
        let answer = self.edge.renew(request.encode_to_vec().into(), &asker).await;
        pb::RenewCertificateResponse::decode(answer).map_err(|_| {
            ApiError::new(Code::Internal, "SIGNER", "the edge's signer failed; its log says why")
        })
    }
}
