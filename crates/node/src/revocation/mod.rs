//! The site's deny list: its signature, its file, and the list in force at an edge or camera.
//!
//! [`mez_core::revocation`] decides whom a list denies and which of two lists counts. This module has the
//! signature ([`SignedList`]), the file `revoked.list` beside the identities ([`RevokedFile`]), and the
//! list in force ([`LiveRevocations`]), which follows the file and takes in lists that arrive over links.
//!
//! An edge checks the list in each TLS handshake (`identity/tls`), for each link when the link begins and when the list changes
//! (`edge/revoked.rs`), and for each request and event of an application (`api/access.rs`). A camera checks the list for each edge that it dials.

mod file;
mod live;
mod signed;

use std::time::{SystemTime, UNIX_EPOCH};

use mez_core::revocation::{Certificate, MemberName, Revocations, Serial, Subject};
use mez_core::units::Timestamp;
use rustls::pki_types::CertificateDer;

pub use self::file::{REVOKED, RevokedError, RevokedFile, Trusted};
pub use self::live::{LiveRevocations, Taken, follow};
pub use self::signed::{ListError, SignedList};
use crate::identity::Identity;
use crate::identity::certificate::{BACKDATED, CertificateFacts, UnreadableCertificate};

/// The message for a list that contradicts the list in force.
pub(crate) const CONFLICT: &str = "a deny list with the same version as the list in force, but other content: two hosts have signed lists; run `mez keys revoke` again for all entries, on only one of these hosts";

/// A member's certificate in the terms of the deny list.
///
/// # Errors
/// `certificate` is not a certificate, or has no serial number.
pub fn shown(
    certificate: &CertificateDer<'_>,
    identity: &Identity,
) -> Result<Certificate, UnreadableCertificate> {
    of_facts(&CertificateFacts::read(certificate)?, identity)
}

/// Facts of a certificate in the terms of the deny list.
pub(crate) fn of_facts(
    facts: &CertificateFacts,
    identity: &Identity,
) -> Result<Certificate, UnreadableCertificate> {
    let unreadable = |reason: &str| UnreadableCertificate { reason: reason.into() };
    let serial = facts.serial.parse::<Serial>().map_err(|_| unreadable("it has no serial number"))?;
    let member = identity.short().parse::<MemberName>().map_err(|_| unreadable("it names no member"))?;
    Ok(Certificate { member, serial, issued: seconds(facts.validity.not_before + BACKDATED) })
}

/// The certificate that stands for a member that signs in without one, while `list` is in force. It counts as
/// issued just after the member's last revocation. So every later revocation of the member denies it, even if
/// the clock of the host that signs lists is behind this host's clock. `None`: the member cannot be named.
pub(crate) fn signed_in(identity: &Identity, list: &Revocations) -> Option<Certificate> {
    let member = identity.short().parse::<MemberName>().ok()?;
    // No authority gives this number, so no entry for a serial number matches it.
    let serial = Serial::new(&[1])?;
    let before = list.get(&Subject::Member(member.clone())).map(|entry| entry.since.as_nanos());
    let issued = Timestamp::from_nanos(before.map_or(0, |since| since.saturating_add(1)));
    Some(Certificate { member, serial, issued })
}

/// The certificate that stands for a person whom a proxy has signed in. The time of the sign-in is unknown, so
/// every revocation of the person denies it until the revocation is undone. `None`: the person cannot be named.
pub(crate) fn of_person(identity: &Identity) -> Option<Certificate> {
    signed_in(identity, &Revocations::none(identity.site.as_str()))
}

/// A moment in whole seconds, the resolution of certificates.
pub fn seconds(moment: SystemTime) -> Timestamp {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Timestamp::from_nanos(since.saturating_mul(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use mez_core::revocation::Entry;

    use super::*;

    #[test]
    fn a_person_of_a_proxy_is_revoked_by_whatever_names_it() {
        let identity = Identity::parse_within(&"harbour".parse().unwrap(), "app/proxy/alice").unwrap();
        let person = of_person(&identity).unwrap();
        let entry = |since| Entry {
            since: Timestamp::from_nanos(since),
            until: Timestamp::MAX,
            because: String::new(),
        };
        let none = Revocations::none("harbour");
        assert!(none.denies(&person).is_none());
        for since in [0, 1, 5_000_000_000] {
            let member = "app/proxy/alice".parse().unwrap();
            assert!(none.with(Timestamp::MIN, member, entry(since)).unwrap().denies(&person).is_some());
        }
    }

    /// The clock of the host that signs lists may be years behind this host's clock.
    #[test]
    fn whoever_signs_in_is_revoked_by_what_comes_later_by_any_clock() {
        let site = "harbour".parse().unwrap();
        let identity = Identity::parse_within(&site, "app/wall").unwrap();
        let revoke = |list: &Revocations, since| {
            let (since, because) = (Timestamp::from_nanos(since), String::new());
            let entry = Entry { since, until: Timestamp::MAX, because };
            list.with(Timestamp::MIN, "app/wall".parse().unwrap(), entry).unwrap()
        };
        let none = Revocations::none("harbour");
        let first = signed_in(&identity, &none).unwrap();
        let revoked = revoke(&none, 5_000_000_000);
        assert!(revoked.denies(&first).is_some());
        let second = signed_in(&identity, &revoked).unwrap();
        assert!(revoked.denies(&second).is_none(), "the edge's own user has let it in again");
        for later in [1_000_000_000, 5_000_000_000, 6_000_000_000] {
            assert!(revoke(&revoked, later).denies(&second).is_some(), "{later}");
        }
    }
}
