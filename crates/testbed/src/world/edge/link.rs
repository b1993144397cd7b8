//! Passes what arrives over cameras' links to an edge's broker.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::Peer;
use mez_core::frame::{Epoch, FrameId, Reference, Sequence};
use mez_core::name::CameraName;
use mez_core::revocation::Certificate;
use mez_core::wire::{FrameHeader, Message, MessageBuffer};

use super::EdgeHost;
use super::reset::believe;
use crate::link::{past_stream, request_of};
use crate::payload::received;
use crate::time::{Moment, ms};
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::site::SignedList;
use crate::world::stage::Stage;

/// What becomes of a frame whose header has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Opened {
    /// The header cannot be decoded.
    Garbled,
    /// The broker accepts the frame.
    Taken,
    /// The broker does not want the frame: this stream is to be stopped.
    Stopped(FrameId),
}

impl EdgeHost {
    /// The first packet of a camera's connection has arrived on this link.
    pub(in crate::world) fn handle_knocked(
        &mut self,
        (camera, connection): (usize, LinkId),
        link: usize,
        stage: &mut Stage<'_>,
    ) {
        let address = camera_address(camera);
        self.with_process(stage, |process, now| process.door.handle_knocked(now, link, address, connection));
    }

    /// A camera's connection on this link has authenticated. Returns whether it may stay: not if the door
    /// has dropped it before, or if its certificate is revoked.
    pub(in crate::world) fn handle_accepted(
        &mut self,
        (camera, connection): (usize, LinkId),
        link: usize,
        (peer, shown): (Peer, &Certificate),
        stage: &mut Stage<'_>,
    ) -> bool {
        let address = camera_address(camera);
        let stays = self
            .with_process(stage, |process, now| process.door.handle_proved(now, link, address, connection));
        if stays == Some(false) {
            return false;
        }
        if self.turns_away(shown, stage.bug) {
            // The handshake ends with an alert, and messages of the camera are not read.
            stage.checks.shut_out(self.index, shown);
            self.with_process(stage, |process, _| process.door.handle_said(connection));
            return false;
        }
        stage.trace.record(stage.now, What::Accepted { edge: self.index, link: connection });
        if let Some(process) = &mut self.process {
            process.connections.insert(connection, (link, MessageBuffer::default()));
            process.shown.insert(connection, shown.clone());
            process.broker.handle_connected(self.clock.monotonic(stage.now), connection, peer);
        }
        true
    }

    /// A connection has ended.
    pub(in crate::world) fn handle_closed(&mut self, connection: LinkId, stage: &mut Stage<'_>) {
        stage.trace.record(stage.now, What::EdgeClosed { edge: self.index, link: connection });
        self.with_process(stage, |process, now| {
            process.door.handle_said(connection);
            process.close(now, connection);
        });
    }

    /// Bytes of a camera's messages have arrived.
    pub(in crate::world) fn handle_bytes(
        &mut self,
        connection: LinkId,
        bytes: &Bytes,
        stage: &mut Stage<'_>,
    ) {
        let now = self.clock.monotonic(stage.now);
        let Some(process) = &mut self.process else { return };
        process.door.handle_said(connection);
        let Some((_, buffer)) = process.connections.get_mut(&connection) else { return };
        buffer.push(bytes);
        loop {
            match buffer.next() {
                Ok(Some(Message::Hello(hello))) if stage.bug == Some(Bug::EpochUnbounded) => {
                    believe(&mut process.broker, now, connection, hello);
                }
                Ok(Some(Message::Pong { t1, t2, t3 })) if stage.bug == Some(Bug::ClockWrong) => {
                    let message = Message::Pong { t1, t2: t2 + ms(30), t3: t3 + ms(30) };
                    process.broker.handle_message(now, connection, message);
                }
                Ok(Some(message)) => {
                    if let Message::RevocationList { signed } = &message
                        && let Some(signed) = SignedList::read(signed)
                    {
                        stage.checks.list_comes(self.index, &signed.list, ms(0));
                    }
                    Self::note_answer_message(connection, &message, stage);
                    process.broker.handle_message(now, connection, message);
                }
                Ok(None) => break,
                Err(error) => return stage.checks.garbled("a camera's message", &error),
            }
        }
        stage.trace.record(stage.now, What::ToEdge { edge: self.index, link: connection, kind: bytes[4] });
    }

    /// Tells the broker on every connection about bytes of a frame that does not exist.
    pub(in crate::world) fn hear_all(&mut self, now: Moment) {
        let now = self.clock.monotonic(now);
        let Some(process) = &mut self.process else { return };
        let none = FrameId { epoch: Epoch(0), sequence: Sequence(0) };
        for connection in process.connections.keys().copied().collect::<Vec<LinkId>>() {
            process.broker.handle_frame_progress(now, connection, none, 0);
        }
    }

    /// The header of a frame has arrived.
    pub(in crate::world) fn handle_opened(
        &mut self,
        connection: LinkId,
        header: &Bytes,
        stage: &mut Stage<'_>,
    ) -> Opened {
        let mut header = match FrameHeader::decode(header) {
            Ok(header) => header,
            Err(error) => {
                stage.checks.garbled("a header", &error);
                return Opened::Garbled;
            }
        };
        if stage.bug == Some(Bug::LostSkipRanges) {
            header.skipped.clear();
        }
        let chain = &mut header.meta.chain;
        if stage.bug == Some(Bug::ParentMisnamed) && chain.index > 0 {
            chain.reference = Reference::Acknowledged(chain.chain);
        }
        let (frame, past) = (header.meta.id, header.history);
        let now = self.clock.monotonic(stage.now);
        let taken = self.process.as_mut().is_some_and(|process| {
            process.knows(connection) && process.broker.handle_frame_header(now, connection, header).is_ok()
        });
        stage.trace.record(stage.now, What::Opened { edge: self.index, link: connection, frame, taken });
        match taken {
            true => Opened::Taken,
            false => Opened::Stopped(if past > 0 { past_stream(past) } else { frame }),
        }
    }

    /// This many bytes of a frame have arrived.
    pub(in crate::world) fn handle_progress(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        bytes: u32,
        stage: &Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        process.broker.handle_frame_progress(self.clock.monotonic(stage.now), connection, frame, bytes);
    }

    /// All bytes of a frame of this camera have arrived.
    pub(in crate::world) fn handle_finished(
        &mut self,
        camera: &CameraName,
        connection: LinkId,
        frame: FrameId,
        payload: &Bytes,
        stage: &mut Stage<'_>,
    ) {
        let (edge, now) = (self.index, self.clock.monotonic(stage.now));
        if let Some(shown) = self.process.as_ref().and_then(|process| process.shown.get(&connection)) {
            stage.checks.let_in(edge, shown, || format!("{frame} of {camera} was published"));
        }
        if let Some(request) = request_of(frame) {
            let Some(process) = &mut self.process else { return };
            return process.broker.handle_history_complete(now, connection, request, received(payload));
        }
        stage.trace.record(stage.now, What::Arrived { edge, link: connection, frame });
        let Some(process) = &mut self.process else { return };
        let payload = match stage.bug {
            Some(Bug::AlteredBytes) if frame.sequence.0 % 7 == 6 => altered(payload),
            _ => received(payload),
        };
        stage.checks.whole(process.run, camera, frame);
        process.broker.handle_frame_complete(now, connection, frame, payload);
    }

    /// The rest of a frame will not arrive.
    pub(in crate::world) fn handle_cancelled(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        stage: &mut Stage<'_>,
    ) {
        let (edge, now) = (self.index, self.clock.monotonic(stage.now));
        let request = request_of(frame);
        if request.is_none() {
            stage.trace.record(stage.now, What::Cancelled { edge, link: connection, frame });
        }
        let Some(process) = &mut self.process else { return };
        match request {
            Some(request) => process.broker.handle_history_cancelled(now, connection, request),
            None => process.broker.handle_frame_cancelled(now, connection, frame),
        }
    }
}

fn altered(payload: &Bytes) -> Bytes {
    let mut bytes = payload.to_vec();
    bytes[0] ^= 1;
    bytes.into()
}

/// The last byte of a camera's address. Cameras have 1, 2, 3 in the order of their creation.
fn camera_address(camera: usize) -> u8 {
    u8::try_from(camera + 1).unwrap_or(u8::MAX)
}
