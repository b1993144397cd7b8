//! Compares predicted with actual lateness.
//!
//! The camera reports the comparison to the edge in its feasibility report, and the edge publishes it (`mez
//! cameras`).

/// The number of frames, roughly, over which the comparison reaches back.
const MEMORY_FRAMES: f64 = 500.0;

/// The expected and the actual share of late frames. For a well calibrated policy they are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Frames with a prediction that have arrived or were lost.
    pub frames: u64,
    /// The share of late frames that was expected, over about the last 500 frames.
    pub expected_late: f64,
    /// The actual share of late frames, over about the last 500 frames.
    pub actual_late: f64,
}

impl Calibration {
    pub(super) fn record(&mut self, on_time_probability: f64, on_time: bool) {
        self.frames += 1;
        // A plain mean at first, then a moving average.
        let gain = 1.0 / (self.frames as f64).min(MEMORY_FRAMES);
        self.expected_late += gain * (1.0 - on_time_probability - self.expected_late);
        self.actual_late += gain * (f64::from(u8::from(!on_time)) - self.actual_late);
    }

    /// Counts a frame that was given up as late.
    pub(super) fn record_lost(&mut self, on_time_probability: Option<f64>) {
        if let Some(predicted) = on_time_probability {
            self.record(predicted, false);
        }
    }

    /// The predicted share of frames on time. `None` before the first prediction.
    pub fn predicted_on_time(&self) -> Option<f64> {
        (self.frames > 0).then_some(1.0 - self.expected_late)
    }

    /// The observed share of frames on time. `None` before the first prediction.
    pub fn observed_on_time(&self) -> Option<f64> {
        (self.frames > 0).then_some(1.0 - self.actual_late)
    }

    /// The predicted minus the observed share of late frames. Above 0, the policy is too careful.
    pub fn error(&self) -> f64 {
        self.expected_late - self.actual_late
    }
}
