//! What becomes of each contract of a demand, where not all can be kept together.

use super::codec::{Reader, WireError, Write};
use super::demand::CONTRACTS_MAX;
use crate::contract::settle::Verdict;

/// What becomes of each contract of a demand, where the demand has several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The revision of the demand.
    pub revision: u64,
    /// In the order of its contracts; `None`: the camera has not looked at it. Empty: they are not settled between.
    pub verdicts: Vec<Option<Verdict>>,
}

impl Settled {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.revision);
        let verdicts = &self.verdicts[..self.verdicts.len().min(CONTRACTS_MAX)];
        out.u8(verdicts.len() as u8);
        for verdict in verdicts {
            let (code, with) = match verdict {
                None => (0, 0),
                Some(Verdict::Kept) => (1, 0),
                Some(Verdict::Conflict { with }) => (2, *with as u8),
                Some(Verdict::Outvoted) => (3, 0),
                Some(Verdict::Infeasible) => (4, 0),
            };
            out.u8(code);
            out.u8(with);
        }
    }

    /// A conflict with nobody, or with itself, is taken for one with all the others.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let revision = r.u64("revision")?;
        let count = usize::from(r.u8("verdicts")?);
        if count > CONTRACTS_MAX {
            let (length, max) = (count as u64, CONTRACTS_MAX as u64);
            return Err(WireError::TooLong { field: "verdicts", length, max });
        }
        let mut verdicts = Vec::with_capacity(count);
        for place in 0..count {
            let (code, with) = (r.u8("verdict")?, usize::from(r.u8("with")?));
            verdicts.push(match code {
                1 => Some(Verdict::Kept),
                2 if with < count && with != place => Some(Verdict::Conflict { with }),
                2 | 3 => Some(Verdict::Outvoted),
                4 => Some(Verdict::Infeasible),
                _ => None,
            });
        }
        Ok(Self { revision, verdicts })
    }
}
