//! Holds the deny list, refuses revoked members and closes their links, as the edge's driver does.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::revocation::{Certificate, Subject};

use super::EdgeHost;
use crate::check::Checks;
use crate::world::bug::Bug;
use crate::world::node::Node;
use crate::world::site::SignedList;
use crate::world::stage::Stage;

impl EdgeHost {
    /// Whether the edge refuses a client with this certificate.
    pub(in crate::world) fn turns_away(&self, certificate: &Certificate, bug: Option<Bug>) -> bool {
        let member = Subject::Member(certificate.member.clone());
        let by_name = bug == Some(Bug::NewcomerRefused) && self.lists.list().get(&member).is_some();
        by_name || self.lists.denies(certificate).is_some()
    }

    /// The operator puts a list into the key folder. Returns whether the edge will read it. It will not if a list of at least this version already
    /// waits there, or if the edge is stopped and holds a newer list.
    pub(in crate::world) fn write_list(&mut self, signed: &SignedList) -> bool {
        let version = signed.list.version();
        let waits = self.written.as_ref().is_some_and(|written| written.list.version() >= version);
        let taken = !waits && (self.process.is_some() || version >= self.lists.version());
        if taken {
            self.written = Some(signed.clone());
        }
        taken
    }

    /// Reads the list that the operator has put into the key folder. Returns whether another list is in force.
    pub(in crate::world) fn read_list(&mut self, stage: &mut Stage<'_>) -> bool {
        if self.process.is_none() {
            return false;
        }
        // An older one is put back.
        self.written.take().is_some_and(|written| self.take_list(&written, stage))
    }

    /// A camera has brought a list. Returns whether it is in force.
    pub(super) fn take_brought(&mut self, bytes: &Bytes, stage: &mut Stage<'_>) -> bool {
        let signed = match stage.bug {
            Some(Bug::SignatureIgnored) => SignedList::read_unchecked(bytes),
            _ => SignedList::read(bytes),
        };
        signed.is_some_and(|signed| self.take_list(&signed, stage))
    }

    fn take_list(&mut self, signed: &SignedList, stage: &mut Stage<'_>) -> bool {
        let is_taken = self.lists.take(signed, stage.bug == Some(Bug::OlderListTaken));
        if is_taken {
            self.apply_list(stage);
        }
        is_taken
    }

    /// A process starts with the list in the key folder.
    pub(super) fn take_up_list(&mut self, stage: &mut Stage<'_>) {
        if stage.bug == Some(Bug::ListForgotten) {
            self.lists.forget();
        }
        if let Some(written) = self.written.take() {
            self.lists.take(&written, false);
        }
        self.apply_list(stage);
    }

    /// Tells the broker of the list in force, and of connected members that the list denies.
    fn apply_list(&mut self, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        stage.touch(Node::Edge(self.index));
        if self.lists.version() > process.list_told {
            process.list_told = self.lists.version();
            process.broker.handle_revocations(self.lists.version(), self.lists.bytes());
        }
        if stage.bug == Some(Bug::RevokedLinkKept) {
            return;
        }
        let connected = process.shown.iter();
        let denied = connected.filter_map(|(link, shown)| Some((*link, shown, self.lists.denies(shown)?)));
        let denied: Vec<(LinkId, &Certificate, String)> = denied.collect();
        for (link, shown, why) in denied {
            stage.checks.shut_out(self.index, shown);
            process.broker.handle_revoked(link, why);
        }
    }

    /// Shows the rules which members are connected.
    pub(in crate::world) fn watch_connected(&self, checks: &mut Checks) {
        let Some(process) = &self.process else { return };
        for shown in process.connections.keys().filter_map(|link| process.shown.get(link)) {
            checks.let_in(self.index, shown, || "a link is open".into());
        }
    }
}
