//! Produces logs as brokers leave them, for tests that read and damage logs. A log comes from a few
//! lives of a broker. The last life ends as requested.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{Intake, IntakeConfig, Published};
use mez_core::frame::{Encoding, Epoch, FrameId};
use mez_core::history::PastQuery;
use mez_core::log::{LogConfig, Record, log};
use mez_core::name::CameraName;
use mez_core::store::{
    Durability, KEY_BYTES, KeyRing, LogReport, MasterKey, Recovery, RecoveryConfig, Repair, StoreConfig,
    StoreReader, StoreWriter, VerifyConfig, recover, repair, verify,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::{DiskBug, SimulatedDisk};
use crate::random::Random;

const BEGIN: Instant = Instant::from_nanos(1_000_000_000);

/// How a broker's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The broker stopped in an orderly way, and has written everything.
    Stopped,
    /// The broker was killed, perhaps in the middle of a write.
    Killed,
    /// The power was cut.
    PowerCut,
}

/// What readers get of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The frames, in order.
    pub frames: Vec<(FrameId, Bytes)>,
    /// Records that the reader reports as unreadable.
    pub damaged: u64,
    /// Frames that a later frame states as damaged.
    pub stated: u64,
    /// Whether an answer said that records are missing.
    pub broken: bool,
}

/// A log that a broker left.
pub struct SampleLog {
    /// The disk of the log.
    pub disk: SimulatedDisk,
    /// The camera of the log.
    pub camera: CameraName,
    /// The keys of the log.
    pub keys: KeyRing,
}

impl SampleLog {
    /// A log of up to three lives, determined by `seed`.
    pub fn seeded(seed: u64, ending: Ending, bug: Option<DiskBug>) -> Self {
        let mut random = Random::seeded(seed ^ 0x0005_a317_1e00);
        let keys = KeyRing::new(vec![MasterKey::new([42; KEY_BYTES])]).expect("one key is enough");
        let mut disk = SimulatedDisk::seeded(random.next_u64());
        if let Some(bug) = bug {
            disk.plant(bug, keys.clone());
        }
        let mut sample = Self { disk, camera: "dock/cam1".parse().expect("a good name"), keys };
        let disk_bytes_max = *random.pick(&[15_000, 60_000, 1 << 20]);
        let durability = *random.pick(&[Durability::Group, Durability::Sync]);
        let lives = random.within(1..=3);
        let mut now = BEGIN;
        for life in 1..=lives {
            let ends = if life == lives { ending } else { *random.pick(&[Ending::Stopped, Ending::Killed]) };
            now = sample.live(&mut random, (life, ends), (disk_bytes_max, durability), now);
        }
        sample
    }

    fn live(
        &mut self,
        random: &mut Random,
        (life, ending): (u64, Ending),
        (disk_bytes_max, durability): (u64, Durability),
        mut now: Instant,
    ) -> Instant {
        let resume = self.recover().resume;
        let (memory, reader) = log(LogConfig::default());
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(now.as_nanos()), monotonic: now };
        let mut intake = Intake::new(memory, IntakeConfig::new(Epoch(life), anchor));
        let config = StoreConfig {
            durability,
            segment_bytes: random.within(2_000..=8_000),
            ..StoreConfig::new(self.camera.clone(), self.keys.clone(), disk_bytes_max)
        };
        let disk = std::mem::replace(&mut self.disk, SimulatedDisk::seeded(0));
        let mut writer = StoreWriter::new(disk, config, resume, reader.cursor_at_end(), now, anchor.wall);
        writer.set_start(Epoch(life), anchor);
        let step = |writer: &mut StoreWriter<SimulatedDisk>, random: &mut Random, now| {
            let mut salt = || {
                let mut bytes = [0; 32];
                bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
                bytes
            };
            while writer.step(now, Timestamp::from_nanos(now.as_nanos()), &mut salt) <= now {}
        };
        for _ in 0..random.within(20..=60) {
            let bytes = random.within(40..=900) as usize;
            let payload: Vec<u8> = (0..bytes).map(|_| random.next_u64() as u8).collect();
            let frame = Published {
                payload: payload.into(),
                encoding: Encoding::Jpeg,
                width: 4,
                height: 3,
                captured: None,
            };
            intake.publish(now, frame).expect("it fits");
            now += Duration::from_millis(50);
            step(&mut writer, random, now);
        }
        if ending == Ending::Stopped {
            writer.close();
            for _ in 0..50 {
                now += Duration::from_millis(50);
                step(&mut writer, random, now);
            }
            assert!(writer.is_settled(), "{:?}", writer.status());
        }
        self.disk = writer.into_storage();
        match ending {
            Ending::Stopped => {}
            Ending::Killed => self.disk.kill(),
            Ending::PowerCut => self.disk.cut_power(),
        }
        now + Duration::from_secs(1)
    }

    /// What a broker recovers at its start.
    pub fn recover(&mut self) -> Recovery {
        let time_max = Duration::from_secs(1);
        let config = RecoveryConfig { camera: &self.camera, keys: &self.keys, bytes_max: u64::MAX, time_max };
        recover(&mut self.disk, config, || BEGIN).expect("the key is right, and the disk answers")
    }

    /// What `mez store verify` reports.
    pub fn verify(&mut self) -> LogReport {
        let config = VerifyConfig { camera: &self.camera, keys: &self.keys, payloads: true };
        verify(&mut self.disk, config, |_, _| Ok::<_, mez_core::store::StorageError>(()))
            .expect("the disk answers")
    }

    /// A copy of all readable records, without bounds or progress, and the report of the copy.
    pub fn repair(&mut self, seed: u64) -> (Self, Repair) {
        let mut random = Random::seeded(seed);
        let mut salt = || {
            let mut bytes = [0; 32];
            bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
            bytes
        };
        let mut out = SimulatedDisk::seeded(seed);
        let config = VerifyConfig { camera: &self.camera, keys: &self.keys, payloads: true };
        let repaired = repair(&mut self.disk, config, &mut out, &mut salt).expect("both disks answer");
        (Self { disk: out, camera: self.camera.clone(), keys: self.keys.clone() }, repaired)
    }

    /// What a reader of the past gets, from the oldest frame on.
    pub fn read(&mut self) -> Reading {
        let mut reader = StoreReader::new(self.camera.clone(), self.keys.clone());
        let mut query = PastQuery::EVERY;
        let mut reading = Reading { frames: Vec::new(), damaged: 0, stated: 0, broken: false };
        loop {
            let answer = reader.find(&mut self.disk, &query).expect("the disk answers");
            reading.broken |= answer.broken;
            let Some(Record { frame, skipped, .. }) = answer.record else { break };
            query.after = Some(frame.meta.id);
            reading.stated += skipped.iter().map(|range| range.count).sum::<u64>();
            reading.frames.push((frame.meta.id, frame.payload));
        }
        reading.damaged = reader.damaged();
        reading
    }
}
