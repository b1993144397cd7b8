//! The member's side: makes a request, and verifies the answer.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::CONTEXT;
use crate::api::pb;
use crate::clock::wall_now;
use crate::identity::certificate::{Moment, member_identity, moment};
use crate::identity::credentials::{Credentials, Held, MismatchError};
use crate::identity::trust::Trust;

/// A request that waits for its answer.
pub(super) struct Asked {
    key: KeyPair,
    /// The message for the edge.
    pub(super) request: pb::RenewCertificateRequest,
}

impl Asked {
    /// Makes a new key, and the request for its certificate.
    pub(super) fn by(credentials: &Credentials) -> Result<Self, RenewError> {
        let held = credentials.held();
        let key = KeyPair::generate()?;
        // The authority takes only the key from the request, so the request contains nothing else.
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let signing_request = params.serialize_request(&key)?.der().to_vec();
        let signature = held.sign(&[CONTEXT, &signing_request].concat()).ok_or(RenewError::Key)?;
        let request = pb::RenewCertificateRequest {
            certificate: held.chain[0].to_vec().into(),
            signing_request: signing_request.into(),
            signature: signature.into(),
            sent_utc_ns: wall_now().as_nanos(),
        };
        Ok(Self { key, request })
    }

    /// Verifies the answer and returns the new credentials. They must have the same identity, the key
    /// that was made here, and an authority that is trusted or that a trusted authority vouches for.
    pub(super) fn accept(
        self,
        credentials: &Credentials,
        answer: pb::RenewCertificateResponse,
        now: SystemTime,
    ) -> Result<Arc<Held>, RenewError> {
        if answer.refusal != 0 {
            let (ours, theirs) = (Moment(now), moment(answer.answered_utc_ns));
            let code = answer.refusal();
            return Err(RenewError::Refused { code, message: answer.message, ours, theirs });
        }
        let trust = follow(&credentials.trust(), certificates(answer.authorities), now)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der()).into();
        let held = Held::assemble(certificates(answer.chain), key, trust)?;
        let identity = member_identity(&held.facts).map_err(MismatchError::from)?;
        if identity != *credentials.identity() {
            return Err(RenewError::Identity { got: identity.to_string() });
        }
        Ok(Arc::new(held))
    }
}

/// Converts certificates from the wire format.
pub(super) fn certificates(ders: Vec<Bytes>) -> Vec<CertificateDer<'static>> {
    ders.into_iter().map(|der| CertificateDer::from(der.to_vec())).collect()
}

fn follow(
    trusted: &Trust,
    offered: Vec<CertificateDer<'static>>,
    now: SystemTime,
) -> Result<Trust, RenewError> {
    if offered.is_empty() {
        return Ok(trusted.clone());
    }
    let next = trusted.follow(offered, now).map_err(|why| RenewError::Authority { why })?;
    Ok(next.unwrap_or_else(|| trusted.clone()))
}

/// Why a certificate was not renewed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RenewError {
    #[error("its key is not of the kind that `mez keys enrol` makes; enrol again")]
    Key,
    #[error("cannot make a key: {0}")]
    Crypto(#[from] rcgen::Error),
    #[error("{0}")]
    Unreachable(String),
    #[error("{message} (this host's clock says {ours}, the authority's {theirs})")]
    Refused { code: pb::RenewalRefusal, message: String, ours: Moment, theirs: Moment },
    #[error(
        "the edge offers another authority, but {why}; if the site was created again, enrol again with `mez keys enrol` into another folder"
    )]
    Authority { why: String },
    #[error("the edge's answer cannot be used: {0}")]
    Mismatch(#[from] MismatchError),
    #[error("the edge's answer is a certificate of {got}")]
    Identity { got: String },
    #[error(
        "the new certificate is valid {validity}, but this host's clock says {ours} and the authority's clock {theirs}: one of the clocks is \
         wrong; the old certificate stays in use"
    )]
    Clocks { validity: String, ours: Moment, theirs: Moment },
    #[error("another program is renewing the certificate")]
    Busy,
    #[error("a thread of this program ended early")]
    Thread,
}
