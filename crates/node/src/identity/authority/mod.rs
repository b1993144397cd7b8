//! The authority of a site: it holds the private key that signs the certificates of all members.
//!
//! `rotate.rs` replaces the authority by a new one.

mod error;
mod live;
mod rotate;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mez_core::rights::Stance;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SigningKey, SubjectPublicKeyInfo,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, DnsName, PrivatePkcs8KeyDer};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

pub use self::error::{AuthorityError, IssueError, RequestError};
pub(super) use self::live::LiveAuthority;
use crate::identity::certificate::{BACKDATED, CertificateFacts, Moment, Validity, hex};
use crate::identity::files::{self, Present, Readers};
use crate::identity::name::{Identity, IdentityError, Role, SiteName};
use crate::identity::prepare::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY, prepare};
use crate::identity::trust::Trust;
use crate::rights::RightsFile;

/// The server name in every edge's certificate, and in no other. Mez's clients always verify this
/// name, so the dialled name or address does not matter, and only an edge can pass for an edge.
pub const EDGE_SERVER_NAME: &str = "mez-edge";

/// The name in the certificate that an authority gives to its successor, and in no other.
pub(super) const SUCCESSOR: &str = "mez-successor";

/// The most host names that an edge's certificate may carry besides the fixed ones.
pub const EDGE_HOSTS_MAX: usize = 16;

/// Signs the certificates of a site's members. Whoever holds its key decides who belongs to the site.
pub struct SiteAuthority {
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
    /// The authority's own certificate, and during an overlap the certificates that link it to the previous authority.
    trust: Trust,
}

impl SiteAuthority {
    /// Makes a new authority and writes it into `folder`, which is created with mode 0700 if it does not exist.
    ///
    /// Also writes a rights file that allows nothing yet.
    ///
    /// Never overwrites: a folder that holds an authority, or only the certificate of
    /// one, is refused. If a crash interrupted the creation, another call completes it.
    pub fn create(folder: &Path, site: &SiteName) -> Result<Self, AuthorityError> {
        let (key_path, certificate_path) = (folder.join(AUTHORITY_KEY), folder.join(AUTHORITY_CERTIFICATE));
        if certificate_path.exists() {
            return Err(AuthorityError::Exists { folder: folder.into(), key: key_path.exists() });
        }
        prepare(folder)?;
        // Before the key: a site without a rights file counts as older than grants.
        RightsFile::of(folder).create(Stance::Deny)?;
        let made = Self::generate(site, SystemTime::now())?;
        // The key's file also contains the certificate, so that this file alone is complete.
        let authority = match files::write(&key_path, made.pem().as_bytes(), Readers::Owner, Present::Keep) {
            Ok(()) => made,
            Err(error) if error.exists_already() => match Self::load_key_file(folder)? {
                unfinished if unfinished.site() == site => unfinished,
                _ => return Err(AuthorityError::Exists { folder: folder.into(), key: true }),
            },
            Err(error) => return Err(error.into()),
        };
        let certificate = authority.trust.pem();
        match files::write(&certificate_path, certificate.as_bytes(), Readers::Everybody, Present::Keep) {
            Err(error) if error.exists_already() => {
                Err(AuthorityError::Exists { folder: folder.into(), key: true })
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(authority),
        }
    }

    /// Loads the authority in `folder`. Completes a rotation that a crash interrupted.
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let authority = Self::load_key_file(folder)?;
        let path = folder.join(AUTHORITY_CERTIFICATE);
        let published: Vec<_> = CertificateDer::pem_slice_iter(&files::read(&path)?)
            .map(|certificate| certificate.map(CertificateDer::into_owned))
            .collect::<Result<_, _>>()
            .unwrap_or_default();
        if published == authority.trust.certificates() {
            return Ok(authority);
        }
        let before = Trust::of(published);
        let ours = authority.trust.certificates().to_vec();
        match before.map(|before| before.follow(ours, SystemTime::now())) {
            Ok(Ok(Some(_))) => {
                authority.publish(folder)?;
                Ok(authority)
            }
            _ => Err(AuthorityError::Damaged {
                path,
                reason: format!("it does not hold the certificate that belongs to {AUTHORITY_KEY}"),
            }),
        }
    }

    /// The site of this authority.
    pub fn site(&self) -> &SiteName {
        self.trust.site()
    }

    /// The certificate that every member of the site trusts.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        self.trust.root()
    }

    /// What members trust: this authority's certificate, and during an overlap also the previous authority's.
    pub fn trust(&self) -> &Trust {
        &self.trust
    }

    /// The time during which the authority is valid.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a certificate and returns its chain: the certificate itself, without the authority's certificate, which every member has
    /// already. During an overlap, the successor certificate follows, which proves this authority to members that know only the previous one.
    ///
    /// The certificate never outlasts the authority. An edge's certificate is also valid for `localhost`, `127.0.0.1`,
    /// `::1` and `hosts`: host names or addresses by which foreign clients reach the edge. Other roles have no hosts.
    pub fn issue(
        &self,
        identity: &Identity,
        public_key: &PublicKey,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Vec<CertificateDer<'static>>, IssueError> {
        if identity.site != *self.site() {
            let (identity, site) = (Box::new(identity.clone()), self.site().clone());
            return Err(IssueError::Site(IdentityError::OtherSite { identity, site }));
        }
        let mut params = blank_params(&identity.short(), None);
        params.not_before = validity.not_before.into();
        let issued = validity.not_before + BACKDATED;
        let longest = issued + Validity::MEMBER_MAX;
        params.not_after = validity.not_after.min(longest).min(self.validity.not_after).into();
        params.subject_alt_names = alternative_names(identity, hosts)?;
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // Edges may dial other edges in the future. Cameras and applications never serve.
        params.extended_key_usages = match identity.role {
            Role::Edge => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Role::Camera | Role::App => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
        let certificate = params.signed_by(&public_key.0, &self.issuer)?;
        let proof = self.trust.successor_at(issued);
        Ok(std::iter::once(certificate.into()).chain(proof.cloned()).collect())
    }

    /// Signs a message, which must begin with its purpose: ECDSA P-256 over SHA-256, ASN.1.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.issuer.key().sign(message)
    }

    pub(crate) fn generate(site: &SiteName, now: SystemTime) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        // Two authorities of one site name, after a second `init`, have different subjects. So a
        // certificate of the first is refused with "unknown authority" and not with a bad signature.
        let mark = hex(&random::<4>()?);
        let mut params = blank_params(&format!("Mez authority {mark}"), Some(site.as_str()));
        let validity = Validity::from(now, Validity::AUTHORITY);
        authority_params(&mut params, validity, site, 1)?;
        let certificate: CertificateDer<'static> = params.self_signed(&key)?.into();
        Ok(Self::of(vec![certificate], key).map_err(|_| rcgen::Error::CouldNotParseCertificate)?)
    }

    /// Makes an authority from its certificates, its own first.
    fn of(certificates: Vec<CertificateDer<'static>>, key: KeyPair) -> Result<Self, String> {
        let trust = Trust::of(certificates)?;
        let (_, facts) = read_authority(trust.root())?;
        if !has_public_key(trust.root(), &key) {
            return Err("the key and the certificate in it do not belong together".into());
        }
        let issuer = Issuer::from_ca_cert_der(trust.root(), key).map_err(|error| error.to_string())?;
        Ok(Self { validity: facts.validity, issuer, trust })
    }

    /// The content of the key's file.
    fn pem(&self) -> String {
        format!("{}{}", self.issuer.key().serialize_pem(), self.trust.pem())
    }

    fn load_key_file(folder: &Path) -> Result<Self, AuthorityError> {
        let path = folder.join(AUTHORITY_KEY);
        let content = match files::read(&path) {
            Ok(content) => content,
            Err(error) if error.is_absent() => {
                return Err(AuthorityError::NoKey { folder: folder.into() });
            }
            Err(error) => return Err(error.into()),
        };
        let mode = files::mode(&path)?;
        if mode & 0o077 != 0 {
            return Err(AuthorityError::Exposed { path, mode });
        }
        let damaged = |reason: String| AuthorityError::Damaged { path: path.clone(), reason };
        let key = PrivatePkcs8KeyDer::from_pem_slice(&content).map_err(|e| damaged(e.to_string()))?;
        let key = KeyPair::try_from(&key).map_err(|e| damaged(e.to_string()))?;
        let certificates = CertificateDer::pem_slice_iter(&content);
        let certificates = certificates.map(|certificate| certificate.map(CertificateDer::into_owned));
        let certificates = certificates.collect::<Result<_, _>>().map_err(|e| damaged(e.to_string()))?;
        Self::of(certificates, key).map_err(damaged)
    }
}

impl fmt::Debug for SiteAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteAuthority").field("site", self.site()).finish_non_exhaustive()
    }
}

/// The public key for a new certificate: P-256. The owner has proven to hold the private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(SubjectPublicKeyInfo);

impl PublicKey {
    /// Takes the key from a signing request (PKCS #10, DER), and verifies the proof that the sender
    /// holds the private key. All other fields of the request are ignored: the authority decides them.
    pub fn from_request(request: &[u8]) -> Result<Self, RequestError> {
        let (rest, parsed) = X509CertificationRequest::from_der(request)
            .map_err(|e| RequestError::Unreadable { reason: e.to_string() })?;
        if !rest.is_empty() {
            return Err(RequestError::Unreadable { reason: "bytes after its end".into() });
        }
        let info = &parsed.certification_request_info.subject_pki;
        let key = SubjectPublicKeyInfo::from_der(info.raw).map_err(|_| RequestError::Algorithm)?;
        if key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 {
            return Err(RequestError::Algorithm);
        }
        parsed.verify_signature().map_err(|_| RequestError::NoProof)?;
        Ok(Self(key))
    }

    pub(super) fn of(key: &KeyPair) -> Result<Self, rcgen::Error> {
        Ok(Self(SubjectPublicKeyInfo::from_der(&key.subject_public_key_info())?))
    }
}

/// Reads the site and the other facts of an authority's certificate.
pub(super) fn read_authority(
    certificate: &CertificateDer<'_>,
) -> Result<(SiteName, CertificateFacts), String> {
    let facts = CertificateFacts::read(certificate).map_err(|e| e.to_string())?;
    let site = match facts.uris.as_slice() {
        [uri] => uri.strip_prefix("spiffe://").and_then(|site| site.parse().ok()),
        _ => None,
    };
    match site {
        Some(site) if facts.is_authority => Ok((site, facts)),
        _ => Err("it is not the certificate of a Mez site's authority".into()),
    }
}

/// PEM in lines of 64 characters, as OpenSSL writes it.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    // Base64 is ASCII, so every cut is between characters.
    let lines = body.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("base64 is ASCII"));
    let mut text = format!("-----BEGIN {label}-----\n");
    lines.for_each(|line| text.extend([line, "\n"]));
    text + &format!("-----END {label}-----\n")
}

/// Random bytes from the operating system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], rcgen::Error> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    Ok(bytes)
}

/// Checks the host names for an edge's certificate.
pub(super) fn check_hosts(identity: &Identity, hosts: &[String]) -> Result<(), IssueError> {
    alternative_names(identity, hosts).map(drop)
}

fn alternative_names(identity: &Identity, hosts: &[String]) -> Result<Vec<SanType>, IssueError> {
    let mut names = vec![uri(&identity.to_string())?];
    if identity.role != Role::Edge {
        return match hosts {
            [] => Ok(names),
            _ => Err(IssueError::HostsOfNonEdge { identity: Box::new(identity.clone()) }),
        };
    }
    if hosts.len() > EDGE_HOSTS_MAX {
        return Err(IssueError::TooManyHosts { count: hosts.len() });
    }
    names.extend([
        SanType::DnsName(EDGE_SERVER_NAME.try_into()?),
        SanType::DnsName("localhost".try_into()?),
        SanType::IpAddress(Ipv4Addr::LOCALHOST.into()),
        SanType::IpAddress(Ipv6Addr::LOCALHOST.into()),
    ]);
    for host in hosts {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if is_host_name(host) => SanType::DnsName(host.as_str().try_into()?),
            Err(_) => return Err(IssueError::Host { host: host.chars().take(128).collect() }),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether `host` is a valid DNS name for a certificate.
pub(super) fn is_host_name(host: &str) -> bool {
    DnsName::try_from(host).is_ok()
}

fn uri(text: &str) -> Result<SanType, rcgen::Error> {
    Ok(SanType::URI(text.try_into()?))
}

fn blank_params(common_name: &str, organisation: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // X.509 limits a common name to 64 characters. It is only for people. Programs use the URI.
    let common_name: String = common_name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params
}

/// Sets the fields that all certificates of authorities have. `below`: how many authorities may be between this one and a member.
fn authority_params(
    params: &mut CertificateParams,
    validity: Validity,
    site: &SiteName,
    below: u8,
) -> Result<(), rcgen::Error> {
    params.not_before = validity.not_before.into();
    params.not_after = validity.not_after.into();
    params.subject_alt_names = vec![uri(&format!("spiffe://{site}"))?];
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
    Ok(())
}

/// Whether a certificate was given by an authority to its successor.
pub(super) fn is_successor(certificate: &CertificateDer<'_>) -> bool {
    read_authority(certificate).is_ok_and(|(_, facts)| facts.hosts.iter().any(|name| name == SUCCESSOR))
}

fn has_public_key(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    match x509_parser::parse_x509_certificate(certificate) {
        Ok((_, parsed)) => parsed.public_key().raw == key.subject_public_key_info(),
        Err(_) => false,
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", Moment(self.not_before), Moment(self.not_after))
    }
}

#[cfg(test)]
mod tests;
