//! Keeps the site's deny list: signed by its authority, in a file, and in force at whoever asks for it.
//!
//! [`mez_core::revocation`] decides whom a list denies and which of two lists counts. Here are the signature
//! ([`SignedList`]), the file `revoked.list` beside the identities ([`RevokedFile`]), and the list in force
//! ([`LiveRevocations`]), which follows the file, and takes in what comes over links.
//!
//! An edge asks it inside each TLS handshake (`identity/tls`), for each link when it begins and when the list has
//! changed (`edge/revoked.rs`), and for each request and event of an application (`api/access.rs`). A camera asks it for
//! each edge that it dials.

mod file;
mod live;
mod signed;

use std::time::{SystemTime, UNIX_EPOCH};

use mez_core::revocation::{Certificate, MemberName, Serial};
use mez_core::units::Timestamp;
use rustls::pki_types::CertificateDer;

pub use self::file::{REVOKED, RevokedError, RevokedFile, Trusted};
pub use self::live::{LiveRevocations, Taken, follow};
pub use self::signed::{ListError, SignedList};
use crate::identity::Identity;
use crate::identity::certificate::{BACKDATED, CertificateFacts, UnreadableCertificate};

/// What to say of a list that contradicts the one in force.
pub(crate) const CONFLICT: &str = "a deny list with the version in force and another content: two hosts have signed lists; run `mez keys revoke` \
                                   for everything once more, on one of them";

/// What a member showed, in the terms of the deny list.
///
/// # Errors
/// Not a certificate, or one without a serial number.
pub fn shown(
    certificate: &CertificateDer<'_>,
    identity: &Identity,
) -> Result<Certificate, UnreadableCertificate> {
    of_facts(&CertificateFacts::read(certificate)?, identity)
}

/// The same of a certificate that was read.
pub(crate) fn of_facts(
    facts: &CertificateFacts,
    identity: &Identity,
) -> Result<Certificate, UnreadableCertificate> {
    let unreadable = |reason: &str| UnreadableCertificate { reason: reason.into() };
    let serial = facts.serial.parse::<Serial>().map_err(|_| unreadable("it has no serial number"))?;
    let member = identity.short().parse::<MemberName>().map_err(|_| unreadable("it names no member"))?;
    Ok(Certificate { member, serial, issued: seconds(facts.validity.not_before + BACKDATED) })
}

/// A moment in whole seconds, as certificates have them.
pub fn seconds(moment: SystemTime) -> Timestamp {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Timestamp::from_nanos(since.saturating_mul(1_000_000_000))
}
