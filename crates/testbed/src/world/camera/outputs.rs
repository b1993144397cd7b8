//! What a camera broker wants done.

use mez_core::broker::camera::CameraOutput;
use mez_core::wire::Message;

use super::{PERSIST_MS_MAX, PROFILE_BYTES, encoded};
use crate::check::Cancelled;
use crate::link::Side;
use crate::time::{Moment, ms};
use crate::trace::What;
use crate::world::events::Event;
use crate::world::{Bug, Node, World};

impl World {
    pub(in crate::world) fn camera_due(&self, index: usize) -> Moment {
        let host = &self.cameras[index];
        host.process
            .as_ref()
            .map_or(Moment::NEVER, |process| host.clock.moment_of(process.broker.poll_timeout()))
    }

    pub(in crate::world) fn camera_timeout(&mut self, index: usize) {
        let host = &mut self.cameras[index];
        if self.bug == Some(Bug::TimerIgnored) {
            return;
        }
        if let Some(process) = &mut host.process {
            process.broker.handle_timeout(host.clock.monotonic(self.now));
        }
    }

    pub(in crate::world) fn drain_camera(&mut self, index: usize) {
        while let Some(process) = &mut self.cameras[index].process {
            let Some(output) = process.broker.poll_output() else { break };
            self.on_camera(index, output);
        }
        if let Some(process) = &self.cameras[index].process {
            let (said, thinks) = (process.up, process.broker.is_up());
            self.checks.thinks_of_link(index, said, thinks);
        }
    }

    fn on_camera(&mut self, index: usize, output: CameraOutput) {
        let now = self.now;
        let host = &mut self.cameras[index];
        let Some(process) = &mut host.process else { return };
        let link = &mut self.links[host.link].link;
        match output {
            CameraOutput::Dial { .. } => {
                self.trace.record(now, What::Dial { camera: index });
                host.counts.dials += 1;
                if self.bug == Some(Bug::NoRedial) && std::mem::replace(&mut process.dialled, true) {
                    return;
                }
                link.dial(now, process.run);
            }
            CameraOutput::Send { link: connection, message } => {
                if let Message::Outlook(outlook) = &message {
                    process.says_infeasible = outlook.infeasible;
                }
                if process.connections.contains_key(&connection) {
                    host.counts.greetings += u64::from(matches!(message, Message::Hello(_)));
                    link.send(now, Side::Camera, connection, encoded(&message));
                }
            }
            CameraOutput::Transform(transform) => return self.make(index, &transform),
            CameraOutput::TransformPast { ticket, transform } => {
                return self.make_past(index, ticket, &transform);
            }
            CameraOutput::SendFrame { link: connection, header, payload } if header.history > 0 => {
                self.send_past(index, connection, &header, payload);
            }
            CameraOutput::ReadProfile { hash, bytes } => {
                let whole = bytes.len() == PROFILE_BYTES && bytes.iter().all(|byte| *byte == hash[0]);
                let profile = self.profiles.get(&hash).filter(|_| whole).cloned();
                self.checks.profile_came(whole, bytes.len());
                process.broker.handle_profile(host.clock.monotonic(now), hash, profile);
            }
            CameraOutput::SendFrame { link: connection, header, payload } => {
                let id = header.meta.id;
                self.checks.sends(
                    &host.name,
                    process.run,
                    connection,
                    &header,
                    link.unsent_frames(connection),
                );
                let skipped = header.skipped.iter().map(|range| range.count).sum();
                self.trace.record(now, What::Sends { camera: index, link: connection, frame: id, skipped });
                process.sent = Some(id);
                process.left_out = u64::from(header.meta.rung.one_in() - 1);
                self.checks.breaks_silence(process.run);
                if let Some(known) = process.connections.get_mut(&connection) {
                    if known.under_way.is_empty() {
                        known.progress = now;
                    }
                    known.under_way.insert(id);
                }
                host.counts.sent += 1;
                let mut bytes = Vec::with_capacity(256);
                header.encode(&mut bytes);
                if self.bug == Some(Bug::SentTwice) && id.sequence.0 % 20 == 19 {
                    self.checks.sends(&host.name, process.run, connection, &header, 0);
                }
                link.send_frame(now, connection, id, bytes.into(), payload);
                if self.bug == Some(Bug::SentTooSoon) {
                    process.broker.handle_sent(host.clock.monotonic(now), connection, id);
                }
            }
            CameraOutput::Reset { link: connection, frame } => {
                self.trace.record(now, What::Resets { camera: index, link: connection, frame });
                self.checks.gives_up(&host.name, process.run, frame);
                let unsent = link.unsent_bytes(connection, frame);
                let progress =
                    process.connections.get(&connection).map_or(Moment::START, |known| known.progress);
                let demand = process.broker.demand();
                let bounds = demand.iter().flat_map(|demand| &demand.contracts);
                let bound = bounds.filter_map(|contract| contract.latency_bound).min();
                let cancelled = Cancelled {
                    frame,
                    unsent,
                    has_newer: process.told > Some(frame),
                    progress,
                    bound,
                    is_unwanted: demand.is_none() || process.unwanted == Some(now),
                };
                host.counts.cancelled += u64::from(self.checks.cancels(index, &cancelled));
                if self.bug == Some(Bug::CancelIgnored) && unsent > 0 {
                    return;
                }
                if let Some(known) = process.connections.get_mut(&connection) {
                    known.under_way.remove(&frame);
                }
                link.reset(now, connection, frame);
            }
            CameraOutput::Close { link: connection } => {
                for frame in
                    process.connections.remove(&connection).into_iter().flat_map(|known| known.under_way)
                {
                    self.checks.gives_up(&host.name, process.run, frame);
                }
                link.close(now, Side::Camera, connection);
            }
            CameraOutput::RaiseEpoch { above } => {
                process.accepted &= above != process.broker.epoch();
                let run = process.run;
                let persisted = now + ms(host.random.within(1..=PERSIST_MS_MAX));
                self.events.push(persisted, Event::EpochPersisted { camera: index, run, above });
            }
            CameraOutput::Refused { code, .. } => {
                if self.may_be_refused(index) {
                    self.cameras[index].refused = Some(now);
                }
                self.trace.record(now, What::RefusedBy { camera: index, code: code as u16 });
            }
            CameraOutput::ReadHistory { ticket, query } => return self.look_for(index, ticket, query),
            CameraOutput::LinkChanged { up } => {
                // What was told before was told on another connection.
                process.capped = None;
                let before = std::mem::replace(&mut process.up, up);
                process.accepted |= up;
                self.checks.says_link(index, before, up);
                self.trace.record(now, What::LinkChanged { camera: index, up });
            }
            CameraOutput::Reply { frame, application, payload } => {
                host.counts.replies += 1;
                self.trace.record(now, What::Replied { camera: index, frame });
                self.checks.replied(&host.name, frame, &application, &payload);
            }
        }
        self.touch(Node::Link(self.cameras[index].link));
    }
}
