//! The credentials of one member: its private key and certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rcgen::KeyPair;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use tokio::sync::{Mutex, MutexGuard, watch};

use super::authority::{IssueError, PublicKey, SiteAuthority, pem};
use super::certificate::{CertificateFacts, PeerError, Validity, member_identity};
use super::files::{self, FileError};
use super::name::Identity;
use super::tls::provider;
use super::trust::Trust;

/// A member's key and certificate, and the authorities that it trusts. Never prints the key.
///
/// Cheap to clone. All clones change together when the certificate is renewed ([`mod@super::renew`]). Running connections are not
/// affected. Every new connection uses the new certificate, because TLS configurations made from a clone read the current certificate.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    identity: Identity,
    file: Option<PathBuf>,
    held: RwLock<Arc<Held>>,
    /// The number of certificates after the first.
    renewals: watch::Sender<u64>,
    /// Held during a renewal.
    turn: Mutex<()>,
}

/// A certificate with its key and the trusted authorities.
pub(super) struct Held {
    pub(super) chain: Arc<[CertificateDer<'static>]>,
    key: PrivateKeyDer<'static>,
    pub(super) trust: Trust,
    pub(super) facts: Arc<CertificateFacts>,
    /// The certificate and key in the form that rustls uses.
    pub(super) certified: Arc<CertifiedKey>,
}

impl Credentials {
    /// Makes a key, and lets `authority` issue a certificate for it. Writes no file.
    ///
    /// `hosts`: additional host names and addresses of an edge, see [`SiteAuthority::issue`].
    pub fn issue(
        authority: &SiteAuthority,
        identity: &Identity,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Self, IssueError> {
        let key = KeyPair::generate()?;
        let chain = authority.issue(identity, &PublicKey::of(&key)?, hosts, validity)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let held = Held::assemble(chain, key, authority.trust().clone());
        Ok(Self::new(identity.clone(), held.expect("what was just made belongs together"), None))
    }

    fn new(identity: Identity, held: Held, file: Option<PathBuf>) -> Self {
        let held = RwLock::new(Arc::new(held));
        let (renewals, turn) = (watch::Sender::new(0), Mutex::default());
        Self(Arc::new(Inner { identity, file, held, renewals, turn }))
    }

    /// The member's identity. It never changes.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The certificate, followed by the certificates between it and the authority (none, except during an overlap of two authorities).
    pub fn chain(&self) -> Arc<[CertificateDer<'static>]> {
        Arc::clone(&self.held().chain)
    }

    /// The private key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.held().key.clone_key()
    }

    /// The certificate of the site's authority.
    pub fn authority(&self) -> CertificateDer<'static> {
        self.held().trust.root().clone()
    }

    /// The authorities that are trusted.
    pub fn trust(&self) -> Trust {
        self.held().trust.clone()
    }

    /// The time during which the certificate is valid.
    pub fn validity(&self) -> Validity {
        self.held().facts.validity
    }

    /// The facts in the certificate.
    pub fn facts(&self) -> Arc<CertificateFacts> {
        Arc::clone(&self.held().facts)
    }

    /// The file of these credentials. `None` if they were issued in memory.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The number of certificates after the first. The receiver sees its changes.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.0.renewals.subscribe()
    }

    /// The chain as PEM, for libraries that need PEM.
    pub fn chain_pem(&self) -> String {
        self.held().chain_pem()
    }

    /// The private key as PEM (PKCS #8). Keep it out of logs and files that others can read.
    pub fn key_pem(&self) -> String {
        self.held().key_pem()
    }

    /// The certificates of the trusted authorities as PEM.
    pub fn authority_pem(&self) -> String {
        self.held().trust.pem()
    }

    /// The current key and certificate.
    pub(super) fn held(&self) -> Arc<Held> {
        // Each statement leaves the value consistent, so a poisoned lock is safe to use.
        Arc::clone(&self.0.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until no other task renews these credentials.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// Uses another certificate of the same identity from now on, in all clones.
    pub(super) fn replace(&self, held: Arc<Held>) {
        *self.0.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        self.0.renewals.send_modify(|renewals| *renewals += 1);
    }

    /// Makes credentials from a file or an enrolment. Fails if the parts do not belong together.
    pub(super) fn assemble(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Trust,
        file: Option<PathBuf>,
    ) -> Result<Self, MismatchError> {
        let held = Held::assemble(chain, key, trust)?;
        Ok(Self::new(member_identity(&held.facts)?, held, file))
    }
}

impl Held {
    /// Makes a value from its parts. Fails if they do not belong together.
    pub(super) fn assemble(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        trust: Trust,
    ) -> Result<Self, MismatchError> {
        let leaf = chain.first().ok_or(MismatchError::NoCertificate)?;
        let facts = CertificateFacts::read(leaf).map_err(PeerError::from)?;
        member_identity(&facts)?;
        if !trust.has_signed(leaf) {
            return Err(MismatchError::Authority);
        }
        let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider())
            .map_err(|_| MismatchError::Key)?;
        Ok(Self { chain: chain.into(), key, trust, facts: facts.into(), certified: certified.into() })
    }

    /// The content of an identity file: the key, then the certificates.
    pub(super) fn pem(&self) -> String {
        self.key_pem() + &self.chain_pem()
    }

    pub(super) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_der())
    }

    pub(super) fn chain_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// Signs with the key (ECDSA with SHA-256, in DER). `None`: the key is not P-256 in PKCS #8, the only kind that Mez makes.
    pub(super) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, self.key.secret_der(), &random).ok()?;
        key.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Credentials");
        text.field("identity", &self.0.identity).field("file", &self.0.file).finish_non_exhaustive()
    }
}

/// Why parts do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MismatchError {
    /// There is no certificate.
    #[error("it holds no certificate")]
    NoCertificate,
    /// There is no private key.
    #[error("it holds no private key")]
    NoKey,
    /// The certificate is not that of a member.
    #[error(transparent)]
    Member(#[from] PeerError),
    /// The certificate was signed by another authority.
    #[error("its certificate was not signed by the authority in authority.pem (was the site created again?)")]
    Authority,
    /// The key does not belong to the certificate.
    #[error("its key does not belong to its certificate")]
    Key,
}

/// A file in a key folder that holds, or should hold, an identity.
#[derive(Debug)]
pub struct IdentityFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The identity, if it can be read. It is set even for files that cannot be used.
    pub identity: Option<Identity>,
    /// The credentials in the file. They may have expired.
    pub content: Result<Credentials, IdentityFileError>,
}

impl IdentityFile {
    /// Reads one file.
    pub(super) fn read(path: &Path, trust: &Trust) -> Self {
        let mut identity = None;
        let content = Self::read_content(path, trust, &mut identity);
        Self { path: path.to_owned(), identity, content }
    }

    fn read_content(
        path: &Path,
        trust: &Trust,
        identity: &mut Option<Identity>,
    ) -> Result<Credentials, IdentityFileError> {
        let content = files::read(path)?;
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&content).flatten().map(|c| c.into_owned()).collect();
        if let Some(leaf) = chain.first() {
            *identity = CertificateFacts::read(leaf).ok().and_then(|facts| member_identity(&facts).ok());
        }
        let mode = files::mode(path)?;
        if mode & 0o077 != 0 {
            return Err(IdentityFileError::Exposed { path: path.into(), mode });
        }
        let mismatch = |source| IdentityFileError::Mismatch { path: path.into(), source };
        let key = PrivateKeyDer::from_pem_slice(&content).map_err(|_| mismatch(MismatchError::NoKey))?;
        Credentials::assemble(chain, key, trust.clone(), Some(path.into())).map_err(mismatch)
    }

    /// Whether the file holds a certificate that is valid at `now`.
    pub fn is_usable_at(&self, now: SystemTime) -> bool {
        self.content.as_ref().is_ok_and(|credentials| credentials.validity().holds_at(now))
    }
}

/// Why a file of a key folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFileError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Others may read the key in the file.
    #[error(
        "{} may be read by others (mode {mode:03o}), so its key is not used; run `chmod 600 {}`, and enrol again if somebody else may have read it",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The parts do not belong together.
    #[error("{} cannot be used: {source}; enrol again with `mez keys enrol`, or remove the file", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: MismatchError,
    },
}
