//! Decides how small a budget may make the frames of a rung.
//!
//! A codec keeps a budget by a coarser quality. As long as a measured rung fits, no budget makes a frame coarser
//! than every measured rung that keeps the floor: the accuracy of such a frame is unknown, and the contract would
//! be unverified for a second. If no measured rung fits, a frame that is too coarse is better than a late one.

use crate::setting::Setting;

/// A frame rarely has more than this times the 95 % quantile of the bytes of its rung. A keyframe may, until
/// one was measured.
const BYTES_SPREAD: f64 = 1.5;

/// The bytes that may be spent on a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spendable {
    /// The bytes that arrive in time with the requested probability.
    pub(crate) in_time: f64,
    /// The bytes that are as likely on time as late.
    pub(crate) likely: f64,
}

/// A measured rung, as far as budgets are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) setting: Setting,
    pub(crate) accuracy: f64,
    /// The 95 % quantiles of the bytes of a frame that refers to others, and of a keyframe.
    pub(crate) bytes: (f64, f64),
}

/// The measured rungs that a budget may turn the frames of a rung into: the rung itself, and those that differ
/// from it only by a lower quality.
#[derive(Clone, Debug)]
pub(crate) struct Fallbacks {
    own_accuracy: f64,
    rungs: Vec<Measured>,
}

impl Fallbacks {
    /// The fallbacks of a rung among all measured rungs.
    pub(crate) fn of(setting: &Setting, own_accuracy: f64, all: &[Measured]) -> Self {
        let rungs =
            all.iter().filter(|measured| setting.keeps_at_least(&measured.setting)).copied().collect();
        Self { own_accuracy, rungs }
    }

    /// The smallest 95 % quantile of the bytes of a fallback that keeps the floor.
    pub(crate) fn bytes(&self, goes_on: bool, floor: Option<f64>) -> f64 {
        // A rung below the floor is its own last fallback.
        let floor = floor.unwrap_or(0.0).min(self.own_accuracy);
        let kept = self.rungs.iter().filter(|measured| measured.accuracy >= floor);
        let bytes =
            kept.map(|Measured { bytes: (going_on, alone), .. }| if goes_on { *going_on } else { *alone });
        bytes.fold(f64::INFINITY, f64::min)
    }

    /// The smallest budget within which a frame rarely has to be coarser than the fallbacks that keep the floor.
    pub(crate) fn bytes_max(&self, goes_on: bool, floor: Option<f64>) -> f64 {
        self.bytes(goes_on, floor) * BYTES_SPREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rung: &str, accuracy: f64, bytes: (f64, f64)) -> Measured {
        Measured { setting: rung.parse().expect("a rung"), accuracy, bytes }
    }

    #[test]
    fn a_frame_is_made_no_coarser_than_was_measured_and_keeps_the_floor() {
        let all = [
            measured("h264/q30", 0.99, (4e3, 40e3)),
            measured("h264/q38", 0.97, (1e3, 15e3)),
            measured("h264/q46", 0.90, (500.0, 6e3)),
            measured("h264/w384/q46", 0.84, (200.0, 2e3)),
            measured("tiles/w512/q40/gray", 0.98, (3e3, 16e3)),
        ];
        let of = |place: usize| Fallbacks::of(&all[place].setting, all[place].accuracy, &all);
        assert_eq!(of(0).bytes(true, Some(0.95)), 1e3);
        assert_eq!(of(0).bytes(false, Some(0.95)), 15e3);
        assert_eq!(of(0).bytes(true, None), 500.0);
        assert_eq!(of(4).bytes(false, Some(0.95)), 16e3, "no coarser tiles were measured");
        assert_eq!(of(3).bytes(true, Some(0.95)), 200.0, "it is below the floor as it is");
    }
}
