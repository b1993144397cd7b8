//! Updates the state of the log on disk after every step.

use std::time::Duration;

use super::{SLOW_AFTER, StoreWriter};
use crate::store::config::Durability;
use crate::store::status::Degraded;
use crate::store::storage::{Storage, StorageErrorKind};
use crate::units::Instant;

impl<S: Storage> StoreWriter<S> {
    /// Updates the state as of this step.
    pub(super) fn note_status(&mut self, now: Instant) {
        if self.failure.is_some() && !self.cursor.is_ready() {
            // No data is at risk until the next frame comes.
            self.failure = None;
        }
        let behind = self.cursor.is_ready();
        self.behind_since = self.behind_since.filter(|_| behind).or(behind.then_some(now));
        let behind = self.behind_since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        let syncing = self.syncing.as_ref().map_or(Duration::ZERO, |s| now.saturating_since(s.started));
        // A late step was delayed by the storage, or by a machine that is equally busy.
        let step = now.saturating_since(self.due);
        let slow = behind.max(syncing).max(step);
        let degraded = match &self.failure {
            Some((_, error)) => Some(match error.kind {
                StorageErrorKind::Full => Degraded::Full(error.text.clone()),
                StorageErrorKind::Denied => Degraded::Denied(error.text.clone()),
                StorageErrorKind::Missing | StorageErrorKind::NotAFile | StorageErrorKind::Io => {
                    Degraded::Failing(error.text.clone())
                }
            }),
            None => (slow > SLOW_AFTER).then_some(Degraded::Slow(slow)),
        };
        if degraded.is_some() && self.status.degraded.is_none() {
            self.status.degradations += 1;
        }
        self.status.degraded = degraded;
        self.status.written = self.written.frame.or(self.status.written);
        if self.config.durability != Durability::Async {
            self.status.durable = self.durable.frame.or(self.status.durable);
        }
        self.status.disk_bytes = self.disk_bytes();
        self.status.segments = self.closed.len() as u64 + u64::from(self.open.is_some());
    }
}
