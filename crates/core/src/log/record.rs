//! A frame in a log, and what it takes there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::buffer::memory_of;
use crate::frame::{Frame, Quality, SkipRange};
use crate::trace::FrameTrace;
use crate::units::Instant;

/// What one record costs besides its payload, rounded up; it counts in the budget.
pub(super) const RECORD_OVERHEAD_BYTES: u64 = 256;
/// What a record's stamps cost, where it has any; counted as well.
const TRACE_BYTES: u64 = (size_of::<FrameTrace>() + 2 * size_of::<usize>()) as u64;
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

/// What a record takes in a log's budget, in bytes.
pub(super) fn footprint(payload_bytes: usize, is_stamped: bool) -> u64 {
    let stamps = if is_stamped { TRACE_BYTES } else { 0 };
    memory_of(payload_bytes) as u64 + RECORD_OVERHEAD_BYTES + stamps
}

/// A payload that counts in its log's account until the last holder lets go of it.
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
        // Whatever is let go of was counted when it came.
        debug_assert!(before >= self.bytes, "a log lets go of more bytes than it holds");
    }
}
