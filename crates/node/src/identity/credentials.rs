//! The credentials of one member: its private key and certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use super::authority::{IssueError, PublicKey, SiteAuthority, pem};
use super::certificate::{CertificateFacts, PeerError, Validity, is_signed_by, member_identity};
use super::files::{self, FileError};
use super::name::Identity;

/// A member's key and certificate, and the authority that it trusts. Cheap to clone; never prints the key.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    identity: Identity,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authority: CertificateDer<'static>,
    facts: CertificateFacts,
    file: Option<PathBuf>,
}

impl Credentials {
    /// Makes a key and has `authority` issue a certificate for it. Nothing is written.
    ///
    /// `hosts`: further host names and addresses of an edge, see [`SiteAuthority::issue`].
    pub fn issue(
        authority: &SiteAuthority,
        identity: &Identity,
        hosts: &[String],
        validity: Validity,
    ) -> Result<Self, IssueError> {
        let key = KeyPair::generate()?;
        let chain = authority.issue(identity, &PublicKey::of(&key)?, hosts, validity)?;
        let facts = CertificateFacts::read(&chain[0]).expect("a certificate that was just made can be read");
        Ok(Self(Arc::new(Inner {
            identity: identity.clone(),
            chain,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            authority: authority.certificate().clone(),
            facts,
            file: None,
        })))
    }

    /// Who this is.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// The certificate, followed by what lies between it and the authority (nothing today).
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.chain
    }

    /// The private key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.0.key.clone_key()
    }

    /// The certificate of the site's authority: the only one that is trusted.
    pub fn authority(&self) -> &CertificateDer<'static> {
        &self.0.authority
    }

    /// From when to when the certificate holds.
    pub fn validity(&self) -> Validity {
        self.0.facts.validity
    }

    /// The facts in the certificate.
    pub fn facts(&self) -> &CertificateFacts {
        &self.0.facts
    }

    /// The file that these came from; none where they were issued in memory.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The chain as PEM, for libraries that want it so.
    pub fn chain_pem(&self) -> String {
        self.0.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// The private key as PEM (PKCS #8). Keep it out of logs and files that others can read.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.0.key.secret_der())
    }

    /// The authority's certificate as PEM.
    pub fn authority_pem(&self) -> String {
        pem("CERTIFICATE", &self.0.authority)
    }

    /// Assembles credentials from a file or an enrolment, and checks that their parts belong together.
    pub(super) fn assemble(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authority: CertificateDer<'static>,
        file: Option<PathBuf>,
    ) -> Result<Self, MismatchError> {
        let leaf = chain.first().ok_or(MismatchError::NoCertificate)?;
        let facts = CertificateFacts::read(leaf).map_err(PeerError::from)?;
        let identity = member_identity(&facts)?;
        if !is_signed_by(leaf, &authority) {
            return Err(MismatchError::Authority);
        }
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider).map_err(|_| MismatchError::Key)?;
        Ok(Self(Arc::new(Inner { identity, chain, key, authority, facts, file })))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Credentials");
        text.field("identity", &self.0.identity).field("file", &self.0.file).finish_non_exhaustive()
    }
}

/// Parts that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MismatchError {
    /// There is no certificate.
    #[error("it holds no certificate")]
    NoCertificate,
    /// There is no private key.
    #[error("it holds no private key")]
    NoKey,
    /// The certificate is not a member's.
    #[error(transparent)]
    Member(#[from] PeerError),
    /// Another authority signed it.
    #[error("its certificate was not signed by the authority in authority.pem (was the site made anew?)")]
    Authority,
    /// The key is another's.
    #[error("its key does not belong to its certificate")]
    Key,
}

/// One file of a key folder that holds, or should hold, an identity.
#[derive(Debug)]
pub struct IdentityFile {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is, as far as that can be read even when the file cannot be used.
    pub identity: Option<Identity>,
    /// The credentials in it; they may have expired.
    pub content: Result<Credentials, IdentityFileError>,
}

impl IdentityFile {
    /// Reads one file.
    pub(super) fn read(path: &Path, authority: &CertificateDer<'static>) -> Self {
        let mut identity = None;
        let content = Self::read_content(path, authority, &mut identity);
        Self { path: path.to_owned(), identity, content }
    }

    fn read_content(
        path: &Path,
        authority: &CertificateDer<'static>,
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
        Credentials::assemble(chain, key, authority.clone(), Some(path.into())).map_err(mismatch)
    }

    /// Whether it holds a certificate that can be used at `now`.
    pub fn is_usable_at(&self, now: SystemTime) -> bool {
        self.content.as_ref().is_ok_and(|credentials| credentials.validity().holds_at(now))
    }
}

/// Why a file of a key folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityFileError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Others may read the key in it.
    #[error(
        "{} may be read by others (mode {mode:03o}), so its key is not used; run `chmod 600 {}`, and enrol anew if \
         somebody else may have read it",
        path.display(),
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Its parts do not belong together.
    #[error("{} cannot be used: {source}; enrol anew with `mez keys enrol`, or remove it", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: MismatchError,
    },
}
