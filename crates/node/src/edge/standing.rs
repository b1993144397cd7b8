//! Records the contract state of each subscription, for those who ask about a camera.

use std::collections::{BTreeMap, HashMap};

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::{Contract, ContractState};
use mez_core::name::CameraName;

/// Contract states by camera: one entry per subscription and camera that it reads.
pub(super) type Standings = HashMap<CameraName, BTreeMap<SubscriptionId, Standing>>;

/// The state of one subscription's contract on a camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The application's name, for people; may be empty.
    pub application: String,
    /// The contract.
    pub contract: Contract,
    /// The state.
    pub state: ContractState,
    /// A sentence with the reason.
    pub reason: String,
}

/// Removes a subscription that no longer reads a camera.
pub(super) fn forget(standings: &mut Standings, camera: &CameraName, subscription: SubscriptionId) {
    if let Some(known) = standings.get_mut(camera) {
        known.remove(&subscription);
        if known.is_empty() {
            standings.remove(camera);
        }
    }
}
