//! Frames on their way in: which are taken, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{EdgeBroker, EdgeOutput, FrameRefused};
use crate::broker::{LinkId, NUMBER_MAX};
use crate::frame::{Frame, FrameId, Quality, Sequence, SkipRange};
use crate::log::AppendError;
use crate::units::Instant;
use crate::wire::{FrameHeader, Message, Report};

/// Frames that may be arriving on one connection at once. A camera has at most one that is being sent and 32 that are
/// sent and not acknowledged; those that it has cancelled may still be announced until the news is here.
pub const ARRIVING_FRAMES_MAX: usize = 64;
/// Bytes that the frames arriving on one connection at once may have together, unless there is only one.
pub const ARRIVING_BYTES_MAX: u64 = 64 << 20;
/// The least time between two progress reports of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// A frame of which the header is here and the payload not yet all.
pub(super) struct Arriving {
    header: FrameHeader,
    first: Instant,
    reported: Instant,
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
        link.arriving.push(Arriving { header, first: now, reported: now });
        Ok(())
    }

    /// Part of a frame's payload is here: `bytes` of it in all.
    pub fn handle_frame_progress(&mut self, now: Instant, id: LinkId, frame: FrameId, bytes: u32) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.heard = now;
        let Some(arriving) = link.arriving.iter_mut().find(|arriving| arriving.header.meta.id == frame)
        else {
            return;
        };
        if now.saturating_since(arriving.reported) >= PROGRESS_INTERVAL {
            arriving.reported = now;
            let report = Report::Progress { frame, bytes, first: arriving.first, now };
            self.send(id, Message::Report(report));
        }
    }

    /// All of a frame's payload is here.
    pub fn handle_frame_complete(&mut self, now: Instant, id: LinkId, frame: FrameId, payload: Bytes) {
        let Some(Arriving { header, first, .. }) = self.take_arriving(id, frame) else { return };
        let bytes = payload.len() as u32;
        self.send(id, Message::Report(Report::Complete { frame, bytes, first, last: now }));
        if let Some(link) = self.links.get_mut(&id) {
            link.heard = now;
        }
        let Some(camera) = self.camera_of(id) else { return };
        camera.counters.bytes += u64::from(bytes);
        if bytes != header.payload_bytes {
            camera.counters.refused += 1;
            return;
        }
        let FrameHeader { meta, skipped, expected_accuracy, infeasible, .. } = header;
        let quality = Quality { expected_accuracy, infeasible };
        let skipped = skipped_since(camera.log.last().map(|(id, _)| id), frame, &skipped);
        match camera.log.append_appraised(Frame { meta, payload }, skipped, quality, now) {
            Ok(_) => {
                camera.counters.received += 1;
                let camera = self.session(id).map(|session| session.camera.clone());
                self.outputs.extend(camera.map(|camera| EdgeOutput::Appended { camera }));
            }
            Err(AppendError::OutOfOrder { .. } | AppendError::CaptureTime { .. }) => {
                camera.counters.late += 1;
            }
            Err(AppendError::LargerThanLog { .. } | AppendError::Held { .. }) => {
                camera.counters.refused += 1;
            }
        }
    }

    /// The rest of a frame's payload will not come.
    pub fn handle_frame_cancelled(&mut self, now: Instant, id: LinkId, frame: FrameId) {
        if self.take_arriving(id, frame).is_some()
            && let Some(camera) = self.camera_of(id)
        {
            camera.counters.cancelled += 1;
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.heard = now;
        }
    }

    fn take_arriving(&mut self, link: LinkId, frame: FrameId) -> Option<Arriving> {
        let arriving = &mut self.links.get_mut(&link)?.arriving;
        let position = arriving.iter().position(|arriving| arriving.header.meta.id == frame)?;
        Some(arriving.swap_remove(position))
    }
}

/// The part of what a camera said it skipped that lies between the newest frame held and the one that arrived.
fn skipped_since(newest: Option<FrameId>, frame: FrameId, skipped: &[SkipRange]) -> Arc<[SkipRange]> {
    let from = match newest {
        Some(newest) if newest.epoch == frame.epoch => Sequence(newest.sequence.0.saturating_add(1)),
        _ => Sequence(0),
    };
    skipped.iter().filter_map(|range| range.clipped(from, frame.sequence)).collect()
}
