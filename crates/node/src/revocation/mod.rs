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

use mez_core::revocation::{Certificate, MemberName, Revocations, Serial, Subject};
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

/// What a member counts as that signs in without a certificate, while `list` is in force: one that got a certificate just after it was revoked
/// last. So whatever revokes the member later revokes that too, also where the clock of the host that signs lists is behind this one's.
/// `None`: the member cannot be named.
pub(crate) fn signed_in(identity: &Identity, list: &Revocations) -> Option<Certificate> {
    let member = identity.short().parse::<MemberName>().ok()?;
    // No authority gives this number, so that no entry for a certificate is about it.
    let serial = Serial::new(&[1])?;
    let before = list.get(&Subject::Member(member.clone())).map(|entry| entry.since.as_nanos());
    let issued = Timestamp::from_nanos(before.map_or(0, |since| since.saturating_add(1)));
    Some(Certificate { member, serial, issued })
}

/// What a person counts as whom a proxy has signed in. Nobody knows when, so whatever revokes the person counts, until it is undone. `None`: the
/// person cannot be named.
pub(crate) fn of_person(identity: &Identity) -> Option<Certificate> {
    signed_in(identity, &Revocations::none(identity.site.as_str()))
}

/// A moment in whole seconds, as certificates have them.
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

    /// The clock of the host that signs may be years behind this one's.
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
