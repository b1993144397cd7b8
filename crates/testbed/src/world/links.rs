//! Passes what happens on a link to the camera or the edge that it is for.

use std::collections::VecDeque;

use mez_core::broker::LinkId;

use super::past::request_of;
use super::{Timer, World};
use crate::link::{Link, LinkOutput, Side};

pub(super) struct LinkNode {
    pub(super) link: Link,
    /// The medium that it shares, and its place there.
    pub(super) medium: Option<(usize, usize)>,
    pub(super) timer: Timer,
    /// What the camera's host has not looked at, while it is frozen.
    pub(super) frozen: Option<VecDeque<LinkOutput>>,
}

impl World {
    /// Gives what happened on a link to the host that it is for, or keeps it while that host is frozen.
    pub(super) fn hand_over(&mut self, link: usize, output: LinkOutput) {
        // Every camera of a link dials the same edge.
        let edge = self.cameras.iter().find(|camera| camera.link == link).map(|camera| camera.spec.edge.0);
        match output.side() {
            Side::Camera => match &mut self.links[link].frozen {
                Some(waiting) => waiting.push_back(output),
                None => self.on_link(link, output),
            },
            Side::Edge => match edge.and_then(|edge| self.edges[edge].frozen.as_mut()) {
                Some(waiting) => waiting.push_back((link, output)),
                None => self.on_link(link, output),
            },
        }
    }

    /// The camera whose process made a connection, if that process still runs.
    fn dialler(&self, owner: u64) -> Option<usize> {
        let index = *self.owners.get(&owner)?;
        self.cameras[index].process.as_ref().filter(|process| process.run == owner).map(|_| index)
    }

    /// The camera that has a connection open.
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
            | LinkOutput::FrameSent { connection, .. }
            | LinkOutput::FrameLeft { connection, .. } => self.camera_of(index, *connection),
            LinkOutput::FrameStopped { connection, frame } if request_of(*frame).is_some() => {
                self.camera_of(index, *connection)
            }
            _ => return self.on_link_at_edge(index, output),
        };
        // Nobody at the camera's end knows the connection any more.
        let Some(camera) = camera else { return };
        self.on_link_at_camera(camera, output);
    }

    fn on_link_at_camera(&mut self, camera: usize, output: LinkOutput) {
        if let LinkOutput::Dialled { connection, .. } = &output
            && self.cameras[camera].robs.is_some()
        {
            self.stolen.insert(*connection);
        }
        let window_of = |world: &Self, connection: LinkId| {
            world.links[world.cameras[camera].link].link.opening(connection)
        };
        match output {
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
            LinkOutput::FrameSent { connection, frame } | LinkOutput::FrameStopped { connection, frame } => {
                self.with_camera(camera, |camera, stage| match request_of(frame) {
                    Some(request) => {
                        camera.handle_past_left(connection, request, stage);
                        true
                    }
                    None => camera.handle_left(connection, frame, stage),
                });
            }
            LinkOutput::FrameLeft { connection, frame, unsent } => {
                self.with_camera(camera, |camera, stage| {
                    camera.handle_unsent(connection, frame, unsent, stage);
                    true
                });
            }
            LinkOutput::Closed { connection, .. } => self.with_camera(camera, |camera, stage| {
                camera.handle_closed(connection, stage);
                true
            }),
            _ => {}
        }
    }
}
