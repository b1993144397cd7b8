//! Reads certificates: identity, validity and issuer.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::renewal::{DUE_SHARE, Life};
use mez_core::units::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::authority::EDGE_SERVER_NAME;
use super::name::{Identity, IdentityError, SiteName};

/// How far a new certificate is backdated: 1 h. So a device whose clock is behind accepts it.
pub const BACKDATED: Duration = Duration::from_secs(3600);

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time during which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Before this time the certificate is refused.
    pub not_before: SystemTime,
    /// After this time the certificate is refused.
    pub not_after: SystemTime,
}

impl Validity {
    /// How long a member's certificate is valid by default: 30 days. It is renewed after two thirds of this time.
    pub const MEMBER: Duration = Duration::from_secs(30 * DAY.as_secs());
    /// The longest validity of a member's certificate, also if more was requested: 90 days. Revocations are remembered for this time.
    /// It is also the default overlap of two authorities (`mez keys rotate`), so that every certificate is renewed during the overlap.
    pub const MEMBER_MAX: Duration = Duration::from_secs(90 * DAY.as_secs());
    /// How long the certificate of a site's authority is valid: 10 years.
    pub const AUTHORITY: Duration = Duration::from_secs(3652 * DAY.as_secs());

    /// From [`BACKDATED`] before `now` until `lasting` after it.
    pub fn from(now: SystemTime, lasting: Duration) -> Self {
        Self { not_before: now - BACKDATED, not_after: now + lasting }
    }

    /// The life of the certificate, for the schedule of renewals.
    pub fn life(&self) -> Life {
        Life { begins: timestamp(self.not_before + BACKDATED), ends: timestamp(self.not_after) }
    }

    /// The latest time for a renewal: after two thirds of the life.
    pub fn due(&self) -> SystemTime {
        self.not_before + BACKDATED + self.lasts().mul_f64(DUE_SHARE)
    }

    /// The lifetime for which the certificate was issued, without [`BACKDATED`].
    pub fn lasts(&self) -> Duration {
        self.not_after.duration_since(self.not_before + BACKDATED).unwrap_or_default()
    }

    /// Whether the certificate is valid at `now`.
    pub fn holds_at(&self, now: SystemTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

/// A received time, in nanoseconds since 1970.
pub(super) fn moment(utc_ns: u64) -> Moment {
    Moment(UNIX_EPOCH + Duration::from_nanos(utc_ns))
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A time for people: `2026-03-01 14:05:32 UTC`. It has seconds because certificates may be valid for only seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub SystemTime);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = match self.0.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
        };
        match time::OffsetDateTime::from_unix_timestamp(seconds) {
            Ok(t) => {
                let (date, hour, minute, second) = (t.date(), t.hour(), t.minute(), t.second());
                let text = format!(
                    "{:04}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC",
                    date.year(),
                    u8::from(date.month()),
                    date.day()
                );
                f.pad(&text)
            }
            Err(_) => f.pad("beyond the year 9999"),
        }
    }
}

/// The SHA-256 of a certificate, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        Self(digest.as_ref().try_into().expect("a SHA-256 digest has 32 bytes"))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The facts in a certificate.
#[derive(Clone, Debug)]
pub struct CertificateFacts {
    /// The time during which the certificate is valid.
    pub validity: Validity,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// All URIs in the subject alternative names. A member of a site has exactly one, its identity.
    pub uris: Vec<String>,
    /// The host names and addresses that the certificate may serve as. Only edges have any.
    pub hosts: Vec<String>,
    /// Whether the certificate may sign other certificates.
    pub is_authority: bool,
}

impl CertificateFacts {
    /// Reads a certificate.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, UnreadableCertificate> {
        let parsed = parse(certificate)?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        let names = parsed.subject_alternative_name().map_err(unreadable)?;
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::URI(uri) => uris.push((*uri).to_owned()),
                GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
                GeneralName::IPAddress(bytes) => hosts.extend(address(bytes)),
                _ => {}
            }
        }
        let moment = |time: x509_parser::time::ASN1Time| match u64::try_from(time.timestamp()) {
            Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds),
            Err(_) => UNIX_EPOCH,
        };
        let validity = parsed.validity();
        Ok(Self {
            validity: Validity {
                not_before: moment(validity.not_before),
                not_after: moment(validity.not_after),
            },
            // DER prefixes a zero byte if the number would otherwise be negative.
            serial: hex(parsed.raw_serial().strip_prefix(&[0]).unwrap_or(parsed.raw_serial())),
            uris,
            hosts,
            is_authority: parsed.is_ca(),
        })
    }

    /// The additional host names of an edge, as requested. Empty for other roles.
    pub(super) fn hosts_asked_for(&self) -> Vec<String> {
        let fixed = [EDGE_SERVER_NAME, "localhost", "127.0.0.1", "::1"];
        self.hosts.iter().filter(|host| !fixed.contains(&host.as_str())).cloned().collect()
    }
}

/// Whether `certificate` was signed by the key of `authority`.
pub(super) fn is_signed_by(certificate: &CertificateDer<'_>, authority: &CertificateDer<'_>) -> bool {
    match (parse(certificate), parse(authority)) {
        (Ok(certificate), Ok(authority)) => {
            certificate.issuer() == authority.subject()
                && certificate.verify_signature(Some(authority.public_key())).is_ok()
        }
        _ => false,
    }
}

/// Whether a message was signed by the key of a certificate: ECDSA P-256 over SHA-256, ASN.1.
pub(crate) fn is_message_signed_by(signer: &CertificateDer<'_>, message: &[u8], signature: &[u8]) -> bool {
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    parse(signer).is_ok_and(|signer| {
        let key = &signer.public_key().subject_public_key.data;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(message, signature).is_ok()
    })
}

/// Whether two certificates have the same public key.
pub(super) fn same_key(one: &CertificateDer<'_>, other: &CertificateDer<'_>) -> bool {
    match (parse(one), parse(other)) {
        (Ok(one), Ok(other)) => one.public_key().raw == other.public_key().raw,
        _ => false,
    }
}

/// The identity in a peer's certificates. The first certificate is the peer's own.
///
/// Does not verify the chain. The TLS handshake must have verified it against the site's authority, as the configurations in [`super::tls`] do.
pub fn peer_identity(certificates: &[CertificateDer<'_>], site: &SiteName) -> Result<Identity, PeerError> {
    let certificate = certificates.first().ok_or(PeerError::NoCertificate)?;
    let identity = member_identity(&CertificateFacts::read(certificate)?)?;
    if identity.site != *site {
        return Err(PeerError::OtherSite { identity: Box::new(identity), site: site.clone() });
    }
    Ok(identity)
}

/// The identity that a member's certificate states in its only URI.
pub(super) fn member_identity(facts: &CertificateFacts) -> Result<Identity, PeerError> {
    match facts.uris.as_slice() {
        [uri] => uri.parse().map_err(|source| PeerError::NotAnIdentity { source }),
        [] => Err(PeerError::NoIdentity),
        // With two identities in one certificate, its holder could choose between them.
        several => Err(PeerError::SeveralIdentities { count: several.len() }),
    }
}

/// A certificate that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate cannot be read ({reason})")]
pub struct UnreadableCertificate {
    /// What the parser said.
    pub reason: String,
}

/// Why a peer is not accepted as a member of the site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The peer presented no certificate.
    #[error(
        "the other side presented no certificate; it needs a certificate of this site, made with `mez keys enrol`"
    )]
    NoCertificate,
    /// The certificate is not X.509.
    #[error(transparent)]
    Unreadable(#[from] UnreadableCertificate),
    /// The certificate has no URI.
    #[error(
        "the certificate of the other side holds no identity (no spiffe:// URI); make a certificate with `mez keys enrol`"
    )]
    NoIdentity,
    /// The certificate has more than one URI.
    #[error("the certificate of the other side holds {count} URIs; exactly one, its identity, is allowed")]
    SeveralIdentities {
        /// The number of URIs.
        count: usize,
    },
    /// The URI is not an identity.
    #[error("the certificate of the other side holds no valid identity: {source}")]
    NotAnIdentity {
        /// Why the URI is invalid.
        source: IdentityError,
    },
    /// The identity belongs to another site.
    #[error("{identity} belongs to another site; this one is {site}")]
    OtherSite {
        /// The peer's identity.
        identity: Box<Identity>,
        /// The site of this host.
        site: SiteName,
    },
}

fn parse<'a>(certificate: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, UnreadableCertificate> {
    match X509Certificate::from_der(certificate) {
        Ok(([], parsed)) => Ok(parsed),
        Ok(_) => Err(UnreadableCertificate { reason: "bytes after its end".into() }),
        Err(error) => Err(unreadable(error)),
    }
}

fn unreadable(error: impl fmt::Display) -> UnreadableCertificate {
    UnreadableCertificate { reason: error.to_string() }
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_as_dates() {
        let at = |seconds| Moment(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(1_772_374_859), "2026-03-01 14:20:59 UTC");
        assert_eq!(at(u64::MAX / 4), "beyond the year 9999");
        assert_eq!(Moment(UNIX_EPOCH - Duration::from_secs(60)).to_string(), "1969-12-31 23:59:00 UTC");
    }

    #[test]
    fn what_is_no_certificate_is_an_error() {
        let garbage = CertificateDer::from(vec![0x30, 0x82, 0xff, 0xff, 1, 2, 3]);
        let site: SiteName = "harbour".parse().unwrap();
        assert!(matches!(peer_identity(&[garbage], &site), Err(PeerError::Unreadable(_))));
        assert_eq!(peer_identity(&[], &site), Err(PeerError::NoCertificate));
    }

    /// A certificate that our own authority would never make.
    fn odd_certificate(uris: &[&str]) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::default();
        for uri in uris {
            params.subject_alt_names.push(rcgen::SanType::URI((*uri).try_into().unwrap()));
        }
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().into()
    }

    #[test]
    fn a_peer_has_exactly_one_identity_of_our_site() {
        let site: SiteName = "harbour".parse().unwrap();
        let of = |uris: &[&str]| peer_identity(&[odd_certificate(uris)], &site);
        let cam = "spiffe://harbour/camera/dock";
        assert_eq!(of(&[cam]).unwrap().to_string(), cam);
        assert_eq!(of(&[]), Err(PeerError::NoIdentity));
        assert_eq!(of(&[cam, cam]), Err(PeerError::SeveralIdentities { count: 2 }));
        assert_eq!(of(&[cam, "https://elsewhere/"]), Err(PeerError::SeveralIdentities { count: 2 }));
        assert!(matches!(of(&["https://harbour/camera/dock"]), Err(PeerError::NotAnIdentity { .. })));
        assert!(matches!(of(&["spiffe://airport/camera/dock"]), Err(PeerError::OtherSite { .. })));
    }

    #[test]
    fn a_signature_of_somebody_else_is_noticed() {
        let (one, other) = (odd_certificate(&[]), odd_certificate(&[]));
        assert!(is_signed_by(&one, &one));
        assert!(!is_signed_by(&one, &other));
    }
}
