//! Checks that no member with a revoked certificate gets or publishes a frame at an edge that has the
//! list (I10), that no other member is refused, and that lists travel.
//! The rules look at every entry of a list, and compare versions themselves. They do not use the decisions of brokers and hosts.
//! The rules look at every entry of a list, and compare versions themselves. They do not use what brokers and hosts decide with.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::revocation::{Certificate, Revocations};

use super::Checks;
use super::known::denies;
use super::path::Path;
use crate::time::{Moment, ms, secs};

/// The longest time until an edge has read a list in its key folder (decision 39).
pub(crate) const LIST_READ_MAX: Duration = secs(1);
/// The longest time until both ends of a connection hold the newer of their lists, in addition to transmission times.
const HANDED_ON_MAX: Duration = ms(500);

/// A camera and its edge, and the deny lists that they hold.
pub(crate) struct ListsSeen<'a> {
    pub(crate) at_camera: &'a Revocations,
    pub(crate) at_edge: &'a Revocations,
    pub(crate) edge: &'a Certificate,
    /// Whether the edge has welcomed the camera.
    pub(crate) is_up: bool,
}

impl Checks {
    /// A genuine list has come to an edge. If it is newer than all before, the edge must apply it within this time.
    pub(crate) fn list_comes(&mut self, edge: usize, list: &Revocations, within: Duration) {
        let due = self.now + within;
        let heard = self.heard.entry(edge).or_default();
        if heard.lists.last().is_none_or(|(_, newest)| newest.version() < list.version()) {
            heard.lists.push((if heard.stands_still { Moment::NEVER } else { due }, list.clone()));
        }
    }

    /// An edge's host is frozen, or its process has ended.
    pub(crate) fn edge_stands_still(&mut self, edge: usize) {
        let now = self.now;
        self.answers_stand_still(edge);
        let heard = self.heard.entry(edge).or_default();
        heard.stands_still = true;
        heard.lists.iter_mut().filter(|(due, _)| *due > now).for_each(|(due, _)| *due = Moment::NEVER);
    }

    /// An edge's host continues, or its process has started.
    pub(crate) fn edge_goes_on(&mut self, edge: usize) {
        let due = self.now + LIST_READ_MAX;
        let heard = self.heard.entry(edge).or_default();
        heard.stands_still = false;
        heard.lists.iter_mut().filter(|(due, _)| *due == Moment::NEVER).for_each(|(waits, _)| *waits = due);
    }

    /// Checks that an edge may accept something of a member, or give it something.
    pub(crate) fn let_in(&mut self, edge: usize, certificate: &Certificate, what: impl FnOnce() -> String) {
        let now = self.now;
        let denied = self.heard.get(&edge).is_some_and(|heard| heard.must_deny(now, certificate));
        self.expect(!denied, "revoked", || {
            format!("{}, and the certificate of {} was revoked", what(), certificate.member)
        });
    }

    /// Checks that an edge may refuse a member because of a deny list.
    pub(crate) fn shut_out(&mut self, edge: usize, certificate: &Certificate) {
        let now = self.now;
        let denied = self.heard.get(&edge).is_some_and(|heard| heard.may_deny(now, certificate));
        self.expect(denied, "refusals", || {
            format!("edge {edge} turns {} away as revoked, and no list says so", certificate.member)
        });
    }

    /// Checks that the application of a subscription may get something.
    pub(super) fn check_not_revoked(&mut self, id: SubscriptionId, what: impl FnOnce() -> String) {
        let Some(holder) = self.holders.get(&id) else { return };
        let (edge, certificate) = (holder.edge, holder.certificate.clone());
        self.let_in(edge, &certificate, what);
    }

    /// Checks that a camera and its edge hold the same list once both had time to exchange versions, and that a camera leaves a revoked edge.
    pub(crate) fn watch_lists(&mut self, path: &Path, seen: &ListsSeen<'_>) {
        self.expect(!seen.is_up || !denies(seen.at_camera, seen.edge), "revoked", || {
            format!("camera {} is at {}, and holds a list that names it", path.camera, seen.edge.member)
        });
        let now = self.now;
        let (camera, edge) = (seen.at_camera.version(), seen.at_edge.version());
        let settled = now >= path.recovered() + path.queue_time() * 2;
        if camera == edge || !seen.is_up || !path.is_well || !settled {
            self.lists_differ_since.remove(&path.camera);
            return;
        }
        let since = *self.lists_differ_since.entry(path.camera).or_insert(now);
        let allowed = HANDED_ON_MAX
            + (path.queue_time() + path.service_time()) * 2
            + path.link.round_trip_time() * 3
            + path.bad_luck;
        self.expect(now.since(since) <= allowed, "lists", || {
            format!(
                "camera {} holds the deny list {camera}, and its edge {edge}, since {since}; {allowed:?} were allowed",
                path.camera
            )
        });
    }
}
