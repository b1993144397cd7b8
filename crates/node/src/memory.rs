//! The memory that payloads arrive in: one pool for the process.

use std::sync::LazyLock;

use mez_core::buffer::{Buffer, BufferPool};

/// What the process keeps for the next payloads, at most. It comes on top of the logs' budgets.
pub const KEPT_BYTES_MAX: u64 = 24 << 20;

static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(KEPT_BYTES_MAX));

/// An empty buffer with room for `bytes`. Check the number before: this takes the memory.
pub(crate) fn buffer(bytes: usize) -> Buffer {
    POOL.take(bytes)
}
