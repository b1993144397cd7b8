//! What comes over a camera's link, and to whom.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::FrameId;
use mez_core::units::Instant;
use mez_core::wire::{Message, Report, Share};

use super::{CameraProcess, Connection};
use crate::link::{LinkOutput, Side};
use crate::time::ms;
use crate::trace::What;
use crate::world::events::Event;
use crate::world::past::request_of;
use crate::world::{Bug, Node, World};

/// Caps count for so much less than they last: clocks differ.
const CAP_MARGIN: Duration = ms(2);
/// How late [`Bug::LeftUntold`] is.
const LEFT_UNTOLD_MS: u64 = 100;

impl World {
    /// The camera whose process made a connection, if that process still runs.
    fn dialler(&self, owner: u64) -> Option<usize> {
        let index = *self.owners.get(&owner)?;
        self.cameras[index].process.as_ref().filter(|process| process.run == owner).map(|_| index)
    }

    /// The camera that has a connection open.
    fn camera_of(&self, link: usize, connection: LinkId) -> Option<usize> {
        self.cameras.iter().position(|camera| {
            camera.link == link
                && camera
                    .process
                    .as_ref()
                    .is_some_and(|process| process.connections.contains_key(&connection))
        })
    }

    pub(in crate::world) fn on_link(&mut self, index: usize, output: LinkOutput) {
        match output {
            LinkOutput::Dialled { connection, owner } => {
                let Some(camera) = self.dialler(owner) else { return };
                self.trace.record(self.now, What::Dialled { camera, link: connection });
                if self.cameras[camera].robs.is_some() {
                    self.stolen.insert(connection);
                }
                let window = self.links[index].link.opening(connection);
                self.with_camera(camera, |process, now| {
                    process.connections.insert(connection, Connection::default());
                    process.broker.handle_dialled(now, connection, EdgeIndex(0));
                });
                self.camera_has_window(camera, connection, window);
            }
            LinkOutput::DialFailed { owner } => {
                let Some(camera) = self.dialler(owner) else { return };
                self.trace.record(self.now, What::DialFailed { camera });
                self.with_camera(camera, |process, now| process.broker.handle_dial_failed(now, EdgeIndex(0)));
            }
            LinkOutput::Message { to: Side::Camera, connection, bytes } => {
                if let Some(camera) = self.camera_of(index, connection) {
                    let window = self.links[index].link.opening(connection);
                    self.camera_has_window(camera, connection, window);
                    self.camera_hears(camera, connection, &bytes);
                }
            }
            LinkOutput::FrameSent { connection, frame } | LinkOutput::FrameStopped { connection, frame }
                if request_of(frame).is_some() =>
            {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.past_left(camera, connection, request_of(frame).unwrap_or_default());
            }
            LinkOutput::FrameLeft { connection, frame, unsent } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.with_camera(camera, |process, now| {
                    process.broker.handle_unsent(now, connection, frame, unsent);
                });
            }
            LinkOutput::FrameSent { connection, frame } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.trace.record(self.now, What::Left { camera, link: connection, frame });
                if self.bug == Some(Bug::LeftUntold) {
                    let later = self.now + ms(LEFT_UNTOLD_MS);
                    return self.events.push(later, Event::LeftTold { camera, connection, frame });
                }
                self.with_camera(camera, |process, now| process.broker.handle_sent(now, connection, frame));
            }
            LinkOutput::Closed { to: Side::Camera, connection } => {
                let Some(camera) = self.camera_of(index, connection) else { return };
                self.trace.record(self.now, What::CameraClosed { camera, link: connection });
                let host = &mut self.cameras[camera];
                if let Some(process) = &mut host.process {
                    for frame in
                        process.connections.remove(&connection).into_iter().flat_map(|known| known.under_way)
                    {
                        self.checks.gives_up(&host.name, process.run, frame);
                    }
                }
                self.with_camera(camera, |process, now| process.broker.handle_closed(now, connection));
            }
            to_edge => self.on_link_at_edge(index, to_edge),
        }
    }

    pub(in crate::world) fn left_told(&mut self, index: usize, connection: LinkId, frame: FrameId) {
        self.with_camera(index, |process, now| process.broker.handle_sent(now, connection, frame));
    }

    fn with_camera(&mut self, index: usize, f: impl FnOnce(&mut CameraProcess, Instant)) {
        let host = &mut self.cameras[index];
        if let Some(process) = &mut host.process {
            f(process, host.clock.monotonic(self.now));
        }
        self.touch(Node::Camera(index));
    }

    /// A camera is told what may be on its way of a connection.
    fn camera_has_window(&mut self, index: usize, connection: LinkId, window: Option<u64>) {
        let Some(process) = &mut self.cameras[index].process else { return };
        process.opening_until = window.map(|_| self.now).or(process.opening_until);
        process.broker.handle_window(connection, window);
    }

    fn camera_hears(&mut self, index: usize, connection: LinkId, bytes: &Bytes) {
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let Some(known) = process.connections.get_mut(&connection) else { return };
        known.buffer.push(bytes);
        let now = host.clock.monotonic(self.now);
        loop {
            match known.buffer.next() {
                Ok(Some(message)) => {
                    let kind = bytes[4];
                    self.trace.record(self.now, What::ToCamera { camera: index, link: connection, kind });
                    let lost = self.bug == Some(Bug::DemandKept)
                        && matches!(&message, Message::Demand(demand) if demand.contracts.is_empty());
                    if let Message::Report(report) = message {
                        known.progress = self.now;
                        if let Report::Complete { frame, .. } = report {
                            known.under_way.remove(&frame);
                        }
                    }
                    if let Message::Share(share) = message {
                        process.capped = match share {
                            Share::Cap { frame_bytes_max, lifetime, .. } => {
                                Some((frame_bytes_max, [self.now, self.now + lifetime - CAP_MARGIN]))
                            }
                            Share::Shed { lifetime } => {
                                Some((0, [self.now, self.now + lifetime - CAP_MARGIN]))
                            }
                            Share::Free => None,
                        };
                        if self.bug == Some(Bug::ShareUntold) && process.capped.is_some() {
                            continue;
                        }
                    }
                    if !lost {
                        let wanted = process.broker.demand().is_some();
                        process.broker.handle_message(now, connection, message);
                        match process.broker.demand() {
                            Some(_) if !wanted => process.sent = process.told,
                            None if wanted => process.unwanted = Some(self.now),
                            _ => {}
                        }
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.checks.garbled("an edge's message", &error);
                    break;
                }
            }
        }
        self.touch(Node::Camera(index));
    }
}
