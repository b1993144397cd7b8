//! Reading the past from disk, one frame at a time, while it is being written at one end and removed at the other.
//!
//! A reader holds no more than a place in a segment and a piece of it. What is damaged is passed over and what was removed is
//! missing; both are said ([`PastAnswer::broken`]), neither is an error.

use std::ops::Range;

use super::format::HeaderError;
use super::key::KeyRing;
use super::scan::{Scanned, SegmentScan, StoredRecord};
use super::storage::{Storage, StorageError};
use super::{Record, SegmentNumber};
use crate::frame::{Epoch, Frame, FrameId, Quality};
use crate::history::{PastAnswer, PastQuery};
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};

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
    Damaged,
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

/// Reads one camera's log on disk.
pub struct StoreReader {
    camera: CameraName,
    keys: KeyRing,
    /// Oldest first. A part ends where the next one begins.
    parts: Vec<Part>,
    place: Option<Place>,
    /// The frame that was given last, behind which `place` is.
    given: Option<FrameId>,
    /// The index of the next record, if nothing is missing.
    next_index: Option<u64>,
    /// Records that could not be read before the last that was given, and since.
    damaged: (u64, u64),
}

impl StoreReader {
    /// A reader that has looked at nothing yet.
    pub fn new(camera: CameraName, keys: KeyRing) -> Self {
        Self { camera, keys, parts: Vec::new(), place: None, given: None, next_index: None, damaged: (0, 0) }
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
        let (mut broken, mut is_fresh) = (false, false);
        loop {
            match self.advance(storage) {
                Step::Record(record, spot) => {
                    let meta = &record.meta;
                    if query.after.is_some_and(|after| meta.id <= after) {
                        continue;
                    }
                    if query.before.is_some_and(|before| meta.id >= before) {
                        // It is left for another question.
                        self.step_back(spot);
                        return Ok((None, broken));
                    }
                    if meta.captured > query.end {
                        let epoch = Epoch(meta.id.epoch.0.saturating_add(1));
                        if !self.go_to_epoch(storage, query, epoch) {
                            self.step_back(spot);
                            return Ok((None, broken));
                        }
                        continue;
                    }
                    let missing = self.next_index.map_or(0, |next| record.index.saturating_sub(next));
                    broken |= missing > 0;
                    // Behind a damaged head nobody knows how many there were, but the next whole one says.
                    self.damaged.0 += missing.max(std::mem::take(&mut self.damaged.1));
                    self.next_index = Some(record.index + 1);
                    self.given = Some(meta.id);
                    return Ok((into_record(record), broken));
                }
                Step::Damaged => {
                    broken = true;
                    self.damaged.1 += 1;
                }
                Step::Part(next) if self.parts[next].epoch > self.parts[next - 1].epoch => {
                    let epoch = self.parts[next].epoch;
                    if !self.go_to_epoch(storage, query, epoch) {
                        return Ok((None, broken));
                    }
                }
                Step::Part(next) => {
                    self.place = None;
                    let opened = (next..self.parts.len()).find_map(|part| {
                        let scan = self.open(storage, part).ok()?;
                        Some(Place { number: self.parts[part].number, scan })
                    });
                    broken |= opened.as_ref().is_none_or(|place| place.number != self.parts[next].number);
                    self.place = opened;
                }
                // The end of what there was when it was last looked: there may be more by now.
                Step::End if is_fresh => return Ok((None, broken)),
                Step::End => {
                    is_fresh = true;
                    self.refresh(storage)?;
                    if !self.keep_place() {
                        broken |= self.given.is_some();
                        let after = self.given.max(query.after);
                        self.go_to_epoch(storage, &PastQuery { after, ..*query }, Epoch(0));
                    }
                }
            }
        }
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
            Some(Scanned::Damaged(_)) => Step::Damaged,
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
        (self.place, self.next_index) = (None, None);
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
        let mut chain_start = None;
        let (meta, spot) = (begins..parts.end).find_map(|part| {
            let mut scan = self.open(storage, part).ok()?;
            self.records(storage, part, &mut scan).find_map(|(record, spot)| {
                let meta = record.meta;
                if meta.chain.index == 0 {
                    chain_start = Some((meta.id, spot));
                }
                (!before(meta.id, meta.captured)).then_some((meta, spot))
            })
        })?;
        if meta.chain.index == 0 || query.after.is_some_and(|after| after.epoch == epoch) {
            return Some(spot);
        }
        // The start of its chain may lie in a part before.
        let mut earlier = (parts.start..begins).rev();
        let start = chain_start.or_else(|| earlier.find_map(|part| self.last_start(storage, part)));
        Some(start.filter(|(id, _)| id.sequence == meta.chain.chain).map_or(spot, |(_, start)| start))
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
        let mut end = self.parts.len();
        while let Some(epoch) = end.checked_sub(1).map(|last| self.parts[last].epoch) {
            let parts = self.parts_of(epoch);
            let behind = self.partition_point(storage, parts.clone(), |id, captured| {
                query.before.is_none_or(|before| id < before) && captured <= query.end
            });
            for part in (parts.start..behind).rev() {
                let Some(record) = self.newest_within(storage, query, part) else { continue };
                return Ok(PastAnswer { record: Some(record), held_from, ..PastAnswer::default() });
            }
            end = parts.start;
        }
        Ok(PastAnswer { held_from, ..PastAnswer::default() })
    }

    fn newest_within(&self, storage: &mut impl Storage, query: &PastQuery, part: usize) -> Option<Record> {
        let mut scan = self.open(storage, part).ok()?;
        let records = self.records(storage, part, &mut scan);
        let records =
            records.filter(|(record, _)| record.meta.chain.index == 0 && query.admits(&record.meta));
        let spots: Vec<Spot> = records.map(|(_, spot)| spot).collect();
        // One whose payload is damaged leaves its place to the one before.
        spots.into_iter().rev().find_map(|spot| {
            scan.seek(spot.index, spot.offset);
            match scan.next(storage, true)? {
                Scanned::Record(record) => into_record(record),
                Scanned::Damaged(_) => None,
            }
        })
    }
}

fn into_record(record: StoredRecord) -> Option<Record> {
    let StoredRecord { meta, skipped, payload, .. } = record;
    let frame = Frame { meta, payload: payload? };
    Some(Record { frame, skipped, quality: Quality::default(), trace: None, arrived: Instant::ZERO })
}
