//! Shows the world to the rules of [`crate::check`], every 50 ms and with every frame that an application gets.

use std::time::Duration;

use mez_core::frame::SkipCounts;
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, LastFrame, NotHeld};

use super::{LinkNode, Node, Resumes, World};
use crate::check::{
    CameraHolds, DemandSeen, GotSeen, Passage, PassageCamera, PassageProcess, PassageReader, Path,
    PresenceSeen, ReaderSeen, SilenceSeen,
};
use crate::link::Side;
use crate::time::ms;

/// How often the rules are looked at.
pub(super) const WATCH_INTERVAL: Duration = ms(50);
/// The longest interval between frames for which rules judge whether frames come in time.
const INTERVAL_MAX: Duration = ms(500);

impl World {
    pub(super) fn watch(&mut self) {
        for camera in 0..self.cameras.len() {
            self.watch_camera(camera);
            for application in 0..self.applications.len() {
                self.watch_resuming(application, camera);
                self.watch_contract(application, camera);
            }
        }
        for edge in 0..self.edges.len() {
            self.watch_door(edge);
            self.watch_edge_memory(edge);
        }
    }

    fn watch_camera(&mut self, index: usize) {
        let path = self.path(index);
        self.checks.watch_camera_memory(index, &self.camera_holds(index));
        if let Some(seen) = self.demand_seen(index) {
            self.checks.watch_demand(&path, &seen);
        }
        if let Some(seen) = self.silence_seen(index) {
            self.checks.watch_silence(&path, &seen);
        }
        if let Some(seen) = self.presence_seen(index) {
            self.checks.watch_presence(&path, &seen);
        }
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// A camera and its path as they are now.
    pub(super) fn path(&self, index: usize) -> Path {
        let host = &self.cameras[index];
        let LinkNode { link, medium, .. } = &self.links[host.link];
        let spec = &host.spec;
        let edge = &self.edges[spec.edge.0];
        let frozen = self.is_frozen(Node::Camera(index)) || self.is_frozen(Node::Edge(spec.edge.0));
        let works = host.process.is_some() && edge.process.is_some() && !link.is_cut();
        Path {
            camera: index,
            name: host.name.clone(),
            made: spec.link,
            link: link.spec(),
            bad_luck: medium.map_or(Duration::ZERO, |(medium, _)| self.media[medium].bad_luck()),
            is_cut: link.is_cut(),
            is_well: !frozen && works,
            disturbed: host.disturbed,
            refused: host.refused,
            rivals: host.rivals,
            robbed_until: if self.is_robbed(index) { self.now } else { host.robbed_until },
            interval: spec.interval,
            jitter: spec.jitter,
            frame_bytes_max: *spec.frame_bytes.end(),
            making_time_max: spec.footage.making_time_max() * spec.codec_slowness,
            publishing: host.publishing,
            misstamped: host.misstamped,
        }
    }

    fn camera_holds(&self, index: usize) -> CameraHolds {
        let host = &self.cameras[index];
        let link = &self.links[host.link].link;
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

    /// What is wanted of a camera and what it knows of it, if both brokers run and are connected.
    fn demand_seen(&self, index: usize) -> Option<DemandSeen> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let (process, at_edge) = (host.process.as_ref()?, edge.process.as_ref()?);
        let wall = at_edge.wall(edge.clock.monotonic(self.now));
        let spans = |application: &super::Application| {
            application.reading.as_ref().map(|(_, reading)| reading.span())
        };
        let is_wanted = |application: &&super::Application| {
            application.reads(host.spec.edge.0, &host.name)
                && spans(application).is_some_and(|span| span.is_live(wall))
        };
        let there = self.applications.iter().filter(|application| application.spec.edge == host.spec.edge);
        process.broker.is_up().then(|| DemandSeen {
            wanted: self.applications.iter().filter(is_wanted).count(),
            told: process.broker.demand().map_or(0, |demand| demand.contracts.len()),
            changed: edge.subscriptions_changed,
            wall,
            ends: there.filter_map(|application| spans(application)?.end).collect(),
        })
    }

    /// What an edge and a camera say of their connection, if both brokers run.
    fn presence_seen(&self, index: usize) -> Option<PresenceSeen> {
        let host = &self.cameras[index];
        let edge = &self.edges[host.spec.edge.0];
        let (process, at_edge) = (host.process.as_ref()?, edge.process.as_ref()?);
        let known = at_edge.broker.cameras(edge.clock.monotonic(self.now));
        Some(PresenceSeen {
            edge_runs: edge.frozen.is_none(),
            edge_says: known
                .iter()
                .find(|known| known.camera == host.name)
                .is_some_and(|known| known.connected),
            is_up: process.broker.is_up(),
        })
    }

    /// What a camera's process has to send, if it runs.
    fn silence_seen(&mut self, index: usize) -> Option<SilenceSeen> {
        let host = &mut self.cameras[index];
        let local = host.clock.monotonic(self.now);
        let link = &self.links[host.link].link;
        let process = host.process.as_mut()?;
        if process.holds_back(local) {
            // It may have left this one out for good.
            (process.held_back, process.held_back_until) = (process.told, self.now);
        }
        Some(SilenceSeen {
            run: process.run,
            waits: process.told.filter(|_| process.has_to_send() && process.told > process.held_back),
            is_idle: process.broker.demand().is_some_and(|demand| !demand.contracts.is_empty())
                && !process.is_silenced()
                && self.now >= process.stuck_until
                && link.is_idle(Side::Camera)
                && link.is_idle(Side::Edge)
                && process.open_connections().all(|connection| link.unsent_frames(connection) == 0),
        })
    }

    // ---- edges --------------------------------------------------------------------------------------------

    fn watch_edge_memory(&mut self, index: usize) {
        let edge = &self.edges[index];
        let Some(process) = &edge.process else { return };
        let cameras = process.broker.cameras(edge.clock.monotonic(self.now));
        let bytes = cameras.iter().map(|camera| camera.log_bytes).sum();
        self.checks.watch_edge_memory(index, (bytes, edge.spec.log_bytes_max), process.lent.excess());
    }

    // ---- applications -------------------------------------------------------------------------------------

    fn watch_resuming(&mut self, application: usize, camera: usize) {
        let path = self.path(camera);
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        let process = host.process.as_ref();
        let seen = ReaderSeen {
            application,
            subscription: reader.reading.as_ref().map(|(id, _)| *id),
            is_live: reader.reads(host.spec.edge.0, &host.name)
                && reader.spec.end_after_ms.is_none()
                && reader.asked.is_empty()
                && !reader.stalled,
            is_silenced: process.is_some_and(|process| process.is_silenced()),
            last: reader.deliveries.last_at(&host.name),
            ready_since: reader.ready_since,
            past_until: reader.past_until,
            held_back_until: process.map(|process| process.held_back_until),
            is_up: process.is_some_and(|process| process.broker.is_up()),
            turns: reader.spec.consumes * (self.cameras.len() as u32 + 1),
        };
        self.checks.watch_resuming(&path, &seen, &reader.spec.contract);
    }

    /// Watches that an application which is told that its contract is kept gets frames in time. It must be ready, its camera must
    /// publish, and faults must be over.
    fn watch_contract(&mut self, application: usize, camera: usize) {
        let (reader, host) = (&self.applications[application], &self.cameras[camera]);
        // With several cameras, the last change may have been about another one.
        let only = self.cameras.iter().filter(|other| reader.pattern.matches(&other.name)).count() == 1;
        let watched = only
            && reader.reads(host.spec.edge.0, &host.name)
            && !reader.stalled
            && !self.is_frozen(Node::Edge(host.spec.edge.0))
            && host.publishing
            && host.process.is_some()
            && host.spec.interval < INTERVAL_MAX;
        let Some((id, _)) = reader.reading.as_ref().filter(|_| watched) else { return };
        self.checks.watch_contract(*id, &host.name, reader.ready_since + reader.spec.consumes * 2);
    }

    /// Shows how old the frame is that an application just got.
    pub(super) fn watch_age(&mut self, application: usize) {
        let reader = &self.applications[application];
        let Some((got, _)) = reader.deliveries.last() else { return };
        let Some(camera) = self.camera_named(&got.camera) else { return };
        let host = &self.cameras[camera];
        let adapts = |other: &super::Application| {
            other.spec.contract.accuracy_floor.is_some() && other.pattern.matches(&host.name)
        };
        let seen = GotSeen {
            application,
            frame: got.frame,
            published: got.published,
            age: got.age(),
            takes_all: reader.spec.deliver == Deliver::Every || reader.spec.chains,
            ready_since: reader.ready_since,
            past_until: reader.past_until,
            turns: reader.spec.consumes * (self.cameras.len() as u32 + 1),
            is_adapted: self.applications.iter().any(adapts),
            opening_until: host.process.as_ref().and_then(|process| process.opening_until),
        };
        self.checks.watch_age(&self.path(camera), &seen);
    }

    /// Shows which frames of the camera's log were passed over before the frame that an application just got.
    pub(super) fn watch_holes(&mut self, index: usize, had: Option<LastFrame>) {
        let Some((camera, passage, _)) = self.passage(index, had) else { return };
        let Some(reader) = self.passage_reader(index, camera) else { return };
        self.checks.watch_holes(&reader, &self.passage_camera(camera), &passage);
    }

    /// Shows what was passed over before the frame that an application just got, and what it was told of that.
    pub(super) fn watch_told(&mut self, index: usize, had: Option<LastFrame>) {
        let Some((camera, passage, not_held)) = self.passage(index, had) else { return };
        let Some(reader) = self.passage_reader(index, camera) else { return };
        self.checks.watch_told(&reader, &self.passage_camera(camera), &passage, not_held);
    }

    /// Shows the same for everything after the last frame of a reading that has ended. `rest` is what was told at the end.
    pub(super) fn watch_end(&mut self, index: usize, rest: &[(CameraName, SkipCounts, Option<NotHeld>)]) {
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
            let (seen, passage) = (self.passage_camera(camera), Passage { last, next: None });
            self.checks.watch_holes(&reader, &seen, &passage);
            // Nothing is told of a camera that did not come during the reading.
            if let Some((.., told)) = rest.iter().find(|(camera, ..)| *camera == name) {
                self.checks.watch_told(&reader, &seen, &passage, *told);
            }
        }
    }

    /// What lies between the frame that an application just got and the one before, of which camera, and what it was told of it.
    fn passage(&self, index: usize, had: Option<LastFrame>) -> Option<(usize, Passage, Option<NotHeld>)> {
        let application = &self.applications[index];
        let (got, before) = application.deliveries.last()?;
        let had = had.filter(|_| application.spec.resumes != Resumes::Anew);
        let passage = Passage { last: before.or(had.map(|had| had.id)), next: Some(got.frame) };
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
            excused: application.excused,
            misled: application.misled.contains(&self.cameras[camera].name),
            frame_bytes_max: self.edges[application.spec.edge.0].spec.frame_bytes_max as usize,
        })
    }

    fn passage_camera(&self, index: usize) -> PassageCamera {
        let host = &self.cameras[index];
        PassageCamera {
            path: self.path(index),
            is_doubtful: host.is_doubtful(),
            process: host.process.as_ref().map(|process| PassageProcess {
                run: process.run,
                log: process.log(),
                is_up: process.broker.is_up(),
                doubted: process.doubted.clone(),
            }),
        }
    }

    fn camera_named(&self, name: &CameraName) -> Option<usize> {
        self.cameras.iter().position(|camera| camera.name == *name)
    }
}
