//! Fuzzes recovery with a log on disk that was edited.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Rung, Sequence, SkipReason,
};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::store::{
    Bounds, KEY_BYTES, KeyRing, MasterKey, Progress, Recovery, RecoveryConfig, RecoveryError, SALT_BYTES,
    SegmentHeader, SegmentNumber, Storage, StorageError, recover,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use crate::script::Reader;

/// Number of segments of the log before it is edited.
const SEGMENTS: u64 = 3;
/// Number of records in each segment.
const RECORDS: u64 = 3;
const KEY: MasterKey = MasterKey::new([7; KEY_BYTES]);
const NOW: Instant = Instant::from_nanos(1);

/// The input is a script of edits to a small log, which is then recovered. Every recovered frame must have been written, and must
/// state the frames that are missing before it. Recovery changes nothing else on disk, so a second one must give the same result.
pub fn log_segments(bytes: &[u8]) {
    play(bytes);
}

/// Runs an input and returns how many frames are recovered, for the test of the committed inputs.
pub fn play(bytes: &[u8]) -> usize {
    let mut disk = Disk::written();
    let mut script = Reader::new(bytes);
    while let Some(edit) = script.byte() {
        if disk.edit(edit, &mut script).is_none() {
            break;
        }
    }
    let before = disk.segments.clone();
    let first = disk.recover();
    match &first {
        Ok(recovery) => {
            assert_genuine(&recovery.records);
            assert_eq!(recovery.records.len() as u64, recovery.report.records);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let removed = before.keys().filter(|number| !disk.segments.contains_key(number)).count() as u64;
    let may_go = first.as_ref().map_or(0, |recovery| recovery.report.expired);
    // Recovery removes expired segments, and those whose header was torn by a power cut.
    let torn = before.values().filter(|content| content.len() < HEADER_BYTES_MAX).count() as u64;
    assert!(removed <= may_go + torn, "{removed} segments went");
    if let (Ok(first), Ok(second)) = (&first, disk.recover()) {
        assert!(
            first
                .records
                .iter()
                .map(|record| &record.frame)
                .eq(second.records.iter().map(|record| &record.frame))
        );
    }
    first.map_or(0, |recovery| recovery.records.len())
}

const HEADER_BYTES_MAX: usize = mez_core::store::SEGMENT_HEADER_BYTES_MAX;

fn camera() -> CameraName {
    "dock/cam1".parse().expect("a valid name")
}

fn anchor() -> ClockAnchor {
    ClockAnchor { wall: Timestamp::from_nanos(1_700_000_000_000_000_000), monotonic: Instant::ZERO }
}

fn record(sequence: u64) -> Record {
    let meta = FrameMeta {
        id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
        captured: anchor().wall_at(Instant::from_nanos(sequence * 40_000_000)),
        clock_source: ClockSource::Broker,
        width: 2,
        height: 2,
        published: (2, 2),
        encoding: Encoding::Jpeg,
        rung: Rung::original(),
        chain: ChainLink::still(Sequence(sequence)),
    };
    let payload = Bytes::from(vec![sequence as u8; 8 + sequence as usize]);
    Record {
        frame: Frame { meta, payload },
        skipped: [].into(),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    }
}

fn assert_genuine(records: &[Record]) {
    for pair in records.windows(2) {
        let (a, b) = (pair[0].frame.meta.id, pair[1].frame.meta.id);
        assert!(pair[1].skipped.iter().all(|range| range.reason == SkipReason::Damaged));
        let damaged: u64 = pair[1].skipped.iter().map(|range| range.count).sum();
        assert_eq!((a.epoch, a.sequence.0 + 1 + damaged), (b.epoch, b.sequence.0), "missing without a word");
    }
    for found in records {
        assert_eq!(found.frame, record(found.frame.meta.id.sequence.0).frame);
    }
}

/// A storage that keeps its segments in memory.
struct Disk {
    segments: BTreeMap<SegmentNumber, Vec<u8>>,
    bounds: Option<Bounds>,
}

impl Disk {
    fn written() -> Self {
        let mut segments = BTreeMap::new();
        for number in 0..SEGMENTS {
            let first_index = number * RECORDS;
            let header = SegmentHeader {
                key: KEY.id(),
                salt: [number as u8 + 1; SALT_BYTES],
                epoch: Epoch(1),
                segment: SegmentNumber(number),
                first_index,
                opened: anchor().wall,
                anchor: anchor(),
                camera: camera(),
            };
            let mut content = Vec::new();
            let sealer = header.encode(&KEY, &mut content);
            for index in first_index..first_index + RECORDS {
                sealer.seal(index, &record(index + 1), &mut content);
            }
            segments.insert(SegmentNumber(number), content);
        }
        let bounds = Bounds { next: SegmentNumber(SEGMENTS), ..Bounds::default() };
        Self { segments, bounds: Some(bounds) }
    }

    /// Applies one edit; `None` if the script ends inside it.
    fn edit(&mut self, edit: u8, script: &mut Reader<'_>) -> Option<()> {
        let number = SegmentNumber(u64::from(script.byte()? % 8));
        match edit % 6 {
            0 => {
                let at = usize::from(script.u16()?);
                if let Some(content) = self.segments.get_mut(&number) {
                    content.truncate(at);
                }
            }
            1 => {
                let (at, with) = (usize::from(script.u16()?), script.byte()?);
                if let Some(byte) = self.segments.get_mut(&number).and_then(|content| content.get_mut(at)) {
                    *byte ^= with;
                }
            }
            2 => {
                self.segments.insert(number, script.block()?.to_vec());
            }
            3 => {
                let from = SegmentNumber(u64::from(script.byte()? % 8));
                let content = self.segments.get(&from)?.clone();
                self.segments.insert(number, content);
            }
            4 => {
                self.segments.entry(number).or_default().extend(script.block()?);
            }
            _ => {
                let next = SegmentNumber(u64::from(script.byte()?));
                self.bounds = (next.0 != 255).then_some(Bounds { oldest: number, next, ..Bounds::default() });
            }
        }
        Some(())
    }

    fn recover(&mut self) -> Result<Recovery, RecoveryError> {
        let keys = KeyRing::new(vec![KEY]).expect("one key");
        let camera = camera();
        let config = RecoveryConfig {
            camera: &camera,
            keys: &keys,
            bytes_max: u64::MAX,
            time_max: Duration::from_secs(1),
        };
        recover(self, config, || NOW)
    }
}

impl Storage for Disk {
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError> {
        Ok(self.segments.iter().map(|(number, content)| (*number, content.len() as u64)).collect())
    }

    fn create(&mut self, _: SegmentNumber) -> Result<(), StorageError> {
        unreachable!("a recovery writes nothing")
    }

    fn append(&mut self, _: SegmentNumber, _: &[u8]) -> Result<(), StorageError> {
        unreachable!("a recovery writes nothing")
    }

    fn start_sync(&mut self, _: SegmentNumber) -> Result<(), StorageError> {
        unreachable!("a recovery writes nothing")
    }

    fn finish_sync(&mut self) -> Option<Result<(), StorageError>> {
        unreachable!("a recovery writes nothing")
    }

    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError> {
        let content = self.segments.get(&segment).map_or(&[][..], Vec::as_slice);
        let rest = content.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError> {
        self.segments.remove(&segment);
        Ok(())
    }

    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError> {
        Ok(self.bounds)
    }

    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError> {
        self.bounds = Some(bounds);
        Ok(())
    }

    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError> {
        Ok(None)
    }

    fn write_progress(&mut self, _: Progress) -> Result<(), StorageError> {
        unreachable!("a recovery writes nothing")
    }
}
