//! Holds what a camera is asked for, and what it reports.

use std::time::Duration;

use crate::contract::Contract;
use crate::contract::negotiation::ContractOutcome;
use crate::source::SourceStanding;
use crate::units::Instant;
use crate::wire::{Demand, DiskStatus, FeasibilityReport, Message, NegotiationResult, SourceReport, Status};

/// Whether a camera's report affects the contracts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bears {
    /// The report affects contracts.
    OnContracts,
    /// The report affects no contract.
    OnNothing,
}

/// The demand on one camera, and its reports.
#[derive(Default)]
pub(super) struct CameraReport {
    demand: Demand,
    pub(super) status: Status,
    /// The state of the camera's own log on disk, if reported on this connection.
    pub(super) disk: Option<DiskStatus>,
    /// The state of the camera's source, if reported.
    pub(super) source: Option<SourceStanding>,
    /// The last feasibility report.
    pub(super) feasibility: FeasibilityReport,
    /// Since when the camera reports that no rung keeps the leading contracts.
    pub(super) infeasible_since: Option<Instant>,
    /// The reported outcome of each contract of the demand, and since when. Empty if nothing was reported.
    pub(super) negotiated: Vec<(Option<ContractOutcome>, Instant)>,
}

impl CameraReport {
    /// The time between published frames, if the camera has reported its rate.
    pub(super) fn interval(&self) -> Option<Duration> {
        let rate = self.status.frames_per_second;
        (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate.clamp(1e-3, 1e6)))
    }

    /// Whether the camera is asked for frames.
    pub(super) fn is_wanted(&self) -> bool {
        !self.demand.contracts.is_empty()
    }

    /// The priority of the first contract that the camera is asked to keep. 0 if there is none.
    pub(super) fn priority(&self) -> i32 {
        self.demand.contracts.first().map_or(0, |first| first.priority)
    }

    /// Checks that reports still in force fit what the camera is asked for.
    pub(super) fn assert_consistent(&self) {
        let (outcomes, contracts) = (self.negotiated.len(), self.demand.contracts.len());
        // Outcomes count only for the demand that they are about.
        debug_assert!(outcomes == 0 || outcomes == contracts, "{outcomes} outcomes on {contracts} contracts");
        // The feasibility report sets and clears the time.
        debug_assert!(
            self.infeasible_since.is_none() || self.feasibility.infeasible,
            "no rung keeps the contracts, and the camera has not said so"
        );
    }

    /// A start of the camera was accepted. It is asked for nothing yet, and reports of an earlier start no
    /// longer count.
    pub(super) fn handle_taken_in(&mut self) {
        self.demand.contracts.clear();
        self.disk = None;
        self.handle_gone();
        self.source = None;
    }

    /// The camera is gone, and its reports about contracts no longer count.
    pub(super) fn handle_gone(&mut self) {
        (self.feasibility, self.infeasible_since) = (FeasibilityReport::default(), None);
        self.negotiated.clear();
        // A camera that is gone reopens no source, so only a final state still holds.
        self.source.take_if(|source| !source.is_final());
    }

    /// Asks the camera for these contracts. Returns the new demand if it differs from the last.
    pub(super) fn ask(&mut self, contracts: Vec<Contract>) -> Option<&Demand> {
        if self.demand.contracts == contracts {
            return None;
        }
        self.demand = Demand { revision: self.demand.revision + 1, contracts };
        self.infeasible_since = None;
        self.negotiated.clear();
        Some(&self.demand)
    }

    /// The camera reports about itself. Ignores messages about other things.
    pub(super) fn handle_message(&mut self, now: Instant, message: Message) -> Bears {
        match message {
            Message::Status(status) => {
                self.status = status;
                Bears::OnContracts
            }
            Message::DiskStatus(disk) => {
                self.disk = Some(disk);
                Bears::OnNothing
            }
            Message::SourceReport(source) => self.handle_source(now, source),
            Message::FeasibilityReport(feasibility) => self.handle_feasibility(now, feasibility),
            Message::NegotiationResult(negotiated) => self.handle_negotiated(now, &negotiated),
            _ => Bears::OnNothing,
        }
    }

    /// The camera reports the state of its source.
    fn handle_source(&mut self, now: Instant, report: SourceReport) -> Bears {
        let SourceReport { state, reason, lasts, retry } = report;
        // Each change of the state is reported, so two successive reports with the same state are about the same period.
        let before = self.source.as_ref().filter(|before| before.state == state);
        let since = before.and_then(|before| before.since).unwrap_or(now - lasts);
        let retry = retry.map(|retry| now + retry);
        self.source = Some(SourceStanding { state, reason, since: Some(since), retry });
        Bears::OnContracts
    }

    /// The camera sends its feasibility report.
    fn handle_feasibility(&mut self, now: Instant, feasibility: FeasibilityReport) -> Bears {
        self.feasibility = feasibility;
        self.infeasible_since = feasibility.infeasible.then(|| self.infeasible_since.unwrap_or(now));
        Bears::OnContracts
    }

    /// The camera reports which contracts it keeps. A report about an earlier demand no longer counts.
    fn handle_negotiated(&mut self, now: Instant, negotiated: &NegotiationResult) -> Bears {
        let NegotiationResult { revision, outcomes } = negotiated;
        if *revision != self.demand.revision || outcomes.len() != self.demand.contracts.len() {
            return Bears::OnNothing;
        }
        let is_kept = |verdict: &Option<ContractOutcome>| *verdict == Some(ContractOutcome::Kept);
        let since = |(place, verdict): (usize, &Option<ContractOutcome>)| {
            let before = self.negotiated.get(place).filter(|(before, _)| is_kept(before) == is_kept(verdict));
            (*verdict, before.map_or(now, |(_, since)| *since))
        };
        self.negotiated = outcomes.iter().enumerate().map(since).collect();
        Bears::OnContracts
    }
}
