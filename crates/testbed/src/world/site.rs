//! Models a site: its certificates, and the deny lists that its authority has signed.
//!
//! Certificates are those of core's [`revocation`](mez_core::revocation). Instead of a signature, a list ends with a byte that only the authority
//! sets. Core decides whether a list is in force; this module decides whether a list is genuine.

use bytes::Bytes;
use mez_core::revocation::{Certificate, Entry, MemberName, Offer, Revocations, Serial, Subject};
use mez_core::units::Timestamp;

use crate::time::{Moment, WALL_START_NANOS};
use crate::world::action::By;

/// Replaces the signature of the authority, at the end of a list.
const SIGNATURE: u8 = 0xA5;
const SECOND_NANOS: u64 = 1_000_000_000;

/// A list as it is sent.
#[derive(Clone)]
pub(super) struct SignedList {
    pub(super) list: Revocations,
    pub(super) bytes: Bytes,
}

impl SignedList {
    fn sign(list: Revocations) -> Self {
        let bytes = [list.encode(), vec![SIGNATURE]].concat().into();
        Self { list, bytes }
    }

    fn none() -> Self {
        Self { list: Revocations::none("world"), bytes: Bytes::new() }
    }

    /// Decodes a list, if the authority has signed it.
    pub(super) fn read(bytes: &Bytes) -> Option<Self> {
        let (signature, said) = bytes.split_last()?;
        let list = Revocations::decode(said).ok()?;
        (*signature == SIGNATURE).then(|| Self { list, bytes: bytes.clone() })
    }

    /// Decodes a list with any signature.
    pub(super) fn read_unchecked(bytes: &Bytes) -> Option<Self> {
        let list = Revocations::decode(bytes.split_last()?.1).ok()?;
        Some(Self { list, bytes: bytes.clone() })
    }

    /// A thief's list: empty, with the highest version, and not signed by the authority.
    pub(super) fn forged() -> Bytes {
        let list = Revocations::none("world").encode();
        // A list ends with its version (8 bytes) and the counts of two empty lists (4 bytes).
        let (names, counts) = list.split_at(list.len() - 4);
        let names = &names[..names.len() - 8];
        [names, &u64::MAX.to_le_bytes(), counts, &[0]].concat().into()
    }
}

/// The authority of a site, and its lists.
pub(super) struct Site {
    /// All lists so far. The index is the version.
    signed: Vec<SignedList>,
    serials: u64,
}

impl Site {
    pub(super) fn new() -> Self {
        Self { signed: vec![SignedList::none()], serials: 0 }
    }

    /// The newest list.
    pub(super) fn newest(&self) -> &SignedList {
        self.signed.last().expect("the list without entries is always there")
    }

    /// The list from before this many changes.
    pub(super) fn before(&self, changes: usize) -> &SignedList {
        &self.signed[self.signed.len().saturating_sub(1 + changes)]
    }

    /// Issues a new certificate for a member. If the member's name is revoked, the certificate is dated a second after the revocation, because
    /// certificates count whole seconds.
    pub(super) fn issue(&mut self, now: Moment, member: &MemberName) -> Certificate {
        self.serials += 1;
        let serial = Serial::new(&self.serials.to_be_bytes()).expect("it is not 0");
        let entry = self.newest().list.get(&Subject::Member(member.clone()));
        let later = entry.map(|entry| Timestamp::from_nanos(entry.since.as_nanos() + SECOND_NANOS));
        let issued = later.into_iter().fold(second(now), Timestamp::max);
        Certificate { member: member.clone(), serial, issued }
    }

    /// Adds a certificate's serial number or member name to the list.
    pub(super) fn revoke(&mut self, now: Moment, certificate: &Certificate, by: By) {
        let entry = Entry { since: second(now), until: Timestamp::MAX, because: "stolen".into() };
        let held = &self.newest().list;
        let next = held.with(Timestamp::MIN, subject(certificate, by), entry);
        self.signed.push(SignedList::sign(next.expect("worlds revoke a few")));
    }

    /// Removes a certificate's serial number or member name from the list. Returns whether the list had it.
    pub(super) fn unrevoke(&mut self, certificate: &Certificate, by: By) -> bool {
        let next = self.newest().list.without(&subject(certificate, by));
        let next = next.map(SignedList::sign);
        let was_on = next.is_some();
        self.signed.extend(next);
        was_on
    }
}

fn subject(certificate: &Certificate, by: By) -> Subject {
    match by {
        By::Serial => Subject::Serial(certificate.serial.clone()),
        By::Name => Subject::Member(certificate.member.clone()),
    }
}

/// The whole second of a moment, by an exact clock.
fn second(now: Moment) -> Timestamp {
    let nanos = WALL_START_NANOS + now.as_nanos();
    Timestamp::from_nanos(nanos - nanos % SECOND_NANOS)
}

/// The list that a host holds, in memory and on its disk.
pub(super) struct HeldList {
    held: SignedList,
    /// How often the list has changed.
    pub(super) changes: u64,
}

impl HeldList {
    pub(super) fn none() -> Self {
        Self { held: SignedList::none(), changes: 0 }
    }

    /// The version of the list. 0: there is none.
    pub(super) fn version(&self) -> u64 {
        self.held.list.version()
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.held.bytes.clone()
    }

    pub(super) fn list(&self) -> &Revocations {
        &self.held.list
    }

    /// Why a certificate is denied, as text. `None`: it is accepted.
    pub(super) fn denies(&self, certificate: &Certificate) -> Option<String> {
        self.held.list.denies(certificate).map(|denial| denial.to_string())
    }

    /// Offers a genuine list. Returns whether it is in force from now on. `any`: a planted bug also accepts older lists.
    pub(super) fn take(&mut self, offered: &SignedList, any: bool) -> bool {
        let offer = self.held.list.judge(&offered.list);
        let takes = offer == Offer::Newer || any && offer == Offer::Older;
        if takes {
            self.held = offered.clone();
            self.changes += 1;
        }
        takes
    }

    /// Forgets the list. Only a planted bug does this.
    pub(super) fn forget(&mut self) {
        *self = Self { changes: self.changes + 1, ..Self::none() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_list_reads_as_one_and_is_not_genuine() {
        let forged = SignedList::forged();
        assert!(SignedList::read(&forged).is_none());
        let read = SignedList::read_unchecked(&forged).expect("it is a list");
        assert_eq!((read.list.version(), read.list.len()), (u64::MAX, 0));
    }

    #[test]
    fn who_was_revoked_and_joins_again_is_accepted() {
        let (mut site, member) = (Site::new(), "camera/dock".parse().unwrap());
        let stolen = site.issue(Moment::START, &member);
        site.revoke(Moment::START, &stolen, By::Name);
        let anew = site.issue(Moment::START, &member);
        let denies = |certificate| site.newest().list.denies(certificate).is_some();
        assert!(denies(&stolen) && !denies(&anew));
        assert!(site.unrevoke(&stolen, By::Name) && !site.unrevoke(&stolen, By::Name));
        assert_eq!((site.newest().list.version(), site.before(1).list.version()), (2, 1));
    }
}
