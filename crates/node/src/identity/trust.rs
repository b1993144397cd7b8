//! Holds the authorities that a member trusts: the site's own, and for a while the one before it.
//!
//! A site has one authority at a time. When it is replaced (`mez keys rotate`), the old and the new one sign each other:
//!
//! | certificate | key of | signed by | for whom |
//! | --- | --- | --- | --- |
//! | root | new | new | everybody, in the end |
//! | successor | new | old | members that know the old one alone: it proves the new one to them, and stands behind every certificate that the new one issues |
//! | predecessor | old | new | members that know the new one alone: with it they accept certificates that the old one has issued |
//!
//! The successor and the predecessor end with the overlap. So the old authority is dropped everywhere at that moment, without anybody telling.
//! `authority.pem` holds the root first, then the others.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, server::VerifierBuilderError};

use super::authority::{is_successor, pem, read_authority};
use super::certificate::{is_message_signed_by, is_signed_by, same_key};
use super::name::SiteName;
use super::tls::provider;

/// The most certificates of authorities that a member keeps. A site has three at most.
const AUTHORITIES_MAX: usize = 4;

/// The authorities that a member trusts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trust(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    site: SiteName,
    /// The root first.
    certificates: Vec<CertificateDer<'static>>,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// From the certificates of `authority.pem`, the root first.
    pub(crate) fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let root = certificates.first().ok_or("it holds no certificate")?;
        let (site, _) = read_authority(root)?;
        if certificates.len() > AUTHORITIES_MAX {
            return Err(format!("it holds more than {AUTHORITIES_MAX} certificates"));
        }
        if !is_signed_by(root, root) {
            return Err("its first certificate is not that of a site's authority".into());
        }
        for other in &certificates[1..] {
            let (of, _) = read_authority(other)?;
            if of != site {
                return Err(format!("it holds a certificate of another site, {of}"));
            }
            if !belongs(other, &certificates) {
                return Err("it holds a certificate that nothing links to its first one".into());
            }
        }
        let verifiers = |error: VerifierBuilderError| error.to_string();
        let mut roots = RootCertStore::empty();
        roots.add(root.clone()).map_err(|error| error.to_string())?;
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            // A client has one certificate to show. What it knows of authorities may be older than what is named here.
            .clear_root_hint_subjects()
            .build()
            .map_err(verifiers)?;
        let servers =
            WebPkiServerVerifier::builder_with_provider(roots, provider()).build().map_err(verifiers)?;
        Ok(Self(Arc::new(Inner { site, certificates, clients, servers })))
    }

    /// The site.
    pub fn site(&self) -> &SiteName {
        &self.0.site
    }

    /// The certificate of the site's authority.
    pub fn root(&self) -> &CertificateDer<'static> {
        &self.0.certificates[0]
    }

    /// The root first, then those that link it with the authority before.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// All of them as PEM.
    pub(super) fn pem(&self) -> String {
        self.0.certificates.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// Whether the root, or the authority before it, has signed a member's certificate.
    pub(super) fn has_signed(&self, member: &CertificateDer<'_>) -> bool {
        self.0.certificates.iter().any(|authority| is_signed_by(member, authority))
    }

    /// Whether the site's authority has signed a message, or the one before it while both are trusted, or the one that replaces it, for whom
    /// `link` vouches: a certificate that the authority here gave it.
    pub(crate) fn has_signed_message(
        &self,
        message: &[u8],
        signature: &[u8],
        link: Option<&CertificateDer<'_>>,
        now: SystemTime,
    ) -> bool {
        let by = |authority: &CertificateDer<'_>| is_message_signed_by(authority, message, signature);
        self.standing_at(now).any(&by) || link.is_some_and(|link| vouches(self.root(), link, now) && by(link))
    }

    /// What proves the root to members that know the authority before alone, while that is trusted.
    pub(crate) fn successor_at(&self, now: SystemTime) -> Option<&CertificateDer<'static>> {
        self.standing_at(now).skip(1).find(|link| is_successor(link))
    }

    /// Those that `now` lies within: the root, and while the overlap lasts the others.
    pub(super) fn standing_at(&self, now: SystemTime) -> impl Iterator<Item = &CertificateDer<'static>> {
        let (root, links) = self.0.certificates.split_at(1);
        root.iter().chain(links.iter().filter(move |link| holds_at(link, now)))
    }

    /// Until when certificates of the authority before are accepted; `None` if there is no such authority any more.
    pub fn overlaps_until(&self, now: SystemTime) -> Option<SystemTime> {
        let ends = |link| read_authority(link).map(|(_, facts)| facts.validity.not_after).ok();
        self.standing_at(now).skip(1).filter_map(ends).max()
    }

    /// What verifies clients. `with_links` has to be in the chain that it is given.
    pub(super) fn clients(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.0.clients
    }

    /// What verifies servers. `with_links` has to be in the chain that it is given.
    pub(super) fn servers(&self) -> &Arc<WebPkiServerVerifier> {
        &self.0.servers
    }

    /// The chain of a peer, and what links the authority before to the root: a peer that has not renewed yet cannot know of it.
    pub(super) fn with_links<'a>(&'a self, chain: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        chain.iter().chain(&self.0.certificates[1..]).cloned().collect()
    }

    /// The trust that follows this one, where `offered` (the root first) holds another root, and one of the others, signed by an authority that
    /// is trusted here and valid `now`, carries that root's key. `None`: nothing new.
    ///
    /// Nobody but a trusted authority can make such a certificate, so it does not matter who offers it.
    pub(super) fn follow(
        &self,
        offered: Vec<CertificateDer<'static>>,
        now: SystemTime,
    ) -> Result<Option<Self>, String> {
        let next = Self::of(offered)?;
        if next.site() != self.site() {
            return Err(format!("it is of another site, {}", next.site()));
        }
        if next.certificates() == self.certificates() {
            return Ok(None);
        }
        let proves =
            |link: &CertificateDer<'static>| same_key(link, next.root()) && vouches(self.root(), link, now);
        if next.root() != self.root() && !next.certificates()[1..].iter().any(proves) {
            return Err("no authority that is trusted here vouches for it".into());
        }
        Ok(Some(next))
    }
}

/// Whether a certificate is a link of `certificates`, whose first is the root: of an older key and signed by the root, or of the root's own key
/// and signed by such an older one.
fn belongs(link: &CertificateDer<'_>, certificates: &[CertificateDer<'_>]) -> bool {
    let root = &certificates[0];
    let is_predecessor = |link: &CertificateDer<'_>| !is_successor(link) && is_signed_by(link, root);
    let of_root = same_key(link, root);
    is_predecessor(link)
        || of_root && certificates[1..].iter().any(|old| is_predecessor(old) && is_signed_by(link, old))
}

/// Whether `root` has given `link` to the authority that replaces it. A link to the authority before is signed by the root as well, and must not
/// make that one the root again.
fn vouches(root: &CertificateDer<'_>, link: &CertificateDer<'_>, now: SystemTime) -> bool {
    is_successor(link) && is_signed_by(link, root) && holds_at(link, now)
}

/// Whether an authority's certificate is valid at a time.
fn holds_at(certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    read_authority(certificate).is_ok_and(|(_, facts)| facts.validity.holds_at(now))
}
