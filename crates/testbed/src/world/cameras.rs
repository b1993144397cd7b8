//! Creates the cameras of a world, and passes events to them.

use mez_core::broker::LinkId;
use mez_core::broker::camera::Transformed;
use mez_core::broker::edge::CameraInfo;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::PastQuery;
use mez_core::name::CameraName;

use super::action::Counter;
use super::camera::{CameraCounts, CameraHost, Effect};
use super::spec::{CameraId, CameraSpec};
use super::stage::{Stage, stage};
use super::{Node, World};
use crate::check::RIVAL_MAX;
use crate::link::{Link, Side};
use crate::time::HostClock;

impl World {
    /// Creates a camera on its own host and link, whose broker runs.
    ///
    /// # Panics
    /// If the medium that the camera shares has no place left.
    pub fn camera(&mut self, name: &str, mut spec: CameraSpec) -> CameraId {
        let random = self.random.split();
        let link = self.network.add_link(&mut spec, random, self.bug);
        let clock = spec.clock.unwrap_or_else(|| self.draw_clock());
        self.camera_on(name, spec, link, clock)
    }

    /// Creates a second process on the host of `beside`, under the same name, with another identity if one is given. The process does not run yet,
    /// and has its own counter of starts.
    pub fn rival(&mut self, beside: CameraId, identity: Option<&str>) -> CameraId {
        let rival = self.second(beside, identity);
        self.cameras[beside.0].handle_rival();
        rival
    }

    /// Creates a host that has a camera's keys and uses its name. The thief dials from [`Action::Claim`](super::Action::Claim) to
    /// [`Action::Leave`](super::Action::Leave), publishes its own frames, and numbers them as the edge asks.
    pub fn thief(&mut self, of: CameraId) -> CameraId {
        let thief = self.second(of, None);
        self.thieves.add(thief.0, of.0);
        self.cameras[thief.0].certificate = self.cameras[of.0].certificate.clone();
        thief
    }

    /// Creates a second process under the name of `beside`.
    fn second(&mut self, beside: CameraId, identity: Option<&str>) -> CameraId {
        let host = &self.cameras[beside.0];
        let identity = identity.map_or_else(|| host.identity.clone(), str::to_owned);
        let (name, link, clock) = (host.name.to_string(), host.link, host.clock);
        let spec = CameraSpec { identity: Some(identity), ..host.spec.clone() };
        let second = self.camera_on(&name, spec, link, clock);
        self.kill_camera(second.0);
        self.cameras[second.0].become_rival();
        second
    }

    /// Counts of what a camera's host has done so far.
    pub fn camera_counts(&self, camera: CameraId) -> CameraCounts {
        self.cameras[camera.0].counts()
    }

    /// The epoch of a camera's process, if it runs.
    pub fn epoch(&self, camera: CameraId) -> Option<u64> {
        self.cameras[camera.0].process.as_ref().map(|process| process.broker.epoch().0)
    }

    /// Whether a camera's process has a connection on which the edge has welcomed it.
    pub fn is_up(&self, camera: CameraId) -> bool {
        self.cameras[camera.0].process.as_ref().is_some_and(|process| process.broker.is_up())
    }

    /// What a camera's edge knows of the camera.
    pub fn camera_info(&self, camera: CameraId) -> Option<CameraInfo> {
        let camera = &self.cameras[camera.0];
        let edge = &self.edges[camera.spec.edge.0];
        let known = edge.process.as_ref()?.broker.cameras(edge.clock.monotonic(self.now));
        known.into_iter().find(|known| known.camera == camera.name)
    }

    /// A camera's counter of starts, as on its disk.
    pub fn persisted_epoch(&self, camera: CameraId) -> u64 {
        self.cameras[camera.0].persisted
    }

    /// Sets a camera's counter of starts on its disk. The next start has the next number.
    pub fn set_persisted_epoch(&mut self, camera: CameraId, epoch: u64) -> &mut Self {
        self.cameras[camera.0].set_persisted(epoch);
        self
    }

    fn camera_on(&mut self, name: &str, spec: CameraSpec, link: usize, clock: HostClock) -> CameraId {
        let index = self.cameras.len();
        let random = self.random.split();
        let name: CameraName = name.parse().expect("scenarios give cameras valid names");
        let member = format!("camera/{name}").parse().expect("it is a member");
        let shown = self.site.issue(self.now, &member);
        let bug = (self.disk_bug, self.now);
        let host = CameraHost::new(index, name, spec, (link, clock), shown, random, bug);
        self.cameras.push(host);
        self.start_camera(index, Counter::Kept);
        self.settle();
        CameraId(index)
    }

    pub(super) fn start_camera(&mut self, index: usize, counter: Counter) {
        self.kill_camera(index);
        let run = self.next_run();
        let (camera, _, mut stage) = self.camera_at(index);
        camera.start(run, counter, &mut stage);
        self.owners.insert(run, index);
        self.disturb(index);
        self.touch(Node::Camera(index));
    }

    pub(super) fn kill_camera(&mut self, index: usize) {
        let (camera, link, mut stage) = self.camera_at(index);
        if let Some(process) = camera.stop(&mut stage) {
            link.lose_owner(process.run);
            let link = camera.link;
            self.thaw_camera_host(link);
            self.disturb(index);
            self.touch(Node::Link(link));
        }
    }

    /// Starts a thief, which dials with this epoch.
    pub(super) fn claim(&mut self, index: usize, epoch: u64) {
        self.leave(index);
        // The start increases the counter by one.
        self.cameras[index].set_persisted(epoch.saturating_sub(1));
        self.start_camera(index, Counter::Kept);
    }

    /// Stops a thief, after it has closed its connections.
    pub(super) fn leave(&mut self, index: usize) {
        if !self.thieves.is_thief(index) {
            return;
        }
        let (camera, link, mut stage) = self.camera_at(index);
        let Some(process) = camera.stop(&mut stage) else { return };
        for connection in process.open_connections() {
            link.close(stage.now, Side::Camera, connection);
        }
        link.give_up_dials(process.run);
        self.touch(Node::Link(self.cameras[index].link));
        if self.cameras[index].is_shut_out {
            // The edge has never accepted this thief.
            return;
        }
        // Data in flight arrives before the close of the connection.
        let (view, _) = self.view();
        let (path, heard) = (view.path(index), view.is_heard(index));
        let told = if heard { (path.queue_time() + path.service_time()) * 2 } else { RIVAL_MAX };
        self.thieves.handle_left(index, self.now + told);
        self.disturb(index);
    }

    /// Notes that a fault touched a camera's path. Its time to recover begins now.
    pub(super) fn disturb(&mut self, camera: usize) {
        self.disturb_link(self.cameras[camera].link);
    }

    /// Notes that a fault touched a link. All cameras on it begin to recover now.
    pub(super) fn disturb_link(&mut self, link: usize) {
        for camera in self.cameras.iter_mut().filter(|camera| camera.link == link) {
            camera.disturb(self.now);
        }
    }

    /// Continues the host at the camera's end of a link: it processes what has arrived meanwhile.
    pub(super) fn thaw_camera_host(&mut self, link: usize) {
        for output in self.network.thaw(link) {
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

    /// A camera, its link, and the stage.
    pub(super) fn camera_at(&mut self, index: usize) -> (&mut CameraHost, &mut Link, Stage<'_>) {
        let camera = &mut self.cameras[index];
        let link = self.network.link_mut(camera.link);
        (camera, link, stage!(self))
    }

    /// Calls `f` with a camera. If `f` returns true, the broker may have outputs, which are then processed.
    pub(super) fn with_camera(
        &mut self,
        index: usize,
        f: impl FnOnce(&mut CameraHost, &mut Stage<'_>) -> bool,
    ) {
        let (camera, _, mut stage) = self.camera_at(index);
        if f(camera, &mut stage) {
            self.touch(Node::Camera(index));
        }
    }

    /// Processes the outputs of a camera's broker.
    pub(super) fn drain_camera(&mut self, index: usize) {
        loop {
            let (camera, link, mut stage) = self.camera_at(index);
            let Some(output) = camera.poll_output() else { break camera.drained(&mut stage) };
            let effect = camera.carry_out(output, link, &mut stage);
            if effect == Effect::Refused {
                let robbed = self.view().0.is_robbed(index);
                let shut_out = self.view().0.is_shut_out(index);
                if shut_out || self.thieves.may_be_refused(&self.cameras[index], robbed, self.now) {
                    self.cameras[index].handle_refused(self.now);
                }
            }
            if effect == Effect::ListChanged {
                self.camera_holds_list(index);
            }
            if effect != Effect::Nothing {
                self.touch(Node::Link(self.cameras[index].link));
            }
        }
    }

    // ---- events of a camera -------------------------------------------------------------------------------

    pub(super) fn publish(&mut self, index: usize, run: u64) {
        let (camera, _, mut stage) = self.camera_at(index);
        if !camera.plan_next(run, &mut stage) || self.is_frozen(Node::Camera(index)) {
            return;
        }
        self.payloads += 1;
        let number = self.payloads;
        let (camera, _, mut stage) = self.camera_at(index);
        camera.publish(number, &mut stage);
    }

    /// The broker's thread learns that the log has grown. The thread of a frozen host is told when it continues.
    pub(super) fn tell(&mut self, index: usize, run: u64) {
        if self.is_frozen(Node::Camera(index)) {
            return;
        }
        let frame_bytes_max = self.edges[self.cameras[index].spec.edge.0].spec.frame_bytes_max as usize;
        self.with_camera(index, |camera, stage| camera.tell(run, frame_bytes_max, stage));
    }

    pub(super) fn raise_epoch(&mut self, index: usize, run: u64, above: Epoch) {
        let (camera, _, mut stage) = self.camera_at(index);
        if camera.raise_epoch(run, above, &mut stage) {
            self.disturb(index);
            self.touch(Node::Camera(index));
        }
    }

    pub(super) fn left_told(&mut self, index: usize, connection: LinkId, frame: FrameId) {
        self.with_camera(index, |camera, stage| {
            camera.tell_left(connection, frame, stage);
            true
        });
    }

    pub(super) fn made(&mut self, index: usize, run: u64, frame: FrameId, made: Transformed) {
        self.with_camera(index, |camera, stage| camera.handle_made(run, frame, made, stage));
    }

    pub(super) fn found(&mut self, index: usize, run: u64, ticket: u64, query: PastQuery) {
        self.with_camera(index, |camera, stage| camera.handle_found(run, ticket, query, stage));
    }

    pub(super) fn past_made(&mut self, index: usize, run: u64, ticket: u64, made: Transformed) {
        self.with_camera(index, |camera, stage| camera.handle_past_made(run, ticket, made, stage));
    }
}
