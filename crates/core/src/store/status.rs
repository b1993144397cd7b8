//! How a log on disk is doing.

use std::time::Duration;

use crate::frame::FrameId;

/// Why the promises of durability are suspended for now. The log goes on in memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Degraded {
    /// No room is left.
    #[error("the disk is full: {0}; make room, or lower the log's budget on disk")]
    Full(String),
    /// The storage may not be written.
    #[error("the log may not be written: {0}")]
    Denied(String),
    /// Reading or writing fails.
    #[error("the storage fails: {0}")]
    Failing(String),
    /// The storage does not keep up: frames wait longer than half a second for it.
    #[error("the storage is too slow: frames have waited {} ms to be written", .0.as_millis())]
    Slow(Duration),
}

/// How a log on disk is doing. Counts are since the broker's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Why the promises of durability are suspended, if they are.
    pub degraded: Option<Degraded>,
    /// The newest frame that the storage has, and that outlives the broker.
    pub written: Option<FrameId>,
    /// The newest frame that outlives a power cut, with all before it. Never known with `async` durability.
    pub durable: Option<FrameId>,
    /// Records written.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Frames that left memory before they could be written: they are not on disk.
    pub lost: u64,
    /// How often `degraded` began.
    pub degradations: u64,
    /// Bytes that the log takes on disk.
    pub disk_bytes: u64,
    /// Segments that it has there.
    pub segments: u64,
}
