//! Appends frames to a log, and evicts the oldest segments to make room for them.
//!
//! Segments are evicted as a whole, and chains do not end where segments end. So a log may hold the rest of a chain whose first
//! frame was evicted. Readers that had the first frame can still read the rest. New readers start elsewhere ([`LogReader::entry`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reader::LogReader;
use super::record::{Record, accounted, footprint};
use super::ring::{RingConfig, RingWriter, ring};
use crate::chain::{ChainId, begins_chain};
use crate::frame::{Frame, FrameId, Quality, SkipRange};
use crate::units::{Instant, Timestamp};

/// The most live segments of a log.
const SEGMENTS_MAX: usize = 4096;
/// The default segment size of logs of 128 MiB and more. The buffers of an evicted segment are reused for
/// the next frames ([`crate::buffer`]), so a segment should not exceed the bytes that the pool may keep.
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
    /// Readers hold so many evicted frames that the new frame does not fit now.
    #[error("readers still hold {held} of the log's {bytes_max} bytes; release frames that were read")]
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
    let bytes_max = Arc::new(AtomicU64::new(config.bytes_max));
    let reader = LogReader { ring: reader, bytes_max, entry: Arc::default() };
    (
        LogWriter {
            ring: writer,
            reader: reader.clone(),
            config,
            bytes: Arc::default(),
            segment_bytes: 0,
            last: None,
            chains: VecDeque::new(),
        },
        reader,
    )
}

/// Where the first frame of a chain is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// At this index.
    At(u64),
    /// The first frame was evicted.
    Evicted,
    /// The first frame never was in the log. The earliest frame of the chain that came is at this index.
    Missing(u64),
}

/// A chain that has frames in the log.
struct Run {
    chain: ChainId,
    begins: Beginning,
    /// The index of the chain's last frame so far.
    last: u64,
    /// The bytes of the log's budget that the chain's frames took.
    bytes: u64,
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
    /// The chains that have frames in the log, oldest first. At most one for each record.
    chains: VecDeque<Run>,
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

    /// Appends a frame with the quality that the camera states. Evicts like [`LogWriter::append`].
    pub fn append_appraised(
        &mut self,
        frame: Frame,
        skipped: Arc<[SkipRange]>,
        quality: Quality,
        now: Instant,
    ) -> Result<u64, AppendError> {
        self.append_record(Record { frame, skipped, quality, trace: None, link_bytes: None, arrived: now })
    }

    /// Appends a complete record. Evicts like [`LogWriter::append`].
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
        let of_chain = ChainId::of(&meta).map(|chain| (chain, begins_chain(&meta)));
        let new_segment = self.segment_bytes + bytes > self.config.segment_bytes;
        let segments = self.ring.segments();
        let record = Record { frame: Frame { meta, payload }, skipped, quality, trace, link_bytes, arrived };
        let index = self.ring.push(record, new_segment);
        if self.ring.segments() != segments || new_segment {
            self.segment_bytes = 0;
        }
        self.segment_bytes += bytes;
        self.last = Some((id, captured));
        if let Some((chain, begins)) = of_chain {
            self.note_chain(chain, begins, (index, bytes));
        }
        self.note_evicted();
        Ok(index)
    }

    /// Changes the budget. A smaller budget evicts the excess at once, except for frames that readers hold.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.config = LogConfig::with_bytes_max(bytes_max);
        self.reader.bytes_max.store(bytes_max, Ordering::Relaxed);
        // If readers hold more than the new budget, the log exceeds it and accepts no frame until they drop frames.
        let _ = self.make_room(0);
    }

    /// The newest frame's identity and capture time, if there is one.
    pub fn last(&self) -> Option<(FrameId, Timestamp)> {
        self.last
    }

    /// Bytes of records in the log, and of evicted records that readers still hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the newest chain so far, including evicted frames. 0 before the first chain.
    pub fn chain_bytes(&self) -> u64 {
        self.chains.back().map_or(0, |run| run.bytes)
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
            if !self.ring.retire_oldest() {
                return Err(AppendError::Held { held: self.bytes(), bytes_max });
            }
            self.note_evicted();
        }
        Ok(())
    }

    /// Notes that a frame of `chain` with this many bytes was appended at `index`.
    fn note_chain(&mut self, chain: ChainId, begins: bool, (index, bytes): (u64, u64)) {
        if let Some(run) = self.chains.back_mut().filter(|run| run.chain == chain && !begins) {
            (run.last, run.bytes) = (index, run.bytes + bytes);
        } else {
            let begins = if begins { Beginning::At(index) } else { Beginning::Missing(index) };
            self.chains.push_back(Run { chain, begins, last: index, bytes });
        }
        let begins = self.chains.back().map(|run| run.begins);
        let is_passed_over = match begins {
            Some(Beginning::Evicted) => true,
            // A frame before it may still be an entry.
            Some(Beginning::Missing(_)) => self.reader.entry() == index,
            Some(Beginning::At(_)) | None => false,
        };
        if is_passed_over {
            self.reader.entry.fetch_max(index + 1, Ordering::Release);
        }
    }

    /// Moves the entry past the rest of chains whose first frames were evicted.
    fn note_evicted(&mut self) {
        let head = self.reader.ring.head();
        while let Some(run) = self.chains.front_mut() {
            match run.begins {
                Beginning::At(begins) if begins >= head => break,
                // A frame before it may be an entry.
                Beginning::Missing(first) if first > head => break,
                Beginning::At(_) | Beginning::Missing(_) => {
                    run.begins = Beginning::Evicted;
                    self.reader.entry.fetch_max(run.last + 1, Ordering::Release);
                }
                Beginning::Evicted => {}
            }
            let goes_on = self.chains.len() == 1;
            if goes_on || self.chains.front().is_some_and(|run| run.last >= head) {
                break;
            }
            self.chains.pop_front();
        }
    }
}
