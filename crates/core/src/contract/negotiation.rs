//! Finds one rung for several applications of a camera whose contracts may conflict.
//!
//! A camera's frames cross the link once, however many applications want them. It may be impossible to keep the strictest floor and
//! the tightest bound together, although each alone is possible. The negotiation then chooses the rung that keeps the most contracts,
//! those of the highest priority first. If a contract is not kept, its application is told which contract stands against it.
//!
//! On a link where no rung keeps a contract in full, some rungs may still keep it for most frames. Such a contract is *marginal*. It gives way
//! to contracts of its own or a higher priority that can be kept in full. Contracts of a lower priority must leave it what it would have alone.

/// The outcome of one contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractOutcome {
    /// The rung keeps it, or serves it as well as any rung.
    Kept,
    /// No rung keeps both this contract and the kept contract at index `with`.
    Conflict {
        /// The index of the contract that stands against this one.
        with: usize,
    },
    /// Each single kept contract could be kept together with this one, but no rung keeps all of them.
    Outvoted,
    /// No rung keeps it, even if nobody else subscribes.
    Infeasible,
}

/// The chosen rung, and the outcome of each contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The rung's index in the ladder.
    pub rung: usize,
    /// The outcome of each contract, in the order of the contracts.
    pub outcomes: Vec<ContractOutcome>,
}

/// The properties of a contract in a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its priority.
    pub priority: i32,
    /// Whether no rung keeps the contract in full. Rungs then count as keeping it if they leave it what it would have alone.
    pub marginal: bool,
}

/// Which rungs keep which contracts.
pub trait Rungs {
    /// Whether a rung has the accuracy and the on-time probability that a contract asks for.
    /// For a marginal contract, whether the rung is among the cheapest that keep its accuracy.
    fn keeps(&self, contract: usize, rung: usize) -> bool;

    /// Whether a contract leaves a rung to contracts of a lower priority. By default, it leaves the rungs that keep it.
    fn leaves(&self, contract: usize, rung: usize) -> bool {
        self.keeps(contract, rung)
    }
}

impl<F: Fn(usize, usize) -> bool> Rungs for F {
    fn keeps(&self, contract: usize, rung: usize) -> bool {
        self(contract, rung)
    }
}

/// A negotiation: the contracts, the number of rungs, and which rungs keep which contracts.
struct Table<'a, R> {
    contracts: &'a [Standing],
    rungs: usize,
    of: R,
    /// For each contract, whether it counts. A marginal contract does not count if a contract of its own or a higher priority
    /// can be kept in full. If no contract can be kept in full, a marginal one counts only if it alone has the highest priority.
    counts: Vec<bool>,
}

impl<'a, R: Rungs> Table<'a, R> {
    fn new(contracts: &'a [Standing], rungs: usize, of: R) -> Self {
        let any = |contract: usize| (0..rungs).any(|rung| of.keeps(contract, rung));
        let places = || (0..contracts.len()).filter(|contract| any(*contract));
        let firm = places().filter(|contract| !contracts[*contract].marginal);
        let firm = firm.map(|contract| contracts[contract].priority).max();
        // If no contract can be kept in full, the first one counts if it is the only one of its priority.
        let highest = places().map(|contract| contracts[contract].priority).max();
        let first = |contract: &Standing| {
            let equals = places().filter(|other| contracts[*other].priority == contract.priority).count();
            highest == Some(contract.priority) && equals == 1
        };
        let counts = |contract: &Standing| match firm {
            _ if !contract.marginal => true,
            Some(firm) => contract.priority > firm,
            None => first(contract),
        };
        let counts = contracts.iter().map(counts).collect();
        Self { contracts, rungs, of, counts }
    }

    /// Whether a rung keeps a contract, and contracts of a higher priority leave it that rung.
    fn keeps(&self, contract: usize, rung: usize) -> bool {
        self.counts[contract] && self.of.keeps(contract, rung) && self.is_left(contract, rung)
    }

    /// Whether the contracts of a higher priority leave a rung to this contract.
    fn is_left(&self, contract: usize, rung: usize) -> bool {
        let above = |other: &usize| self.contracts[*other].priority > self.contracts[contract].priority;
        let is_kept = |other: &usize| self.counts[*other] && self.of.keeps(*other, rung);
        (0..self.contracts.len()).filter(above).filter(is_kept).all(|other| self.of.leaves(other, rung))
    }

    /// Whether some rung keeps both of two contracts.
    fn agree(&self, one: usize, other: usize) -> bool {
        let both = |rung: usize| [one, other].iter().all(|contract| self.of.keeps(*contract, rung));
        let left = |rung: usize| self.is_left(one, rung) && self.is_left(other, rung);
        (0..self.rungs).any(|rung| both(rung) && left(rung))
    }

    fn verdict(&self, contract: usize, rung: usize) -> ContractOutcome {
        if self.keeps(contract, rung) {
            return ContractOutcome::Kept;
        }
        if !(0..self.rungs).any(|rung| self.of.keeps(contract, rung)) {
            return ContractOutcome::Infeasible;
        }
        let mut kept = (0..self.contracts.len()).filter(|other| self.keeps(*other, rung)).peekable();
        if kept.peek().is_none() {
            return ContractOutcome::Infeasible;
        }
        let against = kept.find(|other| !self.agree(contract, *other));
        match against {
            Some(with) => ContractOutcome::Conflict { with },
            None if self.counts[contract] => ContractOutcome::Outvoted,
            None => ContractOutcome::Infeasible,
        }
    }
}

/// Finds the rung of `rungs` that keeps the most contracts, those of the highest priority first. A marginal contract counts only
/// if all contracts that can be kept in full have a lower priority. A rung keeps a contract only if all kept contracts of a higher
/// priority leave it that rung. Among equal rungs, the highest wins. If no contract can be kept, the lowest rung is chosen.
pub fn negotiate(contracts: &[Standing], rungs: usize, of: impl Rungs) -> Agreement {
    let table = Table::new(contracts, rungs, of);
    let mut levels: Vec<i32> = contracts.iter().map(|contract| contract.priority).collect();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    let kept_of = |rung: usize| -> Vec<usize> {
        let count = |level: &i32| {
            let of_level = contracts.iter().enumerate().filter(|(_, of)| of.priority == *level);
            of_level.filter(|(contract, _)| table.keeps(*contract, rung)).count()
        };
        levels.iter().map(count).collect()
    };
    let nothing = vec![0; levels.len()];
    let mut best = (0, nothing.clone());
    for rung in 0..rungs {
        let kept = kept_of(rung);
        if kept != nothing && kept >= best.1 {
            best = (rung, kept);
        }
    }
    let rung = best.0;
    Agreement { rung, outcomes: (0..contracts.len()).map(|contract| table.verdict(contract, rung)).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each contract is kept from one rung (accuracy) up to another (time).
    fn between(spans: &[(usize, usize)]) -> impl Fn(usize, usize) -> bool {
        move |contract, rung| (spans[contract].0..=spans[contract].1).contains(&rung)
    }

    fn firm(priority: i32) -> Standing {
        Standing { priority, marginal: false }
    }

    fn marginal(priority: i32) -> Standing {
        Standing { priority, marginal: true }
    }

    #[test]
    fn the_most_contracts_are_kept_and_the_loser_is_told_by_whom() {
        let agreement = negotiate(&[firm(0), firm(0), firm(0)], 10, between(&[(0, 4), (3, 5), (7, 9)]));
        assert_eq!(agreement.rung, 4);
        let conflict = ContractOutcome::Conflict { with: 0 };
        assert_eq!(agreement.outcomes, [ContractOutcome::Kept, ContractOutcome::Kept, conflict]);
    }

    #[test]
    fn priority_goes_before_number() {
        let agreement = negotiate(&[firm(0), firm(0), firm(1)], 10, between(&[(0, 4), (3, 5), (7, 9)]));
        assert_eq!(agreement.rung, 9);
        assert_eq!(agreement.outcomes[2], ContractOutcome::Kept);
        assert_eq!(agreement.outcomes[0], ContractOutcome::Conflict { with: 2 });
    }

    #[test]
    fn a_contract_that_nobody_could_keep_is_not_blamed_on_others() {
        let agreement = negotiate(&[firm(0), firm(0)], 5, between(&[(0, 4), (7, 3)]));
        assert_eq!(agreement.outcomes, [ContractOutcome::Kept, ContractOutcome::Infeasible]);
        assert_eq!(negotiate(&[firm(0)], 5, |_, _| false).rung, 0);
    }

    /// A contract that the link keeps for some frames only is not given up for one of a lower priority, which would cost it all frames.
    #[test]
    fn a_marginal_contract_gives_way_to_its_equals_only() {
        let keeps = between(&[(0, 2), (6, 9)]);
        let told = |contracts: &[Standing]| negotiate(contracts, 10, &keeps).outcomes;
        let conflict = |with| ContractOutcome::Conflict { with };
        assert_eq!(told(&[marginal(1), firm(0)]), [ContractOutcome::Kept, conflict(0)]);
        assert_eq!(told(&[marginal(0), firm(0)]), [conflict(1), ContractOutcome::Kept]);
        assert_eq!(told(&[marginal(0), firm(1)]), [conflict(1), ContractOutcome::Kept]);
        assert_eq!(
            told(&[marginal(1), marginal(0)]),
            [ContractOutcome::Kept, conflict(0)],
            "nobody takes anything from the first, and who yields is told to whom"
        );
        assert_eq!(
            told(&[marginal(0), marginal(0)]),
            [ContractOutcome::Infeasible; 2],
            "equals share the blame"
        );
        let both = negotiate(&[marginal(1), firm(0)], 10, between(&[(0, 6), (6, 9)]));
        assert_eq!((both.rung, both.outcomes), (6, vec![ContractOutcome::Kept; 2]), "if it costs nothing");
    }

    /// A contract that is not quite kept leaves contracts of a lower priority only the rungs that cost it nothing.
    struct Leaving;

    impl Rungs for Leaving {
        fn keeps(&self, contract: usize, rung: usize) -> bool {
            between(&[(0, 6), (3, 9), (5, 9)])(contract, rung)
        }

        fn leaves(&self, contract: usize, rung: usize) -> bool {
            contract != 0 || rung <= 1
        }
    }

    #[test]
    fn who_is_below_gets_only_the_rungs_that_those_above_leave() {
        let told = |contracts: &[Standing]| negotiate(contracts, 10, Leaving).outcomes;
        let (kept, conflict) = (ContractOutcome::Kept, ContractOutcome::Conflict { with: 0 });
        assert_eq!(told(&[firm(1), firm(0), firm(0)]), [kept, conflict, conflict]);
        assert_eq!(told(&[firm(0), firm(0), firm(0)]), [kept; 3], "an equal gets what keeps both");
        assert_eq!(told(&[firm(0), firm(1), firm(1)]), [kept; 3], "who is above asks nobody");
    }

    proptest! {
        /// No other rung keeps more contracts of the highest priority. Contracts reported as conflicting
        /// cannot be kept together.
        #[test]
        fn nobody_of_the_highest_priority_is_left_out_without_need(
            spans in proptest::collection::vec((0usize..8, 0usize..8, 0i32..3), 1..8),
        ) {
            let priorities: Vec<Standing> = spans.iter().map(|(_, _, priority)| firm(*priority)).collect();
            let keeps = |contract: usize, rung: usize| (spans[contract].0..=spans[contract].1).contains(&rung);
            let agreement = negotiate(&priorities, 8, keeps);
            let highest = spans.iter().map(|(_, _, priority)| *priority).max().unwrap_or_default();
            let kept = |rung: usize| (0..spans.len()).filter(|c| spans[*c].2 == highest && keeps(*c, rung)).count();
            prop_assert!((0..8).all(|rung| kept(rung) <= kept(agreement.rung)));
            for (contract, verdict) in agreement.outcomes.iter().enumerate() {
                prop_assert_eq!(*verdict == ContractOutcome::Kept, keeps(contract, agreement.rung));
                if let ContractOutcome::Conflict { with } = verdict {
                    prop_assert!(!(0..8).any(|rung| keeps(contract, rung) && keeps(*with, rung)));
                }
            }
        }
    }
}
