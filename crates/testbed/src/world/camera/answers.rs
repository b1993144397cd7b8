//! Receives answers for a camera's publisher, which takes them at its own pace.

use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::Answered;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::wire::{AnswerSkip, AnswerSkips, FrameHeader};

use super::CameraHost;
use crate::payload::received;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::spec::TakeSpec;
use crate::world::stage::Stage;

/// The longest time until the publisher's thread notices an answer, in nanoseconds.
const NOTICE_NANOS_MAX: u64 = 1_000_000;

impl CameraHost {
    /// The publisher begins or stops taking answers. So does every later process of the host.
    pub(in crate::world) fn set_answers(&mut self, takes: Option<TakeSpec>, stage: &mut Stage<'_>) {
        self.takes = takes;
        let Some(process) = &mut self.process else { return };
        if takes.is_none() {
            stage.checks.answers_cleared(process.run);
            process.publisher.waiting.clear();
        }
        process.broker.set_answers(takes.map(|takes| takes.bound));
    }

    /// The header of an answer has arrived. Returns the frame if the broker refuses the answer, whose stream is then to be stopped.
    pub(in crate::world) fn handle_answer_opened(
        &mut self,
        connection: LinkId,
        header: &Bytes,
        stage: &mut Stage<'_>,
    ) -> Option<FrameId> {
        let header = match FrameHeader::decode(header) {
            Ok(header) => header,
            Err(error) => {
                stage.checks.garbled("the header of an answer", &error);
                return None;
            }
        };
        let now = self.clock.monotonic(stage.now);
        let process = self.process.as_mut()?;
        let frame = header.meta.id;
        let taken = process.broker.handle_answer_header(now, connection, Box::new(header)).is_ok();
        let (camera, link) = (self.index, connection);
        stage.trace.record(stage.now, What::AnswerOpens { camera, link, frame, taken });
        if taken {
            process.connections.get_mut(&connection)?.answers.insert(frame);
        }
        (!taken).then_some(frame)
    }

    /// All bytes of an answer have arrived. Returns whether the broker was told.
    pub(in crate::world) fn handle_answer_finished(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        payload: &Bytes,
        stage: &mut Stage<'_>,
    ) -> bool {
        let now = self.clock.monotonic(stage.now);
        let Some(process) = &mut self.process else { return false };
        if !process.end_answer(connection, frame) {
            return false;
        }
        process.publisher.came_on.insert(frame, connection);
        process.broker.handle_answer_complete(now, connection, frame, received(payload));
        true
    }

    /// The rest of an answer will not arrive. Returns whether the broker was told.
    pub(in crate::world) fn handle_answer_cancelled(
        &mut self,
        connection: LinkId,
        frame: FrameId,
        stage: &mut Stage<'_>,
    ) -> bool {
        let now = self.clock.monotonic(stage.now);
        let Some(process) = &mut self.process else { return false };
        let known = process.end_answer(connection, frame);
        if known {
            let (camera, link) = (self.index, connection);
            stage.trace.record(stage.now, What::AnswerCancelled { camera, link, frame });
            process.broker.handle_answer_cancelled(now, connection, frame);
        }
        known
    }

    /// An answer is there for the publisher.
    pub(super) fn put_answer(&mut self, answered: Answered, stage: &mut Stage<'_>) {
        let Some(process) = &mut self.process else { return };
        let (camera, run, frame) = (self.index, process.run, answered.frame);
        stage.trace.record(stage.now, What::AnswerArrives { camera, frame });
        let came_on = process.publisher.came_on.remove(&frame);
        stage.checks.answer_arrived((&self.name, run), came_on, &answered);
        process.publisher.waiting.put(answered);
        if !std::mem::replace(&mut process.publisher.busy, true) {
            let noticed = Duration::from_nanos(self.random.within(0..=NOTICE_NANOS_MAX));
            stage.events.push(stage.now + noticed, Event::TakeAnswer { camera, run });
        }
    }

    /// The edges' accounts have changed.
    pub(super) fn set_answers_skipped(&mut self, skipped: AnswerSkips) {
        if let Some(process) = &mut self.process {
            process.publisher.waiting.set_skipped(skipped);
        }
    }

    /// The publisher takes an answer, if there is one, and works on it.
    pub(in crate::world) fn take_answer(&mut self, run: u64, stage: &mut Stage<'_>) {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return };
        let publisher = &mut process.publisher;
        let (Some(takes), Some((answered, mut news))) = (self.takes, publisher.waiting.take()) else {
            publisher.busy = false;
            return;
        };
        let before = publisher.given.replace(answered.clone());
        let stale = stage.bug == Some(Bug::OlderAnswerGiven) && answered.frame.sequence.0 % 10 == 9;
        let given = before.filter(|_| stale).unwrap_or(answered);
        if stage.bug == Some(Bug::UnreadAnswerForgotten) && news.get(AnswerSkip::Unread) > 0 {
            news.remove(AnswerSkip::Unread);
        }
        let (camera, frame) = (self.index, given.frame);
        stage.trace.record(stage.now, What::AnswerGiven { camera, frame });
        stage.checks.answer_given(run, frame, &news, &publisher.waiting.skipped());
        self.answers_given += 1;
        stage.events.push(stage.now + takes.pause, Event::TakeAnswer { camera, run });
    }
}

impl super::CameraProcess {
    /// Ends the arrival of an answer. Returns whether the broker had accepted its header.
    fn end_answer(&mut self, connection: LinkId, frame: FrameId) -> bool {
        self.connections.get_mut(&connection).is_some_and(|known| known.answers.remove(&frame))
    }
}
