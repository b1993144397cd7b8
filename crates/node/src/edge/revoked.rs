//! Applies the deny list to links: whoever is revoked is refused with the reason, and cameras carry the list to other edges.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::revocation::Offer;
use mez_core::wire::RefuseCode;

use super::driver::Driver;
use crate::revocation::{CONFLICT, Taken};

impl Driver {
    /// Another list is in force, or the edge has just started.
    pub(super) fn apply_revocations(&mut self) {
        let held = self.revoked.now();
        if held.list.version() == 0 {
            return;
        }
        self.broker.handle_revocations(held.list.version(), held.bytes.clone());
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.refuse_revoked(link));
    }

    /// Refuses a connection whose certificate was revoked, which may have been while it was made.
    pub(super) fn refuse_revoked(&mut self, link: LinkId) {
        let known = self.links.get(&link);
        if let Some(denial) = known.and_then(|known| self.revoked.denies(&known.shown.certificate)) {
            self.broker.handle_revoked(link, denial.to_string());
        }
    }

    /// A camera has brought a list. What is not signed by the authority, or is not newer, changes nothing.
    pub(super) fn take_revocations(&self, link: LinkId, signed: Bytes) {
        let Some(known) = self.links.get(&link) else { return };
        let why = match self.revoked.take(signed, &known.who) {
            Ok(Taken::News | Taken::Known) => return,
            Ok(Taken::Refused(Offer::Conflict)) => {
                format!("it brought {CONFLICT}")
            }
            Ok(Taken::Refused(_)) => "it brought a deny list that is older than the one in force".into(),
            Err(error) => format!("it brought a deny list that is not taken in: {error}"),
        };
        self.note_refusal(link, RefuseCode::Protocol, &why);
    }
}
