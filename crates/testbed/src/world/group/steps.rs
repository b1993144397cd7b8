//! Lets the workers of a group join, work, report results, die and return.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use mez_core::frame::FrameId;
use mez_core::group::{Acknowledged, GroupError, MemberId};
use mez_core::name::CameraName;

use super::worker::{Outcome, Word, Worker};
use super::{GroupEvent, GroupHost};
use crate::check::Said;
use crate::time::{ms, secs};
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::events::{Event, WorkerStep};
use crate::world::node::Node;
use crate::world::stage::Stage;

/// How long it takes until an edge learns that a program has died, or that its connection is lost.
const MISSED: RangeInclusive<Duration> = ms(0)..=ms(300);
/// How long a lost connection takes to return.
const BACK: RangeInclusive<Duration> = ms(20)..=ms(2_500);
/// How long a worker waits between attempts to reach an edge that does not run.
const AGAIN: RangeInclusive<Duration> = ms(100)..=ms(300);

impl GroupHost {
    fn plan(&self, worker: usize, after: Duration, step: WorkerStep, stage: &mut Stage<'_>) {
        stage.events.push(stage.now + after, Event::Worker { group: self.index, worker, step });
    }

    fn member(&self, worker: usize) -> MemberId {
        self.workers[worker].id
    }

    /// Whether the edge knows a worker's present connection.
    fn is_heard(&self, worker: usize) -> bool {
        let of = &self.workers[worker];
        of.connection.is_some_and(|connection| self.connected.get(&of.id) == Some(&(worker, connection)))
    }

    // ---- joining ------------------------------------------------------------------------------------------

    /// A worker connects to its edge. Returns whether it is connected.
    pub(in crate::world) fn connect(
        &mut self,
        worker: usize,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) -> bool {
        if edge.process.is_none() {
            let program = self.workers[worker].program;
            let after = self.random.duration(AGAIN);
            self.plan(worker, after, WorkerStep::Joins { program }, stage);
            return false;
        }
        self.take_up(edge, stage);
        self.connections += 1;
        let connection = self.connections;
        self.workers[worker].connection = Some(connection);
        self.connected.insert(self.member(worker), (worker, connection));
        true
    }

    /// A connected worker joins the group, and makes its pending reports.
    pub(in crate::world) fn join(&mut self, worker: usize, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let member = self.member(worker);
        let knew = self.workers[worker].knows;
        let Some(session) = &mut self.session else { return };
        let Ok(joined) = session.join(member, knew) else { return };
        let knew_another = knew.is_some_and(|life| life != joined.life);
        stage.checks.group_joined(self.index, member, (knew_another, joined.place));
        stage.trace.record(stage.now, What::Joined { group: self.index, worker });
        self.workers[worker].knows = Some(joined.life);
        let (holds, nothing) = (self.workers[worker].holds(), BTreeSet::new());
        let forgets = stage.bug == Some(Bug::HeldForgotten);
        session.holds(member, if forgets { &nothing } else { &holds });
        stage.checks.group_holds(self.index, member, &holds);
        self.write_down(edge, stage);
        for word in std::mem::take(&mut self.workers[worker].unsaid) {
            self.say(worker, &word, edge, stage);
        }
        let free = self.workers[worker].free();
        self.is_ready(worker, free, edge, stage);
    }

    /// A worker can take this many more records.
    fn is_ready(&mut self, worker: usize, records: u32, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let member = self.member(worker);
        if let Some(session) = self.session.as_mut().filter(|_| records > 0) {
            // A member that was away for too long has to join again.
            if let Err(GroupError::NoMember(_)) = session.ready(member, records) {
                stage.checks.fail("answers", format!("{member:?} is connected, and no member"));
            }
        }
        self.write_down(edge, stage);
        stage.touch(Node::Group(self.index));
    }

    // ---- working ------------------------------------------------------------------------------------------

    /// A worker begins to work on a record.
    pub(super) fn begin_work(
        &mut self,
        worker: usize,
        camera: CameraName,
        frame: FrameId,
        stage: &mut Stage<'_>,
    ) {
        let job = self.workers[worker].take(camera, frame, &mut self.random);
        let (program, works) = (self.workers[worker].program, self.workers[worker].spec.works.clone());
        let after = self.random.duration(works).max(ms(1));
        self.plan(worker, after, WorkerStep::Worked { program, job }, stage);
        let is_cut = self.workers[worker].jobs.get(&job).is_some_and(|(.., how)| *how == Outcome::Cut);
        if is_cut && self.is_heard(worker) {
            self.lose_connection(worker, BACK, stage);
        }
    }

    /// A worker has finished a job.
    pub(in crate::world) fn handle_worked(
        &mut self,
        worker: usize,
        (program, job): (u64, u64),
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        if self.workers[worker].program != program {
            return;
        }
        let Some((camera, frame, outcome)) = self.workers[worker].jobs.remove(&job) else { return };
        let has_worked = !matches!(outcome, Outcome::Fails | Outcome::DiesBefore | Outcome::Leaves);
        if has_worked {
            stage.trace.record(stage.now, What::Worked { group: self.index, worker, frame });
            self.events.push(GroupEvent::Worked { worker, camera: camera.clone(), frame });
        }
        let word = Word { camera, frame, failed: outcome == Outcome::Fails };
        match outcome {
            Outcome::DiesBefore | Outcome::DiesAfter => return self.die(worker, stage),
            Outcome::Leaves => return self.leave(worker, edge, stage),
            Outcome::Forgets => {}
            Outcome::Done | Outcome::Fails | Outcome::Cut => self.tell(worker, word, edge, stage),
            Outcome::Twice => {
                self.tell(worker, word.clone(), edge, stage);
                self.tell(worker, word, edge, stage);
            }
            Outcome::Others => {
                let place = self.session.as_ref().map(|session| session.group().place());
                let of_others = place.into_iter().flat_map(mez_core::group::Place::open);
                let other = of_others.map(|(camera, frame)| (camera.clone(), frame)).last();
                self.tell(worker, word, edge, stage);
                if let Some((camera, frame)) = other {
                    self.tell(worker, Word { camera, frame, failed: false }, edge, stage);
                }
            }
        }
        if self.is_heard(worker) {
            self.is_ready(worker, 1, edge, stage);
        }
    }

    /// A worker reports a result now, or once it is connected.
    fn tell(&mut self, worker: usize, word: Word, edge: &EdgeHost, stage: &mut Stage<'_>) {
        match self.is_heard(worker) {
            true => self.say(worker, &word, edge, stage),
            false => self.workers[worker].unsaid.push(word),
        }
    }

    /// A worker reports the result of a record.
    fn say(&mut self, worker: usize, word: &Word, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let member = self.member(worker);
        let Word { camera, frame, failed } = word;
        let Some(session) = &mut self.session else { return };
        self.told += 1;
        let last = session.group().place().holders(camera, *frame).last().copied();
        let as_who = if stage.bug == Some(Bug::OthersBelieved) { last.unwrap_or(member) } else { member };
        let forgets = stage.bug == Some(Bug::DoneForgotten) && self.told.is_multiple_of(10);
        let answer = match (forgets, failed) {
            (true, _) => Ok(Acknowledged::Settled),
            (_, true) => session.failed(as_who, camera, *frame, "it cannot be worked on"),
            (_, false) => session.done(as_who, camera, *frame),
        };
        let said = if *failed { Said::Failed } else { Said::Done };
        stage.checks.group_said(self.index, member, (camera, *frame), said, answer.as_ref().ok().copied());
        let (failed, counts) = (*failed, answer == Ok(Acknowledged::Settled));
        stage
            .trace
            .record(stage.now, What::Said { group: self.index, worker, frame: *frame, failed, counts });
        self.write_down(edge, stage);
        stage.touch(Node::Group(self.index));
    }

    // ---- leaving ------------------------------------------------------------------------------------------

    /// A worker's connection is lost. It returns by itself.
    pub(super) fn lose_connection(
        &mut self,
        worker: usize,
        back: RangeInclusive<Duration>,
        stage: &mut Stage<'_>,
    ) {
        let Some(connection) = self.workers[worker].connection.take() else { return };
        stage.trace.record(stage.now, What::Missed { group: self.index, worker });
        let program = self.workers[worker].program;
        let (missed, back) = (self.random.duration(MISSED), self.random.duration(back));
        self.plan(worker, missed, WorkerStep::Missed { connection }, stage);
        self.plan(worker, back, WorkerStep::Joins { program }, stage);
    }

    /// A worker's program dies. It is started again a little later.
    fn die(&mut self, worker: usize, stage: &mut Stage<'_>) {
        stage.trace.record(stage.now, What::Missed { group: self.index, worker });
        if let Some(connection) = self.workers[worker].connection {
            let missed = self.random.duration(MISSED);
            self.plan(worker, missed, WorkerStep::Missed { connection }, stage);
        }
        self.begin_anew(worker, stage);
    }

    fn begin_anew(&mut self, worker: usize, stage: &mut Stage<'_>) {
        let next = MemberId(self.draw());
        self.workers[worker].die(next);
        let program = self.workers[worker].program;
        let back = self.random.duration(ms(50)..=secs(1));
        self.plan(worker, back, WorkerStep::Joins { program }, stage);
    }

    /// A worker leaves in an orderly way, with unfinished records.
    fn leave(&mut self, worker: usize, edge: &EdgeHost, stage: &mut Stage<'_>) {
        if !self.is_heard(worker) {
            return self.die(worker, stage);
        }
        let member = self.member(worker);
        self.connected.remove(&member);
        stage.trace.record(stage.now, What::Missed { group: self.index, worker });
        stage.checks.group_left(self.index, member);
        if let Some(session) = &mut self.session {
            session.leave(member);
        }
        self.write_down(edge, stage);
        self.begin_anew(worker, stage);
        stage.touch(Node::Group(self.index));
    }

    /// The edge learns that a connection is lost.
    pub(in crate::world) fn handle_missed(
        &mut self,
        connection: u64,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let of_it = self.connected.iter().find(|(_, (_, known))| *known == connection);
        let Some((member, _)) = of_it.map(|(member, of)| (*member, *of)) else { return };
        self.connected.remove(&member);
        stage.checks.group_away(self.index, member);
        let now = edge.clock.monotonic(stage.now);
        if let Some(session) = self.session.as_mut().filter(|_| stage.bug != Some(Bug::MissedMemberKept)) {
            session.away(now, member);
        }
        stage.touch(Node::Group(self.index));
    }

    /// Whether a worker may join: its program is the one for which the step was planned, and has no connection.
    pub(in crate::world) fn may_join(&self, worker: usize, program: u64) -> bool {
        let Worker { program: runs, connection, .. } = &self.workers[worker];
        *runs == program && connection.is_none()
    }
}
