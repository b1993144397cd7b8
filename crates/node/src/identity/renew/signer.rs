//! The authority's side: decides about requests, and signs.

use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost::Message;
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::{CONTEXT, Way, encode, refusal};
use crate::api::pb;
use crate::api::pb::RenewalRefusal as Refusal;
use crate::clock::wall_now;
use crate::identity::authority::{AuthorityError, IssueError, LiveAuthority, PublicKey, SiteAuthority};
use crate::identity::certificate::{
    CertificateFacts, Moment, Validity, has_signed, is_signed_by, member_identity, moment, same_key,
};
use crate::identity::folder::KeyFolder;
use crate::identity::name::Identity;
use crate::identity::trust::Trust;

/// Requests that are worked on at the same time. A signature takes about a tenth of a millisecond of a processor.
const AT_ONCE_MAX: usize = 2;

/// An answer that is waited for.
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Bytes> + Send + 'a>>;

/// Whoever renews certificates.
pub(crate) trait Signs: fmt::Debug + Send + Sync + 'static {
    /// Decides about a `RenewCertificateRequest`. The answer is a `RenewCertificateResponse`.
    fn sign(&self, request: Bytes) -> Answer<'_>;
}

/// Renews certificates. Cheap to clone.
///
/// It signs for nobody but the member whose certificate and old key the request shows, for the same identity and the same time as before, and
/// never an authority.
#[derive(Clone, Debug)]
pub struct Signer(Arc<dyn Signs>);

impl Signer {
    /// A signer inside this process, for the site whose authority's key is in `keys`.
    pub fn of(keys: &KeyFolder) -> Result<Self, AuthorityError> {
        let authority = Arc::new(LiveAuthority::load(keys.path())?);
        Ok(Self::from(Here { authority, turns: Semaphore::new(AT_ONCE_MAX) }))
    }

    pub(crate) fn from(signer: impl Signs) -> Self {
        Self(Arc::new(signer))
    }

    /// Decides about a `RenewCertificateRequest`. The answer is a `RenewCertificateResponse`.
    pub async fn answer(&self, request: Bytes) -> Bytes {
        self.0.sign(request).await
    }
}

/// A signer that has the authority's key.
#[derive(Debug)]
struct Here {
    authority: Arc<LiveAuthority>,
    turns: Semaphore,
}

impl Signs for Here {
    fn sign(&self, request: Bytes) -> Answer<'_> {
        Box::pin(async move {
            // Never closed.
            let _turn = self.turns.acquire().await;
            let authority = Arc::clone(&self.authority);
            let answered = spawn_blocking(move || answer(&authority, request)).await;
            encode(
                &answered
                    .unwrap_or_else(|_| refusal(Refusal::Internal, "the signer failed; its log says why")),
            )
        })
    }
}

fn answer(authority: &LiveAuthority, request: Bytes) -> pb::RenewCertificateResponse {
    let Ok(request) = pb::RenewCertificateRequest::decode(request) else {
        return refusal(Refusal::BadRequest, "the request for a certificate cannot be read");
    };
    let authority = match authority.now() {
        Ok(authority) => authority,
        Err(error) => {
            tracing::error!(%error, "no certificate can be renewed");
            return refusal(
                Refusal::Internal,
                "the authority's key cannot be used; the log on its host says why",
            );
        }
    };
    match decide(&authority, &request, SystemTime::now()) {
        Ok((identity, chain)) => {
            let serial = CertificateFacts::read(&chain[0]).map(|facts| facts.serial).unwrap_or_default();
            tracing::info!(%identity, serial, "renewed a certificate");
            let bytes = |certificate: &CertificateDer<'_>| Bytes::copy_from_slice(certificate);
            pb::RenewCertificateResponse {
                chain: chain.iter().map(bytes).collect(),
                authorities: authority.trust().standing_at(SystemTime::now()).map(bytes).collect(),
                answered_utc_ns: wall_now().as_nanos(),
                ..Default::default()
            }
        }
        Err((code, message)) => {
            tracing::warn!("a certificate was not renewed: {message}");
            refusal(code, message)
        }
    }
}

/// The way of an edge with a signer to its own certificate.
impl Way for Signer {
    async fn ask(&self, request: Bytes) -> Result<Bytes, String> {
        Ok(self.answer(request).await)
    }

    async fn reconnected(&mut self) -> bool {
        pending().await
    }
}

/// The identity that a request is for, without any proof. `None`: it cannot be read.
pub(crate) fn claimed(request: &[u8]) -> Option<Identity> {
    let request = pb::RenewCertificateRequest::decode(request).ok()?;
    let facts = CertificateFacts::read(&CertificateDer::from(request.certificate.as_ref())).ok()?;
    member_identity(&facts).ok()
}

/// Checks a request, and signs.
pub(super) fn decide(
    authority: &SiteAuthority,
    request: &pb::RenewCertificateRequest,
    now: SystemTime,
) -> Result<(Identity, Vec<CertificateDer<'static>>), (Refusal, String)> {
    let bad = |why: String| (Refusal::BadRequest, why);
    let old = CertificateDer::from(request.certificate.to_vec());
    let facts = CertificateFacts::read(&old).map_err(|error| bad(error.to_string()))?;
    let wrong = |why: String| (Refusal::WrongIdentity, why);
    let identity = member_identity(&facts).map_err(|error| wrong(error.to_string()))?;
    if facts.is_authority || !is_ours(authority.trust(), &old, now) {
        return Err(wrong(format!(
            "the certificate of {identity} is not of this site's authority; if the site was made anew, enrol anew with `mez keys enrol`"
        )));
    }
    let proof = [CONTEXT, &request.signing_request].concat();
    if !has_signed(&old, &proof, &request.signature) {
        return Err(bad(format!("the request is not signed with the key of {identity}")));
    }
    in_time(&identity, facts.validity, now, moment(request.sent_utc_ns))?;
    let key = PublicKey::from_request(&request.signing_request).map_err(|error| bad(error.to_string()))?;
    let validity = Validity::from(now, lifetime(facts.validity));
    let chain =
        authority.issue(&identity, &key, &facts.hosts_asked_for(), validity).map_err(
            |error| match error {
                IssueError::Crypto(_) => (Refusal::Internal, error.to_string()),
                _ => bad(error.to_string()),
            },
        )?;
    if same_key(&old, &chain[0]) {
        return Err(bad("the request is for the old key; every certificate has a key of its own".into()));
    }
    Ok((identity, chain))
}

/// Whether the authority, or the one before it while both are trusted, has signed a certificate.
fn is_ours(trust: &Trust, certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    trust.standing_at(now).any(|authority| is_signed_by(certificate, authority))
}

/// As long as the one before.
fn lifetime(before: Validity) -> Duration {
    before.lasts().clamp(Duration::from_secs(1), Validity::MEMBER_MAX)
}

/// Refuses a certificate that has expired, and says what both clocks say.
fn in_time(
    identity: &Identity,
    validity: Validity,
    now: SystemTime,
    theirs: Moment,
) -> Result<(), (Refusal, String)> {
    if validity.holds_at(now) {
        return Ok(());
    }
    let short = identity.short();
    let why = if now > validity.not_after {
        format!(
            "the certificate of {short} expired at {}; unless a clock is wrong, make a token with `mez keys token {short}` and enrol with \
             `mez keys enrol`",
            Moment(validity.not_after)
        )
    } else {
        format!(
            "the certificate of {short} is not valid before {}; a clock is wrong",
            Moment(validity.not_before)
        )
    };
    let clocks =
        format!("the authority's clock says {}, and the clock of the host that asks {theirs}", Moment(now));
    Err((Refusal::NotValidNow, format!("{why} ({clocks})")))
}
