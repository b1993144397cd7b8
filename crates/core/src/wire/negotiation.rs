//! Encodes the outcome of each contract of a demand, if not all of them can be kept together.

use super::codec::{Reader, WireError, Write};
use super::demand::CONTRACTS_MAX;
use crate::contract::negotiation::ContractOutcome;

/// The outcome of each contract of a demand with several contracts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NegotiationResult {
    /// The revision of the demand.
    pub revision: u64,
    /// One outcome per contract, in the order of the demand. `None`: the camera has not
    /// judged the contract. Empty: the camera does not choose between these contracts.
    pub outcomes: Vec<Option<ContractOutcome>>,
}

impl NegotiationResult {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.revision);
        let outcomes = &self.outcomes[..self.outcomes.len().min(CONTRACTS_MAX)];
        out.u8(outcomes.len() as u8);
        for verdict in outcomes {
            let (code, with) = match verdict {
                None => (0, 0),
                Some(ContractOutcome::Kept) => (1, 0),
                Some(ContractOutcome::Conflict { with }) => (2, *with as u8),
                Some(ContractOutcome::Outvoted) => (3, 0),
                Some(ContractOutcome::Infeasible) => (4, 0),
            };
            out.u8(code);
            out.u8(with);
        }
    }

    /// A conflict that names no other contract, or the contract itself, counts as outvoted by all others.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let revision = r.u64("revision")?;
        let count = usize::from(r.u8("outcomes")?);
        if count > CONTRACTS_MAX {
            let (length, max) = (count as u64, CONTRACTS_MAX as u64);
            return Err(WireError::TooLong { field: "outcomes", length, max });
        }
        let mut outcomes = Vec::with_capacity(count);
        for place in 0..count {
            let (code, with) = (r.u8("outcome")?, usize::from(r.u8("with")?));
            outcomes.push(match code {
                1 => Some(ContractOutcome::Kept),
                2 if with < count && with != place => Some(ContractOutcome::Conflict { with }),
                2 | 3 => Some(ContractOutcome::Outvoted),
                4 => Some(ContractOutcome::Infeasible),
                _ => None,
            });
        }
        Ok(Self { revision, outcomes })
    }
}
