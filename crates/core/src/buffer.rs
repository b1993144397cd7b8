//! Reuses the buffers of payloads.
//!
//! The kernel clears each of the 256 pages of a new megabyte, which costs more than copying a frame into it.
//! A log at its budget frees as many bytes as it takes in, so its freed buffers serve the next frames.
//! Between one power of two and the next there are eight buffer sizes, so that frames of about the same size
//! fit into each other's buffers.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;

/// The smallest payload that gets a pooled buffer. The allocator already keeps smaller memory without
/// returning it to the kernel.
const POOLED_BYTES_MIN: usize = 64 << 10;
/// The largest payload that gets a pooled buffer: the default limit of a frame
/// ([`crate::frame::FRAME_BYTES_MAX`]). Larger ones are rare, and keeping memory for them would waste it.
const POOLED_BYTES_MAX: usize = 32 << 20;
/// Buffer sizes from one power of two to the next. With eight, a buffer is at most an eighth larger than its
/// payload.
const SIZES_PER_DOUBLING: usize = 8;
/// The most free buffers of one size. It bounds the queue that is allocated for each size: 256 of the
/// smallest are 16 MiB.
const KEPT_OF_SIZE_MAX: usize = 256;

/// A pool of free buffers. Cheap to clone; all clones are one pool.
#[derive(Clone)]
pub struct BufferPool(Arc<Shared>);

struct Shared {
    /// The free buffers, by size.
    kept: Box<[Size]>,
    kept_bytes: AtomicU64,
    kept_bytes_max: u64,
    /// How many buffers were taken so far.
    takes: AtomicU64,
}

/// The free buffers of one size.
struct Size {
    buffers: ArrayQueue<Vec<u8>>,
    /// The value of `takes` when a buffer of this size was last taken.
    taken: AtomicU64,
}

impl BufferPool {
    /// A pool that keeps at most `kept_bytes_max` bytes of free buffers.
    pub fn new(kept_bytes_max: u64) -> Self {
        let size_max = size_index(POOLED_BYTES_MAX);
        let kept = (0..=size_max).map(|index| {
            let fit = kept_bytes_max / size_bytes(index) as u64;
            let buffers = ArrayQueue::new((fit as usize).clamp(1, KEPT_OF_SIZE_MAX));
            Size { buffers, taken: AtomicU64::new(0) }
        });
        let (kept_bytes, takes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self(Arc::new(Shared { kept: kept.collect(), kept_bytes, kept_bytes_max, takes }))
    }

    /// An empty buffer with room for `bytes`.
    pub fn take(&self, bytes: usize) -> Buffer {
        let kept = pooled(bytes).and_then(|index| {
            let size = &self.0.kept[index];
            size.taken.store(self.0.takes.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            size.buffers.pop()
        });
        if let Some(kept) = &kept {
            self.0.kept_bytes.fetch_sub(kept.capacity() as u64, Ordering::Relaxed);
        }
        let content = kept.unwrap_or_else(|| Vec::with_capacity(memory_of(bytes)));
        Buffer { content, pool: Arc::clone(&self.0) }
    }

    /// Bytes of free buffers.
    pub fn kept_bytes(&self) -> u64 {
        self.0.kept_bytes.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferPool({} of {} bytes kept)", self.kept_bytes(), self.0.kept_bytes_max)
    }
}

/// An empty buffer of a pool, to be filled. It returns to the pool when it is dropped, or, after
/// [`Buffer::freeze`], when the last holder of the content drops it.
#[derive(Debug)]
pub struct Buffer {
    content: Vec<u8>,
    pool: Arc<Shared>,
}

impl Buffer {
    /// The content, shareable and no longer mutable.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Shared {
    /// Frees buffers until the pool is within its bound, and returns whether it is. It takes buffers of the
    /// least recently taken size first, and none of a size that was taken later than the size at `index`.
    /// Without this, the free buffers of smaller frames would fill the pool for good when frames become larger.
    fn make_room(&self, index: usize) -> bool {
        while self.kept_bytes.load(Ordering::Relaxed) > self.kept_bytes_max {
            let taken = |size: &&Size| size.taken.load(Ordering::Relaxed);
            let oldest = self.kept.iter().filter(|size| !size.buffers.is_empty()).min_by_key(taken);
            let useless = oldest.filter(|size| taken(size) < taken(&&self.kept[index]));
            let Some(buffer) = useless.and_then(|size| size.buffers.pop()) else { return false };
            self.kept_bytes.fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        }
        true
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BufferPool")
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.content
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.content
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut content = std::mem::take(&mut self.content);
        let bytes = content.capacity();
        // A buffer that grew beyond its original capacity may fit no size of the pool.
        let Some(index) = pooled(bytes).filter(|index| size_bytes(*index) == bytes) else { return };
        if bytes as u64 > self.pool.kept_bytes_max {
            return;
        }
        let kept_bytes = self.pool.kept_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        content.clear();
        let fits = kept_bytes <= self.pool.kept_bytes_max || self.pool.make_room(index);
        if !fits || self.pool.kept[index].buffers.push(content).is_err() {
            self.pool.kept_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// The memory in bytes that a payload of `bytes` bytes occupies.
pub fn memory_of(bytes: usize) -> usize {
    pooled(bytes).map_or(bytes, size_bytes)
}

/// The largest payload that takes no more than `memory` bytes.
pub fn payload_within(memory: usize) -> usize {
    match pooled(memory) {
        Some(index) if size_bytes(index) > memory => size_bytes(index - 1),
        _ => memory,
    }
}

/// The index of a payload's size, if buffers of that size are pooled.
fn pooled(bytes: usize) -> Option<usize> {
    (POOLED_BYTES_MIN..=POOLED_BYTES_MAX).contains(&bytes).then(|| size_index(bytes))
}

/// The index of the smallest size that holds `bytes`, at least [`POOLED_BYTES_MIN`].
fn size_index(bytes: usize) -> usize {
    let doublings = bytes.ilog2() - POOLED_BYTES_MIN.ilog2();
    let base = POOLED_BYTES_MIN << doublings;
    let step = base / SIZES_PER_DOUBLING;
    doublings as usize * SIZES_PER_DOUBLING + (bytes - base).div_ceil(step)
}

/// The bytes of a size.
fn size_bytes(index: usize) -> usize {
    let base = POOLED_BYTES_MIN << (index / SIZES_PER_DOUBLING);
    base + base / SIZES_PER_DOUBLING * (index % SIZES_PER_DOUBLING)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_size_holds_what_it_is_for_and_little_more(bytes in POOLED_BYTES_MIN..=POOLED_BYTES_MAX) {
            let size = memory_of(bytes);
            prop_assert!(size >= bytes && size - bytes <= bytes / 8, "{bytes} in {size}");
            prop_assert_eq!(memory_of(size), size);
            let fits = payload_within(bytes);
            prop_assert!(memory_of(fits) <= bytes && memory_of(fits + 1) > bytes, "{fits} within {bytes}");
        }

        /// The bytes of free buffers are counted exactly and stay within the bound, for any order of takes, fills, overfills and drops.
        #[test]
        fn what_is_kept_is_bounded(
            uses in proptest::collection::vec((0usize..400_000, 0usize..500_000, any::<bool>()), 1..40),
            kept_bytes_max in 0u64..1_500_000,
        ) {
            let pool = BufferPool::new(kept_bytes_max);
            let mut held = Vec::new();
            for (bytes, filled, hold) in uses {
                let mut buffer = pool.take(bytes);
                prop_assert!(buffer.is_empty() && buffer.capacity() >= bytes);
                buffer.extend_from_slice(&vec![7; filled]);
                let frozen = buffer.freeze();
                prop_assert!(frozen.len() == filled && frozen.last().is_none_or(|byte| *byte == 7));
                if hold { held.push(frozen) }
                prop_assert!(pool.kept_bytes() <= kept_bytes_max);
            }
            drop(held);
            prop_assert!(pool.kept_bytes() <= kept_bytes_max);
            let in_queues: usize = pool.0.kept.iter().map(|size| size.buffers.len() * size.buffers.pop().map_or(0, |b| b.capacity())).sum();
            let counted = pool.kept_bytes();
            prop_assert_eq!(in_queues as u64, counted, "all that is kept is counted");
        }
    }

    #[test]
    fn sizes_that_nobody_takes_any_more_make_room() {
        let pool = BufferPool::new(4 << 20);
        drop((0..8).map(|_| pool.take(500_000)).collect::<Vec<_>>());
        assert!(pool.kept_bytes() > 3 << 20, "small frames have left the pool full");
        let large: Vec<_> = (0..3).map(|_| pool.take(1_000_000)).collect();
        let places: Vec<_> = large.iter().map(|buffer| buffer.as_ptr()).collect();
        drop(large);
        let again: Vec<_> = (0..3).map(|_| pool.take(1_000_000)).collect();
        assert!(again.iter().all(|buffer| places.contains(&buffer.as_ptr())));
        // A size in use does not give way to a size that is no longer used.
        let old = pool.take(500_000);
        drop(again);
        let kept = pool.kept_bytes();
        drop(old);
        assert!(pool.kept_bytes() >= kept && pool.kept_bytes() <= 4 << 20);
    }

    #[test]
    fn memory_is_used_again() {
        let pool = BufferPool::new(10 << 20);
        let mut first = pool.take(1_000_000);
        first.extend_from_slice(&[1; 1_000_000]);
        let place = first.as_ptr();
        let shared = first.freeze();
        let second = pool.take(1_000_000);
        assert_ne!(second.as_ptr(), place, "somebody still reads it");
        drop(shared);
        let third = pool.take(990_000);
        assert_eq!((third.as_ptr(), third.len()), (place, 0));
    }
}
