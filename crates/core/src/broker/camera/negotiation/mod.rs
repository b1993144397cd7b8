//! Whose contracts frames are made for, where applications do not ask all the same.
//!
//! As long as some rung keeps all of them, it is made for all. Once none does, it is made for those that
//! [`settle`] finds; at once, since a frame that would be late for all serves nobody. Who was given up is taken back when that was
//! possible for a while, so that the rung does not swing with every frame. The edge is told what became of each
//! ([`Settled`]).
//!
//! Where a contract of the highest priority gives no floor, frames go as they are, and there is nothing to settle.

pub(super) mod feasibility;
pub(super) mod share;

use std::time::Duration;

use super::CameraBroker;
use super::adapt::{Candidate, KeptBy};
use crate::broker::LinkId;
use crate::contract::{Contract, Joint};
use crate::controller::settle::{Verdict, settle};
use crate::frame::Frame;
use crate::units::Instant;
use crate::wire::Settled;

/// A contract that was given up is taken back after it could have been kept for this long.
const TAKEN_BACK_AFTER: Duration = Duration::from_secs(1);

/// Whose contracts frames are made for.
#[derive(Debug, Default)]
pub(super) struct Coalition {
    /// The demand that this is about.
    demand: Option<(LinkId, u64)>,
    /// Of each contract; `None`: not looked at. Empty: all are asked for together.
    verdicts: Vec<Option<Verdict>>,
    /// The floor of those that are kept, by the ladder that there was then.
    floor: f64,
    /// Since when others could be kept, or more.
    better_since: Option<Instant>,
}

impl Coalition {
    /// What is asked of frames for those contracts; `None` where frames go as they are.
    fn joint(&self, demand: (LinkId, u64), contracts: &[Contract]) -> Option<Joint> {
        let all = Joint::of(contracts)?;
        if self.demand != Some(demand) {
            return Some(all);
        }
        let kept = contracts.iter().zip(&self.verdicts);
        let kept = kept.filter(|(_, verdict)| **verdict == Some(Verdict::Kept)).map(|(contract, _)| contract);
        let joint = Joint::together(kept)
            .map(|joint| Joint { accuracy_floor: joint.accuracy_floor.max(self.floor), ..joint });
        Some(joint.unwrap_or(all))
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

impl CameraBroker {
    /// What the contracts that frames are made for ask, of the present connection; `None` where frames go as they are.
    pub fn joint(&self) -> Option<Joint> {
        let link = self.active_link()?;
        self.coalition.joint((link.id, link.demand.revision), &link.demand.contracts)
    }

    /// Looks whose contracts can be kept together, with such frames on the link as it is.
    pub(super) fn settle(&mut self, now: Instant, frame: &Frame, interval: Duration) {
        let Some(link) = self.connections.active() else { return };
        let (demand, contracts) = ((link.id, link.demand.revision), &link.demand.contracts);
        if self.coalition.demand != Some(demand) {
            self.coalition = Coalition { demand: Some(demand), ..Coalition::default() };
        }
        let asks = |contract: &Contract| {
            let Contract { latency_bound, accuracy_floor, on_time_share, profile, min_fps, .. } = *contract;
            (latency_bound, accuracy_floor, on_time_share, profile, min_fps)
        };
        let differ = contracts.windows(2).any(|pair| asks(&pair[0]) != asks(&pair[1]));
        let Some(wish) = self.coalition.joint(demand, contracts).filter(|_| differ) else { return };
        let like_this = Candidate {
            now,
            wish: &wish,
            profiles: &self.profiles,
            frame,
            before: None,
            captured: now,
            interval,
            unsent_bytes: 0,
            window: None,
        };
        let looks = self.adapter.kept_by(&like_this, contracts);
        // While the link is out nothing is known: it stays as it was.
        let Some(looks) = looks else { return };
        self.coalition.consider(now, contracts, &looks);
        let kept = looks.iter().zip(&self.coalition.verdicts);
        let kept =
            kept.filter_map(|(look, verdict)| look.as_ref().filter(|_| *verdict == Some(Verdict::Kept)));
        self.coalition.floor = kept.map(|look| look.floor).fold(0.0, f64::max);
        let bound = self.joint().and_then(|joint| joint.latency_bound);
        if let Some(link) = self.connections.get_mut(demand.0) {
            link.kept_bound = bound;
        }
    }

    /// What became of each contract of the demand.
    pub(super) fn settled(&self) -> Settled {
        let Some(link) = self.active_link() else { return Settled::default() };
        let is_of = self.coalition.demand == Some((link.id, link.demand.revision));
        let verdicts = if is_of { self.coalition.verdicts.clone() } else { Vec::new() };
        Settled { revision: link.demand.revision, verdicts }
    }
}
