//! Describes what was chosen for a frame: the task for its codec, and what is expected of the result.

use std::time::Duration;

use super::basis::Ratios;
use super::candidate::Own;
use super::drift::Profiled;
use crate::controller::Offer;
use crate::setting::Setting;
use crate::units::Instant;

/// The choice for one frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EncodePlan {
    /// The setting that the codec gets.
    pub(crate) setting: Setting,
    /// The setting of the rung. It differs from `setting` if the frame is enlarged to probe the link.
    pub(crate) at: Setting,
    pub(crate) expected_accuracy: Option<f64>,
    pub(crate) infeasible: bool,
    /// When to give up the codec.
    pub(crate) deadline: Instant,
    /// When the frame must have arrived.
    pub(crate) due: Instant,
    pub(super) captured: Instant,
    /// When the choice was made.
    pub(crate) begun: Instant,
    /// When the broker found the frame in the log.
    pub(crate) published: Instant,
    /// The place of the rung in the ladder.
    pub(super) rung: usize,
    /// The byte budget; `None`: no limit.
    pub(crate) bytes_max: Option<u32>,
    /// The most bytes of an anchor ([`Transform::anchor_bytes_max`](crate::broker::camera::Transform)).
    pub(crate) anchor_bytes_max: u32,
    pub(crate) expected_bytes: u32,
    /// Whether the frame is expected to refer to the one before.
    pub(crate) goes_on: bool,
    /// Expected bytes without a budget: of a frame that refers to others, and of a keyframe.
    pub(crate) usual_bytes: (f64, f64),
    pub(crate) expected_time: Duration,
    /// The learned ratios that the expectations already contain.
    pub(crate) ratios: Ratios,
    /// The accuracy floor, if the rungs have a profile.
    pub(crate) floor: Option<f64>,
    /// The sizes that the profile gives for the rung. `None`: no profile, or the frame is enlarged.
    pub(crate) profiled: Option<Profiled>,
    /// Whether the frame as published differs in size from those that the profile was measured with.
    pub(crate) differs: bool,
    /// Whether the frame goes as its source coded it, as part of its source's chain.
    pub(crate) of_source: bool,
}

impl EncodePlan {
    /// The plan for a frame that goes as its source coded it. Such a frame loses nothing, so it keeps every floor. `verified`: there is a profile.
    pub(super) fn of_source(own: &Own, offer: &Offer<'_>, verified: bool, ratios: Ratios) -> Self {
        Self {
            setting: Setting::ORIGINAL,
            at: Setting::ORIGINAL,
            expected_accuracy: verified.then_some(1.0),
            infeasible: false,
            deadline: offer.now,
            due: own.captured + offer.latency_bound,
            captured: own.captured,
            begun: offer.now,
            published: offer.now,
            // The best rung that the policy knows.
            rung: offer.ladder.len() - 1,
            bytes_max: None,
            anchor_bytes_max: 0,
            expected_bytes: own.first_bytes,
            goes_on: true,
            usual_bytes: (0.0, 0.0),
            expected_time: Duration::ZERO,
            ratios,
            floor: offer.accuracy_floor,
            profiled: None,
            differs: false,
            of_source: true,
        }
    }

    /// Whether the frame is enlarged to probe the link.
    pub(super) fn is_enlarged(&self) -> bool {
        self.setting != self.at
    }
}
