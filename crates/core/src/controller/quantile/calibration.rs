//! What was predicted against what happened.
//!
//! The camera tells it the edge with its feasibility, and the edge publishes it (`mez cameras`).

/// How many frames back the comparison reaches, about.
const MEMORY_FRAMES: f64 = 500.0;

/// The late frames that a policy expected, beside those that came. Of a well calibrated policy both shares are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Frames that were predicted and have arrived or were lost.
    pub frames: u64,
    /// The share of late frames that was expected, over about the last 500 frames.
    pub expected_late: f64,
    /// The share of late frames that came.
    pub actual_late: f64,
}

impl Calibration {
    pub(super) fn record(&mut self, on_time_probability: f64, on_time: bool) {
        self.frames += 1;
        // A plain mean at first, and then one that forgets.
        let gain = 1.0 / (self.frames as f64).min(MEMORY_FRAMES);
        self.expected_late += gain * (1.0 - on_time_probability - self.expected_late);
        self.actual_late += gain * (f64::from(u8::from(!on_time)) - self.actual_late);
    }

    /// A frame that was given up is a late one.
    pub(super) fn record_lost(&mut self, on_time_probability: Option<f64>) {
        if let Some(predicted) = on_time_probability {
            self.record(predicted, false);
        }
    }

    /// The share of frames that were expected on time; `None` before one was predicted.
    pub fn predicted_on_time(&self) -> Option<f64> {
        (self.frames > 0).then_some(1.0 - self.expected_late)
    }

    /// The share of frames that were on time; `None` before one was predicted.
    pub fn observed_on_time(&self) -> Option<f64> {
        (self.frames > 0).then_some(1.0 - self.actual_late)
    }

    /// Late frames that were expected, less those that came: above 0 the policy is too careful.
    pub fn error(&self) -> f64 {
        self.expected_late - self.actual_late
    }
}
