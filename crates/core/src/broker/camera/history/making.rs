//! What is made of frames of the past before they are sent: one at a time, by a codec of their own, while none of a live frame is at work
//! and with the same bounded share of the time.

use std::time::Duration;

use super::{CameraBroker, CameraOutput};
use crate::broker::camera::{Transform, Transformed, types::News};
use crate::frame::{Frame, Reference, SkipReason};
use crate::log::Record;
use crate::units::Instant;

/// How long a codec may take for a frame of the past, which nobody waits for as for a live one.
const MAKING_TIME_MAX: Duration = Duration::from_secs(2);

/// A frame of the past on its way through a codec.
pub(super) struct Making {
    /// What was looked for, and found.
    found: Option<(u64, Record)>,
    /// What the codec is at work on, which nobody may want any more, and since when.
    at_work: Option<(u64, Instant)>,
    /// Before this, frames of the past would take more than their share of the processor.
    rests_until: Instant,
}

impl Making {
    pub(super) fn new(now: Instant) -> Self {
        Self { found: None, at_work: None, rests_until: now }
    }

    /// A frame is to be made of this one, which `ticket` has found.
    pub(super) fn found(&mut self, ticket: u64, record: Record) {
        self.found = Some((ticket, record));
    }

    /// When the codec may begin with the next frame, if nothing else keeps it.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.found.is_some() && self.at_work.is_none()).then_some(self.rests_until)
    }
}

impl CameraBroker {
    /// A codec has done what [`CameraOutput::TransformPast`] asked, or has not.
    pub fn handle_past_transformed(&mut self, now: Instant, ticket: u64, transformed: Transformed) {
        let Some((_, begun)) = self.history.making.at_work.take_if(|(of, _)| *of == ticket) else { return };
        self.history.making.rests_until = now + self.rest_after(now.saturating_since(begun));
        let found = self.history.making.found.take_if(|(of, _)| *of == ticket);
        if let Some((_, record)) = found.filter(|_| self.history.looking && self.history.ticket == ticket) {
            let asked = self.history.asked.front().map(|asked| &asked.next.rung);
            match transformed {
                // With less than was asked for it would be another rung.
                Transformed::Made { payload, encoding, width, height, rung, chain }
                    if Some(&rung) == asked =>
                {
                    let meta = record.frame.meta;
                    let meta = crate::frame::FrameMeta { encoding, width, height, rung, chain, ..meta };
                    self.found(now, Record { frame: Frame { meta, payload }, ..record });
                }
                _ => self.pass_over(record.frame.meta.id, Some(SkipReason::NotMade)),
            }
        }
        self.pump(now);
    }

    /// Whether no live frame is in a codec.
    pub(in super::super) fn history_can_be_made(&self) -> bool {
        self.live.making().is_none()
    }

    /// Gives a frame of the past to its codec, unless a live one is being made.
    pub(super) fn pump_making(&mut self, now: Instant) {
        let making = &mut self.history.making;
        making.found.take_if(|(ticket, _)| !self.history.looking || *ticket != self.history.ticket);
        if !self.history_can_be_made() || self.history.making.due().is_none_or(|due| now < due) {
            return;
        }
        let Some(asked) = self.history.asked.front() else { return };
        let Some((ticket, record)) = &self.history.making.found else { return };
        let link = self.connections.get(asked.link);
        let transform = Transform {
            frame: record.frame.clone(),
            setting: asked.setting,
            reference: Reference::Independent,
            news: News::default(),
            bytes_max: link.map_or(0, |link| link.frame_bytes_max),
            deadline: now + MAKING_TIME_MAX,
        };
        let ticket = *ticket;
        self.history.making.at_work = Some((ticket, now));
        self.outputs.push_back(CameraOutput::TransformPast { ticket, transform: Box::new(transform) });
    }
}
