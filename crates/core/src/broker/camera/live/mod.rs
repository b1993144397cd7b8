//! The way of the newest frame: to the codec if it has to be made smaller, and onto the link.

pub(super) mod chain;
pub(super) mod frame_skip;

use std::time::Duration;

use super::adapt::{Candidate, Making, Plan};
use super::{CameraBroker, CameraOutput, Transform, Transformed, Waiting};
use crate::frame::{Frame, FrameId, FrameMeta, Quality, SkipReason};
use crate::log::Record;
use crate::setting::Form;
use crate::trace::{CameraTrace, Stage};
use crate::units::Instant;
use crate::wire::FrameHeader;

/// A frame that did not fit is made again once the link has been silent for this, if no newer one has come; at once where none will have
/// come by then: [`crate::controller::quantile::SILENCE_MAX`], less what making one takes.
const SILENCE_ACCEPTED: Duration = Duration::from_millis(200);

impl CameraBroker {
    /// A codec has done what [`CameraOutput::Transform`] asked, or has not.
    pub fn handle_transformed(&mut self, now: Instant, frame: FrameId, transformed: Transformed) {
        let Some((source, mut making)) = self.making.take_if(|(source, _)| source.meta.id == frame) else {
            return;
        };
        if frame.epoch != self.epoch {
            // It was being made when a later epoch began, of which the edge takes frames from now on.
            return self.pump(now);
        }
        let link = self.active_link().map(|link| (link.id, link.demand.contracts.is_empty(), link.begun()));
        let chained = making.setting.is_chained();
        let mut again = None;
        let reason = match (transformed, link) {
            (Transformed::Made { payload, encoding, width, height, rung, chain }, Some((link, false, _)))
                if !chained || self.chain.holds(link, &chain) =>
            {
                self.adapter.handle_made(now, &mut making, (&rung, &chain), payload.len());
                if encoding.is_chained() {
                    let sent = (frame.sequence, source.meta.captured);
                    self.chain.sent(link, sent, &chain, making.at);
                }
                let meta = FrameMeta { encoding, width, height, rung, chain, ..source.meta };
                let published = making.published;
                self.send(now, Frame { meta, payload }, published, Some(&making));
                return self.pump(now);
            }
            (Transformed::TooLarge { .. }, Some((_, unwanted, begun))) => {
                // With more room it may do. A newer frame is better, where one comes soon.
                let silent_at = begun + SILENCE_ACCEPTED;
                let rests_until = (now + self.rate.interval(now) <= silent_at).then_some(silent_at);
                let has_more = self.adapter.handle_too_large(&making) && !unwanted && self.waiting.is_none();
                again = has_more.then_some((making.published, rests_until));
                SkipReason::NotMade
            }
            (Transformed::Failed, Some(_)) => {
                self.adapter.handle_failed(now, &making);
                SkipReason::NotMade
            }
            (_, None) => SkipReason::LinkDown,
            (_, Some((_, true, _))) => SkipReason::NotWanted,
            // What it refers to was lost while it was made.
            (_, Some((_, false, _))) => SkipReason::NotMade,
        };
        if chained {
            self.chain.not_sent(frame.sequence);
        }
        match again {
            Some((published, rests_until)) => {
                let (skipped, quality) = ([].into(), Quality::default());
                let record = Record { frame: source, skipped, quality, trace: None, arrived: now };
                self.waiting = Some(Waiting { record, reason, published, rests_until });
            }
            None => self.skip(frame, reason),
        }
        self.pump(now);
    }

    /// Cancels the frame that is being sent where it will be late whatever happens and the one that waits would not be. Frames that go as
    /// they are only stall: where each of them takes longer than the bound, none would ever arrive.
    fn cancel_late(&mut self, now: Instant) {
        if let Some(link) = self.connections.active_mut() {
            link.note_pause(now);
        }
        let Some((wish, link)) = self.joint().zip(self.active_link()) else { return };
        let Some((sending, bytes, unsent)) = link.being_sent(now) else { return };
        if unsent == 0 || link.is_out() || self.making.is_some() {
            return;
        }
        let Some(Waiting { record, .. }) = &self.waiting else { return };
        if record.frame.meta.id.epoch != self.epoch || sending.epoch != self.epoch {
            return;
        }
        let (link, window) = (link.id, link.window);
        let (frame, interval) = (record.frame.clone(), self.rate.interval(now));
        let before = self.chain.goes_on_without(link, frame.meta.captured, sending.sequence);
        let waiting = Candidate {
            now,
            wish: &wish,
            profiles: &self.profiles,
            frame: &frame,
            before,
            captured: self.anchor.instant_at(frame.meta.captured),
            interval,
            unsent_bytes: unsent,
            window,
        };
        if !self.adapter.gives_up(&waiting) {
            return;
        }
        self.adapter.handle_cancelled(now, sending, bytes - unsent);
        if let Some(known) = self.connections.get_mut(link) {
            known.give_up(sending);
        }
        self.outputs.push_back(CameraOutput::Reset { link, frame: sending });
        self.skip(sending, SkipReason::Stalled);
    }

    pub(super) fn pump_live(&mut self, now: Instant) {
        self.ask_again = None;
        self.cancel_late(now);
        let Some(active) = self.connections.active() else { return };
        let link = active;
        if link.demand.contracts.is_empty() || self.making.is_some() || !link.is_free(now) {
            return;
        }
        let (link, bytes_max, window) = (link.id, link.frame_bytes_max, link.window);
        self.waiting.take_if(|waiting| waiting.record.frame.meta.id.epoch != self.epoch);
        let Some(Waiting { record, published, rests_until, .. }) = &self.waiting else { return };
        if let Some(until) = rests_until.filter(|until| now < *until) {
            self.ask_again = Some(until);
            return;
        }
        let published = *published;
        let frame = record.frame.clone();
        if self.is_left_out(frame.meta.id) {
            return;
        }
        let interval = self.rate.interval(now);
        if let Some(wish) = self.negotiation.to_settle(active) {
            let like_this = Candidate {
                now,
                wish: &wish,
                profiles: &self.profiles,
                frame: &frame,
                before: None,
                captured: now,
                interval,
                unsent_bytes: 0,
                window: None,
            };
            // While the link is out nothing is known: it stays as it was.
            if let Some(looks) = self.adapter.kept_by(&like_this, &active.demand.contracts) {
                let bound = self.negotiation.settle(now, active, &looks);
                if let Some(known) = self.connections.get_mut(link) {
                    known.kept_bound = bound;
                }
            }
        }
        let Some(wish) = self.joint() else {
            self.waiting = None;
            return self.send(now, frame, published, None);
        };
        self.chain.refresh_late(now);
        let candidate = Candidate {
            now,
            wish: &wish,
            profiles: &self.profiles,
            frame: &frame,
            before: self.chain.goes_on(link, frame.meta.captured),
            captured: self.anchor.instant_at(frame.meta.captured),
            interval,
            unsent_bytes: 0,
            window,
        };
        match self.adapter.plan(&candidate) {
            Plan::Wait(until) => {
                self.ask_again = Some(until);
                if !wish.degrade
                    && self.adapter.seen().is_some_and(|seen| seen.infeasible)
                    && let Some(waiting) = &mut self.waiting
                {
                    waiting.reason = SkipReason::Infeasible;
                }
            }
            Plan::Send(making) if making.setting.form == Form::Original => {
                self.waiting = None;
                let mut frame = frame;
                if making.setting.skip > 0 {
                    frame.meta.rung = making.setting.rung();
                }
                self.send(now, frame, published, Some(&making));
            }
            Plan::Send(mut making) => {
                self.waiting = None;
                making.published = published;
                let (setting, deadline) = (making.setting, making.deadline);
                let bytes_max = making.bytes_max.unwrap_or(u32::MAX).min(bytes_max);
                self.making = Some((frame.clone(), *making));
                let reference = self.chain.reference(link, frame.meta.captured);
                let news = self.chain.take_news();
                let transform = Transform { frame, setting, reference, news, bytes_max, deadline };
                self.outputs.push_back(CameraOutput::Transform(Box::new(transform)));
            }
        }
    }

    /// Gives a frame to the link, which was found in the log at `published`.
    fn send(&mut self, now: Instant, frame: Frame, published: Instant, making: Option<&Making>) {
        let Some(link) = self.connections.active_mut() else { return };
        if frame.payload.len() > link.frame_bytes_max as usize {
            return self.skip(frame.meta.id, SkipReason::Refused);
        }
        let payload_bytes = frame.payload.len() as u32;
        let (id, window) = (link.id, link.window);
        link.begin(now, frame.meta.id, frame.payload.len());
        self.leave_out_after(frame.meta.id, making);
        self.adapter.handle_sent(now, frame.meta.id, payload_bytes, window, making);
        let mut trace = CameraTrace::default();
        trace.stamp(Stage::Published, published);
        if let Some(making) = making {
            trace.stamp(Stage::Considered, making.begun);
        }
        let header = FrameHeader {
            payload_bytes,
            sent: now,
            expected_accuracy: making.and_then(|making| making.expected_accuracy),
            infeasible: making.is_some_and(|making| making.infeasible),
            skipped: self.ledger.before(frame.meta.id.sequence),
            meta: frame.meta,
            history: 0,
            trace,
        };
        self.outputs.push_back(CameraOutput::SendFrame {
            link: id,
            header: Box::new(header),
            payload: frame.payload,
        });
    }
}
