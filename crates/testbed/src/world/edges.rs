//! Creates the edges of a world, and passes events to them.

use mez_core::broker::LinkId;
use mez_core::broker::edge::{Peer, SubscriptionId};
use mez_core::name::{CameraName, CameraPattern};

use super::edge::{EdgeHost, Effect, Opened, Readers};
use super::events::{Event, VisitStep};
use super::spec::{AttackSpec, EdgeId, EdgeSpec, RightsId, VisitorId, VisitorSpec};
use super::stage::{Stage, stage};
use super::{Bug, Node, World, visitors};
use crate::link::{LinkOutput, Side, request_of};
use crate::time::Moment;
use crate::trace::What;

impl World {
    /// Creates another edge, whose broker runs.
    pub fn edge(&mut self, spec: EdgeSpec) -> EdgeId {
        let clock = spec.clock.unwrap_or_else(|| self.draw_clock());
        let index = self.edges.len();
        self.checks.rights_changed(index, &spec.rights);
        let member = format!("edge/e{index}").parse().expect("it is a member");
        let certificate = self.site.issue(self.now, &member);
        self.edges.push(EdgeHost::new(index, spec, clock, certificate, self.now));
        self.start_edge(index);
        self.settle();
        EdgeId(index)
    }

    /// Plans an attack on an edge's door, beginning at `from`.
    pub fn attack(&mut self, from: Moment, spec: AttackSpec) -> &mut Self {
        self.events.push(from, Event::Attack(spec));
        self
    }

    /// Plans a visitor that connects to an edge again and again.
    pub fn visitor(&mut self, spec: VisitorSpec) -> VisitorId {
        self.visitors.add(spec, &mut stage!(self))
    }

    /// How often a visitor was admitted, and how often it was turned away.
    pub fn visits(&self, visitor: VisitorId) -> (u64, u64) {
        self.visitors.visits(visitor)
    }

    pub(super) fn start_edge(&mut self, index: usize) {
        self.kill_edge(index);
        let run = self.next_run();
        let (edge, mut stage) = self.edge_at(index);
        stage.checks.edge_goes_on(index);
        edge.start(run, &mut stage);
        for link in self.links_of(index) {
            self.network.change(link, &mut stage!(self), |link| link.edge_listens());
        }
        self.disturb_edge(index);
        self.look_at_members();
        self.touch(Node::Edge(index));
        for application in 0..self.applications.len() {
            if self.applications[application].spec.edge.0 == index && self.applications[application].wants {
                self.subscribe(application);
            }
        }
    }

    pub(super) fn kill_edge(&mut self, index: usize) {
        let (edge, mut stage) = self.edge_at(index);
        if !edge.stop(&mut stage) {
            return;
        }
        stage.checks.edge_stands_still(index);
        self.visitors.handle_edge_lost(EdgeId(index), &mut stage!(self));
        for link in self.links_of(index) {
            self.network.change(link, &mut stage!(self), |link| link.lose_edge());
        }
        for application in 0..self.applications.len() {
            if self.applications[application].spec.edge.0 == index {
                self.applications[application].lose_edge(&mut stage!(self));
            }
        }
        for group in 0..self.groups.len() {
            if self.groups[group].spec.edge.0 == index {
                self.groups[group].lose_edge(&mut stage!(self));
            }
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
        self.edges[edge].disturb(self.now);
        for camera in 0..self.cameras.len() {
            if self.cameras[camera].spec.edge.0 == edge {
                self.disturb(camera);
            }
        }
    }

    /// Continues a frozen edge: it processes what has arrived meanwhile.
    pub(super) fn thaw_edge(&mut self, edge: usize) {
        self.disturb_edge(edge);
        if self.edges[edge].process.is_some() {
            self.checks.edge_goes_on(edge);
        }
        for (link, output) in self.edges[edge].thaw() {
            self.on_link(link, output);
            self.settle();
        }
        self.touch(Node::Edge(edge));
    }

    /// Restarts a camera's edge with a state that contains an epoch of the camera beyond all bounds.
    pub(super) fn poison(&mut self, camera: usize) {
        let host = &self.cameras[camera];
        let edge = host.spec.edge.0;
        self.edges[edge].poison(&host.name);
        self.kill_edge(edge);
        self.start_edge(edge);
    }

    /// Resets a camera, as `mez cameras reset` does.
    pub(super) fn reset(&mut self, camera: usize) {
        let (edge, name) = (self.cameras[camera].spec.edge.0, self.cameras[camera].name.clone());
        let (host, mut stage) = self.edge_at(edge);
        if !host.handle_reset(&name, &mut stage) {
            return;
        }
        self.drain_edge(edge);
        // A real reading of the past alone continues with the put-aside log. Here the application subscribes again.
        for application in 0..self.applications.len() {
            let known = &self.applications[application];
            let is_past = known.reading.as_ref().is_some_and(|(_, reading)| reading.span().end.is_some());
            if is_past && known.reads(edge, &name) {
                self.subscribe(application);
            }
        }
        self.disturb_edge(edge);
    }

    /// A camera's reset has ended a subscription. The application or group subscribes again, as clients do.
    fn end_reset(&mut self, subscription: SubscriptionId, camera: &CameraName) {
        if let Some(group) = self.group_of(subscription) {
            self.with_group(group, |group, edge, stage| group.handle_reset(camera, edge, stage));
            return self.open_group(group);
        }
        if let Some(application) = self.application_of(subscription) {
            self.trace.record(self.now, What::Ended { application });
            self.subscribe(application);
        }
    }

    /// Replaces an edge's rights. Streams check them, and refused clients ask again.
    pub(super) fn set_rights(&mut self, edge: usize, rights: RightsId) {
        let rights = self.rights[rights.0].clone();
        self.checks.rights_changed(edge, &rights);
        if self.bug != Some(Bug::RightsNotReadAgain) {
            self.edges[edge].rights.set(rights);
        }
        self.edges[edge].disturb(self.now);
        for application in 0..self.applications.len() {
            if self.applications[application].spec.edge.0 == edge {
                self.look_at_rights(application);
            }
        }
        for group in 0..self.groups.len() {
            if self.groups[group].spec.edge.0 == edge {
                self.look_at_rights_of_group(group);
            }
        }
    }

    /// An edge, and the stage.
    pub(super) fn edge_at(&mut self, index: usize) -> (&mut EdgeHost, Stage<'_>) {
        (&mut self.edges[index], stage!(self))
    }

    /// Calls `f` with an edge, whose broker may then have outputs.
    pub(super) fn with_edge_host(&mut self, index: usize, f: impl FnOnce(&mut EdgeHost, &mut Stage<'_>)) {
        let (edge, mut stage) = self.edge_at(index);
        f(edge, &mut stage);
        self.touch(Node::Edge(index));
    }

    /// An attacker opens a connection at an edge's door.
    pub(super) fn attacked(&mut self, spec: AttackSpec) {
        let (edge, mut stage) = self.edge_at(spec.edge.0);
        visitors::attack(spec, edge, &mut stage);
    }

    /// A visit at an edge's door advances one step.
    pub(super) fn visited(&mut self, visitor: usize, attempt: u64, step: VisitStep) {
        let edge = &mut self.edges[self.visitors.edge_of(visitor).0];
        self.visitors.handle_step((visitor, attempt), step, edge, &mut stage!(self));
    }

    /// Processes the outputs of an edge's broker and of its door.
    pub(super) fn drain_edge(&mut self, index: usize) {
        loop {
            let (edge, mut stage) = self.edge_at(index);
            let Some(output) = edge.poll_output() else { break };
            let effect = edge.carry_out(output, &mut stage);
            self.see_to(index, effect);
        }
        loop {
            let (edge, mut stage) = self.edge_at(index);
            let Some(effect) = edge.poll_door(&mut stage) else { break };
            self.see_to(index, effect);
        }
    }

    fn see_to(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Nothing => {}
            Effect::Send { link, connection, message } => {
                let now = self.now;
                self.network.change(link, &mut stage!(self), |link| {
                    link.send(now, Side::Edge, connection, message);
                });
            }
            Effect::SendAnswer { link, connection, frame, of } => {
                let (now, from) = (self.now, (Side::Edge, connection));
                let unsent = self.network.link(link).unsent_frames(Side::Edge, connection);
                self.checks.answer_goes(connection, frame, unsent);
                self.network.change(link, &mut stage!(self), |link| link.send_frame(now, from, frame, of));
            }
            Effect::ResetAnswer { link, connection, frame } => {
                let now = self.now;
                self.network.change(link, &mut stage!(self), |link| {
                    link.reset(now, (Side::Edge, connection), frame);
                });
            }
            Effect::Close { link, connection } => self.close_at_edge(link, connection),
            Effect::Attach { subscription, camera, log } => {
                if let Some(application) = self.application_of(subscription) {
                    self.applications[application].handle_attach(camera, log, &mut stage!(self));
                } else if let Some(group) = self.group_of(subscription) {
                    self.with_group(group, |group, edge, stage| {
                        group.handle_attach(camera, log, edge, stage)
                    });
                }
            }
            Effect::Wake { camera, of } => self.wake_readers(index, &camera, of),
            Effect::Again => self.touch(Node::Edge(index)),
            Effect::TurnedAway { visitor } => self.visitors.handle_turned_away(visitor, &mut stage!(self)),
            Effect::Ended { subscription, camera } => self.end_reset(subscription, &camera),
            Effect::Answered { request, answer } => self.answered(index, request, answer),
            Effect::ListChanged => self.list_changed(index),
        }
    }

    fn close_at_edge(&mut self, link: usize, connection: LinkId) {
        self.network.close(link, Side::Edge, connection, &mut stage!(self));
    }

    /// Wakes all or some of the applications and groups that read a camera.
    fn wake_readers(&mut self, edge: usize, camera: &CameraName, of: Readers) {
        for application in 0..self.applications.len() {
            let known = &self.applications[application];
            let concerned = match of {
                Readers::All => true,
                Readers::WithContract => !known.spec.contract.asks_nothing(),
            };
            if concerned && known.reads(edge, camera) {
                self.touch(Node::Application(application));
            }
        }
        for group in 0..self.groups.len() {
            if self.groups[group].reads(edge, camera) {
                self.touch(Node::Group(group));
            }
        }
    }

    /// An edge's decoder has finished a frame.
    pub(super) fn decoded(&mut self, edge: usize, run: u64, of: (&CameraName, usize), fails: bool) {
        let (host, mut stage) = self.edge_at(edge);
        if !host.handle_decoded(run, of, fails, &mut stage) {
            return;
        }
        for index in (0..self.cameras.len()).filter(|_| fails) {
            if self.cameras[index].name == *of.0 {
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
                let Some(&camera) = self.owners.get(&owner) else { return };
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_knocked((camera, connection), index, stage);
                });
            }
            LinkOutput::Accepted { connection, owner } => {
                let Some(&camera) = self.owners.get(&owner) else { return };
                self.accepted(edge, camera, connection, index);
            }
            LinkOutput::Message { connection, bytes, .. } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_bytes(connection, &bytes, stage));
            }
            LinkOutput::FrameOpened { to: Side::Edge, connection, header } => {
                let (host, mut stage) = self.edge_at(edge);
                let opened = host.handle_opened(connection, &header, &mut stage);
                if opened != Opened::Garbled {
                    self.touch(Node::Edge(edge));
                }
                if let Opened::Stopped(stream) = opened {
                    let now = self.now;
                    self.network.change(index, &mut stage!(self), |link| {
                        link.stop(now, (Side::Edge, connection), stream);
                    });
                }
            }
            LinkOutput::FrameProgress { to: Side::Edge, connection, frame, bytes }
                if request_of(frame).is_none() =>
            {
                self.checks.bytes_came(&name);
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_progress(connection, frame, bytes, stage)
                });
            }
            LinkOutput::FrameFinished { to: Side::Edge, connection, frame, payload } => {
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_finished(&name, connection, frame, &payload, stage);
                })
            }
            LinkOutput::FrameCancelled { to: Side::Edge, connection, frame } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_cancelled(connection, frame, stage));
            }
            LinkOutput::Closed { connection, .. } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_closed(connection, stage));
            }
            LinkOutput::FrameSent { from: Side::Edge, connection, frame } => {
                self.with_edge_host(edge, |edge, stage| edge.handle_answer_left(connection, frame, stage));
            }
            LinkOutput::FrameLeft { from: Side::Edge, connection, frame, unsent } => {
                self.with_edge_host(edge, |edge, stage| {
                    edge.handle_answer_unsent(connection, frame, unsent, stage);
                });
            }
            // A camera that refuses an answer also says so in a message.
            LinkOutput::FrameStopped { .. }
            | LinkOutput::FrameOpened { .. }
            | LinkOutput::FrameProgress { .. }
            | LinkOutput::FrameFinished { .. }
            | LinkOutput::FrameCancelled { .. }
            | LinkOutput::FrameSent { .. }
            | LinkOutput::FrameLeft { .. }
            | LinkOutput::Dialled { .. }
            | LinkOutput::DialFailed { .. } => {}
        }
    }

    /// A camera's connection over a link has authenticated itself.
    fn accepted(&mut self, edge: usize, camera: usize, connection: LinkId, link: usize) {
        let camera_host = &self.cameras[camera];
        // A certificate is valid for a name, whichever process presents it.
        let cameras: Vec<CameraPattern> = camera_host.name.as_str().parse().into_iter().collect();
        let peer = Peer { identity: camera_host.identity.clone(), cameras };
        let shown = camera_host.certificate.clone();
        let (host, mut stage) = self.edge_at(edge);
        if !host.handle_accepted((camera, connection), link, (peer, &shown), &mut stage) {
            self.close_at_edge(link, connection);
        }
    }
}
