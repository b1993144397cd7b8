//! Publishes the frames of a source.

use mez_core::broker::{PublishError, Published};
use mez_core::frame::Encoding;
use mez_core::units::Instant;
use tracing::{info, warn};

use crate::camera::{CameraHandle, SourceNews};
use crate::clock::monotonic_now;
use crate::source::{Source, SourceError, SourceEvent};

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
    let mut last_refusal: Option<PublishError> = None;
    loop {
        match source.next().await {
            SourceEvent::Frame(frame) => {
                let published = Published {
                    payload: frame.jpeg,
                    encoding: Encoding::Jpeg,
                    width: frame.width,
                    height: frame.height,
                    captured: None,
                };
                match camera.publish_at(clock.convert(frame.captured), published) {
                    Ok(_) => {
                        counts.published += 1;
                        if counts.published == 1 {
                            first();
                        }
                    }
                    Err(error) => {
                        counts.refused += 1;
                        // Frames that are too large tend to be so 15 times a second.
                        if last_refusal.as_ref().map(std::mem::discriminant)
                            != Some(std::mem::discriminant(&error))
                        {
                            warn!(camera = %camera.name(), "a frame was not published: {error}");
                        }
                        last_refusal = Some(error);
                    }
                }
            }
            SourceEvent::Skipped { count } => counts.skipped += count,
            SourceEvent::Restarting { why, after } => {
                warn!(camera = %camera.name(), "the source stopped: {why}; opening it again in {after:?}");
                camera.tell_source(SourceNews::Lost { reason: why, retry: Some(after) });
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
