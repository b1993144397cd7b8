//! Places for payloads in memory that two processes map.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};

use super::budget::Share;
use super::memory::{Access, Memory, WORDS, create};
use crate::memory::buffer;

/// Places in one memory: one in the hands of the program, one that waits for it, one that is being filled. More would let a
/// program that has stopped reading fall behind by more frames before the broker notices.
pub(super) const SLOTS: u8 = 3;
const _: () = assert!(SLOTS as usize <= WORDS);
/// A slot's size is a multiple of this.
const ALIGN_BYTES: usize = 64 << 10;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// What both sides have to know of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Which memory of the connection it is; a later one takes the place of an earlier one.
    pub(crate) number: u8,
    /// The size of each slot.
    pub(super) slot_bytes: u32,
}

impl Layout {
    /// Bytes on the wire.
    pub(crate) const BYTES: usize = 8;

    /// One whose slots hold payloads of `bytes` and of a quarter more.
    pub(crate) fn for_payload(number: u8, bytes: usize) -> Self {
        let slot_bytes = (bytes + bytes / 4).next_multiple_of(ALIGN_BYTES);
        Self { number, slot_bytes: u32::try_from(slot_bytes).expect("payloads are at most 32 MiB") }
    }

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.number;
        bytes[4..].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::BYTES]) -> Self {
        Self { number: bytes[0], slot_bytes: (&bytes[4..]).get_u32_le() }
    }

    /// Whether a slot holds `bytes`.
    pub(crate) fn fits(self, bytes: usize) -> bool {
        bytes <= self.slot_bytes as usize
    }

    fn data_bytes(self) -> usize {
        self.slot_bytes as usize * usize::from(SLOTS)
    }

    /// Makes the memory.
    pub(crate) fn create(self) -> io::Result<OwnedFd> {
        create(self.data_bytes())
    }
}

/// The side that puts payloads into slots.
#[derive(Debug)]
pub(crate) struct Filler {
    memory: Memory,
    layout: Layout,
    /// What was used of the slots, where it is of our own memory.
    used: Vec<Share>,
    metered: bool,
}

impl Filler {
    /// Maps `file`. Whether slots count as memory of this process once they have been used, is said by `metered`.
    pub(crate) fn map(file: impl AsFd, layout: Layout, metered: bool) -> io::Result<Self> {
        let memory = Memory::map(file, layout.data_bytes(), Access::Write)?;
        Ok(Self { memory, layout, used: Vec::new(), metered })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Copies `payload` into a free slot and gives its number; nothing where it does not fit, or no slot is free.
    pub(crate) fn fill(&mut self, payload: &[u8]) -> Option<u8> {
        if !self.layout.fits(payload.len()) {
            return None;
        }
        // The first that is free: its pages are those that were used last, and slots that are not needed take no memory.
        // Acquire: what the other side read there, it has read before this is written.
        let free = |slot: &u8| self.memory.word((*slot).into()).load(Ordering::Acquire) == FREE;
        let slot = (0..SLOTS).find(free)?;
        if self.metered && usize::from(slot) >= self.used.len() {
            self.used.push(Share::take(self.layout.slot_bytes.into())?);
        }
        self.memory.word(slot.into()).store(TAKEN, Ordering::Relaxed);
        self.memory.write(usize::from(slot) * self.layout.slot_bytes as usize, payload);
        Some(slot)
    }

    /// Takes a slot back whose number was told to nobody.
    pub(crate) fn take_back(&self, slot: u8) {
        self.memory.word(slot.into()).store(FREE, Ordering::Release);
    }
}

/// The side that reads payloads out of slots.
#[derive(Clone, Debug)]
pub(crate) struct Taker {
    memory: Arc<Memory>,
    layout: Layout,
}

impl Taker {
    pub(crate) fn map(file: impl AsFd, layout: Layout) -> io::Result<Self> {
        let memory = Memory::map(file, layout.data_bytes(), Access::Read)?;
        Ok(Self { memory: Arc::new(memory), layout })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// The payload in a slot, in place. The slot is free again when the last holder lets go. For those who trust the other side not
    /// to alter what they hold: clients trust their broker. Nothing where the slot does not exist.
    pub(crate) fn take(&self, slot: u8, bytes: usize) -> Option<Bytes> {
        self.exists(slot, bytes).then(|| Bytes::from_owner(Lent { taker: self.clone(), slot, bytes }))
    }

    /// A copy of the payload in a slot, which is free again at once. Nothing where the slot does not exist.
    pub(crate) fn copy(&self, slot: u8, bytes: usize) -> Option<Bytes> {
        self.exists(slot, bytes).then(|| {
            let mut copy = buffer(bytes);
            self.memory.read(self.offset(slot), bytes, &mut copy);
            self.free(slot);
            copy.freeze()
        })
    }

    fn exists(&self, slot: u8, bytes: usize) -> bool {
        slot < SLOTS && self.layout.fits(bytes)
    }

    fn offset(&self, slot: u8) -> usize {
        usize::from(slot) * self.layout.slot_bytes as usize
    }

    /// Release: what was read is read before the other side sees this.
    fn free(&self, slot: u8) {
        self.memory.word(slot.into()).store(FREE, Ordering::Release);
    }
}

/// A payload in a slot.
#[derive(Debug)]
struct Lent {
    taker: Taker,
    slot: u8,
    bytes: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the broker, which the client trusts with the bytes themselves, fills a slot only when it is free, and this one
        // is taken until `self` is dropped.
        unsafe { self.taker.memory.slice(self.taker.offset(self.slot), self.bytes) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.taker.free(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;

    fn pair(bytes: usize) -> (Filler, Taker) {
        let layout = Layout::for_payload(1, bytes);
        let file = layout.create().unwrap();
        (Filler::map(&file, layout, false).unwrap(), Taker::map(&file, layout).unwrap())
    }

    proptest! {
        /// Whatever is put in comes out, lies unaltered for as long as somebody holds it, and no more is lent than there is.
        #[test]
        fn what_is_held_is_not_overwritten(steps in proptest::collection::vec((1usize..100_000, 0usize..6), 1..40)) {
            let (mut filler, taker) = pair(80_000);
            let mut held: Vec<(u8, Bytes)> = Vec::new();
            for (index, (bytes, let_go)) in steps.into_iter().enumerate() {
                let value = index as u8;
                match filler.fill(&vec![value; bytes]) {
                    Some(slot) => held.push((value, taker.take(slot, bytes).unwrap())),
                    None => prop_assert!(held.len() == usize::from(SLOTS) || bytes > taker.layout().slot_bytes as usize),
                }
                for (value, payload) in &held {
                    prop_assert!(payload.iter().all(|byte| byte == value));
                }
                if let_go < held.len() {
                    held.swap_remove(let_go);
                }
            }
        }

        #[test]
        fn a_layout_comes_as_it_was_sent(number in any::<u8>(), bytes in 1usize..(32 << 20)) {
            let layout = Layout::for_payload(number, bytes);
            prop_assert!(layout.fits(bytes) && layout.fits(bytes + bytes / 4));
            prop_assert_eq!(Layout::decode(layout.encode()), layout);
        }
    }

    /// A publisher can alter its memory whenever it likes: what the broker has copied stays as it was.
    #[test]
    fn a_copy_belongs_to_nobody_else() {
        let (mut filler, taker) = pair(70_000);
        let slot = filler.fill(&[1; 70_000]).unwrap();
        let copy = taker.copy(slot, 70_000).unwrap();
        assert_eq!(filler.fill(&[2; 70_000]), Some(slot), "it is free again");
        assert!(copy.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        let (mut filler, taker) = pair(70_000);
        let room = taker.layout().slot_bytes as usize;
        assert!(taker.copy(SLOTS, 1).is_none() && taker.take(u8::MAX, 1).is_none());
        assert!(taker.copy(0, room + 1).is_none() && taker.take(0, room + 1).is_none());
        assert_eq!(filler.fill(&vec![0; room + 1]), None);
    }

    /// Memory that its maker could cut short would kill whoever reads behind its end.
    #[test]
    fn memory_that_is_not_sealed_or_of_another_size_is_refused() {
        let layout = Layout::for_payload(1, 70_000);
        let file = layout.create().unwrap();
        let larger = Layout::for_payload(1, 700_000);
        assert!(Taker::map(&file, larger).is_err() && Filler::map(&file, larger, false).is_err());
        let open = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, rustix::fs::fstat(&file).unwrap().st_size as u64).unwrap();
        assert!(Taker::map(&open, layout).is_err());
        let ordinary =
            File::from(rustix::fs::memfd_create("ordinary", rustix::fs::MemfdFlags::empty()).unwrap());
        ordinary.set_len(rustix::fs::fstat(&file).unwrap().st_size as u64).unwrap();
        assert!(Taker::map(&ordinary, layout).is_err());
        // Nor can anybody change that afterwards.
        assert!(File::from(file).set_len(1).is_err());
    }

    #[test]
    fn slots_count_once_they_are_used() {
        let layout = Layout::for_payload(1, 70_000);
        let file = layout.create().unwrap();
        let mut filler = Filler::map(&file, layout, true).unwrap();
        let taker = Taker::map(&file, layout).unwrap();
        for _ in 0..10 {
            let slot = filler.fill(&[1; 70_000]).unwrap();
            drop(taker.take(slot, 70_000));
        }
        assert_eq!(filler.used.len(), 1, "one that is free again is used again");
    }
}
