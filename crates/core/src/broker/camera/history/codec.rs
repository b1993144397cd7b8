//! Decides when a frame of the past is made into what was asked for: one at a time, by a codec of their own, while none of a live frame is at
//! work, and with the same bounded share of the time.

use std::time::Duration;

use crate::broker::camera::types::{CameraOutput, News, Transform};
use crate::frame::Reference;
use crate::log::Record;
use crate::setting::Setting;
use crate::units::Instant;

/// How long a codec may take for a frame of the past, which nobody waits for as for a live one.
const CODEC_TIME_MAX: Duration = Duration::from_secs(2);

/// A frame of the past on its way through a codec.
pub(super) struct PastCodec {
    /// What was looked for, and found.
    found: Option<(u64, Record)>,
    /// What the codec is at work on, which nobody may want any more, and since when.
    at_work: Option<(u64, Instant)>,
    /// Before this, frames of the past would take more than their share of the processor.
    rests_until: Instant,
}

impl PastCodec {
    pub(super) fn new(now: Instant) -> Self {
        Self { found: None, at_work: None, rests_until: now }
    }

    /// A frame is to be made of this one, which `ticket` has found.
    pub(super) fn handle_found(&mut self, ticket: u64, record: Record) {
        self.found = Some((ticket, record));
    }

    /// Only what this ticket has found is still wanted; `None`: nothing is.
    pub(super) fn keep_only(&mut self, wanted: Option<u64>) {
        self.found.take_if(|(ticket, _)| Some(*ticket) != wanted);
    }

    /// The codec is done with what `ticket` has found. Since when it was at work on it, and what it was, unless nobody wants it any more;
    /// `None` if it was at work on nothing of the kind.
    pub(super) fn handle_done(&mut self, ticket: u64) -> Option<(Instant, Option<Record>)> {
        let (_, begun) = self.at_work.take_if(|(of, _)| *of == ticket)?;
        let found = self.found.take_if(|(of, _)| *of == ticket);
        Some((begun, found.map(|(_, record)| record)))
    }

    /// Leaves the processor to others until then.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.rests_until = until;
    }

    /// When the codec may begin with the next frame, if nothing else keeps it.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.found.is_some() && self.at_work.is_none()).then_some(self.rests_until)
    }

    /// Begins with the frame that was found, if it may.
    pub(super) fn begin(&mut self, now: Instant, setting: Setting, bytes_max: u32) -> Option<CameraOutput> {
        self.due().filter(|due| *due <= now)?;
        let (ticket, record) = self.found.as_ref()?;
        let transform = Transform {
            frame: record.frame.clone(),
            setting,
            reference: Reference::Independent,
            news: News::default(),
            bytes_max,
            deadline: now + CODEC_TIME_MAX,
        };
        let ticket = *ticket;
        self.at_work = Some((ticket, now));
        Some(CameraOutput::TransformPast { ticket, transform: Box::new(transform) })
    }
}
