//! Decides between conflicting interests: which contracts the camera serves, what it uses of a shared
//! channel, and what it reports to the edge about both.

mod contracts;
mod feasibility;
mod share;

pub(super) use self::contracts::ServedContracts;
use self::feasibility::Feasibility;
use self::share::{Frames, Sharing};
use super::adapt::Adapter;
use super::connection::EdgeLink;
use super::types::CameraOutput;
use crate::contract::Joint;
use crate::units::Instant;
use crate::wire::Share;

/// How the camera settles conflicting interests, and what its edge was told about that.
#[derive(Default)]
pub(super) struct Negotiation {
    pub(super) contracts: ServedContracts,
    sharing: Sharing,
    feasibility: Feasibility,
}

impl Negotiation {
    // ---- getters ------------------------------------------------------------------------------------------

    /// What the served contracts ask together on a connection; `None` if none gives a floor.
    pub(super) fn joint(&self, link: &EdgeLink) -> Option<Joint> {
        self.contracts.joint(link)
    }

    /// Whether the camera skips frames, or sends them rarely, because of its share of a channel.
    pub(super) fn holds_back(&self, now: Instant, link: Option<&EdgeLink>) -> bool {
        self.sharing.holds_back(now, link.is_some_and(|link| self.sends_unchanged(link)))
    }

    /// When a report is due before the next status; `None` if nothing has changed.
    pub(super) fn due(&self, link: &EdgeLink, adapter: &Adapter) -> Option<Instant> {
        self.feasibility.due(link, &self.contracts, adapter)
    }

    /// What the edge was last told about the camera's rungs.
    #[cfg(test)]
    pub(super) fn told_claim(&self) -> Option<crate::wire::ShareRequest> {
        self.sharing.told()
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// The edge sends the camera its share of a channel.
    pub(super) fn handle_share(&mut self, now: Instant, share: Share, adapter: &mut Adapter) {
        self.sharing.handle_share(now, share);
        adapter.set_share(self.sharing.limits());
    }

    /// The active connection has changed: the share there is not known yet, and demands are counted anew.
    pub(super) fn handle_link_changed(&mut self, adapter: &mut Adapter) {
        self.contracts = ServedContracts::default();
        self.sharing.forget();
        adapter.set_share(self.sharing.limits());
    }

    /// Whether a frame of `bytes` that was just published is skipped, because the share of the channel has no
    /// room for all frames.
    pub(super) fn leaves_out(&mut self, now: Instant, link: Option<&EdgeLink>, bytes: usize) -> bool {
        let is_unchanged = link.is_some_and(|link| self.sends_unchanged(link));
        self.sharing.leaves_out(now, bytes, is_unchanged)
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// Reports to the edge what the camera can do, whether or not anything has changed.
    pub(super) fn tell(&mut self, now: Instant, link: &EdgeLink, adapter: &Adapter) -> Vec<CameraOutput> {
        self.feasibility.tell(now, link, &self.contracts, adapter)
    }

    /// Reports to the edge what the camera can do, if something has changed that it should know soon.
    pub(super) fn tell_news(
        &mut self,
        now: Instant,
        link: Option<&EdgeLink>,
        adapter: &Adapter,
    ) -> Vec<CameraOutput> {
        let Some(link) = link else { return Vec::new() };
        self.feasibility.tell_news(now, link, &self.contracts, adapter)
    }

    /// Sends the edge a share request, if something has changed or the last request is old. `rate`: published frames per second.
    pub(super) fn tell_claim(
        &mut self,
        now: Instant,
        link: Option<&EdgeLink>,
        adapter: &Adapter,
        rate: f64,
    ) -> Option<CameraOutput> {
        self.sharing.tell(now, Frames { link: link?, rate, contracts: &self.contracts, adapter })
    }

    /// Whether frames are wanted on a connection, and go unchanged.
    fn sends_unchanged(&self, link: &EdgeLink) -> bool {
        !link.demand.contracts.is_empty() && self.joint(link).is_none()
    }
}
