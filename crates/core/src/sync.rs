//! Names the synchronisation primitives of the log's ring, so that a model checker can replace them:
//! `tests/ring_model.rs` compiles the ring with loom's primitives, and loom explores every interleaving.

pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
};

/// The standard cell with loom's interface.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
