//! A camera's log through several lives: frames come, the disk has its moods, the broker is killed, the power goes; and
//! after every start what is recovered is held against all that was ever published.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{Intake, IntakeConfig, Published};
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence, SkipReason};
use mez_core::log::{LogConfig, Record, log};
use mez_core::name::CameraName;
use mez_core::store::{
    BATCH_INTERVAL, DamageKind, Durability, HeaderError, KEY_BYTES, KeyRing, MasterKey, RecordHead, Recovery,
    RecoveryConfig, Scanned, SegmentHeader, SegmentNumber, SegmentScan, Storage, StoreConfig, StoreWriter,
    checksum, recover,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::bug::records;
use super::{DiskBug, Faults, SimulatedDisk};
use crate::random::Random;

/// Stands in every payload, and must stand nowhere on the disk.
const MARK: &[u8] = b"pixels in the clear";
const FRAME_INTERVAL: Duration = Duration::from_millis(33);

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerCut,
    Killed,
    Stopped,
}

/// What happened in a story.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Power cuts that were survived.
    pub power_cuts: u64,
    /// Frames published.
    pub frames: u64,
    /// Records that came back, over all starts.
    pub recovered: u64,
    /// Damage that was found and not served.
    pub damaged: u64,
    /// Frames that left memory before the disk took them.
    pub lost: u64,
}

/// A story that follows from its seed.
pub struct DiskStory {
    seed: u64,
    random: Random,
    camera: CameraName,
    keys: KeyRing,
    disk: SimulatedDisk,
    bug: Option<DiskBug>,
    durability: Durability,
    disk_bytes_max: u64,
    memory_bytes_max: u64,
    recovery_bytes_max: u64,
    now: Instant,
    epoch: u64,
    played: Played,
    /// All that was ever published.
    published: BTreeMap<FrameId, Bytes>,
    /// Frames that were said to be durable: the newest, and all before it.
    acknowledged: Option<FrameId>,
    /// The frames that the disk had when the last life ended, in segments that had not expired, with their sizes.
    held: Vec<(FrameId, u64)>,
    /// Frames that a start has not brought back though older ones came, and those that expired: never to be seen again.
    gone: BTreeSet<FrameId>,
    /// The salts that were seen, and the segments that they belong to.
    salts: BTreeMap<[u8; 32], SegmentNumber>,
    /// What was sealed with which salt and nonce.
    sealed: BTreeMap<([u8; 32], u64), u32>,
}

impl DiskStory {
    /// A story of eight lives.
    pub fn seeded(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let memory_bytes_max = random.within(20_000..=100_000);
        let keys = KeyRing::new(vec![MasterKey::new([42; KEY_BYTES])]).expect("one key is enough");
        Self {
            seed,
            disk: SimulatedDisk::seeded(random.next_u64()),
            camera: "dock/cam1".parse().expect("a good name"),
            keys,
            bug: None,
            durability: *random.pick(&[Durability::Group, Durability::Sync, Durability::Async]),
            disk_bytes_max: random.within(20_000..=200_000),
            memory_bytes_max,
            recovery_bytes_max: *random.pick(&[memory_bytes_max / 2, u64::MAX]),
            now: Instant::from_nanos(1_000_000_000),
            epoch: 0,
            played: Played::default(),
            published: BTreeMap::new(),
            acknowledged: None,
            held: Vec::new(),
            gone: BTreeSet::new(),
            salts: BTreeMap::new(),
            sealed: BTreeMap::new(),
            random,
        }
    }

    /// Plants a bug.
    #[must_use]
    pub fn planted(mut self, bug: DiskBug) -> Self {
        self.bug = Some(bug);
        self.disk.plant(bug, self.keys.clone());
        self
    }

    /// Plays it to the end, or to the first promise that is broken, which it tells.
    pub fn play(mut self) -> Result<Played, String> {
        for _ in 0..8 {
            let end =
                *self.random.pick(&[End::PowerCut, End::PowerCut, End::PowerCut, End::Killed, End::Stopped]);
            let result = self.live(end).and_then(|()| self.look_at_disk());
            result.map_err(|broken| format!("seed {}, life {}, {end:?}: {broken}", self.seed, self.epoch))?;
        }
        let seed = self.seed;
        self.start().map(|_| ()).map_err(|broken| format!("seed {seed}, at the end: {broken}"))?;
        Ok(self.played)
    }

    /// One life: start, publish, end.
    fn live(&mut self, end: End) -> Result<(), String> {
        let recovery = self.start()?;
        self.epoch += 1;
        let (mut memory, reader) = log(LogConfig::with_bytes_max(self.memory_bytes_max));
        for record in recovery.records {
            let appended = memory.append(record.frame, record.skipped, record.arrived);
            appended.map_err(|error| format!("a recovered frame does not go into memory: {error}"))?;
        }
        let anchor = self.anchor();
        let mut intake = Intake::new(memory, IntakeConfig::new(Epoch(self.epoch), anchor));
        let config = StoreConfig {
            durability: self.durability,
            segment_bytes: self.random.within(3_000..=20_000),
            batch_bytes_max: self.random.within(1_000..=10_000) as usize,
            ..StoreConfig::new(self.camera.clone(), self.keys.clone(), self.disk_bytes_max)
        };
        let disk = std::mem::replace(&mut self.disk, SimulatedDisk::seeded(0));
        let resume = recovery.resume;
        let mut writer = StoreWriter::new(
            disk,
            config,
            resume,
            reader.cursor_at_end(),
            self.now,
            anchor.wall_at(self.now),
        );
        writer.set_start(Epoch(self.epoch), anchor);

        let mut due = self.now;
        for _ in 0..self.random.within(5..=80) {
            if self.random.one_in(20) {
                let faults = self.draw_faults();
                writer.storage().set_faults(faults);
            }
            self.publish(&mut intake)?;
            due = due.min(writer.wake(self.now));
            self.now += self.random.duration(Duration::ZERO..=FRAME_INTERVAL * 2);
            // The writer's thread sometimes gets its turn late.
            while due <= self.now && !self.random.one_in(12) {
                due = self.step(&mut writer, due);
            }
            due = due.max(self.now - Duration::from_millis(500));
        }
        if end == End::Stopped {
            writer.storage().set_faults(Faults::default());
            writer.close();
            for _ in 0..200 {
                due = self.step(&mut writer, due.max(self.now)).min(self.now + BATCH_INTERVAL);
                self.now = self.now.max(due);
            }
            if !writer.is_settled() {
                return Err(format!("the writer does not come to an end: {:?}", writer.status()));
            }
        }
        self.played.lost += writer.status().lost;
        self.acknowledged = self.acknowledged.max(writer.status().durable);
        self.disk = writer.into_storage();
        self.disk.set_faults(Faults::default());
        self.disk.syncing = None;
        self.note_held();
        if end == End::PowerCut {
            self.played.power_cuts += 1;
            self.disk.cut_power();
        }
        Ok(())
    }

    fn step(&mut self, writer: &mut StoreWriter<SimulatedDisk>, at: Instant) -> Instant {
        let same = self.bug == Some(DiskBug::SameSalt);
        let random = &mut self.random;
        let mut salt = || {
            let mut bytes = [7; 32];
            if !same {
                bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
            }
            bytes
        };
        let wall = Timestamp::from_nanos(at.as_nanos());
        writer.step(at, wall, &mut salt)
    }

    fn publish(&mut self, intake: &mut Intake) -> Result<(), String> {
        let number = self.played.frames;
        let bytes = self.random.within(40..=3_000) as usize;
        let mut payload = [MARK, &number.to_le_bytes()].concat();
        payload.resize(bytes.max(payload.len()), number as u8);
        let payload = Bytes::from(payload);
        let frame = Published {
            payload: payload.clone(),
            encoding: Encoding::Jpeg,
            width: 4,
            height: 3,
            captured: None,
        };
        let id = intake.publish(self.now, frame).map_err(|error| format!("publishing failed: {error}"))?;
        self.published.insert(id, payload);
        self.played.frames += 1;
        Ok(())
    }

    fn draw_faults(&mut self) -> Faults {
        let mut faults = Faults::default();
        match self.random.within(0..=9) {
            0 => faults.full = true,
            1 => faults.failing_writes = true,
            2 => faults.failing_syncs = true,
            3 => faults.sync_polls = self.random.within(1..=30) as u32,
            4 => faults.stuck = true,
            _ => {}
        }
        faults
    }

    fn anchor(&self) -> ClockAnchor {
        ClockAnchor { wall: Timestamp::from_nanos(self.now.as_nanos()), monotonic: self.now }
    }

    // ---- checks -------------------------------------------------------------------------------------------

    /// Recovers, and holds what comes back against what was promised.
    fn start(&mut self) -> Result<Recovery, String> {
        let config = RecoveryConfig {
            camera: &self.camera,
            keys: &self.keys,
            bytes_max: self.recovery_bytes_max,
            time_max: Duration::from_secs(1),
        };
        let now = self.now;
        let recovery = recover(&mut self.disk, config, || now).map_err(|error| error.to_string())?;
        self.played.recovered += recovery.report.records;
        self.played.damaged += recovery.report.damaged;
        self.check_report(&recovery)?;
        self.check_content(&recovery.records)?;
        self.check_gaps(&recovery.records)?;
        self.check_promised(&recovery.records)?;
        self.check_gone(&recovery.records)?;
        Ok(recovery)
    }

    fn check_report(&self, recovery: &Recovery) -> Result<(), String> {
        let report = &recovery.report;
        if let Some(forged) = report.damages.iter().find(|damage| damage.kind != DamageKind::Torn) {
            return Err(format!("what a power cut tears passes its checksum: {forged}"));
        }
        if let Some(strange) = report.strange.iter().find(|s| s.why != HeaderError::Torn) {
            return Err(format!("a segment of our own is taken for a strange one: {strange}"));
        }
        if report.missing > 0 {
            return Err(format!("a log that nobody touched is taken for an older copy: {report:?}"));
        }
        Ok(())
    }

    /// I1: bytes are those that were published.
    fn check_content(&self, records: &[Record]) -> Result<(), String> {
        for record in records {
            let id = record.frame.meta.id;
            match self.published.get(&id) {
                None => return Err(format!("frame {id} was never published")),
                Some(payload) if *payload != record.frame.payload => {
                    return Err(format!("frame {id} has other bytes than were published"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// I3: one piece, in order, and what is missing in it is stated.
    fn check_gaps(&self, records: &[Record]) -> Result<(), String> {
        for pair in records.windows(2) {
            let (a, b) = (pair[0].frame.meta.id, pair[1].frame.meta.id);
            if a >= b {
                return Err(format!("frame {b} comes after frame {a}"));
            }
            if a.epoch == b.epoch {
                let between = (a.sequence.0 + 1)..b.sequence.0;
                let stated = |sequence: u64| {
                    pair[1].skipped.iter().any(|range| {
                        range.reason == SkipReason::Evicted
                            && range.clipped(Sequence(sequence), Sequence(sequence + 1)).is_some()
                    })
                };
                if let Some(hole) = between.clone().find(|sequence| !stated(*sequence)) {
                    return Err(format!("between {a} and {b}, frame {hole} is missing without a word"));
                }
            }
        }
        Ok(())
    }

    /// I3: everything that was said to be durable and has not expired.
    fn check_promised(&self, records: &[Record]) -> Result<(), String> {
        let back: BTreeSet<FrameId> = records.iter().map(|record| record.frame.meta.id).collect();
        let oldest = records.first().map(|record| record.frame.meta.id);
        let bytes: u64 = records.iter().map(|record| record.frame.payload.len() as u64).sum();
        // Only as many as there was room for in memory.
        let before = self.held.iter().rev().find(|(id, _)| oldest.is_some_and(|oldest| *id < oldest));
        let full = before.is_some_and(|(_, next)| bytes + next > self.recovery_bytes_max);
        for (id, _) in self.held.iter().filter(|(id, _)| Some(*id) <= self.acknowledged) {
            let excused = full && oldest.is_some_and(|oldest| *id < oldest);
            if !excused && !back.contains(id) {
                return Err(format!("frame {id} was said to be durable, and is gone"));
            }
        }
        Ok(())
    }

    /// I4: nothing comes back that had expired, or that an earlier start had given up.
    fn check_gone(&mut self, records: &[Record]) -> Result<(), String> {
        if let Some(back) = records.iter().find(|record| self.gone.contains(&record.frame.meta.id)) {
            return Err(format!("frame {} had gone, and is back", back.frame.meta.id));
        }
        let Some(oldest) = records.first().map(|record| record.frame.meta.id) else {
            self.gone.extend(self.published.keys());
            return Ok(());
        };
        let back: BTreeSet<FrameId> = records.iter().map(|record| record.frame.meta.id).collect();
        self.gone.extend(self.published.range(oldest..).map(|(id, _)| *id).filter(|id| !back.contains(id)));
        Ok(())
    }

    /// Notes what the disk holds when a life ends. What is older is gone.
    fn note_held(&mut self) {
        self.held = self.read_disk();
        if let Some((oldest, _)) = self.held.first() {
            self.gone.extend(self.published.range(..*oldest).map(|(id, _)| *id));
        }
    }

    /// The frames on the disk as it stands, and their sizes, oldest first.
    fn read_disk(&mut self) -> Vec<(FrameId, u64)> {
        let oldest = self.disk.bounds.unwrap_or_default().oldest;
        let mut held = Vec::new();
        let mut limits: Vec<(SegmentNumber, u64)> = Vec::new();
        for (segment, bytes) in self.disk.list().unwrap_or_default() {
            if let Ok(scan) = SegmentScan::open(&mut self.disk, &self.camera, &self.keys, segment, bytes) {
                limits.push((segment, scan.index()));
            }
        }
        for (segment, bytes) in self.disk.list().unwrap_or_default() {
            let scan = SegmentScan::open(&mut self.disk, &self.camera, &self.keys, segment, bytes);
            let Ok(mut scan) = scan else { continue };
            let limit = limits.iter().filter(|(other, _)| *other > segment).map(|(_, first)| *first).min();
            while let Some(scanned) = scan.next(&mut self.disk, true) {
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

    /// I11, and the rule of nonces: nothing readable, and no key and nonce for two things.
    fn look_at_disk(&mut self) -> Result<(), String> {
        for segment in self.disk.segments() {
            let bytes = self.disk.bytes(segment).cloned().unwrap_or_default();
            if memchr::memmem::find(&bytes, MARK).is_some() {
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
