//! Publishes the frames of a source.

use std::mem::discriminant;

use mez_core::broker::{PublishPartError, Published};
use mez_core::frame::Encoding;
use mez_core::units::Instant;
use tracing::{info, warn};

use crate::camera::{CameraHandle, SourceNews};
use crate::clock::monotonic_now;
use crate::source::{Source, SourceError, SourceEvent, SourceFrame, SourcePacket};

/// What became of a source's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedCounts {
    /// Frames published.
    pub published: u64,
    /// Frames that the broker refused.
    pub refused: u64,
    /// Frames lost between the source and here.
    pub skipped: u64,
}

/// Publishes frames until the source ends. `first` is called when the first frame has been published.
pub async fn feed(
    camera: &CameraHandle,
    source: &mut Source,
    mut first: impl FnMut(),
) -> Result<FeedCounts, SourceError> {
    let mut counts = FeedCounts::default();
    let clock = SameClock::now();
    let mut last_refusal = None;
    loop {
        let result = match source.next().await {
            SourceEvent::Frame(SourceFrame { jpeg, width, height, captured }) => {
                let encoding = Encoding::Jpeg;
                let frame = Published { payload: jpeg, encoding, width, height, captured: None };
                camera.publish_at(clock.convert(captured), frame).map_err(PublishPartError::from)
            }
            SourceEvent::Packet(SourcePacket { payload, width, height, part, captured }) => {
                let encoding = Encoding::H264;
                let frame = Published { payload, encoding, width, height, captured: None };
                camera.publish_part_at(clock.convert(captured), frame, part)
            }
            SourceEvent::Skipped { count } => {
                counts.skipped += count;
                continue;
            }
            SourceEvent::Restarting { why, after } => {
                warn!(camera = %camera.name(), "the source stopped: {why}; opening it again in {after:?}");
                camera.tell_source(SourceNews::Lost { reason: why, retry: Some(after) });
                continue;
            }
            SourceEvent::Failed(error) => {
                camera.tell_source(SourceNews::Lost { reason: error.to_string(), retry: None });
                return Err(error);
            }
            SourceEvent::Ended => {
                camera.tell_source(SourceNews::Ended);
                info!(camera = %camera.name(), published = counts.published, "the source has ended");
                return Ok(counts);
            }
        };
        match result {
            Ok(_) => {
                counts.published += 1;
                if counts.published == 1 {
                    first();
                }
            }
            Err(error) => {
                counts.refused += 1;
                // Frames that are too large tend to be so 15 times a second.
                let kind = match &error {
                    PublishPartError::Publish(error) => Some(discriminant(error)),
                    PublishPartError::NoKeyFrame => None,
                };
                if last_refusal != Some(kind) {
                    warn!(camera = %camera.name(), "a frame was not published: {error}");
                }
                last_refusal = Some(kind);
            }
        }
    }
}

/// Converts instants of the standard library, which on Linux use the same clock under another type.
///
/// The two are read once, so that the order of two instants stays what it is.
struct SameClock {
    std: std::time::Instant,
    ours: Instant,
}

impl SameClock {
    fn now() -> Self {
        Self { std: std::time::Instant::now(), ours: monotonic_now() }
    }

    fn convert(&self, instant: std::time::Instant) -> Instant {
        match instant.checked_duration_since(self.std) {
            Some(later) => self.ours + later,
            None => self.ours - self.std.duration_since(instant),
        }
    }
}
