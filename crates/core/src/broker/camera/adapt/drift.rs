//! Notices when frames no longer have the sizes that the profile was measured with.
//!
//! Sizes are the only sign of a change of scene that a camera sees for nothing. In fog or at night a picture has fewer
//! details, so its frames are smaller than any of the profile. The accuracies of the profile then say little.

use std::collections::VecDeque;

use crate::profile::{ByteSizes, SizeDrift};

/// How many of the newest frames are looked at: some seconds of video, so that a quiet moment is no drift.
const FRAMES: usize = 60;
/// Frames have drifted when more than this share of them lies outside the range,
const BEGINS: f64 = 0.6;
/// and no longer when less than this share does.
const ENDS: f64 = 0.4;
/// The range reaches at least this factor from the median in both directions. The sizes of stills vary so little in one
/// scene that their quantiles alone would call every cloud a drift.
const RANGE_MIN: f64 = 1.5;

/// Compares the sizes of frames with those of the profile.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// Of the newest frames: bytes, the profile's median for the rung, and whether the bytes are outside its range.
    frames: VecDeque<(f64, f64, bool)>,
    has_drifted: bool,
}

impl Drift {
    /// A frame was encoded at a rung that the profile has, with the sizes that it gives.
    pub(crate) fn handle_made(&mut self, bytes: f64, profiled: &ByteSizes) {
        let low = profiled.p05.min(profiled.p50 / RANGE_MIN);
        let high = profiled.p95.max(profiled.p50 * RANGE_MIN);
        if self.frames.len() == FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back((bytes, profiled.p50, !(low..=high).contains(&bytes)));
        let outside = self.frames.iter().filter(|(_, _, outside)| *outside).count() as f64;
        let share = outside / FRAMES as f64;
        self.has_drifted = if self.has_drifted { share > ENDS } else { share > BEGINS };
        debug_assert!(self.frames.len() <= FRAMES);
    }

    /// Another profile, or frames of another size: what was measured does not count.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The drift; `None` while frames are as the profile says, or too few are known.
    pub(crate) fn drift(&self) -> Option<SizeDrift> {
        self.has_drifted.then(|| {
            let median = |of: fn(&(f64, f64, bool)) -> f64| {
                let mut values: Vec<f64> = self.frames.iter().map(of).collect();
                let middle = values.len() / 2;
                *values.select_nth_unstable_by(middle, f64::total_cmp).1
            };
            SizeDrift { measured: median(|frame| frame.0), profiled: median(|frame| frame.1) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILED: ByteSizes = ByteSizes { mean: 168.0, p05: 72.0, p50: 145.0, p95: 244.0 };

    fn after(frames: &[f64]) -> Drift {
        let mut drift = Drift::default();
        frames.iter().for_each(|bytes| drift.handle_made(*bytes, &PROFILED));
        drift
    }

    /// Fog: the profile's scene has frames of 72 to 244 bytes, and these have 50.
    #[test]
    fn frames_outside_the_profiled_range_have_drifted() {
        let mut drift = after(&[50.0; FRAMES]);
        assert_eq!(drift.drift(), Some(SizeDrift { measured: 50.0, profiled: 145.0 }));
        (0..FRAMES).for_each(|_| drift.handle_made(150.0, &PROFILED));
        assert_eq!(drift.drift(), None, "the fog has lifted");
    }

    /// Some seconds without anybody are part of any scene, and so is a busy moment.
    #[test]
    fn a_quiet_moment_is_no_drift() {
        let mut frames = vec![150.0; FRAMES];
        frames.extend([50.0; FRAMES / 3]);
        frames.extend([400.0; FRAMES / 6]);
        assert_eq!(after(&frames).drift(), None);
        assert_eq!(after(&[50.0; 20]).drift(), None, "twenty frames say too little");
    }

    /// Sizes of stills vary by a hundredth within a scene; a tenth more is the same scene.
    #[test]
    fn the_range_of_stills_is_not_too_narrow() {
        let stills = ByteSizes { mean: 6542.0, p05: 6384.0, p50: 6554.0, p95: 6668.0 };
        let mut drift = Drift::default();
        (0..FRAMES).for_each(|_| drift.handle_made(7200.0, &stills));
        assert_eq!(drift.drift(), None);
        (0..FRAMES).for_each(|_| drift.handle_made(3200.0, &stills));
        assert!(drift.drift().is_some());
    }
}
