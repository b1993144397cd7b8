//! Reports the state of a log on disk.

use std::time::Duration;

use crate::frame::FrameId;

/// Why durability is not guaranteed at present. The log continues in memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Degraded {
    /// No room is left.
    #[error("the disk is full: {0}; free space, or lower the log's budget on disk")]
    Full(String),
    /// The program has no permission to write to the storage.
    #[error("no permission to write the log: {0}; give this user write access to the log's folder")]
    Denied(String),
    /// Reading or writing failed.
    #[error("reading or writing the log failed: {0}; check the disk")]
    Failing(String),
    /// The storage does not keep up: frames have waited for it for longer than
    /// [`SLOW_AFTER`](super::SLOW_AFTER).
    #[error("the storage is too slow: frames have waited {} ms to be written; use a faster disk, or lower the frame rate", .0.as_millis())]
    Slow(Duration),
}

/// Whether one record is safe on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStanding {
    /// The record outlives a crash, as far as the log's [`Durability`](super::Durability)
    /// promises. So does every earlier record of this run that was not reported as missing.
    Certain,
    /// The record is not certain yet.
    Waiting,
    /// The record is not certain and never will be: it was evicted from memory
    /// before it could be written, or published before the broker's present start.
    Missing,
}

/// The state of a log on disk. Counts are since the broker's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Why durability is not guaranteed at present; `None` if it is.
    pub degraded: Option<Degraded>,
    /// The newest frame that was handed to the storage: it outlives the broker.
    pub written: Option<FrameId>,
    /// The newest frame that outlives a power cut, as do all before it. Always `None` with `async`
    /// durability.
    pub durable: Option<FrameId>,
    /// Records written.
    pub records: u64,
    /// Payload bytes of these records.
    pub payload_bytes: u64,
    /// Frames that were evicted from memory before they could be written: they are not on disk.
    pub lost: u64,
    /// How often `degraded` became set.
    pub degradations: u64,
    /// Bytes that the log takes on disk.
    pub disk_bytes: u64,
    /// Segments of the log on disk.
    pub segments: u64,
}
