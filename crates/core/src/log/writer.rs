//! Appends frames to a log, and evicts the oldest segments to make room for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reader::LogReader;
use super::record::{Record, accounted, footprint};
use super::ring::{RingConfig, RingWriter, ring};
use crate::frame::{Frame, FrameId, Quality, SkipRange};
use crate::units::{Instant, Timestamp};

/// The most live segments of a log.
const SEGMENTS_MAX: usize = 4096;
/// The default segment size of logs of 128 MiB and more. The buffers of an evicted segment are reused for the
/// next frames ([`crate::buffer`]), so a segment should not exceed what may be kept for them.
const SEGMENT_BYTES: u64 = 8 << 20;
/// The most records in a segment.
const SEGMENT_RECORDS_MAX: usize = 256;

/// The limits of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The budget in bytes, for payloads and records, including evicted ones that readers still hold. Default
    /// 256 MiB: a minute of 300 kB frames at 15 frames per second. The oldest segment makes room for the
    /// newest frame.
    pub bytes_max: u64,
    /// The size at which a segment is closed. A segment is evicted as a whole. Default: a sixteenth of the
    /// budget, at most 8 MiB.
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

/// Why a frame was not appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The frame is not later than the newest frame of the log.
    #[error("frame {new} does not come after the last frame {last} of the log")]
    OutOfOrder {
        /// The newest frame in the log.
        last: FrameId,
        /// The frame that was refused.
        new: FrameId,
    },
    /// The capture time is not later than that of the previous frame of the epoch.
    #[error("capture time {new} is not after that of the last frame, {last}; give increasing times, or none")]
    CaptureTime {
        /// The capture time of the newest frame in the log.
        last: Timestamp,
        /// The capture time that was refused.
        new: Timestamp,
    },
    /// The frame is larger than the log's budget.
    #[error("a frame of {bytes} bytes does not fit into a log of {bytes_max} bytes; raise the log's budget")]
    LargerThanLog {
        /// The frame's size.
        bytes: u64,
        /// The log's budget.
        bytes_max: u64,
    },
    /// Readers hold so many evicted frames that this one does not fit now.
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

    /// Appends a frame with what the camera says about its quality. Evicts like [`LogWriter::append`].
    pub fn append_appraised(
        &mut self,
        frame: Frame,
        skipped: Arc<[SkipRange]>,
        quality: Quality,
        now: Instant,
    ) -> Result<u64, AppendError> {
        self.append_record(Record { frame, skipped, quality, trace: None, link_bytes: None, arrived: now })
    }

    /// Appends a record with all that is known of the frame. Evicts like [`LogWriter::append`].
    pub fn append_record(&mut self, record: Record) -> Result<u64, AppendError> {
        let Record { frame, skipped, quality, trace, link_bytes, arrived } = record;
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
        let payload = accounted(payload, bytes, &self.bytes);
        debug_assert!(self.bytes() <= self.config.bytes_max, "a log holds more than its budget");
        let chain_continues = meta.chain.index > 0;
        let new_segment = self.segment_bytes + bytes > self.config.segment_bytes;
        let segments = self.ring.segments();
        let record = Record { frame: Frame { meta, payload }, skipped, quality, trace, link_bytes, arrived };
        let index = self.ring.push(record, new_segment);
        if self.ring.segments() != segments || new_segment {
            self.segment_bytes = 0;
        }
        self.segment_bytes += bytes;
        self.last = Some((id, captured));
        if chain_continues && index == self.reader.ring.head() {
            // Everything that the frame depends on was evicted to make room for it.
            self.ring.advance_head(index + 1);
        }
        Ok(index)
    }

    /// Changes the budget. A smaller one evicts the excess at once, as far as readers have let go of it.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.config = LogConfig::with_bytes_max(bytes_max);
        self.reader.bytes_max.store(bytes_max, Ordering::Relaxed);
        // If readers hold the entire log, it exceeds the new budget until they let go, and accepts no frame
        // until then.
        let _ = self.make_room(0);
    }

    /// The newest frame's identity and capture time, if there is one.
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
            // Only whole chains are kept: the rest of a chain without its beginning cannot be decoded. It is
            // hidden before it is evicted, so that no reader finds a log that begins inside a chain.
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
