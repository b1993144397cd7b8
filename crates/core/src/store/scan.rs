//! Reading a segment from its front: what is whole comes out, what is damaged is named, and nothing else is served.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::SegmentNumber;
use super::format::{
    DamageKind, HeaderError, RECORD_HEAD_BYTES, RecordHead, SEGMENT_HEADER_BYTES_MAX, Sealer, SegmentHeader,
};
use super::key::KeyRing;
use super::storage::Storage;
use crate::frame::{FrameMeta, SkipRange};
use crate::name::CameraName;

/// What is read at once. Payloads that are longer are read straight to where they stay.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a segment that are not what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub segment: SegmentNumber,
    /// The record that stood there, or the first of those that did.
    pub index: u64,
    /// Where the damage begins.
    pub offset: u64,
    /// How many bytes cannot be used.
    pub bytes: u64,
    /// What is wrong with them.
    pub kind: DamageKind,
}

impl Damage {
    /// Whether it reaches to the end of a segment of `bytes` bytes.
    pub fn reaches(&self, bytes: u64) -> bool {
        self.offset + self.bytes >= bytes
    }
}

impl fmt::Display for Damage {
    /// `segment 0000000000000007, record 1042, 3.000 bytes at 81920: torn or rotten: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, index, offset, bytes, kind } = self;
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
    /// The segment's size when the scan began.
    end: u64,
    offset: u64,
    index: u64,
    chunk: Chunk,
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
        let read = storage.read_at(segment, 0, &mut front).map_err(|_| HeaderError::Unreadable)?;
        let (header, sealer, length) = SegmentHeader::decode(&front[..read], keys)?;
        header.check_place(camera, segment)?;
        let index = header.first_index;
        Ok(Self {
            segment,
            header,
            sealer,
            end: bytes,
            offset: length as u64,
            index,
            chunk: Chunk::default(),
        })
    }

    /// The segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
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
        match self.head(storage, left) {
            Ok(head) => Some(self.record(storage, head, payload)),
            // Without a head nobody knows where the next record begins.
            Err(kind) => Some(self.damaged(left, kind)),
        }
    }

    fn head(&mut self, storage: &mut impl Storage, left: u64) -> Result<RecordHead, DamageKind> {
        if left < RECORD_HEAD_BYTES as u64 {
            return Err(DamageKind::Torn);
        }
        let claimed =
            RecordHead::peek(self.chunk.get(storage, self.segment, self.offset, RECORD_HEAD_BYTES, left)?);
        let claimed = claimed.ok_or(DamageKind::Torn)?;
        if claimed.meta_range().end as u64 > left {
            return Err(DamageKind::Torn);
        }
        let bytes = self.chunk.get(storage, self.segment, self.offset, claimed.meta_range().end, left)?;
        let head = RecordHead::decode(bytes).ok_or(DamageKind::Torn)?;
        if head.index != self.index {
            return Err(DamageKind::Misplaced { expected: self.index, found: head.index });
        }
        if head.record_bytes() > left {
            return Err(DamageKind::Torn);
        }
        Ok(head)
    }

    fn record(&mut self, storage: &mut impl Storage, head: RecordHead, payload: bool) -> Scanned {
        let bytes = head.record_bytes();
        let opened = self.open_meta(storage, head).and_then(|(meta, skipped)| {
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
            Err(kind) => self.damaged(bytes, kind),
        }
    }

    fn open_meta(
        &mut self,
        storage: &mut impl Storage,
        head: RecordHead,
    ) -> Result<(FrameMeta, Arc<[SkipRange]>), DamageKind> {
        let (range, left) = (head.meta_range(), self.end - self.offset);
        let mut sealed = self.chunk.get(storage, self.segment, self.offset, range.end, left)?[range].to_vec();
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

    fn damaged(&mut self, bytes: u64, kind: DamageKind) -> Scanned {
        let damage = Damage { segment: self.segment, index: self.index, offset: self.offset, bytes, kind };
        self.offset += bytes;
        self.index += 1;
        Scanned::Damaged(damage)
    }
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
