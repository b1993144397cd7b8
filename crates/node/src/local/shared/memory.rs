//! Maps memory that two processes share. It is the only unsafe code of the local protocol.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes before the data: one page with the words of the slots. 64 KiB is the largest page of any Linux.
const HEAD_BYTES: usize = 64 << 10;
/// Words that the head may hold.
pub(super) const WORDS: usize = 16;
/// Nobody can shrink the memory, so touching it never kills a process. Nobody can grow it or remove these seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What this process may do with the data. Both may alter the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read it.
    Read,
    /// Fill it.
    Write,
}

/// Makes a file in memory of so many bytes of data, which the kernel does not take before they are touched.
pub(super) fn create(data_bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("mez-frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, (HEAD_BYTES + data_bytes) as u64)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// A mapping of such a file.
#[derive(Debug)]
pub(super) struct Memory {
    head: NonNull<u8>,
    data: NonNull<u8>,
    data_bytes: usize,
    access: Access,
}

// SAFETY: the mapping belongs to no thread; the words are atomic, and the methods say what they ask of callers about the data.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps a file that [`create`] made here or in the broker's process. Refuses a file that could be truncated.
    pub(super) fn map(file: impl AsFd, data_bytes: usize, access: Access) -> io::Result<Self> {
        let file = file.as_fd();
        let bytes = HEAD_BYTES.checked_add(data_bytes).map(|bytes| bytes as u64);
        let size = rustix::fs::fstat(file)?.st_size;
        if !rustix::fs::fcntl_get_seals(file)?.contains(SEALS) || Some(size as u64) != bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "memory of another size, or not sealed"));
        }
        let map = |offset: usize, bytes: usize, access| {
            let protection = match access {
                Access::Read => ProtFlags::READ,
                Access::Write => ProtFlags::READ | ProtFlags::WRITE,
            };
            // SAFETY: the kernel chooses an address that is free, so no other memory is touched.
            let start = unsafe {
                rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset as u64)
            }?;
            Ok::<_, io::Error>(
                NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at 0 unasked"),
            )
        };
        let head = map(0, HEAD_BYTES, Access::Write)?;
        let data = map(HEAD_BYTES, data_bytes, access).inspect_err(|_| unmap(head, HEAD_BYTES))?;
        Ok(Self { head, data, data_bytes, access })
    }

    /// A word that both processes read and write.
    pub(super) fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS, "there are {WORDS} words");
        // SAFETY: within the head, which is mapped to be written as long as `self` lives; pages are aligned for words, and both
        // processes use nothing but atomic operations there.
        unsafe { AtomicU32::from_ptr(self.head.as_ptr().cast::<u32>().add(index)) }
    }

    /// Copies `bytes` to `offset`. The caller must make sure that nobody in this process reads there.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.access == Access::Write, "mapped to be read only");
        let place = self.place(offset, bytes.len());
        // SAFETY: `place` is `bytes.len()` bytes within the data, mapped to be written; `bytes` is memory of Rust's, which no
        // mapping overlaps. No reference into data mapped like this is ever made in this process: `slice` refuses.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
    }

    /// Appends the bytes at `offset` to `out`. The other process may change them meanwhile: the copy is then a mixture, but nothing changes
    /// it any more.
    pub(super) fn read(&self, offset: usize, bytes: usize, out: &mut Vec<u8>) {
        out.reserve(bytes);
        let place = self.place(offset, bytes);
        // SAFETY: `place` is `bytes` bytes within the data, mapped as long as `self` lives and never cut short (sealed). `out` has
        // room for them. No reference is made to memory that somebody else may alter, only bytes are copied out of it.
        unsafe {
            ptr::copy_nonoverlapping(place.cast_const(), out.as_mut_ptr().add(out.len()), bytes);
            out.set_len(out.len() + bytes);
        }
    }

    /// The bytes at `offset`, in place.
    ///
    /// # Safety
    /// The other process must not alter them while the slice lives.
    pub(super) unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(self.access == Access::Read, "mapped to be written");
        // SAFETY: within the data, mapped as long as `self` lives; this process cannot alter it, the other one promises not to.
        unsafe { std::slice::from_raw_parts(self.place(offset, bytes), bytes) }
    }

    fn place(&self, offset: usize, bytes: usize) -> *mut u8 {
        let within = offset.checked_add(bytes).is_some_and(|end| end <= self.data_bytes);
        assert!(within, "{bytes} bytes at {offset} of {}", self.data_bytes);
        // SAFETY: just checked.
        unsafe { self.data.as_ptr().add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.head, HEAD_BYTES);
        unmap(self.data, self.data_bytes);
    }
}

fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: what was mapped, whole, by the only owner, who is being dropped.
    let unmapped = unsafe { rustix::mm::munmap(start.as_ptr().cast::<c_void>(), bytes) };
    debug_assert!(unmapped.is_ok(), "{unmapped:?}");
}
