//! Encodes what applications require of a camera.

use std::time::Duration;

use super::codec::{Reader, WireError, Write};
use crate::contract::{Contract, OnInfeasible};

/// The most contracts in a demand. If there are more, the edge sends the first.
pub const CONTRACTS_MAX: usize = 64;

/// What the applications want of a camera. Without contracts, the camera sends nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The revision of the demand, from one edge for one camera. The camera ignores older revisions.
    pub revision: u64,
    /// One contract per subscription: those with an accuracy floor first, and of these the highest priority
    /// first.
    pub contracts: Vec<Contract>,
}

impl Demand {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.revision);
        let contracts = &self.contracts[..self.contracts.len().min(CONTRACTS_MAX)];
        out.u8(contracts.len() as u8);
        for contract in contracts {
            encode_contract(out, contract);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let revision = r.u64("revision")?;
        let count = usize::from(r.u8("contracts")?);
        if count > CONTRACTS_MAX {
            return Err(WireError::TooLong {
                field: "contracts",
                length: count as u64,
                max: CONTRACTS_MAX as u64,
            });
        }
        let contracts = (0..count).map(|_| decode_contract(r)).collect::<Result<_, _>>()?;
        Ok(Self { revision, contracts })
    }
}

/// Encodes a contract. 0 stands for "no bound", since a contract's bound is never 0.
fn encode_contract(out: &mut Vec<u8>, contract: &Contract) {
    let bound = contract.latency_bound.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    out.u64(bound);
    out.f64(contract.accuracy_floor.unwrap_or(f64::NAN));
    out.f64(contract.on_time_share);
    out.u8(u8::from(contract.profile.is_some()));
    out.extend_from_slice(&contract.profile.unwrap_or_default());
    out.f64(contract.min_fps);
    out.u8(contract.on_infeasible as u8);
    out.i32(contract.priority);
}

fn decode_contract(r: &mut Reader<'_>) -> Result<Contract, WireError> {
    let bound = r.u64("latency_bound")?;
    let floor = r.f64("accuracy_floor")?;
    let on_time_share = r.f64("on_time_share")?;
    let has_profile = r.u8("has profile")? != 0;
    let hash = r.fixed::<32>("profile")?;
    let min_fps = r.f64("min_fps")?;
    let code = r.u8("on_infeasible")?;
    let contract = Contract {
        latency_bound: (bound > 0).then(|| Duration::from_nanos(bound)),
        accuracy_floor: (!floor.is_nan()).then_some(floor),
        on_time_share,
        profile: has_profile.then_some(hash),
        min_fps,
        on_infeasible: OnInfeasible::from_code(code)
            .ok_or(WireError::Value { field: "on_infeasible", value: code.into() })?,
        priority: r.i32("priority")?,
    };
    contract.validate().map_err(|_| WireError::Value { field: "contract", value: 0 })?;
    Ok(contract)
}
