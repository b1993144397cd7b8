//! Recovers a log from disk at a start: returns its newest frames in one piece, and a report of all damage.
//!
//! Segments are read from the newest to the oldest, until enough records are read or the time is over. The result is one range of the log with
//! all readable records in it. The record behind a hole states the missing frames as [`SkipReason::Damaged`](crate::frame::SkipReason::Damaged).

use std::collections::VecDeque;
use std::time::Duration;

use super::format::HeaderError;
use super::key::{KeyId, KeyRing};
use super::scan::{Damage, Scanned, SegmentScan};
use super::storage::{Bounds, Progress, Storage, StorageError};
use super::tail::{TAIL_PIECES_MAX, Tail, judge_tail, was_just_begun};
use super::{SegmentNumber, holes};
use crate::frame::{Epoch, FrameId};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant, Timestamp};

/// The most damages, and the most strange segments, that a report lists. Its counts include the rest.
pub const DAMAGES_MAX: usize = 64;

/// How a log is recovered.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryConfig<'a> {
    /// The camera.
    pub camera: &'a CameraName,
    /// The keys that the log may have been written with.
    pub keys: &'a KeyRing,
    /// The most payload bytes that are brought back to memory. Older records stay on disk.
    pub bytes_max: u64,
    /// No further segment is begun after this time. At least one segment is read.
    pub time_max: Duration,
}

/// Why a log was not recovered. Nothing was changed on disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The log was written with another key.
    #[error(
        "segment {segment} was written with the log key {key}, but the given keys are {given}; give this key too (older keys first), or move the \
         segment away if it belongs to another log, or move the log's folder away to begin a new log"
    )]
    Key {
        /// The segment.
        segment: SegmentNumber,
        /// The key that it was written with.
        key: KeyId,
        /// The names of the keys that were given.
        given: String,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// A segment that is passed over: it is neither read nor removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment}: {why}")]
pub struct StrangeSegment {
    /// The segment's number, as listed by the storage.
    pub segment: SegmentNumber,
    /// Why it is passed over.
    pub why: HeaderError,
}

/// What was found on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records brought back to memory.
    pub records: u64,
    /// Payload bytes of these records.
    pub payload_bytes: u64,
    /// The oldest and the newest of these records.
    pub frames: Option<(FrameId, FrameId)>,
    /// The capture time of the newest of these records.
    pub newest_captured: Option<Timestamp>,
    /// Segments on disk that belong to the log.
    pub segments: u64,
    /// Segments of the log that were not read, because their frames are older than the frames that were brought back.
    pub segments_unread: u64,
    /// Damage in the segments that were read, the first [`DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    /// The number of all damages.
    pub damaged: u64,
    /// Lost records of the segments that were read, and of missing segments between them.
    pub lost: u64,
    /// Lost records at the end of the log: the remembered progress counts them, but they were cut off, or somebody removed them.
    pub lost_newest: u64,
    /// Lost records at the beginning of the log: they had not expired, but their segments are missing.
    pub lost_oldest: u64,
    /// Bytes at the end of the newest segment that were being written when the broker was killed or the power went.
    pub torn_bytes: u64,
    /// Segments whose header had one damaged byte, which was repaired.
    pub mended: u64,
    /// Segments that are passed over, the first [`DAMAGES_MAX`].
    pub strange: Vec<StrangeSegment>,
    /// The number of all segments that are passed over.
    pub strange_segments: u64,
    /// Segments that had expired and were there again. They were removed.
    pub expired: u64,
    /// Segments that the bounds count as created, but that are missing: an older copy of the log was put in place, or somebody removed them.
    pub missing: u64,
    /// Whether there is a log but no remembered bounds: the state folder was lost or replaced.
    pub bounds_lost: bool,
}

impl RecoveryReport {
    /// Whether the log is as a writer leaves it, apart from a tail that was being written.
    pub fn is_clean(&self) -> bool {
        self.damaged == 0
            && self.records_lost() == 0
            && self.mended == 0
            && self.strange_segments == 0
            && self.expired == 0
            && self.missing == 0
            && !self.bounds_lost
    }

    /// All lost records, as far as the log was read.
    pub fn records_lost(&self) -> u64 {
        self.lost + self.lost_newest + self.lost_oldest
    }
}

/// Where a writer continues.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// The number of the next segment.
    pub next_segment: SegmentNumber,
    /// The index of the next record.
    pub next_index: u64,
    /// The remembered bounds of the log.
    pub bounds: Bounds,
    /// One past the index of the last record that is known to be durable.
    pub durable_index: u64,
    /// The log's segments, the oldest first.
    pub segments: Vec<KnownSegment>,
    /// The highest epoch of a segment. New frames of the same camera broker need a later epoch.
    pub newest_epoch: Option<Epoch>,
}

/// A segment that is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSegment {
    /// Its number.
    pub number: SegmentNumber,
    /// Its size.
    pub bytes: u64,
    /// The index of its first record. `None`: its header was not read.
    pub first_index: Option<u64>,
    /// A wall-clock time by which the whole segment was written. `None`: no time before now is known.
    pub closed: Option<Timestamp>,
}

/// The result of a recovery.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// One range of the log, oldest first, that ends with the newest complete record. A record behind a hole states the missing frames.
    pub records: Vec<Record>,
    /// The epoch of the newest of these records, and the clock anchor of the start that it belongs to.
    pub start: Option<(Epoch, ClockAnchor)>,
    /// What was found.
    pub report: RecoveryReport,
    /// Where a writer continues.
    pub resume: Resume,
}

/// Reads a log on disk, newest segment first. Checks `now` between segments.
pub fn recover(
    storage: &mut impl Storage,
    config: RecoveryConfig<'_>,
    mut now: impl FnMut() -> Instant,
) -> Result<Recovery, RecoveryError> {
    let begun = now();
    let mut is_late = || now().saturating_since(begun) >= config.time_max;
    let progress = storage.read_progress()?;
    let remembered = storage.read_bounds()?;
    let mut listed = storage.list()?;
    listed.sort_unstable();
    let bounds = remembered.unwrap_or_else(|| {
        // Without remembered bounds, the log is taken as it is.
        let oldest = listed.first().map_or(SegmentNumber(0), |(number, _)| *number);
        Bounds { oldest, ..Bounds::default() }
    });
    let segments = open_segments(storage, config, &listed, bounds.oldest, &mut is_late);
    // Checked before anything is changed: a missing key refuses the whole log.
    refuse_without_key(&segments, config, bounds.oldest)?;

    let newest_listed = listed.last().map_or(SegmentNumber(0), |(number, _)| number.next());
    let mut walk = Walk::new(config, progress, bounds, newest_listed);
    walk.report.bounds_lost = remembered.is_none() && !listed.is_empty();
    let older: Vec<SegmentNumber> = segments.iter().skip(1).map(|segment| segment.number).collect();
    for (place, segment) in segments.into_iter().enumerate() {
        if let Some(next) = older.get(place).filter(|_| !walk.over) {
            // The storage fetches the next segment while this one is decrypted.
            storage.prefetch(*next);
        }
        walk.visit(storage, segment, &mut is_late)?;
    }
    walk.look_back(newest_listed, listed.is_empty());
    Ok(walk.finish())
}

/// A listed segment, and its header if that was read.
struct Listed {
    number: SegmentNumber,
    bytes: u64,
    opened: Option<Result<SegmentScan, HeaderError>>,
}

/// Reads the headers of segments, newest first, until it is late. The newest segment and
/// expired segments are always opened. A segment that is not opened here is not read at all.
fn open_segments(
    storage: &mut impl Storage,
    config: RecoveryConfig<'_>,
    listed: &[(SegmentNumber, u64)],
    oldest: SegmentNumber,
    mut is_late: impl FnMut() -> bool,
) -> Vec<Listed> {
    let mut segments: Vec<Listed> = Vec::new();
    for &(number, bytes) in listed.iter().rev() {
        let passes = number >= oldest && !segments.is_empty() && is_late();
        let opened = (!passes).then(|| SegmentScan::open(storage, config.camera, config.keys, number, bytes));
        segments.push(Listed { number, bytes, opened });
    }
    segments
}

/// Refuses a log if one of its segments was written with a key that is not given.
fn refuse_without_key(
    segments: &[Listed],
    config: RecoveryConfig<'_>,
    oldest: SegmentNumber,
) -> Result<(), RecoveryError> {
    for Listed { number, opened, .. } in segments {
        if let Some(Err(HeaderError::Key(key))) = opened
            && *number >= oldest
        {
            let given: Vec<String> = config.keys.ids().map(|id| id.to_string()).collect();
            return Err(RecoveryError::Key { segment: *number, key: *key, given: given.join(", ") });
        }
    }
    Ok(())
}

/// The state of a recovery, which goes from the newest segment to the oldest.
struct Walk<'a> {
    config: RecoveryConfig<'a>,
    progress: Option<Progress>,
    report: RecoveryReport,
    /// Where a writer continues. Its segments are sorted newest first until the walk is over.
    resume: Resume,
    /// The index of the first record of the segment that was visited last. `None`: its header was not read.
    first_index: Option<u64>,
    /// When the last visited segment with a readable header was opened. The segments before it had been written by then.
    closed: Option<Timestamp>,
    /// The records so far with their indices: one piece for each segment, newest first.
    pieces: Vec<Vec<(u64, Record)>>,
    start: Option<(Epoch, ClockAnchor)>,
    /// The first index of the last segment that was read, where the next older segment must end.
    limit: Option<u64>,
    /// One past the index of the newest record.
    end: u64,
    /// One past the index of the last record that damage behind the newest record has cost.
    tail_end: u64,
    /// The epoch of the oldest segment so far.
    epoch: Option<Epoch>,
    /// Segments with a torn header that were visited after the last segment that was read, with their sizes.
    torn: Vec<(SegmentNumber, u64)>,
    /// Whether no older segment is read any more.
    over: bool,
}

impl<'a> Walk<'a> {
    fn new(
        config: RecoveryConfig<'a>,
        progress: Option<Progress>,
        bounds: Bounds,
        newest_listed: SegmentNumber,
    ) -> Self {
        let written = progress.map_or(SegmentNumber(0), |progress| progress.segment.next());
        let next_segment = newest_listed.max(bounds.next).max(written);
        Self {
            config,
            progress,
            report: RecoveryReport::default(),
            resume: Resume { next_segment, bounds, newest_epoch: bounds.epoch, ..Resume::default() },
            first_index: None,
            closed: None,
            pieces: Vec::new(),
            start: None,
            limit: None,
            end: 0,
            tail_end: 0,
            epoch: None,
            torn: Vec::new(),
            over: false,
        }
    }

    fn has_begun(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Takes in the next older segment.
    fn visit(
        &mut self,
        storage: &mut impl Storage,
        segment: Listed,
        mut is_late: impl FnMut() -> bool,
    ) -> Result<(), StorageError> {
        let Listed { number, bytes, opened } = segment;
        match opened {
            Some(Ok(_) | Err(HeaderError::Torn)) if number < self.resume.bounds.oldest => {
                storage.remove(number)?;
                self.report.expired += 1;
            }
            // A power cut leaves a torn header of a segment that was just begun. If the segment had held
            // records that matter, the segment before it would not reach up to the segment after it.
            Some(Err(HeaderError::Torn)) => {
                self.torn.push((number, bytes));
                self.know(number, bytes, None);
            }
            Some(Err(why)) => self.strange(number, why),
            Some(Ok(mut scan)) => {
                let header = scan.header();
                let (first_index, epoch, opened) = (header.first_index, header.epoch, header.opened);
                self.first_index = Some(first_index);
                self.know(number, bytes, self.first_index);
                self.report.mended += u64::from(scan.mended().is_some());
                self.closed = Some(opened);
                self.resume.newest_epoch = self.resume.newest_epoch.max(Some(epoch));
                self.resume.next_index = self.resume.next_index.max(first_index);
                if self.over || self.has_begun() && is_late() {
                    self.pass();
                } else {
                    self.segment(storage, &mut scan);
                }
            }
            None => {
                self.first_index = None;
                self.know(number, bytes, None);
                self.pass();
            }
        }
        Ok(())
    }

    /// Adds a segment to the segments of the log.
    fn know(&mut self, number: SegmentNumber, bytes: u64, first_index: Option<u64>) {
        let newer = self.resume.segments.last().map(|newer| newer.number);
        debug_assert!(newer.is_none_or(|newer| number < newer), "segment {number} comes after an older one");
        self.resume.segments.push(KnownSegment { number, bytes, first_index, closed: self.closed });
    }

    /// Notes that neither this segment nor any older one is read.
    fn pass(&mut self) {
        self.over = true;
        self.report.segments_unread += 1;
    }

    /// Compares the records that were found with what is remembered of the log. `newest_listed`: one above the newest listed segment.
    fn look_back(&mut self, newest_listed: SegmentNumber, is_empty: bool) {
        let Self { resume, report, progress, first_index, .. } = self;
        let bounds = resume.bounds;
        resume.segments.reverse();
        resume.next_index = resume.next_index.max(self.end).max(bounds.first_index.unwrap_or(0));
        // Lost records keep their indices, so that the gap stays visible.
        let reached = progress.map_or(0, |progress| progress.reached()).max(self.tail_end);
        report.lost_newest = reached.saturating_sub(resume.next_index);
        resume.next_index = resume.next_index.max(reached);
        resume.durable_index = progress.map_or(0, |progress| progress.durable);
        if progress.is_none() || report.lost_newest > 0 {
            report.missing = bounds.next.0.saturating_sub(newest_listed.0.max(bounds.oldest.0));
        }
        report.lost_oldest = match (*first_index, bounds.first_index) {
            (Some(first), Some(remembered)) => first.saturating_sub(remembered),
            _ => 0,
        };
        if report.bounds_lost {
            resume.bounds.first_index = *first_index;
        } else if is_empty {
            // No segment is left, or there never was one: the log begins here.
            resume.bounds.oldest = resume.next_segment;
            resume.bounds.next = resume.next_segment;
            resume.bounds.first_index = Some(resume.next_index);
        }
        report.segments = resume.segments.len() as u64;
        if self.report.lost_oldest > 0 || !self.has_begun() && self.report.lost_newest > 0 {
            self.torn_are_strange();
        }
    }

    fn strange(&mut self, segment: SegmentNumber, why: HeaderError) {
        self.report.strange_segments += 1;
        if self.report.strange.len() < DAMAGES_MAX {
            self.report.strange.push(StrangeSegment { segment, why });
        }
    }

    /// Reports the segments with a torn header as strange, because records are missing where they are.
    fn torn_are_strange(&mut self) {
        for (segment, _) in std::mem::take(&mut self.torn) {
            self.strange(segment, HeaderError::Torn);
        }
    }

    fn segment(&mut self, storage: &mut impl Storage, scan: &mut SegmentScan) {
        let (first, epoch, anchor) = (scan.header().first_index, scan.header().epoch, scan.header().anchor);
        if self.epoch.is_some_and(|newer| epoch > newer) {
            // A later epoch than that of a newer segment: an older copy of the log
            // replaced the segments after this one. The two do not belong together.
            return self.pass();
        }
        if self.limit.is_some_and(|limit| first >= limit) {
            // Superseded: the next segment holds these records again, or other records in their place.
            return;
        }
        let records = self.read(storage, scan);
        let newest = records.last().map_or(first, |(index, _)| index + 1);
        self.end = self.end.max(newest);
        self.report.lost += self.limit.unwrap_or(newest) - first - records.len() as u64;
        let all_there = match self.limit {
            Some(limit) => newest >= limit,
            None => self.torn.iter().all(|(_, bytes)| was_just_begun(self.progress.as_ref(), newest, *bytes)),
        };
        if !all_there {
            self.torn_are_strange();
        }
        self.torn.clear();
        self.limit = Some(first);
        self.epoch = Some(epoch);
        if !records.is_empty() {
            if !self.has_begun() {
                self.start = Some((epoch, anchor));
            }
            self.take(records);
        }
    }

    /// Keeps the newest of `records` that fit into [`RecoveryConfig::bytes_max`].
    fn take(&mut self, mut records: Vec<(u64, Record)>) {
        let mut kept = records.len();
        while kept > 0 {
            let bytes = records[kept - 1].1.frame.payload.len() as u64;
            if self.report.payload_bytes + bytes > self.config.bytes_max {
                self.over = true;
                break;
            }
            self.report.payload_bytes += bytes;
            kept -= 1;
        }
        records.drain(..kept);
        if !records.is_empty() {
            self.pieces.push(records);
        }
    }

    /// Reads the complete records of a segment, up to where the next segment begins.
    fn read(&mut self, storage: &mut impl Storage, scan: &mut SegmentScan) -> Vec<(u64, Record)> {
        let mut records = Vec::new();
        // Damage of the newest segment that has no complete record behind it yet.
        let mut tail: VecDeque<Damage> = VecDeque::new();
        while self.limit.is_none_or(|limit| scan.index() < limit) {
            match scan.next(storage, true) {
                None => break,
                Some(Scanned::Record(record)) => {
                    tail.drain(..).for_each(|damage| self.note(&damage));
                    let index = record.index;
                    records.push((index, record.into_record().expect("the scan was asked for payloads")));
                }
                Some(Scanned::Damaged(damage)) if self.limit.is_none() => {
                    tail.push_back(damage);
                    if tail.len() > TAIL_PIECES_MAX
                        && let Some(damage) = tail.pop_front()
                    {
                        self.note(&damage);
                    }
                }
                Some(Scanned::Damaged(damage)) => self.note(&damage),
            }
        }
        for damage in tail {
            if judge_tail(self.progress.as_ref(), &damage) == Tail::Torn {
                self.report.torn_bytes += damage.bytes;
            } else {
                self.tail_end = self.tail_end.max(damage.until.unwrap_or(damage.index + 1));
                self.note(&damage);
            }
        }
        records
    }

    fn note(&mut self, damage: &Damage) {
        self.report.damaged += 1;
        if self.report.damages.len() < DAMAGES_MAX {
            self.report.damages.push(*damage);
        }
    }

    fn finish(mut self) -> Recovery {
        self.pieces.reverse();
        let mut records: Vec<Record> = Vec::new();
        let mut next = None;
        for (index, mut record) in self.pieces.into_iter().flatten() {
            // Each segment was read up to where the next one begins.
            debug_assert!(next.is_none_or(|next| index >= next), "record {index} is brought back twice");
            if next.is_some_and(|next| index > next) {
                holes::state(records.last().map(|record| record.frame.meta.id), &mut record);
            }
            next = Some(index + 1);
            records.push(record);
        }
        // If a writer continued at an earlier index, two records would have the same index.
        debug_assert!(next.is_none_or(|next| next <= self.resume.next_index), "a writer goes on too early");
        let mut report = self.report;
        report.records = records.len() as u64;
        report.newest_captured = records.last().map(|record| record.frame.meta.captured);
        report.frames = records.first().zip(records.last()).map(|(a, b)| (a.frame.meta.id, b.frame.meta.id));
        Recovery { records, start: self.start, report, resume: self.resume }
    }
}
