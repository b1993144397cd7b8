//! The way of the newest frame: to the codec if it has to be made smaller, and onto the link.

use super::adapt::{Making, Plan, Wish};
use super::{CameraBroker, CameraOutput, Transform, Transformed, Waiting};
use crate::controller::Arrival;
use crate::frame::{Frame, FrameId, FrameMeta, SkipReason};
use crate::profile::Profile;
use crate::setting::Setting;
use crate::units::Instant;
use crate::wire::{FrameHeader, Report};

impl CameraBroker {
    /// A codec has done what [`CameraOutput::Transform`] asked, or has not.
    pub fn handle_transformed(&mut self, now: Instant, frame: FrameId, transformed: Transformed) {
        let Some((source, making)) = self.making.take_if(|(source, _)| source.meta.id == frame) else {
            return;
        };
        let reason = match (transformed, self.active_link()) {
            (_, None) => SkipReason::LinkDown,
            (_, Some(link)) if link.demand.contracts.is_empty() => SkipReason::NotWanted,
            (Transformed::Failed, _) => SkipReason::NotMade,
            (Transformed::Made { payload, encoding, width, height, rung, chain }, Some(_)) => {
                self.adapter.made(now, &making, payload.len());
                let meta = FrameMeta { encoding, width, height, rung, chain, ..source.meta };
                self.send(now, Frame { meta, payload }, Some(&making));
                return self.pump(now);
            }
        };
        self.skip(frame, reason);
        self.pump(now);
    }

    /// A profile that an application names by its SHA-256.
    pub fn handle_profile(&mut self, now: Instant, hash: [u8; 32], profile: Profile) {
        self.adapter.add_profile(hash, profile);
        self.pump(now);
    }

    pub(super) fn pump_live(&mut self, now: Instant) {
        self.ask_again = None;
        let Some(link) = self.active_link() else { return };
        if link.demand.contracts.is_empty() || self.making.is_some() || !link.is_free(now) {
            return;
        }
        let (wish, bytes_max) = (Wish::of(&link.demand.contracts), link.frame_bytes_max);
        self.waiting.take_if(|waiting| waiting.record.frame.meta.id.epoch != self.config.epoch);
        let Some(Waiting { record, .. }) = &self.waiting else { return };
        let frame = record.frame.clone();
        let Some(wish) = wish else {
            self.waiting = None;
            return self.send(now, frame, None);
        };
        let captured = self.config.anchor.instant_at(frame.meta.captured);
        let interval = self.interval(now);
        match self.adapter.plan(now, &wish, &frame, captured, interval) {
            Plan::Wait(until) => self.ask_again = Some(until),
            Plan::Send(making) if making.setting == Setting::ORIGINAL => {
                self.waiting = None;
                self.send(now, frame, Some(&making));
            }
            Plan::Send(making) => {
                self.waiting = None;
                let (setting, deadline) = (making.setting, making.deadline);
                self.making = Some((frame.clone(), making));
                let transform = Transform { frame, setting, bytes_max, deadline };
                self.outputs.push_back(CameraOutput::Transform(Box::new(transform)));
            }
        }
    }

    /// Gives a frame to the link.
    fn send(&mut self, now: Instant, frame: Frame, making: Option<&Making>) {
        let Some(link) = self.active.and_then(|id| self.links.iter_mut().find(|link| link.id == id)) else {
            return;
        };
        if frame.payload.len() > link.frame_bytes_max as usize {
            return self.skip(frame.meta.id, SkipReason::Refused);
        }
        let payload_bytes = frame.payload.len() as u32;
        link.begin(now, frame.meta.id, frame.payload.len());
        self.adapter.handle_sent(now, frame.meta.id, payload_bytes, making);
        let header = FrameHeader {
            payload_bytes,
            sent: now,
            expected_accuracy: making.and_then(|making| making.expected_accuracy),
            infeasible: making.is_some_and(|making| making.infeasible),
            skipped: self.ledger.before(frame.meta.id.sequence),
            meta: frame.meta,
            history: 0,
        };
        self.outputs.push_back(CameraOutput::SendFrame {
            link: link.id,
            header: Box::new(header),
            payload: frame.payload,
        });
    }

    /// Tells the policy how a frame is arriving, by our clock.
    pub(super) fn tell_policy(&mut self, now: Instant, index: usize, report: Report) {
        let (frame, bytes, first, last, complete) = match report {
            Report::Progress { frame, bytes, first, now } => (frame, bytes, first, now, false),
            Report::Complete { frame, bytes, first, last } => (frame, bytes, first, last, true),
            Report::Refused { .. } => return,
        };
        let Some(clock) = self.links[index].clock.estimate(now) else { return };
        // A peer may claim any time. None lies in the future, and nothing ends before it begins.
        let last = clock.to_ours(last).min(now);
        let first = clock.to_ours(first).min(last);
        let arrival = Arrival { frame, bytes, first, last, complete, window_limited: false };
        self.adapter.handle_arrival(now, &arrival);
    }
}
