//! Counts the connections of each principal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;

use super::principal::Principal;
use super::{ApiError, Limit};

/// The connections of all principals.
pub(super) struct Places {
    /// Has no more principals than connections.
    taken: Mutex<Vec<(Principal, usize)>>,
    per_principal_max: AtomicUsize,
}

impl Places {
    pub(super) fn new(per_principal_max: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), per_principal_max: per_principal_max.into() })
    }

    /// Sets a new limit. Open connections stay.
    pub(super) fn set_max(&self, per_principal_max: usize) {
        self.per_principal_max.store(per_principal_max, Ordering::Relaxed);
    }

    /// Counts one more connection of `principal`.
    pub(super) fn enter(self: &Arc<Self>, principal: &Principal) -> Result<PrincipalsPlace, ApiError> {
        let per_principal_max = self.per_principal_max.load(Ordering::Relaxed);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.iter_mut().find(|(owner, _)| owner == principal) {
            Some((_, connections)) if *connections >= per_principal_max => {
                warn!(%principal, connections, "the principal has reached its limit of connections; a new connection was closed");
                return Err(ApiError::exhausted(
                    "TOO_MANY_CONNECTIONS",
                    Limit::of_principal("connections_per_principal_max", *connections, principal),
                    format!(
                        "{principal} has {connections} connections to this broker, which is the limit for one principal; close some, or let one \
                         subscription follow several cameras with a pattern such as dock/*"
                    ),
                ));
            }
            Some((_, connections)) => *connections += 1,
            None => taken.push((principal.clone(), 1)),
        }
        Ok(PrincipalsPlace { principal: principal.clone(), of: Arc::clone(self) })
    }
}

/// A connection that counts for its principal until this is dropped.
pub(super) struct PrincipalsPlace {
    principal: Principal,
    of: Arc<Places>,
}

impl Drop for PrincipalsPlace {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain_mut(|(owner, connections)| {
            *connections -= usize::from(*owner == self.principal);
            *connections > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_principal_leaves_places_to_others() {
        let places = Places::new(2);
        let (greedy, other) = (Principal::User { uid: 1000 }, Principal::User { uid: 1001 });
        let first = places.enter(&greedy).unwrap_or_else(|error| panic!("{error}"));
        let _second = places.enter(&greedy).unwrap_or_else(|error| panic!("{error}"));
        let refused = places.enter(&greedy).err().expect("there is no third");
        assert_eq!(refused.limit.expect("it is named").name, "connections_per_principal_max");
        assert!(places.enter(&other).is_ok());
        drop(first);
        assert!(places.enter(&greedy).is_ok());
        assert_eq!(places.taken.lock().unwrap().len(), 1, "who has none takes no room");
    }
}
