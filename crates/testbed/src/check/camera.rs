//! Checks what a camera publishes, encodes and cancels, and what brokers send to each other.

use std::time::Duration;

use mez_core::broker::PublishError;
use mez_core::frame::FrameId;
use mez_core::log::AppendError;
use mez_core::name::CameraName;

use super::Checks;
use crate::time::{Moment, ms};

/// The latency bound for cancelling if there is none. A frame does not count as stalled if something got through within the bound.
const STALL_BOUND_DEFAULT: Duration = ms(1_000);

/// A frame that a camera cancels.
pub(crate) struct Cancelled {
    pub(crate) frame: FrameId,
    /// How many bytes of the frame are unsent.
    pub(crate) unsent: u64,
    /// Whether the camera has a newer frame.
    pub(crate) has_newer: bool,
    /// When something last got through on the connection.
    pub(crate) progress: Moment,
    /// The shortest latency bound of the demand.
    pub(crate) bound: Option<Duration>,
    /// Whether no frames are wanted, or none were a moment ago.
    pub(crate) is_unwanted: bool,
}

impl Checks {
    /// Checks a published frame. `wrong`: the publisher gave it the capture time of the last frame.
    pub(crate) fn took(&mut self, id: FrameId, wrong: bool) {
        self.expect(!wrong, "order", || format!("{id} was taken with the capture time of the last"));
    }

    /// Checks that a frame was refused for a reason.
    pub(crate) fn refused(&mut self, error: &PublishError, wrong: bool) {
        let expected = match error {
            PublishError::Log(AppendError::CaptureTime { .. }) => wrong,
            // The link holds payloads until they have left, and a small log may be full of them.
            PublishError::Log(AppendError::Held { .. }) => true,
            _ => false,
        };
        self.expect(expected, "order", || format!("a frame was refused: {error}"));
    }

    /// Checks that a profile reached a camera whole.
    pub(crate) fn profile_came(&mut self, whole: bool, bytes: usize) {
        self.expect(whole, "bytes", || format!("a profile came as {bytes} bytes"));
    }

    /// Reports a message or header of a broker that cannot be decoded.
    pub(crate) fn garbled(&mut self, what: &str, error: &dyn std::error::Error) {
        self.fail("bytes", format!("{what} makes no sense: {error}"));
    }

    /// Reports a frame in a replica without a subscription.
    pub(crate) fn unasked(&mut self, camera: &CameraName) {
        self.fail("demand", format!("a frame of {camera} came, but nobody ever asked"));
    }

    /// Checks that the mean bytes of a rung are within the cap.
    pub(crate) fn makes_within_cap(&mut self, camera: usize, id: FrameId, expected: f64, most: f64) {
        self.expect(expected <= most, "caps", || {
            format!("camera {camera} makes {id} of {expected} bytes on average; {most} were allowed")
        });
    }

    /// Checks that a camera may cancel a frame. Returns whether the frame gives way to a newer one, and for no other reason.
    pub(crate) fn cancels(&mut self, camera: usize, cancelled: &Cancelled) -> bool {
        let Cancelled { frame, unsent, bound, .. } = *cancelled;
        let gives_way = unsent > 0 && cancelled.has_newer;
        // A frame that makes no progress, or that is not wanted, may be cancelled at any time. This holds even
        // if the same packet brought a new demand.
        let stalled = self.now.since(cancelled.progress) >= bound.unwrap_or(STALL_BOUND_DEFAULT)
            || cancelled.is_unwanted;
        self.expect(gives_way || stalled, "cancels", || {
            format!("camera {camera} cancels {frame}, of which {unsent} bytes are unsent, for no newer one")
        });
        gives_way && !stalled
    }
}
