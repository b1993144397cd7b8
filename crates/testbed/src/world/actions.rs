//! Carries out actions on a running world: each is passed to the part that it concerns.

use super::action::{Action, Counter, Host};
use super::application::Application;
use super::events::Event;
use super::spec::{ApplicationId, CameraId, EdgeId};
use super::stage::stage;
use super::{Failure, World};
use crate::disk::{DiskBug, Faults};
use crate::time::Moment;
use crate::trace::What;

impl World {
    /// Plans an action for a moment, counted from the beginning of the world.
    pub fn at(&mut self, moment: Moment, action: Action) -> &mut Self {
        self.events.push(moment, Event::Action(action));
        self
    }

    /// Plants a bug in the writers and readers of logs on disks that are created from now on.
    pub fn plant_on_disk(&mut self, bug: DiskBug) -> &mut Self {
        self.disk_bug = Some(bug);
        self
    }

    /// Carries out an action now.
    ///
    /// # Panics
    /// At the first breach of a rule, with a [`Failure`].
    pub fn act(&mut self, action: Action) -> &mut Self {
        if let Err(failure) = self.act_or_fail(action) {
            panic!("{failure}");
        }
        self
    }

    /// Carries out an action now, and returns the breach of a rule, if there is one.
    pub fn act_or_fail(&mut self, action: Action) -> Result<(), Box<Failure>> {
        self.apply(action);
        self.settle();
        self.failure().map_or(Ok(()), |failure| Err(Box::new(failure)))
    }

    pub(super) fn apply(&mut self, action: Action) {
        // Stepping a wall clock must change nothing, not even the trace.
        match action {
            Action::StepWall(..) => self.wall_steps += 1,
            _ => {
                self.actions += 1;
                self.trace.record(self.now, What::Action(self.actions));
            }
        }
        let now = self.now;
        match action {
            Action::Cut(camera) => {
                self.change_link(camera.0, |link| link.cut(now));
                self.note_carries(camera.0);
            }
            Action::Restore(camera) => {
                self.change_link(camera.0, |link| link.restore(now));
                self.note_carries(camera.0);
            }
            Action::Break(camera) => self.change_link(camera.0, |link| link.break_all(now)),
            Action::Rate(camera, bits_per_second) => self.set_link_rate(camera.0, bits_per_second),
            Action::Slow(camera, divisor) => {
                let bits_per_second = self.network.made_with_rate(self.cameras[camera.0].link);
                self.set_link_rate(camera.0, bits_per_second / divisor.max(1));
            }
            Action::KillCamera(camera) => self.kill_camera(camera.0),
            Action::StartCamera(camera, counter) => self.start_camera(camera.0, counter),
            Action::KillEdge(edge) => self.kill_edge(edge.0),
            Action::StartEdge(edge) => self.start_edge(edge.0),
            Action::StepWall(Host::Camera(camera), seconds) => self.cameras[camera.0].step_wall(seconds),
            Action::StepWall(Host::Edge(edge), seconds) => self.edges[edge.0].step_wall(seconds),
            Action::Freeze(Host::Camera(camera)) => {
                self.disturb(camera.0);
                self.network.freeze(self.cameras[camera.0].link);
            }
            Action::Freeze(Host::Edge(edge)) => {
                self.disturb_edge(edge.0);
                self.edges[edge.0].freeze();
                self.checks.edge_stands_still(edge.0);
            }
            Action::Thaw(Host::Camera(camera)) => {
                self.disturb(camera.0);
                self.thaw_camera_host(self.cameras[camera.0].link);
            }
            Action::Thaw(Host::Edge(edge)) => self.thaw_edge(edge.0),
            Action::CutPower(host) => self.cut_power(host),
            Action::Disk(host, faults) => self.set_disk_faults(host, faults),
            Action::Stall(application) => {
                self.with_application(application.0, |application, edge, stage| {
                    application.stall(edge, stage);
                });
            }
            Action::Resume(application) => self.with_application(application.0, Application::resume),
            Action::Subscribe(application) => self.subscribe(application.0),
            Action::Unsubscribe(application) => {
                self.with_application(application.0, Application::unsubscribe)
            }
            Action::Silence(camera) => self.cameras[camera.0].set_publishing(false),
            Action::LoseSource(camera) => self.with_camera(camera.0, |camera, stage| {
                camera.lose_source(stage);
                true
            }),
            Action::Publish(camera) => {
                self.cameras[camera.0].set_publishing(true);
                self.disturb(camera.0);
            }
            Action::TakeAnswers(camera, takes) => self.set_answers(camera.0, takes),
            Action::Claim(thief, epoch) => self.claim(thief.0, epoch),
            Action::Leave(thief) => self.leave(thief.0),
            Action::Poison(camera) => self.poison(camera.0),
            Action::Reset(camera) => self.reset(camera.0),
            Action::Rights(edge, rights) => self.set_rights(edge.0, rights),
            Action::Site(action) => self.operate_site(action),
            Action::Move(camera, edge) => self.move_camera(camera.0, edge.0),
            Action::Heal => self.heal(),
        }
    }

    /// Sets the faults of a host's disk.
    fn set_disk_faults(&mut self, host: Host, faults: Faults) {
        match host {
            Host::Camera(camera) => self.cameras[camera.0].set_disk_faults(faults),
            Host::Edge(edge) => self.edges[edge.0].set_disk_faults(faults),
        }
    }

    /// Cuts a host's power: its processes end, and any part of the unsynced data may be left.
    fn cut_power(&mut self, host: Host) {
        match host {
            Host::Camera(camera) => {
                self.kill_camera(camera.0);
                self.cameras[camera.0].cut_power();
            }
            Host::Edge(edge) => {
                self.kill_edge(edge.0);
                self.edges[edge.0].cut_power();
                for group in self.groups.iter_mut().filter(|group| group.spec.edge == edge) {
                    group.cut_power(&mut stage!(self));
                }
            }
        }
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
            if self.thieves.is_thief(index) {
                if !self.is_shut_out_of_site(index) {
                    self.leave(index);
                }
                continue;
            }
            if self.cameras[index].is_rival {
                self.kill_camera(index);
                continue;
            }
            let link = self.cameras[index].link;
            self.set_link_rate(index, self.network.made_with_rate(link));
            self.thaw_camera_host(link);
            self.network.link_mut(link).restore(self.now);
            self.cameras[index].set_publishing(true);
            if self.cameras[index].process.is_none() {
                self.start_camera(index, Counter::Kept);
            }
        }
        for index in 0..self.cameras.len() {
            if !self.thieves.is_thief(index) && self.view().0.is_poisoned(index) {
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

    // ---- the same, as methods for stories -----------------------------------------------------------------

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
