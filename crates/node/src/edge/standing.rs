//! Records the contract state of each subscription, for those who ask about a camera.

use std::collections::{BTreeMap, HashMap};

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::{Contract, ContractState};
use mez_core::name::CameraName;

/// How contracts stand, by camera: as many entries as subscriptions have cameras.
pub(super) type Standings = HashMap<CameraName, BTreeMap<SubscriptionId, Standing>>;

/// How one subscription's contract stands on a camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The application's name, for people; may be empty.
    pub application: String,
    /// What it asks.
    pub contract: Contract,
    /// The state.
    pub state: ContractState,
    /// A sentence that says why.
    pub reason: String,
}

/// A subscription reads a camera no more.
pub(super) fn forget(standings: &mut Standings, camera: &CameraName, subscription: SubscriptionId) {
    if let Some(known) = standings.get_mut(camera) {
        known.remove(&subscription);
        if known.is_empty() {
            standings.remove(camera);
        }
    }
}
