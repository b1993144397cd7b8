//! The bytes of a segment, version 1. `docs/log-format.md` draws them one by one.

use std::sync::Arc;

use bytes::Bytes;

use super::SegmentNumber;
use super::key::{KeyId, KeyRing, MasterKey, Part, SALT_BYTES, SegmentKey, TAG_BYTES};
use super::meta;
use crate::frame::{Epoch, Frame, FrameMeta, Quality, SkipRange};
use crate::log::Record;
use crate::name::{CameraName, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::codec::{Reader, WireError, Write};

/// The first bytes of every segment. The first byte is not ASCII and the last is a line feed, so a transfer in text mode corrupts them.
pub const MAGIC: [u8; 8] = *b"\x89MEZLOG\n";
/// The version of the format that this code writes and reads.
pub const FORMAT_VERSION: u16 = 1;
/// The most bytes of a header.
pub const SEGMENT_HEADER_BYTES_MAX: usize = HEADER_FIXED_BYTES + CAMERA_BYTES_MAX + TAG_BYTES + 4;
/// Bytes at the front of every record.
pub const RECORD_HEAD_BYTES: usize = 24;

/// Bytes of a header up to the camera's name.
const HEADER_FIXED_BYTES: usize = 102;
const CAMERA_BYTES_MAX: usize = SEGMENTS_MAX * (SEGMENT_BYTES_MAX + 1);
/// A record with a frame, the only kind in version 1.
pub(super) const KIND_FRAME: u8 = 1;

/// Why bytes on disk are not the bytes that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageKind {
    /// The bytes end too early, or their checksum does not match: a torn write, or a failing disk.
    #[error("torn or corrupt: the checksum does not match")]
    Torn,
    /// The checksum is right but authentication fails: the bytes were made elsewhere, or belong elsewhere.
    #[error("not authentic: changed on purpose, or moved from another place")]
    Forged,
    /// The segment ends within the record, and holds only the record's beginning. A broker that is killed while it writes leaves such a record.
    #[error("cut short: the segment ends within it")]
    Cut,
    /// A record of this segment stands where another record belongs.
    #[error("record {found} is in the place of record {expected}")]
    Misplaced {
        /// The record that belongs there.
        expected: u64,
        /// The record that is there.
        found: u64,
    },
    /// Authentic bytes that make no sense to this version.
    #[error("written by an unknown version of Mez: {0}")]
    Malformed(#[from] WireError),
    /// The storage did not give the bytes.
    #[error("the storage cannot read it")]
    Unreadable,
}

/// Why a segment's header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not a segment of a log.
    #[error("not a segment of a log of Mez")]
    Foreign,
    /// The segment has a later version of the format.
    #[error(
        "version {0} of the format, but this program reads version {FORMAT_VERSION}; use a later version of Mez"
    )]
    Version(u16),
    /// Cut short or rotten.
    #[error("its header is torn or corrupt: the checksum does not match")]
    Torn,
    /// The key is not in the ring.
    #[error("written with the key {0}, which is not among the keys given")]
    Key(KeyId),
    /// The header's checksum is right but its authentication fails.
    #[error("its header is not authentic: changed on purpose")]
    Forged,
    /// A segment of another camera.
    #[error("a segment of camera {0}")]
    Camera(CameraName),
    /// The segment stands in the place of another one: a copy, or a file that was renamed.
    #[error("the file contains segment {0}: copied or renamed")]
    Number(SegmentNumber),
    /// The storage did not give the bytes.
    #[error("the storage cannot read it")]
    Unreadable,
    /// The segment was removed after the segments were listed.
    #[error("it has just been removed")]
    Gone,
    /// A folder, a link, a pipe, a socket or a device has the name of a segment.
    #[error("not a file: a folder, a link, a pipe, a socket or a device; move it away")]
    NotAFile,
}

/// The header at the front of a segment, without the tag and the checksum that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The master key that the segment's key is derived from.
    pub key: KeyId,
    /// Random bytes, drawn for this segment alone.
    pub salt: [u8; SALT_BYTES],
    /// The epoch of all frames in the segment.
    pub epoch: Epoch,
    /// Its number, one up with every segment of this log.
    pub segment: SegmentNumber,
    /// The index of its first record. The segment before it ends at this index, even if it holds further records.
    pub first_index: u64,
    /// The wall-clock time at which it was opened, for display and for retention by age after a restart.
    pub opened: Timestamp,
    /// The clock anchor of the start of the camera broker to which the epoch belongs.
    pub anchor: ClockAnchor,
    /// The camera.
    pub camera: CameraName,
}

impl SegmentHeader {
    /// Appends the header and returns the sealer for the records after it.
    ///
    /// # Panics
    /// If `master` is not the key that [`SegmentHeader::key`] names.
    pub fn encode(&self, master: &MasterKey, out: &mut Vec<u8>) -> Sealer {
        assert_eq!(master.id(), self.key, "the header names the key that it is written with");
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        Write::u16(out, FORMAT_VERSION);
        Write::u16(out, self.encoded_bytes());
        out.extend_from_slice(&self.key.0);
        out.extend_from_slice(&self.salt);
        Write::u64(out, self.epoch.0);
        Write::u64(out, self.segment.0);
        Write::u64(out, self.first_index);
        Write::u64(out, self.opened.as_nanos());
        Write::u64(out, self.anchor.wall.as_nanos());
        Write::u64(out, self.anchor.monotonic.as_nanos());
        out.text(self.camera.as_str(), CAMERA_BYTES_MAX);
        let sealer = self.sealer(master);
        let tag = sealer.key.seal_header(&out[start..]);
        out.extend_from_slice(tag.as_ref());
        let checksum = crc32c::crc32c(&out[start..]);
        Write::u32(out, checksum);
        sealer
    }

    /// Decodes the header at the front of `bytes`. Returns the header, the sealer that opens the records after it, and
    /// the offset at which they begin. [`SegmentHeader::check_place`] checks whether the segment stands where it belongs.
    pub fn decode(bytes: &[u8], keys: &KeyRing) -> Result<(Self, Sealer, usize), HeaderError> {
        let (magic, rest) = bytes.split_at_checked(MAGIC.len()).ok_or(HeaderError::Torn)?;
        if magic != MAGIC {
            // A power cut leaves zeros where nothing was written.
            let unwritten = |(byte, expected)| byte == 0 || byte == expected;
            let torn = magic.iter().copied().zip(MAGIC).all(unwritten);
            return Err(if torn { HeaderError::Torn } else { HeaderError::Foreign });
        }
        let mut r = Reader::new(rest);
        let version = r.u16("version").map_err(|_| HeaderError::Torn)?;
        let length = usize::from(r.u16("header bytes").map_err(|_| HeaderError::Torn)?);
        let fits = (HEADER_FIXED_BYTES + TAG_BYTES + 4..=bytes.len()).contains(&length);
        let checked = fits.then(|| bytes[..length].split_last_chunk::<4>()).flatten();
        let whole = checked.filter(|(body, sum)| crc32c::crc32c(body).to_le_bytes() == **sum);
        let Some((authenticated, _)) = whole else {
            // A header of a later version may be longer than this program reads. Only its checksum could distinguish it from damage.
            return Err(if version > FORMAT_VERSION && version < 0x100 {
                HeaderError::Version(version)
            } else {
                HeaderError::Torn
            });
        };
        if version != FORMAT_VERSION {
            return Err(HeaderError::Version(version));
        }
        let (body, tag) = authenticated.split_at(authenticated.len() - TAG_BYTES);
        let header = Self::decode_body(body);
        // The fields name the key with which the tag is checked. They are trusted only after that check.
        let header = header.map_err(|_| HeaderError::Forged)?;
        let master = keys.find(header.key).ok_or(HeaderError::Key(header.key))?;
        let sealer = header.sealer(master);
        if !sealer.key.is_genuine(body, tag) {
            return Err(HeaderError::Forged);
        }
        Ok((header, sealer, length))
    }

    /// Like [`SegmentHeader::decode`], but repairs the header if exactly one byte is damaged, and
    /// returns the offset of that byte too. Without its header, no record of a segment could be opened.
    ///
    /// The checksum identifies the byte, and the tag confirms it. So a wrong guess is never taken for the header.
    pub fn decode_mending(
        bytes: &[u8],
        keys: &KeyRing,
        camera: &CameraName,
    ) -> Result<(Self, Sealer, usize, Option<usize>), HeaderError> {
        let why = match Self::decode(bytes, keys) {
            Ok((header, sealer, length)) => return Ok((header, sealer, length, None)),
            Err(why @ (HeaderError::Torn | HeaderError::Foreign | HeaderError::Version(_))) => why,
            Err(why) => return Err(why),
        };
        let mended = mend(bytes, camera).and_then(|(front, place)| {
            let (header, sealer, length) = Self::decode(&front, keys).ok()?;
            Some((header, sealer, length, Some(place)))
        });
        mended.ok_or(why)
    }

    /// Checks that this header belongs to `segment` of `camera`.
    pub fn check_place(&self, camera: &CameraName, segment: SegmentNumber) -> Result<(), HeaderError> {
        if self.camera != *camera {
            return Err(HeaderError::Camera(self.camera.clone()));
        }
        if self.segment != segment {
            return Err(HeaderError::Number(self.segment));
        }
        Ok(())
    }

    fn decode_body(body: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body);
        r.bytes("magic, version and length", MAGIC.len() + 4)?;
        let header = Self {
            key: KeyId(r.fixed("key")?),
            salt: r.fixed("salt")?,
            epoch: Epoch(r.u64("epoch")?),
            segment: SegmentNumber(r.u64("segment")?),
            first_index: r.u64("first index")?,
            opened: Timestamp::from_nanos(r.u64("opened")?),
            anchor: ClockAnchor {
                wall: Timestamp::from_nanos(r.u64("anchor, wall")?),
                monotonic: Instant::from_nanos(r.u64("anchor, monotonic")?),
            },
            camera: r
                .text("camera", CAMERA_BYTES_MAX)?
                .parse()
                .map_err(|_| WireError::Text { field: "camera" })?,
        };
        r.finish()?;
        Ok(header)
    }

    fn encoded_bytes(&self) -> u16 {
        let bytes = HEADER_FIXED_BYTES + self.camera.as_str().len() + TAG_BYTES + 4;
        u16::try_from(bytes).expect("a camera's name is below SEGMENT_HEADER_BYTES_MAX")
    }

    fn sealer(&self, master: &MasterKey) -> Sealer {
        let key = SegmentKey::derive(master, &self.salt, &self.camera, self.epoch, self.segment);
        Sealer { key, epoch: self.epoch }
    }
}

/// The header at the front of `bytes` with one byte changed so that its checksum is right, and the offset of
/// that byte. The length is computed from the camera's name, because the length in `bytes` may be damaged.
fn mend(bytes: &[u8], camera: &CameraName) -> Option<(Vec<u8>, usize)> {
    let length = HEADER_FIXED_BYTES + camera.as_str().len() + TAG_BYTES + 4;
    let mut front = bytes.get(..length)?.to_vec();
    // A header that a power cut tore is not repaired, because more than one of its bytes is 0.
    for place in 0..length {
        let was = front[place];
        for changed in (0..=u8::MAX).filter(|changed| *changed != was) {
            front[place] = changed;
            let right = front.split_last_chunk::<4>();
            if right.is_some_and(|(body, sum)| crc32c::crc32c(body).to_le_bytes() == *sum) {
                return Some((front, place));
            }
        }
        front[place] = was;
    }
    None
}

/// Seals and opens the records of one segment.
pub struct Sealer {
    key: SegmentKey,
    epoch: Epoch,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealer(epoch {})", self.epoch.0)
    }
}

impl Sealer {
    /// Encrypts a record and appends its stored form. An index must not be used for two different records, because the nonce depends on it.
    pub fn seal(&self, index: u64, record: &Record, out: &mut Vec<u8>) {
        let start = out.len();
        let payload = &record.frame.payload;
        out.reserve(RECORD_HEAD_BYTES + meta::BYTES_TYPICAL + payload.len() + 2 * TAG_BYTES);
        out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
        meta::encode(&record.frame.meta, &record.skipped, out);
        let meta_start = start + RECORD_HEAD_BYTES;
        let tag = self.key.seal(Part::Meta, index, &mut out[meta_start..]);
        out.extend_from_slice(tag.as_ref());
        let payload_start = out.len();
        out.extend_from_slice(payload);
        let tag = self.key.seal(Part::Payload, index, &mut out[payload_start..]);
        out.extend_from_slice(tag.as_ref());
        let head = RecordHead {
            payload_checksum: crc32c::crc32c(&out[payload_start..]),
            index,
            meta_bytes: u16::try_from(payload_start - meta_start).expect("see meta::BYTES_MAX"),
            payload_bytes: u32::try_from(out.len() - payload_start).expect("a payload is below 4 GiB"),
        };
        head.encode(&mut out[start..payload_start]);
    }

    /// Opens the description of a record's frame. `sealed`: the encrypted description with its tag.
    pub fn open_meta(
        &self,
        index: u64,
        sealed: &mut [u8],
    ) -> Result<(FrameMeta, Arc<[SkipRange]>), DamageKind> {
        let plain = self.key.open(Part::Meta, index, sealed).ok_or(DamageKind::Forged)?;
        Ok(meta::decode(self.epoch, plain)?)
    }

    /// Opens a payload.
    pub fn open_payload(&self, index: u64, mut sealed: Vec<u8>) -> Result<Bytes, DamageKind> {
        let plain = self.key.open(Part::Payload, index, &mut sealed).ok_or(DamageKind::Forged)?.len();
        sealed.truncate(plain);
        Ok(sealed.into())
    }

    /// Opens a whole record, as [`Sealer::seal`] stored it.
    pub fn open(&self, index: u64, stored: &[u8], arrived: Instant) -> Result<Record, DamageKind> {
        let head = RecordHead::decode(stored).ok_or(DamageKind::Torn)?;
        if head.index != index {
            return Err(DamageKind::Misplaced { expected: index, found: head.index });
        }
        let payload = stored.get(head.payload_range()).ok_or(DamageKind::Torn)?;
        if crc32c::crc32c(payload) != head.payload_checksum {
            return Err(DamageKind::Torn);
        }
        let mut sealed = stored[head.meta_range()].to_vec();
        let (meta, skipped) = self.open_meta(index, &mut sealed)?;
        let payload = self.open_payload(index, payload.to_vec())?;
        Ok(Record {
            frame: Frame { meta, payload },
            skipped,
            quality: Quality::default(),
            trace: None,
            link_bytes: None,
            arrived,
        })
    }
}

/// The unencrypted head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// CRC-32C of the sealed payload. Another checksum covers the head and the sealed description.
    pub payload_checksum: u32,
    /// The record's index in the log.
    pub index: u64,
    /// Bytes of the sealed description, its tag included.
    pub meta_bytes: u16,
    /// Bytes of the sealed payload, its tag included.
    pub payload_bytes: u32,
}

impl RecordHead {
    /// Decodes a head at the front of `bytes`. `None` if `bytes` end before the sealed description does, or if the head's checksum is wrong.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let head = Self::peek(bytes)?;
        let covered = bytes.get(4..head.meta_range().end)?;
        let sum = u32::from_le_bytes(*bytes.first_chunk()?);
        (crc32c::crc32c(covered) == sum).then_some(head)
    }

    /// The head before its checksum is verified. It tells how many bytes the checksum covers.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        r.u32("head checksum").ok()?;
        let payload_checksum = r.u32("payload checksum").ok()?;
        let index = r.u64("index").ok()?;
        let payload_bytes = r.u32("payload bytes").ok()?;
        let meta_bytes = r.u16("meta bytes").ok()?;
        let kind = r.u8("kind").ok()?;
        let reserved = r.u8("reserved").ok()?;
        let plausible = kind == KIND_FRAME
            && reserved == 0
            && usize::from(meta_bytes) >= TAG_BYTES
            && payload_bytes as usize >= TAG_BYTES;
        plausible.then_some(Self { payload_checksum, index, meta_bytes, payload_bytes })
    }

    /// Whether a writer can have made a description of this length.
    pub(super) fn is_plausible(&self) -> bool {
        usize::from(self.meta_bytes) <= meta::BYTES_MAX + TAG_BYTES
    }

    /// Bytes of the whole record.
    pub fn record_bytes(&self) -> u64 {
        RECORD_HEAD_BYTES as u64 + u64::from(self.meta_bytes) + u64::from(self.payload_bytes)
    }

    /// Where the sealed description lies within the record.
    pub fn meta_range(&self) -> std::ops::Range<usize> {
        RECORD_HEAD_BYTES..RECORD_HEAD_BYTES + usize::from(self.meta_bytes)
    }

    /// Where the sealed payload lies within the record.
    pub fn payload_range(&self) -> std::ops::Range<usize> {
        let start = self.meta_range().end;
        start..start + self.payload_bytes as usize
    }

    /// Writes the head over the front of `out`, which ends with the sealed description.
    pub fn encode(&self, out: &mut [u8]) {
        out[4..8].copy_from_slice(&self.payload_checksum.to_le_bytes());
        out[8..16].copy_from_slice(&self.index.to_le_bytes());
        out[16..20].copy_from_slice(&self.payload_bytes.to_le_bytes());
        out[20..22].copy_from_slice(&self.meta_bytes.to_le_bytes());
        out[22] = KIND_FRAME;
        out[23] = 0;
        let sum = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// CRC-32C (Castagnoli), the checksum of everything on disk.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests;
