//! Reading the past from disk, one frame at a time, while it is being written at one end and removed at the other.
//!
//! A reader holds no more than a place in a segment and a piece of it. What is damaged is passed over and what was removed is
//! missing; both are said ([`PastAnswer::broken`]), neither is an error. What is damaged is stated by the record behind it as well.

use std::ops::Range;

use super::format::HeaderError;
use super::key::KeyRing;
use super::scan::{Scanned, SegmentScan, StoredRecord};
use super::storage::{Storage, StorageError};
use super::{SegmentNumber, holes};
use crate::frame::{Epoch, FrameId};
use crate::history::{PastAnswer, PastQuery};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::Timestamp;

/// What is known of a segment without reading its records.
#[derive(Clone, Debug)]
struct Part {
    number: SegmentNumber,
    bytes: u64,
    epoch: Epoch,
    first_index: u64,
    /// Its first record, once it was looked at.
    first: Option<(FrameId, Timestamp)>,
}

/// Where reading goes on.
struct Place {
    number: SegmentNumber,
    scan: SegmentScan,
}

/// What stands at the place.
enum Step {
    Record(StoredRecord, Spot),
    /// So many records that cannot be read.
    Damaged(u64),
    /// Reading goes on in this part.
    Part(usize),
    /// Nothing, as far as was looked.
    End,
}

/// Where a record stands.
#[derive(Clone, Copy)]
struct Spot {
    part: usize,
    index: u64,
    offset: u64,
}

/// A whole record that was seen.
#[derive(Clone, Copy)]
struct Known {
    /// The index of the record that follows it.
    next: u64,
    /// `None`: it stands before the segments that were looked at.
    id: Option<FrameId>,
}

/// Reads one camera's log on disk.
pub struct StoreReader {
    camera: CameraName,
    keys: KeyRing,
    /// Oldest first. A part ends where the next one begins.
    parts: Vec<Part>,
    place: Option<Place>,
    /// The frame that was given last, behind which `place` is.
    given: Option<FrameId>,
    /// The whole record before `place`, if one is known; the next one follows it if nothing is missing.
    before: Option<Known>,
    /// Segments before `place` have been removed since it was looked which there are.
    removed: bool,
    /// Records that could not be read before the last that was given, and since.
    damaged: (u64, u64),
}

impl StoreReader {
    /// A reader that has looked at nothing yet.
    pub fn new(camera: CameraName, keys: KeyRing) -> Self {
        Self {
            camera,
            keys,
            parts: Vec::new(),
            place: None,
            given: None,
            before: None,
            removed: false,
            damaged: (0, 0),
        }
    }

    /// The camera whose log it reads.
    pub fn camera(&self) -> &CameraName {
        &self.camera
    }

    /// The frame of the past that was asked for, if it is on disk. Questions that follow each other go on where the last
    /// one ended; any other begins with a binary search.
    pub fn find(
        &mut self,
        storage: &mut impl Storage,
        query: &PastQuery,
    ) -> Result<PastAnswer, StorageError> {
        if query.newest {
            return self.find_newest(storage, query);
        }
        if self.place.is_none() || self.given.is_none() || query.after != self.given {
            self.refresh(storage)?;
            self.given = query.after;
            (self.before, self.removed) = (None, false);
            self.go_to_epoch(storage, query, Epoch(0));
        }
        let (record, broken) = self.find_next(storage, query)?;
        Ok(PastAnswer { record, broken, held_from: self.held_from(storage), ..PastAnswer::default() })
    }

    /// Records between those that were given that could not be: damaged, or removed while the others were read.
    pub fn damaged(&self) -> u64 {
        self.damaged.0 + self.damaged.1
    }

    /// The capture time of the oldest frame that can be read; `None` if there is none.
    pub fn held_from(&mut self, storage: &mut impl Storage) -> Option<Timestamp> {
        (0..self.parts.len()).find_map(|part| self.first_of(storage, part)).map(|(_, captured)| captured)
    }

    // ---- which segments there are -------------------------------------------------------------------------

    /// Looks which segments there are. Those that are known already are not opened again.
    fn refresh(&mut self, storage: &mut impl Storage) -> Result<(), StorageError> {
        let oldest = storage.read_bounds()?.unwrap_or_default().oldest;
        let mut listed = storage.list()?;
        listed.retain(|(number, _)| *number >= oldest);
        listed.sort_unstable();
        let known = std::mem::take(&mut self.parts);
        let mut parts: Vec<Part> = Vec::with_capacity(listed.len());
        // From the newest back: what a newer segment supersedes, or what does not belong together with it, is left out.
        for (number, bytes) in listed.into_iter().rev() {
            let part = match known.binary_search_by_key(&number, |part| part.number) {
                Ok(at) => Part { bytes, ..known[at].clone() },
                Err(_) => match SegmentScan::open(storage, &self.camera, &self.keys, number, bytes) {
                    Ok(scan) => {
                        let header = scan.header();
                        let (epoch, first_index) = (header.epoch, header.first_index);
                        Part { number, bytes, epoch, first_index, first: None }
                    }
                    // Removed meanwhile, or strange: recovery reports those.
                    Err(_) => continue,
                },
            };
            match parts.last() {
                Some(newer) if part.epoch > newer.epoch => break,
                Some(newer) if part.first_index >= newer.first_index => {}
                _ => parts.push(part),
            }
        }
        parts.reverse();
        self.parts = parts;
        Ok(())
    }

    /// The first record of a part.
    fn first_of(&mut self, storage: &mut impl Storage, part: usize) -> Option<(FrameId, Timestamp)> {
        if self.parts[part].first.is_none() {
            let mut scan = self.open(storage, part).ok()?;
            let first = self.records(storage, part, &mut scan).next();
            self.parts[part].first = first.map(|(record, _)| (record.meta.id, record.meta.captured));
        }
        self.parts[part].first
    }

    fn open(&self, storage: &mut impl Storage, part: usize) -> Result<SegmentScan, HeaderError> {
        let Part { number, bytes, .. } = self.parts[part];
        SegmentScan::open(storage, &self.camera, &self.keys, number, bytes)
    }

    /// The index at which a part ends, if another follows it.
    fn limit(&self, part: usize) -> Option<u64> {
        self.parts.get(part + 1).map(|next| next.first_index)
    }

    /// The whole records of a part from where `scan` stands, without their payloads.
    fn records<'a, S: Storage>(
        &self,
        storage: &'a mut S,
        part: usize,
        scan: &'a mut SegmentScan,
    ) -> impl Iterator<Item = (StoredRecord, Spot)> + use<'a, S> {
        let limit = self.limit(part).unwrap_or(u64::MAX);
        std::iter::from_fn(move || {
            loop {
                if scan.index() >= limit {
                    return None;
                }
                if let Scanned::Record(record) = scan.next(storage, false)? {
                    let spot = Spot { part, index: record.index, offset: record.offset };
                    return Some((record, spot));
                }
            }
        })
    }

    fn parts_of(&self, epoch: Epoch) -> Range<usize> {
        let start = self.parts.partition_point(|part| part.epoch < epoch);
        start..self.parts.partition_point(|part| part.epoch <= epoch)
    }

    // ---- the oldest of a span -----------------------------------------------------------------------------

    /// The frame that comes next, from where the last one was found.
    fn find_next(
        &mut self,
        storage: &mut impl Storage,
        query: &PastQuery,
    ) -> Result<(Option<Record>, bool), StorageError> {
        let (mut broken, mut is_fresh, mut reached) = (false, false, 0_u64);
        loop {
            match self.advance(storage) {
                Step::Record(record, spot) => {
                    let meta = &record.meta;
                    if query.after.is_some_and(|after| meta.id <= after) {
                        self.before = Some(Known { next: record.index + 1, id: Some(meta.id) });
                        continue;
                    }
                    broken |= self.before.is_some_and(|before| record.index > before.next);
                    if query.before.is_some_and(|before| meta.id >= before) {
                        // It is left for another question.
                        self.step_back(spot);
                        return Ok((None, broken));
                    }
                    if meta.captured > query.end {
                        let epoch = Epoch(meta.id.epoch.0.saturating_add(1));
                        self.before = None;
                        if !self.go_to_epoch(storage, query, epoch) {
                            self.step_back(spot);
                            return Ok((None, broken));
                        }
                        continue;
                    }
                    return Ok((self.take(record), broken));
                }
                Step::Damaged(records) => {
                    // At the end of the log it may be what was being written; that is known when more comes, or nothing does.
                    self.damaged.1 += records;
                }
                Step::Part(next) if self.parts[next].epoch > self.parts[next - 1].epoch => {
                    let epoch = self.parts[next].epoch;
                    if !self.go_to_epoch(storage, query, epoch) {
                        return Ok((None, broken || self.damaged.1 > 0));
                    }
                }
                Step::Part(next) => {
                    self.place = None;
                    let mut removed = false;
                    let opened = (next..self.parts.len()).find_map(|part| {
                        let scan = self.open(storage, part);
                        let scan = scan.inspect_err(|why| removed |= *why == HeaderError::Gone).ok()?;
                        Some(Place { number: self.parts[part].number, scan })
                    });
                    self.removed |= removed;
                    broken |= opened.as_ref().is_none_or(|place| place.number != self.parts[next].number);
                    self.place = opened;
                }
                // The end of what there was when it was last looked: there may be more by now.
                Step::End if is_fresh => {
                    // What was there when it was last looked, and is behind all that can be read.
                    let read = self.place.as_ref().map(|place| place.scan.index());
                    let read = read.or(self.before.map(|before| before.next));
                    let lost = read.map_or(0, |read| reached.saturating_sub(read));
                    self.damaged.1 = lost;
                    return Ok((None, broken || lost > 0));
                }
                Step::End => {
                    is_fresh = true;
                    // Before the segments are looked at, so that they have all that it says.
                    reached = storage.read_progress()?.map_or(0, |progress| progress.reached());
                    self.refresh(storage)?;
                    if !self.keep_place() {
                        broken |= self.given.is_some();
                        self.before = None;
                        let after = self.given.max(query.after);
                        self.go_to_epoch(storage, &PastQuery { after, ..*query }, Epoch(0));
                    }
                }
            }
        }
    }

    /// Gives a record, with what is missing before it.
    fn take(&mut self, record: StoredRecord) -> Option<Record> {
        let (index, id) = (record.index, record.meta.id);
        let missing = self.before.map_or(0, |before| index.saturating_sub(before.next));
        let last = self.before.and_then(|before| before.id).or(self.given);
        // How many there were behind damage says the next whole one.
        self.damaged.0 += missing.max(std::mem::take(&mut self.damaged.1));
        let removed = std::mem::take(&mut self.removed);
        self.before = Some(Known { next: index + 1, id: Some(id) });
        self.given = Some(id);
        let mut record = record.into_record();
        if let Some(record) = record.as_mut().filter(|_| missing > 0 && !removed) {
            holes::state(last, record);
        }
        record
    }

    /// What stands at the place, which goes on behind it.
    fn advance(&mut self, storage: &mut impl Storage) -> Step {
        let Some(mut place) = self.place.take() else { return Step::End };
        let Ok(part) = self.parts.binary_search_by_key(&place.number, |part| part.number) else {
            return Step::End;
        };
        let spot = Spot { part, index: place.scan.index(), offset: place.scan.offset() };
        let ends = self.limit(part).is_some_and(|limit| spot.index >= limit);
        let scanned = if ends { None } else { place.scan.next(storage, true) };
        let is_newest = part + 1 == self.parts.len();
        let step = match scanned {
            Some(Scanned::Record(record)) => Step::Record(record, spot),
            // A record of which not all is there is being written; it is read later.
            Some(Scanned::Damaged(damage)) if is_newest && damage.reaches(self.parts[part].bytes) => {
                place.scan.seek(spot.index, spot.offset);
                Step::End
            }
            Some(Scanned::Damaged(damage)) => Step::Damaged(damage.records(self.limit(part)).unwrap_or(1)),
            None if is_newest => Step::End,
            None => Step::Part(part + 1),
        };
        self.place = Some(place);
        step
    }

    fn step_back(&mut self, spot: Spot) {
        if let Some(place) = &mut self.place {
            place.scan.seek(spot.index, spot.offset);
        }
    }

    /// Whether the segment at hand is still one of the log's; then what was appended to it can be read.
    fn keep_place(&mut self) -> bool {
        let Some(place) = &mut self.place else { return false };
        let part = self.parts.binary_search_by_key(&place.number, |part| part.number);
        if let Ok(part) = part {
            place.scan.grow(self.parts[part].bytes);
        } else {
            self.place = None;
        }
        self.place.is_some()
    }

    /// Goes to where the answer to a question can begin, in this epoch or a later one; false if there is no such place.
    fn go_to_epoch(&mut self, storage: &mut impl Storage, query: &PastQuery, mut from: Epoch) -> bool {
        self.place = None;
        from = from.max(query.after.map_or(Epoch(0), |after| after.epoch));
        while let Some(part) = self.parts.get(self.parts.partition_point(|part| part.epoch < from)) {
            let epoch = part.epoch;
            if let Some(spot) = self.first_within(storage, query, epoch)
                && let Ok(mut scan) = self.open(storage, spot.part)
            {
                scan.seek(spot.index, spot.offset);
                self.place = Some(Place { number: self.parts[spot.part].number, scan });
                return true;
            }
            from = Epoch(epoch.0.saturating_add(1));
        }
        false
    }

    /// The first record of an epoch that lies behind the question's beginning, or the start of the chain that it needs.
    fn first_within(&mut self, storage: &mut impl Storage, query: &PastQuery, epoch: Epoch) -> Option<Spot> {
        let before =
            |id: FrameId, captured| query.after.is_some_and(|after| id <= after) || captured < query.begin;
        let parts = self.parts_of(epoch);
        // The last part that begins before it holds it, or the one after that does.
        let behind = self.partition_point(storage, parts.clone(), before);
        let mut readable = (parts.start..behind).rev();
        let begins = readable.find(|part| self.first_of(storage, *part).is_some()).unwrap_or(parts.start);
        let (mut chain_start, mut seen) = (None, self.before);
        let found = (begins..parts.end).find_map(|part| {
            let mut scan = self.open(storage, part).ok()?;
            // Of the part that is looked at first, what is missing at its front can be told.
            seen = seen.or(Some(Known { next: scan.index(), id: None }));
            self.records(storage, part, &mut scan).find_map(|(record, spot)| {
                let meta = record.meta;
                if meta.chain.index == 0 {
                    chain_start = Some((meta.id, spot, seen));
                }
                let is_found = !before(meta.id, meta.captured);
                if is_found {
                    return Some((meta, spot, seen));
                }
                seen = Some(Known { next: spot.index + 1, id: Some(meta.id) });
                None
            })
        });
        let Some((meta, spot, known)) = found else {
            self.before = seen;
            return None;
        };
        self.before = known;
        if meta.chain.index == 0 || query.after.is_some_and(|after| after.epoch == epoch) {
            return Some(spot);
        }
        // The start of its chain may lie in a part before.
        let mut earlier = (parts.start..begins).rev();
        let start = chain_start.or_else(|| {
            let found = earlier.find_map(|part| self.last_start(storage, part));
            found.map(|(id, spot)| (id, spot, None))
        });
        let start = start.filter(|(id, ..)| id.sequence == meta.chain.chain);
        Some(start.map_or(spot, |(_, start, known)| {
            self.before = known;
            start
        }))
    }

    /// The first of `parts` that does not begin before what is looked for.
    fn partition_point(
        &mut self,
        storage: &mut impl Storage,
        parts: Range<usize>,
        before: impl Fn(FrameId, Timestamp) -> bool,
    ) -> usize {
        let (mut low, mut high) = (parts.start, parts.end);
        while low < high {
            let middle = low + (high - low) / 2;
            // One that cannot be read is judged by the one before it.
            let judged = (low..=middle).rev().find_map(|part| Some((part, self.first_of(storage, part)?)));
            match judged {
                Some((part, (id, captured))) if !before(id, captured) => high = part,
                _ => low = middle + 1,
            }
        }
        low
    }

    /// The last record of a part that starts a chain.
    fn last_start(&self, storage: &mut impl Storage, part: usize) -> Option<(FrameId, Spot)> {
        let mut scan = self.open(storage, part).ok()?;
        let starts = self.records(storage, part, &mut scan);
        let starts = starts.filter(|(record, _)| record.meta.chain.index == 0);
        starts.last().map(|(record, spot)| (record.meta.id, spot))
    }

    // ---- the newest of a span -----------------------------------------------------------------------------

    /// The newest frame of the span that can be decoded by itself.
    fn find_newest(
        &mut self,
        storage: &mut impl Storage,
        query: &PastQuery,
    ) -> Result<PastAnswer, StorageError> {
        self.refresh(storage)?;
        let held_from = self.held_from(storage);
        let (mut end, mut broken) = (self.parts.len(), false);
        while let Some(epoch) = end.checked_sub(1).map(|last| self.parts[last].epoch) {
            let parts = self.parts_of(epoch);
            let behind = self.partition_point(storage, parts.clone(), |id, captured| {
                query.before.is_none_or(|before| id < before) && captured <= query.end
            });
            for part in (parts.start..behind).rev() {
                let (record, damaged) = self.newest_within(storage, query, part);
                broken |= damaged;
                if record.is_some() {
                    return Ok(PastAnswer { record, broken, held_from, ..PastAnswer::default() });
                }
            }
            end = parts.start;
        }
        Ok(PastAnswer { broken, held_from, ..PastAnswer::default() })
    }

    /// The newest frame of a part, and whether a newer one is damaged.
    fn newest_within(
        &self,
        storage: &mut impl Storage,
        query: &PastQuery,
        part: usize,
    ) -> (Option<Record>, bool) {
        let Ok(mut scan) = self.open(storage, part) else { return (None, false) };
        let records = self.records(storage, part, &mut scan);
        let records =
            records.filter(|(record, _)| record.meta.chain.index == 0 && query.admits(&record.meta));
        let spots: Vec<Spot> = records.map(|(_, spot)| spot).collect();
        // One whose payload is damaged leaves its place to the one before.
        let mut damaged = false;
        let newest = spots.into_iter().rev().find_map(|spot| {
            scan.seek(spot.index, spot.offset);
            match scan.next(storage, true)? {
                Scanned::Record(record) => record.into_record(),
                Scanned::Damaged(_) => {
                    damaged = true;
                    None
                }
            }
        });
        (newest, damaged)
    }
}
