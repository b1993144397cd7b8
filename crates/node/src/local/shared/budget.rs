//! Bounds how much memory a broker shares with its clients.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of memory that all connections of a process may share with their clients at once, beyond the budgets of the logs. Beyond that,
/// payloads go through the sockets.
const SHARED_BYTES_MAX: u64 = 8 << 20;

static PROCESS: Budget = Budget { shared_bytes: AtomicU64::new(0), shared_bytes_max: SHARED_BYTES_MAX };

#[derive(Debug)]
struct Budget {
    shared_bytes: AtomicU64,
    shared_bytes_max: u64,
}

/// A part of [`SHARED_BYTES_MAX`], given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: &'static Budget,
    bytes: u64,
}

impl Share {
    /// Takes a part, if so much is left.
    pub(super) fn take(bytes: u64) -> Option<Self> {
        PROCESS.take(bytes)
    }
}

impl Budget {
    fn take(&'static self, bytes: u64) -> Option<Share> {
        let taken = self.shared_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |shared| {
            shared.checked_add(bytes).filter(|sum| *sum <= self.shared_bytes_max)
        });
        // Not `then_some`: a share that was not taken must not be given back.
        taken.is_ok().then(|| Share { of: self, bytes })
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
        static TEN: Budget = Budget { shared_bytes: AtomicU64::new(0), shared_bytes_max: 10 };
        assert!(TEN.take(11).is_none() && TEN.take(u64::MAX).is_none());
        let six = TEN.take(6).unwrap();
        assert!(TEN.take(5).is_none());
        let four = TEN.take(4).unwrap();
        assert!(TEN.take(1).is_none());
        drop(six);
        assert!(TEN.take(6).is_some());
        drop(four);
        assert!(TEN.take(10).is_some());
    }
}
