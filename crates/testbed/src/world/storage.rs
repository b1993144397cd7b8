//! Keeps logs on disk under the brokers of a world: with the real writer and the real recovery, on a disk that tears, fails, fills up and is slow.
//!
//! After a kill, everything handed to the disk is left. After a power cut, everything synced is left, and any part of the rest. At the next start,
//! the recovered records are compared with all promises (rule `recovery`), and the bytes on the disk are searched for pixels (rule `sealed`).

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::{Cursor, LogReader};
use mez_core::name::CameraName;
use mez_core::store::{
    KEY_BYTES, KeyRing, MasterKey, Recovery, RecoveryConfig, Resume, StoreConfig, StoreReader, StoreWriter,
    recover,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::events::Event;
use super::node::Owner;
use super::spec::DiskSpec;
use super::stage::Stage;
use crate::check::Ledger;
use crate::disk::{DiskBug, Faults, SimulatedDisk};
use crate::random::Random;
use crate::time::{HostClock, Moment, ms};

/// How long a recovery may take by the host's clock, which does not advance meanwhile.
const RECOVERY_TIME_MAX: Duration = Duration::from_secs(1);
/// How many bytes of a payload are searched for on the disk, unencrypted.
const LOOKED_FOR_BYTES: usize = 32;
/// One payload in this many is searched for.
const LOOKED_FOR_ONCE_IN: u64 = 4;
/// The most payloads of each run that are searched for: the newest ones.
const LOOKED_FOR_MAX: usize = 16;
/// The pause of a writer that wants to continue at once. Without it, a moment of the world might never end.
const AT_ONCE: Duration = Duration::from_micros(10);
/// How long the log of a frozen host waits before it tries again.
const FROZEN_LOOK: Duration = ms(40);

/// One camera's log on one host's disk, over all runs of its broker.
pub(super) struct KeptLog {
    camera: CameraName,
    spec: DiskSpec,
    keys: KeyRing,
    random: Random,
    ledger: Ledger,
    state: State,
    reader: StoreReader,
    faults: Faults,
    same_salt: bool,
    /// When the writer runs next.
    armed: Moment,
    /// The first bytes of some payloads of this run.
    plain: VecDeque<Bytes>,
}

enum State {
    /// No process writes.
    AtRest(Box<SimulatedDisk>),
    Written(Box<StoreWriter<SimulatedDisk>>),
    /// During a change of state.
    Nowhere,
}

impl KeptLog {
    pub(super) fn new(camera: &CameraName, spec: DiskSpec, mut random: Random, bug: Option<DiskBug>) -> Self {
        let keys = KeyRing::new(vec![MasterKey::new([42; KEY_BYTES])]).expect("one key is enough");
        let mut disk = SimulatedDisk::seeded(random.next_u64());
        if let Some(bug) = bug {
            disk.plant(bug, keys.clone());
        }
        Self {
            camera: camera.clone(),
            spec,
            ledger: Ledger::new(camera.clone(), keys.clone()),
            reader: StoreReader::new(camera.clone(), keys.clone()),
            keys,
            random,
            state: State::AtRest(Box::new(disk)),
            faults: Faults::default(),
            same_salt: bug == Some(DiskBug::SameSalt),
            armed: Moment::NEVER,
            plain: VecDeque::new(),
        }
    }

    fn disk(&mut self) -> Option<&mut SimulatedDisk> {
        match &mut self.state {
            State::AtRest(disk) => Some(disk),
            State::Written(writer) => Some(writer.storage()),
            State::Nowhere => None,
        }
    }

    pub(super) fn is_written(&self) -> bool {
        matches!(self.state, State::Written(_))
    }

    /// Sets the faults of the disk.
    pub(super) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
        if let Some(disk) = self.disk() {
            disk.set_faults(faults);
        }
    }

    /// Recovers the log at a broker's start, up to the bytes that memory has room for.
    pub(super) fn recover(&mut self, now: Instant, bytes_max: u64) -> Result<Recovery, String> {
        let State::AtRest(disk) = &mut self.state else {
            return Err("a log is read that is being written".into());
        };
        let config =
            RecoveryConfig { camera: &self.camera, keys: &self.keys, bytes_max, time_max: RECOVERY_TIME_MAX };
        // A disk fault would fail the start of a real broker, so the recovery runs without faults.
        disk.set_faults(Faults::default());
        let recovery = recover(&mut **disk, config, || now).map_err(|error| error.to_string())?;
        disk.set_faults(self.faults);
        self.ledger.recovered(&recovery, bytes_max)?;
        Ok(recovery)
    }

    /// Begins to write the records from `cursor` on.
    pub(super) fn write(
        &mut self,
        resume: Resume,
        cursor: Cursor,
        (epoch, anchor): (Epoch, ClockAnchor),
        (now, wall): (Instant, Timestamp),
    ) {
        let State::AtRest(disk) = std::mem::replace(&mut self.state, State::Nowhere) else { return };
        let DiskSpec { durability, disk_bytes_max, segment_bytes } = self.spec;
        let config = StoreConfig {
            durability,
            segment_bytes,
            ..StoreConfig::new(self.camera.clone(), self.keys.clone(), disk_bytes_max)
        };
        let mut writer = StoreWriter::new(*disk, config, resume, cursor, now, wall);
        writer.set_start(epoch, anchor);
        self.state = State::Written(Box::new(writer));
        self.plain.clear();
    }

    /// Tells the writer the anchor of the start to which frames of this epoch belong.
    pub(super) fn set_start(&mut self, epoch: Epoch, anchor: ClockAnchor) {
        if let State::Written(writer) = &mut self.state {
            writer.set_start(epoch, anchor);
        }
    }

    /// Notes that a frame entered the log in memory, and wakes the writer.
    pub(super) fn handle_entered(
        &mut self,
        (id, payload): (FrameId, &Bytes),
        clock: HostClock,
        of: (Owner, u64),
        stage: &mut Stage<'_>,
    ) {
        self.enter(id, payload);
        if let Some(due) = self.wake(clock.monotonic(stage.now)) {
            self.arm(clock.moment_of(due), of, stage);
        }
    }

    fn enter(&mut self, id: FrameId, payload: &Bytes) {
        self.ledger.published(id);
        if id.sequence.0.is_multiple_of(LOOKED_FOR_ONCE_IN) && payload.len() >= LOOKED_FOR_BYTES {
            // The bytes are copied, because a slice would keep the whole payload in the log's account.
            self.plain.push_back(Bytes::copy_from_slice(&payload[..LOOKED_FOR_BYTES]));
            if self.plain.len() > LOOKED_FOR_MAX {
                self.plain.pop_front();
            }
        }
    }

    /// When the writer, woken now, wants to run.
    fn wake(&mut self, now: Instant) -> Option<Instant> {
        let State::Written(writer) = &mut self.state else { return None };
        Some(writer.wake(now))
    }

    fn step(&mut self, now: Instant, wall: Timestamp) -> Option<Instant> {
        let State::Written(writer) = &mut self.state else { return None };
        let (random, same) = (&mut self.random, self.same_salt);
        let mut salt = || {
            let mut bytes = [7; 32];
            if !same {
                bytes.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next_u64().to_le_bytes()));
            }
            bytes
        };
        let due = writer.step(now, wall, &mut salt);
        self.ledger.acknowledged(writer.status().durable);
        Some(due)
    }

    /// Runs the writer, unless it was planned for another moment since. The writer does nothing while its host is `frozen`.
    pub(super) fn handle_due(
        &mut self,
        clock: HostClock,
        frozen: bool,
        of: (Owner, u64),
        stage: &mut Stage<'_>,
    ) {
        let now = stage.now;
        if self.armed != now {
            return;
        }
        self.armed = Moment::NEVER;
        if frozen {
            return self.arm(now + FROZEN_LOOK, of, stage);
        }
        let Some(due) = self.step(clock.monotonic(now), clock.wall(now)) else { return };
        // A writer that wants to continue at once waits a little, so that every moment ends.
        self.arm(clock.moment_of(due).max(now + AT_ONCE), of, stage);
    }

    /// Plans a run of the writer, unless an earlier one is planned.
    pub(super) fn arm(&mut self, due: Moment, (owner, run): (Owner, u64), stage: &mut Stage<'_>) {
        let due = due.max(stage.now);
        if due < self.armed {
            self.armed = due;
            stage.events.push(due, Event::Store { owner, run });
        }
    }

    /// Ends a run whose broker was killed.
    pub(super) fn end(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.state, State::Nowhere) {
            State::Written(writer) => {
                let mut disk = writer.into_storage();
                // The killed process does not learn the result of its last sync.
                disk.forget_sync();
                self.ledger.ended(&mut disk);
                let plain: Vec<&[u8]> = self.plain.iter().map(Bytes::as_ref).collect();
                let looked = self.ledger.look_at(&mut disk, &plain);
                self.reader = StoreReader::new(self.camera.clone(), self.keys.clone());
                self.state = State::AtRest(Box::new(disk));
                self.armed = Moment::NEVER;
                looked
            }
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Cuts the power while no process writes.
    pub(super) fn cut_power(&mut self) {
        if let State::AtRest(disk) = &mut self.state {
            disk.cut_power();
        }
    }

    /// What the log on disk holds of the past.
    pub(super) fn find(&mut self, query: &PastQuery) -> PastAnswer {
        let Self { state, reader, .. } = self;
        find(state, reader, query)
    }

    /// Like [`KeptLog::find`], but for a frame that the reading has passed, without moving the reading's place.
    pub(super) fn find_again(&mut self, query: &PastQuery) -> PastAnswer {
        let mut again = StoreReader::new(self.camera.clone(), self.keys.clone());
        find(&mut self.state, &mut again, query)
    }
}

fn find(state: &mut State, reader: &mut StoreReader, query: &PastQuery) -> PastAnswer {
    let State::Written(writer) = state else { return PastAnswer::default() };
    let broken = PastAnswer { broken: true, ..PastAnswer::default() };
    reader.find(writer.storage(), query).unwrap_or(broken)
}

/// What a camera broker holds of its own past, in memory and on disk: the same search as in the real driver.
pub(super) fn past_of(memory: &LogReader, kept: Option<&mut KeptLog>, query: PastQuery) -> PastAnswer {
    let in_memory = query.find_in(memory);
    let oldest = memory.oldest();
    let held_from = query.held_from(oldest.as_ref().map(|oldest| (oldest.id, oldest.captured)));
    let reaches = oldest.is_some_and(|oldest| {
        oldest.captured < query.begin || query.after.is_some_and(|after| oldest.id <= after.next())
    });
    let Some(kept) = kept.filter(|_| !reaches && (!query.newest || in_memory.is_none())) else {
        return PastAnswer { record: in_memory, held_from, ..PastAnswer::default() };
    };
    let before = in_memory.as_ref().map(|record| record.frame.meta.id).or(query.before);
    let on_disk = kept.find(&PastQuery { before, ..query });
    let held_from = held_from.into_iter().chain(on_disk.held_from).min();
    PastAnswer { record: on_disk.record.or(in_memory), held_from, ..on_disk }
}
