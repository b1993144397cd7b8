//! Defines what became of a frame, and over which time frames are judged.

use std::time::Duration;

/// The span of time over which a contract is judged.
pub const WINDOW: Duration = Duration::from_secs(1);

/// The outcome of one frame that an application was due to get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameOutcome {
    /// It arrived within the bound: at the application's client library if that reports, otherwise at the
    /// edge. What it waited for the application does not count. A frame that was lost or given up on its way
    /// did not arrive. A frame that was passed over for a newer one has no outcome:
    /// [`min_fps`](crate::contract::Contract::min_fps) limits how often that may happen.
    pub on_time: bool,
    /// It is below the floor, or no rung that keeps the floor was expected to be on time often enough.
    pub infeasible: bool,
    /// The accuracy that the profile gives for its rung. `None`: no profile, or a rung that is not in it.
    pub expected_accuracy: Option<f64>,
    /// The application got it, or could have had it when ready. It counts in the frame rate.
    pub came: bool,
}
