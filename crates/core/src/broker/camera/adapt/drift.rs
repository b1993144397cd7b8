//! Notices when frames no longer have the sizes that the profile was measured with.
//!
//! Sizes are the only sign of a change of scene that a camera sees for nothing. In fog or at night a picture has fewer
//! details, so its frames are smaller than any of the profile. The accuracies of the profile then say little.

use std::collections::VecDeque;
use std::time::Duration;

use crate::profile::{ByteSizes, ProfileHash, SizeDrift};
use crate::units::Instant;

/// How many of the newest frames are looked at: some seconds of video, so that a quiet moment is no drift.
const FRAMES: usize = 60;
/// Frames have drifted when more than this share of them lies outside the range,
const BEGINS: f64 = 0.6;
/// and no longer when less than this share does.
const ENDS: f64 = 0.4;
/// The range reaches at least this factor from the median in both directions. The sizes of stills vary so little in one
/// scene that their quantiles alone would call every cloud a drift.
const RANGE_MIN: f64 = 1.5;

/// A drift that no frame has confirmed for this long is forgotten. Originals confirm none, and a link that is fast enough
/// for them would carry them for ever.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(10);

/// What the sizes of frames depend on: the profile, and the pixels of a published frame.
pub(crate) type Scene = (Option<ProfileHash>, (u32, u32));

/// Compares the sizes of frames with those of the profile.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// What the frames below were made of.
    scene: Option<Scene>,
    /// When the last of them was made.
    last: Option<Instant>,
    /// Of the newest frames: bytes, the profile's median for the rung, and whether the bytes are outside its range.
    frames: VecDeque<(f64, f64, bool)>,
    has_drifted: bool,
}

impl Drift {
    /// A frame was encoded at a rung that the profile has, with the sizes that it gives.
    pub(crate) fn handle_made(&mut self, now: Instant, bytes: f64, profiled: &ByteSizes) {
        self.last = Some(now);
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

    /// The drift; `None` while frames are as the profile says, or too few are known. What was measured of another
    /// `scene`, or is not confirmed any more, is forgotten.
    pub(crate) fn drift(&mut self, now: Instant, scene: Scene) -> Option<SizeDrift> {
        let is_stale = self.last.is_some_and(|last| now.saturating_since(last) > UNCONFIRMED_MAX);
        if self.scene != Some(scene) || is_stale {
            *self = Self { scene: Some(scene), ..Self::default() };
        }
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

    const SCENE: Scene = (Some([1; 32]), (768, 576));

    /// A story in which a frame is made every 66 ms.
    #[derive(Default)]
    struct Story {
        drift: Drift,
        now: Instant,
    }

    impl Story {
        fn frames(&mut self, count: usize, bytes: f64, profiled: &ByteSizes) -> &mut Self {
            for _ in 0..count {
                // A frame is made after its rung was chosen, by what was known then.
                self.found();
                self.now += Duration::from_millis(66);
                self.drift.handle_made(self.now, bytes, profiled);
            }
            self
        }

        fn found(&mut self) -> Option<SizeDrift> {
            self.drift.drift(self.now, SCENE)
        }
    }

    /// Fog: the profile's scene has frames of 72 to 244 bytes, and these have 50.
    #[test]
    fn frames_outside_the_profiled_range_have_drifted() {
        let mut story = Story::default();
        story.frames(FRAMES, 50.0, &PROFILED);
        assert_eq!(story.found(), Some(SizeDrift { measured: 50.0, profiled: 145.0 }));
        story.frames(FRAMES, 150.0, &PROFILED);
        assert_eq!(story.found(), None, "the fog has lifted");
    }

    /// Originals say nothing of the profile's sizes. After ten seconds of them the scene is measured again.
    #[test]
    fn a_drift_that_nothing_confirms_is_forgotten() {
        let mut story = Story::default();
        story.frames(FRAMES, 50.0, &PROFILED);
        story.now += Duration::from_secs(9);
        assert!(story.found().is_some());
        story.now += Duration::from_secs(2);
        assert_eq!(story.found(), None);
    }

    /// What one profile does not describe, another one may.
    #[test]
    fn another_profile_begins_anew() {
        let mut story = Story::default();
        story.frames(FRAMES, 50.0, &PROFILED);
        assert_eq!(story.drift.drift(story.now, (Some([2; 32]), SCENE.1)), None);
    }

    /// Some seconds without anybody are part of any scene, and so is a busy moment.
    #[test]
    fn a_quiet_moment_is_no_drift() {
        let mut story = Story::default();
        story.frames(FRAMES, 150.0, &PROFILED).frames(FRAMES / 3, 50.0, &PROFILED);
        assert_eq!(story.frames(FRAMES / 6, 400.0, &PROFILED).found(), None);
        let found = Story::default().frames(20, 50.0, &PROFILED).found();
        assert_eq!(found, None, "twenty frames say too little");
    }

    /// Sizes of stills vary by a hundredth within a scene; a tenth more is the same scene.
    #[test]
    fn the_range_of_stills_is_not_too_narrow() {
        let stills = ByteSizes { mean: 6542.0, p05: 6384.0, p50: 6554.0, p95: 6668.0 };
        let mut story = Story::default();
        assert_eq!(story.frames(FRAMES, 7200.0, &stills).found(), None);
        assert!(story.frames(FRAMES, 3200.0, &stills).found().is_some());
    }
}
