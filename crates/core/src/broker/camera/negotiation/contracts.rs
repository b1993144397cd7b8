//! Decides which contracts a camera serves when no rung keeps all of them.
//!
//! As long as some rung keeps all contracts, the camera serves all. Once none does, it serves those that
//! [`negotiate`] finds. It changes to fewer at once, because a frame that is late for all serves nobody. It
//! takes a contract back only after that contract could have been kept for a while, so that the rung does not
//! change with every frame. Priority goes before both: a contract is given up for one of lower priority only
//! after it was hopeless for a while, and is taken back at once. The camera tells the edge what became of each
//! contract ([`NegotiationResult`]).
//!
//! A contract without an accuracy floor takes no part in the negotiation: beside contracts with a floor, its application takes
//! the rung that they have. If no contract gives a floor, frames go unchanged, except frames of a source's own video that cannot.

use std::time::Duration;

use crate::broker::LinkId;
use crate::broker::camera::adapt::KeptBy;
use crate::broker::camera::connection::EdgeLink;
use crate::contract::negotiation::{ContractOutcome, Rungs, Standing, negotiate};
use crate::contract::{Contract, Joint};
use crate::units::Instant;
use crate::wire::NegotiationResult;

/// A contract that was given up is served again after it could have been kept for this long. A hopeless contract is
/// given up for others of lower priority after as long. This is the time over which a contract's state is judged.
const TAKEN_BACK_AFTER: Duration = Duration::from_secs(1);

/// The same time for a contract of a lower priority than a kept one, if it had to be given up soon after it was
/// taken back: twenty times the cost of such a trial. The time doubles with each further trial, up to two minutes.
const BELOW_TAKEN_BACK_AFTER: Duration = Duration::from_secs(16);
/// A marginal contract with a lower on-time probability than this, even alone, is reported as infeasible and not as given up for another one.
const CHANCE_MIN: f64 = 0.05;
/// How often [`BELOW_TAKEN_BACK_AFTER`] doubles at most.
const BELOW_IN_VAIN_MAX: u32 = 3;

/// How often [`TAKEN_BACK_AFTER`] doubles at most, while contracts that were taken back have to be given up again soon: up to 32 s.
const IN_VAIN_MAX: u32 = 5;

/// Which contracts the camera serves.
#[derive(Debug, Default)]
pub(crate) struct ServedContracts {
    /// The connection and the revision of the demand that the outcomes are about.
    demand: Option<(LinkId, u64)>,
    /// The outcome of each contract; `None`: not considered. Empty: the contracts of the highest priority are served.
    outcomes: Vec<Option<ContractOutcome>>,
    /// The accuracy floor of the served contracts, by the ladder at the time of the negotiation.
    floor: f64,
    /// Since when other contracts, or more of them, could be kept.
    better_since: Option<Instant>,
    /// When a contract was last taken back.
    taken_back: Option<Instant>,
    /// How often in succession a contract had to be given up soon after it was taken back. Each time costs the other contracts some frames.
    in_vain: u32,
}

impl ServedContracts {
    /// What the served contracts ask together on a connection; `None` if none gives a floor.
    pub(crate) fn joint(&self, link: &EdgeLink) -> Option<Joint> {
        let contracts = &link.demand.contracts;
        let all = Joint::of(contracts)?;
        if !self.is_about(link) {
            return Some(all);
        }
        // Verdicts are made for all contracts of a demand at once, and begin anew with the next demand.
        debug_assert!(
            self.outcomes.is_empty() || self.outcomes.len() == contracts.len(),
            "a verdict for each contract"
        );
        let kept = contracts.iter().zip(&self.outcomes);
        let kept = kept
            .filter(|(_, verdict)| **verdict == Some(ContractOutcome::Kept))
            .map(|(contract, _)| contract);
        let takes_any_rung = || contracts.iter().any(Contract::takes_any_rung);
        let joint = Joint::together(kept).map(|joint| Joint {
            accuracy_floor: joint.accuracy_floor.max(self.floor),
            degrade: joint.degrade || takes_any_rung(),
            ..joint
        });
        Some(joint.unwrap_or(all))
    }

    /// What became of each contract of the demand.
    pub(crate) fn negotiated(&self, link: &EdgeLink) -> NegotiationResult {
        let outcomes = if self.is_about(link) { self.outcomes.clone() } else { Vec::new() };
        NegotiationResult { revision: link.demand.revision, outcomes }
    }

    /// Whether the outcomes are about the present demand of a connection.
    fn is_about(&self, link: &EdgeLink) -> bool {
        self.demand == Some((link.id, link.demand.revision))
    }

    /// What the served contracts ask together, if the contracts differ so that there is something to
    /// negotiate. Starts anew when the demand has changed.
    pub(crate) fn prepare(&mut self, link: &EdgeLink) -> Option<Joint> {
        if !self.is_about(link) {
            *self = Self { demand: Some((link.id, link.demand.revision)), ..Self::default() };
        }
        let asks = |contract: &Contract| {
            let Contract { latency_bound, accuracy_floor, on_time_share, profile, min_fps, .. } = *contract;
            (latency_bound, accuracy_floor, on_time_share, profile, min_fps)
        };
        let with_floor = || link.demand.contracts.iter().filter(|contract| contract.accuracy_floor.is_some());
        let differ = with_floor().zip(with_floor().skip(1)).any(|(one, next)| asks(one) != asks(next));
        self.joint(link).filter(|_| differ)
    }

    /// Negotiates between the contracts of a connection, given the rungs that keep each. Returns the tightest
    /// latency bound of the served contracts.
    pub(crate) fn negotiate(
        &mut self,
        now: Instant,
        link: &EdgeLink,
        looks: &[Option<KeptBy>],
    ) -> Option<Duration> {
        self.consider(now, &link.demand.contracts, looks);
        let kept = looks.iter().zip(&self.outcomes);
        let kept = kept
            .filter_map(|(look, verdict)| look.as_ref().filter(|_| *verdict == Some(ContractOutcome::Kept)));
        self.floor = kept.map(|look| look.floor).fold(0.0, f64::max);
        self.joint(link).and_then(|joint| joint.latency_bound)
    }

    /// Adopts the choice that keeps the most contracts, if it is time for a change. `looks` has the rungs
    /// that keep each contract, if it was considered.
    fn consider(&mut self, now: Instant, contracts: &[Contract], looks: &[Option<KeptBy>]) {
        let looked: Vec<(usize, &KeptBy)> =
            looks.iter().enumerate().filter_map(|(place, look)| Some((place, look.as_ref()?))).collect();
        let rungs = looked.first().map_or(0, |(_, look)| look.rungs.len());
        let present = served(contracts, &self.outcomes);
        let of = Looked { looked: &looked, contracts, present: &present };
        let standing = |(place, look): &(usize, &KeptBy)| Standing {
            priority: contracts[*place].priority,
            marginal: look.marginal,
        };
        let standings: Vec<Standing> = looked.iter().map(standing).collect();
        let agreement = negotiate(&standings, rungs, &of);
        let mut outcomes = vec![None; contracts.len()];
        for ((place, look), verdict) in looked.iter().zip(agreement.outcomes) {
            outcomes[*place] = Some(match verdict {
                // Even alone, the contract would have next to no frames on time.
                ContractOutcome::Conflict { .. } if look.marginal && look.chance < CHANCE_MIN => {
                    ContractOutcome::Infeasible
                }
                ContractOutcome::Conflict { with } => ContractOutcome::Conflict { with: looked[with].0 },
                other => other,
            });
        }
        let next = served(contracts, &outcomes);
        let places = || looked.iter().map(|(place, _)| *place);
        let same = places().all(|place| present[place] == next[place]);
        // The highest priority of the contracts that one choice serves and the other does not.
        let highest = |served: &[bool], not: &[bool]| {
            let gained = places().filter(|place| served[*place] && !not[*place]);
            gained.map(|place| contracts[place].priority).max()
        };
        let (lost, won) = (highest(&present, &next), highest(&next, &present));
        let (rises, falls) = (lost.is_some() && won > lost, won.is_some() && lost > won);
        let holds = of.holds(rungs);
        let since = *self.better_since.get_or_insert(now);
        let at_once = same || rises || !holds && !falls;
        let more = won.is_some() && !rises && !falls;
        // A contract below a served one is taken back only while the frames of the served one have been on time.
        let below = won.filter(|_| more).is_some_and(|won| of.any_above(won));
        let may = !below || won.is_some_and(|won| of.are_kept_above(won));
        let wait = match (more, below, self.in_vain) {
            (true, true, 1..) => BELOW_TAKEN_BACK_AFTER * (1 << (self.in_vain - 1).min(BELOW_IN_VAIN_MAX)),
            (true, false, _) => TAKEN_BACK_AFTER * (1 << self.in_vain.min(IN_VAIN_MAX)),
            _ => TAKEN_BACK_AFTER,
        };
        if at_once || may && now.saturating_since(since) >= wait {
            if lost.is_some()
                && let Some(taken_back) = self.taken_back.take()
            {
                let lasted = now.saturating_since(taken_back) >= TAKEN_BACK_AFTER * (2 << IN_VAIN_MAX);
                self.in_vain = if lasted { 0 } else { self.in_vain + 1 };
            }
            if more && !same {
                self.taken_back = Some(now);
            }
            self.outcomes = outcomes;
            self.better_since = None;
        }
    }
}

/// The contracts that were considered, and which of all are served.
struct Looked<'a> {
    looked: &'a [(usize, &'a KeptBy)],
    contracts: &'a [Contract],
    present: &'a [bool],
}

impl Looked<'_> {
    fn priority(&self, contract: usize) -> i32 {
        self.contracts[self.looked[contract].0].priority
    }

    /// The served contracts, by their places in `looked`.
    fn served(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.looked.len()).filter(|contract| self.present[self.looked[*contract].0])
    }

    /// Whether a contract is served, and too many of its frames are late.
    fn is_strained(&self, contract: usize) -> bool {
        let (place, look) = self.looked[contract];
        self.present[place] && look.lateness.is_strained(self.contracts[place].on_time_share)
    }

    /// Whether contracts of a higher priority than this are served.
    fn any_above(&self, priority: i32) -> bool {
        self.served().any(|contract| self.priority(contract) > priority)
    }

    /// Whether the served contracts above this priority are kept: enough of their frames are known, and not too many were late.
    fn are_kept_above(&self, priority: i32) -> bool {
        let mut above = self.served().filter(|contract| self.priority(*contract) > priority);
        above.all(|contract| {
            let (place, look) = self.looked[contract];
            look.lateness.is_kept(self.contracts[place].on_time_share)
        })
    }

    /// Whether some rung still keeps all served contracts, and is one that strained contracts leave to those of the lowest priority.
    fn holds(&self, rungs: usize) -> bool {
        let mut served = self.served().peekable();
        let lowest = served.clone().map(|contract| self.priority(contract)).min();
        let is_left = |contract: usize, rung: usize| {
            Some(self.priority(contract)) == lowest || self.leaves(contract, rung)
        };
        served.peek().is_some()
            && (0..rungs).any(|rung| {
                served.clone().all(|contract| self.keeps(contract, rung) && is_left(contract, rung))
            })
    }
}

impl Rungs for &Looked<'_> {
    fn keeps(&self, contract: usize, rung: usize) -> bool {
        self.looked[contract].1.rungs[rung]
    }

    /// While too many frames of a contract are late, it leaves only its cheapest rungs to contracts of a lower priority.
    fn leaves(&self, contract: usize, rung: usize) -> bool {
        let look = self.looked[contract].1;
        if self.is_strained(contract) { look.cheapest[rung] } else { look.rungs[rung] }
    }
}

/// Which contracts are served, by their outcomes: those that are kept, or if none is, all
/// of the highest priority. The latter is also so at first, while the link is hardly known.
fn served(contracts: &[Contract], outcomes: &[Option<ContractOutcome>]) -> Vec<bool> {
    let is_kept = |place: usize| outcomes.get(place).copied().flatten() == Some(ContractOutcome::Kept);
    // Contracts without a floor ask nothing of the rung.
    let asks = |contract: &&Contract| contract.accuracy_floor.is_some();
    let first = contracts.iter().filter(asks).map(|contract| contract.priority).max();
    match (0..contracts.len()).any(is_kept) {
        true => (0..contracts.len()).map(is_kept).collect(),
        false => {
            contracts.iter().map(|contract| asks(&contract) && Some(contract.priority) == first).collect()
        }
    }
}
