//! Runs a camera's log through several lives. Frames are published, the disk has faults, the broker is killed, the power is cut. After every start,
//! the recovered frames are compared with all published frames.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{Intake, IntakeConfig, PublishPartError, Published, StreamPart};
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, Epoch, FrameId};
use mez_core::log::{LogConfig, LogReader, Record, log};
use mez_core::name::CameraName;
use mez_core::store::{
    BATCH_INTERVAL, Durability, KEY_BYTES, KeyRing, MasterKey, RecordStanding, Recovery, RecoveryConfig,
    StorageError, StoreConfig, StoreWriter, VerifyConfig, recover, verify,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::chains::Chains;
use super::{DiskBug, Faults, SimulatedDisk};
use crate::check::Ledger;
use crate::random::Random;

/// A text in every payload, which must never be on the disk.
const MARK: &[u8] = b"pixels in the clear";
const FRAME_INTERVAL: Duration = Duration::from_millis(33);

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerCut,
    Killed,
    Stopped,
}

/// Counts of the events of a story.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Power cuts.
    pub power_cuts: u64,
    /// Frames published.
    pub frames: u64,
    /// Recovered records, over all starts.
    pub recovered: u64,
    /// Damaged pieces that were found, and not served to readers.
    pub damaged: u64,
    /// Frames whose publishers were told that they are on disk.
    pub confirmed: u64,
    /// Frames that were evicted from memory before they were on disk.
    pub lost: u64,
    /// How often bytes rotted.
    pub rotted: u64,
    /// Readable frames that refer to a lost one, over all starts.
    pub not_decoded: u64,
}

/// A story, determined by its seed.
pub struct DiskStory {
    seed: u64,
    random: Random,
    camera: CameraName,
    keys: KeyRing,
    disk: SimulatedDisk,
    bug: Option<DiskBug>,
    /// Decides which bytes rot between two lives. `None`: none.
    rot: Option<Random>,
    /// Draws the pictures of a source's own video. `None`: frames are stills.
    film: Option<Random>,
    chains: Chains,
    /// Draws the frames whose publishers wait until they are on disk. `None`: no publisher waits.
    waits: Option<Random>,
    /// Frames whose publishers wait.
    awaited: Vec<FrameId>,
    durability: Durability,
    disk_bytes_max: u64,
    memory_bytes_max: u64,
    recovery_bytes_max: u64,
    now: Instant,
    epoch: u64,
    played: Played,
    /// All frames that were ever published.
    published: BTreeMap<FrameId, Bytes>,
    ledger: Ledger,
}

impl DiskStory {
    /// A story of eight lives.
    pub fn seeded(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let memory_bytes_max = random.within(20_000..=100_000);
        let camera: CameraName = "dock/cam1".parse().expect("a good name");
        let keys = KeyRing::new(vec![MasterKey::new([42; KEY_BYTES])]).expect("one key is enough");
        Self {
            seed,
            disk: SimulatedDisk::seeded(random.next_u64()),
            ledger: Ledger::new(camera.clone(), keys.clone()),
            camera,
            keys,
            bug: None,
            rot: None,
            film: None,
            chains: Chains::default(),
            // These draws have their own random numbers, so that the rest of a story does not depend on them.
            waits: seed.is_multiple_of(2).then(|| Random::seeded(seed ^ 0x0000_d15c)),
            awaited: Vec::new(),
            durability: *random.pick(&[Durability::Group, Durability::Sync, Durability::Async]),
            disk_bytes_max: random.within(20_000..=200_000),
            memory_bytes_max,
            recovery_bytes_max: *random.pick(&[memory_bytes_max / 2, u64::MAX]),
            now: Instant::from_nanos(1_000_000_000),
            epoch: 0,
            played: Played::default(),
            published: BTreeMap::new(),
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

    /// Lets bytes of the disk rot between two lives.
    #[must_use]
    pub fn rotting(mut self) -> Self {
        // Rot has its own random numbers, so that the rest of the story is the same as without rot.
        self.rot = Some(Random::seeded(self.seed ^ 0x0000_7201));
        self
    }

    /// Makes frames pictures of a source's own video, with data records between them.
    #[must_use]
    pub fn filming(mut self) -> Self {
        self.film = Some(Random::seeded(self.seed ^ 0x0000_f113));
        self
    }

    /// Plays the story to its end, or to the first broken promise, which is the error.
    pub fn play(mut self) -> Result<Played, String> {
        for _ in 0..8 {
            let end =
                *self.random.pick(&[End::PowerCut, End::PowerCut, End::PowerCut, End::Killed, End::Stopped]);
            let result = self.live(end).and_then(|()| self.ledger.look_at(&mut self.disk, &[MARK]));
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
            self.publish(&mut intake, &reader)?;
            due = due.min(writer.wake(self.now));
            self.now += self.random.duration(Duration::ZERO..=FRAME_INTERVAL * 2);
            // The writer's thread is sometimes late.
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
        self.ledger.acknowledged(writer.status().durable);
        self.disk = writer.into_storage();
        self.disk.set_faults(Faults::default());
        self.disk.syncing = None;
        if end == End::Killed {
            self.disk.kill();
        }
        self.ledger.ended(&mut self.disk);
        self.ledger.check_confirmed()?;
        self.awaited.clear();
        if end == End::PowerCut {
            self.cut_power();
        }
        if let Some(rot) = &mut self.rot
            && rot.one_in(2)
        {
            self.disk.rot(rot);
            self.ledger.rotted(&mut self.disk);
            self.played.rotted += 1;
        }
        Ok(())
    }

    fn cut_power(&mut self) {
        self.played.power_cuts += 1;
        if self.durability == Durability::Async {
            self.ledger.nothing_is_promised();
        }
        self.disk.cut_power();
    }

    fn step(&mut self, writer: &mut StoreWriter<SimulatedDisk>, at: Instant) -> Instant {
        // Before the step: a writer killed during its last append has told no publisher about that append.
        self.answer(writer);
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

    /// Tells waiting publishers the fate of their frames.
    fn answer(&mut self, writer: &mut StoreWriter<SimulatedDisk>) {
        let is_early = self.bug == Some(DiskBug::EarlyAnswer);
        for frame in std::mem::take(&mut self.awaited) {
            match writer.standing(frame) {
                RecordStanding::Waiting if is_early && writer.status().written >= Some(frame) => {
                    self.ledger.confirmed(frame);
                }
                RecordStanding::Waiting => self.awaited.push(frame),
                RecordStanding::Certain => {
                    self.played.confirmed += 1;
                    if self.durability == Durability::Async {
                        writer.storage().append_has_returned();
                    }
                    self.ledger.confirmed(frame);
                }
                RecordStanding::Missing => {}
            }
        }
        writer.set_awaited(!self.awaited.is_empty());
    }

    fn publish(&mut self, intake: &mut Intake, log: &LogReader) -> Result<(), String> {
        let number = self.played.frames;
        let bytes = self.random.within(40..=3_000) as usize;
        let mut payload = [MARK, &number.to_le_bytes()].concat();
        payload.resize(bytes.max(payload.len()), number as u8);
        let payload = Bytes::from(payload);
        let encoding = if self.film.is_some() { Encoding::H264 } else { Encoding::Jpeg };
        let frame = Published { payload, encoding, width: 4, height: 3, captured: None };
        let payload = match &mut self.film {
            Some(film) => film_frame(film, intake, self.now, frame),
            None => {
                let payload = frame.payload.clone();
                intake.publish(self.now, frame).map(|id| (id, payload)).map_err(|error| error.to_string())
            }
        };
        let (id, payload) = payload.map_err(|error| format!("publishing failed: {error}"))?;
        let newest = log.newest().ok_or("a frame was published, and the log is empty")?;
        self.chains.published(&newest.frame.meta);
        self.published.insert(id, payload);
        self.ledger.published(id);
        if self.waits.as_mut().is_some_and(|waits| waits.one_in(3)) {
            self.awaited.push(id);
        }
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

    /// Recovers the log, and compares the result with what was promised.
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
        self.check_content(&recovery.records)?;
        self.ledger.recovered(&recovery, self.recovery_bytes_max)?;
        self.check_verified(&recovery)?;
        self.check_chains(&recovery)?;
        Ok(recovery)
    }

    /// A damaged record costs the rest of its chain, and nothing else.
    fn check_chains(&mut self, recovery: &Recovery) -> Result<(), String> {
        let Some(film) = &mut self.film else { return Ok(()) };
        let published: Vec<FrameId> = self.published.keys().copied().collect();
        let places: Vec<FrameId> =
            if published.is_empty() { Vec::new() } else { (0..4).map(|_| *film.pick(&published)).collect() };
        let of = (&self.camera, &self.keys);
        self.played.not_decoded += self.chains.check_stills(&mut self.disk, of, &places)?;
        self.chains.check_restored(&self.camera, &recovery.records)
    }

    /// A check of the whole log must agree with a start that has read all of it. Neither may report damage without a reason.
    fn check_verified(&mut self, recovery: &Recovery) -> Result<(), String> {
        let config = VerifyConfig { camera: &self.camera, keys: &self.keys, payloads: true };
        let verified = verify(&mut self.disk, config, |_, _| Ok::<_, StorageError>(()));
        let verified = verified.map_err(|error| error.to_string())?;
        let report = &recovery.report;
        if self.played.power_cuts + self.played.rotted == 0 && !verified.is_whole() {
            return Err(format!("a log that nobody touched is called damaged: {verified:?}"));
        }
        let read_all = report.segments_unread == 0 && self.recovery_bytes_max == u64::MAX;
        if read_all && report.records_lost() != verified.records_lost && !verified.more_may_be_lost {
            return Err(format!("a start counts another loss than verify: {report:?}, {verified:?}"));
        }
        Ok(())
    }

    /// Guarantee I1: payloads are unchanged.
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
}

/// Publishes a picture of a source's own video, or a data record between two of them.
fn film_frame(
    film: &mut Random,
    intake: &mut Intake,
    now: Instant,
    frame: Published,
) -> Result<(FrameId, Bytes), String> {
    let part = match film.within(0..=19) {
        0 | 1 => StreamPart::Key,
        2..=4 => StreamPart::Following { is_needed: false },
        5 => {
            let content_type = "application/octet-stream".parse().expect("a content type");
            let record = Published::data(&DataRecord { content_type, of: None, body: frame.payload }, None);
            let payload = record.payload.clone();
            let id = intake.publish(now, record).map_err(|error| error.to_string())?;
            return Ok((id, payload));
        }
        _ => StreamPart::Following { is_needed: true },
    };
    let payload = frame.payload.clone();
    let id = match intake.publish_part(now, frame.clone(), part) {
        // A stream begins with a key frame.
        Err(PublishPartError::NoKeyFrame) => intake.publish_part(now, frame, StreamPart::Key),
        published => published,
    };
    Ok((id.map_err(|error| error.to_string())?, payload))
}
