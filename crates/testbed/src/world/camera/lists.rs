//! Carries the site's deny list from edge to edge, and leaves revoked edges, as the camera's driver does.

use bytes::Bytes;
use mez_core::revocation::Certificate;
use mez_core::wire::Message;

use super::CameraHost;
use crate::link::{Link, Side};
use crate::payload::encoded;
use crate::world::bug::Bug;
use crate::world::site::SignedList;
use crate::world::stage::Stage;

impl CameraHost {
    /// Whether the camera refuses an edge with this certificate.
    pub(in crate::world) fn turns_away_from(&self, edge: &Certificate) -> bool {
        self.lists.denies(edge).is_some()
    }

    /// An edge has sent a list. Returns whether it is in force from now on.
    pub(super) fn take_brought(&mut self, bytes: &Bytes, stage: &Stage<'_>) -> bool {
        let taken = SignedList::read(bytes).is_some_and(|signed| self.lists.take(&signed, false));
        if taken {
            self.hand_on(stage);
        }
        taken
    }

    /// Tells the broker of the present list, to be handed on.
    pub(super) fn hand_on(&mut self, stage: &Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        if self.lists.version() > 0 && stage.bug != Some(Bug::ListNotHandedOn) {
            process.broker.handle_revocations(self.lists.version(), self.lists.bytes());
        }
    }

    /// Leaves the edge, which was revoked.
    pub(in crate::world) fn leave_edge(&mut self, link: &mut Link, stage: &mut Stage<'_>) {
        let connections: Vec<_> =
            self.process.iter().flat_map(|process| process.connections.keys().copied()).collect();
        for connection in connections {
            self.handle_closed(connection, stage);
            link.close(stage.now, Side::Camera, connection);
        }
    }

    /// Lies to an edge about deny lists, if this is a thief that does so. It claims to hold the highest
    /// version, sends a list that nobody has signed, and then its own old list.
    pub(super) fn forge(&self, link: &mut Link, stage: &Stage<'_>) {
        let Some(process) = self.process.as_ref().filter(|_| self.forges) else { return };
        let old = (self.lists.version() > 0).then(|| self.lists.bytes());
        for connection in process.connections.keys() {
            let claim = Message::RevocationVersion { version: u64::MAX };
            let lists = [SignedList::forged()].into_iter().chain(old.clone());
            let lists = lists.map(|signed| Message::RevocationList { signed });
            for message in std::iter::once(claim).chain(lists) {
                link.send(stage.now, Side::Camera, *connection, encoded(&message));
            }
        }
    }

    /// Makes this thief lie about deny lists.
    pub(in crate::world) fn become_forger(&mut self) {
        self.forges = true;
    }
}
