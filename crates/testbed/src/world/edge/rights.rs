//! Holds the rights in force at an edge, and lets streams notice changes.

use mez_core::rights::Rights;

/// The rights in force, and how often they have changed.
pub(in crate::world) struct RightsInForce {
    pub(in crate::world) now: Rights,
    pub(in crate::world) changes: u64,
}

impl RightsInForce {
    pub(super) const fn new(rights: Rights) -> Self {
        Self { now: rights, changes: 0 }
    }

    /// Replaces the rights.
    pub(in crate::world) fn set(&mut self, rights: Rights) {
        self.now = rights;
        self.changes += 1;
    }
}
