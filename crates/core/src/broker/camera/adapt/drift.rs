//! Notices when frames no longer have the sizes that the profile was measured with.
//!
//! Frame sizes are the only sign of a change of scene that costs a camera nothing. In fog a picture has fewer details, so its frames
//! are smaller than those of the profile. At night frames are larger, because of noise. The accuracies of the profile then say little.
//!
//! The size of a frame of video also depends on motion, and in any scene nothing may move for some seconds. The size of the published frame does not
//! depend on motion. But it depends on the publisher, so it alone proves nothing. If both sizes differ from the profile, a few frames are enough.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::profile::{ByteSizes, ProfileHash, SizeDrift};
use crate::units::Instant;

/// How many of the newest frames count: some seconds of video, so that a quiet moment is no drift.
const FRAMES: usize = 60;
/// A drift begins when more than this share of [`FRAMES`] is outside the range.
const BEGINS: f64 = 0.6;
/// A drift ends when at most this share of [`FRAMES`] is outside the range.
const ENDS: f64 = 0.4;
/// The range reaches at least this factor from the median in both directions. The sizes of stills vary so little in one
/// scene that their quantiles alone would call every cloud a drift.
const RANGE_MIN: f64 = 1.5;

/// If published frames differ from those of the profile too, this many of the newest frames are enough.
const FRAMES_FEW: usize = 10;
/// Published frames differ if they have this many times fewer or more bytes than the median of the profile.
const PUBLISHED_RANGE: f64 = 1.25;

/// A drift that no frame has confirmed for this long is checked again. Originals confirm
/// no drift, and a link that is fast enough for originals would carry them for ever.
const UNCONFIRMED_MIN: Duration = Duration::from_secs(10);
/// After each confirmation, the time to the next check doubles, up to this.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(80);
/// This many frames confirm a drift that is checked again, if more than [`BEGINS`] of them are outside the range.
const CONFIRM: usize = 15;

/// The sizes of a rung's frames by the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Profiled {
    pub(crate) bytes: ByteSizes,
    /// The time between frames that refer to each other, where the profile was measured. `None`: they stand alone, or the time is not known.
    pub(crate) apart: Option<Duration>,
}

impl Profiled {
    /// The range of sizes without drift, for a frame that refers to a frame captured `gap` before.
    ///
    /// A frame rate that differs from the profile's is no drift. A frame holds the changes since the frame that it refers
    /// to. The changes by noise are the same after any time. The changes by motion grow at most in proportion to the time.
    fn range(&self, gap: Option<Duration>) -> RangeInclusive<f64> {
        let apart = self.apart.filter(|apart| !apart.is_zero());
        let times = gap.zip(apart).map_or(1.0, |(gap, apart)| gap.div_duration_f64(apart));
        let low = self.bytes.p05.min(self.bytes.p50 / RANGE_MIN) * times.min(1.0);
        let high = self.bytes.p95.max(self.bytes.p50 * RANGE_MIN) * times.max(1.0);
        low..=high
    }
}

/// A frame that was encoded at a rung of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) bytes: f64,
    /// The time from the capture of the frame that it refers to until its own capture, if it refers to one.
    pub(crate) gap: Option<Duration>,
    /// Whether the published frame differs in size from published frames of the profile.
    pub(crate) differs: bool,
}

/// Whether a published frame of this size differs from those that the profile was measured with.
pub(crate) fn differs(published_bytes: f64, profiled: &ByteSizes) -> bool {
    !(profiled.p50 / PUBLISHED_RANGE..=profiled.p50 * PUBLISHED_RANGE).contains(&published_bytes)
}

/// What the sizes of frames depend on: the profile, and the pixels of a published frame.
pub(crate) type Scene = (Option<ProfileHash>, (u32, u32));

/// Compares the sizes of frames with those of the profile.
#[derive(Debug, Default)]
pub(crate) struct Drift {
    /// The scene of `frames`.
    scene: Option<Scene>,
    /// When the last of `frames` was made.
    last: Option<Instant>,
    /// Of the newest frames: bytes, the profile's median for the rung, and whether the bytes are outside its range.
    frames: VecDeque<(f64, f64, bool)>,
    /// The drift that was found, as it was last measured.
    found: Option<SizeDrift>,
    /// The smallest profiled median of the rungs at which the drift showed. A rung at least as fine would show the drift too.
    shown_at: f64,
    /// Whether the drift is being checked again: all of `frames` are newer than the start of the check.
    is_checked: bool,
    /// How often a check has confirmed the drift.
    confirmed: u32,
    /// How many frames were within the range although their published frames differ from those of the profile.
    /// After [`FRAMES`] of them the scene is that of the profile, and the difference is due to another publisher.
    alike: usize,
}

impl Drift {
    /// A frame was encoded at a rung for which the profile gives sizes.
    pub(crate) fn handle_made(&mut self, now: Instant, made: Made, profiled: &Profiled) {
        let Made { bytes, gap, differs } = made;
        let is_outside = !profiled.range(gap).contains(&bytes);
        if self.found.is_none() && differs && !is_outside {
            self.alike += 1;
        }
        let differs = differs && self.alike < FRAMES;
        // At a rung coarser than those at which the drift showed, frames may have the profile's sizes in spite of the drift.
        let is_coarser = self.found.is_some() && profiled.bytes.p50 < self.shown_at;
        let is_outside = is_outside || is_coarser && differs;
        self.last = Some(now);
        if self.frames.len() == FRAMES {
            self.frames.pop_front();
        }
        self.frames.push_back((bytes, profiled.bytes.p50, is_outside));
        let known = self.frames.len();
        let outside_of =
            |newest: usize| self.frames.iter().rev().take(newest).filter(|(_, _, outside)| *outside).count();
        let outside = outside_of(FRAMES);
        let (outside, inside) = (outside as f64, (known - outside) as f64);
        let all = FRAMES as f64;
        let has_drifted = match self.found {
            Some(_) => inside < (1.0 - ENDS) * all,
            None if differs && outside_of(FRAMES_FEW) as f64 > BEGINS * FRAMES_FEW as f64 => true,
            None => outside > BEGINS * all,
        };
        if !has_drifted {
            (self.found, self.is_checked, self.confirmed) = (None, false, 0);
            return;
        }
        if self.found.is_none() {
            let newest = self.frames.iter().rev().take(FRAMES_FEW);
            let shown = newest.filter(|(_, _, outside)| *outside).map(|(_, profiled, _)| *profiled);
            self.shown_at = shown.fold(f64::INFINITY, f64::min);
            // Frames from before the change do not count against the drift.
            let newest =
                self.frames.iter().rposition(|(_, _, outside)| !*outside).map_or(0, |place| place + 1);
            self.frames.drain(..newest.min(known.saturating_sub(1)));
        }
        self.found = Some(self.measured());
        let is_confirmed = known >= CONFIRM && outside > BEGINS * known as f64 || known == FRAMES;
        if self.is_checked && is_confirmed {
            (self.is_checked, self.confirmed) = (false, self.confirmed + 1);
        }
        debug_assert!(known <= FRAMES);
    }

    /// The drift; `None` while sizes match the profile, or too few frames are known. Measurements of another `scene` are forgotten.
    pub(crate) fn drift(&mut self, now: Instant, scene: Scene) -> Option<SizeDrift> {
        if self.scene != Some(scene) {
            *self = Self { scene: Some(scene), ..Self::default() };
        }
        let lasts = UNCONFIRMED_MIN.saturating_mul(1 << self.confirmed.min(8)).min(UNCONFIRMED_MAX);
        if !self.is_checked && self.last.is_some_and(|last| now.saturating_since(last) > lasts) {
            self.frames.clear();
            self.is_checked = self.found.is_some();
        }
        self.found
    }

    /// Whether frames must be finer because of the drift. While a drift is checked
    /// again they need not: only frames at the profile's rungs can confirm it.
    pub(crate) fn wants_finer(&self) -> bool {
        self.found.is_some() && !self.is_checked
    }

    /// The medians of the newest frames, and of the profile for the same rungs.
    fn measured(&self) -> SizeDrift {
        let median = |of: fn(&(f64, f64, bool)) -> f64| {
            let mut values: Vec<f64> = self.frames.iter().map(of).collect();
            let middle = values.len() / 2;
            *values.select_nth_unstable_by(middle, f64::total_cmp).1
        };
        SizeDrift { measured: median(|frame| frame.0), profiled: median(|frame| frame.1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APART: Duration = Duration::from_millis(100);
    const PROFILED: Profiled =
        Profiled { bytes: ByteSizes { mean: 168.0, p05: 72.0, p50: 145.0, p95: 244.0 }, apart: Some(APART) };

    const SCENE: Scene = (Some([1; 32]), (768, 576));

    /// A story in which frames are made.
    #[derive(Default)]
    struct Story {
        drift: Drift,
        now: Instant,
        /// Whether published frames differ in size from those of the profile.
        differs: bool,
    }

    impl Story {
        fn frames(&mut self, count: usize, bytes: f64, profiled: &Profiled) -> &mut Self {
            self.frames_at(APART, count, bytes, profiled)
        }

        /// Frames that are `gap` apart.
        fn frames_at(&mut self, gap: Duration, count: usize, bytes: f64, profiled: &Profiled) -> &mut Self {
            for _ in 0..count {
                // A frame is made after its rung was chosen, by what was known then.
                self.found();
                self.now += gap;
                let made = Made { bytes, gap: profiled.apart.and(Some(gap)), differs: self.differs };
                self.drift.handle_made(self.now, made, profiled);
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

    /// Originals say nothing about the profile's sizes. After ten seconds of originals
    /// the drift is checked again, and the application is told of the drift meanwhile.
    #[test]
    fn a_drift_that_nothing_confirms_is_looked_at_again() {
        let mut story = Story::default();
        story.frames(FRAMES, 50.0, &PROFILED);
        let originals = |story: &mut Story, seconds: u64| {
            story.now += Duration::from_secs(seconds);
            assert!(story.found().is_some(), "nothing says that the fog has lifted");
            story.drift.wants_finer()
        };
        assert!(originals(&mut story, 9));
        assert!(!originals(&mut story, 2), "frames as the profile says can tell");
        assert!(
            story.frames(CONFIRM, 50.0, &PROFILED).drift.wants_finer(),
            "a second of them tells that it is foggy"
        );
        assert!(originals(&mut story, 19), "and then it is left alone for longer");
        assert!(!originals(&mut story, 2));
        assert!(story.frames(CONFIRM, 150.0, &PROFILED).found().is_some(), "it may be a moment");
        assert_eq!(story.frames(FRAMES - CONFIRM, 150.0, &PROFILED).found(), None, "the fog has lifted");
        assert!(!story.drift.wants_finer());
    }

    /// However long a drift has lasted, it is checked again.
    #[test]
    fn no_drift_is_left_alone_for_ever() {
        let mut story = Story::default();
        story.frames(FRAMES, 50.0, &PROFILED);
        for _ in 0..20 {
            story.now += UNCONFIRMED_MAX + Duration::from_secs(1);
            assert!(story.found().is_some() && !story.drift.wants_finer());
            assert!(story.frames(CONFIRM, 50.0, &PROFILED).drift.wants_finer());
        }
    }

    /// A scene that one profile does not describe may match another profile.
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
        let bytes = ByteSizes { mean: 6542.0, p05: 6384.0, p50: 6554.0, p95: 6668.0 };
        let stills = Profiled { bytes, apart: None };
        let mut story = Story::default();
        assert_eq!(story.frames(FRAMES, 7200.0, &stills).found(), None);
        assert!(story.frames(FRAMES, 3200.0, &stills).found().is_some());
    }

    /// Night falls at once, with ten times the bytes. Pictures as published have more bytes too, so a second of frames is enough.
    #[test]
    fn frames_that_differ_already_as_they_are_published_are_a_drift_sooner() {
        let after = |differs: bool, few: usize| {
            let mut story = Story::default();
            story.frames(FRAMES, 150.0, &PROFILED).differs = differs;
            story.frames(few, 1_500.0, &PROFILED).found()
        };
        assert!(after(true, FRAMES_FEW).is_some());
        assert_eq!(after(false, FRAMES_FEW), None, "somebody may drive by");
        let other_publisher =
            Story { differs: true, ..Story::default() }.frames(FRAMES, 150.0, &PROFILED).found();
        assert_eq!(other_publisher, None, "of itself it proves nothing");
        let day = ByteSizes { mean: 152e3, p05: 147e3, p50: 152e3, p95: 157e3 };
        assert_eq!([79e3, 130e3, 160e3, 253e3].map(|bytes| differs(bytes, &day)), [true, false, false, true]);
    }

    /// At night a coarse rung has frames as by day, because it smooths the noise. The published pictures show that it is night.
    #[test]
    fn a_coarser_rung_does_not_end_a_drift() {
        let coarse = Profiled {
            bytes: ByteSizes { mean: 80.0, p05: 40.0, p50: 75.0, p95: 130.0 },
            apart: Some(APART),
        };
        let mut story = Story { differs: true, ..Story::default() };
        story.frames(FRAMES_FEW, 1_500.0, &PROFILED);
        assert!(story.frames(2 * FRAMES, 80.0, &coarse).found().is_some());
        story.differs = false;
        assert_eq!(story.frames(FRAMES, 80.0, &coarse).found(), None, "it is day");
    }

    /// A publisher makes other JPEGs than those of the profile, and its first seconds are unusual. Once
    /// frames have the profile's sizes at a rung that showed the drift, the light is that of the profile.
    #[test]
    fn a_publisher_whose_frames_always_differ_does_not_keep_a_drift_alive() {
        let fine =
            Profiled { bytes: ByteSizes { mean: 400.0, p05: 200.0, p50: 380.0, p95: 640.0 }, ..PROFILED };
        for rung in [PROFILED, fine] {
            let mut story = Story { differs: true, ..Story::default() };
            story.frames(FRAMES_FEW, 1_500.0, &PROFILED);
            assert!(story.found().is_some());
            let usual = rung.bytes.p50;
            assert_eq!(story.frames(FRAMES, usual, &rung).found(), None, "{rung:?}");
            assert_eq!(story.frames(2 * FRAMES, usual, &rung).found(), None, "and it stays so: {rung:?}");
        }
    }

    /// The profile was measured at 10 frames a second. At 30 less moves from one frame to the next, and at 5 more: no drift.
    #[test]
    fn another_frame_rate_is_no_drift() {
        for (fps, bytes) in [(30.0, 60.0), (5.0, 400.0), (10.0, 150.0)] {
            let gap = Duration::from_secs_f64(1.0 / fps);
            let found = Story::default().frames_at(gap, FRAMES, bytes, &PROFILED).found();
            assert_eq!(found, None, "{fps} frames a second");
        }
        let foggy = Story::default().frames_at(APART / 3, FRAMES, 20.0, &PROFILED).found();
        assert!(foggy.is_some(), "less than a third of what the profile says is fog at any rate");
        let stills = Profiled { apart: None, ..PROFILED };
        let found = Story::default().frames_at(APART / 3, FRAMES, 60.0, &stills).found();
        assert!(found.is_some(), "a still does not depend on the rate");
    }
}
