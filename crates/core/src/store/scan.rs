//! Reading a segment from its front: what is whole comes out, what is damaged is named, and nothing else is served.
//!
//! Whoever looks into a segment does it here: recovery, readers of the past, `mez log verify` and export. So all of them find the same.
//! Damage does not hide what is behind it: where the lengths in a head lead nowhere, the next head is looked for whose checksum, index and tag
//! are right.

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

/// What is read at once. Payloads that are longer are read straight to where they stay.
const CHUNK_BYTES: usize = 256 << 10;
/// What is passed over where the storage fails to read, and how often while one head is looked for.
const UNREADABLE_BYTES: u64 = 4 << 10;
const UNREADABLE_MAX: u32 = 256;
/// The most records that are taken to be missing before a head that was looked for.
const JUMP_MAX: u64 = u32::MAX as u64;

/// Bytes of a segment that are not what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentNumber,
    /// The record that stood there, or the first of those that did.
    pub index: u64,
    /// Where the damage begins.
    pub offset: u64,
    /// How many bytes cannot be used. None where records are missing between two that are whole.
    pub bytes: u64,
    /// What is wrong with them.
    pub kind: DamageKind,
    /// The index of the record that comes behind the damage; `None` if none was found in the segment.
    pub until: Option<u64>,
}

impl Damage {
    /// Records of the segment that are lost, if the segment ends before `limit`; `None` if nobody knows how many there were.
    pub fn records(&self, limit: Option<u64>) -> Option<u64> {
        let until = self.until.into_iter().chain(limit).min()?;
        Some(until.saturating_sub(self.index))
    }

    /// Whether it reaches to the end of a segment of `bytes` bytes.
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

/// A record as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// Its place in the log.
    pub index: u64,
    /// Where in the segment it begins.
    pub offset: u64,
    /// How many bytes it takes there.
    pub bytes: u64,
    /// The frame, without its bytes.
    pub meta: FrameMeta,
    /// Frames of the same epoch between the record before and this one that are not in the log, in order.
    pub skipped: Arc<[SkipRange]>,
    /// The coded pixels, if they were asked for.
    pub payload: Option<Bytes>,
}

impl StoredRecord {
    /// The record as a reader gets it, if its payload was read.
    pub fn into_record(self) -> Option<Record> {
        let Self { meta, skipped, payload, .. } = self;
        let frame = Frame { meta, payload: payload? };
        Some(Record { frame, skipped, quality: Quality::default(), trace: None, arrived: Instant::ZERO })
    }
}

/// What stands next in a segment.
#[derive(Clone, Debug, PartialEq)]
pub enum Scanned {
    /// A whole, authentic record.
    Record(StoredRecord),
    /// Damage; the next record may be whole.
    Damaged(Damage),
}

/// Reads one segment.
pub struct SegmentScan {
    segment: SegmentNumber,
    header: SegmentHeader,
    sealer: Sealer,
    /// The byte of the header that was not what was written.
    mended: Option<usize>,
    /// The segment's size when the scan began.
    end: u64,
    offset: u64,
    index: u64,
    chunk: Chunk,
    /// From damage at the first place on, up to the second, no head was found.
    searched: (u64, u64),
}

impl SegmentScan {
    /// Opens a segment of `bytes` bytes, and checks that it is the one that belongs there.
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

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The byte of the header that was damaged, if one was: the header was found all the same.
    pub fn mended(&self) -> Option<usize> {
        self.mended
    }

    /// The index that the next record has, if it is there.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Where the next record begins, if it is there.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The segment has grown to `bytes` bytes since the scan began.
    pub fn grow(&mut self, bytes: u64) {
        self.end = self.end.max(bytes);
    }

    /// Goes on from a record whose place is known from an earlier scan of the same segment.
    pub fn seek(&mut self, index: u64, offset: u64) {
        (self.index, self.offset) = (index, offset);
    }

    /// What comes next; `None` at the end. Without `payload`, the coded pixels are passed over, unread and unchecked.
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

    /// The head that stands at `offset`, if its checksum is right and the segment has all of its record.
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

    /// A record that stands where another belongs.
    fn misplaced(&mut self, storage: &mut impl Storage, head: RecordHead) -> Scanned {
        let kind = DamageKind::Misplaced { expected: self.index, found: head.index };
        let genuine = self.open_meta(storage, self.offset, head).is_ok();
        if genuine && head.index > self.index {
            // Those before it are not there.
            return self.step(self.offset, Some(head.index), kind);
        }
        self.damaged(storage, None, kind)
    }

    /// Passes over damage that begins here, to the next record that there is. The lengths in `head` are believed if they lead to the next head,
    /// or to the end.
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

    /// Goes on at `offset`, where the record `until` stands.
    fn step(&mut self, offset: u64, until: Option<u64>, kind: DamageKind) -> Scanned {
        let bytes = offset - self.offset;
        let damage =
            Damage { segment: self.segment, index: self.index, offset: self.offset, bytes, kind, until };
        self.offset = offset;
        self.index = until.unwrap_or(self.index + 1);
        Scanned::Damaged(damage)
    }

    /// The next place behind this one at which a record stands that belongs behind here, and its index.
    fn search(&mut self, storage: &mut impl Storage) -> Option<(u64, u64)> {
        let (begin, from) = self.searched;
        let mut at = if begin == self.offset { from.max(begin + 1) } else { self.offset + 1 };
        let (mut unreadable, mut cut) = (0, None);
        loop {
            let left = self.end.saturating_sub(at);
            if left < RECORD_HEAD_BYTES as u64 {
                // What is cut short may be whole once the segment has grown.
                self.searched = (self.offset, cut.unwrap_or(at));
                return None;
            }
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
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
        // The head lies within the segment, so this takes no more memory than the segment has bytes.
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

/// Where in `window` a head may stand of a record with this index or a later one. Most bytes are ruled out by two comparisons.
fn candidates(window: &[u8], index: u64) -> impl Iterator<Item = usize> + '_ {
    window.windows(RECORD_HEAD_BYTES).enumerate().filter_map(move |(place, bytes)| {
        // Kind and reserved, before anything is decoded.
        let may = bytes[RECORD_HEAD_BYTES - 2..] == [KIND_FRAME, 0];
        let head = may.then(|| RecordHead::peek(bytes)).flatten().filter(RecordHead::is_plausible)?;
        (index..=index.saturating_add(JUMP_MAX)).contains(&head.index).then_some(place)
    })
}

/// A piece of the segment in memory.
#[derive(Default)]
struct Chunk {
    /// Where in the segment it begins.
    start: u64,
    /// Its bytes, and room for more.
    bytes: Vec<u8>,
    filled: usize,
}

impl Chunk {
    /// `length` bytes from `offset` on; `left` are there.
    fn get(
        &mut self,
        storage: &mut impl Storage,
        segment: SegmentNumber,
        offset: u64,
        length: usize,
        left: u64,
    ) -> Result<&[u8], DamageKind> {
        if self.held(offset).len() < length {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).clamp(length, CHUNK_BYTES.max(length));
            if self.bytes.len() < wanted {
                self.bytes = vec![0; wanted];
            }
            (self.start, self.filled) = (offset, 0);
            let read = storage.read_at(segment, offset, &mut self.bytes[..wanted]);
            // What cannot be read may lie behind what is asked for.
            let read = read.or_else(|_| storage.read_at(segment, offset, &mut self.bytes[..length]));
            self.filled = read.map_err(|_| DamageKind::Unreadable)?;
        }
        self.held(offset).get(..length).ok_or(DamageKind::Torn)
    }

    /// `length` bytes from `offset` on, in memory of their own.
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

    /// What is in memory from `offset` on.
    fn held(&self, offset: u64) -> &[u8] {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes[..self.filled].get(from..)).unwrap_or_default()
    }
}
