//! Writes what is appended to a log in memory, behind its back: publishing and delivering wait for nothing here.
//!
//! [`StoreWriter::step`] says when it is to be called again: every [`BATCH_INTERVAL`] while there is something to do, and otherwise once
//! records have come ([`StoreWriter::wake`]). Each step takes what is new in memory, seals
//! it and hands it to the storage in one piece; the queue in front of the writer is the log itself. Whatever goes
//! wrong, the segment at hand is given up, the writer goes back to the last record that is known to be durable, and goes on
//! in a new segment that begins with the index of that record: the new segment cuts off whatever the old one has beyond.

mod durability;
mod retention;
mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::{Epoch, FrameId, SkipRange, SkipReason};
use crate::log::Record;
use crate::log::{Cursor, Read};
use crate::store::config::{Durability, StoreConfig};
use crate::store::format::{Sealer, SegmentHeader};
use crate::store::key::{SALT_BYTES, TAG_BYTES};
use crate::store::recovery::Resume;
use crate::store::status::StoreStatus;
use crate::store::storage::{Bounds, Storage, StorageError, StorageErrorKind};
use crate::store::{SegmentNumber, holes};
use crate::units::{ClockAnchor, Instant, Timestamp};

/// How often records are handed to the storage.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(40);
/// A writer with nothing to do looks around this often all the same. Nothing depends on it.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
/// How often is looked whether a sync that goes on has ended.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long after a failure the storage is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// Frames that wait longer than this for the storage, or syncs that take longer, are a reason to be degraded.
pub const SLOW_AFTER: Duration = Duration::from_millis(500);
/// Of the age that a log may reach on disk, the part after which a segment is closed, so that it can expire.
const SEGMENT_AGE_PARTS: u32 = 16;

/// The largest payload that can be stored: its sealed length is a field of 32 bits.
const PAYLOAD_BYTES_MAX: usize = u32::MAX as usize - TAG_BYTES;

/// A point that both logs share: `index` on disk is `cursor` in memory, and `frame` came before it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    index: u64,
    cursor: u64,
    frame: Option<FrameId>,
}

/// The segment that is written.
struct Open {
    number: SegmentNumber,
    sealer: Sealer,
    epoch: Epoch,
    first_index: u64,
    bytes: u64,
    opened: Instant,
    /// Whether the storage remembers, outside of the log, that this segment exists.
    announced: bool,
}

/// A segment that is complete.
struct Closed {
    number: SegmentNumber,
    bytes: u64,
    /// The index of its first record, where it is known.
    first_index: Option<u64>,
    expires: Option<Instant>,
}

/// A sync that goes on.
struct Syncing {
    started: Instant,
    upto: Upto,
}

/// What is durable once a sync has ended.
enum Upto {
    /// The segment at hand, to here.
    Mark(Mark),
    /// What an earlier start wrote.
    Before,
    /// Nothing that matters: the segment was given up meanwhile.
    Nothing,
}

/// Follows a log in memory and writes it to a storage.
pub struct StoreWriter<S> {
    storage: S,
    config: StoreConfig,
    /// The start that frames of its epoch belong to.
    start: (Epoch, ClockAnchor),
    cursor: Cursor,
    next_segment: SegmentNumber,
    bounds: Bounds,
    /// The index up to which the log was known to be durable at the start.
    durable_before: u64,
    open: Option<Open>,
    closed: VecDeque<Closed>,
    /// The newest segment of the start before: what a killed broker wrote there is not durable yet, and has to be before
    /// anything that comes after it is.
    before: Option<SegmentNumber>,
    /// Records that are sealed and not yet handed over.
    batch: Vec<u8>,
    /// Bytes of their payloads.
    batch_payload_bytes: u64,
    /// Records left memory since the last one was sealed.
    evicted: bool,
    /// Records before this one, in memory, were counted where they were lost.
    lost_before: u64,
    /// What is sealed.
    sealed: Mark,
    /// What the storage has.
    written: Mark,
    /// What is durable.
    durable: Mark,
    syncing: Option<Syncing>,
    sync_due: Instant,
    /// When the storage is tried again, and why not before.
    failure: Option<(Instant, StorageError)>,
    /// Since when there is more in memory than could be written.
    behind_since: Option<Instant>,
    /// When the next step is due.
    due: Instant,
    closing: bool,
    status: StoreStatus,
}

impl<S: Storage> StoreWriter<S> {
    /// A writer of what `cursor` finds from now on, behind what `resume` says is on disk.
    pub fn new(
        storage: S,
        config: StoreConfig,
        resume: Resume,
        cursor: Cursor,
        now: Instant,
        wall: Timestamp,
    ) -> Self {
        let expires = |closed: Option<Timestamp>| {
            let age = closed.map_or(Duration::ZERO, |closed| wall.saturating_since(closed));
            config.disk_age_max.map(|max| now + max.saturating_sub(age))
        };
        let closed = resume.segments.iter();
        let closed = closed
            .map(|known| Closed {
                number: known.number,
                bytes: known.bytes,
                first_index: known.first_index,
                expires: expires(known.closed),
            })
            .collect();
        let before = resume.segments.last().map(|known| known.number);
        let before = before.filter(|_| config.durability != Durability::Async);
        let mark = Mark { index: resume.next_index, cursor: cursor.index(), frame: None };
        Self {
            storage,
            config,
            start: (Epoch(0), ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO }),
            cursor,
            next_segment: resume.next_segment,
            bounds: resume.bounds,
            durable_before: resume.durable_index,
            open: None,
            closed,
            before,
            batch: Vec::new(),
            batch_payload_bytes: 0,
            evicted: false,
            lost_before: 0,
            sealed: mark,
            written: mark,
            durable: mark,
            syncing: None,
            sync_due: now,
            failure: None,
            behind_since: None,
            due: now,
            closing: false,
            status: StoreStatus::default(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// How the log on disk is doing, as of the last step.
    pub fn status(&self) -> &StoreStatus {
        &self.status
    }

    /// The index on disk up to which everything outlives a power cut.
    pub fn durable_index(&self) -> u64 {
        self.durable.index
    }

    /// The storage.
    pub fn storage(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Gives the storage back.
    pub fn into_storage(self) -> S {
        self.storage
    }

    /// Whether there are records that were not taken yet.
    pub fn has_news(&self) -> bool {
        self.cursor.is_ready()
    }

    /// Whether all that is in memory is on disk, and durable if that was asked for.
    pub fn is_settled(&self) -> bool {
        let durable =
            self.config.durability == Durability::Async || self.durable.cursor == self.written.cursor;
        !self.cursor.is_ready() && durable && self.written.cursor == self.sealed.cursor
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// Frames of this epoch belong to the start with this anchor. Segments carry both.
    pub fn set_start(&mut self, epoch: Epoch, anchor: ClockAnchor) {
        self.start = (epoch, anchor);
    }

    /// From now on syncs wait for no interval: the broker stops.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Records have come at this instant, while there was nothing to do. Returns when to step: a little later, so that more come together.
    pub fn wake(&mut self, now: Instant) -> Instant {
        self.due = self.due.min(now + BATCH_INTERVAL);
        self.due
    }

    /// Does what there is to do, and returns when to come again; earlier if [`StoreWriter::wake`] says so. `wall` labels segments; `salt` draws random bytes,
    /// which must never be the same again.
    pub fn step(
        &mut self,
        now: Instant,
        wall: Timestamp,
        salt: &mut dyn FnMut() -> [u8; SALT_BYTES],
    ) -> Instant {
        let outcome = self.work(now, wall, salt);
        if let Err(error) = outcome {
            self.fail(now, error);
        }
        self.note_status(now);
        self.due = self.next_due(now);
        self.assert_in_order();
        self.due
    }

    /// A record is sealed, handed over and made durable, in this order.
    fn assert_in_order(&self) {
        let (durable, written, sealed) = (self.durable.index, self.written.index, self.sealed.index);
        debug_assert!(durable <= written, "records to {durable} are durable, and to {written} handed over");
        debug_assert!(written <= sealed, "records to {written} are handed over, and to {sealed} sealed");
        debug_assert!(self.batch.is_empty() || self.open.is_some(), "records are sealed for no segment");
        let newest = self.closed.back().map(|closed| closed.number);
        debug_assert!(newest.is_none_or(|newest| newest < self.next_segment), "a segment is numbered twice");
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn next_due(&self, now: Instant) -> Instant {
        if self.syncing.is_some() {
            return now + SYNC_POLL_INTERVAL;
        }
        if self.failure.is_none() && self.cursor.is_ready() {
            return now;
        }
        // Whatever is amiss is looked at again soon, so that it is also told soon that it is over.
        let unannounced = self.open.as_ref().is_some_and(|open| !open.announced);
        if self.failure.is_some() || self.status.degraded.is_some() || unannounced || !self.batch.is_empty() {
            return now + BATCH_INTERVAL;
        }
        let pending = self.durable.index != self.written.index && self.config.durability != Durability::Async;
        let sync = pending.then(|| self.sync_due.min(now + self.config.sync_interval));
        let expires = self.closed.front().and_then(|closed| closed.expires);
        let outlives = self.open.as_ref().zip(self.config.disk_age_max);
        let outlives = outlives.map(|(open, age_max)| open.opened + age_max / SEGMENT_AGE_PARTS);
        let due = sync.into_iter().chain(expires).chain(outlives).min();
        // What could not be done at its time is tried again, without haste.
        due.map_or(now + IDLE_INTERVAL, |due| due.clamp(now + SYNC_POLL_INTERVAL, now + IDLE_INTERVAL))
    }

    fn work(
        &mut self,
        now: Instant,
        wall: Timestamp,
        salt: &mut dyn FnMut() -> [u8; SALT_BYTES],
    ) -> Result<(), StorageError> {
        self.look_after_sync()?;
        if self.failure.as_ref().is_some_and(|(retry, _)| now < *retry) {
            return Ok(());
        }
        self.expire(now)?;
        self.fill(now, wall, salt)?;
        self.flush()?;
        self.sync(now)
    }

    /// Seals what is new in memory, and hands it over whenever enough has come together.
    fn fill(
        &mut self,
        now: Instant,
        wall: Timestamp,
        salt: &mut dyn FnMut() -> [u8; SALT_BYTES],
    ) -> Result<(), StorageError> {
        // One batch at a time: syncs, retention and the status are looked after in between.
        while self.batch.len() < self.config.batch_bytes_max {
            match self.cursor.next() {
                Read::Pending => {
                    if self.outlived(now) {
                        self.flush()?;
                        self.close_segment(now);
                    }
                    return Ok(());
                }
                Read::Evicted { records } => {
                    // After going back, what was lost before is found lost again.
                    let (end, counted) = (self.cursor.index(), self.lost_before);
                    self.status.lost += end - counted.clamp(end - records, end);
                    self.lost_before = end;
                    self.evicted = true;
                }
                // No length of a stored payload counts that far.
                Read::Record(record) if record.frame.payload.len() > PAYLOAD_BYTES_MAX => {
                    self.status.lost += 1;
                    self.evicted = true;
                }
                Read::Record(record) => {
                    let epoch = record.frame.meta.id.epoch;
                    if !self.fits(now, epoch) {
                        self.flush()?;
                        if !self.close_segment(now) || !self.secure_before(now)? {
                            // Tried again once all of the segment before is durable.
                            self.cursor = self.cursor.reader().cursor(self.cursor.index() - 1);
                            return Ok(());
                        }
                        self.open_segment(now, wall, epoch, salt())?;
                    }
                    self.seal(record);
                }
            }
        }
        Ok(())
    }

    /// Whether a record of this epoch goes into the segment at hand.
    fn fits(&self, now: Instant, epoch: Epoch) -> bool {
        let Some(open) = &self.open else { return false };
        let bytes = open.bytes + self.batch.len() as u64;
        open.epoch == epoch && bytes < self.config.segment_bytes && !self.outlived(now)
    }

    /// Whether the segment at hand has been open for so long that it would expire too late.
    fn outlived(&self, now: Instant) -> bool {
        self.open
            .as_ref()
            .zip(self.config.disk_age_max)
            .is_some_and(|(open, age_max)| now.saturating_since(open.opened) >= age_max / SEGMENT_AGE_PARTS)
    }

    fn seal(&mut self, mut record: Record) {
        let Some(open) = &self.open else { return };
        let id = record.frame.meta.id;
        if std::mem::take(&mut self.evicted)
            && let Some(lost) = lost_between(self.sealed.frame, &record)
        {
            record.skipped = std::iter::once(lost).chain(record.skipped.iter().copied()).collect::<Arc<_>>();
        }
        open.sealer.seal(self.sealed.index, &record, &mut self.batch);
        self.batch_payload_bytes += record.frame.payload.len() as u64;
        self.sealed = Mark { index: self.sealed.index + 1, cursor: self.cursor.index(), frame: Some(id) };
    }

    /// Hands over what is sealed.
    fn flush(&mut self) -> Result<(), StorageError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.batch.len() as u64;
        self.make_room(batch)?;
        let open = self.open.as_mut().expect("what is sealed was sealed for the segment at hand");
        // Counted first: after an error nobody knows how much of it is there.
        open.bytes += batch;
        let result = self.storage.append(open.number, &self.batch);
        self.batch.clear();
        self.batch.shrink_to(self.config.batch_bytes_max);
        let payload_bytes = std::mem::take(&mut self.batch_payload_bytes);
        result?;
        self.status.records += self.sealed.index - self.written.index;
        self.status.payload_bytes += payload_bytes;
        self.written = self.sealed;
        self.note_progress();
        if self.config.durability == Durability::Async {
            self.failure = None;
        }
        Ok(())
    }

    fn open_segment(
        &mut self,
        now: Instant,
        wall: Timestamp,
        epoch: Epoch,
        salt: [u8; SALT_BYTES],
    ) -> Result<(), StorageError> {
        let number = self.next_segment;
        // Used up even if it fails: nobody knows then whether there is a segment of this number.
        self.next_segment = number.next();
        let master = self.config.keys.newest().clone();
        let anchor = if self.start.0 == epoch {
            self.start.1
        } else {
            ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO }
        };
        let header = SegmentHeader {
            key: master.id(),
            salt,
            epoch,
            segment: number,
            first_index: self.sealed.index,
            opened: wall,
            anchor,
            camera: self.config.camera.clone(),
        };
        let mut bytes = Vec::new();
        let sealer = header.encode(&master, &mut bytes);
        self.make_room(bytes.len() as u64)?;
        self.storage.create(number)?;
        self.open = Some(Open {
            number,
            sealer,
            epoch,
            first_index: self.sealed.index,
            bytes: bytes.len() as u64,
            opened: now,
            announced: false,
        });
        self.storage.append(number, &bytes)?;
        self.note_progress();
        // Not waiting for the interval: only a segment that is durable can be remembered outside of the log.
        self.sync_due = now;
        Ok(())
    }

    /// Ends the segment at hand, if there is one; false if that has to wait until all of it is durable. Otherwise a power
    /// cut could leave a hole between what is durable and the next segment.
    fn close_segment(&mut self, now: Instant) -> bool {
        let Some(open) = &self.open else { return true };
        let waits = self.durable.index != self.written.index || !open.announced;
        if waits && self.config.durability != Durability::Async {
            self.sync_due = now;
            return false;
        }
        self.give_up_segment(now);
        true
    }

    /// Whether what an earlier start wrote is durable; if not, that is seen to.
    fn secure_before(&mut self, now: Instant) -> Result<bool, StorageError> {
        if let Some(segment) = self.before
            && self.syncing.is_none()
        {
            match self.storage.start_sync(segment) {
                Err(error) if error.kind == StorageErrorKind::Missing => self.before = None,
                started => {
                    started?;
                    self.syncing = Some(Syncing { started: now, upto: Upto::Before });
                    self.look_after_sync()?;
                }
            }
        }
        Ok(self.before.is_none())
    }

    fn give_up_segment(&mut self, now: Instant) {
        if let Some(open) = self.open.take() {
            let expires = self.config.disk_age_max.map(|age_max| now + age_max);
            let first_index = Some(open.first_index);
            self.closed.push_back(Closed { number: open.number, bytes: open.bytes, first_index, expires });
        }
        if let Some(syncing) = &mut self.syncing {
            syncing.upto = Upto::Nothing;
        }
    }
}

/// The frames between the last record that was sealed and this one of which this one says nothing: those that left memory
/// before they could be written, and what was skipped among them.
fn lost_between(last: Option<FrameId>, record: &Record) -> Option<SkipRange> {
    let last = last.filter(|last| last.epoch == record.frame.meta.id.epoch)?;
    let (first, count) = holes::unexplained(last, record)?;
    Some(SkipRange { first, count, reason: SkipReason::Evicted })
}
