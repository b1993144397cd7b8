//! The authority of a site: holds the private key that signs the certificates of all members.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
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

use super::certificate::{BACKDATED, CertificateFacts, Moment, Validity, hex};
use super::files::{self, FileError, Present, Readers};
use super::name::{Identity, IdentityError, Role, SiteName};
use super::prepare::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY, PrepareError, prepare};
use crate::rights::{RightsError, RightsFile};

/// The server name in every edge's certificate, and in no other. Mez's clients always verify it, so the dialled name or address does not
/// matter, and only an edge can pass for an edge.
pub const EDGE_SERVER_NAME: &str = "mez-edge";

/// The most host names that an edge's certificate may carry besides the fixed ones.
pub const EDGE_HOSTS_MAX: usize = 16;

/// Signs the certificates of a site's members. Whoever holds its key decides who belongs to the site.
pub struct SiteAuthority {
    site: SiteName,
    certificate: CertificateDer<'static>,
    validity: Validity,
    issuer: Issuer<'static, KeyPair>,
}

impl SiteAuthority {
    /// Makes a new authority and writes it into `folder`, which is created with mode 0700 where it is missing.
    ///
    /// Beside it stands a file of rights that allows nothing yet.
    ///
    /// Never overwrites: a folder that holds an authority, or only the certificate of one, is refused. A creation
    /// that a crash cut short is completed by calling this again.
    pub fn create(folder: &Path, site: &SiteName) -> Result<Self, AuthorityError> {
        let (key_path, certificate_path) = (folder.join(AUTHORITY_KEY), folder.join(AUTHORITY_CERTIFICATE));
        if certificate_path.exists() {
            return Err(AuthorityError::Exists { folder: folder.into(), key: key_path.exists() });
        }
        prepare(folder)?;
        // Before there is a key: a site without a file of rights is taken for one that is older than grants.
        RightsFile::of(folder).create(Stance::Deny)?;
        let made = Self::generate(site, SystemTime::now())?;
        // The key's file also holds the certificate, so that it is complete by itself the moment it exists.
        let both = format!("{}{}", made.issuer.key().serialize_pem(), pem("CERTIFICATE", &made.certificate));
        let authority = match files::write(&key_path, both.as_bytes(), Readers::Owner, Present::Keep) {
            Ok(()) => made,
            Err(error) if error.exists_already() => match Self::load_key_file(folder)? {
                unfinished if unfinished.site == *site => unfinished,
                _ => return Err(AuthorityError::Exists { folder: folder.into(), key: true }),
            },
            Err(error) => return Err(error.into()),
        };
        let certificate = pem("CERTIFICATE", &authority.certificate);
        match files::write(&certificate_path, certificate.as_bytes(), Readers::Everybody, Present::Keep) {
            Err(error) if error.exists_already() => {
                Err(AuthorityError::Exists { folder: folder.into(), key: true })
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(authority),
        }
    }

    /// Loads the authority that `folder` holds.
    pub fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let authority = Self::load_key_file(folder)?;
        let path = folder.join(AUTHORITY_CERTIFICATE);
        match CertificateDer::from_pem_slice(&files::read(&path)?) {
            Ok(published) if published == authority.certificate => Ok(authority),
            _ => Err(AuthorityError::Damaged {
                path,
                reason: format!("it does not hold the certificate that belongs to {AUTHORITY_KEY}"),
            }),
        }
    }

    /// The site that this authority speaks for.
    pub fn site(&self) -> &SiteName {
        &self.site
    }

    /// The certificate that every member of the site trusts.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// From when to when the authority holds.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Issues a certificate and returns its chain: the certificate itself, without the authority's, which every
    /// member has already.
    ///
    /// It never outlasts the authority. The certificate of an edge is also good for `localhost`, `127.0.0.1`, `::1`
    /// and `hosts`: host names or addresses by which foreign clients reach it. Others have no hosts.
    pub fn issue(
        &self,
        identity: &Identity,
        public_key: &PublicKey,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Vec<CertificateDer<'static>>, IssueError> {
        if identity.site != self.site {
            let (identity, site) = (Box::new(identity.clone()), self.site.clone());
            return Err(IssueError::Site(IdentityError::OtherSite { identity, site }));
        }
        let mut params = blank_params(&identity.short(), None);
        params.not_before = validity.not_before.into();
        let longest = validity.not_before + BACKDATED + Validity::MEMBER_MAX;
        params.not_after = validity.not_after.min(longest).min(self.validity.not_after).into();
        params.subject_alt_names = alternative_names(identity, hosts)?;
        params.use_authority_key_identifier_extension = true;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // An edge dials other edges one day; a camera or an application never serves.
        params.extended_key_usages = match identity.role {
            Role::Edge => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Role::Camera | Role::App => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
        let certificate = params.signed_by(&public_key.0, &self.issuer)?;
        Ok(vec![certificate.into()])
    }

    /// Signs a message, which says itself what it is: ECDSA P-256 over SHA-256, ASN.1.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.issuer.key().sign(message)
    }

    pub(crate) fn generate(site: &SiteName, now: SystemTime) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        // Two authorities of one site name, after a second `init`, have different subjects, so that a certificate
        // of the first is answered with "unknown authority" and not with a bad signature.
        let mark = hex(&random::<4>()?);
        let mut params = blank_params(&format!("Mez authority {mark}"), Some(site.as_str()));
        let validity = Validity::from(now, Validity::AUTHORITY);
        params.not_before = validity.not_before.into();
        params.not_after = validity.not_after.into();
        params.subject_alt_names = vec![uri(&format!("spiffe://{site}"))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(SerialNumber::from_slice(&random::<16>()?));
        let certificate: CertificateDer<'static> = params.self_signed(&key)?.into();
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { site: site.clone(), certificate, validity, issuer })
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
        let certificate =
            CertificateDer::from_pem_slice(&content).map_err(|e| damaged(e.to_string()))?.into_owned();
        let (site, facts) = read_authority(&certificate).map_err(damaged)?;
        if !has_public_key(&certificate, &key) {
            return Err(damaged("the key and the certificate in it do not belong together".into()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { site, certificate, validity: facts.validity, issuer })
    }
}

impl fmt::Debug for SiteAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteAuthority").field("site", &self.site).finish_non_exhaustive()
    }
}

/// The public key that a certificate is to be made for: P-256, whose owner has proven to hold the private one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(SubjectPublicKeyInfo);

impl PublicKey {
    /// Takes the key out of a signing request (PKCS #10, DER) and checks the proof that its sender holds the
    /// private key. Everything else that the request asks for is ignored: the authority decides it.
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

/// PEM, in lines of 64 characters as OpenSSL writes it.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    // Base64 is ASCII, so that every cut falls between characters.
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

/// Why an authority could not be made or loaded.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The folder holds one already.
    #[error(
        "{} holds {} already, and nothing was changed; look at it with `mez keys list`, or choose another folder \
         with --keys",
        folder.display(),
        if *key { "a site's authority" } else { "the certificate of a site that this host was enrolled in" }
    )]
    Exists {
        /// The folder.
        folder: PathBuf,
        /// Whether the authority's key is in it, and not only its certificate.
        key: bool,
    },
    /// The folder does not hold the authority's key.
    #[error(
        "{} does not hold an authority's key ({AUTHORITY_KEY}); run this on the host where the site was made, or \
         make a site with `mez keys init`",
        folder.display()
    )]
    NoKey {
        /// The folder.
        folder: PathBuf,
    },
    /// Others may read the key.
    #[error(
        "{} may be read by others (mode {mode:03o}), so its key is not used; run `chmod 600 {}`, and make a new \
         site if somebody else may have read it",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A file is damaged.
    #[error("{} is damaged: {reason}; restore it from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The folder cannot be used for keys.
    #[error(transparent)]
    Folder(#[from] PrepareError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file that says who may do what could not be written.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// Making or using a key failed.
    #[error("cannot make or use the authority's key: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Why a certificate was not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The identity is of another site.
    #[error(transparent)]
    Site(IdentityError),
    /// Host names for something that does not serve.
    #[error("{identity} is not an edge, so its certificate cannot carry host names; leave out --dns")]
    HostsOfNonEdge {
        /// The identity.
        identity: Box<Identity>,
    },
    /// More host names than allowed.
    #[error("an edge's certificate carries at most {EDGE_HOSTS_MAX} host names, and {count} were asked for")]
    TooManyHosts {
        /// How many were asked for.
        count: usize,
    },
    /// Not a host name.
    #[error("{host:?} is neither a host name nor an address")]
    Host {
        /// The text that was refused.
        host: String,
    },
    /// The signature could not be made.
    #[error("cannot sign the certificate: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// Why a signing request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not PKCS #10.
    #[error("the signing request cannot be read ({reason})")]
    Unreadable {
        /// What the parser said.
        reason: String,
    },
    /// Another kind of key.
    #[error("the signing request is not for a P-256 key, the only kind that Mez uses")]
    Algorithm,
    /// The request was not signed with the private key that belongs to it.
    #[error("the signing request is not signed with its own key")]
    NoProof,
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

/// Whether `host` may stand as a name in a certificate.
pub(super) fn is_host_name(host: &str) -> bool {
    DnsName::try_from(host).is_ok()
}

fn uri(text: &str) -> Result<SanType, rcgen::Error> {
    Ok(SanType::URI(text.try_into()?))
}

fn blank_params(common_name: &str, organisation: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // X.509 bounds a common name at 64 characters. It is for people; the URI is what counts.
    let common_name: String = common_name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params
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
mod tests {
    use super::super::certificate::{is_signed_by, peer_identity};
    use super::*;
    use std::time::Duration;

    fn harbour() -> SiteName {
        "harbour".parse().unwrap()
    }

    fn identity(short: &str) -> Identity {
        Identity::parse_within(&harbour(), short).unwrap()
    }

    #[test]
    fn an_authority_is_written_privately_and_loads_again() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("new/keys");
        let made = SiteAuthority::create(&folder, &harbour()).unwrap();
        assert_eq!(files::mode(&folder).unwrap(), 0o700);
        assert_eq!(files::mode(&folder.join(AUTHORITY_KEY)).unwrap(), 0o600);
        let published = std::fs::read_to_string(folder.join(AUTHORITY_CERTIFICATE)).unwrap();
        assert!(published.contains("CERTIFICATE") && !published.contains("PRIVATE KEY"));
        let loaded = SiteAuthority::load(&folder).unwrap();
        assert_eq!(loaded.certificate(), made.certificate());
        assert_eq!(loaded.site(), &harbour());
        let years = loaded.validity().not_after.duration_since(SystemTime::now()).unwrap();
        assert!(years > Duration::from_secs(3650 * 24 * 3600), "{years:?}");
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let made = SiteAuthority::create(folder.path(), &harbour()).unwrap();
        let again = SiteAuthority::create(folder.path(), &harbour());
        assert!(matches!(again, Err(AuthorityError::Exists { key: true, .. })), "{again:?}");
        assert_eq!(SiteAuthority::load(folder.path()).unwrap().certificate(), made.certificate());

        std::fs::remove_file(folder.path().join(AUTHORITY_KEY)).unwrap();
        let enrolled = SiteAuthority::create(folder.path(), &harbour());
        assert!(matches!(enrolled, Err(AuthorityError::Exists { key: false, .. })), "{enrolled:?}");
        let keyless = SiteAuthority::load(folder.path());
        assert!(matches!(keyless, Err(AuthorityError::NoKey { .. })), "{keyless:?}");

        let busy = tempfile::tempdir().unwrap();
        std::fs::write(busy.path().join("thesis.tex"), "x").unwrap();
        let refused = SiteAuthority::create(busy.path(), &harbour());
        assert!(matches!(refused, Err(AuthorityError::Folder(_))), "{refused:?}");
    }

    #[test]
    fn a_creation_that_was_cut_short_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        let made = SiteAuthority::create(folder.path(), &harbour()).unwrap();
        std::fs::remove_file(folder.path().join(AUTHORITY_CERTIFICATE)).unwrap();
        let other = SiteAuthority::create(folder.path(), &"airport".parse().unwrap());
        assert!(matches!(other, Err(AuthorityError::Exists { .. })), "{other:?}");
        SiteAuthority::create(folder.path(), &harbour()).unwrap();
        assert_eq!(SiteAuthority::load(folder.path()).unwrap().certificate(), made.certificate());
    }

    #[test]
    fn of_two_that_create_at_once_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let made: Vec<_> = std::thread::scope(|scope| {
            let run = || SiteAuthority::create(folder.path(), &harbour());
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let loaded = SiteAuthority::load(folder.path()).unwrap();
        assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 1);
        for authority in made.into_iter().flatten() {
            assert_eq!(authority.certificate(), loaded.certificate());
        }
    }

    #[test]
    fn an_exposed_or_damaged_authority_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        SiteAuthority::create(folder.path(), &harbour()).unwrap();
        let key = folder.path().join(AUTHORITY_KEY);
        let set_mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o640);
        let error = SiteAuthority::load(folder.path()).unwrap_err();
        assert!(error.to_string().contains(&format!("chmod 600 {}", key.display())), "{error}");
        set_mode(0o600);

        // The key of one authority beside the certificate of another.
        let elsewhere = tempfile::tempdir().unwrap();
        SiteAuthority::create(elsewhere.path(), &harbour()).unwrap();
        let public = AUTHORITY_CERTIFICATE;
        std::fs::copy(elsewhere.path().join(public), folder.path().join(public)).unwrap();
        let mixed = SiteAuthority::load(folder.path());
        assert!(matches!(mixed, Err(AuthorityError::Damaged { .. })), "{mixed:?}");
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        let garbage = SiteAuthority::load(folder.path());
        assert!(matches!(garbage, Err(AuthorityError::Damaged { .. })), "{garbage:?}");
    }

    #[test]
    fn a_certificate_says_who_and_only_an_edge_has_hosts() {
        let now = SystemTime::now();
        let authority = SiteAuthority::generate(&harbour(), now).unwrap();
        let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
        let validity = Validity::from(now, Validity::MEMBER);
        for short in ["camera/dock/cam1", "app/counter"] {
            let chain = authority.issue(&identity(short), &key, &[], validity).unwrap();
            assert_eq!(peer_identity(&chain, &harbour()).unwrap(), identity(short));
            assert!(is_signed_by(&chain[0], authority.certificate()));
            let facts = CertificateFacts::read(&chain[0]).unwrap();
            assert_eq!((facts.hosts, facts.is_authority), (vec![], false));
            assert!(facts.validity.holds_at(now - Duration::from_secs(3500)), "not backdated");
            assert!(!facts.validity.holds_at(now + Duration::from_secs(91 * 24 * 3600)));
            let refused = authority.issue(&identity(short), &key, &["host".into()], validity);
            assert!(matches!(refused, Err(IssueError::HostsOfNonEdge { .. })), "{refused:?}");
        }
        let hosts = ["edge.lan".to_owned(), "10.0.0.7".into(), "localhost".into()];
        let chain = authority.issue(&identity("edge/main"), &key, &hosts, validity).unwrap();
        let facts = CertificateFacts::read(&chain[0]).unwrap();
        assert_eq!(facts.hosts, ["mez-edge", "localhost", "127.0.0.1", "::1", "edge.lan", "10.0.0.7"]);
        let odd = authority.issue(&identity("edge/main"), &key, &["a b".into()], validity);
        assert!(matches!(odd, Err(IssueError::Host { .. })), "{odd:?}");
        let many = vec!["x".to_owned(); EDGE_HOSTS_MAX + 1];
        let many = authority.issue(&identity("edge/main"), &key, &many, validity);
        assert!(matches!(many, Err(IssueError::TooManyHosts { .. })), "{many:?}");
    }

    #[test]
    fn no_certificate_outlasts_the_authority_and_serials_differ() {
        let authority = SiteAuthority::generate(&harbour(), SystemTime::now()).unwrap();
        let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
        let long = Validity::from(SystemTime::now(), 10 * Validity::AUTHORITY);
        let issue = || authority.issue(&identity("app/x"), &key, &[], long).unwrap().remove(0);
        let (one, two) =
            (CertificateFacts::read(&issue()).unwrap(), CertificateFacts::read(&issue()).unwrap());
        assert!(one.validity.not_after <= authority.validity().not_after);
        assert_ne!(one.serial, two.serial);
    }

    #[test]
    fn only_a_request_signed_with_its_own_p256_key_is_taken() {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let good = request.der().to_vec();
        assert_eq!(PublicKey::from_request(&good), Ok(PublicKey::of(&key).unwrap()));

        let mut forged = good.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert!(PublicKey::from_request(&forged).is_err());
        let mut longer = good.clone();
        longer.push(0);
        assert!(matches!(PublicKey::from_request(&longer), Err(RequestError::Unreadable { .. })));
        assert!(matches!(PublicKey::from_request(b"hello"), Err(RequestError::Unreadable { .. })));
        for other in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let key = KeyPair::generate_for(other).unwrap();
            let request = CertificateParams::default().serialize_request(&key).unwrap();
            assert_eq!(PublicKey::from_request(request.der()), Err(RequestError::Algorithm));
        }
    }

    #[test]
    fn pem_reads_back_at_every_length() {
        for length in 0..200 {
            let der: Vec<u8> = (0..length).collect();
            let text = pem("CERTIFICATE", &der);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).unwrap().as_ref(), der);
        }
    }

    #[test]
    fn another_sites_identity_is_not_issued() {
        let authority = SiteAuthority::generate(&harbour(), SystemTime::now()).unwrap();
        let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
        let foreign = "spiffe://airport/app/x".parse().unwrap();
        let validity = Validity::from(SystemTime::now(), Validity::MEMBER);
        assert!(matches!(authority.issue(&foreign, &key, &[], validity), Err(IssueError::Site(_))));
    }
}
