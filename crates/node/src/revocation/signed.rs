//! A deny list with the signature of the site's authority.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mez_core::revocation::Revocations;
use mez_core::wire::{REVOCATION_LIST_BYTES_MAX, WireError};
use rustls::pki_types::CertificateDer;

use crate::identity::SiteName;
use crate::identity::authority::{SiteAuthority, pem};
use crate::identity::trust::Trust;

/// The prefix of every signed message, so that a signature of the authority for another purpose is not valid for a deny list.
const PURPOSE: &[u8] = b"mez deny list 1\0";
/// The most bytes of a signature: ECDSA P-256 in ASN.1.
const SIGNATURE_BYTES_MAX: usize = 80;
/// The most bytes of the certificate that the previous authority gave to the authority that signs.
const LINK_BYTES_MAX: usize = 2 << 10;
/// The PEM label in the file.
const LABEL: &str = "MEZ DENY LIST";

/// A deny list that the site's authority has signed, or the empty list before the first revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedList {
    /// The list.
    pub list: Revocations,
    /// The encoded list with its signature, as it is sent and stored. Empty before there is a list.
    pub bytes: Bytes,
}

impl SignedList {
    /// The list of a site before the first revocation.
    pub fn none(site: &SiteName) -> Self {
        Self { list: Revocations::none(site.as_str()), bytes: Bytes::new() }
    }

    /// Signs a list. While the authority is new, members that know only the previous authority can verify the signature too.
    pub fn sign(authority: &SiteAuthority, list: Revocations) -> Result<Self, rcgen::Error> {
        let content = list.encode();
        let signature = authority.sign(&[PURPOSE, &content].concat())?;
        let link = authority.trust().successor_at(SystemTime::now());
        let link = link.map_or(&[][..], |link| &**link);
        let mut bytes = Vec::with_capacity(4 + signature.len() + link.len() + content.len());
        for part in [&signature, link] {
            bytes.extend_from_slice(&(part.len() as u16).to_le_bytes());
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&content);
        Ok(Self { list, bytes: bytes.into() })
    }

    /// Reads a list. Its signature must be valid for this site, by an authority that is trusted now or by the successor of such an authority.
    pub fn read(bytes: Bytes, trust: &Trust) -> Result<Self, ListError> {
        if bytes.len() > REVOCATION_LIST_BYTES_MAX {
            return Err(ListError::Cut);
        }
        let (signature, rest) = part(&bytes, SIGNATURE_BYTES_MAX)?;
        let (link, content) = part(rest, LINK_BYTES_MAX)?;
        let list = Revocations::decode(content)?;
        // Checked before the signature, which would be invalid as well: this error is more helpful.
        if list.site() != trust.site().as_str() {
            return Err(ListError::OtherSite { theirs: list.site().into(), ours: trust.site().to_string() });
        }
        let link = (!link.is_empty()).then(|| CertificateDer::from(link));
        let message = [PURPOSE, content].concat();
        if !trust.has_signed_message(&message, signature, link.as_ref(), SystemTime::now()) {
            return Err(ListError::Signature { version: list.version() });
        }
        Ok(Self { list, bytes: bytes.clone() })
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let text = "The site's deny list, signed by its authority; `mez keys revoked` shows it. It may be copied to other edges of the site.\n";
        text.to_owned() + &pem(LABEL, &self.bytes)
    }

    /// Reads the text of the file.
    pub fn from_text(text: &str, trust: &Trust) -> Result<Self, ListError> {
        let (begin, end) = (format!("-----BEGIN {LABEL}-----"), format!("-----END {LABEL}-----"));
        let body = text.split_once(&begin).ok_or(ListError::NotOne)?.1;
        let (body, after) = body.split_once(&end).ok_or(ListError::Cut)?;
        if !after.trim().is_empty() {
            return Err(ListError::NotOne);
        }
        let body: String = body.split_whitespace().collect();
        let bytes = STANDARD.decode(body).map_err(|_| ListError::Cut)?;
        Self::read(bytes.into(), trust)
    }
}

/// Splits off a part that begins with its length.
fn part(bytes: &[u8], bytes_max: usize) -> Result<(&[u8], &[u8]), ListError> {
    let (length, rest) = bytes.split_first_chunk::<2>().ok_or(ListError::Cut)?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length > bytes_max {
        return Err(ListError::Cut);
    }
    rest.split_at_checked(length).ok_or(ListError::Cut)
}

/// Why bytes are not a deny list of this site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// The text contains something else.
    #[error("this is not a deny list of Mez")]
    NotOne,
    /// The list is incomplete.
    #[error("the deny list is cut or damaged")]
    Cut,
    /// The content of the list is invalid.
    #[error("the deny list is cut or damaged: {0}")]
    Content(#[from] WireError),
    /// The list belongs to another site.
    #[error("the deny list is of the site {theirs}, but this is the site {ours}")]
    OtherSite {
        /// The site that it names.
        theirs: String,
        /// Our site.
        ours: String,
    },
    /// The list has no valid signature of the site's authority.
    #[error(
        "the deny list with version {version} was not signed by the authority of this site, or was changed since"
    )]
    Signature {
        /// The version that it claims.
        version: u64,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mez_core::revocation::Entry;
    use mez_core::units::Timestamp;

    use super::*;
    use crate::identity::TemporarySite;

    fn authority(site: &str) -> SiteAuthority {
        SiteAuthority::generate(&site.parse().unwrap(), SystemTime::now()).unwrap()
    }

    fn signed(authority: &SiteAuthority) -> SignedList {
        let entry = Entry { since: Timestamp::MIN, until: Timestamp::MAX, because: "stolen".into() };
        let list = Revocations::none(authority.site().as_str());
        let list = list.with(Timestamp::MIN, "camera/dock".parse().unwrap(), entry).unwrap();
        SignedList::sign(authority, list).unwrap()
    }

    #[test]
    fn a_list_reads_back_from_bytes_and_from_a_file() {
        let harbour = authority("harbour");
        let list = signed(&harbour);
        let trust = harbour.trust();
        assert_eq!(SignedList::read(list.bytes.clone(), trust), Ok(list.clone()));
        assert_eq!(SignedList::from_text(&list.to_text(), trust), Ok(list));
    }

    /// A list that was changed on its way is refused with a sentence, and never taken for another list.
    #[test]
    fn a_list_that_is_cut_changed_or_of_somebody_else_is_refused() {
        let harbour = authority("harbour");
        let trust = harbour.trust();
        let list = signed(&harbour);
        for length in 0..list.bytes.len() {
            let cut = SignedList::read(list.bytes.slice(..length), trust);
            assert!(matches!(cut, Err(ListError::Cut | ListError::Content(_))), "{length}: {cut:?}");
        }
        for place in 0..list.bytes.len() {
            let mut bytes = list.bytes.to_vec();
            bytes[place] ^= 1;
            let changed = SignedList::read(bytes.into(), trust);
            assert!(changed.is_err(), "byte {place} was changed");
        }
        let text = list.to_text();
        for length in 0..text.trim_end().len() {
            assert!(SignedList::from_text(&text[..length], trust).is_err(), "{length}");
        }
        // Another authority of the same name, as after a second `mez keys init`.
        let impostor = signed(&authority("harbour"));
        let refused = SignedList::read(impostor.bytes, trust).unwrap_err();
        assert_eq!(refused, ListError::Signature { version: 1 });
        let foreign = signed(&authority("airport"));
        let refused = SignedList::read(foreign.bytes, trust).unwrap_err().to_string();
        assert!(refused.contains("site airport") && refused.contains("site harbour"), "{refused}");
        let nothing = SignedList::from_text("hello", trust);
        assert_eq!(nothing, Err(ListError::NotOne));
    }

    /// While one authority replaces another, lists of both count, also for members that know
    /// only one of the two. After the replacement, the old authority's lists no longer count.
    #[test]
    fn a_list_counts_for_everybody_while_the_authority_is_replaced() {
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let folder = site.keys().path();
        let old = SiteAuthority::load(folder).unwrap();
        let before = signed(&old);
        let now = SystemTime::now();
        let new = SiteAuthority::rotate(folder, Duration::from_secs(3600), now, false).unwrap();
        let after = signed(&new);
        for (whose, trust) in [("old", old.trust()), ("new", new.trust())] {
            assert!(SignedList::read(before.bytes.clone(), trust).is_ok(), "{whose}, signed before");
            assert!(SignedList::read(after.bytes.clone(), trust).is_ok(), "{whose}, signed after");
        }
        let over = Trust::of(vec![new.certificate().clone()]).unwrap();
        assert!(SignedList::read(after.bytes.clone(), &over).is_ok());
        assert_eq!(SignedList::read(before.bytes, &over), Err(ListError::Signature { version: 1 }));

        // A link certificate is valid only for the authority that got it, and must be genuine.
        let link = new.trust().successor_at(now).unwrap();
        let thief = authority("harbour");
        let stolen = with_link(&signed(&thief), link);
        assert_eq!(SignedList::read(stolen, old.trust()), Err(ListError::Signature { version: 1 }));
        let unlinked = with_link(&after, thief.certificate());
        assert_eq!(SignedList::read(unlinked, old.trust()), Err(ListError::Signature { version: 1 }));
    }

    /// The same signed list with another link certificate.
    fn with_link(signed: &SignedList, link: &CertificateDer<'_>) -> Bytes {
        let (signature, rest) = part(&signed.bytes, SIGNATURE_BYTES_MAX).unwrap();
        let (_, content) = part(rest, LINK_BYTES_MAX).unwrap();
        let length = |part: &[u8]| (part.len() as u16).to_le_bytes();
        [&length(signature)[..], signature, &length(link)[..], link, content].concat().into()
    }
}
