//! Decides whose contracts frames are made for, where applications do not ask all the same.
//!
//! As long as some rung keeps all of them, frames are made for all. Once none does, frames are made for those that [`settle`] finds. This
//! happens at once: a frame that would be late for all serves nobody. A contract that was given up is taken back only after it could have
//! been kept for a while, so that the rung does not swing with every frame. The edge is told what became of each ([`Settled`]).
//!
//! Where a contract of the highest priority gives no floor, frames go as they are, and there is nothing to settle.

use std::time::Duration;

use crate::broker::LinkId;
use crate::broker::camera::adapt::KeptBy;
use crate::broker::camera::connection::Link;
use crate::contract::settle::{Verdict, settle};
use crate::contract::{Contract, Joint};
use crate::units::Instant;
use crate::wire::Settled;

/// A contract that was given up is taken back after it could have been kept for this long.
const TAKEN_BACK_AFTER: Duration = Duration::from_secs(1);

/// Whose contracts frames are made for.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    /// The demand that this is about.
    demand: Option<(LinkId, u64)>,
    /// Of each contract; `None`: not looked at. Empty: all are asked for together.
    verdicts: Vec<Option<Verdict>>,
    /// The floor of those that are kept, by the ladder that there was then.
    floor: f64,
    /// Since when others could be kept, or more.
    better_since: Option<Instant>,
}

impl Negotiation {
    /// What the contracts that frames are made for ask on a connection; `None` where frames go as they are.
    pub(crate) fn joint(&self, link: &Link) -> Option<Joint> {
        let contracts = &link.demand.contracts;
        let all = Joint::of(contracts)?;
        if !self.is_about(link) {
            return Some(all);
        }
        // Verdicts are made for all contracts of a demand at once, and begin anew with the next demand.
        debug_assert!(
            self.verdicts.is_empty() || self.verdicts.len() == contracts.len(),
            "a verdict for each contract"
        );
        let kept = contracts.iter().zip(&self.verdicts);
        let kept = kept.filter(|(_, verdict)| **verdict == Some(Verdict::Kept)).map(|(contract, _)| contract);
        let joint = Joint::together(kept)
            .map(|joint| Joint { accuracy_floor: joint.accuracy_floor.max(self.floor), ..joint });
        Some(joint.unwrap_or(all))
    }

    /// What became of each contract of the demand.
    pub(crate) fn settled(&self, link: &Link) -> Settled {
        let verdicts = if self.is_about(link) { self.verdicts.clone() } else { Vec::new() };
        Settled { revision: link.demand.revision, verdicts }
    }

    /// Whether this is about the demand of a connection as it is now.
    fn is_about(&self, link: &Link) -> bool {
        self.demand == Some((link.id, link.demand.revision))
    }

    /// What is asked at present, where contracts differ so that there is something to settle. Begins anew where the demand is another one.
    pub(crate) fn prepare(&mut self, link: &Link) -> Option<Joint> {
        if !self.is_about(link) {
            *self = Self { demand: Some((link.id, link.demand.revision)), ..Self::default() };
        }
        let asks = |contract: &Contract| {
            let Contract { latency_bound, accuracy_floor, on_time_share, profile, min_fps, .. } = *contract;
            (latency_bound, accuracy_floor, on_time_share, profile, min_fps)
        };
        let differ = link.demand.contracts.windows(2).any(|pair| asks(&pair[0]) != asks(&pair[1]));
        self.joint(link).filter(|_| differ)
    }

    /// Settles between the contracts of a connection, by the rungs that keep each of them. Returns the tightest bound of those that frames
    /// are made for.
    pub(crate) fn settle(&mut self, now: Instant, link: &Link, looks: &[Option<KeptBy>]) -> Option<Duration> {
        self.consider(now, &link.demand.contracts, looks);
        let kept = looks.iter().zip(&self.verdicts);
        let kept =
            kept.filter_map(|(look, verdict)| look.as_ref().filter(|_| *verdict == Some(Verdict::Kept)));
        self.floor = kept.map(|look| look.floor).fold(0.0, f64::max);
        self.joint(link).and_then(|joint| joint.latency_bound)
    }

    /// Takes what is best for as many as possible, if it is time for it. `looks` has the rungs that keep each, if it was looked at.
    fn consider(&mut self, now: Instant, contracts: &[Contract], looks: &[Option<KeptBy>]) {
        let looked: Vec<(usize, &[bool])> = looks
            .iter()
            .enumerate()
            .filter_map(|(place, look)| Some((place, look.as_ref()?.rungs.as_slice())))
            .collect();
        let rungs = looked.first().map_or(0, |(_, rungs)| rungs.len());
        let priorities: Vec<i32> = looked.iter().map(|(place, _)| contracts[*place].priority).collect();
        let settlement = settle(&priorities, rungs, |contract, rung| looked[contract].1[rung]);
        let mut verdicts = vec![None; contracts.len()];
        for ((place, _), verdict) in looked.iter().zip(settlement.verdicts) {
            verdicts[*place] = Some(match verdict {
                Verdict::Conflict { with } => Verdict::Conflict { with: looked[with].0 },
                other => other,
            });
        }
        let is_kept = |verdicts: &[Option<Verdict>], place: usize| {
            verdicts.is_empty() || verdicts[place] == Some(Verdict::Kept)
        };
        let places = || looked.iter().map(|(place, _)| *place);
        let same = places().all(|place| is_kept(&self.verdicts, place) == is_kept(&verdicts, place));
        let mut kept = looked.iter().filter(|(place, _)| is_kept(&self.verdicts, *place)).peekable();
        let holds =
            kept.peek().is_some() && (0..rungs).any(|rung| kept.clone().all(|(_, rungs)| rungs[rung]));
        let since = *self.better_since.get_or_insert(now);
        if same || !holds || now.saturating_since(since) >= TAKEN_BACK_AFTER {
            self.verdicts = verdicts;
            self.better_since = None;
        }
    }
}
