//! Plants bugs in a log on disk from outside. This code has the keys. It sits between the real writer
//! or reader and the disk, and changes bytes as a buggy writer or reader would.

use std::collections::BTreeMap;

use mez_core::store::{KeyRing, RecordHead, SEGMENT_HEADER_BYTES_MAX, Sealer, SegmentHeader, SegmentNumber};
use mez_core::units::Instant;

/// A bug that the checks must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskBug {
    /// The writer reports a sync that it did not do.
    SkippedSync,
    /// A publisher is told that its record is durable when it was only handed to the disk.
    EarlyAnswer,
    /// The writer encrypts with the nonce of another record.
    WrongNonce,
    /// The writer gives records an index that is one too high.
    IndexOffByOne,
    /// The writer leaves plaintext pixels beside the encrypted ones.
    Plaintext,
    /// Every start draws the same salt.
    SameSalt,
    /// The writer does not remember which segments have expired.
    ForgottenExpiry,
    /// The writer does not remember its progress.
    ForgottenProgress,
    /// The writer does not remember the index of the log's first record.
    ForgottenBeginning,
    /// The reader takes zeros for the end of a segment, and ignores the progress.
    ZerosAreTheEnd,
    /// The reader does not verify checksums.
    UncheckedChecksum,
    /// The reader does not verify the index that a record was encrypted for.
    UncheckedPlace,
    /// The reader skips a damaged record, and renumbers the records after it.
    ServedAfterDamage,
}

/// A planted bug.
#[derive(Debug)]
pub(super) struct Planted {
    pub(super) bug: DiskBug,
    keys: KeyRing,
    sealers: BTreeMap<SegmentNumber, Sealer>,
}

impl Planted {
    pub(super) fn new(bug: DiskBug, keys: KeyRing) -> Self {
        Self { bug, keys, sealers: BTreeMap::new() }
    }

    pub(super) fn skips_sync(&self) -> bool {
        self.bug == DiskBug::SkippedSync
    }

    pub(super) fn forgets_expiry(&self) -> bool {
        self.bug == DiskBug::ForgottenExpiry
    }

    pub(super) fn forgets_progress(&self) -> bool {
        matches!(self.bug, DiskBug::ForgottenProgress | DiskBug::ZerosAreTheEnd)
    }

    pub(super) fn forgets_beginning(&self) -> bool {
        self.bug == DiskBug::ForgottenBeginning
    }

    pub(super) fn takes_zeros_for_the_end(&self) -> bool {
        self.bug == DiskBug::ZerosAreTheEnd
    }

    /// The bytes that the buggy writer would have appended.
    pub(super) fn appended(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Vec<u8> {
        if let Ok((_, sealer, _)) = SegmentHeader::decode(bytes, &self.keys) {
            self.sealers.insert(segment, sealer);
            return bytes.to_vec();
        }
        let writes = [DiskBug::WrongNonce, DiskBug::IndexOffByOne, DiskBug::Plaintext].contains(&self.bug);
        let Some(sealer) = self.sealers.get(&segment).filter(|_| writes) else { return bytes.to_vec() };
        let mut out = Vec::new();
        for (head, stored) in records(bytes) {
            let record = sealer.open(head.index, stored, Instant::ZERO).expect("the writer is in order");
            match self.bug {
                DiskBug::WrongNonce => {
                    let start = out.len();
                    sealer.seal(head.index ^ 1, &record, &mut out);
                    renumber(&mut out[start..], head.index);
                }
                DiskBug::IndexOffByOne => sealer.seal(head.index + 1, &record, &mut out),
                _ => {
                    out.extend_from_slice(stored);
                    out.extend_from_slice(&record.frame.payload);
                }
            }
        }
        out
    }

    /// The segment as the buggy reader would see it. `None`: unchanged.
    pub(super) fn read(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let front = &bytes[..bytes.len().min(SEGMENT_HEADER_BYTES_MAX)];
        let (header, sealer, length) = SegmentHeader::decode(front, &self.keys).ok()?;
        let mut out = bytes[..length].to_vec();
        let body = &bytes[length..];
        match self.bug {
            DiskBug::UncheckedChecksum => {
                for (head, stored) in records(body) {
                    let start = out.len();
                    out.extend_from_slice(stored);
                    mend(&mut out[start..], head);
                }
                out.extend_from_slice(&body[out.len() - length..]);
            }
            DiskBug::UncheckedPlace => {
                let all: Vec<_> = records(body).collect();
                for (head, stored) in &all {
                    let places = all.iter().map(|(other, _)| other.index);
                    let opened = places.filter_map(|place| {
                        let mut moved = stored.to_vec();
                        renumber(&mut moved, place);
                        sealer.open(place, &moved, Instant::ZERO).ok()
                    });
                    match opened.into_iter().next() {
                        Some(record) => sealer.seal(head.index, &record, &mut out),
                        None => out.extend_from_slice(stored),
                    }
                }
            }
            DiskBug::ServedAfterDamage => {
                let mut index = header.first_index;
                for (head, stored) in records(body) {
                    if let Ok(record) = sealer.open(head.index, stored, Instant::ZERO) {
                        sealer.seal(index, &record, &mut out);
                        index += 1;
                    }
                }
            }
            _ => return None,
        }
        Some(out)
    }
}

/// The consecutive records in `bytes`, as far as their heads are plausible.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = (RecordHead, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = RecordHead::peek(rest)?;
        let (stored, left) = rest.split_at_checked(usize::try_from(head.record_bytes()).ok()?)?;
        rest = left;
        Some((head, stored))
    })
}

/// Gives a stored record another index and a valid checksum.
pub(super) fn renumber(stored: &mut [u8], index: u64) {
    if let Some(head) = RecordHead::peek(stored) {
        let end = head.meta_range().end;
        RecordHead { index, ..head }.encode(&mut stored[..end]);
    }
}

/// Makes all checksums of a stored record valid.
fn mend(stored: &mut [u8], head: RecordHead) {
    let payload_checksum = mez_core::store::checksum(&stored[head.payload_range()]);
    let end = head.meta_range().end;
    RecordHead { payload_checksum, ..head }.encode(&mut stored[..end]);
}
