//! Slots for payloads in memory that two processes map.
//!
//! The writer may announce a slot before it is filled. While the reader wakes up and copies the
//! first bytes, the writer fills the rest. A second word per slot holds the number of filled bytes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes};

use super::budget::{Meter, Share};
use super::memory::{Access, Memory, WORDS, create};
use super::place::Place;
use super::progress;
use crate::memory::buffer;

/// The slots of one memory: one in use by the program, one waiting for it, one being filled. With
/// more slots, a program that stops reading would fall further behind before the broker notices.
pub(super) const SLOTS: u8 = 3;
const _: () = assert!(2 * SLOTS as usize <= WORDS);
/// The size of a slot is a multiple of this, the usual page size. Where pages are larger, slots share one, which is harmless.
const ALIGN_BYTES: usize = 4 << 10;

/// Bytes that the writer fills before it updates the slot's count of filled bytes.
const PART_BYTES: usize = 64 << 10;

const FREE: u32 = 0;
const TAKEN: u32 = 1;

/// The index of the word with a slot's state.
fn state(slot: u8) -> usize {
    slot.into()
}

/// The index of the word with a slot's number of filled bytes.
fn filled(slot: u8) -> usize {
    usize::from(SLOTS + slot)
}

/// The layout of a memory, which both sides must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The number of the memory on its connection. A later memory replaces an earlier one.
    pub(crate) number: u8,
    /// The number of slots.
    pub(super) slots: u8,
    /// The size of each slot.
    pub(super) slot_bytes: u32,
}

impl Layout {
    /// The size of an encoded layout in bytes.
    pub(crate) const BYTES: usize = 8;

    /// The layout for payloads of `bytes`, with slots a quarter larger.
    pub(crate) fn for_payload(number: u8, bytes: usize) -> Self {
        Self::with_slots_of((number, SLOTS), bytes + bytes / 4)
    }

    /// The layout with `slots` slots that hold `bytes` each.
    pub(super) fn with_slots_of((number, slots): (u8, u8), bytes: usize) -> Self {
        let slot_bytes = bytes.next_multiple_of(ALIGN_BYTES);
        let slot_bytes = u32::try_from(slot_bytes).expect("payloads are at most 32 MiB");
        Self { number, slots, slot_bytes }
    }

    /// The layout that means that the memory with this number is no longer used.
    pub(crate) fn none(number: u8) -> Self {
        Self { number, slots: 0, slot_bytes: 0 }
    }

    /// Whether the memory is no longer used.
    pub(crate) fn is_none(self) -> bool {
        self.slots == 0 && self.slot_bytes == 0
    }

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (self.number, self.slots);
        bytes[4..].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::BYTES]) -> Self {
        Self { number: bytes[0], slots: bytes[1], slot_bytes: (&bytes[4..]).get_u32_le() }
    }

    /// Whether a slot holds `bytes`.
    pub(crate) fn fits(self, bytes: usize) -> bool {
        bytes <= self.slot_bytes as usize
    }

    pub(super) fn offset(self, slot: u8) -> usize {
        usize::from(slot) * self.slot_bytes as usize
    }

    /// The bytes of all slots together.
    pub(super) fn data_bytes(self) -> usize {
        self.slot_bytes as usize * usize::from(self.slots)
    }

    /// Returns the layout if it is for payloads of frames, whose slots have words.
    fn checked(self) -> io::Result<Self> {
        let error = || io::Error::new(io::ErrorKind::InvalidData, "memory with another number of slots");
        (self.slots == SLOTS).then_some(self).ok_or_else(error)
    }

    /// Creates the memory.
    pub(crate) fn create(self) -> io::Result<OwnedFd> {
        create(self.data_bytes())
    }
}

/// Writes payloads into slots.
#[derive(Debug)]
pub(crate) struct Filler {
    memory: Arc<Memory>,
    layout: Layout,
    /// The shares of slots that were used, if this process created the memory.
    used: Vec<Vec<Share>>,
    /// The budget that a slot counts against from its first use.
    meter: Option<Meter>,
}

impl Filler {
    /// Maps `file`. `meter`: the budget of slots from their first use, if this process created the memory.
    pub(crate) fn map(file: impl AsFd, layout: Layout, meter: Option<Meter>) -> io::Result<Self> {
        let memory = Arc::new(Memory::map(file, layout.checked()?.data_bytes(), Access::Write)?);
        Ok(Self { memory, layout, used: Vec::new(), meter })
    }

    fn count(&mut self, slot: u8) -> bool {
        let Some(meter) = self.meter.as_ref().filter(|_| usize::from(slot) >= self.used.len()) else {
            return true;
        };
        let share = meter.take(self.layout.slot_bytes.into());
        share.map(|share| self.used.push(share)).is_some()
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Takes a free slot for a payload of `bytes`. `None`: the payload does not fit, no slot is free, or the budget is exhausted.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Option<Reserved> {
        if !self.layout.fits(bytes) {
            return None;
        }
        // The first free slot: its pages were used last, and unused slots take no memory.
        // Acquire: the other side's reads happened before this slot is written again.
        let free = |slot: &u8| self.memory.word(state(*slot)).load(Ordering::Acquire) == FREE;
        let slot = (0..SLOTS).find(free)?;
        if !self.count(slot) {
            return None;
        }
        self.memory.word(state(slot)).store(TAKEN, Ordering::Relaxed);
        self.memory.word(filled(slot)).store(0, Ordering::Release);
        let place = Place { memory: self.layout.number, slot, bytes: bytes as u32 };
        Some(Reserved { memory: Arc::clone(&self.memory), layout: self.layout, place })
    }
}

/// A reserved slot without its payload.
#[derive(Debug)]
#[must_use = "the other side waits for what it is told of"]
pub(crate) struct Reserved {
    memory: Arc<Memory>,
    layout: Layout,
    place: Place,
}

impl Reserved {
    /// The address to send to the other side.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Copies the payload into the slot in parts. The other side can read each part at once.
    ///
    /// # Panics
    /// If the payload has another size than was reserved.
    pub(crate) fn fill(self, payload: &[u8]) {
        assert_eq!(payload.len(), self.place.bytes as usize, "what was reserved");
        let mut offset = self.layout.offset(self.place.slot);
        let mut done = 0;
        for part in payload.chunks(PART_BYTES) {
            self.memory.data().write(offset, part);
            offset += part.len();
            done += part.len() as u32;
            // Release: a reader that sees the count also sees the part.
            self.memory.word(filled(self.place.slot)).store(done, Ordering::Release);
        }
    }

    /// Frees the slot. Only if nobody knows its address yet.
    pub(crate) fn give_back(self) {
        self.memory.word(state(self.place.slot)).store(FREE, Ordering::Release);
    }
}

/// Why there is no payload at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotThere {
    /// The address is not a slot of this memory.
    NoPlace,
    /// The other side has begun to fill the slot, but stopped.
    Unfinished,
}

/// Reads payloads from slots.
#[derive(Clone, Debug)]
pub(crate) struct Taker {
    memory: Arc<Memory>,
    layout: Layout,
}

impl Taker {
    pub(crate) fn map(file: impl AsFd, layout: Layout) -> io::Result<Self> {
        let memory = Memory::map(file, layout.checked()?.data_bytes(), Access::Read)?;
        Ok(Self { memory: Arc::new(memory), layout })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// The payload in a slot, without a copy, when it is complete. The slot is freed when the last holder
    /// drops the payload. Only for readers that trust the writer not to change it: clients trust their broker.
    pub(crate) async fn take(&self, place: Place) -> Result<Bytes, NotThere> {
        let bytes = self.bytes_of(place)?;
        // Made first, so that the slot is freed even if the wait fails.
        let lent = Lent { taker: self.clone(), slot: place.slot, bytes };
        let mut there = 0;
        while there < bytes {
            there = self.filled_above(place, there).await?;
        }
        Ok(Bytes::from_owner(lent))
    }

    /// A copy of the payload in a slot, made while the payload arrives. The slot is then freed.
    pub(crate) async fn copy(&self, place: Place) -> Result<Bytes, NotThere> {
        let bytes = self.bytes_of(place)?;
        let mut copy = buffer(bytes);
        while copy.len() < bytes {
            let there = self.filled_above(place, copy.len()).await?;
            let part = there - copy.len();
            self.memory.data().read(self.layout.offset(place.slot) + copy.len(), part, &mut copy);
        }
        self.free(place.slot);
        Ok(copy.freeze())
    }

    /// The size of the payload at an address of this memory.
    fn bytes_of(&self, place: Place) -> Result<usize, NotThere> {
        let Place { memory, slot, bytes } = place;
        let bytes = bytes as usize;
        let exists = memory == self.layout.number && slot < SLOTS && self.layout.fits(bytes);
        exists.then_some(bytes).ok_or(NotThere::NoPlace)
    }

    /// Waits until more than `known` bytes of the payload are there, and returns their number.
    async fn filled_above(&self, place: Place, known: usize) -> Result<usize, NotThere> {
        let there = || {
            // Acquire: the counted bytes are visible. The count is limited to the payload, whatever its value.
            let word = self.memory.word(filled(place.slot)).load(Ordering::Acquire);
            Some(word.min(place.bytes) as usize).filter(|there| *there > known)
        };
        progress::wait(there).await.ok_or(NotThere::Unfinished)
    }

    /// Release: all reads happened before the other side sees this store.
    fn free(&self, slot: u8) {
        self.memory.word(state(slot)).store(FREE, Ordering::Release);
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
        // SAFETY: the broker, which the client trusts with the bytes themselves, fills a slot only if it is free.
        // This slot is taken until `self` is dropped, and was filled before anybody got it (`Taker::take`).
        unsafe { self.taker.memory.data().slice(self.taker.layout.offset(self.slot), self.bytes) }
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
    use std::thread;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn pair(bytes: usize) -> (Filler, Taker) {
        let layout = Layout::for_payload(1, bytes);
        let file = layout.create().unwrap();
        (Filler::map(&file, layout, None).unwrap(), Taker::map(&file, layout).unwrap())
    }

    fn fill(filler: &mut Filler, payload: &[u8]) -> Option<Place> {
        let reserved = filler.reserve(payload.len())?;
        let place = reserved.place();
        reserved.fill(payload);
        Some(place)
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    fn place(slot: u8, bytes: usize) -> Place {
        Place { memory: 1, slot, bytes: bytes as u32 }
    }

    proptest! {
        /// Every payload comes out unchanged, stays unchanged as long as it is held, and no more slots are lent than exist.
        #[test]
        fn what_is_held_is_not_overwritten(steps in proptest::collection::vec((1usize..100_000, 0usize..6), 1..40)) {
            let (mut filler, taker) = pair(80_000);
            let mut held: Vec<(u8, Bytes)> = Vec::new();
            for (index, (bytes, let_go)) in steps.into_iter().enumerate() {
                let value = index as u8;
                match fill(&mut filler, &vec![value; bytes]) {
                    Some(place) => held.push((value, run(taker.take(place)).unwrap())),
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

    /// A reader that knows the address before the slot is filled still gets the whole payload, and no old bytes.
    #[test]
    fn what_is_told_of_first_comes_whole() {
        let payload = |round: u32| -> Vec<u8> {
            (0..1_000_000u32).map(|at| (at.wrapping_mul(31) >> 7) as u8 ^ round as u8).collect()
        };
        let (mut filler, taker) = pair(1_000_000);
        for round in 0..40 {
            let reserved = filler.reserve(1_000_000).unwrap();
            let place = reserved.place();
            let bytes = payload(round);
            thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    run(async {
                        if round % 2 == 0 { taker.take(place).await } else { taker.copy(place).await }
                    })
                });
                // At once, while the reader spins, while it yields, and while it sleeps.
                thread::sleep(Duration::from_micros([0, 20, 200, 3_000][round as usize % 4]));
                reserved.fill(&bytes);
                assert!(reader.join().unwrap().unwrap() == bytes, "round {round}");
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_never_filled_is_given_up() {
        let (mut filler, taker) = pair(200_000);
        let place = filler.reserve(200_000).unwrap().place();
        assert_eq!(taker.copy(place).await, Err(NotThere::Unfinished));
        assert_eq!(taker.take(place).await, Err(NotThere::Unfinished));
        assert!(
            (0..SLOTS).all(|_| filler.reserve(1).is_some()),
            "who waits in vain for what it would hold lets it go"
        );
    }

    /// A publisher can change its memory at any time, but the broker's copy keeps its content and its announced size.
    #[test]
    fn a_copy_belongs_to_nobody_else() {
        let (mut filler, taker) = pair(70_000);
        let first = fill(&mut filler, &[1; 70_000]).unwrap();
        let copy = run(taker.copy(first)).unwrap();
        let second = filler.reserve(70_000).unwrap();
        assert_eq!(second.place(), first, "it is free again");
        second.memory.word(filled(first.slot)).store(u32::MAX, Ordering::Release);
        assert_eq!(run(taker.copy(first)).unwrap().len(), 70_000);
        second.fill(&[2; 70_000]);
        assert!(copy.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        let (mut filler, taker) = pair(70_000);
        let room = taker.layout().slot_bytes as usize;
        for nowhere in
            [place(SLOTS, 1), place(u8::MAX, 1), place(0, room + 1), Place { memory: 2, ..place(0, 1) }]
        {
            assert_eq!(run(taker.copy(nowhere)), Err(NotThere::NoPlace));
            assert_eq!(run(taker.take(nowhere)), Err(NotThere::NoPlace));
        }
        assert!(filler.reserve(room + 1).is_none());
    }

    /// Memory that its creator could truncate would kill a process that reads beyond its end.
    #[test]
    fn memory_that_is_not_sealed_or_of_another_size_is_refused() {
        let layout = Layout::for_payload(1, 70_000);
        let file = layout.create().unwrap();
        let larger = Layout::for_payload(1, 700_000);
        assert!(Taker::map(&file, Layout { slots: SLOTS + 1, ..layout }).is_err());
        assert!(Taker::map(&file, larger).is_err() && Filler::map(&file, larger, None).is_err());
        let open = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, rustix::fs::fstat(&file).unwrap().st_size as u64).unwrap();
        assert!(Taker::map(&open, layout).is_err());
        let ordinary =
            File::from(rustix::fs::memfd_create("ordinary", rustix::fs::MemfdFlags::empty()).unwrap());
        ordinary.set_len(rustix::fs::fstat(&file).unwrap().st_size as u64).unwrap();
        assert!(Taker::map(&ordinary, layout).is_err());
        // Nobody can change this afterwards.
        assert!(File::from(file).set_len(1).is_err());
    }

    #[test]
    fn slots_count_once_they_are_used() {
        let layout = Layout::for_payload(1, 70_000);
        let file = layout.create().unwrap();
        let mut filler = Filler::map(&file, layout, Some(Meter::frames())).unwrap();
        let taker = Taker::map(&file, layout).unwrap();
        for _ in 0..10 {
            let place = fill(&mut filler, &[1; 70_000]).unwrap();
            drop(run(taker.take(place)));
        }
        assert_eq!(filler.used.len(), 1, "one that is free again is used again");
    }
}
