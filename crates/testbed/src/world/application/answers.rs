//! Answers frames that an application has processed.

use mez_core::answers::AnswerKind;
use mez_core::broker::edge::GivenAnswer;
use mez_core::subscription::Delivery;

use super::Application;
use crate::payload::payload;
use crate::world::edge::EdgeHost;
use crate::world::events::{Event, MadeAnswer};
use crate::world::stage::Stage;

/// Payloads of answers are numbered from here on, to differ from those of cameras' frames and of records.
const PAYLOADS: u64 = 1 << 41;
/// Width and height of an answer, in pixels. They differ from those of frames.
const PIXELS: (u32, u32) = (40, 30);

impl Application {
    /// How many answers of the application the edge has accepted.
    pub(in crate::world) fn answers_accepted(&self) -> u64 {
        self.answers_accepted
    }

    /// Answers a processed frame, if the application answers this one.
    pub(super) fn make_answer(&mut self, done: &Delivery, stage: &mut Stage<'_>) {
        let Some(spec) = &self.spec.answers else { return };
        if stage.now > spec.until || !self.random.one_in(spec.once_in) {
            return;
        }
        let meta = &done.record.frame.meta;
        let times = if spec.twice_once_in > 0 && self.random.one_in(spec.twice_once_in) { 2 } else { 1 };
        for _ in 0..times {
            self.answers_made += 1;
            let bytes = self.random.within(u64::from(*spec.bytes.start())..=u64::from(*spec.bytes.end()));
            let number = PAYLOADS + (self.index as u64) * 1_000_000 + self.answers_made;
            let made = MadeAnswer {
                camera: done.camera.clone(),
                frame: meta.id,
                captured: meta.captured,
                payload: payload(number, bytes as u32),
            };
            let arrives = stage.now + self.random.duration(spec.computes.clone());
            stage.events.push(arrives, Event::AnswerMade { application: self.index, made: Box::new(made) });
        }
    }

    /// An answer is made, and reaches the edge unless the application replaces it. An answer that finds no running edge is lost; it was never accepted.
    pub(in crate::world) fn handle_answer_made(
        &mut self,
        made: MadeAnswer,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let Some(spec) = &self.spec.answers else { return };
        if self.reading.is_none() || edge.process.is_none() || edge.is_frozen() {
            return;
        }
        let once_in = spec.replaced_once_in;
        let replaced = self.replaced.remove(&made.camera).unwrap_or_default();
        if once_in > 0 && self.random.one_in(once_in) {
            self.replaced.insert(made.camera, replaced + 1);
            return;
        }
        if !self.may_reply(&made.camera, edge, stage) {
            return;
        }
        let MadeAnswer { camera, frame, captured, payload } = made;
        let picture =
            GivenAnswer { kind: AnswerKind::Picture, payload, size: PIXELS, shown: PIXELS, replaced };
        self.answers_accepted += u64::from(edge.take_answer(&camera, (frame, captured), picture, stage));
    }
}
