//! Defines the outcome of a frame, and the time over which frames are judged.

use std::time::Duration;

/// The span of time over which a contract is judged.
pub const WINDOW: Duration = Duration::from_secs(1);

/// The outcome of one frame that an application was due to get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrameOutcome {
    /// Whether it arrived within the bound: at the application's client library if the library reports, otherwise at the edge. The time that
    /// it waited for the application does not count. A frame that was lost or given up on its way did not arrive. A frame that was passed
    /// over for a newer one has no outcome: [`min_fps`](crate::contract::Contract::min_fps) limits how often frames may be passed over.
    pub on_time: bool,
    /// Whether it is below the floor, or no rung that keeps the floor was expected to be on time often enough.
    pub infeasible: bool,
    /// The accuracy that the profile gives for its rung. `None`: no profile, or a rung that is not in it.
    pub expected_accuracy: Option<f64>,
    /// Whether the application got it, or could have had it when ready. It then counts in the frame rate.
    pub came: bool,
}
