//! An edge host: the edge broker and its driver.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::{EdgeBroker, EdgeConfig, EdgeOutput, Peer};
use mez_core::frame::Epoch;
use mez_core::log::{LogReader, Record};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::store::Resume;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{FrameHeader, Message, MessageBuffer};

use super::camera::encoded;
use super::chain::Decoders;
use super::door::Door;
use super::lent::Lent;
use super::past::request_of;
use super::storage::{KeptLog, Owner};
use super::thief::believe;
use super::{Bug, EdgeId, EdgeSpec, Node, Timer, World};
use crate::link::{LinkOutput, Side, past_stream};
use crate::payload::received;
use crate::time::{HostClock, Moment, ms};
use crate::trace::What;

pub(super) struct EdgeHost {
    pub(super) spec: EdgeSpec,
    pub(super) clock: HostClock,
    pub(super) timer: Timer,
    /// When subscriptions last came or went.
    pub(super) subscriptions_changed: Moment,
    /// What arrived and was not looked at, while the host is frozen, and on which link.
    pub(super) frozen: Option<VecDeque<(usize, LinkOutput)>>,
    pub(super) process: Option<EdgeProcess>,
    /// Its logs on disk.
    pub(super) kept: BTreeMap<CameraName, KeptLog>,
    /// Epochs that its state has from before there were bounds.
    pub(super) poisoned: BTreeMap<CameraName, Epoch>,
}

pub(super) struct EdgeProcess {
    pub(super) run: u64,
    pub(super) broker: EdgeBroker,
    anchor: ClockAnchor,
    /// Each with the link that it is on.
    connections: BTreeMap<LinkId, (usize, MessageBuffer)>,
    pub(super) logs: BTreeMap<CameraName, LogReader>,
    /// What it holds for applications that stand still.
    pub(super) lent: Lent,
    /// How many frames each of them has been given.
    pub(super) appended: BTreeMap<CameraName, u64>,
    /// The connection of each camera's newest start, as the broker said.
    pub(super) holders: BTreeMap<CameraName, LinkId>,
    pub(super) decoders: Decoders,
    pub(super) door: Door,
}

impl EdgeProcess {
    /// Whether a connection has been taken in.
    pub(super) fn knows(&self, connection: LinkId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// A connection is closed from this side.
    pub(super) fn close(&mut self, now: Instant, connection: LinkId) {
        self.connections.remove(&connection);
        self.broker.handle_closed(now, connection);
    }

    /// The broker's wall clock: an anchor and the monotonic clock, as for capture times.
    pub(super) fn wall(&self, now: Instant) -> Timestamp {
        self.anchor.wall_at(now)
    }
}

impl World {
    /// One more edge, whose broker runs.
    pub fn edge(&mut self, spec: EdgeSpec) -> EdgeId {
        let clock = spec.clock.unwrap_or_else(|| self.draw_clock());
        let index = self.edges.len();
        self.edges.push(EdgeHost {
            spec,
            clock,
            timer: Timer::new(),
            subscriptions_changed: self.now,
            frozen: None,
            process: None,
            kept: BTreeMap::new(),
            poisoned: BTreeMap::new(),
        });
        self.start_edge(index);
        self.settle();
        EdgeId(index)
    }

    pub(super) fn start_edge(&mut self, index: usize) {
        self.kill_edge(index);
        let run = self.next_run();
        let host = &mut self.edges[index];
        let config = EdgeConfig {
            log_bytes_max: host.spec.log_bytes_max,
            cameras_max: host.spec.cameras_max,
            frame_bytes_max: host.spec.frame_bytes_max,
            channels: host.spec.channels.clone(),
            software: "world".into(),
            ..EdgeConfig::default()
        };
        host.process = Some(EdgeProcess {
            run,
            broker: EdgeBroker::new(config),
            anchor: host.clock.anchor(self.now),
            connections: BTreeMap::new(),
            logs: BTreeMap::new(),
            lent: Lent::new(),
            appended: BTreeMap::new(),
            holders: BTreeMap::new(),
            decoders: Decoders::new(),
            door: Door::new(self.bug),
        });
        self.take_up_poison(index);
        self.with_edge(index, |process, now| process.broker.handle_started(now));
        self.take_up_logs(index, run);
        for link in self.links_of(index) {
            self.links[link].link.edge_listens();
            self.touch(Node::Link(link));
        }
        self.disturb_edge(index);
        self.touch(Node::Edge(index));
        for application in 0..self.applications.len() {
            if self.applications[application].spec.edge.0 == index && self.applications[application].wants {
                self.subscribe(application);
            }
        }
    }

    pub(super) fn kill_edge(&mut self, index: usize) {
        if self.edges[index].process.take().is_none() {
            return;
        }
        self.edges[index].frozen = None;
        self.lose_visitors(index);
        let kept: Vec<CameraName> = self.edges[index].kept.keys().cloned().collect();
        kept.into_iter().for_each(|camera| self.end_log(&Owner::Edge(index, camera)));
        for link in self.links_of(index) {
            self.links[link].link.lose_edge();
            self.touch(Node::Link(link));
        }
        for application in self.applications.iter_mut().filter(|known| known.spec.edge.0 == index) {
            application.lose_subscription();
        }
        self.disturb_edge(index);
    }

    /// Gives a broker that starts what its disk holds, and begins to write all of it.
    fn take_up_logs(&mut self, index: usize, run: u64) {
        let count = self.edges[index].kept.len().max(1) as u64;
        let now = self.edges[index].clock.monotonic(self.now);
        let bytes_max = self.edges[index].spec.log_bytes_max / count;
        let cameras: Vec<CameraName> = self.edges[index].kept.keys().cloned().collect();
        let (mut found, mut resumes) = (Vec::new(), Vec::new());
        for camera in cameras {
            let Some(kept) = self.edges[index].kept.get_mut(&camera) else { continue };
            let recovered = kept.recover(now, bytes_max);
            let Some(recovery) = self.checks.recovered(&camera, recovered) else { return };
            let Some(newest) = recovery.resume.newest_epoch else { continue };
            // Of a start whose anchor nobody knows, the camera is asked to begin another epoch.
            let anchor = ClockAnchor { wall: Timestamp::MIN, monotonic: Instant::ZERO };
            let start = recovery.start.filter(|(epoch, _)| *epoch >= newest).unwrap_or((newest, anchor));
            found.push((camera.clone(), start, recovery.records));
            resumes.push((camera, recovery.resume));
        }
        let Some(process) = &mut self.edges[index].process else { return };
        process.broker.restore(found);
        for (camera, resume) in resumes {
            self.write_log(index, run, &camera, resume);
        }
    }

    /// Begins to write a camera's log from what its replica in memory holds now on.
    fn write_log(&mut self, index: usize, run: u64, camera: &CameraName, resume: Resume) {
        let host = &mut self.edges[index];
        let clocks = (host.clock.monotonic(self.now), host.clock.wall(self.now));
        let Some(process) = &mut host.process else { return };
        let Some((reader, epoch, anchor)) = process.broker.log(camera) else { return };
        let held = reader.held();
        let restored: Vec<Record> = held.clone().filter_map(|place| reader.get(place)).collect();
        process.appended.insert(camera.clone(), held.end);
        self.checks.restored(run, camera, &restored);
        if let Some(kept) = host.kept.get_mut(camera) {
            kept.write(resume, reader.cursor_at_end(), (epoch, anchor), clocks);
            let now = self.now;
            self.arm_log(Owner::Edge(index, camera.clone()), run, now);
        }
    }

    /// A camera has connected: its log is written from now on.
    fn keep_log(&mut self, index: usize, camera: &CameraName) {
        let Some(disk) = self.edges[index].spec.disk.clone() else { return };
        let host = &mut self.edges[index];
        let Some(process) = &host.process else { return };
        let (run, now) = (process.run, host.clock.monotonic(self.now));
        let Some((_, epoch, anchor)) = process.broker.log(camera) else { return };
        if let Some(kept) = host.kept.get_mut(camera).filter(|kept| kept.is_written()) {
            return kept.set_start(epoch, anchor);
        }
        if !host.kept.contains_key(camera) {
            let random = self.random.split();
            host.kept.insert(camera.clone(), KeptLog::new(camera, disk, random, self.disk_bug));
        }
        let Some(kept) = host.kept.get_mut(camera) else { return };
        let recovered = kept.recover(now, 0);
        let Some(recovery) = self.checks.recovered(camera, recovered) else { return };
        self.write_log(index, run, camera, recovery.resume);
    }

    fn links_of(&self, edge: usize) -> Vec<usize> {
        let mut links: Vec<usize> = self
            .cameras
            .iter()
            .filter(|camera| camera.spec.edge.0 == edge)
            .map(|camera| camera.link)
            .collect();
        links.dedup();
        links
    }

    pub(super) fn disturb_edge(&mut self, edge: usize) {
        self.edges[edge].subscriptions_changed = self.now;
        for camera in 0..self.cameras.len() {
            if self.cameras[camera].spec.edge.0 == edge {
                self.disturb(camera);
            }
        }
    }

    // ---- the broker ---------------------------------------------------------------------------------------

    pub(super) fn edge_due(&self, index: usize) -> Moment {
        let host = &self.edges[index];
        let due = host
            .process
            .as_ref()
            .and_then(|process| process.broker.poll_timeout().into_iter().chain(process.door.due()).min());
        due.map_or(Moment::NEVER, |due| host.clock.moment_of(due))
    }

    pub(super) fn edge_timeout(&mut self, index: usize) {
        self.with_edge(index, |process, now| {
            process.broker.handle_timeout(now);
            process.door.handle_timeout(now);
        });
    }

    /// Does something with an edge's process, if it runs, by its own clock.
    pub(super) fn with_edge<R>(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut EdgeProcess, Instant) -> R,
    ) -> Option<R> {
        self.touch(Node::Edge(index));
        let host = &mut self.edges[index];
        let now = host.clock.monotonic(self.now);
        host.process.as_mut().map(|process| f(process, now))
    }

    pub(super) fn drain_edge(&mut self, index: usize) {
        while let Some(process) = &mut self.edges[index].process {
            let Some(output) = process.broker.poll_output() else { break };
            self.on_edge(index, output);
        }
        self.drain_door(index);
    }

    fn on_edge(&mut self, index: usize, output: EdgeOutput) {
        let now = self.now;
        let Some(process) = &mut self.edges[index].process else { return };
        match output {
            EdgeOutput::Send { link: connection, message } => {
                let Some((link, _)) = process.connections.get(&connection) else { return };
                self.links[*link].link.send(now, Side::Edge, connection, encoded(&message));
                let link = *link;
                self.touch(Node::Link(link));
            }
            EdgeOutput::Close { link: connection } => {
                let Some((link, _)) = process.connections.remove(&connection) else { return };
                self.links[link].link.close(now, Side::Edge, connection);
                self.touch(Node::Link(link));
            }
            EdgeOutput::Attach { subscription, camera, log } => {
                process.logs.insert(camera.clone(), log.clone());
                self.attach(subscription, camera, log);
            }
            EdgeOutput::AttachChains { subscription, camera, log, kinds } => {
                self.attach_chains(subscription, &camera, (log, kinds));
            }
            EdgeOutput::Came { camera } => {
                for application in 0..self.applications.len() {
                    let known = &self.applications[application];
                    if known.spec.chains && known.reads(index, &camera) {
                        self.touch(Node::Application(application));
                    }
                }
            }
            EdgeOutput::Decode { camera, link, frame } => self.decode(index, camera, link, *frame),
            EdgeOutput::Appended { camera } => {
                let run = process.run;
                // Several frames may have entered at once; each is told of.
                let place = process.appended.entry(camera.clone()).or_default();
                let record = process.logs.get(&camera).and_then(|log| log.get(*place));
                *place += 1;
                let Some(record) = record else {
                    return self.checks.unasked(&camera);
                };
                self.trace.record(now, What::Appended { edge: index, frame: record.frame.meta.id });
                let owner = Owner::Edge(index, camera.clone());
                self.enter_log(&owner, record.frame.meta.id, &record.frame.payload);
                self.checks.appended(run, &camera, &record);
                for application in 0..self.applications.len() {
                    if self.applications[application].reads(index, &camera) {
                        self.touch(Node::Application(application));
                    }
                }
            }
            EdgeOutput::Started { camera, link, .. } => {
                self.with_edge(index, |process, _| process.holders.insert(camera, link));
            }
            EdgeOutput::Ended { subscription, .. } => self.end_reset(subscription),
            EdgeOutput::History { request, answer } => self.past_answered(index, request, answer),
            EdgeOutput::ViewChanged { camera } => {
                for application in 0..self.applications.len() {
                    let known = &self.applications[application];
                    if known.reads(index, &camera) && !known.spec.contract.asks_nothing() {
                        self.touch(Node::Application(application));
                    }
                }
            }
            EdgeOutput::CameraChanged { camera, up, .. } => {
                self.trace.record(now, What::CameraChanged { edge: index, up });
                if up {
                    self.keep_log(index, &camera);
                }
            }
        }
    }

    // ---- the link -----------------------------------------------------------------------------------------

    pub(super) fn on_link_at_edge(&mut self, index: usize, output: LinkOutput) {
        // Every camera of a link dials the same edge.
        let Some(camera) = self.cameras.iter().find(|camera| camera.link == index) else { return };
        let edge = camera.spec.edge.0;
        let at = self.now;
        match output {
            LinkOutput::Knocked { connection, owner } => {
                let Some(camera) = self.owners.get(&owner) else { return };
                self.knocked(edge, index, *camera, connection);
            }
            LinkOutput::Accepted { connection, owner } => {
                let Some(&camera) = self.owners.get(&owner) else { return };
                if !self.proved(edge, index, camera, connection) {
                    return;
                }
                let camera = &self.cameras[camera];
                // A certificate is for a name, whoever claims it.
                let cameras: Vec<CameraPattern> = camera.name.as_str().parse().into_iter().collect();
                let peer = Peer { identity: camera.identity.clone(), cameras };
                self.trace.record(at, What::Accepted { edge, link: connection });
                self.with_edge(edge, |process, now| {
                    process.connections.insert(connection, (index, MessageBuffer::default()));
                    process.broker.handle_connected(now, connection, peer);
                });
            }
            LinkOutput::Message { connection, bytes, .. } => {
                self.said(edge, connection);
                self.edge_hears(edge, connection, &bytes);
            }
            LinkOutput::FrameOpened { connection, header } => {
                self.frame_opens(edge, index, connection, &header)
            }
            LinkOutput::FrameProgress { frame, .. } if request_of(frame).is_some() => {}
            LinkOutput::FrameProgress { connection, frame, bytes } => {
                self.with_edge(edge, |process, now| {
                    process.broker.handle_frame_progress(now, connection, frame, bytes);
                });
            }
            LinkOutput::FrameFinished { connection, frame, payload } if request_of(frame).is_some() => {
                let request = request_of(frame).unwrap_or_default();
                self.past_arrived(edge, connection, request, Some(payload));
            }
            LinkOutput::FrameFinished { connection, frame, payload } => {
                self.trace.record(at, What::Arrived { edge, link: connection, frame });
                let payload = match self.bug {
                    Some(Bug::AlteredBytes) if frame.sequence.0 % 7 == 6 => altered(&payload),
                    _ => received(&payload),
                };
                let camera = self.cameras.iter().find(|camera| camera.link == index);
                if let (Some(camera), Some(process)) = (camera, &self.edges[edge].process) {
                    self.checks.whole(process.run, &camera.name, frame);
                }
                self.with_edge(edge, |process, now| {
                    process.broker.handle_frame_complete(now, connection, frame, payload);
                });
            }
            LinkOutput::FrameCancelled { connection, frame } if request_of(frame).is_some() => {
                self.past_arrived(edge, connection, request_of(frame).unwrap_or_default(), None);
            }
            LinkOutput::FrameCancelled { connection, frame } => {
                self.trace.record(at, What::Cancelled { edge, link: connection, frame });
                self.with_edge(edge, |process, now| {
                    process.broker.handle_frame_cancelled(now, connection, frame);
                });
            }
            LinkOutput::Closed { connection, .. } => {
                self.trace.record(at, What::EdgeClosed { edge, link: connection });
                self.said(edge, connection);
                self.with_edge(edge, |process, now| process.close(now, connection));
            }
            LinkOutput::Dialled { .. }
            | LinkOutput::DialFailed { .. }
            | LinkOutput::FrameSent { .. }
            | LinkOutput::FrameLeft { .. }
            | LinkOutput::FrameStopped { .. } => {}
        }
    }

    fn frame_opens(&mut self, edge: usize, link: usize, connection: LinkId, header: &Bytes) {
        let mut header = match FrameHeader::decode(header) {
            Ok(header) => header,
            Err(error) => return self.checks.garbled("a header", &error),
        };
        if self.bug == Some(Bug::LostSkipRanges) {
            header.skipped.clear();
        }
        let (frame, past) = (header.meta.id, header.history);
        let taken = self.with_edge(edge, |process, now| {
            process.connections.contains_key(&connection)
                && process.broker.handle_frame_header(now, connection, header).is_ok()
        });
        let taken = taken == Some(true);
        self.trace.record(self.now, What::Opened { edge, link: connection, frame, taken });
        if !taken {
            let stream = if past > 0 { past_stream(past) } else { frame };
            self.links[link].link.stop(self.now, connection, stream);
            self.touch(Node::Link(link));
        }
    }

    fn edge_hears(&mut self, edge: usize, connection: LinkId, bytes: &Bytes) {
        let bug = self.bug;
        let heard = self.with_edge(edge, |process, now| {
            let (_, buffer) = process.connections.get_mut(&connection)?;
            buffer.push(bytes);
            loop {
                match buffer.next() {
                    Ok(Some(Message::Hello(hello))) if bug == Some(Bug::EpochUnbounded) => {
                        believe(&mut process.broker, now, connection, hello);
                    }
                    Ok(Some(Message::Pong { t1, t2, t3 })) if bug == Some(Bug::ClockWrong) => {
                        let message = Message::Pong { t1, t2: t2 + ms(30), t3: t3 + ms(30) };
                        process.broker.handle_message(now, connection, message);
                    }
                    Ok(Some(message)) => process.broker.handle_message(now, connection, message),
                    Ok(None) => return Some(Ok(())),
                    Err(error) => return Some(Err(error)),
                }
            }
        });
        match heard.flatten() {
            Some(Ok(())) => {
                self.trace.record(self.now, What::ToEdge { edge, link: connection, kind: bytes[4] })
            }
            Some(Err(error)) => self.checks.garbled("a camera's message", &error),
            None => {}
        }
    }
}

fn altered(payload: &Bytes) -> Bytes {
    let mut bytes = payload.to_vec();
    bytes[0] ^= 1;
    bytes.into()
}
