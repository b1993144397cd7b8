//! Passes the outputs of a link to the camera or the edge that they concern.

use mez_core::broker::LinkId;

use super::World;
use super::camera::CameraHost;
use super::spec::{MediumId, MediumSpec};
use super::stage::stage;
use crate::link::{Link, LinkOutput, Side, request_of};

impl World {
    /// Creates a medium that cameras can share; see [`CameraSpec::medium`](super::CameraSpec::medium).
    pub fn medium(&mut self, spec: MediumSpec) -> MediumId {
        let random = self.random.split();
        self.network.add_medium(spec, random)
    }

    /// Passes an output of a link to its host, or keeps it while the host is frozen.
    fn hand_over(&mut self, link: usize, output: LinkOutput) {
        // Every camera of a link dials the same edge.
        let edge = self.cameras.iter().find(|camera| camera.link == link).map(|camera| camera.spec.edge.0);
        let output = match (output.side(), edge) {
            (Side::Camera, _) => self.network.keep(link, output),
            (Side::Edge, Some(edge)) => self.edges[edge].keep(link, output),
            (Side::Edge, None) => Some(output),
        };
        if let Some(output) = output {
            self.on_link(link, output);
        }
    }

    /// Processes the outputs of a link.
    pub(super) fn drain_link(&mut self, link: usize) {
        while let Some(output) = self.network.link_mut(link).poll_output() {
            self.hand_over(link, output);
        }
        self.network.announce(link, &mut stage!(self));
    }

    /// Changes the rate of a camera's link, or of the medium that the link shares. With a medium, all its members are disturbed.
    pub(super) fn set_link_rate(&mut self, camera: usize, bits_per_second: u64) {
        let link = self.cameras[camera].link;
        for link in self.network.set_rate(link, bits_per_second, &mut stage!(self)) {
            self.disturb_link(link);
        }
        self.note_carries(camera);
    }

    /// Tells the rules the present rate of a camera's link.
    pub(super) fn note_carries(&mut self, camera: usize) {
        let CameraHost { name, link, .. } = &self.cameras[camera];
        let (made_for, link) = (self.network.made_with_rate(*link), self.network.link(*link));
        let bits_per_second = if link.is_cut() { 0 } else { link.spec().bits_per_second };
        self.checks.carries(name, bits_per_second, made_for);
    }

    /// Applies a fault to a camera's link.
    pub(super) fn change_link(&mut self, camera: usize, change: impl FnOnce(&mut Link)) {
        self.disturb(camera);
        self.network.change(self.cameras[camera].link, &mut stage!(self), change);
    }

    /// The camera whose process made a connection, if the process still runs.
    fn dialler(&self, owner: u64) -> Option<usize> {
        let index = *self.owners.get(&owner)?;
        self.cameras[index].process.as_ref().filter(|process| process.run == owner).map(|_| index)
    }

    /// The camera whose process has a connection open.
    fn camera_of(&self, link: usize, connection: LinkId) -> Option<usize> {
        self.cameras.iter().position(|camera| {
            let knows = camera.process.as_ref().is_some_and(|process| process.knows(connection));
            camera.link == link && knows
        })
    }

    pub(super) fn on_link(&mut self, index: usize, output: LinkOutput) {
        let camera = match &output {
            LinkOutput::Dialled { owner, .. } | LinkOutput::DialFailed { owner } => self.dialler(*owner),
            LinkOutput::Message { to: Side::Camera, connection, .. }
            | LinkOutput::Closed { to: Side::Camera, connection }
            | LinkOutput::FrameSent { from: Side::Camera, connection, .. }
            | LinkOutput::FrameLeft { from: Side::Camera, connection, .. }
            | LinkOutput::FrameOpened { to: Side::Camera, connection, .. }
            | LinkOutput::FrameFinished { to: Side::Camera, connection, .. }
            | LinkOutput::FrameCancelled { to: Side::Camera, connection, .. } => {
                self.camera_of(index, *connection)
            }
            LinkOutput::FrameStopped { to: Side::Camera, connection, frame }
                if request_of(*frame).is_some() =>
            {
                self.camera_of(index, *connection)
            }
            _ => return self.on_link_at_edge(index, output),
        };
        // The camera has forgotten the connection.
        let Some(camera) = camera else { return };
        self.on_link_at_camera(camera, output);
    }

    fn on_link_at_camera(&mut self, camera: usize, output: LinkOutput) {
        if let LinkOutput::Dialled { connection, .. } = &output {
            self.thieves.handle_dialled(camera, *connection);
        }
        let window_of = |world: &Self, connection: LinkId| {
            world.network.link(world.cameras[camera].link).opening(connection)
        };
        match output {
            LinkOutput::Dialled { connection, .. } if self.turns_away_from_edge(camera) => {
                self.hang_up(camera, connection);
            }
            LinkOutput::Dialled { connection, .. } => {
                let window = window_of(self, connection);
                self.with_camera(camera, |camera, stage| {
                    camera.handle_dialled(connection, window, stage);
                    true
                });
            }
            LinkOutput::DialFailed { .. } => self.with_camera(camera, |camera, stage| {
                camera.handle_dial_failed(stage);
                true
            }),
            LinkOutput::Message { connection, bytes, .. } => {
                let window = window_of(self, connection);
                self.with_camera(camera, |camera, stage| {
                    camera.handle_bytes(connection, &bytes, window, stage);
                    true
                });
            }
            LinkOutput::FrameSent { connection, frame, .. }
            | LinkOutput::FrameStopped { connection, frame, .. } => {
                self.with_camera(camera, |camera, stage| match request_of(frame) {
                    Some(request) => {
                        camera.handle_past_left(connection, request, stage);
                        true
                    }
                    None => camera.handle_left(connection, frame, stage),
                });
            }
            LinkOutput::FrameLeft { connection, frame, unsent, .. } => {
                self.with_camera(camera, |camera, stage| {
                    camera.handle_unsent(connection, frame, unsent, stage);
                    true
                });
            }
            LinkOutput::FrameOpened { connection, header, .. } => {
                self.answer_opened(camera, connection, &header);
            }
            LinkOutput::FrameFinished { connection, frame, payload, .. } => {
                self.with_camera(camera, |camera, stage| {
                    camera.handle_answer_finished(connection, frame, &payload, stage)
                });
            }
            LinkOutput::FrameCancelled { connection, frame, .. } => self
                .with_camera(camera, |camera, stage| {
                    camera.handle_answer_cancelled(connection, frame, stage)
                }),
            LinkOutput::Closed { connection, .. } => self.with_camera(camera, |camera, stage| {
                camera.handle_closed(connection, stage);
                true
            }),
            _ => {}
        }
    }
}
