//! Simulates a disk for logs with all its faults. On a power cut, the disk loses, reorders and tears writes that were not synced, and brings removed
//! files back. It also fills up, fails, and takes time.

mod bug;
mod chains;
mod sample;
mod story;

use std::collections::{BTreeMap, VecDeque};

use mez_core::store::{Bounds, KeyRing, Progress, SegmentNumber, Storage, StorageError, StorageErrorKind};

pub use self::bug::DiskBug;
pub(crate) use self::bug::records;
pub use self::sample::{Ending, Reading, SampleLog};
pub use self::story::{DiskStory, Played};
use crate::random::Random;

/// The unit in which a power cut keeps or destroys bytes: a sector of a disk.
const SECTOR_BYTES: usize = 512;
/// The most versions of the writer's progress that are not yet written back.
const PROGRESS_MAX: usize = 8;

/// A segment as programs see it, and how much of it is durable.
#[derive(Clone, Debug, Default)]
struct File {
    bytes: Vec<u8>,
    /// The durable bytes, which a power cut does not touch.
    durable: usize,
    /// Whether its name is durable.
    named: bool,
}

/// The present faults of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The disk is full: appending and creating segments fails.
    pub full: bool,
    /// Appending fails after some of the bytes.
    pub failing_writes: bool,
    /// Syncs fail, and their bytes never become durable.
    pub failing_syncs: bool,
    /// After how many polls a sync ends.
    pub sync_polls: u32,
    /// Syncs never end.
    pub stuck: bool,
}

/// A running sync.
#[derive(Debug)]
struct Syncing {
    segment: SegmentNumber,
    bytes: usize,
    polls: u32,
}

/// One camera's folder on the simulated disk.
#[derive(Debug)]
pub struct SimulatedDisk {
    random: Random,
    files: BTreeMap<SegmentNumber, File>,
    /// Files whose removal is not durable.
    removed: BTreeMap<SegmentNumber, File>,
    bounds: Option<Bounds>,
    /// The written versions of the writer's progress, the newest last.
    progress: VecDeque<Progress>,
    /// Whether the oldest version in `progress` is durable.
    progress_durable: bool,
    /// Decides which progress a power cut takes, and where in a write a program is killed.
    forgets: Random,
    /// The last append: the segment, its size before, and how often progress was written since.
    last_append: Option<(SegmentNumber, usize, usize)>,
    syncing: Option<Syncing>,
    faults: Faults,
    bug: Option<bug::Planted>,
}

impl SimulatedDisk {
    /// An empty disk. All its faults follow from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            bounds: None,
            progress: VecDeque::new(),
            progress_durable: false,
            forgets: Random::seeded(seed ^ 0x5eed_f0e9),
            last_append: None,
            syncing: None,
            faults: Faults::default(),
            bug: None,
        }
    }

    /// Plants a bug in the program that uses this disk with these keys.
    pub fn plant(&mut self, bug: DiskBug, keys: KeyRing) {
        self.bug = Some(bug::Planted::new(bug, keys));
    }

    /// Sets the faults of the disk from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The program that started a sync has ended. The sync may still end, but its result is lost.
    pub(crate) fn forget_sync(&mut self) {
        self.syncing = None;
    }

    /// The writer was killed. Only the beginning of its last append may be on disk.
    pub fn kill(&mut self) {
        self.syncing = None;
        let Some((segment, before, remembered)) = self.last_append.take() else { return };
        let is_cut = self.forgets.one_in(2);
        let Some(file) = self.files.get_mut(&segment).filter(|file| is_cut && before >= file.durable) else {
            return;
        };
        let left = self.forgets.within(before as u64..=file.bytes.len() as u64) as usize;
        file.bytes.truncate(left);
        self.progress.truncate(self.progress.len().saturating_sub(remembered));
    }

    /// The result of the last append was reported, so a later kill does not fall within it.
    pub(crate) fn append_has_returned(&mut self) {
        self.last_append = None;
    }

    /// Cuts the power and restores it. Synced bytes are kept, and any part of the rest.
    pub fn cut_power(&mut self) {
        (self.syncing, self.last_append) = (None, None);
        self.faults = Faults::default();
        for (segment, file) in std::mem::take(&mut self.removed) {
            if self.random.one_in(2) && !self.files.contains_key(&segment) {
                self.files.insert(segment, file);
            }
        }
        let mut random = self.random.split();
        let (durable, all) = (u64::from(self.progress_durable), self.progress.len() as u64);
        self.progress.truncate(self.forgets.within(durable.min(all)..=all) as usize);
        self.progress.iter_mut().for_each(|progress| progress.written = None);
        self.files.retain(|_, file| file.named || !random.one_in(3));
        for file in self.files.values_mut() {
            tear(file, &mut random);
        }
    }

    /// Changes up to three bytes.
    pub fn rot(&mut self, random: &mut Random) {
        let segments = self.segments();
        for _ in 0..random.within(1..=3) {
            let Some(segment) = (!segments.is_empty()).then(|| *random.pick(&segments)) else { return };
            let (place, flip) = (random.next_u64() as usize, random.within(1..=255) as u8);
            let bytes = self.bytes(segment).filter(|bytes| !bytes.is_empty());
            if let Some(bytes) = bytes {
                let length = bytes.len();
                bytes[place % length] ^= flip;
            }
        }
    }

    /// The bytes of a segment, to be read or damaged.
    pub fn bytes(&mut self, segment: SegmentNumber) -> Option<&mut Vec<u8>> {
        self.files.get_mut(&segment).map(|file| &mut file.bytes)
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentNumber> {
        self.files.keys().copied().collect()
    }

    /// Replaces a segment durably.
    pub fn put(&mut self, segment: SegmentNumber, bytes: Vec<u8>) {
        self.files.insert(segment, File { durable: bytes.len(), bytes, named: true });
    }

    /// Removes a segment durably, as a user with a file manager would.
    pub fn take(&mut self, segment: SegmentNumber) -> Option<Vec<u8>> {
        self.files.remove(&segment).map(|file| file.bytes)
    }

    /// The bounds, for tests to change or remove.
    pub fn bounds(&mut self) -> &mut Option<Bounds> {
        &mut self.bounds
    }

    /// The writer's progress, for tests to change or remove.
    pub fn progress(&mut self) -> &mut VecDeque<Progress> {
        &mut self.progress
    }

    fn file(&mut self, segment: SegmentNumber) -> Result<&mut File, StorageError> {
        let missing = || error(StorageErrorKind::Missing, "there is no such segment");
        self.files.get_mut(&segment).ok_or_else(missing)
    }
}

fn error(kind: StorageErrorKind, text: &str) -> StorageError {
    StorageError { kind, text: text.into() }
}

/// Damages bytes that are not durable, sector by sector, in one of the ways of real power cuts.
fn tear(file: &mut File, random: &mut Random) {
    let (begin, end) = (file.durable, file.bytes.len());
    let keep = random.within(begin as u64..=end as u64) as usize;
    match random.within(0..=3) {
        // All bytes were already on disk.
        0 => {}
        // The file is shorter, in the middle of a sector or not.
        1 => file.bytes.truncate(keep),
        // The size was written first, then the sectors in any order.
        _ => {
            let mut at = begin;
            while at < end {
                let next = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
                let sector = at..next.min(end);
                match random.within(0..=3) {
                    0 => file.bytes[sector].fill(0),
                    1 => {
                        let torn = random.within(sector.start as u64..=sector.end as u64) as usize;
                        file.bytes[torn..sector.end].fill(0);
                    }
                    _ => {}
                }
                at = next;
            }
        }
    }
    file.durable = file.bytes.len();
    file.named = true;
}

impl Storage for SimulatedDisk {
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError> {
        let is_blind = self.bug.as_ref().is_some_and(|bug| bug.takes_zeros_for_the_end());
        let length = |file: &File| match file.bytes.iter().rposition(|byte| *byte != 0) {
            Some(last) if is_blind => last + 1,
            _ => file.bytes.len(),
        };
        Ok(self.files.iter().map(|(&number, file)| (number, length(file) as u64)).collect())
    }

    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        if self.faults.full {
            return Err(error(StorageErrorKind::Full, "no room for a new segment"));
        }
        assert!(!self.files.contains_key(&segment), "segment {} is made twice", segment.0);
        self.files.insert(segment, File::default());
        Ok(())
    }

    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError> {
        let bytes = match &mut self.bug {
            Some(bug) => bug.appended(segment, bytes),
            None => bytes.to_vec(),
        };
        let Faults { full, failing_writes, .. } = self.faults;
        let written = if full || failing_writes {
            self.random.within(0..=bytes.len() as u64) as usize
        } else {
            bytes.len()
        };
        let before = self.file(segment)?.bytes.len();
        self.file(segment)?.bytes.extend_from_slice(&bytes[..written]);
        self.last_append = Some((segment, before, 0));
        if full {
            return Err(error(StorageErrorKind::Full, "no room is left"));
        }
        if failing_writes {
            return Err(error(StorageErrorKind::Io, "input/output error"));
        }
        Ok(())
    }

    fn start_sync(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        assert!(self.syncing.is_none(), "two syncs at once");
        let (bytes, polls) = (self.file(segment)?.bytes.len(), self.faults.sync_polls);
        self.syncing = Some(Syncing { segment, bytes, polls });
        Ok(())
    }

    fn finish_sync(&mut self) -> Option<Result<(), StorageError>> {
        let syncing = self.syncing.as_mut()?;
        if self.faults.stuck || syncing.polls > 0 {
            syncing.polls = syncing.polls.saturating_sub(1);
            return None;
        }
        let Syncing { segment, bytes, .. } = self.syncing.take()?;
        if self.faults.failing_syncs {
            return Some(Err(error(StorageErrorKind::Io, "input/output error")));
        }
        if !self.bug.as_ref().is_some_and(|bug| bug.skips_sync())
            && let Some(file) = self.files.get_mut(&segment)
        {
            file.durable = file.durable.max(bytes);
            if !std::mem::replace(&mut file.named, true) {
                // The folder was synced with the segment.
                self.removed.clear();
            }
        }
        Some(Ok(()))
    }

    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError> {
        let missing = || error(StorageErrorKind::Missing, "there is no such segment");
        let bytes = &self.files.get(&segment).ok_or_else(missing)?.bytes;
        let seen = self.bug.as_ref().and_then(|bug| bug.read(bytes));
        let file = seen.as_ref().unwrap_or(bytes);
        let from = (offset as usize).min(file.len());
        let length = buffer.len().min(file.len() - from);
        buffer[..length].copy_from_slice(&file[from..from + length]);
        Ok(length)
    }

    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        let missing = || error(StorageErrorKind::Missing, "there is no such segment");
        let file = self.files.remove(&segment).ok_or_else(missing)?;
        if file.named {
            self.removed.insert(segment, file);
        }
        Ok(())
    }

    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError> {
        Ok(self.bounds)
    }

    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError> {
        let forgets = self.bug.as_ref().is_some_and(|bug| bug.forgets_expiry());
        let oldest = if forgets { SegmentNumber(0) } else { bounds.oldest };
        let begins = self.bug.as_ref().is_some_and(|bug| bug.forgets_beginning());
        let first_index = bounds.first_index.filter(|_| !begins);
        self.bounds = Some(Bounds { oldest, first_index, ..bounds });
        self.progress.drain(..self.progress.len().saturating_sub(1));
        self.progress_durable = !self.progress.is_empty();
        Ok(())
    }

    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError> {
        Ok(self.progress.back().copied())
    }

    fn write_progress(&mut self, progress: Progress) -> Result<(), StorageError> {
        if self.bug.as_ref().is_some_and(|bug| bug.forgets_progress()) {
            return Ok(());
        }
        if self.progress.len() == PROGRESS_MAX {
            self.progress.pop_front();
        }
        self.progress.push_back(progress);
        if let Some((_, _, remembered)) = &mut self.last_append {
            *remembered += 1;
        }
        Ok(())
    }
}
