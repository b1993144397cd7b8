//! Copies every readable record of a log into a new log.
//!
//! The copy is a log like any other. Its records are numbered without holes and encrypted anew,
//! each segment with its own salt. The record behind a hole states the missing frames as `damaged`.

use super::check::{VerifyConfig, verify};
use super::report::LogReport;
use crate::frame::FrameId;
use crate::store::format::{Sealer, SegmentHeader};
use crate::store::key::{MasterKey, SALT_BYTES};
use crate::store::storage::{Storage, StorageError};
use crate::store::{SegmentNumber, holes};

/// The result of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// What the check of the original found.
    pub report: LogReport,
    /// How many segments the copy has.
    pub segments: u64,
    /// How many records the copy has.
    pub records: u64,
    /// How many bytes the copy has.
    pub bytes: u64,
}

/// Why a log was not copied completely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct RepairError(#[from] StorageError);

/// Copies every readable record of a log into `out`, which must have no segment yet. Makes nothing durable.
/// `salt` draws random bytes, which must never repeat.
pub fn repair(
    storage: &mut impl Storage,
    config: VerifyConfig<'_>,
    out: &mut impl Storage,
    salt: &mut dyn FnMut() -> [u8; SALT_BYTES],
) -> Result<Repair, RepairError> {
    let config = VerifyConfig { payloads: true, ..config };
    let mut copy =
        Copy { out, master: config.keys.newest(), salt, open: None, next: None, bytes: 0, segments: 0 };
    let report = verify(storage, config, |header, record| {
        let index = record.index;
        let Some(mut record) = record.into_record() else { return Ok(()) };
        copy.take(header, index, &mut record)
    });
    let Copy { segments, bytes, .. } = copy;
    let report = report?;
    Ok(Repair { records: report.records(), report, segments, bytes })
}

struct Copy<'a, S> {
    out: &'a mut S,
    master: &'a MasterKey,
    salt: &'a mut dyn FnMut() -> [u8; SALT_BYTES],
    /// The segment of the copy that is being written.
    open: Option<(SegmentNumber, Sealer)>,
    /// The index of the next record in the original and in the copy, and the frame before it.
    next: Option<(u64, u64, FrameId)>,
    bytes: u64,
    segments: u64,
}

impl<S: Storage> Copy<'_, S> {
    fn take(
        &mut self,
        header: &SegmentHeader,
        index: u64,
        record: &mut crate::log::Record,
    ) -> Result<(), StorageError> {
        let place = self.next.map_or(index, |(_, place, _)| place);
        if let Some((_, _, last)) = self.next.filter(|(expected, ..)| index > *expected) {
            holes::state(Some(last), record);
        }
        let mut bytes = Vec::new();
        if self.open.as_ref().is_none_or(|(number, _)| *number != header.segment) {
            let header = SegmentHeader {
                key: self.master.id(),
                salt: (self.salt)(),
                first_index: place,
                ..header.clone()
            };
            self.out.create(header.segment)?;
            self.segments += 1;
            self.open = Some((header.segment, header.encode(self.master, &mut bytes)));
        }
        if let Some((number, sealer)) = &self.open {
            sealer.seal(place, record, &mut bytes);
            self.out.append(*number, &bytes)?;
        }
        self.bytes += bytes.len() as u64;
        self.next = Some((index + 1, place + 1, record.frame.meta.id));
        Ok(())
    }
}
