//! The open subscriptions of a broker. Limits their number, and forwards requests from outside their streams.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mez_core::contract::Contract;
use mez_core::contract::monitor::TakenReport;
use mez_core::name::CameraName;
use tokio::sync::Notify;
use tonic::Code;

use super::lent::Lending;
use super::principal::Principal;
use super::request::check_originals;
use super::{ApiError, ApiLimits, Limit};
use crate::profiles::HeldProfile;

/// The open subscriptions of a broker.
pub struct Subscriptions {
    open: Mutex<Open>,
    limits: Mutex<ApiLimits>,
    lending: Arc<Lending>,
}

#[derive(Default)]
struct Open {
    last_id: u64,
    by_id: HashMap<u64, (Principal, Arc<Control>)>,
}

/// Requests to a subscription from outside its stream.
#[derive(Default)]
pub(super) struct Control {
    pub(super) unsubscribed: Notify,
    /// Signals a new request.
    pub(super) came: Notify,
    /// Whether the subscription wants originals. Its contract then has no floor.
    pub(super) originals: AtomicBool,
    /// Whether the subscription is a member of a group. All members then have one contract.
    pub(super) is_of_group: AtomicBool,
    asked: Mutex<ControlRequests>,
}

/// Requests to a subscription that it has not processed yet.
#[derive(Default)]
pub(super) struct ControlRequests {
    /// The new contract. Of several changes, the last one counts.
    pub(super) update: Option<Update>,
    /// Whether one of the new contracts contains a profile of its own.
    pub(super) brings_profile: bool,
    /// Reports of the accuracy of the application's results.
    pub(super) accuracies: VecDeque<(CameraName, f64)>,
    /// Reports of the times when the application took frames.
    pub(super) taken: VecDeque<(CameraName, TakenReport)>,
    /// Cameras whose chain the application cannot decode any further.
    pub(super) undecodable: Vec<CameraName>,
}

impl Control {
    /// Takes all requests.
    pub(super) fn take(&self) -> ControlRequests {
        std::mem::take(&mut *self.lock())
    }

    fn request(&self, request: impl FnOnce(&mut ControlRequests)) {
        request(&mut self.lock());
        self.came.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, ControlRequests> {
        // Each statement leaves the requests consistent, so a poisoned lock is safe to use.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most cameras that wait for a restart of their chain. Beyond that, new requests are ignored. The client repeats them.
const UNDECODABLE_MAX: usize = 256;

/// The most accuracies that wait. Beyond that, the oldest are dropped.
const ACCURACIES_MAX: usize = 256;

/// The most reports of taken frames that wait. Beyond that, the oldest are
/// dropped, and their frames are judged by the time when they were handed over.
const TAKEN_MAX: usize = 1024;

/// A contract, with the profile that it names.
pub(super) type Update = (Contract, Option<Arc<HeldProfile>>);

impl Subscriptions {
    /// Starts without subscriptions, with these limits.
    pub fn new(limits: ApiLimits) -> Arc<Self> {
        let lending = Lending::new(limits.reader_memory, limits.past_bytes_per_second);
        Arc::new(Self { open: Mutex::default(), limits: Mutex::new(limits), lending })
    }

    /// Sets new limits. Open subscriptions stay, even beyond the limits.
    pub(super) fn set_limits(&self, limits: ApiLimits) {
        *self.limits() = limits;
        self.lending.set_limits(limits.reader_memory, limits.past_bytes_per_second);
    }

    /// The memory for payloads on their way.
    pub(super) fn lending(&self) -> &Arc<Lending> {
        &self.lending
    }

    /// Registers one more subscription, if the limits allow it.
    pub fn enter(self: &Arc<Self>, principal: &Principal) -> Result<Place, ApiError> {
        let ApiLimits { subscriptions_max, subscriptions_per_principal_max, .. } = *self.limits();
        let mut open = self.lock();
        let own = open.by_id.values().filter(|(owner, _)| owner == principal).count();
        if own >= subscriptions_per_principal_max {
            return Err(ApiError::exhausted(
                "TOO_MANY_SUBSCRIPTIONS",
                Limit::of_principal(
                    "subscriptions_per_principal_max",
                    subscriptions_per_principal_max,
                    principal,
                ),
                format!(
                    "{principal} has {own} subscriptions, which is the limit for one principal; end some, or let one subscription follow several \
                     cameras with a pattern such as dock/*"
                ),
            ));
        }
        if open.by_id.len() >= subscriptions_max {
            return Err(ApiError::exhausted(
                "TOO_MANY_SUBSCRIPTIONS",
                Limit::of_broker("subscriptions_max", subscriptions_max),
                format!("this broker has {} subscriptions, which is its limit; end some", open.by_id.len()),
            ));
        }
        open.last_id += 1;
        let (id, control) = (open.last_id, Arc::<Control>::default());
        open.by_id.insert(id, (principal.clone(), Arc::clone(&control)));
        Ok(Place { id, control, principal: principal.clone(), all: Arc::clone(self) })
    }

    /// Ends a subscription of `principal`.
    pub fn unsubscribe(&self, principal: &Principal, id: u64) -> Result<(), ApiError> {
        self.control_of(principal, id)?.unsubscribed.notify_one();
        Ok(())
    }

    /// Changes the contract of a subscription of `principal`. `brings_profile`: the contract contains a profile of its own.
    pub(super) fn update(
        &self,
        principal: &Principal,
        id: u64,
        update: Update,
        brings_profile: bool,
    ) -> Result<(), ApiError> {
        let control = self.control_of(principal, id)?;
        if control.originals.load(Ordering::Relaxed) {
            check_originals(&update.0)?;
        }
        if control.is_of_group.load(Ordering::Relaxed) {
            let message =
                "all members of a group share one contract; end all members, and join with another contract";
            return Err(ApiError::new(Code::FailedPrecondition, "CONTRACT_OF_GROUP", message).at("contract"));
        }
        control.request(|requests| {
            requests.update = Some(update);
            requests.brings_profile |= brings_profile;
        });
        Ok(())
    }

    /// Takes in how accurate a result of a subscription of `principal` was.
    pub(super) fn measured(
        &self,
        principal: &Principal,
        id: u64,
        measured: (CameraName, f64),
    ) -> Result<(), ApiError> {
        self.control_of(principal, id)?.request(|requests| {
            if requests.accuracies.len() == ACCURACIES_MAX {
                requests.accuracies.pop_front();
            }
            requests.accuracies.push_back(measured);
        });
        Ok(())
    }

    /// Takes in when the application of a subscription of `principal` took frames.
    pub(super) fn taken(
        &self,
        principal: &Principal,
        id: u64,
        taken: Vec<(CameraName, TakenReport)>,
    ) -> Result<(), ApiError> {
        self.control_of(principal, id)?.request(|asks| {
            let surplus = (asks.taken.len() + taken.len()).saturating_sub(TAKEN_MAX);
            asks.taken.drain(..surplus.min(asks.taken.len()));
            asks.taken.extend(taken);
        });
        Ok(())
    }

    /// Restarts the chain of a camera for a subscription of `principal`.
    pub(super) fn restart_chain(
        &self,
        principal: &Principal,
        id: u64,
        camera: CameraName,
    ) -> Result<(), ApiError> {
        self.control_of(principal, id)?.request(|requests| {
            if requests.undecodable.len() < UNDECODABLE_MAX && !requests.undecodable.contains(&camera) {
                requests.undecodable.push(camera);
            }
        });
        Ok(())
    }

    /// A subscription of `principal`. Subscriptions of others are not found, so that their numbers stay secret.
    fn control_of(&self, principal: &Principal, id: u64) -> Result<Arc<Control>, ApiError> {
        let open = self.lock();
        let entry = open.by_id.get(&id).filter(|(owner, _)| owner == principal);
        entry.map(|(_, control)| Arc::clone(control)).ok_or_else(|| {
            ApiError::new(
                Code::NotFound,
                "UNKNOWN_SUBSCRIPTION",
                format!("{principal} has no subscription {id}; it may have ended already"),
            )
            .at("subscription_id")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Each statement leaves the entries consistent, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> MutexGuard<'_, ApiLimits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of an open subscription. Dropping it removes the entry.
pub struct Place {
    pub(super) id: u64,
    pub(super) control: Arc<Control>,
    pub(super) principal: Principal,
    all: Arc<Subscriptions>,
}

impl Place {
    /// The memory that the broker's applications share.
    pub(super) fn lending(&self) -> &Arc<Lending> {
        &self.all.lending
    }

    /// How many readers of a camera are needed to share its pictures. 0: pictures are never shared.
    pub(super) fn shared_pictures_from(&self) -> usize {
        self.all.limits().shared_pictures_from
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} of {})", self.id, self.principal)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_ends_the_subscription_of_another() {
        let all = Subscriptions::new(ApiLimits { subscriptions_max: 8, ..ApiLimits::default() });
        let (mine, another) = (Principal::User { uid: 1000 }, Principal::User { uid: 1001 });
        let place = all.enter(&mine).unwrap();
        let refused = all.unsubscribe(&another, place.id).unwrap_err();
        let unknown = all.unsubscribe(&another, place.id + 1).unwrap_err();
        // The two errors must not reveal which numbers exist.
        assert_eq!((refused.code, &refused.reason), (unknown.code, &unknown.reason));
        assert_eq!(all.unsubscribe(&mine, place.id), Ok(()));
    }

    /// The error names the limit and whose limit it is. Another principal still gets a place.
    #[test]
    fn one_principal_gets_a_part_of_all_places() {
        let limits =
            ApiLimits { subscriptions_max: 4, subscriptions_per_principal_max: 3, ..ApiLimits::default() };
        let all = Subscriptions::new(limits);
        let (greedy, other) = (Principal::User { uid: 1000 }, Principal::User { uid: 1001 });
        let mut places: Vec<_> = (0..3).map(|_| all.enter(&greedy).unwrap()).collect();
        let refused = all.enter(&greedy).unwrap_err();
        let limit = refused.limit.expect("the limit is named");
        assert_eq!((limit.name.as_str(), limit.value), ("subscriptions_per_principal_max", 3));
        assert_eq!((refused.code, limit.subject), (Code::ResourceExhausted, greedy.to_string()));
        places.push(all.enter(&other).unwrap());
        let refused = all.enter(&other).unwrap_err();
        assert_eq!(refused.limit.expect("the limit is named").name, "subscriptions_max");
    }

    #[test]
    fn a_place_is_free_again_when_its_subscription_ends() {
        let all = Subscriptions::new(ApiLimits { subscriptions_max: 1, ..ApiLimits::default() });
        let principal = Principal::User { uid: 0 };
        let place = all.enter(&principal).unwrap();
        assert_eq!(all.enter(&principal).unwrap_err().code, Code::ResourceExhausted);
        let first = place.id;
        drop(place);
        assert!(all.enter(&principal).unwrap().id > first, "numbers are never used twice");
    }
}
