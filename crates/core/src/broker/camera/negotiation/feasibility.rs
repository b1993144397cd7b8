//! Decides when the edge is told what the camera can do for the contracts that frames are made for, and what.

use std::time::Duration;

use super::contracts::Negotiation;
use crate::broker::camera::adapt::Adapter;
use crate::broker::camera::connection::Link;
use crate::broker::camera::types::CameraOutput;
use crate::units::Instant;
use crate::wire::{Message, Outlook, Settled};

/// The least time between two of them, but for those that go with a status.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// What was seen when a frame last waited says nothing after this.
const SEEN_MAX: Duration = Duration::from_secs(2);

/// What the edge was told last, and when.
#[derive(Default)]
pub(crate) struct Feasibility {
    told: Option<(Instant, Outlook)>,
    told_settled: Settled,
}

impl Feasibility {
    /// Tells the edge, news or not.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        link: &Link,
        negotiation: &Negotiation,
        adapter: &Adapter,
    ) -> Vec<CameraOutput> {
        let outlook = outlook(now, link, negotiation, adapter);
        self.told = Some((now, outlook));
        let mut messages = vec![Message::Outlook(outlook)];
        let settled = negotiation.settled(link);
        if !settled.verdicts.is_empty() {
            messages.push(Message::Settled(settled.clone()));
        }
        self.told_settled = settled;
        messages.into_iter().map(|message| CameraOutput::Send { link: link.id, message }).collect()
    }

    /// Tells the edge what it does not know and should soon.
    pub(crate) fn tell_news(
        &mut self,
        now: Instant,
        link: &Link,
        negotiation: &Negotiation,
        adapter: &Adapter,
    ) -> Vec<CameraOutput> {
        if self.due(link, negotiation, adapter).is_some_and(|due| now >= due) {
            return self.tell(now, link, negotiation, adapter);
        }
        Vec::new()
    }

    /// When the edge has to be told before the next status is due.
    pub(crate) fn due(&self, link: &Link, negotiation: &Negotiation, adapter: &Adapter) -> Option<Instant> {
        let (at, last) = self.told?;
        // That nothing is asked any more matters to nobody.
        let (joint, seen) = negotiation.joint(link).zip(adapter.seen())?;
        let settled = negotiation.settled(link);
        if !settled.verdicts.is_empty() && settled != self.told_settled {
            return Some(at + INTERVAL_MIN);
        }
        let known = (last.infeasible, last.profile_use, last.profile);
        (known != (seen.infeasible, seen.profile_use, joint.profile) && at.max(seen.at) == seen.at)
            .then_some(at + INTERVAL_MIN)
    }
}

/// What the camera can do now.
fn outlook(now: Instant, link: &Link, negotiation: &Negotiation, adapter: &Adapter) -> Outlook {
    let (link_rate, calibration) = (adapter.link_rate(), adapter.calibration());
    let Some((joint, seen)) = negotiation.joint(link).zip(adapter.seen()) else {
        return Outlook { link_rate, calibration, ..Outlook::default() };
    };
    let fresh = now.saturating_since(seen.at) <= SEEN_MAX;
    Outlook {
        link_rate,
        floor_bytes: seen.floor_bytes,
        best_accuracy: seen.best_accuracy,
        infeasible: seen.infeasible && fresh,
        profile_use: seen.profile_use,
        profile: joint.profile,
        calibration,
    }
}
