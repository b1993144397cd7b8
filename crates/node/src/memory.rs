//! The pool of memory that payloads are received in, one for the process.

use std::sync::LazyLock;

use bytes::Bytes;
use mez_core::buffer::{Buffer, BufferPool};

/// The most free memory that the process keeps for the next payloads, beyond the budgets of the logs.
pub const KEPT_BYTES_MAX: u64 = 12 << 20;

static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(KEPT_BYTES_MAX));

/// An empty buffer with room for `bytes`. Check the number before: this takes the memory.
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

/// Free memory that the allocator keeps at the end of a heap. The default is 128 KiB, less than the datagrams of one frame. With it, the
/// pages of every frame would be returned to the kernel, which would clear them for the next frame.
const KEPT_AT_END_BYTES: i32 = 2 << 20;

/// Heaps of the allocator. Each keeps free memory at its end, and the default is eight for each processor. Two are enough, because each
/// thread serves small blocks from its own cache.
const HEAPS_MAX: i32 = 2;

/// Has the allocator give large blocks back to the system as soon as they are let go of, in the whole process: for programs that
/// are a broker and nothing else.
///
/// glibc raises the size from which it does so to that of the largest block it has seen, up to 32 MiB; frames of varying size then
/// leave holes that nothing fits into, about a third of a log's budget after ten minutes (`mez bench memory`). The pool above
/// keeps what is needed again soon, so that this costs next to nothing.
pub fn give_large_blocks_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets numbers in the allocator, under the allocator's own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_END_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX);
    }
}
