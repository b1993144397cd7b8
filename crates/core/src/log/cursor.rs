//! Reads a log in sequence. A cursor holds an index, never a segment, so it cannot keep memory from being
//! reused.

use super::{LogReader, Record};

/// What a cursor found.
#[derive(Clone, Debug)]
pub enum Read {
    /// The next record.
    Record(Record),
    /// Records at this place were evicted before they were read. The cursor has moved on to the oldest record
    /// that the log still holds.
    Evicted {
        /// How many records were lost.
        records: u64,
    },
    /// Nothing new yet.
    Pending,
}

/// Reads a log from an index on, without duplicates and without unnoticed holes.
#[derive(Clone)]
pub struct Cursor {
    reader: LogReader,
    index: u64,
}

impl Cursor {
    pub(super) fn new(reader: LogReader, index: u64) -> Self {
        Self { reader, index }
    }

    /// The index that is read next.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The log that is read.
    pub fn reader(&self) -> &LogReader {
        &self.reader
    }

    /// Whether [`Cursor::next`] would find something.
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
                return Read::Pending;
            }
            // A record was appended or evicted between the two checks: look again.
        }
    }
}
