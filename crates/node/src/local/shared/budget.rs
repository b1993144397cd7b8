//! Limits how much memory a broker shares with its clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// The most bytes that all connections of a process may share with their clients
/// at once, in addition to the logs. Beyond that, payloads go through the sockets.
const SHARED_BYTES_MAX: u64 = 8 << 20;
/// The most bytes of decoded pictures that a process may share with its clients. Beyond that, clients decode themselves.
const PICTURES_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of decoded pictures for the clients of one user of this host.
const PICTURES_BYTES_OF_USER_MAX: u64 = 48 << 20;

static FRAMES: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(SHARED_BYTES_MAX));
static PICTURES: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(PICTURES_BYTES_MAX));
/// The budgets of users with clients. Dead entries belong to users without clients.
static PICTURES_OF_USERS: LazyLock<Mutex<HashMap<u32, Weak<Budget>>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Budget {
    shared_bytes: AtomicU64,
    shared_bytes_max: u64,
}

/// The budgets that memory counts against.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Vec<Arc<Budget>>);

impl Meter {
    /// The budget for payloads of frames.
    pub(crate) fn frames() -> Self {
        Self(vec![Arc::clone(&FRAMES)])
    }

    /// The budgets for decoded pictures of a user of this host.
    pub(crate) fn pictures_of(user: u32) -> Self {
        let mut users = PICTURES_OF_USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, budget| budget.strong_count() > 0);
        let of_user = users.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
            let budget = Budget::new(PICTURES_BYTES_OF_USER_MAX);
            users.insert(user, Arc::downgrade(&budget));
            budget
        });
        Self(vec![of_user, Arc::clone(&PICTURES)])
    }

    /// The budget for decoded pictures that several programs read.
    pub(crate) fn pictures() -> Self {
        Self(vec![Arc::clone(&PICTURES)])
    }

    /// Only the user's budget, for pictures that the user's programs hold and others read too.
    pub(crate) fn of_user_alone(&self) -> Self {
        Self(self.0.iter().take(1).cloned().collect())
    }

    /// Takes a share of `bytes` of each budget. `None`: a budget has not enough left.
    pub(crate) fn take(&self, bytes: u64) -> Option<Vec<Share>> {
        self.0.iter().map(|budget| Budget::take(budget, bytes)).collect()
    }
}

/// A share of a budget. Dropping it returns the share.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    fn new(shared_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { shared_bytes: AtomicU64::new(0), shared_bytes_max })
    }

    fn take(of: &Arc<Self>, bytes: u64) -> Option<Share> {
        let taken = of.shared_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |shared| {
            shared.checked_add(bytes).filter(|sum| *sum <= of.shared_bytes_max)
        });
        // Not `then_some`: a share that was not taken must not be returned.
        taken.is_ok().then(|| Share { of: Arc::clone(of), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.shared_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_shared_than_the_bound_and_what_is_given_back_can_be_taken_again() {
        let ten = Meter(vec![Budget::new(10)]);
        assert!(ten.take(11).is_none() && ten.take(u64::MAX).is_none());
        let six = ten.take(6).unwrap();
        assert!(ten.take(5).is_none());
        let four = ten.take(4).unwrap();
        assert!(ten.take(1).is_none());
        drop(six);
        assert!(ten.take(6).is_some());
        drop(four);
        assert!(ten.take(10).is_some());
    }

    /// One user never gets the whole budget, and a refused request counts nowhere.
    #[test]
    fn pictures_of_one_user_leave_room_for_others() {
        let all = Budget::new(10);
        let of = |bytes| Meter(vec![Budget::new(bytes), Arc::clone(&all)]);
        let (one, other) = (of(7), of(7));
        let seven = one.take(7).unwrap();
        assert!(one.take(1).is_none() && other.take(4).is_none());
        let three = other.take(3).unwrap();
        drop((seven, three));
        assert_eq!(all.shared_bytes.load(Ordering::Relaxed), 0);
        let (first, again) = (Meter::pictures_of(u32::MAX), Meter::pictures_of(u32::MAX));
        assert!(Arc::ptr_eq(&first.0[0], &again.0[0]));
    }
}
