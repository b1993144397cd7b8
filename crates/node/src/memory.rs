//! The process-wide pool of memory for received payloads.

use std::sync::LazyLock;

use bytes::Bytes;
use mez_core::buffer::{Buffer, BufferPool};

/// The most free memory that the process keeps for the next payloads, beyond the budgets of the logs.
pub const KEPT_BYTES_MAX: u64 = 12 << 20;

static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(KEPT_BYTES_MAX));

/// An empty buffer with room for `bytes`, which is allocated at once. Check untrusted sizes first.
pub(crate) fn buffer(bytes: usize) -> Buffer {
    POOL.take(bytes)
}

/// A copy in memory of the pool.
pub(crate) fn pooled(data: &[u8]) -> Bytes {
    let mut copy = buffer(data.len());
    copy.extend_from_slice(data);
    copy.freeze()
}

/// Memory blocks of this size or more are returned to the system when they are freed.
const LARGE_BYTES: i32 = 256 << 10;

/// Free memory that the allocator keeps at the end of a heap. The default is 128 KiB, less than the datagrams of one frame.
/// With the default, the pages of every frame would be returned to the kernel, which would clear them for the next frame.
const KEPT_AT_END_BYTES: i32 = 2 << 20;

/// The most heaps of the allocator. Each keeps free memory at its end. The default is eight
/// per processor. Two are enough, because each thread serves small blocks from its own cache.
const HEAPS_MAX: i32 = 2;

/// Makes the allocator return large blocks to the system as soon as they are freed, in the whole process. For programs that are only a broker.
///
/// By default, glibc returns only blocks above a size that it raises to the largest freed block, up to 32 MiB. Frames of varying
/// size then leave holes: about a third of a log's budget after ten minutes (`mez bench memory`). The
/// pool above keeps memory that is needed again soon, so returning the rest costs almost nothing.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: this only sets numbers in the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_END_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX);
    }
}
