//! Holds a few of the newest frames, within a small budget that may change.
//!
//! A short log exists beside the log of a camera, with the same ring and readers: a
//! reader holds an index and at most one frame, and the writer waits for no reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::reader::LogReader;
use super::record::{Record, accounted, footprint};
use super::ring::{RingConfig, RingWriter, ring};
use crate::frame::{Frame, FrameId};

/// The most frames that are held: one or two seconds of a stream.
pub const SHORT_LOG_FRAMES_MAX: usize = 32;

/// The one writer of a short log.
pub struct ShortLogWriter {
    ring: RingWriter<Record>,
    /// Bytes of records in the log or still held by readers.
    bytes: Arc<AtomicU64>,
    bytes_max: u64,
    /// The budget, shared with the readers.
    told: Arc<AtomicU64>,
    last: Option<FrameId>,
}

/// Creates an empty log of at most `bytes_max` bytes. Evicted frames that readers still hold count too.
pub fn short_log(bytes_max: u64) -> (ShortLogWriter, LogReader) {
    let (writer, reader) = ring(RingConfig { segments_max: SHORT_LOG_FRAMES_MAX, segment_values_max: 1 });
    let told = Arc::new(AtomicU64::new(bytes_max));
    (
        ShortLogWriter {
            ring: writer,
            bytes: Arc::default(),
            bytes_max,
            told: Arc::clone(&told),
            last: None,
        },
        LogReader { ring: reader, bytes_max: told, entry: Arc::default() },
    )
}

impl ShortLogWriter {
    /// Makes room for a frame by evicting the oldest frames. Returns false if there can be no room: a later
    /// frame is already here, the frame is larger than the log, or readers hold too many evicted frames.
    pub fn admits(&mut self, frame: FrameId, payload_bytes: usize) -> bool {
        let bytes = footprint(payload_bytes, true);
        let is_late = self.last.is_some_and(|last| frame <= last);
        !is_late && bytes <= self.bytes_max && self.make_room(bytes)
    }

    /// Appends a frame if the log [`admits`](Self::admits) it, and returns whether it did.
    pub fn append(&mut self, record: Record) -> bool {
        let id = record.frame.meta.id;
        if !self.admits(id, record.frame.payload.len()) {
            return false;
        }
        let bytes = footprint(record.frame.payload.len(), record.trace.is_some());
        let Frame { meta, payload } = record.frame;
        let payload = accounted(payload, bytes, &self.bytes);
        debug_assert!(self.bytes() <= self.bytes_max, "a log holds more than its budget");
        self.ring.push(Record { frame: Frame { meta, payload }, ..record }, false);
        self.last = Some(id);
        true
    }

    /// Changes the budget. A smaller budget evicts the excess at once, except for frames that readers hold.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
        self.told.store(bytes_max, Ordering::Relaxed);
        self.make_room(0);
    }

    /// Evicts all frames, once no reader needs them.
    pub fn clear(&mut self) {
        while self.ring.retire_oldest() {}
    }

    /// The newest frame.
    pub fn last(&self) -> Option<FrameId> {
        self.last
    }

    /// Bytes of records in the log, and of evicted records that readers still hold.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn make_room(&mut self, bytes: u64) -> bool {
        while self.bytes() + bytes > self.bytes_max {
            if !self.ring.retire_oldest() {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ChainLink, Encoding, Epoch, FrameMeta, Reference, Sequence};
    use crate::sample;
    use crate::units::Timestamp;

    fn record(sequence: u64, bytes: usize) -> Record {
        let reference = if sequence == 0 { Reference::Independent } else { Reference::Previous };
        let meta = FrameMeta {
            encoding: Encoding::H264,
            chain: ChainLink { chain: Sequence(0), index: sequence as u32, reference },
            ..sample::meta(
                FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
                Timestamp::from_nanos(sequence),
            )
        };
        let frame = Frame { meta, payload: vec![0; bytes].into() };
        sample::record(frame)
    }

    /// The middle of a chain stays readable after its beginning was evicted, unlike in a log of stills: the
    /// reader already had the beginning.
    #[test]
    fn the_newest_frames_are_held_within_both_bounds() {
        let (mut writer, reader) = short_log(64 << 10);
        for sequence in 0..100 {
            assert!(writer.append(record(sequence, 100)));
        }
        assert_eq!(reader.held(), 100 - SHORT_LOG_FRAMES_MAX as u64..100);
        assert!(writer.append(record(100, 40_000)));
        assert!(writer.append(record(101, 40_000)));
        assert_eq!((reader.held(), writer.bytes() <= 64 << 10), (101..102, true));
        assert!(!writer.append(record(101, 10)), "it was there already");
        assert!(!writer.append(record(102, 70_000)), "it fits nowhere");
        assert_eq!(reader.held(), 101..102, "others have not gone for it in vain");
    }

    #[test]
    fn what_readers_hold_counts_until_they_let_go_of_it() {
        let (mut writer, reader) = short_log(10_000);
        assert!(writer.append(record(0, 8_000)));
        let held = reader.get(0).unwrap();
        writer.clear();
        assert!(writer.bytes() > 8_000);
        assert!(!writer.append(record(1, 8_000)), "a reader still holds the other");
        drop(held);
        assert_eq!(writer.bytes(), 0);
        assert!(writer.append(record(2, 8_000)));
    }
}
