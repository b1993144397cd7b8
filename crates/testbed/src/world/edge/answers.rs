//! Takes answers of applications, and sends them to cameras, as the edge's driver does.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::GivenAnswer;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::units::Timestamp;
use mez_core::wire::{AnswerAccount, AnswerSkip, FrameHeader, Message, Report};

use super::{EdgeHost, Effect};
use crate::check::MadeSeen;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::stage::Stage;

impl EdgeHost {
    /// An application has answered a frame that was captured at this time. Returns whether the edge accepts the answer.
    pub(in crate::world) fn take_answer(
        &mut self,
        camera: &CameraName,
        (frame, captured): (FrameId, Timestamp),
        picture: GivenAnswer,
        stage: &mut Stage<'_>,
    ) -> bool {
        let GivenAnswer { payload, size, replaced, .. } = picture.clone();
        let taken = self.with_process(stage, |process, now| {
            let clock = process.broker.capture_clock(now, camera);
            let captured = clock.and_then(|clock| clock.captured_at(frame, captured)).map(|(at, _)| at);
            let room = process.broker.handle_answer(now, camera, frame, picture);
            room.is_ok().then_some((process.run, captured))
        });
        let Some((run, captured)) = taken.flatten() else { return false };
        let seen = MadeSeen { frame, payload, size, captured, replaced };
        stage.checks.answer_taken((run, camera), seen);
        stage.trace.record(stage.now, What::AnswerTaken { edge: self.index, frame });
        true
    }

    /// Begins to send an answer.
    pub(super) fn send_answer(
        &mut self,
        connection: LinkId,
        header: &FrameHeader,
        payload: Bytes,
        stage: &mut Stage<'_>,
    ) -> Effect {
        let begun = self.clock.monotonic(stage.now);
        let Some(process) = &mut self.process else { return Effect::Nothing };
        let Some((link, _)) = process.connections.get(&connection) else { return Effect::Nothing };
        let frame = header.meta.id;
        stage.checks.answer_begins(connection, header, &payload, begun);
        stage.trace.record(stage.now, What::AnswerBegins { edge: self.index, link: connection, frame });
        let payload = match stage.bug {
            Some(Bug::AnswerMixedUp) if frame.sequence.0 % 20 == 19 => payload.slice(..payload.len() / 2),
            _ => payload,
        };
        let mut bytes = Vec::with_capacity(256);
        FrameHeader { payload_bytes: payload.len() as u32, ..header.clone() }.encode(&mut bytes);
        Effect::SendAnswer { link: *link, connection, frame, of: (bytes.into(), payload) }
    }

    /// Cancels an answer.
    pub(super) fn reset_answer(&self, connection: LinkId, frame: FrameId, stage: &mut Stage<'_>) -> Effect {
        stage.trace.record(stage.now, What::AnswerResets { edge: self.index, link: connection, frame });
        let link = self.process.as_ref().and_then(|process| process.connections.get(&connection));
        match link {
            Some((link, _)) if stage.bug != Some(Bug::AnswerResetIgnored) => {
                Effect::ResetAnswer { link: *link, connection, frame }
            }
            _ => Effect::Nothing,
        }
    }

    /// The last byte of an answer has left.
    pub(in crate::world) fn handle_answer_left(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        stage: &mut Stage<'_>,
    ) {
        let Some(process) = self.process.as_mut().filter(|process| process.knows(connection)) else { return };
        let now = self.clock.monotonic(stage.now);
        stage.checks.answer_left(connection, frame, now);
        process.broker.handle_answer_sent(now, connection, frame);
    }

    /// This many bytes of an answer have not left.
    pub(in crate::world) fn handle_answer_unsent(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        unsent: u64,
        stage: &Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        process.broker.handle_answer_unsent(self.clock.monotonic(stage.now), connection, frame, unsent);
    }

    /// Shows the rules what a camera says about answers.
    pub(super) fn note_answer_message(connection: LinkId, message: &Message, stage: &mut Stage<'_>) {
        match message {
            Message::AnswerRequest(request) => stage.checks.answers_asked(connection, request.bound),
            Message::Report(Report::Complete { frame, .. }) => {
                stage.checks.answer_confirmed(connection, *frame);
            }
            _ => {}
        }
    }

    /// Shows the rules an account that is sent to a camera. A planted bug changes it.
    pub(super) fn told_account(connection: LinkId, message: Message, stage: &mut Stage<'_>) -> Message {
        let Message::AnswerAccount(account) = message else { return message };
        let AnswerAccount { mut skipped, .. } = account;
        if stage.bug == Some(Bug::ReplacedAnswerUncounted) && skipped.get(AnswerSkip::Replaced) > 0 {
            skipped.remove(AnswerSkip::Replaced);
        }
        let account = AnswerAccount { skipped, ..account };
        stage.checks.account_told(connection, &account);
        Message::AnswerAccount(account)
    }
}
