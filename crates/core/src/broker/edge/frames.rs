//! Frames on their way in: which are taken, and what becomes of them.

use std::time::Duration;

use bytes::Bytes;

use super::{EdgeBroker, FrameRefused};
use crate::broker::{LinkId, NUMBER_MAX};
use crate::frame::FrameId;
use crate::units::Instant;
use crate::wire::{FrameHeader, Message, Report};

/// Frames that may be arriving on one connection at once. A camera has at most one that is being sent and 32 that are
/// sent and not acknowledged; those that it has cancelled may still be announced until the news is here.
pub const ARRIVING_FRAMES_MAX: usize = 64;
/// Bytes that the frames arriving on one connection at once may have together, unless there is only one.
pub const ARRIVING_BYTES_MAX: u64 = 64 << 20;
/// The least time between two progress reports of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// A frame of which the header is here and the payload not yet all; or all of it, and it waits for older ones of its chain.
pub(super) struct Arriving {
    header: FrameHeader,
    first: Instant,
    reported: Instant,
    whole: Option<Bytes>,
}

impl EdgeBroker {
    /// A frame's header arrived. After `Ok`, its payload may be received, and the frame ends with either
    /// [`EdgeBroker::handle_frame_complete`] or [`EdgeBroker::handle_frame_cancelled`]; if the header names a question for
    /// the past, with [`EdgeBroker::handle_history_complete`] or [`EdgeBroker::handle_history_cancelled`].
    pub fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> Result<(), FrameRefused> {
        let bytes_max = self.frame_bytes_max();
        let Some(link) = self.links.get_mut(&id) else { return Err(FrameRefused::NotWelcome) };
        let Some(session) = &link.session else { return Err(FrameRefused::NotWelcome) };
        link.heard = now;
        if header.history > 0 {
            return self.history_header(now, id, header);
        }
        let frame = header.meta.id;
        let arriving_bytes: u64 = link.arriving.iter().map(|f| u64::from(f.header.payload_bytes)).sum();
        let refused = if frame.epoch != session.epoch {
            Some(FrameRefused::Epoch { frame: frame.epoch, connection: session.epoch })
        } else if header.payload_bytes > bytes_max {
            Some(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max })
        } else if header.payload_bytes == 0 || header.meta.width == 0 || header.meta.height == 0 {
            Some(FrameRefused::Empty)
        } else if frame.sequence.0 >= NUMBER_MAX {
            Some(FrameRefused::Number { frame })
        } else if link.arriving.len() >= ARRIVING_FRAMES_MAX
            || !link.arriving.is_empty()
                && arriving_bytes + u64::from(header.payload_bytes) > ARRIVING_BYTES_MAX
        {
            Some(FrameRefused::TooMany)
        } else if link.arriving.iter().any(|arriving| arriving.header.meta.id == frame) {
            Some(FrameRefused::Twice { frame })
        } else {
            None
        };
        if let Some(refused) = refused {
            if let Some(camera) = self.camera_of(id) {
                camera.counters.refused += 1;
            }
            self.send(id, Message::Report(Report::Refused { frame }));
            return Err(refused);
        }
        link.arriving.push(Arriving { header, first: now, reported: now, whole: None });
        Ok(())
    }

    /// Part of a frame's payload is here: `bytes` of it in all.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let is_it = |arriving: &&mut Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(arriving) = link.arriving.iter_mut().find(is_it) else { return };
        if now.saturating_since(arriving.reported) >= PROGRESS_INTERVAL {
            arriving.reported = now;
            let report = Report::Progress { frame, bytes, first: arriving.first, now };
            self.send(id, Message::Report(report));
        }
    }

    /// All of a frame's payload is here.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let is_it = |arriving: &Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(position) = link.arriving.iter().position(is_it) else { return };
        link.heard = now;
        let (first, announced) = {
            let arriving = &link.arriving[position];
            (arriving.first, arriving.header.payload_bytes)
        };
        let bytes = payload.len() as u32;
        if bytes == announced {
            link.arriving[position].whole = Some(payload);
        } else {
            link.arriving.swap_remove(position);
        }
        self.send(id, Message::Report(Report::Complete { frame, bytes, first, last: now }));
        if let Some(camera) = self.camera_of(id) {
            camera.counters.bytes += u64::from(bytes);
            camera.counters.refused += u64::from(bytes != announced);
        }
        self.take_ready(now, id);
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let is_it = |arriving: &Arriving| arriving.whole.is_none() && arriving.header.meta.id == frame;
        let Some(position) = link.arriving.iter().position(is_it) else { return };
        link.arriving.swap_remove(position);
        if let Some(camera) = self.camera_of(id) {
            camera.counters.cancelled += 1;
        }
        self.take_ready(now, id);
    }

    /// A connection is over: takes what is whole, since the camera was told that it is here, and gives the number of frames of which the
    /// rest will not come.
    pub(super) fn take_last(&mut self, id: LinkId) -> u64 {
        let Some(link) = self.links.get_mut(&id) else { return 0 };
        link.over = true;
        let (heard, arriving) = (link.heard, link.arriving.len());
        link.arriving.retain(|arriving| arriving.whole.is_some());
        let cancelled = arriving - link.arriving.len();
        self.take_ready(heard, id);
        cancelled as u64
    }

    /// Takes the frames that are whole, oldest first; but those of a chain not before older ones of it that are still arriving, which
    /// they may need.
    fn take_ready(&mut self, now: Instant, id: LinkId) {
        while let Some(link) = self.links.get_mut(&id) {
            let is_ready = |known: &Arriving| {
                let (meta, whole) = (&known.header.meta, known.whole.is_some());
                whole
                    && (!meta.encoding.is_chained()
                        || !link.arriving.iter().any(|other| {
                            other.whole.is_none()
                                && other.header.meta.chain.chain == meta.chain.chain
                                && other.header.meta.id < meta.id
                        }))
            };
            let ready = link.arriving.iter().enumerate().filter(|(_, known)| is_ready(known));
            let oldest = ready.min_by_key(|(_, known)| known.header.meta.id).map(|(position, _)| position);
            let Some(position) = oldest else { return };
            let Arriving { header, first, whole, .. } = link.arriving.swap_remove(position);
            // What those that it overtakes say of others was said for the last time: the camera knows that they are here.
            let is_overtaken =
                |known: &&Arriving| known.whole.is_some() && known.header.meta.id < header.meta.id;
            let overtaken = link.arriving.iter().filter(is_overtaken);
            let told: Vec<_> =
                overtaken.map(|known| (known.header.meta.id, known.header.skipped.clone())).collect();
            // One that has been replaced meanwhile has no say any more.
            if let (Some(payload), Some(camera)) = (whole, self.camera_of(id)) {
                for (overtaken, skipped) in told {
                    camera.decoding.note(overtaken, &skipped);
                }
                self.take_whole(now, id, header, payload, first);
            }
        }
    }
}
