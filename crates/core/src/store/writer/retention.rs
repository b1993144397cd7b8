//! Removes segments from disk: expired ones, and the oldest ones to make room.

use super::{Closed, StoreWriter};
use crate::store::scan::SegmentScan;
use crate::store::storage::{Bounds, Storage, StorageError, StorageErrorKind};
use crate::units::Instant;

impl<S: Storage> StoreWriter<S> {
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), StorageError> {
        let expired = |closed: &Closed| closed.expires.is_some_and(|expires| now >= expires);
        let count = self.closed.iter().take_while(|closed| expired(closed)).count();
        self.remove_oldest(count)
    }

    pub(super) fn make_room(&mut self, bytes: u64) -> Result<(), StorageError> {
        let mut total = self.disk_bytes() + bytes;
        let mut count = 0;
        for closed in &self.closed {
            if total <= self.config.disk_bytes_max {
                break;
            }
            total -= closed.bytes;
            count += 1;
        }
        self.remove_oldest(count)
    }

    pub(super) fn remove_oldest(&mut self, count: usize) -> Result<(), StorageError> {
        let Some(newest) = count.checked_sub(1).and_then(|last| self.closed.get(last)) else { return Ok(()) };
        // Write the bounds first. Then a removed segment stays removed even if a power cut brings its file
        // back.
        let (number, first_index) = (newest.number, self.first_index_of(count));
        let bounds = Bounds { oldest: number.next().max(self.bounds.oldest), first_index, ..self.bounds };
        if bounds != self.bounds {
            self.storage.write_bounds(bounds)?;
            self.bounds = bounds;
        }
        for _ in 0..count {
            if let Some(closed) = self.closed.front() {
                match self.storage.remove(closed.number) {
                    Err(error) if error.kind != StorageErrorKind::Missing => return Err(error),
                    _ => self.closed.pop_front(),
                };
            }
        }
        Ok(())
    }

    /// The index of the first record that remains without the `count` oldest segments; `None` if unknown.
    fn first_index_of(&mut self, count: usize) -> Option<u64> {
        let Some(closed) = self.closed.get(count) else {
            return Some(self.open.as_ref().map_or(self.sealed.index, |open| open.first_index));
        };
        let (number, bytes) = (closed.number, closed.bytes);
        // At its start a broker opens only some segments, to start fast. So the index may not be known yet.
        closed.first_index.or_else(|| {
            let opened =
                SegmentScan::open(&mut self.storage, &self.config.camera, &self.config.keys, number, bytes);
            opened.ok().map(|scan| scan.header().first_index)
        })
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |open| open.bytes);
        self.closed.iter().map(|closed| closed.bytes).sum::<u64>() + open
    }
}
