//! Holds the applications' subscriptions, and combines their contracts on each camera.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::types::{NamedContract, SubscriptionId};
use crate::contract::{Contract, OnInfeasible};
use crate::name::{CameraName, CameraPattern};
use crate::profile::ProfileHash;
use crate::rights::Granted;
use crate::subscription::SubscriptionSpec;
use crate::units::{ClockAnchor, Instant};
use crate::wire::CONTRACTS_MAX;

/// The shortest time between two changes of a subscription's contract. Of more changes, the last counts.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

struct Entry {
    pattern: CameraPattern,
    granted: Granted,
    contract: Contract,
    /// How long frames take from the edge to its application.
    way: Duration,
    /// Whether the application wants originals, which are fetched where contracts make frames smaller.
    originals: bool,
    /// Its contract counts only while no other subscription wants the camera.
    looks_on: bool,
    /// Its application's name, for people.
    application: String,
    /// The next contract, which takes effect as soon as a change is allowed again.
    pending: Option<Contract>,
    /// When the contract last changed.
    updated: Instant,
    /// When the subscription stops wanting new frames. After that: when it stops waiting for cameras.
    ends: Option<Instant>,
    /// Whether it wants frames published from now on. If not, it only waits for cameras whose past it reads.
    is_live: bool,
    /// Until when it waits for cameras whose past it reads, even after it stopped wanting new frames.
    patience: Option<Instant>,
}

impl Entry {
    /// Whether its pattern selects a camera, and its rights allow the camera.
    fn selects(&self, camera: &CameraName) -> bool {
        self.pattern.matches(camera) && self.granted.allows(camera)
    }

    /// Whether it wants new frames of a camera.
    fn wants(&self, camera: &CameraName) -> bool {
        self.is_live && self.selects(camera)
    }

    /// The contract that a camera is asked to keep. Its latency bound is shorter by the way from the edge to the application, but not below
    /// half of the bound. A subscription to originals asks for no frame at another rung, so it causes none below another contract's floor.
    fn asks_camera(&self) -> Contract {
        let bound = self.contract.latency_bound.map(|bound| bound - self.way.min(bound / 2));
        let on_infeasible = if self.originals { OnInfeasible::Skip } else { self.contract.on_infeasible };
        Contract { latency_bound: bound, on_infeasible, ..self.contract.clone() }
    }

    /// When the pending contract takes effect.
    fn update_due(&self) -> Option<Instant> {
        self.pending.as_ref().map(|_| self.updated + UPDATE_INTERVAL)
    }
}

/// The order of contracts on a camera: those with an accuracy floor first, then by priority. A
/// contract without a floor takes the rung of the others, and must not push them out of the demand.
fn rank(contract: &Contract) -> (bool, Reverse<i32>) {
    (contract.accuracy_floor.is_none(), Reverse(contract.priority))
}

/// The result of a new subscription.
pub(super) struct Subscribed {
    /// Whether it wants new frames, or waits for a camera.
    pub(super) stays: bool,
    /// Until when it waits for cameras that are not known yet and whose past it wants.
    pub(super) patience: Option<Instant>,
}

/// The subscriptions that want new frames or wait for cameras.
#[derive(Default)]
pub(super) struct Subscriptions {
    entries: BTreeMap<SubscriptionId, Entry>,
}

impl Subscriptions {
    // ---- getters ------------------------------------------------------------------------------------------

    /// How many subscriptions want a camera's new frames.
    pub(super) fn wanting(&self, camera: &CameraName) -> usize {
        self.entries.values().filter(|entry| entry.wants(camera)).count()
    }

    /// Whether a subscription is for this camera alone.
    pub(super) fn are_for(&self, camera: &CameraName) -> bool {
        self.entries.values().any(|entry| entry.pattern.as_camera().as_ref() == Some(camera))
    }

    /// The subscriptions that read a camera's log.
    pub(super) fn readers(&self, camera: &CameraName) -> Vec<SubscriptionId> {
        let matching = self.entries.iter().filter(|(_, entry)| entry.selects(camera));
        matching.map(|(id, _)| *id).collect()
    }

    /// The contracts that a camera is asked to keep, at most as many as a demand holds: those with an accuracy floor first, then by priority.
    pub(super) fn contracts(&self, camera: &CameraName) -> Vec<Contract> {
        let mut contracts: Vec<Contract> =
            self.asking(camera).map(|(_, entry)| entry.asks_camera()).collect();
        contracts.sort_by_key(rank);
        contracts.truncate(CONTRACTS_MAX);
        contracts
    }

    /// The contracts on a camera with the subscriptions that they belong to, without a limit to their number.
    pub(super) fn demands(&self, camera: &CameraName) -> Vec<NamedContract> {
        let mut demands: Vec<NamedContract> = self
            .asking(camera)
            .map(|(id, entry)| NamedContract {
                subscription: id,
                application: entry.application.clone(),
                contract: entry.contract.clone(),
            })
            .collect();
        demands.sort_by_key(|demand| rank(&demand.contract));
        demands
    }

    /// The subscriptions whose contracts a camera is asked to keep. Those that only look on are left out while there is another one.
    fn asking(&self, camera: &CameraName) -> impl Iterator<Item = (SubscriptionId, &Entry)> {
        let wanting = || self.entries.iter().filter(|(_, entry)| entry.wants(camera));
        let others = wanting().any(|(_, entry)| !entry.looks_on);
        wanting().filter(move |(_, entry)| !(others && entry.looks_on)).map(|(id, entry)| (*id, entry))
    }

    /// Whether a contract for a camera names a profile.
    pub(super) fn name_profile(&self, camera: &CameraName, profile: ProfileHash) -> bool {
        self.entries.values().any(|entry| entry.contract.profile == Some(profile) && entry.wants(camera))
    }

    /// When [`Subscriptions::handle_ends`] or [`Subscriptions::handle_updates`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let ends = self.entries.values().filter_map(|entry| entry.ends);
        ends.chain(self.entries.values().filter_map(Entry::update_due)).min()
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// An application subscribes. Until `expected`, cameras may connect that are not
    /// known yet and whose past it wants. `is_whole`: all its cameras are known.
    pub(super) fn handle_subscribe(
        &mut self,
        clock: &ClockAnchor,
        id: SubscriptionId,
        asked: SubscriptionSpec,
        (expected, is_whole): (Option<Instant>, bool),
    ) -> Subscribed {
        let originals = asked.wants_originals();
        let SubscriptionSpec { cameras: pattern, granted, contract, span, application, looks_on, .. } = asked;
        let patience = expected.filter(|until| span.begin.is_some() && !is_whole && clock.monotonic < *until);
        let is_live = span.is_live(clock.wall);
        let stays = is_live || patience.is_some();
        if stays {
            let entry = Entry {
                pattern,
                granted,
                contract,
                way: Duration::ZERO,
                originals,
                looks_on,
                application,
                pending: None,
                updated: Instant::ZERO,
                ends: if is_live { span.ends_at(clock) } else { patience },
                is_live,
                patience,
            };
            self.entries.insert(id, entry);
        }
        Subscribed { stays, patience }
    }

    /// A subscription is over. Returns whether it was known.
    pub(super) fn handle_unsubscribe(&mut self, id: SubscriptionId) -> bool {
        self.entries.remove(&id).is_some()
    }

    /// A camera was reset: the subscriptions that read it end.
    pub(super) fn handle_reset(&mut self, camera: &CameraName) -> Vec<SubscriptionId> {
        self.entries.extract_if(.., |_, entry| entry.selects(camera)).map(|(id, _)| id).collect()
    }

    /// A subscription changes its contract, which takes effect as soon as a change is allowed. Returns whether the subscription is known.
    pub(super) fn handle_update(&mut self, id: SubscriptionId, contract: Contract) -> bool {
        let entry = self.entries.get_mut(&id);
        entry.map(|entry| entry.pending = Some(contract)).is_some()
    }

    /// Frames take `way` from the edge to an application. Returns whether this changes what cameras are asked for.
    pub(super) fn handle_way(&mut self, id: SubscriptionId, way: Duration) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let before = entry.asks_camera();
        entry.way = way;
        entry.asks_camera() != before
    }

    /// Applies the contract changes that are due. Returns whether a contract has changed.
    pub(super) fn handle_updates(&mut self, now: Instant) -> bool {
        let mut changed = false;
        for entry in self.entries.values_mut() {
            if entry.update_due().is_some_and(|due| now >= due)
                && let Some(contract) = entry.pending.take()
            {
                entry.updated = now;
                changed |= entry.contract != contract;
                entry.contract = contract;
            }
        }
        changed
    }

    /// Ends the subscriptions that are over. Returns whether one has ended.
    pub(super) fn handle_ends(&mut self, now: Instant) -> bool {
        let mut ended = false;
        self.entries.retain(|_, entry| {
            if entry.ends.is_none_or(|ends| now < ends) {
                return true;
            }
            ended = true;
            (entry.ends, entry.is_live) = (entry.patience, false);
            entry.ends.is_some_and(|ends| now < ends)
        });
        // A subscription that neither wants frames nor waits for a camera would stay for ever.
        debug_assert!(
            self.entries.values().all(|entry| entry.is_live || entry.ends.is_some()),
            "a subscription that wants nothing never ends"
        );
        ended
    }
}
