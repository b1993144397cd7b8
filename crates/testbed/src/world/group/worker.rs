//! Models a member of a group: a program that takes records, works on them, says what came of that, and dies now and then.

use std::collections::{BTreeMap, BTreeSet};

use mez_core::frame::FrameId;
use mez_core::group::MemberId;
use mez_core::group::session::Life;
use mez_core::name::CameraName;

use crate::random::Random;
use crate::world::spec::{Mishaps, WorkerSpec};

/// What comes of the work on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The program says that it cannot work on it.
    Fails,
    /// The program says nothing.
    Forgets,
    /// It says twice that it has done it.
    Twice,
    /// It also says that it has done a record of somebody else.
    Others,
    /// It dies before it has done it.
    DiesBefore,
    /// It dies after it has done it, and before it has said so.
    DiesAfter,
    /// Its connection is lost meanwhile.
    Cut,
    /// It leaves in good order.
    Leaves,
}

/// What a worker says of a record.
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
    /// Grows with each life of the program. What was planned in an earlier one does not happen.
    pub(super) program: u64,
    /// Its connection, if it has one.
    pub(super) connection: Option<u64>,
    /// The life of the group that it knows.
    pub(super) knows: Option<Life>,
    /// What it works on, by job.
    pub(super) jobs: BTreeMap<u64, (CameraName, FrameId, Outcome)>,
    pub(super) jobs_begun: u64,
    /// What it has to say once it is connected.
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

    /// The program is gone, with all that it knew. Another one will be a member of its own.
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

    /// The records that it works on, and those that it still has to speak of.
    pub(super) fn holds(&self) -> BTreeSet<(CameraName, FrameId)> {
        let works = self.jobs.values().map(|(camera, frame, _)| (camera.clone(), *frame));
        works.chain(self.unsaid.iter().map(|word| (word.camera.clone(), word.frame))).collect()
    }

    /// How many records it can take now.
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
