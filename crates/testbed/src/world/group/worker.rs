//! Models a member of a group: a program that takes records, works on them, reports the results, and occasionally dies.

use std::collections::{BTreeMap, BTreeSet};

use mez_core::frame::FrameId;
use mez_core::group::MemberId;
use mez_core::group::session::Life;
use mez_core::name::CameraName;

use crate::random::Random;
use crate::world::spec::{Mishaps, WorkerSpec};

/// The result of the work on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The program reports that it cannot process the record.
    Fails,
    /// The program reports nothing.
    Forgets,
    /// The program reports twice that the work is done.
    Twice,
    /// The program also reports that a record of another member is done.
    Others,
    /// The program dies before the work is done.
    DiesBefore,
    /// The program dies after the work is done, and before it has reported the result.
    DiesAfter,
    /// The connection is lost during the work.
    Cut,
    /// The program leaves in an orderly way.
    Leaves,
}

/// A worker's report about a record.
#[derive(Clone, Debug)]
pub(super) struct Word {
    pub(super) camera: CameraName,
    pub(super) frame: FrameId,
    pub(super) failed: bool,
}

/// A worker.
pub(super) struct Worker {
    pub(super) spec: WorkerSpec,
    pub(super) id: MemberId,
    /// Counts the lives of the program. Steps planned in an earlier life are ignored.
    pub(super) program: u64,
    /// The present connection.
    pub(super) connection: Option<u64>,
    /// The life of the group that the program knows.
    pub(super) knows: Option<Life>,
    /// The records in work, by job.
    pub(super) jobs: BTreeMap<u64, (CameraName, FrameId, Outcome)>,
    pub(super) jobs_begun: u64,
    /// Reports to make once the program is connected.
    pub(super) unsaid: Vec<Word>,
}

impl Worker {
    pub(super) fn new(spec: WorkerSpec, id: MemberId) -> Self {
        Self {
            spec,
            id,
            program: 0,
            connection: None,
            knows: None,
            jobs: BTreeMap::new(),
            jobs_begun: 0,
            unsaid: Vec::new(),
        }
    }

    /// The program dies, with all its state. The next program is another member.
    pub(super) fn die(&mut self, next: MemberId) {
        let (spec, program) = (self.spec.clone(), self.program + 1);
        *self = Self { program, jobs_begun: self.jobs_begun, ..Self::new(spec, next) };
    }

    /// Begins to work on a record.
    pub(super) fn take(&mut self, camera: CameraName, frame: FrameId, random: &mut Random) -> u64 {
        let outcome = outcome(self.spec.mishaps, random);
        self.jobs_begun += 1;
        self.jobs.insert(self.jobs_begun, (camera, frame, outcome));
        self.jobs_begun
    }

    /// The records in work, and those with pending reports.
    pub(super) fn holds(&self) -> BTreeSet<(CameraName, FrameId)> {
        let works = self.jobs.values().map(|(camera, frame, _)| (camera.clone(), *frame));
        works.chain(self.unsaid.iter().map(|word| (word.camera.clone(), word.frame))).collect()
    }

    /// How many more records the program can take.
    pub(super) fn free(&self) -> u32 {
        self.spec.at_once.saturating_sub(self.jobs.len() as u32)
    }
}

fn outcome(mishaps: Mishaps, random: &mut Random) -> Outcome {
    let Mishaps { fails, forgets, twice, others, dies_before, dies_after, cut, leaves } = mishaps;
    let all = [
        (fails, Outcome::Fails),
        (forgets, Outcome::Forgets),
        (twice, Outcome::Twice),
        (others, Outcome::Others),
        (dies_before, Outcome::DiesBefore),
        (dies_after, Outcome::DiesAfter),
        (cut, Outcome::Cut),
        (leaves, Outcome::Leaves),
    ];
    let happens = |(once_in, _): &(u64, Outcome)| *once_in > 0 && random.one_in(*once_in);
    all.into_iter().find(happens).map_or(Outcome::Done, |(_, outcome)| outcome)
}
