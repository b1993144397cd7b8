//! The in-memory log: append-only, circular, byte-budgeted, in segments; one writer, many readers.
//!
//! Records are ordered by `(epoch, sequence)`, never by the wall clock. Reads never block the writer and the
//! writer never waits for a reader (`ring.rs`). Payloads are reference-counted: a read copies no pixels. What
//! readers still hold of evicted records counts in the budget until they let go of it.

mod chains;
mod cursor;
mod ring;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

pub use self::chains::{CHAIN_LOG_BYTES_MAX, CHAIN_LOG_FRAMES_MAX, ChainLogWriter, chain_log};
pub use self::cursor::{Cursor, Read};
use self::ring::{RingConfig, RingReader, RingWriter, ring};
use crate::buffer::memory_of;
use crate::frame::{Frame, FrameId, Quality, SkipRange};
use crate::trace::FrameTrace;
use crate::units::{Instant, Timestamp};
use crate::unread::LogShare;

/// What one record costs besides its payload, rounded up; it counts in the budget.
const RECORD_OVERHEAD_BYTES: u64 = 256;
/// What a record's stamps cost, where it has any; counted as well.
const TRACE_BYTES: u64 = (size_of::<FrameTrace>() + 2 * size_of::<usize>()) as u64;
/// The most live segments.
const SEGMENTS_MAX: usize = 4096;
/// The default size of segments in logs of 128 MiB and more. What is evicted at once serves the next frames
/// ([`crate::buffer`]), so it should not be more than may be kept for them.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The most records in a segment.
const SEGMENT_RECORDS_MAX: usize = 256;

/// How much a log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The budget in bytes, of payloads and records, including what readers still hold. Default 256 MiB:
    /// a minute of 300 kB frames at 15 frames per second. The oldest segment makes room for the newest frame.
    pub bytes_max: u64,
    /// The size at which a segment is closed. Default: a sixteenth of the budget, at most 8 MiB. What is evicted at once.
    pub segment_bytes: u64,
}

impl LogConfig {
    /// A log of `bytes_max` bytes in segments of the default size.
    pub const fn with_bytes_max(bytes_max: u64) -> Self {
        let sixteenth = bytes_max / 16;
        Self { bytes_max, segment_bytes: if sixteenth < SEGMENT_BYTES { sixteenth } else { SEGMENT_BYTES } }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::with_bytes_max(256 << 20)
    }
}

/// A frame in a log, with what is known of the frames that are missing before it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Record {
    /// The frame.
    pub frame: Frame,
    /// Frames of the same epoch between the record before and this one that are not in the log, in order.
    pub skipped: Arc<[SkipRange]>,
    /// What its camera says of how good it is; nothing in a camera's own log, and after a restart.
    pub quality: Quality,
    /// When it was at the stages of its way here; nothing in a camera's own log, and of frames that came from a disk or of the past.
    pub trace: Option<Arc<FrameTrace>>,
    /// When the frame was appended, by the clock of the broker that holds the log; [`Instant::ZERO`] if an earlier start
    /// of that broker did it.
    pub arrived: Instant,
}

/// Why a frame was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The frame does not come after the last one in the order of the log.
    #[error("frame {new} does not come after the last frame {last} of the log")]
    OutOfOrder {
        /// The newest frame in the log.
        last: FrameId,
        /// The frame that was refused.
        new: FrameId,
    },
    /// The capture time is not after the last of the same epoch.
    #[error("capture time {new} is not after that of the last frame, {last}; give increasing times, or none")]
    CaptureTime {
        /// The capture time of the newest frame in the log.
        last: Timestamp,
        /// The capture time that was refused.
        new: Timestamp,
    },
    /// The frame can never fit.
    #[error("a frame of {bytes} bytes does not fit into a log of {bytes_max} bytes; raise the log's budget")]
    LargerThanLog {
        /// The frame's size.
        bytes: u64,
        /// The log's budget.
        bytes_max: u64,
    },
    /// Readers hold so much of what was evicted that the frame does not fit now.
    #[error("readers still hold {held} of the log's {bytes_max} bytes; let go of frames that were read")]
    Held {
        /// Bytes that readers hold.
        held: u64,
        /// The log's budget.
        bytes_max: u64,
    },
}

/// Creates an empty log.
pub fn log(config: LogConfig) -> (LogWriter, LogReader) {
    let (writer, reader) =
        ring(RingConfig { segments_max: SEGMENTS_MAX, segment_values_max: SEGMENT_RECORDS_MAX });
    let reader = LogReader { ring: reader, bytes_max: Arc::new(AtomicU64::new(config.bytes_max)) };
    (
        LogWriter {
            ring: writer,
            reader: reader.clone(),
            config,
            bytes: Arc::default(),
            segment_bytes: 0,
            last: None,
        },
        reader,
    )
}

/// The one writer of a log.
pub struct LogWriter {
    ring: RingWriter<Record>,
    reader: LogReader,
    config: LogConfig,
    /// Bytes of records in the log or still held by readers.
    bytes: Arc<AtomicU64>,
    /// Bytes appended to the newest segment.
    segment_bytes: u64,
    last: Option<(FrameId, Timestamp)>,
}

impl LogWriter {
    /// Appends a frame and returns its index. Evicts the oldest whole segments to make room.
    pub fn append(
        &mut self,
        frame: Frame,
        skipped: Arc<[SkipRange]>,
        now: Instant,
    ) -> Result<u64, AppendError> {
        self.append_appraised(frame, skipped, Quality::default(), now)
    }

    /// The same with what the camera says of how good the frame is.
    pub fn append_appraised(
        &mut self,
        frame: Frame,
        skipped: Arc<[SkipRange]>,
        quality: Quality,
        now: Instant,
    ) -> Result<u64, AppendError> {
        self.append_record(Record { frame, skipped, quality, trace: None, arrived: now })
    }

    /// The same with all that is known of the frame.
    pub fn append_record(&mut self, record: Record) -> Result<u64, AppendError> {
        let Record { frame, skipped, quality, trace, arrived } = record;
        let (id, captured) = (frame.meta.id, frame.meta.captured);
        if let Some((last, last_captured)) = self.last {
            if id <= last {
                return Err(AppendError::OutOfOrder { last, new: id });
            }
            if id.epoch == last.epoch && captured <= last_captured {
                return Err(AppendError::CaptureTime { last: last_captured, new: captured });
            }
        }
        let bytes = footprint(frame.payload.len(), trace.is_some());
        self.make_room(bytes)?;

        let Frame { meta, payload } = frame;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let payload = Bytes::from_owner(Accounted { payload, bytes, total: Arc::clone(&self.bytes) });
        let chain_continues = meta.chain.index > 0;
        let new_segment = self.segment_bytes + bytes > self.config.segment_bytes;
        let segments = self.ring.segments();
        let record = Record { frame: Frame { meta, payload }, skipped, quality, trace, arrived };
        let index = self.ring.push(record, new_segment);
        if self.ring.segments() != segments || new_segment {
            self.segment_bytes = 0;
        }
        self.segment_bytes += bytes;
        self.last = Some((id, captured));
        if chain_continues && index == self.reader.ring.head() {
            // All that it depends on was evicted to make room for it.
            self.ring.advance_head(index + 1);
        }
        Ok(index)
    }

    /// Changes the budget; a smaller one evicts at once what no longer fits, as far as readers let go of it.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.config = LogConfig::with_bytes_max(bytes_max);
        self.reader.bytes_max.store(bytes_max, Ordering::Relaxed);
        // A log that readers hold entirely stays above the new budget until they let go, and takes no frame until then.
        let _ = self.make_room(0);
    }

    /// The newest frame's identity and capture time.
    pub fn last(&self) -> Option<(FrameId, Timestamp)> {
        self.last
    }

    /// Bytes in the log and in the hands of its readers.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A reader of this log.
    pub fn reader(&self) -> LogReader {
        self.reader.clone()
    }

    fn make_room(&mut self, bytes: u64) -> Result<(), AppendError> {
        let bytes_max = self.config.bytes_max;
        if bytes > bytes_max {
            return Err(AppendError::LargerThanLog { bytes, bytes_max });
        }
        while self.bytes() + bytes > bytes_max {
            // Whole chains only: what is left of a chain whose beginning goes cannot be decoded. It is hidden first,
            // so that no reader ever finds the log beginning inside a chain.
            let (mut head, tail) = (self.ring.oldest_segment_end(), self.ring.tail());
            while head < tail && self.reader.ring.read(head, |r| r.frame.meta.chain.index > 0) == Some(true) {
                head += 1;
            }
            self.ring.advance_head(head);
            if !self.ring.retire_oldest() {
                return Err(AppendError::Held { held: self.bytes(), bytes_max });
            }
        }
        Ok(())
    }
}

/// What a record takes in a log's budget, in bytes.
fn footprint(payload_bytes: usize, is_stamped: bool) -> u64 {
    let stamps = if is_stamped { TRACE_BYTES } else { 0 };
    memory_of(payload_bytes) as u64 + RECORD_OVERHEAD_BYTES + stamps
}

/// Keeps the log's account of a payload until the last holder lets go of it.
struct Accounted {
    payload: Bytes,
    bytes: u64,
    total: Arc<AtomicU64>,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for Accounted {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads a log, from any thread. Cheap to clone.
#[derive(Clone)]
pub struct LogReader {
    ring: RingReader<Record>,
    /// The writer's budget.
    bytes_max: Arc<AtomicU64>,
}

impl std::fmt::Debug for LogReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader({:?})", self.held())
    }
}

impl LogReader {
    /// The indices that may be read now.
    pub fn held(&self) -> Range<u64> {
        let tail = self.ring.tail();
        self.ring.head().min(tail)..tail
    }

    /// The record at `index`, if it is held.
    pub fn get(&self, index: u64) -> Option<Record> {
        self.ring.get(index)
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
            // Evicted between the two looks; a newer one has come.
        }
    }

    /// The index of the first record at or after `id`, or the end of the log.
    pub fn index_of(&self, id: FrameId) -> u64 {
        self.partition_point(self.held(), |record| record.frame.meta.id < id)
    }

    /// The newest frame captured at or before `time`, among frames of the newest epoch that has any.
    pub fn at(&self, time: Timestamp) -> Option<Record> {
        let runs = self.epochs();
        runs.into_iter().rev().find_map(|run| {
            let end = self.partition_point(run.clone(), |record| record.frame.meta.captured <= time);
            if end > run.start { self.get(end - 1) } else { None }
        })
    }

    /// The indices of frames captured within `begin..=end`, one range for each epoch that has any, in order,
    /// each starting where a chain starts, so that all of it can be decoded.
    pub fn between(&self, begin: Timestamp, end: Timestamp) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for run in self.epochs() {
            let first = self.partition_point(run.clone(), |record| record.frame.meta.captured < begin);
            let last = self.partition_point(first..run.end, |record| record.frame.meta.captured <= end);
            if first < last {
                let index_in_chain = self.ring.read(first, |record| record.frame.meta.chain.index);
                // An H.264 frame's place in its chain is also the number of records since the chain's start at the
                // camera; at a replica with holes it is an upper bound, which `run.start` and the walk below mend.
                let mut start = first.saturating_sub(u64::from(index_in_chain.unwrap_or(0))).max(run.start);
                while start < first && self.ring.read(start, |r| r.frame.meta.chain.index > 0) == Some(true) {
                    start += 1;
                }
                ranges.push(start..last);
            }
        }
        ranges
    }

    /// The capture time of the oldest record.
    pub fn held_from(&self) -> Option<Timestamp> {
        loop {
            let held = self.held();
            if held.is_empty() {
                return None;
            }
            if let Some(captured) = self.ring.read(held.start, |record| record.frame.meta.captured) {
                return Some(captured);
            }
            // Evicted between the two looks.
        }
    }

    /// The record of a frame, if it is held.
    pub fn get_frame(&self, id: FrameId) -> Option<Record> {
        self.get(self.index_of(id)).filter(|record| record.frame.meta.id == id)
    }

    /// Which log this is, and its budget: what readers may hold of evicted records is a part of it ([`crate::unread`]).
    pub fn share(&self) -> LogShare {
        LogShare {
            log: Arc::as_ptr(&self.bytes_max) as usize,
            bytes_max: self.bytes_max.load(Ordering::Relaxed),
        }
    }

    /// A cursor that reads from `index` on.
    pub fn cursor(&self, index: u64) -> Cursor {
        Cursor::new(self.clone(), index)
    }

    /// A cursor that reads what is appended from now on.
    pub fn cursor_at_end(&self) -> Cursor {
        self.cursor(self.ring.tail())
    }

    /// One range of indices for each epoch held: capture times increase within each.
    fn epochs(&self) -> Vec<Range<u64>> {
        let held = self.held();
        let mut runs = Vec::new();
        let mut start = held.start;
        while start < held.end {
            let Some(epoch) = self.ring.read(start, |record| record.frame.meta.id.epoch) else {
                // Evicted meanwhile: go on where the log begins now.
                start = self.held().start.max(start + 1);
                continue;
            };
            let end = self.partition_point(start..held.end, |record| record.frame.meta.id.epoch <= epoch);
            runs.push(start..end);
            start = end.max(start + 1);
        }
        runs
    }

    /// The first index in `range` for which `before` does not hold. Records evicted meanwhile count as before.
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

#[cfg(all(test, not(loom)))]
mod tests;
