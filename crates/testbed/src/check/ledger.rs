//! Checks that a log on disk keeps its promises: compares every recovery, and the bytes on the disk, with what was promised.

use std::collections::{BTreeMap, BTreeSet};

use mez_core::frame::{FrameId, Sequence, SkipReason};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::store::{
    DamageKind, HeaderError, KeyRing, RecordHead, Recovery, Scanned, SegmentHeader, SegmentNumber,
    SegmentScan, Storage, checksum,
};

use super::Checks;
use crate::disk::{SimulatedDisk, records};

/// The promises of one log.
#[derive(Debug)]
pub(crate) struct Ledger {
    camera: CameraName,
    keys: KeyRing,
    /// All frames that ever entered the log.
    published: BTreeSet<FrameId>,
    /// The newest frame that was reported as durable. All frames before it are durable too.
    acknowledged: Option<FrameId>,
    /// Frames whose publishers were told that the frames outlive a crash.
    confirmed: BTreeSet<FrameId>,
    /// The frames, with their sizes, that the disk had at the end of the last run, in segments that had not expired.
    held: Vec<(FrameId, u64)>,
    /// Frames that must not come back: they expired, or a start recovered older frames without them.
    gone: BTreeSet<FrameId>,
    /// The segment of each salt.
    salts: BTreeMap<[u8; 32], SegmentNumber>,
    /// Whether bytes have rotted, so that damage is expected.
    has_rotted: bool,
    /// The checksum of the record for each salt and nonce.
    sealed: BTreeMap<([u8; 32], u64), u32>,
}

impl Ledger {
    pub(crate) const fn new(camera: CameraName, keys: KeyRing) -> Self {
        Self {
            camera,
            keys,
            published: BTreeSet::new(),
            acknowledged: None,
            confirmed: BTreeSet::new(),
            held: Vec::new(),
            gone: BTreeSet::new(),
            salts: BTreeMap::new(),
            has_rotted: false,
            sealed: BTreeMap::new(),
        }
    }

    /// A frame enters the log.
    pub(crate) fn published(&mut self, id: FrameId) {
        self.published.insert(id);
        // A camera that has lost its counter reuses an identity if no frame of it is left.
        self.gone.remove(&id);
    }

    /// The writer reports all frames up to this one as durable.
    pub(crate) fn acknowledged(&mut self, durable: Option<FrameId>) {
        self.acknowledged = self.acknowledged.max(durable);
    }

    /// A publisher is told that this record outlives a crash.
    pub(crate) fn confirmed(&mut self, id: FrameId) {
        self.confirmed.insert(id);
    }

    /// The power was cut, and the log's configuration promises nothing for a power cut.
    pub(crate) fn nothing_is_promised(&mut self) {
        self.confirmed.clear();
    }

    /// Guarantee I3: the disk has every confirmed frame, unless the frame has expired.
    pub(crate) fn check_confirmed(&self) -> Result<(), String> {
        let held: BTreeSet<FrameId> = self.held.iter().map(|(id, _)| *id).collect();
        // If all segments have expired, to make room for one that could not be written, there is nothing to compare.
        let Some(oldest) = held.first().copied() else { return Ok(()) };
        match self.confirmed.range(oldest..).find(|id| !held.contains(id) && !self.gone.contains(id)) {
            Some(id) => Err(format!("frame {id} was confirmed to its publisher, and is not on the disk")),
            None => Ok(()),
        }
    }

    /// A run ends and leaves this disk. Frames older than all on the disk are gone.
    pub(crate) fn ended(&mut self, disk: &mut SimulatedDisk) {
        self.held = self.read(disk);
        if let Some((oldest, _)) = self.held.first() {
            self.gone.extend(self.published.range(..*oldest));
        }
    }

    /// Bytes have rotted. Records that are still readable must come back.
    pub(crate) fn rotted(&mut self, disk: &mut SimulatedDisk) {
        self.held = self.read(disk);
        let held: BTreeSet<FrameId> = self.held.iter().map(|(id, _)| *id).collect();
        self.confirmed.retain(|id| held.contains(id));
        self.has_rotted = true;
    }

    /// Compares the records recovered into memory of `bytes_max` with what was promised.
    pub(crate) fn recovered(&mut self, recovery: &Recovery, bytes_max: u64) -> Result<(), String> {
        if !self.has_rotted {
            check_report(recovery, self.acknowledged.is_some())?;
        }
        self.check_gaps(&recovery.records)?;
        self.check_promised(&recovery.records, bytes_max)?;
        self.check_gone(&recovery.records)
    }

    /// Guarantee I3: the records are in order, and state what is missing between them.
    fn check_gaps(&self, records: &[Record]) -> Result<(), String> {
        for pair in records.windows(2) {
            let (a, b) = (pair[0].frame.meta.id, pair[1].frame.meta.id);
            if a >= b {
                return Err(format!("frame {b} comes after frame {a}"));
            }
            // A replica continues in the same epoch after a start that lost its tail.
            let between = self.published.range(a..b).skip(1).filter(|id| !self.gone.contains(id));
            let stated = |id: &FrameId| {
                let next = Sequence(id.sequence.0 + 1);
                pair[1].skipped.iter().any(|range| {
                    [SkipReason::Evicted, SkipReason::Damaged].contains(&range.reason)
                        && range.clipped(id.sequence, next).is_some()
                })
            };
            if a.epoch == b.epoch
                && let Some(hole) = between.clone().find(|id| !stated(id))
            {
                return Err(format!("between {a} and {b}, frame {hole} is missing without a word"));
            }
        }
        Ok(())
    }

    /// Guarantee I3: everything that was reported as durable and has not expired comes back.
    fn check_promised(&self, records: &[Record], bytes_max: u64) -> Result<(), String> {
        let back: BTreeSet<FrameId> = records.iter().map(|record| record.frame.meta.id).collect();
        let oldest = records.first().map(|record| record.frame.meta.id);
        let bytes: u64 = records.iter().map(|record| record.frame.payload.len() as u64).sum();
        // Frames that did not fit into memory are excused.
        let before = self.held.iter().rev().find(|(id, _)| oldest.is_none_or(|oldest| *id < oldest));
        let full = before.is_some_and(|(_, next)| bytes + next > bytes_max);
        for (id, _) in
            self.held.iter().filter(|(id, _)| Some(*id) <= self.acknowledged || self.confirmed.contains(id))
        {
            let excused = full && oldest.is_none_or(|oldest| *id < oldest);
            if !excused && !back.contains(id) {
                return Err(format!("frame {id} was said to be durable, and is gone"));
            }
        }
        Ok(())
    }

    /// Guarantee I4: no frame comes back that had expired or that an earlier start had given up.
    fn check_gone(&mut self, records: &[Record]) -> Result<(), String> {
        if let Some(back) = records.iter().find(|record| self.gone.contains(&record.frame.meta.id)) {
            return Err(format!("frame {} had gone, and is back", back.frame.meta.id));
        }
        let Some(oldest) = records.first().map(|record| record.frame.meta.id) else {
            self.gone.extend(&self.published);
            return Ok(());
        };
        let back: BTreeSet<FrameId> = records.iter().map(|record| record.frame.meta.id).collect();
        self.gone.extend(self.published.range(oldest..).filter(|id| !back.contains(id)));
        Ok(())
    }

    /// The frames on the disk with their sizes, oldest first.
    fn read(&self, disk: &mut SimulatedDisk) -> Vec<(FrameId, u64)> {
        let oldest = disk.bounds().unwrap_or_default().oldest;
        let mut held = Vec::new();
        let mut limits: Vec<(SegmentNumber, u64)> = Vec::new();
        for (segment, bytes) in disk.list().unwrap_or_default() {
            if let Ok(scan) = SegmentScan::open(disk, &self.camera, &self.keys, segment, bytes) {
                limits.push((segment, scan.index()));
            }
        }
        for (segment, bytes) in disk.list().unwrap_or_default() {
            let scan = SegmentScan::open(disk, &self.camera, &self.keys, segment, bytes);
            let Ok(mut scan) = scan else { continue };
            let limit = limits.iter().filter(|(other, _)| *other > segment).map(|(_, first)| *first).min();
            while let Some(scanned) = scan.next(disk, true) {
                let Scanned::Record(record) = scanned else { continue };
                if limit.is_some_and(|limit| record.index >= limit) {
                    break;
                }
                if segment >= oldest {
                    held.push((record.meta.id, record.payload.map_or(0, |payload| payload.len() as u64)));
                }
            }
        }
        held.sort_unstable();
        held
    }

    /// Guarantee I11: none of the bytes in `plain` is on the disk. Also checks that no key and nonce encrypt two different records.
    pub(crate) fn look_at(&mut self, disk: &mut SimulatedDisk, plain: &[&[u8]]) -> Result<(), String> {
        for segment in disk.segments() {
            let bytes = disk.bytes(segment).cloned().unwrap_or_default();
            if plain.iter().any(|plain| memchr::memmem::find(&bytes, plain).is_some()) {
                return Err(format!("segment {} holds pixels in the clear", segment.0));
            }
            let Ok((header, _, length)) = SegmentHeader::decode(&bytes, &self.keys) else { continue };
            if *self.salts.entry(header.salt).or_insert(segment) != segment {
                return Err(format!("segment {} has the salt of another", segment.0));
            }
            for (head, stored) in records(&bytes[length..]) {
                if RecordHead::decode(stored).is_none()
                    || checksum(&stored[head.payload_range()]) != head.payload_checksum
                {
                    continue;
                }
                let content = checksum(stored);
                if *self.sealed.entry((header.salt, head.index)).or_insert(content) != content {
                    return Err(format!("segment {}: nonce {} was used twice", segment.0, head.index));
                }
            }
        }
        Ok(())
    }
}

impl Checks {
    /// Checks a log that was recovered at a start against the promises and the published frames.
    pub(crate) fn recovered(
        &mut self,
        camera: &CameraName,
        recovered: Result<Recovery, String>,
    ) -> Option<Recovery> {
        let recovery = match recovered {
            Ok(recovery) => recovery,
            Err(broken) => {
                self.fail("recovery", format!("the log of {camera} on disk: {broken}"));
                return None;
            }
        };
        for record in &recovery.records {
            self.matching_runs(camera, &record.frame.meta, &record.frame.payload, "a disk gives back");
        }
        Some(recovery)
    }

    /// Reports what was found wrong in the bytes that a log's writer left.
    pub(crate) fn disk_left(&mut self, looked: Result<(), String>) {
        if let Err(broken) = looked {
            self.fail("sealed", broken);
        }
    }
}

fn check_report(recovery: &Recovery, promises: bool) -> Result<(), String> {
    let report = &recovery.report;
    let torn = [DamageKind::Torn, DamageKind::Cut];
    if let Some(forged) = report.damages.iter().find(|damage| !torn.contains(&damage.kind)) {
        return Err(format!("what a power cut tears passes its checksum: {forged}"));
    }
    if let Some(strange) = report.strange.iter().find(|s| s.why != HeaderError::Torn) {
        return Err(format!("a segment of our own is taken for a strange one: {strange}"));
    }
    // If nothing is ever reported as durable, a power cut may take any segment.
    let lost_oldest = if promises { report.lost_oldest } else { 0 };
    if report.missing + report.lost_newest + lost_oldest > 0 {
        return Err(format!("a log that nobody touched is taken for an older copy: {report:?}"));
    }
    Ok(())
}
