//! Memory for decoded pictures. One process writes each picture once, and all programs that may see the camera map the memory for reading.
//!
//! Once its writer has mapped the file, it is sealed: nobody else can map it for writing. So no program can change what another
//! program sees. A program marks the pictures that it has finished with in a separate memory of its own connection ([`Leases`]).

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::SHARED_BYTES_MAX_OF_SLOT;
use super::memory::{Data, WORDS, Words, create, create_unsealed, seal};
use super::place::Place;
use super::slots::{Layout, NotThere};

/// The number of slots of one memory. Unused slots take no memory. Programs hold at most [`LEASES`] pictures each, and one more is being written.
pub(crate) const PICTURE_SLOTS: u8 = 32;
/// The most pictures that a program may hold at once: one in use, one waiting, one arriving.
pub(crate) const LEASES: usize = 3;
const _: () = assert!(LEASES <= WORDS);
/// The number of the memory in which a program marks finished pictures. Memories of pictures have higher numbers.
pub(crate) const LEASES_NUMBER: u8 = 128;

const FREE: u32 = 0;
const LENT: u32 = 1;

/// Whether the memory with this number is for decoded pictures.
pub(crate) fn is_for_pictures(number: u8) -> bool {
    number >= LEASES_NUMBER
}

/// A memory of pictures, in the process that created it.
#[derive(Debug)]
pub(crate) struct PictureFile {
    file: OwnedFd,
    layout: Layout,
    data: Data,
}

impl PictureFile {
    /// Creates a memory whose slots hold `bytes`. Its writer must map it before [`seal`](Self::seal).
    pub(crate) fn create(bytes: usize) -> io::Result<Self> {
        if bytes > SHARED_BYTES_MAX_OF_SLOT {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a picture larger than a slot may be"));
        }
        let layout = Layout::with_slots_of((0, PICTURE_SLOTS), bytes);
        let file = create_unsealed(layout.data_bytes())?;
        let data = Data::read_own(&file, layout.data_bytes())?;
        Ok(Self { file, layout, data })
    }

    /// From now on nobody else can map the memory for writing. Before that it must not be handed to readers.
    pub(crate) fn seal(&self) -> io::Result<()> {
        seal(&self.file)
    }

    /// The layout for both sides, if the memory has this number.
    pub(crate) fn layout(&self, number: u8) -> Layout {
        Layout { number, ..self.layout }
    }

    /// Whether a slot holds `bytes`.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.layout.fits(bytes)
    }

    /// The size of a slot.
    pub(crate) fn slot_bytes(&self) -> u32 {
        self.layout.slot_bytes
    }

    /// The first `bytes` of a slot.
    ///
    /// # Safety
    /// Nobody may write into the slot while the slice lives.
    pub(crate) unsafe fn slice(&self, slot: u8, bytes: usize) -> &[u8] {
        assert!(slot < self.layout.slots && self.layout.fits(bytes), "{bytes} bytes of slot {slot}");
        // SAFETY: guaranteed by the caller.
        unsafe { self.data.slice(self.layout.offset(slot), bytes) }
    }
}

impl AsFd for PictureFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A memory of pictures, in the process that writes it.
#[derive(Debug)]
pub(crate) struct PictureWriter {
    data: Data,
    layout: Layout,
}

impl PictureWriter {
    /// Maps a file that is not sealed yet.
    pub(crate) fn map(file: impl AsFd, layout: Layout) -> io::Result<Self> {
        Ok(Self { data: Data::fill(file, layout.data_bytes())?, layout })
    }

    /// Writes to a slot. Returns false if the slot does not exist or is too small. The caller makes sure that nobody reads there.
    pub(crate) fn write(&self, slot: u8, samples: &[u8]) -> bool {
        let exists = slot < self.layout.slots && self.layout.fits(samples.len());
        if exists {
            self.data.write(self.layout.offset(slot), samples);
        }
        exists
    }
}

/// The pictures that one program holds, at the broker.
#[derive(Debug)]
pub(crate) struct Leases {
    words: Words,
    /// A slot is not written again as long as its bytes are held here.
    held: [Option<Bytes>; LEASES],
}

impl Leases {
    /// Creates a value without leases, and the memory in which the program marks finished pictures.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = create(0)?;
        Ok((Self { words: Words::map(&file)?, held: Default::default() }, file))
    }

    /// The layout of that memory, for the program.
    pub(crate) fn layout() -> Layout {
        Layout { number: LEASES_NUMBER, slots: 1, slot_bytes: 0 }
    }

    /// Lends a picture, and takes back finished pictures. Returns the lease's number. `None`: the program already holds as many pictures as allowed.
    pub(crate) fn lend(&mut self, samples: Bytes) -> Option<u8> {
        for (index, held) in self.held.iter_mut().enumerate() {
            // Acquire: the program's reads happened before the slot is written again.
            held.take_if(|_| self.words.word(index).load(Ordering::Acquire) == FREE);
        }
        let index = self.held.iter().position(Option::is_none)?;
        self.words.word(index).store(LENT, Ordering::Release);
        self.held[index] = Some(samples);
        u8::try_from(index).ok()
    }
}

/// Pictures in the process that reads them.
#[derive(Debug, Default)]
pub(crate) struct PictureTaker {
    words: Option<Arc<Words>>,
    memories: HashMap<u8, Arc<Mapped>>,
}

#[derive(Debug)]
struct Mapped {
    data: Data,
    layout: Layout,
}

impl PictureTaker {
    /// Maps a memory that the broker offers. A previous memory with this number is no longer used.
    pub(crate) fn map(&mut self, layout: Layout, file: impl AsFd) -> io::Result<()> {
        if layout.number == LEASES_NUMBER {
            self.words = Some(Arc::new(Words::map(file)?));
            return Ok(());
        }
        self.memories.remove(&layout.number);
        let mapped = Mapped { data: Data::read_sealed(file, layout.data_bytes())?, layout };
        self.memories.insert(layout.number, Arc::new(mapped));
        Ok(())
    }

    /// The memory with this number is no longer used.
    pub(crate) fn forget(&mut self, number: u8) {
        self.memories.remove(&number);
    }

    /// The picture at an address, without a copy. The broker gets the slot back when the last holder drops the picture.
    pub(crate) fn take(&self, place: Place, lease: u32) -> Result<Bytes, NotThere> {
        let words = self.words.clone().ok_or(NotThere::NoPlace)?;
        let memory = self.memories.get(&place.memory).cloned().ok_or(NotThere::NoPlace)?;
        let (lease, bytes) = (lease as usize, place.bytes as usize);
        let exists = lease < LEASES && place.slot < memory.layout.slots && memory.layout.fits(bytes);
        exists.then(|| Bytes::from_owner(Lent { memory, words, place, lease })).ok_or(NotThere::NoPlace)
    }

    /// Whether this program holds as many pictures as allowed, so that no more can come.
    pub(crate) fn is_full(&self) -> bool {
        let is_lent =
            |words: &Arc<Words>| (0..LEASES).all(|index| words.word(index).load(Ordering::Relaxed) == LENT);
        self.words.as_ref().is_some_and(is_lent)
    }
}

/// A picture that this program holds.
#[derive(Debug)]
struct Lent {
    memory: Arc<Mapped>,
    words: Arc<Words>,
    place: Place,
    lease: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let (offset, bytes) = (self.memory.layout.offset(self.place.slot), self.place.bytes as usize);
        // SAFETY: the broker, which the client trusts with the bytes themselves, lets a slot be written only if nobody
        // holds it. This program holds it until `self` is dropped. Others cannot write there: the file is sealed.
        unsafe { self.memory.data.slice(offset, bytes) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Release: all reads happened before the broker sees this store.
        self.words.word(self.lease).store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 100_000;

    fn memory() -> (PictureFile, PictureWriter) {
        let file = PictureFile::create(BYTES).unwrap();
        let writer = PictureWriter::map(&file, file.layout(0)).unwrap();
        file.seal().unwrap();
        (file, writer)
    }

    fn place(slot: u8, bytes: usize) -> Place {
        Place { memory: 129, slot, bytes: bytes as u32 }
    }

    /// Two programs read a picture that was written once. Neither can write, and each returns only its own lease.
    #[test]
    fn what_is_written_once_is_read_by_all() {
        let (file, writer) = memory();
        let mut programs = [(); 2].map(|()| {
            let (leases, words) = Leases::create().unwrap();
            let mut taker = PictureTaker::default();
            taker.map(Leases::layout(), words).unwrap();
            taker.map(file.layout(129), &file).unwrap();
            (leases, taker)
        });
        for round in 0..10u8 {
            let samples = vec![round; BYTES];
            assert!(writer.write(round % 3, &samples));
            for (leases, taker) in &mut programs {
                let lease = leases.lend(Bytes::from(samples.clone())).expect("it gives back at once");
                assert_eq!(taker.take(place(round % 3, BYTES), lease.into()).unwrap(), samples);
            }
        }
        let (holds, other) = programs.split_at_mut(1);
        let mut held = Vec::new();
        while let Some(lease) = holds[0].0.lend(Bytes::from_static(b"held")) {
            held.push(holds[0].1.take(place(1, 4), lease.into()).unwrap());
        }
        assert!(held.len() == LEASES && holds[0].1.is_full());
        assert!(other[0].0.lend(Bytes::new()).is_some() && !other[0].1.is_full());
        held.pop();
        assert!(!holds[0].1.is_full() && holds[0].0.lend(Bytes::new()).is_some());
    }

    /// A program that reports nothing keeps its pictures, and gets no more.
    #[test]
    fn what_is_lent_is_held_until_it_is_given_back() {
        let (mut leases, _words) = Leases::create().unwrap();
        let samples = Bytes::from(vec![7; 8]);
        for _ in 0..LEASES {
            assert!(leases.lend(samples.clone()).is_some());
        }
        assert!((0..10).all(|_| leases.lend(samples.clone()).is_none()));
        assert!(!samples.is_unique());
        drop(leases);
        assert!(samples.is_unique());
    }

    #[test]
    fn only_its_writer_can_alter_a_memory_of_pictures() {
        let (file, _writer) = memory();
        assert!(PictureWriter::map(&file, file.layout(0)).is_err(), "nobody else can map it to be written");
        assert!(rustix::io::pwrite(&file, b"other", 0).is_err() && rustix::fs::ftruncate(&file, 0).is_err());
        let mut taker = PictureTaker::default();
        let open = PictureFile::create(BYTES).unwrap();
        assert!(taker.map(open.layout(129), &open).is_err(), "somebody could still write there");
        let larger = Layout::with_slots_of((129, PICTURE_SLOTS), 10 * BYTES);
        assert!(taker.map(larger, &file).is_err());
        assert!(PictureFile::create(SHARED_BYTES_MAX_OF_SLOT + 1).is_err());
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        let (file, writer) = memory();
        let room = file.slot_bytes() as usize;
        assert!(!writer.write(PICTURE_SLOTS, &[1]) && !writer.write(0, &vec![1; room + 1]));
        let mut taker = PictureTaker::default();
        taker.map(file.layout(129), &file).unwrap();
        assert_eq!(taker.take(place(0, 1), 0), Err(NotThere::NoPlace), "it could never be given back");
        let (_leases, words) = Leases::create().unwrap();
        taker.map(Leases::layout(), words).unwrap();
        assert!(taker.take(place(0, room), 0).is_ok());
        let elsewhere = Place { memory: 130, ..place(0, 1) };
        for (place, lease) in [
            (place(PICTURE_SLOTS, 1), 0),
            (place(0, room + 1), 0),
            (place(0, 1), LEASES as u32),
            (place(0, 1), u32::MAX),
            (elsewhere, 0),
        ] {
            assert_eq!(taker.take(place, lease), Err(NotThere::NoPlace), "{place:?} {lease}");
        }
        taker.forget(129);
        assert_eq!(taker.take(place(0, 1), 0), Err(NotThere::NoPlace));
    }
}
