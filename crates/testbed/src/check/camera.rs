//! Checks what a camera takes, encodes and cancels, and what brokers say to each other.

use std::time::Duration;

use mez_core::broker::PublishError;
use mez_core::frame::FrameId;
use mez_core::log::AppendError;
use mez_core::name::CameraName;

use super::Checks;
use crate::time::{Moment, ms};

/// The latency bound for cancelling if there is none. A frame is not given up as stalled if something got through within the bound.
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
    /// Whether nobody wants frames, or nobody did a moment ago.
    pub(crate) is_unwanted: bool,
}

impl Checks {
    /// Checks a frame that a camera's log took. `wrong`: its publisher gave it the capture time of the last one.
    pub(crate) fn took(&mut self, id: FrameId, wrong: bool) {
        self.expect(!wrong, "order", || format!("{id} was taken with the capture time of the last"));
    }

    /// Checks that a camera's log had a reason to refuse a frame.
    pub(crate) fn refused(&mut self, error: &PublishError, wrong: bool) {
        let expected = match error {
            PublishError::Log(AppendError::CaptureTime { .. }) => wrong,
            // The link holds payloads until they have left. A small log may be full of them.
            PublishError::Log(AppendError::Held { .. }) => true,
            _ => false,
        };
        self.expect(expected, "order", || format!("a frame was refused: {error}"));
    }

    /// A profile came to a camera: whether it is the one that was named, and its size.
    pub(crate) fn profile_came(&mut self, whole: bool, bytes: usize) {
        self.expect(whole, "bytes", || format!("a profile came as {bytes} bytes"));
    }

    /// Reports that what a broker said cannot be read.
    pub(crate) fn garbled(&mut self, what: &str, error: &dyn std::error::Error) {
        self.fail("bytes", format!("{what} makes no sense: {error}"));
    }

    /// Reports a frame that entered a replica which no subscription opened.
    pub(crate) fn unasked(&mut self, camera: &CameraName) {
        self.fail("demand", format!("a frame of {camera} came, but nobody ever asked"));
    }

    /// Checks that a rung, by its mean bytes, keeps within the cap.
    pub(crate) fn makes_within_cap(&mut self, camera: usize, id: FrameId, expected: f64, most: f64) {
        self.expect(expected <= most, "caps", || {
            format!("camera {camera} makes {id} of {expected} bytes on average; {most} were allowed")
        });
    }

    /// Checks that a camera may cancel a frame. Returns whether the frame gives way to a newer one, and for no other reason.
    pub(crate) fn cancels(&mut self, camera: usize, cancelled: &Cancelled) -> bool {
        let Cancelled { frame, unsent, bound, .. } = *cancelled;
        let gives_way = unsent > 0 && cancelled.has_newer;
        // A frame that makes no progress, or that nobody wants, may be cancelled at any time. This holds also if the same packet
        // brought the news that somebody wants it again.
        let stalled = self.now.since(cancelled.progress) >= bound.unwrap_or(STALL_BOUND_DEFAULT)
            || cancelled.is_unwanted;
        self.expect(gives_way || stalled, "cancels", || {
            format!("camera {camera} cancels {frame}, of which {unsent} bytes are unsent, for no newer one")
        });
        gives_way && !stalled
    }
}
