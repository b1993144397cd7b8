//! Reads a log by index, frame or capture time, or record by record with a cursor. A cursor holds an index,
//! never a segment.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::Record;
use super::ring::RingReader;
use crate::chain::ChainId;
use crate::frame::{FrameId, FrameMeta};
use crate::reader_memory::LogShare;
use crate::units::{Instant, Timestamp};

/// A reader of a log, for any thread. Cheap to clone.
#[derive(Clone)]
pub struct LogReader {
    pub(super) ring: RingReader<Record>,
    /// The log's budget, which the writer sets.
    pub(super) bytes_max: Arc<AtomicU64>,
    /// The first index at which a new reader may start, as far as the writer has noted. Read it with [`LogReader::entry`].
    pub(super) entry: Arc<AtomicU64>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader({:?})", self.held())
    }
}

impl LogReader {
    /// The indices that may be read now. The first of them may belong to a chain whose
    /// first frame is gone; they are of use only to readers that had the first frame.
    pub fn held(&self) -> Range<u64> {
        let tail = self.ring.tail();
        self.ring.head().min(tail)..tail
    }

    /// The first index at which a new reader may start: from there on, the chain
    /// of every frame begins there or later. The end of the log if there is none.
    pub fn entry(&self) -> u64 {
        let held = self.held();
        self.entry.load(Ordering::Acquire).clamp(held.start, held.end)
    }

    /// The index of the first frame of the chain that `meta` belongs to. `None` if the first frame is not held. A still is a chain of its own.
    pub fn beginning_of(&self, meta: &FrameMeta) -> Option<u64> {
        let chain = ChainId::of(meta);
        let first = chain.map_or(meta.id, |chain| chain.first_frame());
        let index = self.index_of(first);
        let is_first = |found: &FrameMeta| found.id == first && ChainId::of(found) == chain;
        self.ring.read(index, |record| is_first(&record.frame.meta)).unwrap_or(false).then_some(index)
    }

    /// The record at `index`, if it is held.
    pub fn get(&self, index: u64) -> Option<Record> {
        self.ring.get(index)
    }

    /// When the record at `index` was appended, if it is held ([`Record::arrived`]).
    pub fn arrived(&self, index: u64) -> Option<Instant> {
        self.ring.read(index, |record| record.arrived)
    }

    /// The newest record.
    pub fn newest(&self) -> Option<Record> {
        loop {
            let held = self.held();
            if held.is_empty() {
                return None;
            }
            if let Some(record) = self.get(held.end - 1) {
                return Some(record);
            }
            // The record was evicted between the two look-ups, so there is a newer one.
        }
    }

    /// The index of the first record at or after `id`, or the end of the log.
    pub fn index_of(&self, id: FrameId) -> u64 {
        self.partition_point(self.held(), |record| record.frame.meta.id < id)
    }

    /// The newest frame captured at or before `time`, in the newest epoch that has such a frame.
    pub fn at(&self, time: Timestamp) -> Option<Record> {
        let runs = self.epochs();
        runs.into_iter().rev().find_map(|run| {
            let end = self.partition_point(run.clone(), |record| record.frame.meta.captured <= time);
            if end > run.start { self.get(end - 1) } else { None }
        })
    }

    /// The indices of frames captured within `begin..=end`: one range per epoch that
    /// has any, in order. The rest of a chain whose first frame is gone is left out.
    pub fn within(&self, begin: Timestamp, end: Timestamp) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for run in self.epochs() {
            let first = self.partition_point(run.clone(), |record| record.frame.meta.captured < begin);
            let last = self.partition_point(first..run.end, |record| record.frame.meta.captured <= end);
            if first < last {
                ranges.push(first..last);
            }
        }
        ranges
    }

    /// Like [`LogReader::within`], but each range starts where a chain begins, so that all its frames can be decoded.
    pub fn between(&self, begin: Timestamp, end: Timestamp) -> Vec<Range<u64>> {
        let mut ranges = self.within(begin, end);
        for range in &mut ranges {
            let first = self.get(range.start).map(|record| record.frame.meta);
            if let Some(begins) = first.and_then(|first| self.beginning_of(&first)) {
                range.start = range.start.min(begins);
            }
        }
        ranges
    }

    /// The oldest frame that can be decoded with the frames held.
    pub fn oldest(&self) -> Option<FrameMeta> {
        loop {
            let entry = self.entry();
            if entry >= self.ring.tail() {
                return None;
            }
            if let Some(meta) = self.ring.read(entry, |record| record.frame.meta.clone()) {
                return Some(meta);
            }
            // The record was evicted between the two look-ups.
        }
    }

    /// The capture time of the oldest frame that can be decoded with the frames held.
    pub fn held_from(&self) -> Option<Timestamp> {
        self.oldest().map(|oldest| oldest.captured)
    }

    /// The record of a frame, if it is held.
    pub fn get_frame(&self, id: FrameId) -> Option<Record> {
        self.get(self.index_of(id)).filter(|record| record.frame.meta.id == id)
    }

    /// The log's identity and budget. The budget also limits the evicted records that readers hold ([`crate::reader_memory`]).
    pub fn share(&self) -> LogShare {
        LogShare {
            log: Arc::as_ptr(&self.bytes_max) as usize,
            bytes_max: self.bytes_max.load(Ordering::Relaxed),
        }
    }

    /// A cursor that reads from `index` on. `index` must not exceed the end of the log.
    pub fn cursor(&self, index: u64) -> Cursor {
        Cursor { reader: self.clone(), index }
    }

    /// A cursor that reads what is appended from now on.
    pub fn cursor_at_end(&self) -> Cursor {
        self.cursor(self.ring.tail())
    }

    /// One range of indices per epoch in the log, starting at [`LogReader::entry`]. Capture times increase within each range.
    fn epochs(&self) -> Vec<Range<u64>> {
        let held = self.held();
        let mut runs = Vec::new();
        let mut start = self.entry();
        while start < held.end {
            let Some(epoch) = self.ring.read(start, |record| record.frame.meta.id.epoch) else {
                // The record was evicted meanwhile: continue where the log begins now.
                start = self.held().start.max(start + 1);
                continue;
            };
            let end = self.partition_point(start..held.end, |record| record.frame.meta.id.epoch <= epoch);
            runs.push(start..end);
            start = end.max(start + 1);
        }
        runs
    }

    /// The first index in `range` for which `before` is false. Records evicted meanwhile count as true.
    fn partition_point(&self, range: Range<u64>, before: impl Fn(&Record) -> bool) -> u64 {
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.ring.read(middle, &before).unwrap_or(true) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// The result of reading with a cursor.
#[derive(Clone, Debug)]
pub enum Read {
    /// The next record.
    Record(Record),
    /// Records were evicted before they were read. The cursor has moved to the oldest record that the log
    /// still holds.
    Evicted {
        /// How many records were lost.
        records: u64,
    },
    /// Nothing new yet.
    Pending,
}

/// Reads a log from an index on. No record comes twice, and every hole is reported.
#[derive(Clone)]
pub struct Cursor {
    reader: LogReader,
    index: u64,
}

impl Cursor {
    /// The index that is read next.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The log that is read.
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Whether [`Cursor::next`] would return anything but [`Read::Pending`].
    pub fn is_ready(&self) -> bool {
        self.index < self.reader.held().end
    }

    /// The next record, if there is one.
    #[allow(clippy::should_implement_trait, reason = "a cursor is no iterator: `Pending` is not its end")]
    pub fn next(&mut self) -> Read {
        loop {
            if let Some(record) = self.reader.get(self.index) {
                self.index += 1;
                return Read::Record(record);
            }
            let held = self.reader.held();
            if self.index < held.start {
                let records = held.start - self.index;
                self.index = held.start;
                return Read::Evicted { records };
            }
            if self.index >= held.end {
                // A cursor ahead of its log would miss the records appended next.
                debug_assert!(self.index == held.end, "a cursor reads behind the end of its log");
                return Read::Pending;
            }
            // A record was appended or evicted between the two checks: look again.
        }
    }
}
