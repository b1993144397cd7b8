//! Decides which frames go as they were published without a policy's advice.

use super::Live;
use super::waiting::Waiting;
use crate::broker::camera::adapt::{Adapter, BOUND_DEFAULT, Own};
use crate::broker::camera::connection::EdgeLink;
use crate::units::Instant;

impl Live {
    /// Takes the next frame where no contract gives a floor, if the frame goes as it was published. A still and a data record always do. A source's
    /// chain does as long as it can be decoded, and its frames wait no longer than the latency bound. `may_go`: the chain could be decoded.
    pub(super) fn take_unchanged(
        &mut self,
        now: Instant,
        (link, adapter): (&EdgeLink, &Adapter),
        own: Option<Own>,
        may_go: bool,
    ) -> Option<Waiting> {
        let is_chained = self.waiting.as_ref()?.meta().encoding.is_chained();
        let bounds = link.demand.contracts.iter().filter_map(|contract| contract.latency_bound);
        let is_young = |own: Own| now.saturating_since(own.captured) <= bounds.min().unwrap_or(BOUND_DEFAULT);
        let own = own.filter(|own| adapter.has_room(now, own.mean_bytes));
        if own.is_some_and(|own| !self.source_chain.has_behind() || is_young(own)) {
            return self.source_chain.take_first(&mut self.waiting);
        }
        if is_chained { None } else { self.take_alone(now, may_go) }
    }

    /// Takes the newest frame, which goes without the pictures of its source's chain that wait
    /// behind it. `may_go`: the pictures could have been decoded, but the link has no room for them.
    pub(super) fn take_alone(&mut self, now: Instant, may_go: bool) -> Option<Waiting> {
        if self.source_chain.has_behind() {
            let behind = self.source_chain.give_up(now, may_go);
            self.skip_all(behind);
        }
        self.waiting.take()
    }
}
