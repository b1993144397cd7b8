//! Replaces a site's authority by a new one, with an overlap in which both are trusted.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{Issuer, KeyPair, SanType};
use rustls::pki_types::CertificateDer;

use super::{AuthorityError, SUCCESSOR, SiteAuthority, authority_params, blank_params, read_authority};
use crate::identity::certificate::{Moment, Validity};
use crate::identity::files::{self, Present, Readers};
use crate::identity::prepare::{AUTHORITY_CERTIFICATE, AUTHORITY_KEY};
use crate::revocation::RevokedFile;

/// The longest overlap: a year. If an authority is replaced because its key may be stolen, it should not be trusted for longer.
const OVERLAP_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

impl SiteAuthority {
    /// Replaces the authority in `folder` by a new one. Certificates of the old authority are accepted for the time `overlap`
    /// from `now`. The old key no longer exists when this function returns, because both link certificates are made here.
    ///
    /// `force`: rotate even during the overlap of the last rotation. Members that know neither of the two authorities must then enrol again.
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
        // A deny list that cannot be read now could not be signed again later.
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
        // The key's file alone is complete: `load` completes a rotation that a crash interrupts here.
        files::write(&folder.join(AUTHORITY_KEY), new.pem().as_bytes(), Readers::Owner, Present::Replace)?;
        new.publish(folder)?;
        Ok(new)
    }

    /// Completes a rotation whose key file is written: signs the deny list with the new authority, then writes `authority.pem`.
    pub(super) fn publish(&self, folder: &Path) -> Result<(), AuthorityError> {
        RevokedFile::of(folder, self.trust()).sign_anew(self)?;
        let certificates = self.trust.pem();
        let path = folder.join(AUTHORITY_CERTIFICATE);
        Ok(files::write(&path, certificates.as_bytes(), Readers::Everybody, Present::Replace)?)
    }

    /// The time until which certificates of the previous authority are accepted. `None` if there is no such authority any more.
    pub fn overlaps_until(&self, now: SystemTime) -> Option<SystemTime> {
        self.trust.overlaps_until(now)
    }
}

/// A certificate for the authority `subject`, whose public key is that of `key`, signed by another authority.
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

/// The common name of an authority. Verifiers use it to find the issuer of a certificate.
fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned())
}
