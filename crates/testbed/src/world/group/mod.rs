//! Models groups of workers that share records, served as by an edge.
//!
//! The group is that of core, so that worlds test what users run. A [`GroupHost`] owns the group, its journal and its workers.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | serves the group: opens and closes it, finds records, gives them to workers |
//! | `steps.rs` | lets workers join, work, report, die and return |
//! | `worker.rs` | models one worker |
//! | `journal.rs` | keeps the group's place on the edge's disk |

mod journal;
mod steps;
mod worker;

use std::collections::BTreeMap;

use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::FrameId;
use mez_core::group::session::{For, GivenRecord, GroupOutput, GroupQuestion, GroupSession, Life};
use mez_core::group::{Account, Change, End, GroupOptions, MemberId};
use mez_core::history::PastAnswer;
use mez_core::log::LogReader;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::session::AtEdge;
use mez_core::subscription::{Deliver, SubscriptionSpec};
use mez_core::units::{ClockAnchor, Instant};

use self::journal::Journal;
use self::worker::Worker;
use super::application::Access;
use super::bug::Bug;
use super::edge::{DiskStills, EdgeHost};
use super::events::{Event, StillMade, WorkerStep};
use super::node::{Node, Reader};
use super::spec::GroupSpec;
use super::stage::Stage;
use crate::check::{Checks, GroupSeen, Reading};
use crate::random::Random;
use crate::time::{Moment, ms};
use crate::trace::What;

/// Groups' decoders of frames on disk are numbered from here on. Applications' decoders have smaller numbers.
const DISK_DECODERS: usize = 10_000;
/// If one of this many last records needs others, the next record that is given may be a still that takes a while to make.
const RECENT: u64 = 32;

/// An event of a group's records, for stories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// A worker was given a record.
    Given {
        /// When the worker was given the record.
        at: Moment,
        /// The worker's index.
        worker: usize,
        /// The camera of the record.
        camera: CameraName,
        /// The record.
        frame: FrameId,
        /// The number of the try, from 1.
        attempt: usize,
    },
    /// A worker has done the work, whether or not the edge learns of it.
    Worked {
        /// The worker's index.
        worker: usize,
        /// The camera of the record.
        camera: CameraName,
        /// The record.
        frame: FrameId,
    },
    /// A record has ended.
    Ended {
        /// The camera of the record.
        camera: CameraName,
        /// The record.
        frame: FrameId,
        /// How it ended.
        end: End,
    },
    /// Workers were told that no new records come (true), or that they come again (false).
    HeldBack(bool),
}

pub(super) struct GroupHost {
    /// The group's index.
    index: usize,
    pub(super) spec: GroupSpec,
    pattern: CameraPattern,
    /// What the group's principal was granted.
    pub(super) access: Access,
    /// The group in the edge's process.
    session: Option<GroupSession>,
    /// The edge's process that serves the group.
    run: u64,
    /// When the group began to read.
    opened: Moment,
    journal: Journal,
    workers: Vec<Worker>,
    /// The worker and the connection of each member, as far as the edge knows.
    connected: BTreeMap<MemberId, (usize, u64)>,
    connections: u64,
    /// The last number given to a member or to a life of the group.
    drawn: u128,
    disk_stills: BTreeMap<CameraName, DiskStills>,
    random: Random,
    /// When the timer is due.
    armed: Option<Moment>,
    told: u64,
    pub(super) events: Vec<GroupEvent>,
}

impl GroupHost {
    /// A group whose workers join now.
    pub(super) fn new(index: usize, spec: GroupSpec, access: Access, stage: &mut Stage<'_>) -> Self {
        let pattern = spec.cameras.parse().expect("scenarios give groups valid patterns");
        let mut drawn = 0;
        let mut workers = Vec::new();
        for (worker, of) in spec.workers.iter().enumerate() {
            drawn += 1;
            workers.push(Worker::new(of.clone(), MemberId(drawn)));
            let step = WorkerStep::Joins { program: 0 };
            stage.events.push(stage.now, Event::Worker { group: index, worker, step });
        }
        Self {
            index,
            spec,
            pattern,
            access,
            session: None,
            run: 0,
            opened: Moment::START,
            journal: Journal::default(),
            workers,
            connected: BTreeMap::new(),
            connections: 0,
            drawn,
            disk_stills: BTreeMap::new(),
            random: stage.random.split(),
            armed: None,
            told: 0,
            events: Vec::new(),
        }
    }

    fn draw(&mut self) -> u128 {
        self.drawn += 1;
        self.drawn
    }

    // ---- state --------------------------------------------------------------------------------------------

    /// The subscription, while the group is open.
    pub(super) fn subscription(&self) -> Option<SubscriptionId> {
        self.session.as_ref().and_then(GroupSession::subscription)
    }

    /// Whether the group reads a camera at an edge.
    pub(super) fn reads(&self, edge: usize, camera: &CameraName) -> bool {
        let spec = self.session.as_ref().and_then(GroupSession::spec);
        self.spec.edge.0 == edge && spec.is_some_and(|spec| spec.selects(camera))
    }

    /// The account of the group's records since its edge started.
    pub(super) fn account(&self) -> Option<&Account> {
        self.session.as_ref().map(|session| session.group().account())
    }

    /// Shows the rules the group's account, and the records that wait for a member.
    pub(super) fn watch(&self, edge: &EdgeHost, checks: &mut Checks) {
        let Some(session) = &self.session else { return };
        let is_free = self.workers.iter().any(|worker| {
            let is_known = self.connected.get(&worker.id).map(|(_, connection)| *connection);
            worker.connection.is_some() && worker.connection == is_known && worker.free() > 0
        });
        let is_open = session.subscription().is_some();
        let seen = GroupSeen {
            account: session.group().account(),
            open: session.group().place().open_count(),
            is_free: is_free && is_open && !edge.is_frozen(),
            newest: self.newest(edge),
        };
        checks.watch_group(self.index, &seen);
    }

    /// The newest record of each camera, and when it arrived, if the group waits for fresh records.
    fn newest(&self, edge: &EdgeHost) -> Vec<(CameraName, FrameId, Moment)> {
        let process = edge.process.as_ref().filter(|process| process.run == self.run);
        let spec = self.session.as_ref().and_then(GroupSession::spec).filter(|_| self.spec.options.fresh);
        let (Some(process), Some(spec)) = (process, spec) else { return Vec::new() };
        let of_group = process.logs.iter().filter(|(camera, _)| spec.selects(camera));
        let newest = of_group.filter_map(|(camera, log)| {
            let record = log.newest()?;
            let meta = &record.frame.meta;
            let arrived = edge.clock.moment_of(record.arrived);
            // A still of an earlier record may have been chosen, and not be made yet.
            let held = log.held();
            let last = held.end.saturating_sub(RECENT).max(held.start)..held.end;
            let is_chained =
                |index| log.get(index).is_some_and(|record| record.frame.meta.encoding.is_chained());
            let is_given_so = !last.into_iter().any(is_chained) && !record.is_overtaken();
            (is_given_so && arrived > self.opened).then(|| (camera.clone(), meta.id, arrived))
        });
        newest.collect()
    }

    // ---- the edge's process -------------------------------------------------------------------------------

    /// The edge's process has ended, and all connections to it.
    pub(super) fn lose_edge(&mut self, stage: &mut Stage<'_>) {
        self.session = None;
        self.connected.clear();
        self.disk_stills.clear();
        self.armed = None;
        for worker in 0..self.workers.len() {
            self.lose_connection(worker, ms(1)..=ms(200), stage);
        }
    }

    /// The edge has lost its power.
    pub(super) fn cut_power(&mut self, stage: &mut Stage<'_>) {
        self.journal.cut_power(stage.now, &mut self.random);
        stage.checks.group_unplugged(self.index);
    }

    /// Creates the group in the edge's process, with its place on disk.
    fn take_up(&mut self, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let (Some(process), None) = (&edge.process, &self.session) else { return };
        let now = edge.clock.monotonic(stage.now);
        let life = Life(self.draw());
        let options = self.options(stage.bug);
        let on_disk = edge.spec.disk.is_some();
        let keeps = on_disk && options.keeps_place();
        let (kept, cut) = (keeps && self.journal.exists, std::mem::take(&mut self.journal.cut));
        if stage.bug == Some(Bug::PlaceHalfRead) {
            self.journal.lose_end();
        }
        self.session = Some(match kept && stage.bug != Some(Bug::PlaceNotRead) {
            true => GroupSession::restored(now, options, life, self.journal.read()),
            false => GroupSession::new(now, options, life, on_disk),
        });
        self.run = process.run;
        stage.checks.group_begins(self.index, self.spec.options, (kept, cut));
    }

    fn options(&self, bug: Option<Bug>) -> GroupOptions {
        let asked = self.spec.options;
        match bug {
            Some(Bug::OrderForgotten) => GroupOptions { ordered: false, ..asked },
            Some(Bug::TriesUncounted) => GroupOptions { tries_max: 100, ..asked },
            _ => asked,
        }
    }

    /// Begins to read as the subscription `id`, if a worker is connected and the rights allow it. Returns whether `id` was used.
    pub(super) fn open(&mut self, id: SubscriptionId, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        self.take_up(edge, stage);
        if self.subscription().is_some() || self.connected.is_empty() {
            return false;
        }
        let now = edge.clock.monotonic(stage.now);
        let (Some(session), Some(process)) = (&self.session, &edge.process) else { return false };
        let clock = ClockAnchor { wall: process.wall(now), monotonic: now };
        let options = self.options(stage.bug);
        let mut spec = session.asked_for(clock, SubscriptionSpec::live(self.pattern.clone()), &options);
        if stage.bug == Some(Bug::EveryForNewest) {
            spec.span.deliver = Deliver::Every;
        }
        let Some(spec) = self.access.ask(spec, clock.wall, edge, stage) else { return false };
        let asked = spec.clone();
        let Some(session) = &mut self.session else { return false };
        session.open(clock, (id, spec.clone()), options, None);
        self.opened = stage.now;
        let has = spec.after.iter().cloned().collect();
        let past = (spec.past.tier_max, spec.past.fill);
        stage.checks.subscribed(id, Reading::new(self.run, spec.span, past, (false, false), &has));
        self.access.begin(id, &spec, edge, stage);
        edge.with_process(stage, |process, _| process.broker.handle_subscribe(clock, id, asked));
        edge.disturb(stage.now);
        stage.touch(Node::Group(self.index));
        true
    }

    /// Stops reading. Given records stay given.
    pub(super) fn close(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        let Some(id) = self.session.as_mut().and_then(GroupSession::close) else { return };
        self.disk_stills.clear();
        stage.checks.released(id);
        edge.with_process(stage, |process, _| process.broker.handle_unsubscribe(id));
        edge.disturb(stage.now);
    }

    /// Checks the rights, if they have changed. Returns whether the group is to be opened again, because other cameras may be granted.
    pub(super) fn look_at_rights(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        if edge.process.is_none() || !self.access.have_changed(edge, stage) {
            return false;
        }
        if self.subscription().is_some() {
            if self.access.look(edge, stage).is_none() {
                return false;
            }
            self.close(edge, stage);
        }
        true
    }

    /// A camera was reset: its frames are numbered anew.
    pub(super) fn handle_reset(&mut self, camera: &CameraName, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        self.close(edge, stage);
        if let Some(session) = &mut self.session {
            session.handle_forgotten(camera);
        }
        self.write_down(edge, stage);
    }

    // ---- events at the edge -------------------------------------------------------------------------------

    /// The group reads a camera's log from now on.
    pub(super) fn handle_attach(
        &mut self,
        camera: CameraName,
        log: LogReader,
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let now = edge.clock.monotonic(stage.now);
        let present = log.held().end;
        if let Some(session) = &mut self.session {
            session.handle_attach(now, camera, log, present);
        }
        stage.touch(Node::Group(self.index));
    }

    /// The edge has made a still for the group, or cannot make it.
    pub(super) fn handle_still(&mut self, made: StillMade, stage: &mut Stage<'_>) {
        let StillMade { subscription, camera, frame, answer } = made;
        if self.subscription() == Some(subscription)
            && let Some(session) = &mut self.session
        {
            session.handle_still(&camera, frame, answer);
            stage.touch(Node::Group(self.index));
        }
    }

    /// The timer is due.
    pub(super) fn handle_timer(&mut self, run: u64, stage: &mut Stage<'_>) {
        if self.session.is_some() && self.run == run && self.armed == Some(stage.now) {
            self.armed = None;
            stage.touch(Node::Group(self.index));
        }
    }

    // ---- serving ------------------------------------------------------------------------------------------

    /// Gives the available records to workers.
    pub(super) fn serve(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        if edge.process.is_none() || self.session.is_none() {
            return;
        }
        loop {
            self.give_all(edge, stage);
            if !self.find(edge, stage) {
                break;
            }
        }
        if self.session.as_ref().is_some_and(|session| session.group().is_deserted()) {
            self.close(edge, stage);
        }
        self.arm(edge, stage);
    }

    fn give_all(&mut self, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let now = edge.clock.monotonic(stage.now);
        loop {
            let (Some(session), Some(process)) = (&mut self.session, &edge.process) else { return };
            session.handle_view_changed();
            let output = session.poll(now, &AtEdge { broker: &process.broker, now });
            self.write_down(edge, stage);
            match output {
                Some(GroupOutput::Record(record)) => self.give(*record, edge, stage),
                Some(GroupOutput::HeldBack { .. }) => self.events.push(GroupEvent::HeldBack(true)),
                Some(GroupOutput::GoesOn) => self.events.push(GroupEvent::HeldBack(false)),
                Some(GroupOutput::Contract(_)) => {}
                None => return,
            }
        }
    }

    /// Writes down changes before any worker learns of them.
    fn write_down(&mut self, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let Some(session) = &mut self.session else { return };
        while let Some(change) = session.poll_change() {
            let held = |camera: &CameraName, frame: FrameId| {
                let log = edge.process.as_ref().and_then(|process| process.logs.get(camera));
                log.is_some_and(|log| log.get_frame(frame).is_some())
            };
            let mut is_held = false;
            if let Change::Settled { camera, frame, end } = &change {
                is_held = held(camera, *frame);
                stage.trace.record(stage.now, What::Settled { group: self.index, frame: *frame });
                let (camera, frame, end) = (camera.clone(), *frame, end.clone());
                self.events.push(GroupEvent::Ended { camera, frame, end });
            }
            stage.checks.group_changed(self.index, &change, is_held);
            if edge.spec.disk.is_some() && self.spec.options.keeps_place() {
                self.journal.write(stage.now, change);
            }
        }
    }

    /// Answers the group's next question. Returns whether there was one.
    fn find(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        let Some(id) = self.subscription() else { return false };
        let Some(question) = self.session.as_mut().and_then(GroupSession::poll_question) else {
            return false;
        };
        match question {
            GroupQuestion::Still(camera, query) => {
                self.told += 1;
                let is_again = !query.newest && stage.bug == Some(Bug::AgainForgotten);
                if !(is_again && self.told.is_multiple_of(3)) {
                    edge.ask_still((Reader::Group(self.index), id), &camera, query, stage);
                }
            }
            GroupQuestion::Past(camera, asked, query) => {
                let number = DISK_DECODERS + 2 * self.index;
                let answer = if asked == For::Session {
                    stage.checks.asks_past(id, &camera, None);
                    let stills = self.disk_stills.entry(camera.clone()).or_default();
                    edge.find((&camera, number), &query, stills, stage)
                } else {
                    edge.find((&camera, number + 1), &query, &mut DiskStills::default(), stage)
                };
                let answer = PastAnswer { unanswered: None, ..answer };
                if let Some(session) = &mut self.session {
                    session.handle_past(&camera, asked, answer);
                }
            }
        }
        true
    }

    /// Gives a record to a worker.
    fn give(&mut self, mut record: GivenRecord, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let attempt = record.given.attempt;
        let (camera, frame) = (record.given.camera.clone(), record.given.frame);
        let Some(id) = self.subscription() else { return };
        if attempt == 1 {
            let captured = record.times.captured;
            stage.checks.delivered(id, &record.delivery, captured, &edge.clock);
        } else {
            stage.checks.given_again(id, &camera, frame);
        }
        if attempt > 1 && stage.bug == Some(Bug::AgainMixedUp) {
            record.delivery.record.frame.payload = "another record".into();
        }
        let log = edge.process.as_ref().and_then(|process| process.logs.get(&camera));
        let newest = log.and_then(LogReader::newest).map(|record| record.frame.meta.id);
        let held = log.and_then(|log| log.get_frame(frame));
        let is_made = held.is_none_or(|held| held.frame.meta.encoding.is_chained());
        let mut members = vec![record.given.member];
        if stage.bug == Some(Bug::RecordGivenTwice) && frame.sequence.0.is_multiple_of(10) {
            members.extend(self.connected.keys().find(|other| **other != members[0]).copied());
        }
        for member in members {
            record.given.member = member;
            let seen = (newest, is_made);
            stage.checks.group_given(self.index, &record.given, &record.delivery.record, seen);
            let Some((worker, connection)) = self.connected.get(&member).copied() else { continue };
            stage.trace.record(stage.now, What::Given { group: self.index, worker, frame, attempt });
            let (at, camera) = (stage.now, camera.clone());
            self.events.push(GroupEvent::Given { at, worker, camera: camera.clone(), frame, attempt });
            // What is in flight when a connection is lost does not arrive.
            if self.workers[worker].connection == Some(connection) {
                self.begin_work(worker, camera, frame, stage);
            }
        }
    }

    /// Sets the timer.
    fn arm(&mut self, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let now: Instant = edge.clock.monotonic(stage.now);
        if stage.bug == Some(Bug::WaitWithoutEnd) {
            return;
        }
        let Some(due) = self.session.as_ref().and_then(|session| session.poll_timeout(now)) else { return };
        let at = edge.clock.moment_of(due).max(stage.now + ms(1));
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            stage.events.push(at, Event::Group { group: self.index, run: self.run });
        }
    }
}
