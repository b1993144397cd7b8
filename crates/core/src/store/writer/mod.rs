//! Writes a log in memory to disk, in the background. Neither publishing nor delivery waits for the writer.
//!
//! [`StoreWriter::step`] returns when to call it again: after [`BATCH_INTERVAL`] while there is work, and
//! otherwise once new records have come ([`StoreWriter::wake`]). Each step encrypts the new records and hands
//! them to the storage in one piece. The log in memory itself is the queue in front of the writer.
//!
//! After any failure the writer gives up the current segment and goes back to the last record that is known to be durable. It continues
//! in a new segment that begins with the index of the next record. The new segment supersedes the records of the old one from there on.

mod durability;
mod retention;
mod status;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::chain::begins_chain;
use crate::frame::{Epoch, FrameId, FrameMeta, SkipRange, SkipReason};
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

/// How often records are handed to the storage. Together with the time of a write, this interval bounds the loss of a killed broker (200 ms).
pub const BATCH_INTERVAL: Duration = Duration::from_millis(40);
/// The longest sleep of an idle writer. Nothing depends on its value.
const IDLE_INTERVAL: Duration = Duration::from_secs(3600);
/// How often the writer checks whether a running sync has ended.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often the writer checks whether a running sync has ended while a publisher waits for it.
const AWAITED_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long the writer waits after a failure before it tries the storage again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// The log counts as degraded once frames wait for the storage, or a sync takes, longer than this.
pub const SLOW_AFTER: Duration = Duration::from_millis(500);
/// A segment is closed after one part in this many of the age limit. Whole segments expire, so a frame
/// outlives its limit by at most this part.
const SEGMENT_AGE_PARTS: u32 = 16;

/// The largest payload that can be stored. Its encrypted length, tag included, is a field of 32 bits.
const PAYLOAD_BYTES_MAX: usize = u32::MAX as usize - TAG_BYTES;

/// A position in both logs: `index` on disk is `cursor` in memory. `frame` is the frame before it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    index: u64,
    cursor: u64,
    frame: Option<FrameId>,
}

/// The segment that is being written.
struct Open {
    number: SegmentNumber,
    sealer: Sealer,
    epoch: Epoch,
    first_index: u64,
    bytes: u64,
    opened: Instant,
    /// Whether the storage remembers, in its [`Bounds`], that this segment exists.
    announced: bool,
    /// Whether the segment's last picture belongs to a chain. The chain may continue behind data records.
    in_chain: bool,
}

/// A closed segment.
struct Closed {
    number: SegmentNumber,
    bytes: u64,
    /// The index of its first record; `None` if unknown.
    first_index: Option<u64>,
    expires: Option<Instant>,
}

/// A running sync.
struct Syncing {
    started: Instant,
    upto: Upto,
}

/// What is durable once a sync succeeds.
enum Upto {
    /// The current segment, up to here.
    Mark(Mark),
    /// The records of an earlier start.
    Before,
    /// Nothing of interest: the segment was given up meanwhile.
    Nothing,
}

/// Follows a log in memory and writes it to a storage.
pub struct StoreWriter<S> {
    storage: S,
    config: StoreConfig,
    /// The epoch of the present start, and its clock anchor.
    start: (Epoch, ClockAnchor),
    cursor: Cursor,
    next_segment: SegmentNumber,
    bounds: Bounds,
    /// One past the index of the last record that was known to be durable at the start.
    durable_before: u64,
    open: Option<Open>,
    closed: VecDeque<Closed>,
    /// The newest segment of the previous start. If the broker was killed, the records of
    /// this segment are not durable yet. They must become durable before any later record.
    before: Option<SegmentNumber>,
    /// Records that are encrypted and not yet handed to the storage.
    batch: Vec<u8>,
    /// Payload bytes of the records in `batch`.
    batch_payload_bytes: u64,
    /// Whether records were evicted from memory since the last one was encrypted.
    evicted: bool,
    /// From this record up to the newest certain record, no record of this run is missing on disk. `None`: no record was encrypted in this run.
    whole_from: Option<FrameId>,
    /// Whether a publisher waits until its records are certain.
    awaited: bool,
    /// Lost records before this cursor are already counted.
    lost_before: u64,
    /// The end of the encrypted records.
    sealed: Mark,
    /// The end of the records that the storage has.
    written: Mark,
    /// The end of the durable records.
    durable: Mark,
    syncing: Option<Syncing>,
    sync_due: Instant,
    /// The last failure, and when the storage is tried again.
    failure: Option<(Instant, StorageError)>,
    /// Since when the log in memory has records that are not written.
    behind_since: Option<Instant>,
    /// When the next step is due.
    due: Instant,
    closing: bool,
    status: StoreStatus,
}

impl<S: Storage> StoreWriter<S> {
    /// A writer that appends what `cursor` reads from now on to the log that `resume` describes.
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
            whole_from: None,
            awaited: false,
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

    /// The state of the log on disk, as of the last step.
    pub fn status(&self) -> &StoreStatus {
        &self.status
    }

    /// One past the index of the last record that outlives a power cut.
    pub fn durable_index(&self) -> u64 {
        self.durable.index
    }

    /// The storage.
    pub fn storage(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Returns the storage.
    pub fn into_storage(self) -> S {
        self.storage
    }

    /// Whether the log in memory has records that the writer has not read.
    pub fn has_news(&self) -> bool {
        self.cursor.is_ready()
    }

    /// Whether all records in memory are on disk, and durable if the configuration asks for that.
    pub fn is_settled(&self) -> bool {
        let durable =
            self.config.durability == Durability::Async || self.durable.cursor == self.written.cursor;
        !self.cursor.is_ready() && durable && self.written.cursor == self.sealed.cursor
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// Sets the epoch of the present start and its clock anchor. Both are written into segment headers.
    pub fn set_start(&mut self, epoch: Epoch, anchor: ClockAnchor) {
        self.start = (epoch, anchor);
    }

    /// The broker stops: from now on syncs do not wait for their interval.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// New records have come while the writer was idle. Returns when to step: a little later, so that more records share the step.
    pub fn wake(&mut self, now: Instant) -> Instant {
        self.due = self.due.min(now + BATCH_INTERVAL);
        self.due
    }

    /// Does all work that is due, and returns when to call again, unless [`StoreWriter::wake`] says earlier.
    /// `wall` labels segments. `salt` draws random bytes, which must never repeat.
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

    /// Asserts that each record is sealed, handed over and made durable, in this order.
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
            return now + if self.awaited { AWAITED_POLL_INTERVAL } else { SYNC_POLL_INTERVAL };
        }
        if self.failure.is_none() && self.cursor.is_ready() {
            return now;
        }
        // A failure or degradation is checked again soon, so that its end is also reported soon.
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
        // Overdue work is tried again, but not in a busy loop.
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

    /// Encrypts the new records in memory, and hands them to the storage whenever a batch is full.
    fn fill(
        &mut self,
        now: Instant,
        wall: Timestamp,
        salt: &mut dyn FnMut() -> [u8; SALT_BYTES],
    ) -> Result<(), StorageError> {
        // One batch per step, so that syncs, retention and the status get their turn in between.
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
                    // After the writer went back, it meets evicted records again whose loss is already counted.
                    let (end, counted) = (self.cursor.index(), self.lost_before);
                    self.status.lost += end - counted.clamp(end - records, end);
                    self.lost_before = end;
                    self.evicted = true;
                }
                // The length field of a stored payload cannot hold this many bytes.
                Read::Record(record) if record.frame.payload.len() > PAYLOAD_BYTES_MAX => {
                    self.status.lost += 1;
                    self.evicted = true;
                }
                Read::Record(record) => {
                    let epoch = record.frame.meta.id.epoch;
                    if !self.fits(now, &record.frame.meta) {
                        self.flush()?;
                        if !self.close_segment(now) || !self.secure_before(now)? {
                            // Read the record again once all of the previous segment is durable.
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

    /// Whether this frame goes into the current segment. Segments are removed whole, so a segment that ends within a chain would leave
    /// the rest of the chain without its beginning. A full segment therefore waits for the next chain to begin, up to twice its size.
    fn fits(&self, now: Instant, meta: &FrameMeta) -> bool {
        let Some(open) = &self.open else { return false };
        let bytes = open.bytes + self.batch.len() as u64;
        let goes_on = match meta.encoding.is_picture() {
            true => meta.encoding.is_chained() && !begins_chain(meta),
            false => open.in_chain,
        };
        let bytes_max = self.config.segment_bytes.saturating_mul(if goes_on { 2 } else { 1 });
        open.epoch == meta.id.epoch && bytes < bytes_max && !self.outlived(now)
    }

    /// Whether the current segment has been open so long that its frames would expire too late.
    fn outlived(&self, now: Instant) -> bool {
        self.open
            .as_ref()
            .zip(self.config.disk_age_max)
            .is_some_and(|(open, age_max)| now.saturating_since(open.opened) >= age_max / SEGMENT_AGE_PARTS)
    }

    fn seal(&mut self, mut record: Record) {
        let Some(open) = &mut self.open else { return };
        if self.evicted || self.whole_from.is_none() {
            self.whole_from = Some(record.frame.meta.id);
        }
        let FrameMeta { id, encoding, .. } = record.frame.meta;
        if encoding.is_picture() {
            open.in_chain = encoding.is_chained();
        }
        if std::mem::take(&mut self.evicted)
            && let Some(lost) = lost_between(self.sealed.frame, &record)
        {
            record.skipped = std::iter::once(lost).chain(record.skipped.iter().copied()).collect::<Arc<_>>();
        }
        open.sealer.seal(self.sealed.index, &record, &mut self.batch);
        self.batch_payload_bytes += record.frame.payload.len() as u64;
        self.sealed = Mark { index: self.sealed.index + 1, cursor: self.cursor.index(), frame: Some(id) };
    }

    /// Hands the encrypted records to the storage.
    fn flush(&mut self) -> Result<(), StorageError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = self.batch.len() as u64;
        self.make_room(batch)?;
        let open = self.open.as_mut().expect("what is sealed was sealed for the segment at hand");
        // Counted first: after an error it is unknown how much was written.
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
        // The number is used up even after a failure: it is then unknown whether its segment exists.
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
            in_chain: false,
        });
        self.storage.append(number, &bytes)?;
        self.note_progress();
        // Sync without waiting for the interval: only a durable segment can be remembered in the bounds.
        self.sync_due = now;
        Ok(())
    }

    /// Closes the current segment, if there is one. Returns false if all of it must become durable first.
    /// Otherwise a power cut could leave a hole between the durable records and the next segment.
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

    /// Whether the records of an earlier start are durable. If not, starts a sync for them.
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

/// The frames between the last encrypted record and `record` that `record` does not list as skipped.
/// They were evicted from memory before they could be written, or were skipped between evicted frames.
fn lost_between(last: Option<FrameId>, record: &Record) -> Option<SkipRange> {
    let last = last.filter(|last| last.epoch == record.frame.meta.id.epoch)?;
    let (first, count) = holes::unexplained(last, record)?;
    Some(SkipRange { first, count, reason: SkipReason::Evicted })
}
