//! Counts the readers of a camera that share its pictures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mez_core::units::Instant;

/// The readers of one camera that take pictures.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Readers that could share.
    readers: AtomicUsize,
    /// Readers that share.
    sharing: AtomicUsize,
    rests_until: Mutex<Instant>,
}

impl Sharing {
    /// How many readers could share.
    pub(super) fn readers(&self) -> usize {
        self.readers.load(Ordering::Acquire)
    }

    /// Whether at least one reader shares.
    pub(crate) fn is_shared(&self) -> bool {
        self.sharing.load(Ordering::Acquire) > 0
    }

    /// Counts a new reader that could share.
    pub(super) fn joins(&self) {
        self.readers.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a reader.
    pub(super) fn leaves(&self) {
        self.readers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts a reader that starts to share.
    pub(super) fn begins(&self) {
        self.sharing.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a reader that stops sharing.
    pub(super) fn ends(&self) {
        self.sharing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a picture could not be made recently, so no reader starts to share.
    pub(super) fn rests(&self, now: Instant) -> bool {
        now < *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No reader starts to share before `until`.
    pub(super) fn rest(&self, until: Instant) {
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}
