//! The authority's side: decides requests, and signs.
//!
//! Before signing, it reads the deny list in its own folder of keys, under the list's lock.
//! So a revoked member cannot get a certificate that counts as issued after the revocation.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use mez_core::revocation::Revocations;
use mez_core::units::Instant;
use prost::Message;
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::{CONTEXT, Way, encode, refusal};
use crate::api::pb;
use crate::api::pb::RenewalRefusal as Refusal;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::authority::{AuthorityError, IssueError, LiveAuthority, PublicKey, SiteAuthority};
use crate::identity::certificate::{
    CertificateFacts, Moment, Validity, is_message_signed_by, is_signed_by, member_identity, moment, same_key,
};
use crate::identity::folder::KeyFolder;
use crate::identity::name::Identity;
use crate::identity::trust::Trust;
use crate::revocation::{RevokedFile, of_facts};

/// Requests that are processed at the same time: they share the lock of the deny list. One takes less than a millisecond.
const AT_ONCE_MAX: usize = 1;

/// A future answer.
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Bytes> + Send + 'a>>;

/// Something that renews certificates.
pub(crate) trait Signs: fmt::Debug + Send + Sync + 'static {
    /// Decides a `RenewCertificateRequest`. The answer is a `RenewCertificateResponse`.
    fn sign(&self, request: Bytes) -> Answer<'_>;

    /// Whether this signer only forwards requests to another edge.
    fn passes_on(&self) -> bool {
        false
    }
}

/// Renews certificates. Cheap to clone.
///
/// It signs only for the member whose certificate and old key the request shows, for the same
/// identity and the same lifetime as before. It never signs a certificate of an authority.
#[derive(Clone, Debug)]
pub struct Signer(Arc<dyn Signs>);

impl Signer {
    /// A signer inside this process, for the site whose authority's key is in `keys`.
    pub fn of(keys: &KeyFolder) -> Result<Self, AuthorityError> {
        Self::at_pace(keys, Pace::default())
    }

    pub(super) fn at_pace(keys: &KeyFolder, pace: Pace) -> Result<Self, AuthorityError> {
        let here = Here { authority: LiveAuthority::load(keys.path())?, pace };
        Ok(Self::from(Turns { here: Arc::new(here), turns: Semaphore::new(AT_ONCE_MAX) }))
    }

    pub(crate) fn from(signer: impl Signs) -> Self {
        Self(Arc::new(signer))
    }

    /// Whether this signer only forwards requests to another edge.
    pub(crate) fn passes_on(&self) -> bool {
        self.0.passes_on()
    }

    /// Decides a `RenewCertificateRequest`. The answer is a `RenewCertificateResponse`.
    pub async fn answer(&self, request: Bytes) -> Bytes {
        self.0.sign(request).await
    }
}

/// A signer that has the authority's key.
#[derive(Debug)]
struct Here {
    authority: LiveAuthority,
    pace: Pace,
}

#[derive(Debug)]
struct Turns {
    here: Arc<Here>,
    turns: Semaphore,
}

impl Signs for Turns {
    fn sign(&self, request: Bytes) -> Answer<'_> {
        Box::pin(async move {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            let here = Arc::clone(&self.here);
            let answered = spawn_blocking(move || here.answer(request)).await;
            encode(
                &answered
                    .unwrap_or_else(|_| refusal(Refusal::Internal, "the signer failed; its log says why")),
            )
        })
    }
}

impl Here {
    fn answer(&self, request: Bytes) -> pb::RenewCertificateResponse {
        let Ok(request) = pb::RenewCertificateRequest::decode(request) else {
            return refusal(Refusal::BadRequest, "the request for a certificate cannot be read");
        };
        let authority = match self.authority.now() {
            Ok(authority) => authority,
            Err(error) => return failed(&error.to_string(), "the authority's key cannot be used"),
        };
        let bytes = |certificate: &CertificateDer<'_>| Bytes::copy_from_slice(certificate);
        let answered = |chain: Vec<Bytes>| pb::RenewCertificateResponse {
            chain,
            authorities: authority.trust().standing_at(SystemTime::now()).map(bytes).collect(),
            answered_utc_ns: wall_now().as_nanos(),
            ..Default::default()
        };
        if request.certificate.is_empty() {
            return answered(Vec::new());
        }
        let revoked = RevokedFile::of(self.authority.folder(), authority.trust());
        let decided = revoked.while_it_stays(|list| decide(&authority, list, &request, SystemTime::now()));
        let refused = match decided {
            Ok(Ok((identity, chain))) => match self.pace.allows(&identity, &chain[0]) {
                Ok(serial) => {
                    tracing::info!(%identity, serial, "renewed a certificate");
                    return answered(chain.iter().map(bytes).collect());
                }
                Err(wait) => (Refusal::TooSoon, too_soon(&identity, wait)),
            },
            Ok(Err(refused)) => refused,
            Err(error) => return failed(&error.to_string(), "the deny list cannot be read"),
        };
        tracing::warn!("a certificate was not renewed: {}", refused.1);
        refusal(refused.0, refused.1)
    }
}

fn too_soon(identity: &Identity, wait: Duration) -> String {
    let (short, seconds) = (identity.short(), wait.as_secs_f64());
    format!("{short} has just got a certificate; it can get the next certificate in {seconds:.1} s")
}

/// How often one member gets a certificate. Without this limit, the holder of a
/// member's key could request certificates all the time, and fill the audit log.
#[derive(Debug)]
pub(super) struct Pace {
    /// The maximum pause. Below this limit, the pause is a twentieth of the certificate's life.
    pause_max: Duration,
    last: Mutex<HashMap<Identity, Instant>>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(Duration::from_secs(60))
    }
}

impl Pace {
    pub(super) fn of(pause_max: Duration) -> Self {
        Self { pause_max, last: Mutex::default() }
    }

    /// Returns the serial number if the member may get the certificate now, otherwise how long it must wait.
    fn allows(&self, identity: &Identity, certificate: &CertificateDer<'_>) -> Result<String, Duration> {
        let facts = CertificateFacts::read(certificate).ok();
        let lasts = facts.as_ref().map(|facts| facts.validity.lasts()).unwrap_or_default();
        let (now, pause) = (monotonic_now(), (lasts / 20).min(self.pause_max));
        // Each statement leaves the map consistent, so a poisoned lock is safe to use.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let until = last.get(identity).map_or(now, |last| *last + pause);
        if until > now {
            return Err(until.saturating_since(now));
        }
        // Only members get here, so the map has at most one entry for each member that renewed within the longest pause.
        last.retain(|_, last| *last + self.pause_max > now);
        last.insert(identity.clone(), now);
        Ok(facts.map(|facts| facts.serial).unwrap_or_default())
    }
}

/// Logs an error of the authority's files. The details stay in the log of the authority's host.
fn failed(error: &str, why: &str) -> pb::RenewCertificateResponse {
    tracing::error!(error, "no certificate can be renewed");
    refusal(
        Refusal::Internal,
        format!("the signer cannot renew certificates: {why}; see the log on the authority's host"),
    )
}

/// An edge with a signer renews its own certificate through the signer.
impl Way for Signer {
    async fn ask(&self, request: Bytes) -> Result<Bytes, String> {
        Ok(self.answer(request).await)
    }

    async fn reconnected(&mut self) -> bool {
        pending().await
    }
}

/// The member that a request claims to be for, not verified.
pub(crate) enum Claim {
    /// For nobody: the request asks which authorities the site trusts.
    Nobody,
    /// For this member.
    Member(Identity),
    /// The request cannot be read.
    Unreadable,
}

/// Reads the member that a request claims to be for. Verifies nothing.
pub(crate) fn claimed(request: &[u8]) -> Claim {
    let Ok(request) = pb::RenewCertificateRequest::decode(request) else { return Claim::Unreadable };
    if request.certificate.is_empty() {
        return Claim::Nobody;
    }
    let facts = CertificateFacts::read(&CertificateDer::from(request.certificate.as_ref()));
    match facts.ok().and_then(|facts| member_identity(&facts).ok()) {
        Some(identity) => Claim::Member(identity),
        None => Claim::Unreadable,
    }
}

/// Verifies a request, and signs.
pub(super) fn decide(
    authority: &SiteAuthority,
    revoked: &Revocations,
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
            "the certificate of {identity} is not from this site's authority; if the site was created again, enrol again with `mez keys enrol`"
        )));
    }
    let proof = [CONTEXT, &request.signing_request].concat();
    if !is_message_signed_by(&old, &proof, &request.signature) {
        return Err(bad(format!("the request is not signed with the key of {identity}")));
    }
    let shown = of_facts(&facts, &identity).map_err(|error| bad(error.to_string()))?;
    if let Some(denial) = revoked.denies(&shown) {
        return Err((Refusal::Revoked, denial.to_string()));
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
        return Err(bad("the request uses the old key; every certificate needs a new key".into()));
    }
    Ok((identity, chain))
}

/// Whether the authority, or during an overlap the previous one, has signed a certificate.
fn is_ours(trust: &Trust, certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    trust.standing_at(now).any(|authority| is_signed_by(certificate, authority))
}

/// The lifetime of the new certificate: that of the old one.
fn lifetime(before: Validity) -> Duration {
    before.lasts().clamp(Duration::from_secs(1), Validity::MEMBER_MAX)
}

/// Refuses a certificate that is not valid at `now`. The error states the time of both clocks.
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
        format!("the authority's clock says {}, the clock of the requesting host {theirs}", Moment(now));
    Err((Refusal::NotValidNow, format!("{why} ({clocks})")))
}
