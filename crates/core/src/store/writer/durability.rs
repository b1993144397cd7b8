//! Makes records durable, and gives up the current segment when that fails.

use super::{Closed, RETRY_INTERVAL, StoreWriter, Syncing, Upto};
use crate::frame::FrameId;
use crate::store::config::Durability;
use crate::store::status::RecordStanding;
use crate::store::storage::{Bounds, Progress, Storage, StorageError};
use crate::units::Instant;

impl<S: Storage> StoreWriter<S> {
    /// Whether a record of this run is safe on disk. A record of another run is missing, and so is a record of another edge, which numbers its
    /// own records. With [`Durability::Async`], a record that was handed over counts as certain, because that configuration promises no more.
    pub fn standing(&self, frame: FrameId) -> RecordStanding {
        let certain = if self.config.durability == Durability::Async { self.written } else { self.durable };
        let is_before = |of: Option<FrameId>| of.is_some_and(|first| frame < first);
        if frame.epoch != self.start.0 || is_before(self.whole_from) {
            return RecordStanding::Missing;
        }
        match certain.frame {
            Some(newest) if newest >= frame => RecordStanding::Certain,
            _ => RecordStanding::Waiting,
        }
    }

    /// Sets whether a publisher waits until its records are certain. While one waits, a sync starts as soon
    /// as records are written and no other sync runs. All records that come meanwhile share the next sync.
    pub fn set_awaited(&mut self, awaited: bool) {
        self.awaited = awaited;
    }

    pub(super) fn sync(&mut self, now: Instant) -> Result<(), StorageError> {
        let Some(open) = &self.open else { return Ok(()) };
        let pending = self.durable.index != self.written.index;
        let wanted = match self.config.durability {
            _ if !open.announced => true,
            Durability::Async => false,
            Durability::Group => pending && (self.closing || self.awaited || now >= self.sync_due),
            Durability::Sync => pending,
        };
        if wanted && self.syncing.is_none() {
            self.storage.start_sync(open.number)?;
            self.syncing = Some(Syncing { started: now, upto: Upto::Mark(self.written) });
            self.sync_due = now + self.config.sync_interval;
            self.look_after_sync()?;
        }
        Ok(())
    }

    pub(super) fn look_after_sync(&mut self) -> Result<(), StorageError> {
        if self.syncing.is_none() {
            return Ok(());
        }
        let Some(result) = self.storage.finish_sync() else { return Ok(()) };
        let mark = match self.syncing.take().map(|syncing| syncing.upto) {
            // The result of this sync no longer matters.
            Some(Upto::Nothing) | None => return Ok(()),
            Some(Upto::Before) => {
                result?;
                self.before = None;
                return Ok(());
            }
            Some(Upto::Mark(mark)) => mark,
        };
        result?;
        self.durable = mark;
        self.failure = None;
        self.note_progress();
        if let Some(open) = &mut self.open
            && !open.announced
        {
            let epoch = self.bounds.epoch.max(Some(open.epoch));
            let bounds = Bounds { next: open.number.next(), epoch, ..self.bounds };
            self.storage.write_bounds(bounds)?;
            self.bounds = bounds;
            open.announced = true;
        }
        Ok(())
    }

    /// Writes the progress, so that a log that was cut short is noticed.
    pub(super) fn note_progress(&mut self) {
        let Some(open) = &self.open else { return };
        let durable = match self.config.durability {
            // Without syncs, a segment is closed before its records are known to be durable.
            Durability::Async => self.durable_before,
            _ => self.durable.index,
        };
        let written = Some(self.written.index);
        // If this fails, the previous progress stays. It is still true, but fewer missing records would be noticed.
        let _ = self.storage.write_progress(Progress { segment: open.number, durable, written });
    }

    /// Handles a failure: gives up the current segment, and goes back to the last record that is certain.
    pub(super) fn fail(&mut self, now: Instant, error: StorageError) {
        self.batch.clear();
        self.batch_payload_bytes = 0;
        let certain = if self.config.durability == Durability::Async { self.written } else { self.durable };
        // Records after the last certain one are written again. It is unknown whether the storage has them.
        self.written = certain;
        self.note_progress();
        let useless = self.open.take_if(|open| open.first_index >= certain.index);
        if let Some(open) = useless
            && self.storage.remove(open.number).is_err()
        {
            // The segment still counts, and is removed when its turn comes. Otherwise a full disk would fill up with beginnings of segments.
            let first_index = Some(open.first_index);
            self.closed.push_back(Closed {
                number: open.number,
                bytes: open.bytes,
                first_index,
                expires: None,
            });
        }
        self.give_up_segment(now);
        self.sealed = certain;
        self.cursor = self.cursor.reader().cursor(certain.cursor);
        self.failure = Some((now + RETRY_INTERVAL, error));
    }
}
