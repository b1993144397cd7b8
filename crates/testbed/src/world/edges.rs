//! Makes the edges of a world, and passes on what happens to them.

use mez_core::broker::edge::Peer;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::units::Instant;

use super::edge::{EdgeHost, EdgeProcess, Effect, Opened, Readers};
use super::past::request_of;
use super::stage::{Stage, stage};
use super::storage::Owner;
use super::{EdgeId, EdgeSpec, Node, World};
use crate::link::{LinkOutput, Side};
use crate::trace::What;

impl World {
    /// One more edge, whose broker runs.
    pub fn edge(&mut self, spec: EdgeSpec) -> EdgeId {
        let clock = spec.clock.unwrap_or_else(|| self.draw_clock());
        let index = self.edges.len();
        self.edges.push(EdgeHost::new(index, spec, clock, self.now));
        self.start_edge(index);
        self.settle();
        EdgeId(index)
    }

    pub(super) fn start_edge(&mut self, index: usize) {
        self.kill_edge(index);
        let run = self.next_run();
        let (edge, stage) = self.edge_at(index);
        edge.start(run, &stage);
        self.take_up_poison(index);
        self.with_edge(index, |process, now| process.broker.handle_started(now));
        let (edge, mut stage) = self.edge_at(index);
        edge.take_up_logs(run, &mut stage);
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

    fn links_of(&self, edge: usize) -> Vec<usize> {
        let cameras = self.cameras.iter().filter(|camera| camera.spec.edge.0 == edge);
        let mut links: Vec<usize> = cameras.map(|camera| camera.link).collect();
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

    /// An edge, and the stage.
    fn edge_at(&mut self, index: usize) -> (&mut EdgeHost, Stage<'_>) {
        (&mut self.edges[index], stage!(self))
    }

    /// Does something with an edge's process if it runs, at the time of its own clock.
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

    /// Does something with an edge that may give its broker something to say.
    fn with_edge_host(&mut self, index: usize, f: impl FnOnce(&mut EdgeHost, &mut Stage<'_>)) {
        let (edge, mut stage) = self.edge_at(index);
        f(edge, &mut stage);
        self.touch(Node::Edge(index));
    }

    pub(super) fn edge_timeout(&mut self, index: usize) {
        self.with_edge(index, |process, now| {
            process.broker.handle_timeout(now);
            process.door.handle_timeout(now);
        });
    }

    /// Carries out what an edge's broker wants done.
    pub(super) fn drain_edge(&mut self, index: usize) {
        loop {
            let (edge, mut stage) = self.edge_at(index);
            let Some(output) = edge.poll_output() else { break };
            let effect = edge.carry_out(output, &mut stage);
            self.see_to(index, effect);
        }
        self.drain_door(index);
    }

    fn see_to(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Send { link, connection, message } => {
                self.links[link].link.send(self.now, Side::Edge, connection, message);
                self.touch(Node::Link(link));
            }
            Effect::Close { link, connection } => {
                self.links[link].link.close(self.now, Side::Edge, connection);
                self.touch(Node::Link(link));
            }
            Effect::Attach { subscription, camera, log } => self.attach(subscription, camera, log),
            Effect::AttachChains { subscription, camera, chains } => {
                self.attach_chains(subscription, &camera, chains);
            }
            Effect::Entered { camera, frame, payload } => {
                self.enter_log(&Owner::Edge(index, camera.clone()), frame, &payload);
                self.wake_readers(index, &camera, None);
            }
            Effect::Wake { camera, of } => self.wake_readers(index, &camera, Some(of)),
            Effect::Again => self.touch(Node::Edge(index)),
            Effect::Ended { subscription } => self.end_reset(subscription),
            Effect::Answered { request, answer } => self.past_answered(index, request, answer),
        }
    }

    /// Wakes all or some of the applications that read a camera.
    fn wake_readers(&mut self, edge: usize, camera: &CameraName, of: Option<Readers>) {
        for application in 0..self.applications.len() {
            let known = &self.applications[application];
            let concerned = match of {
                None => true,
                Some(Readers::OfChains) => known.spec.chains,
                Some(Readers::WithContract) => !known.spec.contract.asks_nothing(),
            };
            if concerned && known.reads(edge, camera) {
                self.touch(Node::Application(application));
            }
        }
    }

    /// An edge's decoder is done with the oldest frame of a camera that it was given.
    pub(super) fn decoded(&mut self, edge: usize, run: u64, camera: &CameraName, fails: bool) {
        let (host, mut stage) = self.edge_at(edge);
        if !host.handle_decoded(run, camera, fails, &mut stage) {
            return;
        }
        for index in (0..self.cameras.len()).filter(|_| fails) {
            if self.cameras[index].name == *camera {
                self.disturb(index);
            }
        }
        self.touch(Node::Edge(edge));
    }

    // ---- the link -----------------------------------------------------------------------------------------

    pub(super) fn on_link_at_edge(&mut self, index: usize, output: LinkOutput) {
        // Every camera of a link dials the same edge.
        let Some(camera) = self.cameras.iter().find(|camera| camera.link == index) else { return };
        let (edge, name) = (camera.spec.edge.0, camera.name.clone());
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
                // A certificate holds for a name, whichever process presents it.
                let cameras: Vec<CameraPattern> = camera.name.as_str().parse().into_iter().collect();
                let peer = Peer { identity: camera.identity.clone(), cameras };
                self.with_edge_host(edge, |edge, stage| edge.handle_accepted(connection, index, peer, stage));
            }
            LinkOutput::Message { connection, bytes, .. } => {
                self.said(edge, connection);
                self.with_edge_host(edge, |edge, stage| edge.handle_bytes(connection, &bytes, stage));
            }
            LinkOutput::FrameOpened { connection, header } => {
                let (host, mut stage) = self.edge_at(edge);
                let opened = host.handle_opened(connection, &header, &mut stage);
                if opened != Opened::Garbled {
                    self.touch(Node::Edge(edge));
                }
                if let Opened::Stopped(stream) = opened {
                    self.links[index].link.stop(self.now, connection, stream);
                    self.touch(Node::Link(index));
                }
            }
            LinkOutput::FrameProgress { connection, frame, bytes } if request_of(frame).is_none() => {
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_progress(connection, frame, bytes, stage)
                });
            }
            LinkOutput::FrameFinished { connection, frame, payload } => {
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_finished(&name, connection, frame, &payload, stage);
                })
            }
            LinkOutput::FrameCancelled { connection, frame } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_cancelled(connection, frame, stage));
            }
            LinkOutput::Closed { connection, .. } => {
                self.trace.record(self.now, What::EdgeClosed { edge, link: connection });
                self.said(edge, connection);
                self.with_edge_host(edge, |edge, stage| edge.handle_closed(connection, stage));
            }
            LinkOutput::FrameProgress { .. }
            | LinkOutput::Dialled { .. }
            | LinkOutput::DialFailed { .. }
            | LinkOutput::FrameSent { .. }
            | LinkOutput::FrameLeft { .. }
            | LinkOutput::FrameStopped { .. } => {}
        }
    }
}
