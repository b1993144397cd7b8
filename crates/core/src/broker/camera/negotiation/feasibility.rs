//! Decides when to report to the edge what the camera can do for the served contracts, and what to report.

use std::time::Duration;

use super::contracts::ServedContracts;
use crate::broker::camera::adapt::Adapter;
use crate::broker::camera::connection::EdgeLink;
use crate::broker::camera::types::CameraOutput;
use crate::units::Instant;
use crate::wire::{FeasibilityReport, Message, NegotiationResult};

/// The shortest time between two reports, except for those that go with a status.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// What was found for a waiting frame counts no longer than this.
const SEEN_MAX: Duration = Duration::from_secs(2);

/// What was last reported to the edge, and when.
#[derive(Default)]
pub(crate) struct Feasibility {
    told: Option<(Instant, FeasibilityReport)>,
    told_result: NegotiationResult,
}

impl Feasibility {
    /// Reports to the edge, whether or not anything has changed.
    pub(crate) fn tell(
        &mut self,
        now: Instant,
        link: &EdgeLink,
        contracts: &ServedContracts,
        adapter: &Adapter,
    ) -> Vec<CameraOutput> {
        let feasibility = feasibility(now, link, contracts, adapter);
        self.told = Some((now, feasibility));
        let mut messages = vec![Message::FeasibilityReport(feasibility)];
        let negotiated = contracts.negotiated(link);
        if !negotiated.outcomes.is_empty() {
            messages.push(Message::NegotiationResult(negotiated.clone()));
        }
        self.told_result = negotiated;
        messages.into_iter().map(|message| CameraOutput::Send { link: link.id, message }).collect()
    }

    /// Reports to the edge if something has changed that it should know soon.
    pub(crate) fn tell_news(
        &mut self,
        now: Instant,
        link: &EdgeLink,
        contracts: &ServedContracts,
        adapter: &Adapter,
    ) -> Vec<CameraOutput> {
        if self.due(link, contracts, adapter).is_some_and(|due| now >= due) {
            return self.tell(now, link, contracts, adapter);
        }
        Vec::new()
    }

    /// When a report is due before the next status; `None` if nothing has changed.
    pub(crate) fn due(
        &self,
        link: &EdgeLink,
        contracts: &ServedContracts,
        adapter: &Adapter,
    ) -> Option<Instant> {
        let (at, last) = self.told?;
        // If no contract asks for anything any more, no report is needed.
        let interrupted = adapter.interrupts_source();
        if last.interrupted != interrupted && !link.demand.contracts.is_empty() {
            return Some(at + INTERVAL_MIN);
        }
        let (joint, seen) = contracts.joint(link).zip(adapter.seen())?;
        let negotiated = contracts.negotiated(link);
        if !negotiated.outcomes.is_empty() && negotiated != self.told_result {
            return Some(at + INTERVAL_MIN);
        }
        let known = (last.infeasible, last.profile_use, last.profile, last.drift.is_some());
        (known != (seen.infeasible, seen.profile_use, joint.profile, seen.drift.is_some())
            && at.max(seen.at) == seen.at)
            .then_some(at + INTERVAL_MIN)
    }
}

/// What the camera can do now.
fn feasibility(
    now: Instant,
    link: &EdgeLink,
    contracts: &ServedContracts,
    adapter: &Adapter,
) -> FeasibilityReport {
    let (link_rate, calibration) = (adapter.link_rate(), adapter.calibration());
    let interrupted = adapter.interrupts_source();
    let Some((joint, seen)) = contracts.joint(link).zip(adapter.seen()) else {
        return FeasibilityReport { link_rate, interrupted, calibration, ..FeasibilityReport::default() };
    };
    let fresh = now.saturating_since(seen.at) <= SEEN_MAX;
    FeasibilityReport {
        link_rate,
        floor_bytes: seen.floor_bytes,
        best_accuracy: seen.best_accuracy,
        infeasible: seen.infeasible && fresh,
        interrupted,
        profile_use: seen.profile_use,
        profile: joint.profile,
        drift: seen.drift,
        calibration,
    }
}
