//! Applies the deny list to links: refuses revoked members with the reason, and lets cameras carry the list to other edges.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::revocation::Offer;
use mez_core::wire::RefuseCode;

use super::driver::Driver;
use crate::revocation::{CONFLICT, Taken};

impl Driver {
    /// Applies the list in force, after a change or at the start.
    pub(super) fn apply_revocations(&mut self) {
        let held = self.revoked.now();
        if held.list.version() == 0 {
            return;
        }
        self.broker.handle_revocations(held.list.version(), held.bytes.clone());
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.refuse_revoked(link));
    }

    /// Refuses a connection whose certificate is revoked, also if that happened while the connection was made.
    pub(super) fn refuse_revoked(&mut self, link: LinkId) {
        let known = self.links.get(&link);
        if let Some(denial) = known.and_then(|known| self.revoked.denies(&known.shown.certificate)) {
            self.broker.handle_revoked(link, denial.to_string());
        }
    }

    /// Takes a list that a camera has brought. A list that is not newer, or not signed by the authority, changes nothing.
    pub(super) fn take_revocations(&self, link: LinkId, signed: Bytes) {
        let Some(known) = self.links.get(&link) else { return };
        let why = match self.revoked.take(signed, &known.who) {
            Ok(Taken::News | Taken::Known) => return,
            Ok(Taken::Refused(Offer::Conflict)) => {
                format!("the camera brought {CONFLICT}")
            }
            Ok(Taken::Refused(_)) => {
                "the camera brought a deny list that is older than the list in force".into()
            }
            Err(error) => format!("the camera brought an invalid deny list: {error}"),
        };
        self.note_refusal(link, RefuseCode::Protocol, &why);
    }
}
