//! Defines a record: a frame in a log, with its account of missing frames and its size in the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::buffer::memory_of;
use crate::frame::{Frame, Quality, SkipRange};
use crate::trace::FrameTrace;
use crate::units::Instant;

/// The size of one record besides its payload and its stage times, rounded up. It counts in every budget for records.
pub(crate) const RECORD_OVERHEAD_BYTES: u64 = 256;
/// The most that a record takes besides its payload, including its stage times, rounded up. A log must have room for this beside the largest payload.
pub(crate) const RECORD_OVERHEAD_BYTES_MAX: u64 = 512;
/// The size of a record's stage times, if it has any. It counts in the log's budget.
const TRACE_BYTES: u64 = (size_of::<FrameTrace>() + 2 * size_of::<usize>()) as u64;
const _: () = assert!(RECORD_OVERHEAD_BYTES + TRACE_BYTES <= RECORD_OVERHEAD_BYTES_MAX);

/// A frame in a log, with the account of the frames missing before it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Record {
    /// The frame.
    pub frame: Frame,
    /// Frames of the same epoch between the previous record and this one that are not in the log, in order.
    pub skipped: Arc<[SkipRange]>,
    /// The quality that the camera states. Empty in a camera's own log, and after a restart.
    pub quality: Quality,
    /// When the frame passed each stage on its way here. `None` in a camera's own log, for frames from disk, and for frames of the past.
    pub trace: Option<Arc<FrameTrace>>,
    /// Payload bytes that crossed the link for this frame, before the edge decoded it. `None` in a camera's own log, for
    /// frames from disk, and after a restart.
    pub link_bytes: Option<u32>,
    /// When the record was appended, by the clock of the broker that holds the log. [`Instant::ZERO`] if an earlier start of this broker appended it.
    pub arrived: Instant,
}

impl Record {
    /// Whether the frame came after a silence of its link, with a newer frame right behind it.
    pub fn is_overtaken(&self) -> bool {
        self.trace.as_ref().is_some_and(|trace| trace.overtaken)
    }
}

/// The size of a record in a log's budget, in bytes.
pub(super) fn footprint(payload_bytes: usize, is_stamped: bool) -> u64 {
    let stamps = if is_stamped { TRACE_BYTES } else { 0 };
    memory_of(payload_bytes) as u64 + RECORD_OVERHEAD_BYTES + stamps
}

/// Wraps a payload so that it counts in its log's budget until its last holder drops it.
pub(super) fn accounted(payload: Bytes, bytes: u64, total: &Arc<AtomicU64>) -> Bytes {
    total.fetch_add(bytes, Ordering::Relaxed);
    Bytes::from_owner(Accounted { payload, bytes, total: Arc::clone(total) })
}

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
        let before = self.total.fetch_sub(self.bytes, Ordering::Relaxed);
        // Every byte that is released was counted when it was appended.
        debug_assert!(before >= self.bytes, "a log lets go of more bytes than it holds");
    }
}
