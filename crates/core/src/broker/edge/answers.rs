//! Sends a camera the answers of applications to its frames.
//! The camera's outlet ([`crate::answers`]) decides which answer is sent when.

use bytes::Bytes;

use super::EdgeBroker;
use super::camera::Camera;
use super::connection::Connection;
use super::types::{AnswerError, EdgeOutput, GivenAnswer};
use crate::answers::{ANSWER_BYTES_MAX, AnswerKind, MadeAnswer, OutletStep, Room};
use crate::broker::LinkId;
use crate::frame::{ChainLink, FrameId, FrameMeta, Rung};
use crate::log::Record;
use crate::name::CameraName;
use crate::trace::{CameraTrace, Stage};
use crate::units::Instant;
use crate::wire::{FrameHeader, Message, Report};

impl EdgeBroker {
    /// An application has answered a frame. Returns the limits for its next answer.
    ///
    /// The newest answer goes to the camera if its publisher takes answers. For every other answer, the publisher is told why it did not come.
    pub fn handle_answer(
        &mut self,
        now: Instant,
        name: &CameraName,
        frame: FrameId,
        GivenAnswer { kind, payload, size, shown, replaced }: GivenAnswer,
    ) -> Result<Room, AnswerError> {
        let bytes = payload.len();
        if bytes > ANSWER_BYTES_MAX as usize {
            return Err(AnswerError::TooLarge { bytes });
        }
        let Some(camera) = self.roster.cameras.get_mut(name) else {
            return Err(AnswerError::UnknownCamera { camera: name.clone() });
        };
        if let Some(derived) = &camera.derived {
            let owner = derived.deriving.owner.clone();
            return Err(AnswerError::IsDerived { stream: name.clone(), owner });
        }
        let link = camera.link.filter(|_| camera.is_heard());
        let Some(link) = link.and_then(|link| self.roster.connections.get(link)) else {
            return Err(AnswerError::NotConnected { camera: name.clone() });
        };
        if camera.replica.newest().is_none_or(|(newest, _)| frame > newest) {
            return Err(AnswerError::UnknownFrame { camera: name.clone(), frame });
        }
        camera.answers.handle_replaced(replaced);
        // Answers to frames of an earlier start are of no use to the publisher of this one.
        let is_present = frame.epoch == camera.newest_start.0;
        let record = camera.replica.reader().get_frame(frame).filter(|_| is_present);
        let (room, steps) = match record {
            Some(record) => {
                let answer = answer(now, link, &record, (kind, payload), (size, shown));
                let path = link.clock.estimate(now).map(|clock| clock.round_trip_time / 2);
                camera.answers.handle_answer(now, answer, path.unwrap_or_default())
            }
            None => camera.answers.handle_gone(now),
        };
        self.outputs.extend(carried_out(link.id, steps));
        Ok(room)
    }

    /// The last byte of an answer has left.
    pub fn handle_answer_sent(&mut self, now: Instant, link: LinkId, frame: FrameId) {
        self.with_answers(link, |camera, _| camera.answers.handle_sent(now, frame));
    }

    /// `bytes` of an answer that is being sent have not left yet. If the answer is cancelled now, they never will.
    /// Call this as described at [`CameraBroker::handle_unsent`](crate::broker::camera::CameraBroker::handle_unsent).
    pub fn handle_answer_unsent(&mut self, now: Instant, link: LinkId, frame: FrameId, bytes: u64) {
        self.with_answers(link, |camera, _| camera.answers.handle_unsent(now, frame, bytes));
    }

    /// A camera sends a message about answers.
    pub(super) fn handle_answer_message(&mut self, now: Instant, id: LinkId, message: Message) {
        self.with_answers(id, |camera, link| match message {
            Message::AnswerRequest(request) => camera.answers.handle_request(now, request.bound),
            Message::Report(Report::Complete { frame, last, .. }) => {
                let arrived = link.clock.estimate(now).map(|clock| clock.to_ours(last));
                camera.answers.handle_confirmed(now, frame, arrived)
            }
            Message::Report(Report::Refused { frame }) => camera.answers.handle_refused(now, frame),
            _ => Vec::new(),
        });
    }

    /// Gives up answers that are too old.
    pub(super) fn handle_old_answers(&mut self, now: Instant) {
        let is_due = |camera: &Camera| camera.answers.due().is_some_and(|due| now >= due);
        for name in self.roster.cameras.names(|_, camera| is_due(camera)) {
            let link = self.roster.cameras.get(&name).and_then(|camera| camera.link);
            let Some(link) = link else { continue };
            self.with_answers(link, |camera, _| camera.answers.handle_timeout(now));
        }
    }

    /// When an answer will be too old.
    pub(super) fn answers_due(&self) -> Option<Instant> {
        self.roster.cameras.iter().filter_map(|(_, camera)| camera.answers.due()).min()
    }

    /// Applies `what` to the camera of a connection, and carries out the resulting steps.
    fn with_answers(&mut self, id: LinkId, what: impl FnOnce(&mut Camera, &Connection) -> Vec<OutletStep>) {
        let Some(link) = self.roster.connections.get(id) else { return };
        let camera = link.camera().and_then(|name| self.roster.cameras.get_mut(name));
        if let Some(camera) = camera {
            self.outputs.extend(carried_out(id, what(camera, link)));
        }
    }
}

/// An answer to a frame, as it crosses the link.
fn answer(
    now: Instant,
    link: &Connection,
    Record { frame, trace, arrived, .. }: &Record,
    (kind, payload): (AnswerKind, Bytes),
    ((width, height), shown): ((u32, u32), (u32, u32)),
) -> MadeAnswer {
    let FrameMeta { id, captured, clock_source, .. } = frame.meta;
    let mut stamps = CameraTrace::default();
    // The sender's stages: the frame counts as published when it arrived here, and as encoded when the answer is ready.
    stamps.stamp(Stage::Published, trace.as_ref().map_or(*arrived, |trace| trace.arrived));
    stamps.stamp(Stage::Encoded, now);
    let meta = FrameMeta {
        id,
        captured,
        clock_source,
        width,
        height,
        published: shown,
        encoding: kind.encoding(),
        rung: Rung::original(),
        chain: ChainLink::still(id.sequence),
    };
    let header = FrameHeader {
        meta,
        payload_bytes: payload.len() as u32,
        sent: now,
        expected_accuracy: None,
        infeasible: false,
        skipped: Vec::new(),
        history: 0,
        trace: stamps,
    };
    let captured = link.capture_clock(now).and_then(|clock| clock.captured_at(id, captured));
    MadeAnswer { header: Box::new(header), payload, captured: captured.map(|(at, _)| at) }
}

fn carried_out(link: LinkId, steps: Vec<OutletStep>) -> impl Iterator<Item = EdgeOutput> {
    steps.into_iter().map(move |step| match step {
        OutletStep::Send(MadeAnswer { header, payload, .. }) => {
            EdgeOutput::SendAnswer { link, header, payload }
        }
        OutletStep::Reset(frame) => EdgeOutput::ResetAnswer { link, frame },
        OutletStep::Tell(account) => EdgeOutput::Send { link, message: Message::AnswerAccount(account) },
    })
}
