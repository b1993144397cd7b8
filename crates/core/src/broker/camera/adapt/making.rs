//! What was chosen for a frame: the work for its codec, and what is expected of it.

use std::time::Duration;

use super::rungs::Ratios;
use crate::setting::Setting;
use crate::units::Instant;

/// A rung for a frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Making {
    /// What is asked of the codec.
    pub(crate) setting: Setting,
    /// The setting of the rung: a frame may be made larger to measure the link by it.
    pub(crate) at: Setting,
    pub(crate) expected_accuracy: Option<f64>,
    pub(crate) infeasible: bool,
    /// When the codec is given up.
    pub(crate) deadline: Instant,
    /// When the frame has to be there.
    pub(crate) due: Instant,
    pub(super) captured: Instant,
    /// When it was chosen.
    pub(crate) begun: Instant,
    /// When the frame was found in the log.
    pub(crate) published: Instant,
    /// The place of the rung in the ladder.
    pub(super) rung: usize,
    /// The most bytes that it may have.
    pub(crate) bytes_max: Option<u32>,
    pub(crate) expected_bytes: u32,
    /// It is expected to go on after the frame before.
    pub(crate) goes_on: bool,
    /// Bytes without a budget, if it goes on after others and if it stands alone.
    pub(crate) usual_bytes: (f64, f64),
    pub(crate) expected_time: Duration,
    /// What is in those already.
    pub(crate) ratios: Ratios,
    /// The least accuracy that is accepted, where accuracies are known.
    pub(crate) floor: Option<f64>,
}
