//! Reads the past from disk, one frame at a time, while the writer appends at one end of the log and removes
//! segments at the other.
//!
//! A reader keeps only a place in a segment and one chunk of it in memory. It passes over damaged records and
//! removed segments. Neither is an error; the answer reports both ([`PastAnswer::broken`]). The record behind
//! damage also states it as skipped frames.

use std::ops::Range;

use bytes::Bytes;

use super::format::HeaderError;
use super::key::KeyRing;
use super::scan::{Scanned, SegmentScan, StoredRecord};
use super::storage::{Storage, StorageError};
use super::{SegmentNumber, holes};
use crate::chain::begins_chain;
use crate::frame::{Epoch, FrameId, FrameMeta};
use crate::history::{PastAnswer, PastQuery};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::Timestamp;

/// Binary search in a segment stops at a range of this many bytes. Within the range, records are read one after the other.
const NEAR_BYTES: u64 = 32 << 10;
/// For large records, binary search stops at a range of this many records: each step reads half a record, on average, before it finds the next one.
const NEAR_RECORDS: u64 = 4;

/// A segment of the log, as its header describes it.
#[derive(Clone, Debug)]
struct Part {
    number: SegmentNumber,
    bytes: u64,
    epoch: Epoch,
    first_index: u64,
    /// The identity and capture time of its first record; `None` until it was read.
    first: Option<(FrameId, Timestamp)>,
}

/// Where reading continues.
struct Place {
    number: SegmentNumber,
    scan: SegmentScan,
}

/// The next item at the reader's place.
enum AtPlace {
    Record(StoredRecord, Spot),
    /// This many records that cannot be read.
    Damaged(u64),
    /// The segment ends; reading continues in this part.
    Part(usize),
    /// The end of the log, as it was when the segments were last listed.
    End,
}

/// Where a record is.
#[derive(Clone, Copy)]
struct Spot {
    part: usize,
    index: u64,
    offset: u64,
}

/// A record that was found.
struct Found {
    meta: FrameMeta,
    spot: Spot,
    /// The complete record before it.
    behind: Option<Known>,
}

/// A complete record that was seen.
#[derive(Clone, Copy)]
struct Known {
    /// The index of the record that follows it.
    next: u64,
    /// The frame of the record. `None`: the record lies before the segments that were read.
    id: Option<FrameId>,
}

/// Reads one camera's log on disk.
pub struct StoreReader {
    camera: CameraName,
    keys: KeyRing,
    /// The segments of the log, oldest first. Each ends where the next one begins.
    parts: Vec<Part>,
    place: Option<Place>,
    /// The last frame that was returned; `place` is behind it.
    given: Option<FrameId>,
    /// The last complete record before `place`, if known. If nothing is missing, the next record follows it.
    before: Option<Known>,
    /// Whether segments before `place` were removed since the segments were last listed.
    removed: bool,
    /// Unreadable records before the last returned frame, and after it.
    damaged: (u64, u64),
    /// Whether records are returned without their payloads.
    skims: bool,
}

impl StoreReader {
    /// A reader that has read nothing yet.
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
            skims: false,
        }
    }

    /// A reader that returns records without their payloads. It neither reads nor checks payloads.
    pub fn skimming(camera: CameraName, keys: KeyRing) -> Self {
        Self { skims: true, ..Self::new(camera, keys) }
    }

    /// The camera whose log is read.
    pub fn camera(&self) -> &CameraName {
        &self.camera
    }

    /// Finds the frame that a query asks for, if it is on disk. A query that follows the last answer
    /// continues there; any other begins with a binary search.
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
        let held_from = query.held_from(self.oldest(storage));
        Ok(PastAnswer { record, broken, held_from, ..PastAnswer::default() })
    }

    /// How many records between the returned ones could not be read, because they are damaged or were removed
    /// meanwhile.
    pub fn damaged(&self) -> u64 {
        self.damaged.0 + self.damaged.1
    }

    /// The capture time of the oldest readable frame; `None` if there is none.
    pub fn held_from(&mut self, storage: &mut impl Storage) -> Option<Timestamp> {
        self.oldest(storage).map(|(_, captured)| captured)
    }

    fn oldest(&mut self, storage: &mut impl Storage) -> Option<(FrameId, Timestamp)> {
        (0..self.parts.len()).find_map(|part| self.first_of(storage, part))
    }

    // ---- which segments there are -------------------------------------------------------------------------

    /// Lists the segments. Headers that are already known are not read again.
    fn refresh(&mut self, storage: &mut impl Storage) -> Result<(), StorageError> {
        let oldest = storage.read_bounds()?.unwrap_or_default().oldest;
        let mut listed = storage.list()?;
        listed.retain(|(number, _)| *number >= oldest);
        listed.sort_unstable();
        let known = std::mem::take(&mut self.parts);
        let mut parts: Vec<Part> = Vec::with_capacity(listed.len());
        // From the newest back. Segments that a newer one supersedes are left out, and so are segments that do not belong to the newer one's log.
        for (number, bytes) in listed.into_iter().rev() {
            let part = match known.binary_search_by_key(&number, |part| part.number) {
                Ok(at) => Part { bytes, ..known[at].clone() },
                Err(_) => match SegmentScan::open(storage, &self.camera, &self.keys, number, bytes) {
                    Ok(scan) => {
                        let header = scan.header();
                        let (epoch, first_index) = (header.epoch, header.first_index);
                        Part { number, bytes, epoch, first_index, first: None }
                    }
                    // Removed meanwhile, or unreadable. Recovery reports the latter.
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

    /// The identity and capture time of the first record of a part.
    fn first_of(&mut self, storage: &mut impl Storage, part: usize) -> Option<(FrameId, Timestamp)> {
        if self.parts[part].first.is_none() {
            let mut scan = self.open(storage, part).ok()?.sparse();
            let first = self.records(storage, part, &mut scan).next();
            self.parts[part].first = first.map(|(record, _)| (record.meta.id, record.meta.captured));
        }
        self.parts[part].first
    }

    fn open(&self, storage: &mut impl Storage, part: usize) -> Result<SegmentScan, HeaderError> {
        let Part { number, bytes, .. } = self.parts[part];
        let scan = SegmentScan::open(storage, &self.camera, &self.keys, number, bytes)?;
        Ok(if self.skims { scan.sparse() } else { scan })
    }

    /// The index at which a part ends; `None` for the newest part.
    fn limit(&self, part: usize) -> Option<u64> {
        self.parts.get(part + 1).map(|next| next.first_index)
    }

    /// The complete records of a part from the place of `scan` on, without their payloads.
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

    /// The next frame behind the last answer, and whether a record before it is missing.
    fn find_next(
        &mut self,
        storage: &mut impl Storage,
        query: &PastQuery,
    ) -> Result<(Option<Record>, bool), StorageError> {
        let (mut broken, mut is_fresh, mut reached) = (false, false, 0_u64);
        loop {
            match self.advance(storage) {
                AtPlace::Record(record, spot) => {
                    let meta = &record.meta;
                    if query.after.is_some_and(|after| meta.id <= after) {
                        self.before = Some(Known { next: record.index + 1, id: Some(meta.id) });
                        continue;
                    }
                    broken |= self.before.is_some_and(|before| record.index > before.next);
                    if query.before.is_some_and(|before| meta.id >= before) {
                        // The frame is left for another query.
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
                AtPlace::Damaged(records) => {
                    // At the end of the log, this may be a record that is being written. The next complete record, or the end, decides.
                    self.damaged.1 += records;
                }
                AtPlace::Part(next) if self.parts[next].epoch > self.parts[next - 1].epoch => {
                    let epoch = self.parts[next].epoch;
                    if !self.go_to_epoch(storage, query, epoch) {
                        return Ok((None, broken || self.damaged.1 > 0));
                    }
                }
                AtPlace::Part(next) => {
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
                AtPlace::End if is_fresh => {
                    // The progress says that more records were written than can be read.
                    let read = self.place.as_ref().map(|place| place.scan.index());
                    let read = read.or(self.before.map(|before| before.next));
                    let lost = read.map_or(0, |read| reached.saturating_sub(read));
                    self.damaged.1 = lost;
                    return Ok((None, broken || lost > 0));
                }
                AtPlace::End => {
                    is_fresh = true;
                    // The progress is read before the segments are listed, so that the segments contain all records that it counts.
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

    /// Returns the record. It lists the missing frames before it as skipped.
    fn take(&mut self, mut record: StoredRecord) -> Option<Record> {
        if self.skims {
            record.payload = Some(Bytes::new());
        }
        let (index, id) = (record.index, record.meta.id);
        let missing = self.before.map_or(0, |before| index.saturating_sub(before.next));
        let last = self.before.and_then(|before| before.id).or(self.given);
        // The index of a complete record tells how many damaged ones were before it.
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

    /// Reads the next item at the place, and moves the place behind it.
    fn advance(&mut self, storage: &mut impl Storage) -> AtPlace {
        let Some(mut place) = self.place.take() else { return AtPlace::End };
        let Ok(part) = self.parts.binary_search_by_key(&place.number, |part| part.number) else {
            return AtPlace::End;
        };
        let spot = Spot { part, index: place.scan.index(), offset: place.scan.offset() };
        let ends = self.limit(part).is_some_and(|limit| spot.index >= limit);
        let scanned = if ends { None } else { place.scan.next(storage, !self.skims) };
        let is_newest = part + 1 == self.parts.len();
        let step = match scanned {
            Some(Scanned::Record(record)) => AtPlace::Record(record, spot),
            // An incomplete record at the end is being written; it is read later.
            Some(Scanned::Damaged(damage)) if is_newest && damage.reaches(self.parts[part].bytes) => {
                place.scan.seek(spot.index, spot.offset);
                AtPlace::End
            }
            Some(Scanned::Damaged(damage)) => AtPlace::Damaged(damage.records(self.limit(part)).unwrap_or(1)),
            None if is_newest => AtPlace::End,
            None => AtPlace::Part(part + 1),
        };
        self.place = Some(place);
        step
    }

    fn step_back(&mut self, spot: Spot) {
        if let Some(place) = &mut self.place {
            place.scan.seek(spot.index, spot.offset);
        }
    }

    /// Whether the current segment still belongs to the log. If so, records that were appended to it become
    /// readable.
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

    /// Moves the place to where the answer to a query can begin, in epoch `from` or a later one. Returns
    /// false if there is no such place.
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

    /// The first record of an epoch that a query admits, or the start of the chain that this record needs.
    fn first_within(&mut self, storage: &mut impl Storage, query: &PastQuery, epoch: Epoch) -> Option<Spot> {
        let before =
            |id: FrameId, captured| query.after.is_some_and(|after| id <= after) || captured < query.begin;
        let parts = self.parts_of(epoch);
        let seen = self.before;
        let Found { meta, spot, behind } = match self.first_behind(storage, parts.clone(), seen, before) {
            Ok(found) => found,
            Err(last) => {
                self.before = last;
                return None;
            }
        };
        self.before = behind;
        if !meta.encoding.is_chained()
            || meta.chain.index == 0
            || query.after.is_some_and(|after| after.epoch == epoch)
        {
            return Some(spot);
        }
        let start = FrameId { epoch, sequence: meta.chain.chain };
        let up_to = parts.start..spot.part + 1;
        let found = self.first_behind(storage, up_to, None, |id, _| id < start).ok();
        let Some(start) = found.filter(|found| found.meta.id == start && begins_chain(&found.meta)) else {
            return Some(spot);
        };
        // The query does not ask for records that are missing before the chain.
        self.before = None;
        Some(start.spot)
    }

    /// The first record of `parts` for which `before` is false. If there is none, the last
    /// complete record that was read. `seen`: the complete record before `parts`, if known.
    fn first_behind(
        &mut self,
        storage: &mut impl Storage,
        parts: Range<usize>,
        mut seen: Option<Known>,
        before: impl Fn(FrameId, Timestamp) -> bool,
    ) -> Result<Found, Option<Known>> {
        // The record is in the last part that begins before it, or in the one after.
        let behind = self.partition_point(storage, parts.clone(), &before);
        let mut readable = (parts.start..behind).rev();
        let begins = readable.find(|part| self.first_of(storage, *part).is_some()).unwrap_or(parts.start);
        let found = (begins..parts.end).find_map(|part| {
            let mut scan = self.open(storage, part).ok()?.sparse();
            // In the first part that is read, records missing at its front can be counted too.
            seen = seen.or(Some(Known { next: scan.index(), id: None }));
            self.approach(storage, part, &mut scan, &before);
            self.records(storage, part, &mut scan).find_map(|(record, spot)| {
                let meta = record.meta;
                if !before(meta.id, meta.captured) {
                    return Some(Found { meta, spot, behind: seen });
                }
                seen = Some(Known { next: spot.index + 1, id: Some(meta.id) });
                None
            })
        });
        found.ok_or(seen)
    }

    /// Moves a scan of a part near the first record for which `before` is false: to the front of the part, or to a record for which `before` is true.
    fn approach(
        &self,
        storage: &mut impl Storage,
        part: usize,
        scan: &mut SegmentScan,
        before: impl Fn(FrameId, Timestamp) -> bool,
    ) {
        let limit = self.limit(part).unwrap_or(u64::MAX);
        let (mut low, mut high) = ((scan.index(), scan.offset()), self.parts[part].bytes);
        let mut near = NEAR_BYTES;
        while high.saturating_sub(low.1) > near {
            let middle = low.1 + (high - low.1) / 2;
            let read = if scan.seek_near(storage, middle) { scan.next(storage, false) } else { None };
            let record = match read {
                Some(Scanned::Record(record)) => Some(record),
                Some(Scanned::Damaged(_)) | None => None,
            };
            near = near.max(record.as_ref().map_or(0, |record| record.bytes * NEAR_RECORDS));
            match record.filter(|record| record.index < limit && before(record.meta.id, record.meta.captured))
            {
                Some(record) => low = (record.index, record.offset),
                None => high = middle,
            }
        }
        scan.seek(low.0, low.1);
    }

    /// The first of `parts` whose first record has `before` false.
    fn partition_point(
        &mut self,
        storage: &mut impl Storage,
        parts: Range<usize>,
        before: impl Fn(FrameId, Timestamp) -> bool,
    ) -> usize {
        let (mut low, mut high) = (parts.start, parts.end);
        while low < high {
            let middle = low + (high - low) / 2;
            // An unreadable part is judged by the one before it.
            let judged = (low..=middle).rev().find_map(|part| Some((part, self.first_of(storage, part)?)));
            match judged {
                Some((part, (id, captured))) if !before(id, captured) => high = part,
                _ => low = middle + 1,
            }
        }
        low
    }

    // ---- the newest of a span -----------------------------------------------------------------------------

    /// The newest frame of the span. Decoding it may need other frames.
    fn find_newest(
        &mut self,
        storage: &mut impl Storage,
        query: &PastQuery,
    ) -> Result<PastAnswer, StorageError> {
        self.refresh(storage)?;
        let held_from = query.held_from(self.oldest(storage));
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

    /// The newest frame of the span in a part, and whether a newer one is damaged.
    fn newest_within(
        &self,
        storage: &mut impl Storage,
        query: &PastQuery,
        part: usize,
    ) -> (Option<Record>, bool) {
        let before =
            |id: FrameId, captured| query.before.is_none_or(|before| id < before) && captured <= query.end;
        let Ok(scan) = self.open(storage, part) else { return (None, false) };
        let mut scan = scan.sparse();
        let front = (scan.index(), scan.offset());
        self.approach(storage, part, &mut scan, before);
        let near = (scan.index(), scan.offset());
        let (newest, damaged) = self.newest_from(storage, query, part, &mut scan);
        if newest.is_some() || near == front {
            return (newest, damaged);
        }
        // None of the records near the place can be read.
        scan.seek(front.0, front.1);
        self.newest_from(storage, query, part, &mut scan)
    }

    /// The newest frame of the span from the place of `scan` on, and whether a newer one is damaged.
    fn newest_from(
        &self,
        storage: &mut impl Storage,
        query: &PastQuery,
        part: usize,
        scan: &mut SegmentScan,
    ) -> (Option<Record>, bool) {
        let records = self.records(storage, part, scan);
        let records = records.filter(|(record, _)| query.admits(&record.meta));
        let spots: Vec<Spot> = records.map(|(_, spot)| spot).collect();
        // If the payload of the newest frame is damaged, the frame before takes its place.
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
