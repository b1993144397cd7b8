//! Shows the world to the rules of [`crate::check`], every 50 ms and with every frame that an application gets.
//!
//! A [`View`] borrows all parts for reading. The rules get plain values.

use std::time::Duration;

use mez_core::history::Tier;
use mez_core::name::CameraName;
use mez_core::rights::Verb;
use mez_core::source::SourceState;
use mez_core::subscription::{Deliver, LastFrame, NotHeld};

use super::application::{Application, Effect};
use super::camera::CameraHost;
use super::edge::EdgeHost;
use super::group::GroupHost;
use super::network::Network;
use super::spec::Resumes;
use super::thieves::Thieves;
use crate::check::{
    AnswersSeen, CameraHolds, Checks, DemandSeen, GotSeen, ListsSeen, Passage, PassageCamera, PassageProcess,
    PassageReader, Path, PresenceSeen, ReaderSeen, SilenceSeen, SourceSeen, StreamPassage,
};
use crate::link::Side;
use crate::time::{Moment, ms, secs};

/// How often the rules watch the world.
pub(super) const WATCH_INTERVAL: Duration = ms(50);
/// Contracts are watched only on cameras with a frame interval below this.
const INTERVAL_MAX: Duration = ms(500);
/// How long frames of a source's own video may wait for each other if no contract asks for less.
const BEHIND_MAX: Duration = secs(1);

/// All parts of a world at this moment.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) now: Moment,
    pub(super) cameras: &'a [CameraHost],
    pub(super) edges: &'a [EdgeHost],
    pub(super) network: &'a Network,
    pub(super) applications: &'a [Application],
    pub(super) groups: &'a [GroupHost],
    pub(super) thieves: &'a Thieves,
}

impl View<'_> {
    /// Shows the rules the state of the world, as opposed to single events.
    pub(super) fn watch(&self, checks: &mut Checks) {
        for camera in 0..self.cameras.len() {
            self.watch_camera(camera, checks);
            for application in 0..self.applications.len() {
                self.watch_resuming(application, camera, checks);
                self.watch_contract(application, camera, checks);
            }
        }
        for edge in self.edges {
            self.watch_edge_memory(edge, checks);
            edge.watch_connected(checks);
            edge.process.iter().for_each(|process| checks.watch_streams(process.run));
        }
        for group in self.groups {
            group.watch(&self.edges[group.spec.edge.0], checks);
        }
    }

    fn watch_camera(&self, index: usize, checks: &mut Checks) {
        let path = self.path(index);
        checks.watch_camera_memory(index, &self.camera_holds(index));
        if let Some(seen) = self.demand_seen(index, checks) {
            checks.watch_demand(&path, &seen);
        }
        if let Some(seen) = self.silence_seen(index) {
            checks.watch_silence(&path, &seen);
        }
        if let Some(seen) = self.presence_seen(index) {
            checks.watch_presence(&path, &seen);
        }
        if let Some(seen) = self.source_seen(index) {
            checks.watch_source(&path, &seen);
        }
        if let Some(seen) = self.answers_seen(index) {
            checks.watch_answers(&path, &self.cameras[index].name, &seen);
        }
        if let Some(seen) = self.lists_seen(index) {
            checks.watch_lists(&path, &seen);
        }
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// A camera and its path at this moment.
    pub(super) fn path(&self, index: usize) -> Path {
        let host = &self.cameras[index];
        let link = self.network.link(host.link);
        let spec = &host.spec;
        let edge = &self.edges[spec.edge.0];
        let frozen = self.is_frozen(index);
        let works = host.process.is_some() && edge.process.is_some() && !link.is_cut();
        let works = works && !self.is_shut_out(index);
        Path {
            camera: index,
            name: host.name.clone(),
            made: spec.link,
            link: link.spec(),
            bad_luck: self.network.bad_luck(host.link),
            is_cut: link.is_cut(),
            is_well: !frozen && works,
            disturbed: host.disturbed,
            refused: host.refused,
            rivals: host.rivals,
            robbed_until: match self.is_robbed(index) {
                true => self.now,
                false => self.thieves.robbed_until(index),
            },
            interval: spec.interval,
            jitter: spec.jitter,
            frame_bytes_max: *spec.frame_bytes.end(),
            making_time_max: spec.footage.making_time_max() * spec.codec_slowness,
            publishing: host.publishing,
            useless: host.useless,
        }
    }

    /// Whether the host of a camera or the host of its edge is frozen.
    fn is_frozen(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        self.network.is_frozen(host.link) || self.edges[host.spec.edge.0].is_frozen()
    }

    /// Whether messages of a camera's host reach its edge now.
    pub(super) fn is_heard(&self, index: usize) -> bool {
        !self.is_frozen(index) && !self.network.link(self.cameras[index].link).is_cut()
    }

    /// Whether a thief may hold a camera's name now, or the edge's state blocks the camera.
    pub(super) fn is_robbed(&self, index: usize) -> bool {
        let hinders = |thief: usize| self.cameras[thief].process.is_some() && !self.is_shut_out(thief);
        self.thieves.of(index).any(hinders) || self.is_poisoned(index)
    }

    /// Whether a camera and its edge refuse each other, because one of them was revoked.
    pub(super) fn is_shut_out(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        edge.lists.denies(&host.certificate).is_some() || host.turns_away_from(&edge.certificate)
    }

    /// Whether a camera's edge has a state with an epoch that the camera cannot reach.
    pub(super) fn is_poisoned(&self, index: usize) -> bool {
        let host = &self.cameras[index];
        self.edges[host.spec.edge.0].is_poisoned(&host.name)
    }

    /// Whether the newest connection of a camera at an edge was made by a thief.
    pub(super) fn is_with_thief(&self, edge: usize, camera: &CameraName) -> bool {
        let holder = self.edges[edge].process.as_ref().and_then(|process| process.holders.get(camera));
        holder.is_some_and(|holder| self.thieves.made(*holder))
    }

    fn camera_holds(&self, index: usize) -> CameraHolds {
        let host = &self.cameras[index];
        let link = self.network.link(host.link);
        CameraHolds {
            process: host
                .process
                .as_ref()
                .map(|process| (process.intake.log_bytes(), host.spec.log_bytes_max, process.connections())),
            processes: self.cameras.iter().filter(|other| other.link == host.link).count(),
            dials: link.dials(),
            edge_connections: link.open_connections(Side::Edge),
        }
    }

    /// What is wanted of a camera and what the camera knows of the demand, if both brokers run and are connected.
    fn demand_seen(&self, index: usize, checks: &Checks) -> Option<DemandSeen> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let (process, at_edge) = (host.process.as_ref()?, edge.process.as_ref()?);
        let wall = at_edge.wall(edge.clock.monotonic(self.now));
        let spans =
            |application: &Application| application.reading.as_ref().map(|(_, reading)| reading.span());
        let is_wanted = |application: &&Application| {
            application.reads(host.spec.edge.0, &host.name)
                && spans(application).is_some_and(|span| span.is_live(wall))
                && (application.stalled || self.may_read(application, &host.name, checks))
        };
        let there = self.applications.iter().filter(|application| application.spec.edge == host.spec.edge);
        process.broker.is_up().then(|| DemandSeen {
            wanted: self.applications.iter().filter(is_wanted).count()
                + self.groups.iter().filter(|group| group.reads(host.spec.edge.0, &host.name)).count(),
            told: process.broker.demand().map_or(0, |demand| demand.contracts.len()),
            changed: edge.subscriptions_changed,
            wall,
            ends: there.filter_map(|application| spans(application)?.end).collect(),
        })
    }

    /// What an edge and a camera say about their connection, if both brokers run.
    fn presence_seen(&self, index: usize) -> Option<PresenceSeen> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let (process, at_edge) = (host.process.as_ref()?, edge.process.as_ref()?);
        let known = at_edge.broker.cameras(edge.clock.monotonic(self.now));
        Some(PresenceSeen {
            edge_runs: !edge.is_frozen(),
            edge_says: known
                .iter()
                .find(|known| known.camera == host.name)
                .is_some_and(|known| known.connected),
            is_up: process.broker.is_up(),
        })
    }

    /// What a camera and its edge know about the camera's source, if both brokers run and are connected.
    fn source_seen(&self, index: usize) -> Option<SourceSeen> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let (process, at_edge) = (host.process.as_ref()?, edge.process.as_ref()?);
        let known = at_edge.broker.view(edge.clock.monotonic(self.now), &host.name);
        (known.connected && process.broker.is_up()).then(|| SourceSeen {
            is: process.broker.source_state(),
            known: known.source.map_or(SourceState::Live, |source| source.state),
        })
    }

    /// What a camera's publisher knows of answers, if the camera runs.
    fn answers_seen(&self, index: usize) -> Option<AnswersSeen> {
        let host = &self.cameras[index];
        let process = host.process.as_ref()?;
        Some(AnswersSeen {
            runs: (process.run, self.edges[host.spec.edge.0].process.as_ref().map(|process| process.run)),
            is_up: process.broker.is_up(),
            skipped: process.publisher.skipped(),
        })
    }

    /// Which deny lists a camera and its edge hold, if both run. Thieves are left out, because they may lie.
    fn lists_seen(&self, index: usize) -> Option<ListsSeen<'_>> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let process = host.process.as_ref().filter(|_| !self.thieves.is_thief(index))?;
        edge.process.as_ref()?;
        Some(ListsSeen {
            at_camera: host.lists.list(),
            at_edge: edge.lists.list(),
            edge: &edge.certificate,
            is_up: process.broker.is_up(),
        })
    }

    /// Whether a camera's process has a frame to send and could send it, if the process runs.
    fn silence_seen(&self, index: usize) -> Option<SilenceSeen> {
        let host = &self.cameras[index];
        let link = self.network.link(host.link);
        let process = host.process.as_ref()?;
        Some(SilenceSeen {
            run: process.run,
            waits: process.told.filter(|_| process.has_to_send() && process.told > process.held_back),
            is_idle: process.broker.demand().is_some_and(|demand| !demand.contracts.is_empty())
                && !process.is_silenced()
                && self.now >= process.stuck_until.max(process.catching_up_until)
                && link.is_idle(Side::Camera)
                && link.is_idle(Side::Edge)
                && process
                    .open_connections()
                    .all(|connection| link.unsent_frames(Side::Camera, connection) == 0),
            is_adapted: process.broker.joint().is_some() || host.spec.video.is_some(),
        })
    }

    // ---- edges --------------------------------------------------------------------------------------------

    fn watch_edge_memory(&self, edge: &EdgeHost, checks: &mut Checks) {
        let Some(process) = &edge.process else { return };
        let cameras = process.broker.cameras(edge.clock.monotonic(self.now));
        let bytes = cameras.iter().map(|camera| camera.log_bytes).sum();
        checks.watch_edge_memory(edge.index, (bytes, edge.spec.log_bytes_max), process.lent.excess());
    }

    // ---- applications -------------------------------------------------------------------------------------

    /// Whether the rights in force grant an application everything that it asks of a camera.
    fn may_read(&self, application: &Application, camera: &CameraName, checks: &Checks) -> bool {
        let spec = &application.spec;
        let reads = spec.begin_before.is_some() || spec.resumes == Resumes::Filling;
        let fetches = reads && spec.tier_max == Tier::Camera && !spec.reduced;
        let needs = [
            (Verb::Watch, spec.end_after_ms.is_none() || !reads),
            (Verb::Read, reads),
            (Verb::Originals, fetches || spec.originals),
        ];
        let verbs: Vec<Verb> =
            needs.into_iter().filter_map(|(verb, needed)| needed.then_some(verb)).collect();
        checks.may((spec.edge.0, &application.access.who), &verbs, camera)
    }

    fn watch_resuming(&self, application: usize, camera: usize, checks: &mut Checks) {
        let path = self.path(camera);
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        let process = host.process.as_ref();
        let seen = ReaderSeen {
            application,
            subscription: reader.reading.as_ref().map(|(id, _)| *id),
            is_live: reader.wants
                && reader.pattern.matches(&host.name)
                && reader.spec.edge == host.spec.edge
                && self.may_read(reader, &host.name, checks)
                && self.edges[reader.spec.edge.0].lists.denies(&reader.access.certificate).is_none()
                && reader.spec.end_after_ms.is_none()
                && reader.questions.are_answered()
                && !self.is_behind(reader, &host.name)
                && !reader.stalled,
            is_silenced: process.is_some_and(|process| process.is_silenced()),
            last: reader.deliveries.last_at(&host.name),
            ready_since: reader.ready_since,
            past_until: reader.questions.past_until,
            held_back_until: process.map(|process| process.held_back_until),
            is_up: process.is_some_and(|process| process.broker.is_up()),
            turns: reader.spec.consumes * self.turns(),
        };
        checks.watch_resuming(&path, &seen, &reader.spec.contract);
    }

    /// Checks that frames come in time while an application is told that its contract is kept. The application must be ready, the camera must
    /// publish, and faults must be over.
    fn watch_contract(&self, application: usize, camera: usize, checks: &mut Checks) {
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        // If an application reads several cameras, the last change may concern another one.
        let streams = self.applications.iter().filter_map(Application::stream);
        let names = self.cameras.iter().map(|other| &other.name).chain(streams);
        let only = names.filter(|name| reader.pattern.matches(name)).count() == 1;
        let watched = only
            && reader.reads(host.spec.edge.0, &host.name)
            && !reader.stalled
            && !self.edges[host.spec.edge.0].is_frozen()
            && host.publishing
            && host.process.is_some()
            && host.spec.interval < INTERVAL_MAX;
        let Some((id, _)) = reader.reading.as_ref().filter(|_| watched) else { return };
        checks.watch_contract(*id, &host.name, reader.ready_since + reader.spec.consumes * 2);
    }

    /// Shows what an application has just taken, or how its reading has ended.
    pub(super) fn watch_effect(&self, application: usize, effect: &Effect, checks: &mut Checks) {
        match effect {
            Effect::Nothing | Effect::RightsChanged => {}
            Effect::Took { had } => {
                self.watch_age(application, checks);
                self.watch_holes(application, *had, checks);
                self.watch_told(application, *had, checks);
                self.watch_stream(application, *had, checks);
            }
            Effect::Ended => self.watch_end(application, checks),
        }
    }

    /// Shows the age of the frame that an application just got.
    fn watch_age(&self, application: usize, checks: &mut Checks) {
        let reader = &self.applications[application];
        let Some((got, _)) = reader.deliveries.last() else { return };
        let Some(camera) = self.camera_named(&got.camera) else { return };
        let host = &self.cameras[camera];
        let adapts = |other: &Application| {
            other.spec.contract.accuracy_floor.is_some() && other.pattern.matches(&host.name)
        };
        let seen = GotSeen {
            application,
            frame: got.frame,
            published: got.published,
            age: got.age(),
            takes_all: reader.spec.deliver == Deliver::Every || reader.spec.chains,
            ready_since: reader.ready_since,
            past_until: reader.questions.past_until,
            turns: reader.spec.consumes * self.turns(),
            is_adapted: self.applications.iter().any(adapts) || host.spec.video.is_some(),
            opening_until: host.process.as_ref().and_then(|process| process.opening_until),
            behind: if host.spec.video.is_some() { BEHIND_MAX } else { Duration::ZERO },
            catching_up_until: host.process.as_ref().map(|process| process.catching_up_until),
        };
        checks.watch_age(&self.path(camera), &seen);
    }

    /// Shows which frames of the camera's log were passed over before the frame that an application just got.
    fn watch_holes(&self, index: usize, had: Option<LastFrame>, checks: &mut Checks) {
        let Some((camera, passage, _)) = self.passage(index, had) else { return };
        let Some(reader) = self.passage_reader(index, camera) else { return };
        checks.watch_holes(&reader, &self.passage_camera(camera, self.edge_of(index)), &passage);
    }

    /// Shows which frames were passed over before the frame that an application just got, and what the application was told about them.
    fn watch_told(&self, index: usize, had: Option<LastFrame>, checks: &mut Checks) {
        let Some((camera, passage, not_held)) = self.passage(index, had) else { return };
        let Some(reader) = self.passage_reader(index, camera) else { return };
        checks.watch_told(&reader, &self.passage_camera(camera, self.edge_of(index)), &passage, not_held);
    }

    /// Shows which records of a derived stream were passed over before the record that an application just got.
    fn watch_stream(&self, index: usize, had: Option<LastFrame>, checks: &mut Checks) {
        let application = &self.applications[index];
        let Some((got, before)) = application.deliveries.last() else { return };
        let had = had.filter(|_| application.spec.resumes != Resumes::Anew);
        let Some(last) = before.or(had.map(|had| had.id)) else { return };
        // A time span leaves records out on purpose.
        let (counted, spec) = (got.skipped.total(), &application.spec);
        if spec.begin_before.is_none() && spec.end_after_ms.is_none() {
            let (next, not_held) = (got.frame, got.not_held);
            let passage = StreamPassage { application: index, last, next, counted, not_held };
            checks.watch_stream(&got.camera, &passage);
        }
    }

    /// Shows what follows the last frame of a reading that has ended, and what the application was told about the rest at the end.
    fn watch_end(&self, index: usize, checks: &mut Checks) {
        let application = &self.applications[index];
        let edge = application.spec.edge.0;
        let cameras = self.cameras.iter().map(|camera| &camera.name);
        let names: Vec<CameraName> = cameras.filter(|name| application.reads(edge, name)).cloned().collect();
        let this = application.subscriptions - 1;
        for name in names {
            let application = &self.applications[index];
            let given = application.deliveries.newest(&name, this);
            let last = given.or(application.had(&name).map(|had| had.id));
            let Some(camera) = self.camera_named(&name) else { continue };
            let Some(reader) = self.passage_reader(index, camera) else { continue };
            let (seen, passage) =
                (self.passage_camera(camera, edge), Passage { last, next: None, captured: None, counted: 0 });
            checks.watch_holes(&reader, &seen, &passage);
            // A camera that did not come during the reading has no rest.
            if let Some((.., told)) = application.rest.iter().find(|(camera, ..)| *camera == name) {
                checks.watch_told(&reader, &seen, &passage, *told);
            }
        }
    }

    /// The passage between the frame that an application just got and the one before: the camera, the passage, and what was told as not held.
    fn passage(&self, index: usize, had: Option<LastFrame>) -> Option<(usize, Passage, Option<NotHeld>)> {
        let application = &self.applications[index];
        let (got, before) = application.deliveries.last()?;
        let had = had.filter(|_| application.spec.resumes != Resumes::Anew);
        let last = before.or(had.map(|had| had.id));
        let counted = got.skipped.total();
        let passage = Passage { last, next: Some(got.frame), captured: Some(got.captured), counted };
        Some((self.camera_named(&got.camera)?, passage, got.not_held))
    }

    fn passage_reader(&self, index: usize, camera: usize) -> Option<PassageReader> {
        let application = &self.applications[index];
        let (_, reading) = application.reading.as_ref()?;
        Some(PassageReader {
            application: index,
            span: reading.span(),
            tier_max: application.spec.tier_max,
            fills: application.spec.resumes == Resumes::Filling,
            subscribed: application.subscribed,
            excused: application.questions.excused,
            misled: application.questions.misled.contains(&self.cameras[camera].name),
            frame_bytes_max: self.edges[application.spec.edge.0].spec.frame_bytes_max as usize,
        })
    }

    /// Whether an application that takes every frame lags far behind a camera, because the application also reads derived streams. Records are small,
    /// so the edge can hold more of them than such an application ever takes. Stills of frames that old are made for this application alone.
    fn is_behind(&self, reader: &Application, camera: &CameraName) -> bool {
        let mut streams = self.applications.iter().filter_map(Application::stream);
        let takes_all = reader.spec.deliver == Deliver::Every || reader.spec.chains;
        takes_all && streams.any(|stream| reader.pattern.matches(stream)) && {
            let last = reader.deliveries.all().iter().rev().find(|got| got.camera == *camera);
            last.is_some_and(|got| got.age() > BEHIND_MAX)
        }
    }

    /// After how many frames it is a camera's turn again, if an application reads everything.
    fn turns(&self) -> u32 {
        (self.cameras.len() + self.applications.iter().filter_map(Application::stream).count()) as u32 + 1
    }

    fn edge_of(&self, application: usize) -> usize {
        self.applications[application].spec.edge.0
    }

    /// A camera as the rules about passages see it, for a reader at this edge.
    fn passage_camera(&self, index: usize, edge: usize) -> PassageCamera {
        let host = &self.cameras[index];
        PassageCamera {
            path: self.path(index),
            is_doubtful: host.is_doubtful(),
            process: host.process.as_ref().map(|process| PassageProcess {
                run: process.run,
                log: process.log(),
                is_up: process.broker.is_up() && host.spec.edge.0 == edge,
                doubted: process.doubted.clone(),
            }),
        }
    }

    fn camera_named(&self, name: &CameraName) -> Option<usize> {
        self.cameras.iter().position(|camera| camera.name == *name)
    }
}
