//! The memory of one camera's pictures at the edge: which slots are in use, which programs map it, and when a new memory replaces it.
//!
//! A program that has mapped a memory can read everything written there later. So a memory is used only
//! while every program that got it still reads the camera with the same rights. After that, pictures go into
//! a new memory, which only programs with the right to it get (`docs/decisions/0049-picture-service.md`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use mez_core::stills::PicturePlace;

use crate::local::shared::{
    Layout, Meter, PICTURE_SLOTS, PictureFile, PictureWriter, SHARED_BYTES_MAX_OF_SLOT, Share, cannot,
};
use crate::rights::LiveRights;

/// The number of the next memory.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The process that writes into a memory. No other process can, once programs have got the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// This process.
    Here,
    /// A decoder in another process, by its number.
    Beside(u64),
}

/// A program that has got a memory. When this is dropped, no more pictures are written into the memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// The program's rights when it got the memory.
    rights: Option<LiveRights>,
}

/// A memory that a program may map, and the program's current rights.
#[derive(Debug)]
pub(crate) struct MayMap {
    pub(crate) memory: Arc<PictureMemory>,
    pub(crate) rights: Option<LiveRights>,
}

impl Mapping {
    fn is_still_so(&self) -> bool {
        self.rights.as_ref().is_none_or(|rights| !rights.has_changed())
    }
}

/// A memory for one camera's pictures.
#[derive(Debug)]
pub(crate) struct PictureMemory {
    number: u64,
    file: PictureFile,
    writer: Writer,
    /// The mapping, if this process is the writer.
    own: Option<PictureWriter>,
    /// One bit for each slot in use.
    used: AtomicU32,
    /// The shares of memory for the slots that were ever used. These are always the first slots.
    counted: Mutex<Vec<Vec<Share>>>,
    programs: Mutex<Vec<Weak<Mapping>>>,
}

impl PictureMemory {
    /// Its unique number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The layout for a program that knows the memory by this number.
    pub(crate) fn layout(&self, number: u8) -> Layout {
        self.file.layout(number)
    }

    /// The size of a slot.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.file.slot_bytes().into()
    }

    /// Gives the memory to a program with these rights. It stays in use while the program holds the returned value and has the same rights.
    pub(crate) fn give(&self, rights: Option<LiveRights>) -> Arc<Mapping> {
        let given = Arc::new(Mapping { rights });
        lock(&self.programs).push(Arc::downgrade(&given));
        given
    }

    /// Whether this writer may still write pictures of `bytes` into it.
    fn is_fit(&self, bytes: usize, writer: Writer) -> bool {
        let may_see = |given: &Weak<Mapping>| given.upgrade().is_some_and(|given| given.is_still_so());
        self.writer == writer && self.file.fits(bytes) && lock(&self.programs).iter().all(may_see)
    }

    /// The first free slot. Its pages were used most recently.
    fn slot(self: &Arc<Self>) -> Option<Slot> {
        let mut counted = lock(&self.counted);
        // Acquire, so that the reads of earlier holders come before the next write.
        let index = (!self.used.load(Ordering::Acquire)).trailing_zeros();
        let index = u8::try_from(index).ok().filter(|index| *index < PICTURE_SLOTS)?;
        if usize::from(index) >= counted.len() {
            counted.push(Meter::pictures().take(self.slot_bytes())?);
        }
        self.used.fetch_or(1 << index, Ordering::AcqRel);
        Some(Slot { memory: Arc::clone(self), index })
    }
}

impl AsFd for PictureMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A slot with a single writer.
#[derive(Debug)]
pub(crate) struct Slot {
    memory: Arc<PictureMemory>,
    index: u8,
}

impl Slot {
    /// The place of the slot.
    pub(crate) fn place(&self) -> PicturePlace {
        PicturePlace { memory: self.memory.number, slot: self.index }
    }

    /// Copies samples into the slot. `None` if they do not fit, or if another process is the writer.
    pub(crate) fn keep(self, samples: &[u8]) -> Option<Bytes> {
        let written = self.memory.own.as_ref()?.write(self.index, samples);
        written.then(|| self.filled(samples.len())).flatten()
    }

    /// The first `bytes` of the slot, which its writer has filled. `None` if the
    /// slot is smaller. The slot is free again when the last holder drops them.
    pub(crate) fn filled(self, bytes: usize) -> Option<Bytes> {
        self.memory.file.fits(bytes).then(|| Bytes::from_owner(Filled { slot: self, bytes }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.memory.used.fetch_and(!(1 << self.index), Ordering::AcqRel);
    }
}

/// A picture in a slot.
struct Filled {
    slot: Slot,
    bytes: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        let Slot { memory, index } = &self.slot;
        // SAFETY: only the owner of a `Slot` writes into it, and this value owns it and does not write. Nobody
        // else gets the slot until this is dropped. Another process writes only into the slots named to it.
        unsafe { memory.file.slice(*index, self.bytes) }
    }
}

/// The memory that a camera's pictures currently use.
#[derive(Debug, Default)]
pub(crate) struct PictureStore(Mutex<Option<Arc<PictureMemory>>>);

impl PictureStore {
    /// A slot for a picture of `bytes`, to be filled by `writer`. `None` if there is no
    /// room. `map` makes another process map a new memory; this process maps its own.
    pub(crate) fn slot(
        &self,
        bytes: usize,
        writer: Writer,
        map: impl FnOnce(&PictureFile) -> io::Result<()>,
    ) -> Option<Slot> {
        if bytes == 0 || bytes > SHARED_BYTES_MAX_OF_SLOT {
            return None;
        }
        let fit = lock(&self.0).clone().filter(|memory| memory.is_fit(bytes, writer));
        // Holders of pictures in the old memory keep them. The lock is not held while the writer maps the new one.
        let memory = match fit {
            Some(memory) => memory,
            None => {
                *lock(&self.0) = None;
                let made = Arc::new(create(bytes, writer, map).map_err(|error| cannot(&error)).ok()?);
                *lock(&self.0) = Some(Arc::clone(&made));
                made
            }
        };
        memory.slot()
    }

    /// The memory with this number, if it is still in use.
    pub(crate) fn memory(&self, number: u64) -> Option<Arc<PictureMemory>> {
        lock(&self.0).clone().filter(|memory| memory.number == number)
    }
}

fn create(
    bytes: usize,
    writer: Writer,
    map: impl FnOnce(&PictureFile) -> io::Result<()>,
) -> io::Result<PictureMemory> {
    let (number, file) = (NUMBERS.fetch_add(1, Ordering::Relaxed), PictureFile::create(bytes)?);
    let own = match writer {
        Writer::Here => Some(PictureWriter::map(&file, file.layout(0))?),
        Writer::Beside(_) => {
            map(&file)?;
            None
        }
    };
    file.seal()?;
    let (used, counted, programs) = Default::default();
    Ok(PictureMemory { number, file, writer, own, used, counted, programs })
}

/// Each statement leaves the fields consistent and cannot panic, so a poisoned lock is safe to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use mez_core::rights::Rights;

    use super::*;

    const BYTES: usize = 10_000;

    fn slot(store: &PictureStore) -> Slot {
        store.slot(BYTES, Writer::Here, |_| unreachable!("it is written here")).expect("there is room")
    }

    /// A picture does not change while somebody holds it. After that, its slot is used again.
    #[test]
    fn what_is_held_is_not_overwritten() {
        let store = PictureStore::default();
        let mut held = Vec::new();
        for round in 0..PICTURE_SLOTS {
            held.push(slot(&store).keep(&[round; BYTES]).unwrap());
        }
        assert!(store.slot(BYTES, Writer::Here, |_| Ok(())).is_none(), "all are held");
        for (round, held) in held.iter().enumerate() {
            assert!(held.iter().all(|byte| usize::from(*byte) == round));
        }
        let (memory, other) = (slot_of(&store, held.remove(3)), slot(&store));
        assert_eq!(memory, other.place().memory, "all of this is one memory");
        assert_eq!(other.place().slot, 3);
        assert!(other.keep(&vec![0; 10 * BYTES * usize::from(PICTURE_SLOTS)]).is_none());
        assert_eq!(slot(&store).place().slot, 3, "what was not filled is free again");
    }

    fn slot_of(store: &PictureStore, _dropped: Bytes) -> u64 {
        lock(&store.0).as_ref().unwrap().number()
    }

    /// A program that leaves, or whose rights change, sees nothing more. The others keep the pictures that they hold.
    #[test]
    fn a_memory_is_used_only_while_all_who_map_it_may_see_it() {
        let store = PictureStore::default();
        let (change, rights) = LiveRights::changing(Rights::open());
        let first = slot(&store);
        let memory = store.memory(first.place().memory).unwrap();
        let held = first.keep(&[1; BYTES]).unwrap();
        let (stays, leaves) = (memory.give(Some(rights.clone())), memory.give(None));
        assert_eq!(slot(&store).place().memory, memory.number());
        drop(leaves);
        let second = slot(&store).place().memory;
        assert!(second != memory.number() && store.memory(memory.number()).is_none());
        assert!(held.iter().all(|byte| *byte == 1));
        let _again = store.memory(second).unwrap().give(Some(rights));
        assert_eq!(slot(&store).place().memory, second);
        change.send(Arc::new(Rights::default())).unwrap();
        assert_ne!(slot(&store).place().memory, second);
        drop(stays);
    }

    /// Another writer or larger pictures need another memory. A writer that does not map it gets none.
    #[test]
    fn a_memory_has_one_writer_and_one_size() {
        let store = PictureStore::default();
        let here = slot(&store).place().memory;
        let mapped = Mutex::new(Vec::new());
        let beside = |number| {
            let map = |file: &PictureFile| {
                lock(&mapped).push(PictureWriter::map(file, file.layout(0))?);
                Ok(())
            };
            store.slot(BYTES, Writer::Beside(number), map).unwrap()
        };
        let one = beside(1);
        assert_ne!(one.place().memory, here);
        assert!(lock(&mapped)[0].write(one.place().slot, &[5; 8]));
        assert_eq!(one.filled(8).unwrap(), &[5; 8][..]);
        let memory = beside(1).place().memory;
        assert!(beside(2).place().memory != memory && lock(&mapped).len() == 2);
        let refused = |_: &PictureFile| Err(io::ErrorKind::BrokenPipe.into());
        assert!(store.slot(BYTES, Writer::Beside(3), refused).is_none());
        let larger = store.slot(20 * BYTES, Writer::Here, |_| Ok(())).unwrap();
        assert!(larger.keep(&[1; 20 * BYTES]).is_some());
        assert!(store.slot(SHARED_BYTES_MAX_OF_SLOT + 1, Writer::Here, |_| Ok(())).is_none());
    }
}
