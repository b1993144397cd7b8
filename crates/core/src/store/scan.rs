//! Reads a segment from its front: returns complete records, and the damage between them.
//!
//! All code that reads segments uses this scan: recovery, readers of the past, `mez store verify` and
//! export. So all of them find the same records. Damage does not hide the records behind it. If the lengths
//! in a head lead nowhere, the scan searches for the next head with a valid checksum, index and tag.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::SegmentNumber;
use super::format::{
    DamageKind, HeaderError, KIND_FRAME, RECORD_HEAD_BYTES, RecordHead, SEGMENT_HEADER_BYTES_MAX, Sealer,
    SegmentHeader,
};
use super::key::KeyRing;
use super::storage::{Storage, StorageError, StorageErrorKind};
use crate::frame::{Frame, FrameMeta, Quality, SkipRange};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::Instant;

/// Bytes that are read at once, to bound the memory of a scan. Longer payloads are read straight into their final buffer.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes that are read at once by a scan of descriptions alone. Payloads between them are skipped unread.
const SPARSE_CHUNK_BYTES: usize = 4 << 10;
/// Bytes that are skipped where the storage fails to read: the usual block of a disk.
const UNREADABLE_BYTES: u64 = 4 << 10;
/// How often one search skips [`UNREADABLE_BYTES`] before it gives up: after one unreadable megabyte.
const UNREADABLE_MAX: u32 = 256;
/// The greatest jump of the index from a damaged record to the next one that a
/// search accepts. This limit lets a search reject most random bytes at once.
const JUMP_MAX: u64 = u32::MAX as u64;

/// Damaged bytes of a segment, or a place where records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentNumber,
    /// The index of the first record that is lost.
    pub index: u64,
    /// The offset at which the damage begins.
    pub offset: u64,
    /// How many bytes cannot be used. 0 if records are missing between two complete ones.
    pub bytes: u64,
    /// What is wrong.
    pub kind: DamageKind,
    /// The index of the next complete record; `None` if the segment has none.
    pub until: Option<u64>,
}

impl Damage {
    /// How many records of the segment are lost, if the segment ends before `limit`; `None` if that is
    /// unknown.
    pub fn records(&self, limit: Option<u64>) -> Option<u64> {
        let until = self.until.into_iter().chain(limit).min()?;
        Some(until.saturating_sub(self.index))
    }

    /// Whether the damage reaches to the end of a segment of `bytes` bytes.
    pub fn reaches(&self, bytes: u64) -> bool {
        self.offset + self.bytes >= bytes
    }
}

impl fmt::Display for Damage {
    /// `segment 0000000000000007, record 1042, 3.000 bytes at 81920: torn or rotten: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, index, offset, bytes, kind, .. } = self;
        write!(f, "segment {segment}, record {index}, {bytes} bytes at {offset}: {kind}")
    }
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// Its index in the log.
    pub index: u64,
    /// The offset in the segment at which it begins.
    pub offset: u64,
    /// How many bytes it has on disk.
    pub bytes: u64,
    /// The description of the frame.
    pub meta: FrameMeta,
    /// Frames of the same epoch that were skipped between the record before and this one, in order.
    pub skipped: Arc<[SkipRange]>,
    /// The payload, if it was requested.
    pub payload: Option<Bytes>,
}

impl StoredRecord {
    /// The record as readers get it; `None` if its payload was not read.
    pub fn into_record(self) -> Option<Record> {
        let Self { meta, skipped, payload, .. } = self;
        let frame = Frame { meta, payload: payload? };
        Some(Record {
            frame,
            skipped,
            quality: Quality::default(),
            trace: None,
            link_bytes: None,
            arrived: Instant::ZERO,
        })
    }
}

/// The next thing in a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Scanned {
    /// A complete, authentic record.
    Record(StoredRecord),
    /// Damage; the next record may be complete.
    Damaged(Damage),
}

/// Reads one segment.
pub struct SegmentScan {
    segment: SegmentNumber,
    header: SegmentHeader,
    sealer: Sealer,
    /// The offset of the header's one damaged byte, if it was repaired.
    mended: Option<usize>,
    /// The segment's size when the scan began.
    end: u64,
    offset: u64,
    index: u64,
    chunk: Chunk,
    /// A search from damage at the first offset has found no head before the second offset.
    searched: (u64, u64),
}

impl SegmentScan {
    /// Opens a segment of `bytes` bytes, and checks that it is the segment that belongs there.
    pub fn open(
        storage: &mut impl Storage,
        camera: &CameraName,
        keys: &KeyRing,
        segment: SegmentNumber,
        bytes: u64,
    ) -> Result<Self, HeaderError> {
        let mut front = vec![0; SEGMENT_HEADER_BYTES_MAX];
        let read = storage.read_at(segment, 0, &mut front).map_err(|error| cannot_read(&error))?;
        let (header, sealer, length, mended) = SegmentHeader::decode_mending(&front[..read], keys, camera)?;
        header.check_place(camera, segment)?;
        let index = header.first_index;
        Ok(Self {
            segment,
            header,
            sealer,
            mended,
            end: bytes,
            offset: length as u64,
            index,
            chunk: Chunk::default(),
            searched: (0, 0),
        })
    }

    /// Makes the scan read small chunks, for a scan without payloads: little is read besides the descriptions of records.
    #[must_use]
    pub fn sparse(mut self) -> Self {
        self.chunk.bytes_max = SPARSE_CHUNK_BYTES;
        self
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The offset of the header's one damaged byte, if there was one and it was repaired.
    pub fn mended(&self) -> Option<usize> {
        self.mended
    }

    /// The index that the next record should have.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The offset at which the next record should begin.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The segment has grown to `bytes` bytes since the scan began.
    pub fn grow(&mut self, bytes: u64) {
        self.end = self.end.max(bytes);
    }

    /// Continues at a record whose place is known from an earlier scan of the same segment.
    pub fn seek(&mut self, index: u64, offset: u64) {
        (self.index, self.offset) = (index, offset);
    }

    /// Continues at the first complete record at an offset or behind it. The offset need not be
    /// the end of a record. Returns false if there is no such record; the place is then undefined.
    pub fn seek_near(&mut self, storage: &mut impl Storage, offset: u64) -> bool {
        self.seek(self.header.first_index, offset.saturating_sub(1));
        let found = self.search(storage);
        if let Some((offset, index)) = found {
            self.seek(index, offset);
        }
        found.is_some()
    }

    /// Reads the next record or damage. `None` at the end. Without `payload`, payloads are neither read nor checked.
    pub fn next(&mut self, storage: &mut impl Storage, payload: bool) -> Option<Scanned> {
        let left = self.end.saturating_sub(self.offset);
        if left == 0 {
            return None;
        }
        Some(match self.head(storage, self.offset) {
            Ok(head) if head.index == self.index => self.record(storage, head, payload),
            Ok(head) => self.misplaced(storage, head),
            Err(kind) => self.damaged(storage, None, kind),
        })
    }

    /// The head at `offset`, if its checksum is valid and the segment contains all of its record.
    fn head(&mut self, storage: &mut impl Storage, offset: u64) -> Result<RecordHead, DamageKind> {
        let left = self.end.saturating_sub(offset);
        if left < RECORD_HEAD_BYTES as u64 {
            return Err(DamageKind::Cut);
        }
        let front = self.chunk.get(storage, self.segment, offset, RECORD_HEAD_BYTES, left)?;
        let claimed = RecordHead::peek(front).filter(RecordHead::is_plausible).ok_or(DamageKind::Torn)?;
        if claimed.meta_range().end as u64 > left {
            let begins = claimed.index == self.index;
            return Err(if begins { DamageKind::Cut } else { DamageKind::Torn });
        }
        let bytes = self.chunk.get(storage, self.segment, offset, claimed.meta_range().end, left)?;
        let head = RecordHead::decode(bytes).ok_or(DamageKind::Torn)?;
        if head.record_bytes() > left {
            return Err(DamageKind::Cut);
        }
        Ok(head)
    }

    fn record(&mut self, storage: &mut impl Storage, head: RecordHead, payload: bool) -> Scanned {
        let bytes = head.record_bytes();
        let opened = self.open_meta(storage, self.offset, head).and_then(|(meta, skipped)| {
            let payload = payload.then(|| self.open_payload(storage, head)).transpose()?;
            Ok((meta, skipped, payload))
        });
        match opened {
            Ok((meta, skipped, payload)) => {
                let (index, offset) = (self.index, self.offset);
                self.offset += bytes;
                self.index += 1;
                Scanned::Record(StoredRecord { index, offset, bytes, meta, skipped, payload })
            }
            Err(kind) => self.damaged(storage, Some(head), kind),
        }
    }

    /// Handles a record at a place where another one belongs.
    fn misplaced(&mut self, storage: &mut impl Storage, head: RecordHead) -> Scanned {
        let kind = DamageKind::Misplaced { expected: self.index, found: head.index };
        let genuine = self.open_meta(storage, self.offset, head).is_ok();
        if genuine && head.index > self.index {
            // The records before it are missing.
            return self.step(self.offset, Some(head.index), kind);
        }
        self.damaged(storage, None, kind)
    }

    /// Skips damage that begins here, up to the next record. The lengths in `head` are trusted only if they
    /// lead to the next head or to the end.
    fn damaged(&mut self, storage: &mut impl Storage, head: Option<RecordHead>, kind: DamageKind) -> Scanned {
        if let Some(head) = head {
            let (next, index) = (self.offset + head.record_bytes(), self.index + 1);
            let follows = next == self.end || self.head(storage, next).is_ok_and(|next| next.index == index);
            if follows {
                return self.step(next, Some(index), kind);
            }
        }
        match self.search(storage) {
            Some((offset, index)) => self.step(offset, Some(index), kind),
            None => self.step(self.end, None, kind),
        }
    }

    /// Continues at `offset`, where record `until` begins.
    fn step(&mut self, offset: u64, until: Option<u64>, kind: DamageKind) -> Scanned {
        let bytes = offset - self.offset;
        let damage =
            Damage { segment: self.segment, index: self.index, offset: self.offset, bytes, kind, until };
        self.offset = offset;
        self.index = until.unwrap_or(self.index + 1);
        Scanned::Damaged(damage)
    }

    /// The offset and index of the next complete record behind this place.
    fn search(&mut self, storage: &mut impl Storage) -> Option<(u64, u64)> {
        let (begin, from) = self.searched;
        let mut at = if begin == self.offset { from.max(begin + 1) } else { self.offset + 1 };
        let (mut unreadable, mut cut) = (0, None);
        loop {
            let left = self.end.saturating_sub(at);
            if left < RECORD_HEAD_BYTES as u64 {
                // A record that is cut short may be complete once the segment has grown.
                self.searched = (self.offset, cut.unwrap_or(at));
                return None;
            }
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk.bytes_max);
            let window = match self.chunk.get(storage, self.segment, at, wanted, left) {
                Ok(window) => window,
                Err(_) if unreadable < UNREADABLE_MAX => {
                    unreadable += 1;
                    at += UNREADABLE_BYTES;
                    continue;
                }
                Err(_) => return None,
            };
            let index = self.index;
            let candidates: Vec<u64> = candidates(window, index).map(|place| at + place as u64).collect();
            for offset in candidates {
                match self.head(storage, offset) {
                    Ok(head) if self.open_meta(storage, offset, head).is_ok() => {
                        return Some((offset, head.index));
                    }
                    Err(DamageKind::Cut) => cut = cut.or(Some(offset)),
                    _ => {}
                }
            }
            at += (wanted - RECORD_HEAD_BYTES + 1) as u64;
        }
    }

    fn open_meta(
        &mut self,
        storage: &mut impl Storage,
        offset: u64,
        head: RecordHead,
    ) -> Result<(FrameMeta, Arc<[SkipRange]>), DamageKind> {
        let (range, left) = (head.meta_range(), self.end - offset);
        let mut sealed = self.chunk.get(storage, self.segment, offset, range.end, left)?[range].to_vec();
        self.sealer.open_meta(head.index, &mut sealed)
    }

    fn open_payload(&mut self, storage: &mut impl Storage, head: RecordHead) -> Result<Bytes, DamageKind> {
        let offset = self.offset + head.meta_range().end as u64;
        // The whole record lies within the segment, so the payload takes no more memory than the segment has bytes.
        let left = self.end - offset;
        let sealed = self.chunk.take(storage, self.segment, offset, head.payload_bytes as usize, left)?;
        if crc32c::crc32c(&sealed) != head.payload_checksum {
            return Err(DamageKind::Torn);
        }
        self.sealer.open_payload(head.index, sealed)
    }
}

fn cannot_read(error: &StorageError) -> HeaderError {
    match error.kind {
        StorageErrorKind::Missing => HeaderError::Gone,
        StorageErrorKind::NotAFile => HeaderError::NotAFile,
        _ => HeaderError::Unreadable,
    }
}

/// The places in `window` where the head of a record with this index or a later one may be. Two comparisons
/// rule out most bytes.
fn candidates(window: &[u8], index: u64) -> impl Iterator<Item = usize> + '_ {
    window.windows(RECORD_HEAD_BYTES).enumerate().filter_map(move |(place, bytes)| {
        // Compare the kind and the reserved byte before decoding anything.
        let may = bytes[RECORD_HEAD_BYTES - 2..] == [KIND_FRAME, 0];
        let head = may.then(|| RecordHead::peek(bytes)).flatten().filter(RecordHead::is_plausible)?;
        (index..=index.saturating_add(JUMP_MAX)).contains(&head.index).then_some(place)
    })
}

/// The part of the segment that is in memory.
struct Chunk {
    /// Bytes that are read at once, unless more are requested.
    bytes_max: usize,
    /// The offset in the segment at which it begins.
    start: u64,
    /// Its bytes; only the first `filled` are valid.
    bytes: Vec<u8>,
    filled: usize,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { bytes_max: CHUNK_BYTES, start: 0, bytes: Vec::new(), filled: 0 }
    }
}

impl Chunk {
    /// Returns `length` bytes from `offset` on; the segment has `left` bytes there.
    fn get(
        &mut self,
        storage: &mut impl Storage,
        segment: SegmentNumber,
        offset: u64,
        length: usize,
        left: u64,
    ) -> Result<&[u8], DamageKind> {
        if self.held(offset).len() < length {
            let wanted =
                usize::try_from(left).unwrap_or(usize::MAX).clamp(length, self.bytes_max.max(length));
            if self.bytes.len() < wanted {
                self.bytes = vec![0; wanted];
            }
            (self.start, self.filled) = (offset, 0);
            let read = storage.read_at(segment, offset, &mut self.bytes[..wanted]);
            // The unreadable bytes may lie behind the requested ones: try without them.
            let read = read.or_else(|_| storage.read_at(segment, offset, &mut self.bytes[..length]));
            self.filled = read.map_err(|_| DamageKind::Unreadable)?;
        }
        self.held(offset).get(..length).ok_or(DamageKind::Torn)
    }

    /// Returns `length` bytes from `offset` on, in a buffer of their own.
    fn take(
        &mut self,
        storage: &mut impl Storage,
        segment: SegmentNumber,
        offset: u64,
        length: usize,
        left: u64,
    ) -> Result<Vec<u8>, DamageKind> {
        if length < CHUNK_BYTES / 4 {
            return Ok(self.get(storage, segment, offset, length, left)?.to_vec());
        }
        let mut bytes = vec![0; length];
        let held = self.held(offset);
        let held = &held[..held.len().min(length)];
        bytes[..held.len()].copy_from_slice(held);
        let (from, rest) = (offset + held.len() as u64, &mut bytes[held.len()..]);
        let read = storage.read_at(segment, from, rest).map_err(|_| DamageKind::Unreadable)?;
        if read == rest.len() { Ok(bytes) } else { Err(DamageKind::Torn) }
    }

    /// The bytes in memory from `offset` on.
    fn held(&self, offset: u64) -> &[u8] {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes[..self.filled].get(from..)).unwrap_or_default()
    }
}
