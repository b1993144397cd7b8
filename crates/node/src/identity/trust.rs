//! The authorities that a member trusts: the site's own, and during an overlap the previous one.
//!
//! A site has one authority at a time. When it is replaced (`mez keys rotate`), the old and the new one sign each other:
//!
//! | certificate | key of | signed by | for whom |
//! | --- | --- | --- | --- |
//! | root | new | new | everybody, in the end |
//! | successor | new | old | members that know only the old authority: it proves the new one to them, and follows each certificate of the new one |
//! | predecessor | old | new | members that know only the new authority: with it they accept certificates that the old one has issued |
//!
//! The successor and the predecessor expire with the overlap. So everybody drops the old authority
//! at that moment, without any message. `authority.pem` holds the root first, then the others.

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

/// The most certificates of authorities that a member keeps. A site has at most three.
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
    /// Makes a trust from the certificates of `authority.pem`, the root first.
    pub(crate) fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let root = certificates.first().ok_or("it holds no certificate")?;
        let (site, _) = read_authority(root)?;
        if certificates.len() > AUTHORITIES_MAX {
            return Err(format!("it holds more than {AUTHORITIES_MAX} certificates"));
        }
        if !is_signed_by(root, root) {
            return Err("its first certificate is not the certificate of a site's authority".into());
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
            // A client has only one certificate to show, and may know other authorities than those named here.
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

    /// The root first, then the certificates that link it to the previous authority.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0.certificates
    }

    /// All certificates as PEM.
    pub(super) fn pem(&self) -> String {
        self.0.certificates.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// Whether the root or the previous authority has signed a member's certificate.
    pub(super) fn has_signed(&self, member: &CertificateDer<'_>) -> bool {
        self.0.certificates.iter().any(|authority| is_signed_by(member, authority))
    }

    /// Whether a message was signed by a valid authority: by the site's authority, by the previous one during an
    /// overlap, or by the next one. For the next one, `link` is the certificate that the site's authority gave it.
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

    /// The certificate that proves the root to members that know only the previous authority. `None` outside of the overlap.
    pub(crate) fn successor_at(&self, now: SystemTime) -> Option<&CertificateDer<'static>> {
        self.standing_at(now).skip(1).find(|link| is_successor(link))
    }

    /// The certificates that are valid at `now`: the root, and during an overlap the others.
    pub(super) fn standing_at(&self, now: SystemTime) -> impl Iterator<Item = &CertificateDer<'static>> {
        let (root, links) = self.0.certificates.split_at(1);
        root.iter().chain(links.iter().filter(move |link| holds_at(link, now)))
    }

    /// The time until which certificates of the previous authority are accepted. `None` if there is no such authority any more.
    pub fn overlaps_until(&self, now: SystemTime) -> Option<SystemTime> {
        let ends = |link| read_authority(link).map(|(_, facts)| facts.validity.not_after).ok();
        self.standing_at(now).skip(1).filter_map(ends).max()
    }

    /// The verifier of clients. Pass it a chain from [`Self::with_links`].
    pub(super) fn clients(&self) -> &Arc<dyn ClientCertVerifier> {
        &self.0.clients
    }

    /// The verifier of servers. Pass it a chain from [`Self::with_links`].
    pub(super) fn servers(&self) -> &Arc<WebPkiServerVerifier> {
        &self.0.servers
    }

    /// The chain of a peer, with the certificates that link the previous authority to the root. A peer that has not renewed yet cannot have them.
    pub(super) fn with_links<'a>(&'a self, chain: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
        chain.iter().chain(&self.0.certificates[1..]).cloned().collect()
    }

    /// Returns the trust that follows this one. `offered` has its root first. A new root is accepted if another offered
    /// certificate carries its key, is valid `now`, and is signed by an authority that is trusted here. `None`: nothing new.
    ///
    /// Only a trusted authority can make such a certificate, so it does not matter who offers it.
    pub(super) fn follow(
        &self,
        offered: Vec<CertificateDer<'static>>,
        now: SystemTime,
    ) -> Result<Option<Self>, String> {
        let next = Self::of(offered)?;
        if next.site() != self.site() {
            return Err(format!("it belongs to another site, {}", next.site()));
        }
        if next.certificates() == self.certificates() {
            return Ok(None);
        }
        let proves =
            |link: &CertificateDer<'static>| same_key(link, next.root()) && vouches(self.root(), link, now);
        if next.root() != self.root() && !next.certificates()[1..].iter().any(proves) {
            return Err("no authority that this host trusts has signed it".into());
        }
        Ok(Some(next))
    }
}

/// Whether `link` belongs to `certificates`, whose first is the root. A link has an older
/// key and is signed by the root, or has the root's key and is signed by such an older key.
fn belongs(link: &CertificateDer<'_>, certificates: &[CertificateDer<'_>]) -> bool {
    let root = &certificates[0];
    let is_predecessor = |link: &CertificateDer<'_>| !is_successor(link) && is_signed_by(link, root);
    let of_root = same_key(link, root);
    is_predecessor(link)
        || of_root && certificates[1..].iter().any(|old| is_predecessor(old) && is_signed_by(link, old))
}

/// Whether `root` has given `link` to its successor. A link to the previous authority
/// is signed by the root too, but must not make that authority the root again.
fn vouches(root: &CertificateDer<'_>, link: &CertificateDer<'_>, now: SystemTime) -> bool {
    is_successor(link) && is_signed_by(link, root) && holds_at(link, now)
}

/// Whether an authority's certificate is valid at `now`.
fn holds_at(certificate: &CertificateDer<'_>, now: SystemTime) -> bool {
    read_authority(certificate).is_ok_and(|(_, facts)| facts.validity.holds_at(now))
}
