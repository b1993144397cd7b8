//! Decides when a frame of the past is encoded. The past has a codec of its own, which encodes one
//! frame at a time while no live frame is in a codec. Its share of the time is bounded as on the link.

use std::time::Duration;

use crate::broker::camera::types::{CameraOutput, News, Transform};
use crate::frame::Reference;
use crate::log::Record;
use crate::setting::Setting;
use crate::units::Instant;

/// The longest time that a codec gets for a frame of the past. It is generous, because no reader waits for it as for a live frame.
const CODEC_TIME_MAX: Duration = Duration::from_secs(2);

/// The frame of the past that waits for the codec or is in it.
pub(super) struct PastCodec {
    /// The frame that was found and waits for the codec, with its ticket.
    found: Option<(u64, Record)>,
    /// The ticket of the frame in the codec, and since when. The frame may no longer be wanted.
    at_work: Option<(u64, Instant)>,
    /// The codec rests until this instant, so that the past keeps to its share of the processor.
    rests_until: Instant,
}

impl PastCodec {
    pub(super) fn new(now: Instant) -> Self {
        Self { found: None, at_work: None, rests_until: now }
    }

    /// The log found this frame for `ticket`: it is to be encoded.
    pub(super) fn handle_found(&mut self, ticket: u64, record: Record) {
        self.found = Some((ticket, record));
    }

    /// Drops the frame that was found, unless it belongs to this ticket.
    pub(super) fn keep_only(&mut self, wanted: Option<u64>) {
        self.found.take_if(|(ticket, _)| Some(*ticket) != wanted);
    }

    /// The codec has finished the frame of `ticket`. Returns since when it worked on it, and the original if
    /// it is still wanted. `None` if another frame, or none, was in the codec.
    pub(super) fn handle_done(&mut self, ticket: u64) -> Option<(Instant, Option<Record>)> {
        let (_, begun) = self.at_work.take_if(|(of, _)| *of == ticket)?;
        let found = self.found.take_if(|(of, _)| *of == ticket);
        Some((begun, found.map(|(_, record)| record)))
    }

    /// Whether the frame that was found is of a source's own video.
    pub(super) fn is_of_video(&self) -> bool {
        self.found.as_ref().is_some_and(|(_, record)| record.frame.meta.encoding.is_chained())
    }

    /// Lets the codec rest until this instant.
    pub(super) fn rest_until(&mut self, until: Instant) {
        self.rests_until = until;
    }

    /// When the codec may begin the next frame, if no live frame prevents it.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.found.is_some() && self.at_work.is_none()).then_some(self.rests_until)
    }

    /// Gives the frame that was found to the codec, if it may begin.
    pub(super) fn begin(&mut self, now: Instant, setting: Setting, bytes_max: u32) -> Option<CameraOutput> {
        self.due().filter(|due| *due <= now)?;
        let (ticket, record) = self.found.as_ref()?;
        let transform = Transform {
            frame: record.frame.clone(),
            setting,
            reference: Reference::Independent,
            news: News::default(),
            bytes_max,
            anchor_bytes_max: 0,
            deadline: now + CODEC_TIME_MAX,
        };
        let ticket = *ticket;
        self.at_work = Some((ticket, now));
        Some(CameraOutput::TransformPast { ticket, transform: Box::new(transform) })
    }
}
