//! One rung for several applications of a camera, which may not agree.
//!
//! A camera's frames cross the link once, however many applications want them. The strictest floor and the tightest bound together may be
//! out of reach where each alone is not. Then the rung is the one that keeps the most contracts, of the highest priority first; and
//! whoever loses is told whose contract stands against its own.

/// How a contract fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractOutcome {
    /// The rung keeps it.
    Kept,
    /// No rung keeps it and the contract of this index, which is kept.
    Conflict {
        /// Which contract stands against it.
        with: usize,
    },
    /// No single kept contract stands against it, but all of them together do.
    Outvoted,
    /// No rung keeps it, whoever else subscribes.
    Infeasible,
}

/// One rung for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The place of the rung in the ladder.
    pub rung: usize,
    /// What becomes of each contract, in their order.
    pub outcomes: Vec<ContractOutcome>,
}

/// Finds the rung of `rungs` that keeps the most contracts, of the highest priority first. Of rungs that keep the same number of
/// each priority, the highest. Where none can be kept, the lowest rung.
///
/// `keeps(contract, rung)` tells whether a rung has the accuracy and the probability to be on time that a contract asks.
pub fn negotiate(priorities: &[i32], rungs: usize, keeps: impl Fn(usize, usize) -> bool) -> Agreement {
    let mut levels = priorities.to_vec();
    levels.sort_unstable_by(|a, b| b.cmp(a));
    levels.dedup();
    let kept_of = |rung: usize| -> Vec<usize> {
        let count = |level: &i32| {
            let of_level = priorities.iter().enumerate().filter(|(_, priority)| *priority == level);
            of_level.filter(|(contract, _)| keeps(*contract, rung)).count()
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
    let verdict = |contract: usize| {
        if keeps(contract, rung) {
            return ContractOutcome::Kept;
        }
        if !(0..rungs).any(|rung| keeps(contract, rung)) {
            return ContractOutcome::Infeasible;
        }
        let kept = (0..priorities.len()).filter(|other| keeps(*other, rung));
        let mut against =
            kept.filter(|other| !(0..rungs).any(|rung| keeps(contract, rung) && keeps(*other, rung)));
        against.next().map_or(ContractOutcome::Outvoted, |with| ContractOutcome::Conflict { with })
    };
    Agreement { rung, outcomes: (0..priorities.len()).map(verdict).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Contracts that are kept from one rung (accuracy) up to another (time).
    fn between(spans: &[(usize, usize)]) -> impl Fn(usize, usize) -> bool {
        move |contract, rung| (spans[contract].0..=spans[contract].1).contains(&rung)
    }

    #[test]
    fn the_most_contracts_are_kept_and_the_loser_is_told_by_whom() {
        let agreement = negotiate(&[0, 0, 0], 10, between(&[(0, 4), (3, 5), (7, 9)]));
        assert_eq!(agreement.rung, 4);
        let conflict = ContractOutcome::Conflict { with: 0 };
        assert_eq!(agreement.outcomes, [ContractOutcome::Kept, ContractOutcome::Kept, conflict]);
    }

    #[test]
    fn priority_goes_before_number() {
        let agreement = negotiate(&[0, 0, 1], 10, between(&[(0, 4), (3, 5), (7, 9)]));
        assert_eq!(agreement.rung, 9);
        assert_eq!(agreement.outcomes[2], ContractOutcome::Kept);
        assert_eq!(agreement.outcomes[0], ContractOutcome::Conflict { with: 2 });
    }

    #[test]
    fn a_contract_that_nobody_could_keep_is_not_blamed_on_others() {
        let agreement = negotiate(&[0, 0], 5, between(&[(0, 4), (7, 3)]));
        assert_eq!(agreement.outcomes, [ContractOutcome::Kept, ContractOutcome::Infeasible]);
        assert_eq!(negotiate(&[0], 5, |_, _| false).rung, 0);
    }

    proptest! {
        /// No other rung keeps more of the highest priority; who conflicts with somebody really cannot be kept together with it.
        #[test]
        fn nobody_of_the_highest_priority_is_left_out_without_need(
            spans in proptest::collection::vec((0usize..8, 0usize..8, 0i32..3), 1..8),
        ) {
            let priorities: Vec<i32> = spans.iter().map(|(_, _, priority)| *priority).collect();
            let keeps = |contract: usize, rung: usize| (spans[contract].0..=spans[contract].1).contains(&rung);
            let agreement = negotiate(&priorities, 8, keeps);
            let highest = priorities.iter().max().copied().unwrap_or_default();
            let kept = |rung: usize| (0..spans.len()).filter(|c| priorities[*c] == highest && keeps(*c, rung)).count();
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
