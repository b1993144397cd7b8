//! What a camera takes, makes and cancels, and what brokers say to each other.

use std::time::Duration;

use mez_core::broker::PublishError;
use mez_core::frame::FrameId;
use mez_core::log::AppendError;
use mez_core::name::CameraName;

use super::Checks;
use crate::time::{Moment, ms};

/// Frames are not given up as stalled while something has got through within the latency bound, or this where there is none.
const STALL_BOUND_DEFAULT: Duration = ms(1_000);

/// A frame that a camera cancels.
pub(crate) struct Cancelled {
    pub(crate) frame: FrameId,
    /// How many bytes of it have not left.
    pub(crate) unsent: u64,
    /// The camera has a newer one.
    pub(crate) has_newer: bool,
    /// When something last got through on its connection.
    pub(crate) progress: Moment,
    /// The shortest latency bound of those who want frames.
    pub(crate) bound: Option<Duration>,
    /// Nobody wants frames, or nobody did a moment ago.
    pub(crate) is_unwanted: bool,
}

impl Checks {
    /// A camera's log took a frame; `wrong`: its publisher gave it the capture time of the last one.
    pub(crate) fn took(&mut self, id: FrameId, wrong: bool) {
        self.expect(!wrong, "order", || format!("{id} was taken with the capture time of the last"));
    }

    /// A camera's log refused a frame.
    pub(crate) fn refused(&mut self, error: &PublishError, wrong: bool) {
        let expected = match error {
            PublishError::Log(AppendError::CaptureTime { .. }) => wrong,
            // The link holds payloads until they have left; a small log may be full of them.
            PublishError::Log(AppendError::Held { .. }) => true,
            _ => false,
        };
        self.expect(expected, "order", || format!("a frame was refused: {error}"));
    }

    /// A profile came to a camera: whether it is the one that was named, and its size.
    pub(crate) fn profile_came(&mut self, whole: bool, bytes: usize) {
        self.expect(whole, "bytes", || format!("a profile came as {bytes} bytes"));
    }

    /// What a broker said cannot be read.
    pub(crate) fn garbled(&mut self, what: &str, error: &dyn std::error::Error) {
        self.fail("bytes", format!("{what} makes no sense: {error}"));
    }

    /// A frame of a camera entered a replica that no subscription opened.
    pub(crate) fn unasked(&mut self, camera: &CameraName) {
        self.fail("demand", format!("a frame of {camera} came, but nobody ever asked"));
    }

    /// A camera has a frame made at a rung of so many bytes on average, under a cap.
    pub(crate) fn makes_within_cap(&mut self, camera: usize, id: FrameId, expected: f64, most: f64) {
        self.expect(expected <= most, "caps", || {
            format!("camera {camera} makes {id} of {expected} bytes on average; {most} were allowed")
        });
    }

    /// A camera cancels a frame. Returns whether it gives way to a newer one, and for no other reason.
    pub(crate) fn cancels(&mut self, camera: usize, cancelled: &Cancelled) -> bool {
        let Cancelled { frame, unsent, bound, .. } = *cancelled;
        let gives_way = unsent > 0 && cancelled.has_newer;
        // What makes no progress may be cancelled at any time, and what nobody wants: also where the same packet brought the news that
        // somebody wants it again.
        let stalled = self.now.since(cancelled.progress) >= bound.unwrap_or(STALL_BOUND_DEFAULT)
            || cancelled.is_unwanted;
        self.expect(gives_way || stalled, "cancels", || {
            format!("camera {camera} cancels {frame}, of which {unsent} bytes are unsent, for no newer one")
        });
        gives_way && !stalled
    }
}
