//! Maps memory that processes share. This is the only unsafe code of the local protocol.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes before the data: one page with the words of the slots. 64 KiB is the largest page size of any Linux.
const HEAD_BYTES: usize = 64 << 10;
/// The number of words in the head.
pub(super) const WORDS: usize = 16;
/// Nobody can shrink the memory, so access to it never kills a process. Nobody can grow it.
const SIZED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// [`SIZED`], and nobody can add a seal.
const SEALS: SealFlags = SIZED.union(SealFlags::SEAL);
/// [`SEALS`], and nobody can map it for writing any more, whatever the rights of the descriptor. Existing writable mappings stay writable.
const READ_ONLY: SealFlags = SEALS.union(SealFlags::FUTURE_WRITE);

/// What this process may do with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Read the data.
    Read,
    /// Write the data.
    Write,
}

/// Creates a memory file with a head of words and `data_bytes` of data. The kernel
/// allocates pages when they are first touched. Both processes may write the words.
pub(super) fn create(data_bytes: usize) -> io::Result<OwnedFd> {
    let file = sized(HEAD_BYTES + data_bytes)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

/// Creates a memory file with `data_bytes` of data and no words. It may be handed to readers only after [`seal`].
pub(super) fn create_unsealed(data_bytes: usize) -> io::Result<OwnedFd> {
    let file = sized(data_bytes)?;
    rustix::fs::fcntl_add_seals(&file, SIZED)?;
    Ok(file)
}

/// From now on nobody can map the file for writing.
pub(super) fn seal(file: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_add_seals(file, READ_ONLY)?)
}

fn sized(bytes: usize) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create("mez-frames", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    Ok(file)
}

/// Refuses a file of another size, and a file without these seals.
fn check(file: BorrowedFd<'_>, bytes: Option<usize>, seals: SealFlags) -> io::Result<()> {
    let size = rustix::fs::fstat(file)?.st_size;
    let is_it = rustix::fs::fcntl_get_seals(file)?.contains(seals)
        && bytes.is_some_and(|bytes| bytes as u64 == size as u64);
    let error = || io::Error::new(io::ErrorKind::InvalidData, "memory of another size, or not sealed");
    is_it.then_some(()).ok_or_else(error)
}

/// A part of a file, mapped into this process.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread. Its users state what they require of their callers.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, offset: usize, bytes: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses a free address, so no other memory is affected.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, offset as u64)
        }?;
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        Ok(Self { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapped range, unmapped by its only owner, which is being dropped.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast::<c_void>(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Words that two processes read and write.
#[derive(Debug)]
pub(super) struct Words(Mapping);

impl Words {
    /// Maps a file that [`create`] made without data.
    pub(super) fn map(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        check(file, Some(HEAD_BYTES), SEALS)?;
        Self::of(file)
    }

    fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(Mapping::new(file, 0, HEAD_BYTES, Access::Write)?))
    }

    /// A word that both processes read and write.
    pub(super) fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < WORDS, "there are {WORDS} words");
        // SAFETY: within the head, which is mapped for writing as long as `self` lives.
        // Pages are aligned for words, and both processes use only atomic operations there.
        unsafe { AtomicU32::from_ptr(self.0.start.as_ptr().cast::<u32>().add(index)) }
    }
}

/// Data that one process writes and others read.
#[derive(Debug)]
pub(super) struct Data {
    mapping: Mapping,
    access: Access,
}

impl Data {
    /// Maps a file of [`create_unsealed`] for the process that writes it.
    pub(super) fn fill(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map(file.as_fd(), bytes, (SIZED, Access::Write))
    }

    /// Maps a file of [`create_unsealed`] for reading, in the process that created it.
    pub(super) fn read_own(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map(file.as_fd(), bytes, (SIZED, Access::Read))
    }

    /// Maps a file of [`create_unsealed`] for reading, in another process. Refuses a file that somebody could still map for writing.
    pub(super) fn read_sealed(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        Self::map(file.as_fd(), bytes, (READ_ONLY, Access::Read))
    }

    fn map(file: BorrowedFd<'_>, bytes: usize, (seals, access): (SealFlags, Access)) -> io::Result<Self> {
        check(file, Some(bytes), seals)?;
        Ok(Self { mapping: Mapping::new(file, 0, bytes, access)?, access })
    }

    /// Copies `bytes` to `offset`. The caller must make sure that nobody in this process reads there.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.access == Access::Write, "mapped to be read only");
        let place = self.place(offset, bytes.len());
        // SAFETY: `place` is `bytes.len()` bytes within the data, mapped for writing. `bytes` is Rust memory,
        // which no mapping overlaps. No reference into a writable mapping is ever made: `slice` refuses it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) }
    }

    /// Appends the bytes at `offset` to `out`. If the other process changes them meanwhile,
    /// the copy is a mixture of old and new bytes, but it does not change afterwards.
    pub(super) fn read(&self, offset: usize, bytes: usize, out: &mut Vec<u8>) {
        out.reserve(bytes);
        let place = self.place(offset, bytes);
        // SAFETY: `place` is `bytes` bytes within the data, mapped as long as `self` lives and never truncated (sealed). `out`
        // has room for them. No reference is made to memory that another process may write: the bytes are only copied out of it.
        unsafe {
            ptr::copy_nonoverlapping(place.cast_const(), out.as_mut_ptr().add(out.len()), bytes);
            out.set_len(out.len() + bytes);
        }
    }

    /// The bytes at `offset`, in place.
    ///
    /// # Safety
    /// Nobody may write to them while the slice lives.
    pub(super) unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        assert!(self.access == Access::Read, "mapped to be written");
        // SAFETY: within the data, mapped as long as `self` lives. The data cannot be written through
        // this mapping, and the caller guarantees that it is not written through another one.
        unsafe { std::slice::from_raw_parts(self.place(offset, bytes), bytes) }
    }

    fn place(&self, offset: usize, bytes: usize) -> *mut u8 {
        let all = self.mapping.bytes;
        let within = offset.checked_add(bytes).is_some_and(|end| end <= all);
        assert!(within, "{bytes} bytes at {offset} of {all}");
        // SAFETY: just checked.
        unsafe { self.mapping.start.as_ptr().add(offset) }
    }
}

/// Words, followed by data.
#[derive(Debug)]
pub(super) struct Memory {
    words: Words,
    data: Data,
}

impl Memory {
    /// Maps a file that [`create`] made here or in the broker's process. Refuses a file that could be truncated.
    pub(super) fn map(file: impl AsFd, data_bytes: usize, access: Access) -> io::Result<Self> {
        let file = file.as_fd();
        check(file, HEAD_BYTES.checked_add(data_bytes), SEALS)?;
        let mapping = Mapping::new(file, HEAD_BYTES, data_bytes, access)?;
        Ok(Self { words: Words::of(file)?, data: Data { mapping, access } })
    }

    /// A word of the head, see [`Words::word`].
    pub(super) fn word(&self, index: usize) -> &AtomicU32 {
        self.words.word(index)
    }

    /// The data.
    pub(super) fn data(&self) -> &Data {
        &self.data
    }
}
