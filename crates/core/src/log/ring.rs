//! Stores the values of a log in an append-only ring of segments, with one writer and many concurrent
//! readers.
//!
//! Readers never block the writer, and the writer never waits for a reader. A reader *pins* a segment while
//! it clones one value. The writer retires a segment in two steps: it makes the segment unfindable, and then
//! checks its pins. If a reader is still inside, the segment waits in limbo, and the writer goes on with
//! another one. Segments are never freed while the ring lives. So a late reader touches valid memory, sees
//! that the segment is no longer the one it looked for, and leaves.
//!
//! The correctness argument is Dekker's store–load pair. The reader writes `pins` and then reads `number`; the writer writes
//! `number` and then reads `pins`. Each executes a sequentially consistent fence in between, so at least one of them sees
//! the other's write. `tests/ring_model.rs` compiles this file with the atomics of loom, which tries every interleaving.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr;

use crate::sync::{Arc, AtomicPtr, AtomicU64, AtomicUsize, Ordering, UnsafeCell, fence};

/// The number of a segment that is not in the directory.
const RETIRED: u64 = u64::MAX;

/// How many segments and values a ring may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingConfig {
    /// The most live segments. The directory takes 8 bytes for each of them.
    pub segments_max: usize,
    /// The most values in a segment.
    pub segment_values_max: usize,
}

struct Segment<T> {
    /// Readers inside the segment, or about to check whether they may enter.
    pins: AtomicUsize,
    /// The segment's number, or [`RETIRED`].
    number: AtomicU64,
    /// The index of its first value.
    first: AtomicU64,
    /// How many values it holds. Readers may read only these.
    len: AtomicUsize,
    values: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

impl<T> Segment<T> {
    fn new(values_max: usize) -> Self {
        Self {
            pins: AtomicUsize::new(0),
            number: AtomicU64::new(RETIRED),
            first: AtomicU64::new(0),
            len: AtomicUsize::new(0),
            values: (0..values_max).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        }
    }

    /// Drops the values.
    ///
    /// # Safety
    /// Nobody else may be reading them: the segment is retired and was seen without pins after a fence.
    unsafe fn clear(&self) {
        let len = self.len.load(Ordering::Relaxed);
        // Emptied first, so that a value whose drop panics is leaked rather than dropped twice.
        self.len.store(0, Ordering::Relaxed);
        for cell in &self.values[..len] {
            // SAFETY: the first `len` values are initialised, and the caller vouches for being alone.
            cell.with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

struct Shared<T> {
    /// Segment `n` is at `n % directory.len()`.
    directory: Box<[AtomicPtr<Segment<T>>]>,
    /// The number of the oldest live segment.
    oldest: AtomicU64,
    /// One past the number of the newest segment.
    newest_end: AtomicU64,
    /// The index of the oldest value that may be read.
    head: AtomicU64,
    /// One past the index of the newest value.
    tail: AtomicU64,
    /// Every segment ever created, to be freed with the ring. Only the writer uses the list, and `drop` at the end.
    segments: UnsafeCell<Vec<*mut Segment<T>>>,
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the writer and all readers are gone, so this is the only access.
        let segments = self.segments.with_mut(|all| unsafe { std::mem::take(&mut *all) });
        for pointer in segments {
            // SAFETY: each pointer came from `Box::into_raw` and stands in the list once.
            let segment = unsafe { Box::from_raw(pointer) };
            // SAFETY: nobody else is left.
            unsafe { segment.clear() };
        }
    }
}

// SAFETY: values are written by the one writer before `len` publishes them and are only cloned from then on,
// through a shared reference; they are dropped by whichever thread retires the segment or drops the ring.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

/// The one writer of a ring.
pub(crate) struct RingWriter<T> {
    shared: Arc<Shared<T>>,
    config: RingConfig,
    /// Live segments, oldest first; the last one takes new values.
    live: VecDeque<*mut Segment<T>>,
    /// Retired segments that a reader was still inside of.
    limbo: Vec<*mut Segment<T>>,
    /// Retired and empty segments, to be reused.
    free: Vec<*mut Segment<T>>,
    next_number: u64,
}

// SAFETY: the raw pointers are owned by this writer and its `Shared`; see there.
unsafe impl<T: Send + Sync> Send for RingWriter<T> {}

/// Any number of readers of a ring.
pub(crate) struct RingReader<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for RingReader<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// An empty ring.
pub(crate) fn ring<T: Clone>(config: RingConfig) -> (RingWriter<T>, RingReader<T>) {
    assert!(
        config.segments_max >= 2 && config.segment_values_max >= 1,
        "a ring needs two segments of one value"
    );
    let shared = Arc::new(Shared {
        directory: (0..config.segments_max).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
        oldest: AtomicU64::new(0),
        newest_end: AtomicU64::new(0),
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
        segments: UnsafeCell::new(Vec::new()),
    });
    let reader = RingReader { shared: Arc::clone(&shared) };
    let writer = RingWriter {
        shared,
        config,
        live: VecDeque::new(),
        limbo: Vec::new(),
        free: Vec::new(),
        next_number: 0,
    };
    (writer, reader)
}

impl<T: Clone> RingWriter<T> {
    /// Appends a value and returns its index. Starts a new segment if `new_segment` or if the newest is full;
    /// if there are `segments_max` segments already, the oldest is retired.
    pub(crate) fn push(&mut self, value: T, new_segment: bool) -> u64 {
        let index = self.tail();
        let full = self.live.back().is_none_or(|segment| {
            // SAFETY: segments live as long as the ring.
            unsafe { &**segment }.len.load(Ordering::Relaxed) == self.config.segment_values_max
        });
        if full || (new_segment && !self.newest_is_empty()) {
            self.open_segment(index);
        }
        let segment = *self.live.back().expect("open_segment has just put one there, or there was one");
        // SAFETY: segments live as long as the ring.
        let segment = unsafe { &*segment };
        let len = segment.len.load(Ordering::Relaxed);
        // A segment starts with the index at which it was opened, and takes all following indices.
        debug_assert_eq!(segment.first.load(Ordering::Relaxed) + len as u64, index, "a segment has a hole");
        debug_assert!(len < self.config.segment_values_max, "a value is appended to a full segment");
        // SAFETY: readers do not look at or beyond `len`, and this is the only writer.
        segment.values[len].with_mut(|cell| unsafe { (*cell).write(value) });
        segment.len.store(len + 1, Ordering::Release);
        self.shared.tail.store(index + 1, Ordering::Release);
        index
    }

    /// Makes the oldest segment unreadable and drops its values as soon as no reader is inside.
    /// Returns false if there is no segment.
    pub(crate) fn retire_oldest(&mut self) -> bool {
        self.sweep_limbo();
        self.advance_head(self.oldest_segment_end());
        let Some(segment) = self.live.pop_front() else { return false };
        // SAFETY: segments live as long as the ring.
        let retired = unsafe { &*segment };
        self.shared.oldest.store(retired.number.load(Ordering::Relaxed) + 1, Ordering::Release);
        retired.number.store(RETIRED, Ordering::Release);
        fence(Ordering::SeqCst);
        self.limbo.push(segment);
        self.sweep_limbo();
        true
    }

    /// Hides values before `index` from readers without freeing them.
    pub(crate) fn advance_head(&mut self, index: u64) {
        self.shared.head.fetch_max(index, Ordering::Release);
    }

    /// One past the index of the last value in the oldest segment; the end of the ring if it is empty.
    pub(crate) fn oldest_segment_end(&self) -> u64 {
        self.live.front().map_or(self.tail(), |segment| {
            // SAFETY: segments live as long as the ring.
            let segment = unsafe { &**segment };
            segment.first.load(Ordering::Relaxed) + segment.len.load(Ordering::Relaxed) as u64
        })
    }

    /// The number of live segments.
    pub(crate) fn segments(&self) -> usize {
        self.live.len()
    }

    /// One past the index of the newest value.
    pub(crate) fn tail(&self) -> u64 {
        self.shared.tail.load(Ordering::Relaxed)
    }

    fn newest_is_empty(&self) -> bool {
        // SAFETY: segments live as long as the ring.
        self.live.back().is_none_or(|segment| unsafe { &**segment }.len.load(Ordering::Relaxed) == 0)
    }

    fn open_segment(&mut self, first: u64) {
        while self.live.len() >= self.config.segments_max {
            self.retire_oldest();
        }
        let pointer = self.free.pop().unwrap_or_else(|| {
            let pointer = Box::into_raw(Box::new(Segment::new(self.config.segment_values_max)));
            // SAFETY: only the writer touches the list while the ring lives.
            self.shared.segments.with_mut(|all| unsafe { (*all).push(pointer) });
            pointer
        });
        // SAFETY: segments live as long as the ring.
        let segment = unsafe { &*pointer };
        let number = self.next_number;
        self.next_number += 1;
        segment.first.store(first, Ordering::Release);
        segment.number.store(number, Ordering::Release);
        let slot = (number % self.shared.directory.len() as u64) as usize;
        self.shared.directory[slot].store(pointer, Ordering::Release);
        self.shared.newest_end.store(self.next_number, Ordering::Release);
        self.live.push_back(pointer);
        // Otherwise two live segments would stand at one place of the directory.
        debug_assert!(self.live.len() <= self.config.segments_max, "more segments live than may");
    }

    fn sweep_limbo(&mut self) {
        let free = &mut self.free;
        self.limbo.retain(|&pointer| {
            // SAFETY: segments live as long as the ring.
            let segment = unsafe { &*pointer };
            if segment.pins.load(Ordering::Acquire) != 0 {
                return true;
            }
            // SAFETY: `number` said RETIRED before the fence in `retire_oldest`; a reader that pins from now
            // on sees that after its own fence and leaves the values alone.
            unsafe { segment.clear() };
            free.push(pointer);
            false
        });
    }
}

impl<T: Clone> RingReader<T> {
    /// The index of the oldest value that may be read.
    pub(crate) fn head(&self) -> u64 {
        self.shared.head.load(Ordering::Acquire)
    }

    /// One past the index of the newest value.
    pub(crate) fn tail(&self) -> u64 {
        self.shared.tail.load(Ordering::Acquire)
    }

    /// The value at `index`, if it has been written and not been retired.
    pub(crate) fn get(&self, index: u64) -> Option<T> {
        self.read(index, T::clone)
    }

    /// Applies `f` to the value at `index`. The segment stays pinned while `f` runs: keep it short.
    pub(crate) fn read<R>(&self, index: u64, f: impl Fn(&T) -> R) -> Option<R> {
        loop {
            if index < self.head() || index >= self.tail() {
                return None;
            }
            if let Some(result) =
                self.find(index).and_then(|(segment, number)| read_pinned(segment, number, index, &f))
            {
                return Some(result);
            }
            // The segment was retired between the look-up and the pin: `head` has moved, so look again.
        }
    }

    /// The live segment whose values include `index`, by binary search over the segments' first indices.
    fn find(&self, index: u64) -> Option<(&Segment<T>, u64)> {
        let mut low = self.shared.oldest.load(Ordering::Acquire);
        let mut high = self.shared.newest_end.load(Ordering::Acquire);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let slot = (middle % self.shared.directory.len() as u64) as usize;
            let pointer = self.shared.directory[slot].load(Ordering::Acquire);
            // SAFETY: a pointer in the directory is null or that of a segment, which lives as long as the
            // ring.
            let segment = unsafe { pointer.as_ref() }?;
            if segment.number.load(Ordering::Acquire) != middle {
                // Retired meanwhile, and so is everything older.
                low = middle + 1;
            } else if segment.first.load(Ordering::Acquire) <= index {
                found = Some((segment, middle));
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        found
    }
}

fn read_pinned<T, R>(segment: &Segment<T>, number: u64, index: u64, f: impl Fn(&T) -> R) -> Option<R> {
    /// Unpins also when `f` panics.
    struct Pin<'a>(&'a AtomicUsize);
    impl Drop for Pin<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Release);
        }
    }
    segment.pins.fetch_add(1, Ordering::Relaxed);
    let _pin = Pin(&segment.pins);
    fence(Ordering::SeqCst);
    if segment.number.load(Ordering::Acquire) != number {
        return None;
    }
    let offset = index.checked_sub(segment.first.load(Ordering::Relaxed))? as usize;
    if offset >= segment.len.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: values below `len` are initialised and stay so while the segment is pinned under its number.
    Some(segment.values[offset].with(|value| f(unsafe { (*value).assume_init_ref() })))
}
