//! Applies faults and other changes to a running world.

use super::events::Event;
use super::{ApplicationId, CameraId, EdgeId, Failure, Node, World};
use crate::disk::Faults;
use crate::link::Link;
use crate::time::{Moment, secs};
use crate::trace::What;

/// What a camera host remembers of its epoch counter at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// All of it.
    Kept,
    /// All but the last write, so that the last epoch comes again.
    LastWriteLost,
    /// Nothing: the disk was replaced.
    Lost,
}

/// A host with clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A camera's.
    Camera(CameraId),
    /// An edge's.
    Edge(EdgeId),
}

/// A fault, its end, or a change of what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing passes on the camera's link, and no connection is closed.
    Cut(CameraId),
    /// The link carries again.
    Restore(CameraId),
    /// The link carries this many bits per second from now on. If the link shares a medium, the rate holds for all links of a queue
    /// together, or for the camera's station on Wi-Fi.
    Rate(CameraId, u64),
    /// The link carries its specified rate divided by this. 1 is all of it.
    Slow(CameraId, u64),
    /// All connections of the camera's link end, and both sides know.
    Break(CameraId),
    /// The camera broker's process is killed, with its log.
    KillCamera(CameraId),
    /// The camera broker's process starts.
    StartCamera(CameraId, Counter),
    /// The edge broker's process is killed, with its replica logs.
    KillEdge(EdgeId),
    /// The edge broker's process starts. Its applications subscribe again.
    StartEdge(EdgeId),
    /// The wall clock is set forwards by this many seconds, or backwards if negative.
    StepWall(Host, i64),
    /// The host's processes stand still, as on a host without a free processor. What comes for them waits.
    Freeze(Host),
    /// The host's processes continue.
    Thaw(Host),
    /// The host loses its power. Its process is gone, and anything may be left of what was not synced to its disk.
    CutPower(Host),
    /// The host's disk has this fault from now on, or none.
    Disk(Host, Faults),
    /// The application takes no more frames.
    Stall(ApplicationId),
    /// The application takes frames again.
    Resume(ApplicationId),
    /// The application subscribes.
    Subscribe(ApplicationId),
    /// The application unsubscribes.
    Unsubscribe(ApplicationId),
    /// The camera stops publishing.
    Silence(CameraId),
    /// The camera publishes again.
    Publish(CameraId),
    /// A thief of a camera's identity ([`World::thief`]) begins to dial, with this epoch.
    Claim(CameraId, u64),
    /// The thief ends its connections, and is gone.
    Leave(CameraId),
    /// The edge is killed, and starts with a state file that holds an epoch of the camera that no other can follow. No edge with bounds writes such a
    /// state.
    Poison(CameraId),
    /// The operator of the edge resets the camera.
    Reset(CameraId),
    /// Every fault ends: links carry, processes run but for rivals, applications subscribe and take frames.
    Heal,
}

impl World {
    /// Plans an action for a moment from the beginning.
    pub fn at(&mut self, moment: Moment, action: Action) -> &mut Self {
        self.events.push(moment, Event::Action(action));
        self
    }

    /// Does something now.
    ///
    /// # Panics
    /// At the first breach of a rule, with a [`Failure`].
    pub fn act(&mut self, action: Action) -> &mut Self {
        if let Err(failure) = self.act_or_fail(action) {
            panic!("{failure}");
        }
        self
    }

    /// Does something now, unless that breaks a rule.
    pub fn act_or_fail(&mut self, action: Action) -> Result<(), Box<Failure>> {
        self.apply(action);
        self.settle();
        self.failure().map_or(Ok(()), |failure| Err(Box::new(failure)))
    }

    pub(super) fn apply(&mut self, action: Action) {
        // Setting a wall clock must change nothing, not even the trace.
        match action {
            Action::StepWall(..) => self.wall_steps += 1,
            _ => {
                self.actions += 1;
                self.trace.record(self.now, What::Action(self.actions));
            }
        }
        let now = self.now;
        match action {
            Action::Cut(camera) => self.change_link(camera, |link| link.cut(now)),
            Action::Restore(camera) => self.change_link(camera, |link| link.restore(now)),
            Action::Break(camera) => self.change_link(camera, |link| link.break_all(now)),
            Action::Rate(camera, bits_per_second) => self.set_link_rate(camera.0, bits_per_second),
            Action::Slow(camera, divisor) => {
                let bits_per_second = self.made_with_rate(camera.0);
                self.set_link_rate(camera.0, bits_per_second / divisor.max(1));
            }
            Action::KillCamera(camera) => self.kill_camera(camera.0),
            Action::StartCamera(camera, counter) => self.start_camera(camera.0, counter),
            Action::KillEdge(edge) => self.kill_edge(edge.0),
            Action::StartEdge(edge) => self.start_edge(edge.0),
            Action::StepWall(host, seconds) => {
                let clock = match host {
                    Host::Camera(camera) => &mut self.cameras[camera.0].clock,
                    Host::Edge(edge) => &mut self.edges[edge.0].clock,
                };
                clock.step_wall(seconds * secs(1).as_nanos() as i64);
            }
            Action::Freeze(Host::Camera(camera)) => {
                self.disturb(camera.0);
                let link = self.cameras[camera.0].link;
                self.links[link].frozen.get_or_insert_default();
            }
            Action::Freeze(Host::Edge(edge)) => {
                self.disturb_edge(edge.0);
                self.edges[edge.0].frozen.get_or_insert_default();
            }
            Action::Thaw(Host::Camera(camera)) => {
                self.disturb(camera.0);
                self.thaw_camera_host(self.cameras[camera.0].link);
            }
            Action::Thaw(Host::Edge(edge)) => self.thaw_edge(edge.0),
            Action::CutPower(host) => self.cut_power(host),
            Action::Disk(host, faults) => self.set_disk_faults(host, faults),
            Action::Stall(application) => {
                self.applications[application.0].stalled = true;
                self.stand_still(application.0);
            }
            Action::Resume(application) => self.go_on(application.0),
            Action::Subscribe(application) => self.subscribe(application.0),
            Action::Unsubscribe(application) => self.unsubscribe(application.0),
            Action::Silence(camera) => self.cameras[camera.0].publishing = false,
            Action::Publish(camera) => {
                self.cameras[camera.0].publishing = true;
                self.disturb(camera.0);
            }
            Action::Claim(thief, epoch) => self.claim(thief.0, epoch),
            Action::Leave(thief) => self.leave(thief.0),
            Action::Poison(camera) => self.poison(camera.0),
            Action::Reset(camera) => self.reset(camera.0),
            Action::Heal => self.heal(),
        }
    }

    /// Applies a fault to a camera's link.
    fn change_link(&mut self, camera: CameraId, change: impl FnOnce(&mut Link)) {
        self.disturb(camera.0);
        let link = self.cameras[camera.0].link;
        change(&mut self.links[link].link);
        self.touch(Node::Link(link));
    }

    /// Lets an application that stood still take frames again.
    fn go_on(&mut self, application: usize) {
        self.applications[application].stalled = false;
        self.applications[application].ready_since = self.now;
        self.let_go(application);
        self.touch(Node::Application(application));
    }

    pub(super) fn is_frozen(&self, node: Node) -> bool {
        match node {
            Node::Camera(index) => self.links[self.cameras[index].link].frozen.is_some(),
            Node::Edge(index) => self.edges[index].frozen.is_some(),
            Node::Link(_) | Node::Medium(_) | Node::Application(_) => false,
        }
    }

    pub(super) fn thaw_camera_host(&mut self, link: usize) {
        for output in self.links[link].frozen.take().unwrap_or_default() {
            self.on_link(link, output);
            self.settle();
        }
        for index in 0..self.cameras.len() {
            if self.cameras[index].link == link
                && let Some(run) = self.cameras[index].process.as_ref().map(|process| process.run)
            {
                self.tell(index, run);
            }
        }
    }

    fn thaw_edge(&mut self, edge: usize) {
        self.disturb_edge(edge);
        for (link, output) in self.edges[edge].frozen.take().unwrap_or_default() {
            self.on_link(link, output);
            self.settle();
        }
        self.touch(Node::Edge(edge));
    }

    fn heal(&mut self) {
        for index in 0..self.edges.len() {
            self.set_disk_faults(Host::Edge(EdgeId(index)), Faults::default());
            self.thaw_edge(index);
            if self.edges[index].process.is_none() {
                self.start_edge(index);
            }
        }
        for index in 0..self.cameras.len() {
            self.set_disk_faults(Host::Camera(CameraId(index)), Faults::default());
            if self.cameras[index].robs.is_some() {
                self.leave(index);
                continue;
            }
            if self.cameras[index].is_rival {
                self.kill_camera(index);
                continue;
            }
            self.set_link_rate(index, self.made_with_rate(index));
            self.thaw_camera_host(self.cameras[index].link);
            self.links[self.cameras[index].link].link.restore(self.now);
            self.cameras[index].publishing = true;
            if self.cameras[index].process.is_none() {
                self.start_camera(index, Counter::Kept);
            }
        }
        for index in 0..self.cameras.len() {
            if self.cameras[index].robs.is_none() && self.is_poisoned(index) {
                self.reset(index);
            }
        }
        for index in 0..self.applications.len() {
            if self.applications[index].stalled {
                self.apply(Action::Resume(ApplicationId(index)));
            }
            if !self.applications[index].wants && !self.applications[index].ended {
                self.subscribe(index);
            }
        }
    }

    /// Notes that a fault touched a camera's path. Its time to recover begins now.
    pub(super) fn disturb(&mut self, camera: usize) {
        let link = self.cameras[camera].link;
        for camera in self.cameras.iter_mut().filter(|camera| camera.link == link) {
            camera.disturbed = self.now;
        }
    }

    // ---- the same, as words of a story --------------------------------------------------------------------

    /// [`Action::Cut`].
    pub fn cut(&mut self, camera: CameraId) -> &mut Self {
        self.act(Action::Cut(camera))
    }

    /// [`Action::Restore`].
    pub fn restore(&mut self, camera: CameraId) -> &mut Self {
        self.act(Action::Restore(camera))
    }

    /// [`Action::Rate`].
    pub fn rate(&mut self, camera: CameraId, bits_per_second: u64) -> &mut Self {
        self.act(Action::Rate(camera, bits_per_second))
    }

    /// [`Action::KillCamera`] and, a moment later, [`Action::StartCamera`].
    pub fn restart_camera(&mut self, camera: CameraId, counter: Counter) -> &mut Self {
        self.act(Action::KillCamera(camera)).act(Action::StartCamera(camera, counter))
    }

    /// [`Action::KillEdge`] and, a moment later, [`Action::StartEdge`].
    pub fn restart_edge(&mut self, edge: EdgeId) -> &mut Self {
        self.act(Action::KillEdge(edge)).act(Action::StartEdge(edge))
    }

    /// [`Action::Subscribe`].
    pub fn subscribe_again(&mut self, application: ApplicationId) -> &mut Self {
        self.act(Action::Subscribe(application))
    }
}
