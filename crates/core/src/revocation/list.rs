//! The deny list: its entries, which certificates it denies, and which of two lists is valid.

use std::collections::BTreeMap;
use std::fmt;

use super::subject::{Certificate, MemberName, Serial, Subject};
use crate::units::Timestamp;
use crate::wire::WireError;
use crate::wire::codec::{Reader, Write};

/// The most entries of a list.
pub const ENTRIES_MAX: usize = 512;
/// The most bytes of an encoded list. It crosses the link in one message.
pub const LIST_BYTES_MAX: usize = 60 << 10;
/// The most bytes of a reason.
pub const BECAUSE_BYTES_MAX: usize = 200;

/// If a member is revoked again, the time of its entry increases at least by this, because times on the list are whole seconds.
const SECOND_NANOS: u64 = 1_000_000_000;
/// The first byte of an encoded list.
const FORMAT: u8 = 1;
/// The most bytes of a site's name.
const SITE_BYTES_MAX: usize = 64;
/// The most bytes of the name of a revoked member.
const SUBJECT_BYTES_MAX: usize = 1024;

/// An entry of the deny list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was revoked, in whole seconds. Certificates that a revoked member gets later are accepted.
    pub since: Timestamp,
    /// When all certificates that the entry denies have expired.
    pub until: Timestamp,
    /// Why, for people. May be empty. At most [`BECAUSE_BYTES_MAX`] bytes.
    pub because: String,
}

/// The deny list of a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations {
    /// The site whose authority signs the list.
    site: String,
    /// The version, which increases by one with each change. 0: there has never been a list.
    version: u64,
    serials: BTreeMap<Serial, Entry>,
    members: BTreeMap<MemberName, Entry>,
}

/// Why nothing more can be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the deny list is full ({ENTRIES_MAX} entries, or {LIST_BYTES_MAX} bytes) of certificates that have not expired; give shorter reasons, revoke \
     a member instead of its serials, or remove entries with `mez keys unrevoke`"
)]
pub struct ListFull;

/// How an offered list relates to the held one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The offered list replaces the held one.
    Newer,
    /// The two lists are equal.
    Same,
    /// The offered list is older.
    Older,
    /// The offered list has the same version and other content: two hosts have signed lists without knowing of each other. The held list stays.
    Conflict,
}

/// Why a certificate is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The member whose certificate was revoked.
    pub member: MemberName,
    /// The serial number of the certificate.
    pub serial: Serial,
    /// When the certificate was revoked.
    pub since: Timestamp,
    /// Why the certificate was revoked. May be empty.
    pub because: String,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, serial, because, .. } = self;
        write!(f, "the certificate of {member} with the serial {serial} was revoked")?;
        if !because.is_empty() {
            write!(f, " ({because})")?;
        }
        write!(
            f,
            "; to join again, the member needs a new token: run `mez keys token {member}` where the site was made"
        )
    }
}

impl Revocations {
    /// A site's list before anything is revoked.
    pub fn none(site: &str) -> Self {
        Self { site: site.into(), ..Self::default() }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// The site of the list.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// The version of the list. 0: there has never been a list.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.serials.len() + self.members.len()
    }

    /// Whether nothing is revoked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, serial numbers first.
    pub fn entries(&self) -> impl Iterator<Item = (Subject, &Entry)> {
        let serials = self.serials.iter().map(|(serial, entry)| (Subject::Serial(serial.clone()), entry));
        serials.chain(self.members.iter().map(|(member, entry)| (Subject::Member(member.clone()), entry)))
    }

    /// The entry of a subject, if it is revoked.
    pub fn get(&self, subject: &Subject) -> Option<&Entry> {
        match subject {
            Subject::Serial(serial) => self.serials.get(serial),
            Subject::Member(member) => self.members.get(member),
        }
    }

    /// Why a certificate is denied, if it is. Expiry is not checked here, because the verification of certificates checks it.
    pub fn denies(&self, certificate: &Certificate) -> Option<Denial> {
        let Certificate { member, serial, issued } = certificate;
        let by_member = self.members.get(member).filter(|entry| *issued <= entry.since);
        let entry = self.serials.get(serial).or(by_member)?;
        let (since, because) = (entry.since, entry.because.clone());
        Some(Denial { member: member.clone(), serial: serial.clone(), since, because })
    }

    /// How `offered` relates to this list. Both must be genuine lists of this site.
    pub fn judge(&self, offered: &Self) -> Offer {
        match offered.version.cmp(&self.version) {
            std::cmp::Ordering::Greater => Offer::Newer,
            std::cmp::Ordering::Less => Offer::Older,
            std::cmp::Ordering::Equal if *offered == *self => Offer::Same,
            std::cmp::Ordering::Equal => Offer::Conflict,
        }
    }

    // ---- the next list ------------------------------------------------------------------------------------

    /// The next list, on which `subject` is revoked. A member that is revoked again also loses the certificates that it got since. The time of its
    /// entry increases by at least one second, whatever the clock says, so that certificates accepted just after the old entry are denied by the new
    /// one. Entries whose certificates have expired at `now` are removed only if their room is needed, so that a clock that is ahead does no harm.
    pub fn with(&self, now: Timestamp, subject: Subject, entry: Entry) -> Result<Self, ListFull> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        let because = entry.because[..entry.because.floor_char_boundary(BECAUSE_BYTES_MAX)].into();
        let entry = Entry { because, ..entry };
        match subject {
            Subject::Serial(serial) => drop(next.serials.insert(serial, entry)),
            Subject::Member(member) => {
                let later =
                    |held: &Entry| Timestamp::from_nanos(held.since.as_nanos().saturating_add(SECOND_NANOS));
                let since =
                    next.members.get(&member).map_or(entry.since, |held| entry.since.max(later(held)));
                next.members.insert(member, Entry { since, ..entry });
            }
        }
        if !next.fits() {
            next.serials.retain(|_, entry| entry.until > now);
            next.members.retain(|_, entry| entry.until > now);
        }
        if next.fits() { Ok(next) } else { Err(ListFull) }
    }

    /// The next list, on which `subject` is not revoked. `None` if `subject` is not on this list.
    pub fn without(&self, subject: &Subject) -> Option<Self> {
        let mut next = Self { version: self.version + 1, ..self.clone() };
        match subject {
            Subject::Serial(serial) => next.serials.remove(serial),
            Subject::Member(member) => next.members.remove(member),
        }?;
        Some(next)
    }

    /// The next list with the same entries, for another signature.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { version: self.version + 1, ..self.clone() }
    }

    fn fits(&self) -> bool {
        self.len() <= ENTRIES_MAX && self.encode().len() <= LIST_BYTES_MAX
    }

    // ---- bytes --------------------------------------------------------------------------------------------

    /// The bytes that are signed. Equal lists have equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.u8(FORMAT);
        out.text(&self.site, SITE_BYTES_MAX);
        out.u64(self.version);
        out.u16(self.serials.len() as u16);
        for (serial, entry) in &self.serials {
            out.u8(serial.bytes().len() as u8);
            out.extend_from_slice(serial.bytes());
            encode_entry(&mut out, entry);
        }
        out.u16(self.members.len() as u16);
        for (member, entry) in &self.members {
            out.text(member.as_str(), SUBJECT_BYTES_MAX);
            encode_entry(&mut out, entry);
        }
        out
    }

    /// Decodes a list. A list with too many entries, or with entries out of order, is refused, because equal lists have equal bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > LIST_BYTES_MAX {
            let (length, max) = (bytes.len() as u64, LIST_BYTES_MAX as u64);
            return Err(WireError::TooLong { field: "list", length, max });
        }
        let mut r = Reader::new(bytes);
        let format = r.u8("format")?;
        if format != FORMAT {
            return Err(WireError::Value { field: "format", value: format.into() });
        }
        let site = r.text("site", SITE_BYTES_MAX)?.to_owned();
        let version = r.u64("version")?;
        if version == 0 {
            return Err(WireError::Value { field: "version", value: 0 });
        }
        let (mut serials, mut members) = (BTreeMap::new(), BTreeMap::new());
        for _ in 0..count(&mut r, 0)? {
            let length = usize::from(r.u8("serial length")?);
            let bytes = r.bytes("serial", length)?;
            let serial = Serial::new(bytes).filter(|serial| serial.bytes() == bytes);
            let serial = serial.ok_or(WireError::Value { field: "serial", value: length as u64 })?;
            insert_last(&mut serials, serial, decode_entry(&mut r)?)?;
        }
        for _ in 0..count(&mut r, serials.len())? {
            let member = r.text("member", SUBJECT_BYTES_MAX)?.parse();
            let member = member.map_err(|_| WireError::Text { field: "member" })?;
            insert_last(&mut members, member, decode_entry(&mut r)?)?;
        }
        r.finish()?;
        Ok(Self { site, version, serials, members })
    }
}

fn count(r: &mut Reader<'_>, before: usize) -> Result<u16, WireError> {
    let count = r.u16("entries")?;
    let (length, max) = ((usize::from(count) + before) as u64, ENTRIES_MAX as u64);
    if length > max { Err(WireError::TooLong { field: "entries", length, max }) } else { Ok(count) }
}

/// Adds an entry, which must come after all entries of the map.
fn insert_last<K: Ord>(map: &mut BTreeMap<K, Entry>, key: K, entry: Entry) -> Result<(), WireError> {
    if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
        return Err(WireError::Value { field: "order of entries", value: map.len() as u64 });
    }
    map.insert(key, entry);
    Ok(())
}

fn encode_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.u64(entry.since.as_nanos());
    out.u64(entry.until.as_nanos());
    out.text(&entry.because, BECAUSE_BYTES_MAX);
}

fn decode_entry(r: &mut Reader<'_>) -> Result<Entry, WireError> {
    Ok(Entry {
        since: Timestamp::from_nanos(r.u64("since")?),
        until: Timestamp::from_nanos(r.u64("until")?),
        because: r.text("because", BECAUSE_BYTES_MAX)?.into(),
    })
}
