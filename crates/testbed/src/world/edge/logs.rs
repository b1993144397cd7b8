//! Keeps an edge's replica logs on its disk.

use mez_core::broker::edge::KeptStream;
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::stills::DECODERS_MAX;
use mez_core::store::Resume;
use mez_core::units::{ClockAnchor, Instant, Timestamp};

use super::EdgeHost;
use super::decoder::DiskStills;
use super::decoding::OnDisk;
use crate::disk::Faults;
use crate::world::node::Owner;
use crate::world::stage::Stage;
use crate::world::storage::KeptLog;

impl EdgeHost {
    /// Restores the logs on disk into a broker that starts, and begins to write them.
    pub(super) fn take_up_logs(&mut self, run: u64, stage: &mut Stage<'_>) {
        let now = self.clock.monotonic(stage.now);
        let bytes_max = self.spec.log_bytes_max / self.kept.len().max(1) as u64;
        let (mut found, mut derived, mut resumes) = (Vec::new(), Vec::new(), Vec::new());
        for (camera, kept) in &mut self.kept {
            let recovered = kept.recover(now, bytes_max);
            let Some(recovery) = stage.checks.recovered(camera, recovered) else { return };
            let Some(newest) = recovery.resume.newest_epoch else { continue };
            // If the anchor of a start is unknown, the camera is asked to begin another epoch.
            let anchor = ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO };
            let start = recovery.start.filter(|(epoch, _)| *epoch >= newest).unwrap_or((newest, anchor));
            let (name, records) = (camera.clone(), recovery.records);
            match self.derived.remembered(camera, stage.bug) {
                Some(deriving) => derived.push(KeptStream { name, deriving, start, records }),
                None => found.push((name, start, records)),
            }
            resumes.push((camera.clone(), recovery.resume));
        }
        let Some(process) = &mut self.process else { return };
        process.broker.restore(found);
        process.broker.restore_derived(derived);
        for (camera, resume) in resumes {
            self.write_log(run, &camera, resume, stage);
        }
    }

    /// Begins to write a camera's log, from the present end of its replica in memory.
    fn write_log(&mut self, run: u64, camera: &CameraName, resume: Resume, stage: &mut Stage<'_>) {
        let clocks = (self.clock.monotonic(stage.now), self.clock.wall(stage.now));
        let Some(process) = &mut self.process else { return };
        let Some((reader, epoch, anchor)) = process.broker.log(camera) else { return };
        let held = reader.held();
        let restored: Vec<Record> = held.clone().filter_map(|place| reader.get(place)).collect();
        process.appended.insert(camera.clone(), held.end);
        stage.checks.restored(run, camera, &restored);
        if let Some(kept) = self.kept.get_mut(camera) {
            kept.write(resume, reader.cursor_at_end(), (epoch, anchor), clocks);
            kept.arm(stage.now, (Owner::Edge(self.index, camera.clone()), run), stage);
        }
    }

    /// A camera has connected: its log is written from now on.
    pub(in crate::world) fn keep_log(&mut self, camera: &CameraName, stage: &mut Stage<'_>) {
        let Some(disk) = self.spec.disk.clone() else { return };
        let Some(process) = &self.process else { return };
        let (run, now) = (process.run, self.clock.monotonic(stage.now));
        let Some((_, epoch, anchor)) = process.broker.log(camera) else { return };
        if let Some(kept) = self.kept.get_mut(camera).filter(|kept| kept.is_written()) {
            return kept.set_start(epoch, anchor);
        }
        if !self.kept.contains_key(camera) {
            let random = stage.random.split();
            self.kept.insert(camera.clone(), KeptLog::new(camera, disk, random, stage.disk_bug));
        }
        let Some(kept) = self.kept.get_mut(camera) else { return };
        let recovered = kept.recover(now, 0);
        let Some(recovery) = stage.checks.recovered(camera, recovered) else { return };
        self.write_log(run, camera, recovery.resume, stage);
    }
    /// Runs the writer of a camera's log, for the process `run`.
    pub(in crate::world) fn handle_store(&mut self, camera: &CameraName, run: u64, stage: &mut Stage<'_>) {
        let frozen = self.is_frozen();
        if self.process.as_ref().is_some_and(|process| process.run == run)
            && let Some(kept) = self.kept.get_mut(camera)
        {
            let owner = Owner::Edge(self.index, camera.clone());
            kept.handle_due(self.clock, frozen, (owner, run), stage);
        }
    }

    /// What the disk holds of a camera's past, as stills. `stills` is the decoder state of an application's reading.
    pub(in crate::world) fn find(
        &mut self,
        (camera, application): (&CameraName, usize),
        query: &PastQuery,
        stills: &mut DiskStills,
        stage: &mut Stage<'_>,
    ) -> PastAnswer {
        let Some((kept, process)) = self.kept.get_mut(camera).zip(self.process.as_ref()) else {
            return PastAnswer::default();
        };
        let of = (process.run, (camera, DECODERS_MAX + application));
        let DiskStills { place, decoder } = stills;
        let Ok(answer) =
            place.find(&mut OnDisk { log: kept, decoder, of, checks: &mut *stage.checks }, query);
        answer
    }

    /// Sets the faults of the disk.
    pub(in crate::world) fn set_disk_faults(&mut self, faults: Faults) {
        self.kept.values_mut().for_each(|kept| kept.set_faults(faults));
    }

    /// Cuts the power of a host without a process: any part of the unsynced data may be left.
    pub(in crate::world) fn cut_power(&mut self) {
        debug_assert!(self.process.is_none(), "a process needs power");
        self.kept.values_mut().for_each(KeptLog::cut_power);
    }
}
