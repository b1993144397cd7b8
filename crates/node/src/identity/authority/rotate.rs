//! Replaces a site's authority by a new one, with a time in which both are trusted.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{Issuer, KeyPair, SanType};
use rustls::pki_types::CertificateDer;

use super::{AuthorityError, SUCCESSOR, SiteAuthority, authority_params, blank_params, read_authority};
use crate::identity::certificate::{Moment, Validity};
use crate::identity::files::{self, Present, Readers};
use crate::identity::prepare::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY};
use crate::revocation::RevokedFile;

/// The longest overlap: a year. An authority that is replaced because somebody may have its key should not be trusted for longer.
const OVERLAP_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

impl SiteAuthority {
    /// Replaces the authority in `folder` by a new one. Certificates of the old one are accepted for the time `overlap` from `now`, and its key is
    /// gone when this returns: the two certificates that link both are made here.
    ///
    /// `force`: also while the overlap of the last rotation lasts; members that know neither of the two authorities then enrol anew.
    pub fn rotate(
        folder: &Path,
        overlap: Duration,
        now: SystemTime,
        force: bool,
    ) -> Result<Self, AuthorityError> {
        if !(Duration::from_secs(1)..=OVERLAP_MAX).contains(&overlap) {
            return Err(AuthorityError::Overlap { asked: overlap });
        }
        let old = Self::load(folder)?;
        // One that cannot be read now could not be signed anew later.
        RevokedFile::of(folder, old.trust()).read()?;
        if let Some(until) = old.overlaps_until(now).filter(|_| !force) {
            return Err(AuthorityError::Overlaps { until: Moment(until) });
        }
        let new = Self::generate(old.site(), now)?;
        let shared = Validity::from(now, overlap);
        let shared = Validity { not_after: shared.not_after.min(old.validity.not_after), ..shared };
        let successor = link(&old.issuer, new.certificate(), new.issuer.key(), shared, true)?;
        let predecessor = link(&new.issuer, old.certificate(), old.issuer.key(), shared, false)?;
        let key = KeyPair::from_pem(&new.issuer.key().serialize_pem())?;
        let new = Self::of(vec![new.certificate().clone(), successor, predecessor], key)
            .map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
        // The key's file alone is complete: `load` finishes what a crash leaves undone here.
        files::write(&folder.join(AUTHORITY_KEY), new.pem().as_bytes(), Readers::Owner, Present::Replace)?;
        new.publish(folder)?;
        Ok(new)
    }

    /// Completes a rotation whose key is in place: the deny list gets the new authority's signature, then `authority.pem` follows.
    pub(super) fn publish(&self, folder: &Path) -> Result<(), AuthorityError> {
        RevokedFile::of(folder, self.trust()).sign_anew(self)?;
        let certificates = self.trust.pem();
        let path = folder.join(AUTHORITY_CERTIFICATE);
        Ok(files::write(&path, certificates.as_bytes(), Readers::Everybody, Present::Replace)?)
    }

    /// Until when certificates of the authority before are accepted; `None` if there is no such authority any more.
    pub fn overlaps_until(&self, now: SystemTime) -> Option<SystemTime> {
        self.trust.overlaps_until(now)
    }
}

/// A certificate of `subject`, an authority whose public key is that of `key`, signed by another one.
fn link(
    issuer: &Issuer<'static, KeyPair>,
    subject: &CertificateDer<'static>,
    key: &KeyPair,
    validity: Validity,
    is_successor: bool,
) -> Result<CertificateDer<'static>, AuthorityError> {
    let (site, _) = read_authority(subject).map_err(|_| rcgen::Error::CouldNotParseCertificate)?;
    let mut params = blank_params(&common_name(subject).unwrap_or_default(), Some(site.as_str()));
    authority_params(&mut params, validity, &site, 0)?;
    params.use_authority_key_identifier_extension = true;
    if is_successor {
        params.subject_alt_names.push(SanType::DnsName(SUCCESSOR.try_into()?));
    }
    Ok(params.signed_by(key, issuer)?.into())
}

/// The name of an authority, by which the certificates are found that it has issued.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned())
}
