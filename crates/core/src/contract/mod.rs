//! Defines what an application asks of a camera, and judges whether the application gets it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | here | one contract, and the joint demand of several |
//! | [`negotiation`] | one rung for contracts that cannot all be kept |
//! | [`monitor`] | the state of one contract on one camera, and the sentence that says why |
//! | [`watch`] | the contract watch: one subscription's contract on all of its cameras |

pub mod monitor;
pub mod negotiation;
pub mod watch;

use std::time::Duration;

/// What to do when no rung keeps both bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OnInfeasible {
    /// Send the best frame that fits, marked as infeasible.
    #[default]
    Degrade = 1,
    /// Send nothing until both bounds can be held again.
    Skip = 2,
    /// End the subscription.
    Stop = 3,
}

impl OnInfeasible {
    /// The choice that a wire code stands for; `None` if this version does not know the code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Degrade),
            2 => Some(Self::Skip),
            3 => Some(Self::Stop),
            _ => None,
        }
    }
}

/// What one application demands of one camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Contract {
    /// The longest allowed time from capture until the application has the frame. `None`: as soon as
    /// possible.
    pub latency_bound: Option<Duration>,
    /// The lowest accuracy that the application accepts, in 0..=1. `None`: it takes the
    /// rung that other contracts need, or unmodified frames if no contract gives a floor.
    pub accuracy_floor: Option<f64>,
    /// The share of frames that must be on time, in 0..=1. Default 0.98.
    pub on_time_share: f64,
    /// The SHA-256 of the profile that gives the bytes and the accuracy of each rung. `None`: no profile.
    pub profile: Option<[u8; 32]>,
    /// The lowest useful frame rate, in frames per second. 0: any rate.
    pub min_fps: f64,
    /// What to do when no rung keeps both bounds.
    pub on_infeasible: OnInfeasible,
    /// If contracts conflict, the higher priority goes first. Default 0.
    pub priority: i32,
}

impl Default for Contract {
    fn default() -> Self {
        Self {
            latency_bound: None,
            accuracy_floor: None,
            on_time_share: 0.98,
            profile: None,
            min_fps: 0.0,
            on_infeasible: OnInfeasible::default(),
            priority: 0,
        }
    }
}

impl Contract {
    /// Whether the contract cannot be broken: any frame will do, at any time.
    pub fn asks_nothing(&self) -> bool {
        self.latency_bound.is_none() && self.accuracy_floor.is_none() && self.min_fps <= 0.0
    }

    /// Whether its application takes frames at the rung of other contracts, whatever accuracy and delay that rung has.
    pub fn takes_any_rung(&self) -> bool {
        self.accuracy_floor.is_none() && self.on_infeasible == OnInfeasible::Degrade
    }

    /// Refuses bounds that make no sense.
    pub fn validate(&self) -> Result<(), ContractError> {
        if self.latency_bound.is_some_and(|bound| bound.is_zero()) {
            return Err(ContractError::LatencyBound);
        }
        if let Some(floor) = self.accuracy_floor
            && !(0.0..=1.0).contains(&floor)
        {
            return Err(ContractError::AccuracyFloor { floor });
        }
        if !(self.on_time_share > 0.0 && self.on_time_share <= 1.0) {
            return Err(ContractError::OnTimeShare { share: self.on_time_share });
        }
        if !(self.min_fps >= 0.0 && self.min_fps <= 1000.0) {
            return Err(ContractError::MinFps { fps: self.min_fps });
        }
        Ok(())
    }
}

/// Why a contract was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ContractError {
    /// A bound of zero.
    #[error("the latency bound is 0; give a bound above 0 ms, or leave it out")]
    LatencyBound,
    /// A floor outside 0..=1.
    #[error("the accuracy floor {floor} is not between 0 and 1; give one such as 0.95, or leave it out")]
    AccuracyFloor {
        /// The floor that was refused.
        floor: f64,
    },
    /// A share outside 0..=1, or 0.
    #[error("the on-time share {share} is not above 0 and at most 1; give one such as 0.98, or leave it out")]
    OnTimeShare {
        /// The share that was refused.
        share: f64,
    },
    /// A rate outside 0..=1000.
    #[error("min_fps {fps} is not between 0 and 1000 frames per second")]
    MinFps {
        /// The rate that was refused.
        fps: f64,
    },
}

/// The joint demand of the contracts of one camera. Frames cross the link once, however many applications
/// want them.
///
/// Only contracts with an accuracy floor count, and only those of the highest priority. Their strictest floor and tightest
/// bound hold if some rung keeps both. Otherwise the camera chooses which contracts to keep together ([`negotiation`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joint {
    /// The tightest latency bound of these contracts.
    pub latency_bound: Option<Duration>,
    /// The strictest accuracy floor of these contracts.
    pub accuracy_floor: f64,
    /// The largest on-time share of these contracts.
    pub on_time_share: f64,
    /// Whether at least one of these contracts wants frames even while the bounds cannot be kept.
    pub degrade: bool,
    /// The profile of the contract with the strictest floor.
    pub profile: Option<[u8; 32]>,
    /// The largest [`Contract::min_fps`] of these contracts, in frames per second.
    pub min_fps: f64,
}

impl Joint {
    /// The joint demand of the contracts of the highest priority. A contract without a floor affects only
    /// `degrade`: its application wants frames even while the bounds cannot be kept, and takes the rung
    /// of the others. `None` if no contract on the camera gives a floor: frames are then sent unmodified.
    pub fn of<'a>(contracts: impl IntoIterator<Item = &'a Contract> + Clone) -> Option<Self> {
        let all = || contracts.clone().into_iter();
        let highest = all().filter(|contract| contract.accuracy_floor.is_some());
        let highest = highest.map(|contract| contract.priority).max()?;
        let joint = Self::together(all().filter(|contract| contract.priority == highest))?;
        Some(Self { degrade: joint.degrade || all().any(Contract::takes_any_rung), ..joint })
    }

    /// The joint demand if no contract gives a floor, but frames cannot be sent unmodified because they need
    /// other frames: to be on time as often as the contracts ask, and otherwise as accurate as possible.
    pub fn without_floor(contracts: &[Contract]) -> Self {
        let shares = contracts.iter().map(|contract| contract.on_time_share);
        Self {
            latency_bound: contracts.iter().filter_map(|contract| contract.latency_bound).min(),
            accuracy_floor: 0.0,
            on_time_share: shares.reduce(f64::max).unwrap_or(Contract::default().on_time_share),
            degrade: true,
            profile: None,
            min_fps: 0.0,
        }
    }

    /// The joint demand of the given contracts that have a floor, whatever their priorities. `None` if no contract has a floor.
    pub fn together<'a>(contracts: impl IntoIterator<Item = &'a Contract>) -> Option<Self> {
        let mut joint: Option<Self> = None;
        for contract in contracts {
            let Some(accuracy_floor) = contract.accuracy_floor else { continue };
            let degrade = contract.on_infeasible == OnInfeasible::Degrade;
            let Contract { latency_bound, on_time_share, profile, min_fps, .. } = *contract;
            let Some(joint) = &mut joint else {
                joint =
                    Some(Self { latency_bound, accuracy_floor, on_time_share, degrade, profile, min_fps });
                continue;
            };
            if accuracy_floor > joint.accuracy_floor
                || joint.profile.is_none() && accuracy_floor == joint.accuracy_floor
            {
                (joint.accuracy_floor, joint.profile) = (accuracy_floor, profile);
            }
            joint.latency_bound = joint.latency_bound.into_iter().chain(latency_bound).min();
            joint.on_time_share = joint.on_time_share.max(on_time_share);
            joint.min_fps = joint.min_fps.max(min_fps);
            joint.degrade |= degrade;
        }
        joint
    }
}

/// Whether a contract is being kept. If several states apply, the first of [`ContractState::ALL`] counts; `docs/contracts.md` has the list for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContractState {
    /// The accuracy of the frames is unknown: there is no profile, or the rung is not in it.
    Unverified = 1,
    /// Both bounds are kept.
    Ok = 2,
    /// Too few frames were on time, although some rung was considered feasible.
    LatencyMiss = 3,
    /// No rung keeps the floor and reaches the on-time share.
    Infeasible = 4,
    /// The measured accuracy is below the floor.
    AccuracyMiss = 5,
    /// The camera is not connected.
    Absent = 6,
    /// Enough frames reached the application in time, but the application took too few of them in time.
    ApplicationLate = 7,
    /// Frames differ from those with which the profile was made, so its accuracies may not hold.
    Drifted = 8,
    /// The camera is connected, but its source gives no frames: it has stalled, is lost or has ended.
    SourceLost = 9,
}

impl ContractState {
    /// All states, in order of precedence.
    pub const ALL: [Self; 9] = [
        Self::Absent,
        Self::SourceLost,
        Self::Infeasible,
        Self::LatencyMiss,
        Self::ApplicationLate,
        Self::AccuracyMiss,
        Self::Drifted,
        Self::Unverified,
        Self::Ok,
    ];

    /// The state that a wire code stands for; `None` if this version does not know the code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == code)
    }

    /// The name of the state that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unverified => "unverified",
            Self::Ok => "ok",
            Self::LatencyMiss => "latency_miss",
            Self::Infeasible => "infeasible",
            Self::AccuracyMiss => "accuracy_miss",
            Self::Absent => "absent",
            Self::ApplicationLate => "application_late",
            Self::Drifted => "drifted",
            Self::SourceLost => "source_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A contract without a floor asks nothing of the rung. Its application wants frames even where the others would rather have none.
    #[test]
    fn a_contract_without_a_floor_takes_the_rung_of_the_others() {
        let bounded = |bound_ms: u64, accuracy_floor| Contract {
            latency_bound: Some(Duration::from_millis(bound_ms)),
            accuracy_floor,
            on_infeasible: OnInfeasible::Skip,
            ..Contract::default()
        };
        let (contract, looker) = (bounded(100, Some(0.9)), Contract { priority: 3, ..bounded(20, None) });
        let alone = Joint::of([&contract]).expect("it gives a floor");
        assert_eq!(Joint::of([&looker, &contract]), Some(alone));
        let curious = Contract { on_infeasible: OnInfeasible::Degrade, ..looker.clone() };
        assert_eq!(Joint::of([&curious, &contract]), Some(Joint { degrade: true, ..alone }));
        assert_eq!(Joint::of([&looker]), None);
    }

    /// The list for users names every state once, in order of precedence.
    #[test]
    fn the_document_lists_the_states_in_order() {
        let document = include_str!("../../../../docs/contracts.md");
        let rows = document.lines().skip_while(|line| !line.starts_with("| state |")).skip(2);
        let names = rows.map_while(|row| row.strip_prefix("| `")?.split_once('`').map(|(name, _)| name));
        // The list has a name that is reserved for later, and is no state yet.
        let names: Vec<&str> = names.filter(|name| *name != "learning").collect();
        assert_eq!(names, ContractState::ALL.map(ContractState::name));
        assert!((1..=9).all(|code| ContractState::from_code(code).is_some_and(|state| state as u8 == code)));
        assert_eq!([0, 10].map(ContractState::from_code), [None; 2]);
    }

    #[test]
    fn meaningless_bounds_are_refused() {
        let good = Contract { accuracy_floor: Some(0.95), ..Contract::default() };
        assert_eq!(good.validate(), Ok(()));
        for bad in [
            Contract { latency_bound: Some(Duration::ZERO), ..good.clone() },
            Contract { accuracy_floor: Some(1.01), ..good.clone() },
            Contract { accuracy_floor: Some(f64::NAN), ..good.clone() },
            Contract { on_time_share: 0.0, ..good.clone() },
            Contract { min_fps: -1.0, ..good.clone() },
            Contract { min_fps: f64::INFINITY, ..good.clone() },
        ] {
            assert!(bad.validate().is_err(), "{bad:?} was accepted");
        }
    }
}
