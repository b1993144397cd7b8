//! Carries out a camera broker's outputs.

use bytes::Bytes;
use mez_core::broker::camera::CameraOutput;
use mez_core::broker::{EdgeIndex, LinkId};
use mez_core::frame::{FrameId, Reference, Rung};
use mez_core::profile::ProfileHash;
use mez_core::wire::{FrameHeader, Message, ReplyResult};

use super::{CameraHost, PERSIST_MS_MAX};
use crate::check::Cancelled;
use crate::link::{Link, Side};
use crate::payload::encoded;
use crate::time::{Moment, ms};
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::spec::PROFILE_BYTES;
use crate::world::stage::Stage;

/// What the world has to do after a camera has carried out an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Effect {
    /// Nothing.
    Nothing,
    /// The link may have outputs.
    Link,
    /// The link may have outputs, and the edge has refused the camera.
    Refused,
    /// The camera holds another deny list from now on.
    ListChanged,
}

impl CameraHost {
    /// The broker's next output.
    pub(in crate::world) fn poll_output(&mut self) -> Option<CameraOutput> {
        self.process.as_mut()?.broker.poll_output()
    }

    /// Carries out an output on the camera's link.
    pub(in crate::world) fn carry_out(
        &mut self,
        output: CameraOutput,
        link: &mut Link,
        stage: &mut Stage<'_>,
    ) -> Effect {
        match output {
            CameraOutput::Dial { edge } => return self.dial(edge, link, stage),
            CameraOutput::AskKeyFrame => {
                if let Some(process) = &mut self.process {
                    process.video.ask();
                }
                return Effect::Nothing;
            }
            CameraOutput::Send { message: Message::SourceReport(_), .. }
                if stage.bug == Some(Bug::SourceUntold) =>
            {
                return Effect::Nothing;
            }
            CameraOutput::Send { link: connection, message } => self.send(connection, &message, link, stage),
            CameraOutput::SendFrame { link: connection, header, payload } if header.history > 0 => {
                self.send_past(connection, &header, payload, link, stage);
            }
            CameraOutput::SendFrame { link: connection, header, payload } => {
                let Some((header, payload)) = self.spoilt(connection, (*header, payload), stage) else {
                    return Effect::Nothing;
                };
                self.send_frame(connection, &header, payload, link, stage);
            }
            CameraOutput::Reset { link: connection, frame } => {
                return self.reset(connection, frame, link, stage);
            }
            CameraOutput::Close { link: connection } => {
                self.forget(connection, stage);
                link.close(stage.now, Side::Camera, connection);
            }
            CameraOutput::Transform(transform) => {
                self.make(&transform, stage);
                return Effect::Nothing;
            }
            CameraOutput::TransformPast { ticket, transform } => {
                self.make_past(ticket, &transform, stage);
                return Effect::Nothing;
            }
            CameraOutput::ReadHistory { ticket, query } => {
                self.look_for(ticket, query, stage);
                return Effect::Nothing;
            }
            CameraOutput::ReadProfile { hash, bytes } => self.read_profile(hash, &bytes, stage),
            CameraOutput::RaiseEpoch { above } => {
                let Some(process) = &mut self.process else { return Effect::Nothing };
                process.accepted &= above != process.broker.epoch();
                let (camera, run) = (self.index, process.run);
                let persisted = stage.now + ms(self.random.within(1..=PERSIST_MS_MAX));
                stage.events.push(persisted, Event::EpochPersisted { camera, run, above });
            }
            CameraOutput::Refused { code, .. } => {
                stage.trace.record(stage.now, What::RefusedBy { camera: self.index, code: code as u16 });
                return Effect::Refused;
            }
            CameraOutput::Revocations { signed, .. } => {
                return if self.take_brought(&signed, stage) { Effect::ListChanged } else { Effect::Nothing };
            }
            CameraOutput::LinkChanged { up } => {
                self.link_changed(up, stage);
                if up {
                    self.forge(link, stage);
                }
            }
            // Worlds have no surveys of what cameras hold.
            CameraOutput::Survey { .. } => {}
            CameraOutput::Answer(answered) => self.put_answer(*answered, stage),
            CameraOutput::AnswersSkipped(skipped) => self.set_answers_skipped(skipped),
            CameraOutput::Reply { frame, application, result } => {
                self.replied(frame, &application, &result, stage);
            }
        }
        Effect::Link
    }

    /// All outputs are processed. The link state that the broker reported must now equal its own.
    pub(in crate::world) fn drained(&self, stage: &mut Stage<'_>) {
        if let Some(process) = &self.process {
            stage.checks.thinks_of_link(self.index, process.up, process.broker.is_up());
        }
    }

    fn dial(&mut self, edge: EdgeIndex, link: &mut Link, stage: &mut Stage<'_>) -> Effect {
        let reached = self.reached();
        let Some(process) = &mut self.process else { return Effect::Nothing };
        if edge != reached {
            process.broker.handle_dial_failed(self.clock.monotonic(stage.now), edge);
            return Effect::Nothing;
        }
        stage.trace.record(stage.now, What::Dial { camera: self.index });
        self.counts.dials += 1;
        if stage.bug == Some(Bug::NoRedial) && std::mem::replace(&mut process.dialled, true) {
            return Effect::Nothing;
        }
        process.dialling += 1;
        link.dial(stage.now, process.run);
        Effect::Link
    }

    fn send(&mut self, connection: LinkId, message: &Message, link: &mut Link, stage: &Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        if let Message::FeasibilityReport(feasibility) = message {
            process.says_infeasible = feasibility.infeasible;
        }
        if process.connections.contains_key(&connection) {
            self.counts.greetings += u64::from(matches!(message, Message::Hello(_)));
            link.send(stage.now, Side::Camera, connection, encoded(message));
        }
    }

    fn send_frame(
        &mut self,
        connection: LinkId,
        header: &FrameHeader,
        payload: Bytes,
        link: &mut Link,
        stage: &mut Stage<'_>,
    ) {
        let (now, id, camera) = (stage.now, header.meta.id, self.index);
        let Some(process) = &mut self.process else { return };
        stage.checks.sends(
            &self.name,
            process.run,
            connection,
            header,
            link.unsent_frames(Side::Camera, connection),
        );
        let skipped = header.skipped.iter().map(|range| range.count).sum();
        stage.trace.record(now, What::Sends { camera, link: connection, frame: id, skipped });
        process.sent = Some(id);
        process.left_out = u64::from(header.meta.rung.one_in() - 1);
        stage.checks.breaks_silence(process.run);
        if let Some(known) = process.connections.get_mut(&connection) {
            if known.under_way.is_empty() {
                known.progress = now;
            }
            known.under_way.insert(id);
        }
        self.counts.sent += 1;
        let mut bytes = Vec::with_capacity(256);
        header.encode(&mut bytes);
        if stage.bug == Some(Bug::SentTwice) && id.sequence.0 % 20 == 19 {
            stage.checks.sends(&self.name, process.run, connection, header, 0);
        }
        link.send_frame(now, (Side::Camera, connection), id, (bytes.into(), payload));
        if stage.bug == Some(Bug::SentTooSoon) {
            process.broker.handle_sent(self.clock.monotonic(now), connection, id);
        }
    }

    /// The frame to send, changed by a planted bug. `None`: the frame is not sent.
    fn spoilt(
        &mut self,
        connection: LinkId,
        (mut header, mut payload): (FrameHeader, Bytes),
        stage: &Stage<'_>,
    ) -> Option<(FrameHeader, Bytes)> {
        let process = self.process.as_mut()?;
        let meta = &header.meta;
        let is_own = meta.encoding.is_chained() && meta.rung == Rung::original();
        let (place, needs) = (meta.id.sequence.0 % 20, meta.chain.reference != Reference::Independent);
        match stage.bug {
            // At least one of three frames in a row is needed by another.
            Some(Bug::NeededNotSent) if is_own && needs && place > 16 => {
                process.broker.handle_sent(self.clock.monotonic(stage.now), connection, meta.id);
                return None;
            }
            Some(Bug::BackAmidChain) if !is_own && needs && place == 19 => {
                let frame = process.reader.get_frame(meta.id)?.frame;
                header.payload_bytes = frame.payload.len() as u32;
                (header.meta, payload) = (frame.meta, frame.payload);
            }
            _ => {}
        }
        Some((header, payload))
    }

    /// Cancels a frame that is being sent.
    fn reset(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        link: &mut Link,
        stage: &mut Stage<'_>,
    ) -> Effect {
        let (now, camera) = (stage.now, self.index);
        let Some(process) = &mut self.process else { return Effect::Nothing };
        stage.trace.record(now, What::Resets { camera, link: connection, frame });
        stage.checks.gives_up(&self.name, process.run, frame);
        let unsent = link.unsent_bytes(connection, frame);
        let demand = process.broker.demand();
        let bounds = demand.iter().flat_map(|demand| &demand.contracts);
        let cancelled = Cancelled {
            frame,
            unsent,
            has_newer: process.told > Some(frame),
            progress: process.connections.get(&connection).map_or(Moment::START, |known| known.progress),
            bound: bounds.filter_map(|contract| contract.latency_bound).min(),
            is_unwanted: demand.is_none() || process.unwanted == Some(now),
        };
        self.counts.cancelled += u64::from(stage.checks.cancels(camera, &cancelled));
        if stage.bug == Some(Bug::CancelIgnored) && unsent > 0 {
            return Effect::Nothing;
        }
        if let Some(known) = process.connections.get_mut(&connection) {
            known.under_way.remove(&frame);
        }
        link.reset(now, (Side::Camera, connection), frame);
        Effect::Link
    }

    fn read_profile(&mut self, hash: ProfileHash, bytes: &Bytes, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        let whole = bytes.len() == PROFILE_BYTES && bytes.iter().all(|byte| *byte == hash[0]);
        let profile = stage.profiles.get(&hash).filter(|_| whole).cloned();
        stage.checks.profile_came(whole, bytes.len());
        process.broker.handle_profile(self.clock.monotonic(stage.now), hash, profile);
    }

    fn replied(&mut self, frame: FrameId, application: &str, result: &ReplyResult, stage: &mut Stage<'_>) {
        self.counts.replies += 1;
        stage.trace.record(stage.now, What::Replied { camera: self.index, frame });
        stage.checks.replied(&self.name, frame, application, result);
    }

    fn link_changed(&mut self, up: bool, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        // Earlier caps belong to another connection.
        process.capped = None;
        let before = std::mem::replace(&mut process.up, up);
        process.accepted |= up;
        stage.checks.says_link(self.index, before, up);
        stage.trace.record(stage.now, What::LinkChanged { camera: self.index, up });
    }
}
