//! Holds what a camera is asked for, and what it reports about itself and that.

use std::time::Duration;

use crate::contract::Contract;
use crate::contract::negotiation::ContractOutcome;
use crate::units::Instant;
use crate::wire::{Demand, DiskStatus, FeasibilityReport, NegotiationResult, Status};

/// Whether a camera's report affects the contracts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bears {
    /// It does.
    OnContracts,
    /// It does not.
    OnNothing,
}

/// What one camera is asked for, and what it says.
#[derive(Default)]
pub(super) struct CameraReport {
    demand: Demand,
    pub(super) status: Status,
    /// How its own log on disk is doing, if it said so on this connection.
    pub(super) disk: Option<DiskStatus>,
    /// What it said that it can do.
    pub(super) feasibility: FeasibilityReport,
    /// Since when it says that no rung keeps the contracts that lead.
    pub(super) infeasible_since: Option<Instant>,
    /// What it said becomes of each contract of the demand, and since when. Empty: nothing.
    pub(super) negotiated: Vec<(Option<ContractOutcome>, Instant)>,
}

impl CameraReport {
    /// The time between frames that it publishes, if it said so.
    pub(super) fn interval(&self) -> Option<Duration> {
        let rate = self.status.frames_per_second;
        (rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate.clamp(1e-3, 1e6)))
    }

    /// The highest priority of the contracts that it is asked to keep.
    pub(super) fn priority(&self) -> i32 {
        self.demand.contracts.first().map_or(0, |first| first.priority)
    }

    /// Checks that reports still in force fit what the camera is asked for.
    pub(super) fn assert_consistent(&self) {
        let (outcomes, contracts) = (self.negotiated.len(), self.demand.contracts.len());
        // A verdict counts only for the demand that it was about.
        debug_assert!(outcomes == 0 || outcomes == contracts, "{outcomes} outcomes on {contracts} contracts");
        // It is its feasibility that says since when.
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
    }

    /// The camera is gone, and says nothing of contracts any more.
    pub(super) fn handle_gone(&mut self) {
        (self.feasibility, self.infeasible_since) = (FeasibilityReport::default(), None);
        self.negotiated.clear();
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

    /// The camera says how it is.
    pub(super) fn handle_status(&mut self, status: Status) -> Bears {
        self.status = status;
        Bears::OnContracts
    }

    /// The camera says how its disk is.
    pub(super) fn handle_disk(&mut self, disk: DiskStatus) -> Bears {
        self.disk = Some(disk);
        Bears::OnNothing
    }

    /// Takes in the camera's feasibility report.
    pub(super) fn handle_feasibility(&mut self, now: Instant, feasibility: FeasibilityReport) -> Bears {
        self.feasibility = feasibility;
        self.infeasible_since = feasibility.infeasible.then(|| self.infeasible_since.unwrap_or(now));
        Bears::OnContracts
    }

    /// The camera says whose contracts it keeps. What it says of an earlier demand no longer counts.
    pub(super) fn handle_negotiated(&mut self, now: Instant, negotiated: &NegotiationResult) -> Bears {
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
