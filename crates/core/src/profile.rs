//! Describes what each rung costs in bytes and how much accuracy it keeps, for one application and one kind
//! of scene.
//!
//! The controller needs only the rungs that no other rung beats in both bytes and accuracy: the Pareto
//! frontier. A [`Ladder`] holds them in ascending order, so a higher place costs more bytes and keeps more
//! accuracy. With frame skip, bytes per frame and bytes per second can disagree. A rung then stays if it is
//! cheaper in either.
//!
//! A profile is measured in some scenes, and the camera sees others. Where the measured scenes need no
//! finer rung, finer rungs keep as much accuracy as coarser ones, and differ from them only by noise.
//! They stay in the ladder as ties ([`Ladder::is_tied`]), because in another scene they may keep more.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::frame::Rung;
use crate::setting::{Form, Setting};

/// The most rungs in a profile. It bounds the memory that a profile from an application takes. The authors of
/// Mez (George et al., 2020) profiled 935 settings, those of AWStream (Zhang et al., 2018) 180.
pub const RUNGS_MAX: usize = 4096;
/// The most rungs in a ladder; it bounds the work of a decision. A longer frontier is thinned, because
/// neighbours on it differ by less than measurement noise.
pub const LADDER_RUNGS_MAX: usize = 32;

/// The smallest plausible mean size of a frame, in bytes. A profile may have no smaller one; a corrected mean is raised to it.
const BYTES_MIN: f64 = 1e-3;
/// The largest plausible size of a frame, in bytes. A profile may have no larger one; corrected sizes are lowered to it.
const BYTES_MAX: f64 = 1e12;
/// A finer rung ties with a coarser one if its accuracy is less than this much higher. Profiles of usual
/// length cannot measure smaller differences: to resolve a hundredth of F1 takes about 120 frames.
pub const TIE: f64 = 0.01;
/// A finer rung gets at least this much more accuracy than a coarser one, whatever was
/// measured. So the ladder ascends. The step is too small to outweigh any chance of being late.
const TIE_STEP: f64 = 1e-6;

/// Identifies a profile: the SHA-256 of its bytes.
pub type ProfileHash = [u8; 32];

/// The distribution of the sizes of a rung's frames, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByteSizes {
    /// The mean.
    pub mean: f64,
    /// The 5 % quantile.
    pub p05: f64,
    /// The median.
    pub p50: f64,
    /// The 95 % quantile.
    pub p95: f64,
}

impl ByteSizes {
    /// Normally distributed sizes with this mean, and a standard deviation of `relative_deviation` times the
    /// mean.
    pub fn around(mean: f64, relative_deviation: f64) -> Self {
        // The standard normal distribution has its 95 % quantile at 1.64485.
        let reach = 1.644_85 * relative_deviation * mean;
        Self { mean, p05: (mean - reach).max(0.0), p50: mean, p95: mean + reach }
    }

    /// These sizes times `factor`, limited to plausible sizes.
    pub fn times(&self, factor: f64) -> Self {
        let Self { mean, p05, p50, p95 } = *self;
        let [mean, p05, p50, p95] = [mean, p05, p50, p95].map(|size| (size * factor).min(BYTES_MAX));
        Self { mean: mean.max(BYTES_MIN), p05, p50, p95 }
    }

    /// These sizes, each at most `limit`.
    pub fn at_most(&self, limit: f64) -> Self {
        let Self { mean, p05, p50, p95 } = *self;
        let [mean, p05, p50, p95] = [mean, p05, p50, p95].map(|size| size.min(limit));
        Self { mean: mean.max(BYTES_MIN), p05, p50, p95 }
    }

    /// The size at a `quantile` between 0 and 1: linear between the known quantiles, and extrapolated beyond them.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let (lower, upper) = ((self.p50 - self.p05) / 0.45, (self.p95 - self.p50) / 0.45);
        let slope = if quantile < 0.5 { lower } else { upper };
        (self.p50 + (quantile - 0.5) * slope).max(0.0)
    }
}

/// The sizes of recent frames, compared with those of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SizeDrift {
    /// The median of the newest frames, in bytes.
    pub measured: f64,
    /// The median that the profile gives for the same rungs, in bytes.
    pub profiled: f64,
}

/// The measurements of one rung.
#[derive(Clone, Debug, PartialEq)]
pub struct RungProfile {
    /// The setting of all knobs.
    pub rung: Rung,
    /// The sizes of the rung's frames.
    pub bytes: ByteSizes,
    /// The accuracy in 0..=1, by the score that contracts use.
    pub accuracy: f64,
    /// The camera's time to encode a frame. Zero if frames are sent unchanged.
    pub camera_time: Duration,
    /// The time of the application's detector for a frame; `None` if it was not measured.
    pub detector_time: Option<Duration>,
}

/// Why a profile was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No rung at all.
    #[error("the profile has no rung; measure it again with at least one")]
    Empty,
    /// More rungs than [`RUNGS_MAX`].
    #[error(
        "the profile has {rungs} rungs, more than {RUNGS_MAX}; remove rungs that others beat in bytes and accuracy"
    )]
    TooMany {
        /// How many there are.
        rungs: usize,
    },
    /// A rung is there twice.
    #[error("the rung {} is in the profile twice; keep one of the two rows", .rung.as_str())]
    Twice {
        /// The rung.
        rung: Rung,
    },
    /// Impossible sizes.
    #[error("the sizes of the rung {} must be positive, with p05 ≤ p50 ≤ p95; correct them, or measure the profile again", .rung.as_str())]
    Bytes {
        /// The rung.
        rung: Rung,
    },
    /// An accuracy outside 0..=1.
    #[error("the accuracy {accuracy} of the rung {} is not between 0 and 1; correct it, or measure the profile again", .rung.as_str())]
    Accuracy {
        /// The rung.
        rung: Rung,
        /// The accuracy that the profile gives.
        accuracy: f64,
    },
}

/// The rungs of one application, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    rungs: Vec<RungProfile>,
    takes_source_video: bool,
}

impl Profile {
    /// A profile of these rungs, in any order.
    ///
    /// A rung that differs from another only by a finer quality keeps at least as much accuracy. If the measurement
    /// says otherwise, the difference is noise, and the finer rung gets the accuracy of the coarser one.
    ///
    /// # Errors
    /// See [`ProfileError`].
    pub fn new(rungs: Vec<RungProfile>) -> Result<Self, ProfileError> {
        if rungs.is_empty() {
            return Err(ProfileError::Empty);
        }
        if rungs.len() > RUNGS_MAX {
            return Err(ProfileError::TooMany { rungs: rungs.len() });
        }
        for RungProfile { rung, bytes, accuracy, .. } in &rungs {
            let ascending = 0.0 <= bytes.p05 && bytes.p05 <= bytes.p50 && bytes.p50 <= bytes.p95;
            let sane = |size: f64| (BYTES_MIN..=BYTES_MAX).contains(&size);
            if !(ascending && sane(bytes.mean) && bytes.p95 <= BYTES_MAX) {
                return Err(ProfileError::Bytes { rung: rung.clone() });
            }
            if !(0.0..=1.0).contains(accuracy) {
                return Err(ProfileError::Accuracy { rung: rung.clone(), accuracy: *accuracy });
            }
        }
        let mut names: Vec<&Rung> = rungs.iter().map(|profile| &profile.rung).collect();
        names.sort_by_key(|rung| rung.as_str());
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ProfileError::Twice { rung: twice[0].clone() });
        }
        Ok(Self { rungs: monotone(rungs), takes_source_video: true })
    }

    /// This profile, for an application that always wants a rung: a source's own video is never sent unchanged.
    #[must_use]
    pub fn without_source_video(self) -> Self {
        Self { takes_source_video: false, ..self }
    }

    /// Whether a source's own video may be sent unchanged instead of at a rung. Default: yes.
    pub fn takes_source_video(&self) -> bool {
        self.takes_source_video
    }

    /// All rungs, in the order in which they were given.
    pub fn rungs(&self) -> &[RungProfile] {
        &self.rungs
    }

    /// The measurements of a rung, if the profile has the rung.
    pub fn get(&self, rung: &Rung) -> Option<&RungProfile> {
        self.rungs.iter().find(|profile| profile.rung == *rung)
    }

    /// The accuracy of a rung: its own if the profile has it. Otherwise the best accuracy of the known rungs
    /// that differ from it only by a lower quality, which is a lower bound.
    pub fn accuracy_of(&self, rung: &Rung) -> Option<f64> {
        if let Some(known) = self.get(rung) {
            return Some(known.accuracy);
        }
        let made: Setting = rung.as_str().parse().ok()?;
        let lower = |known: &&RungProfile| {
            known.rung.as_str().parse().is_ok_and(|known: Setting| made.keeps_at_least(&known))
        };
        self.rungs.iter().filter(lower).map(|known| known.accuracy).reduce(f64::max)
    }

    /// The Pareto frontier of the rungs.
    pub fn ladder(&self) -> Ladder {
        Ladder::new(&self.rungs)
    }
}

/// A profile with the size of the frames that it was measured on. Rungs name widths, so the profile serves
/// only cameras of this size.
#[derive(Clone, Debug, PartialEq)]
pub struct SizedProfile {
    /// Width and height of a published frame, in pixels.
    pub size: (u32, u32),
    /// The time between two frames of the measured video. The sizes of a chain's frames depend on it. `None`: unknown.
    pub interval: Option<Duration>,
    /// What each rung costs and keeps.
    pub profile: Profile,
}

/// The Pareto frontier of a profile in bytes and accuracy. It ascends in accuracy, and also in bytes if no
/// rung skips frames.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    rungs: Vec<RungProfile>,
    /// For each rung, whether it ties with a coarser rung.
    ties: Vec<bool>,
}

impl Ladder {
    /// Keeps the rungs that no other rung beats. A rung beats another if it has at most its mean bytes, both per frame
    /// and per second, and at least its accuracy. A rung that is finer than a kept one stays too. Of two equal rungs,
    /// the one with less camera time stays. More than [`LADDER_RUNGS_MAX`] rungs are thinned evenly in accuracy.
    fn new(rungs: &[RungProfile]) -> Self {
        let mut alike: BTreeMap<u32, Vec<&RungProfile>> = BTreeMap::new();
        for rung in rungs {
            alike.entry(rung.rung.one_in()).or_default().push(rung);
        }
        let mut frontiers = alike.into_iter().map(|(one_in, rungs)| (one_in, thin(frontier(rungs))));
        let (_, first) = frontiers.next().unwrap_or_default();
        let others: Vec<(u32, Vec<RungProfile>)> = frontiers.collect();
        let rungs = if others.is_empty() { first } else { thin(merged(first, others)) };
        let settings: Vec<Option<Setting>> = rungs.iter().map(setting).collect();
        let ties = (0..rungs.len()).map(|place| {
            (0..place).any(|lower| {
                rungs[place].accuracy - rungs[lower].accuracy < TIE
                    && is_finer(settings[place].as_ref(), settings[lower].as_ref())
            })
        });
        let ties = ties.collect();
        Self { rungs, ties }
    }

    /// Whether the rung at `place` is finer than a cheaper one, with an accuracy less than [`TIE`] higher.
    pub fn is_tied(&self, place: usize) -> bool {
        self.ties[place]
    }

    /// The rungs, ascending.
    pub fn rungs(&self) -> &[RungProfile] {
        &self.rungs
    }

    /// The number of rungs; at least one.
    #[allow(clippy::len_without_is_empty, reason = "a ladder is never empty")]
    pub fn len(&self) -> usize {
        self.rungs.len()
    }

    /// The place of the cheapest rung that keeps `floor`. `None`: even the best rung does not.
    pub fn lowest_at(&self, floor: Option<f64>) -> Option<usize> {
        let floor = floor.unwrap_or(0.0);
        let place = self.rungs.partition_point(|rung| rung.accuracy < floor);
        (place < self.rungs.len()).then_some(place)
    }

    /// The place of the best rung whose mean size is at most `bytes`.
    pub fn best_within(&self, bytes: f64) -> Option<usize> {
        self.rungs.iter().rposition(|rung| rung.bytes.mean <= bytes)
    }
}

/// The setting that a rung's name stands for; `None` if cameras do not know the name.
fn setting(rung: &RungProfile) -> Option<Setting> {
    rung.rung.as_str().parse().ok()
}

/// Whether frames at setting `one` keep at least as much as frames at `other`. Nothing keeps more than the original.
fn is_finer(one: Option<&Setting>, other: Option<&Setting>) -> bool {
    one.zip(other).is_some_and(|(one, other)| {
        one.form == Form::Original && one.skip == other.skip || one.keeps_at_least(other)
    })
}

/// Lifts the accuracy of each rung to that of the best rung that differs from it only by a coarser quality.
fn monotone(mut rungs: Vec<RungProfile>) -> Vec<RungProfile> {
    let mut best_first: Vec<(f64, Setting)> =
        rungs.iter().filter_map(|rung| Some((rung.accuracy, setting(rung)?))).collect();
    best_first.sort_by(|one, other| other.0.total_cmp(&one.0));
    for rung in &mut rungs {
        let Some(own) = setting(rung) else { continue };
        let better = best_first.iter().take_while(|(accuracy, _)| *accuracy > rung.accuracy);
        if let Some((accuracy, _)) = better.into_iter().find(|(_, coarser)| own.keeps_at_least(coarser)) {
            rung.accuracy = *accuracy;
        }
    }
    rungs
}

/// The Pareto frontier of rungs with the same frame skip, ascending. Rungs that are finer than the last one on the frontier stay too.
fn frontier(mut rungs: Vec<&RungProfile>) -> Vec<RungProfile> {
    rungs.sort_by(|a, b| {
        let by_bytes = a.bytes.mean.total_cmp(&b.bytes.mean);
        by_bytes.then(b.accuracy.total_cmp(&a.accuracy)).then(a.camera_time.cmp(&b.camera_time))
    });
    let mut frontier: Vec<RungProfile> = Vec::new();
    for candidate in rungs {
        let Some(best) = frontier.last() else {
            frontier.push(candidate.clone());
            continue;
        };
        let mut candidate = candidate.clone();
        if is_finer(setting(&candidate).as_ref(), setting(best).as_ref())
            && candidate.bytes.mean > best.bytes.mean
        {
            candidate.accuracy = candidate.accuracy.max(best.accuracy + TIE_STEP);
        }
        if candidate.accuracy > best.accuracy {
            frontier.push(candidate);
        }
    }
    // Accuracy is at most 1. If a coarser rung kept everything in the measured scenes, the coarser rung is lowered.
    let mut most = 1.0;
    for rung in frontier.iter_mut().rev() {
        if rung.accuracy <= most {
            break;
        }
        rung.accuracy = most;
        most -= TIE_STEP;
    }
    frontier
}

/// The Pareto frontier, ascending in accuracy, of several frontiers. Each frontier has one frame skip, given
/// as `n` where one frame in `n` is sent.
fn merged(first: Vec<RungProfile>, others: Vec<(u32, Vec<RungProfile>)>) -> Vec<RungProfile> {
    let all: Vec<(f64, RungProfile)> = std::iter::once((1, first))
        .chain(others)
        .flat_map(|(one_in, rungs)| {
            rungs.into_iter().map(move |rung| (rung.bytes.mean / f64::from(one_in), rung))
        })
        .collect();
    let beats = |one: &(f64, RungProfile), other: &(f64, RungProfile)| {
        let costs = |rung: &(f64, RungProfile)| (rung.0, rung.1.bytes.mean, -rung.1.accuracy);
        let (ours, theirs) = (costs(one), costs(other));
        ours != theirs && ours.0 <= theirs.0 && ours.1 <= theirs.1 && ours.2 <= theirs.2
    };
    let mut best: Vec<&(f64, RungProfile)> =
        all.iter().filter(|rung| !all.iter().any(|other| beats(other, rung))).collect();
    best.sort_by(|a, b| a.1.accuracy.total_cmp(&b.1.accuracy).then(a.0.total_cmp(&b.0)));
    best.dedup_by(|next, kept| next.1.accuracy == kept.1.accuracy);
    best.into_iter().map(|(_, rung)| rung.clone()).collect()
}

/// Thins a frontier to [`LADDER_RUNGS_MAX`] rungs: both ends, and between them the rungs nearest to even
/// steps of accuracy.
fn thin(frontier: Vec<RungProfile>) -> Vec<RungProfile> {
    if frontier.len() <= LADDER_RUNGS_MAX {
        return frontier;
    }
    let (low, high) = (frontier[0].accuracy, frontier[frontier.len() - 1].accuracy);
    let step = (high - low) / (LADDER_RUNGS_MAX - 1) as f64;
    let last = frontier.len() - 1;
    let mut due = low;
    let mut kept = Vec::with_capacity(LADDER_RUNGS_MAX);
    for (index, rung) in frontier.into_iter().enumerate() {
        if rung.accuracy >= due - 1e-9 || index == last {
            due = (rung.accuracy + step).max(due + step).min(high);
            kept.push(rung);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rung(name: &str, bytes: f64, accuracy: f64) -> RungProfile {
        RungProfile {
            rung: Rung::new(name).expect("a valid name"),
            bytes: ByteSizes::around(bytes, 0.08),
            accuracy,
            camera_time: Duration::ZERO,
            detector_time: None,
        }
    }

    #[test]
    fn a_rung_that_another_beats_is_not_in_the_ladder() {
        let rungs =
            vec![rung("c", 30e3, 0.9), rung("a", 10e3, 0.7), rung("b", 20e3, 0.6), rung("d", 40e3, 0.9)];
        let ladder = Profile::new(rungs).expect("sound").ladder();
        let names: Vec<&str> = ladder.rungs().iter().map(|rung| rung.rung.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(ladder.lowest_at(Some(0.8)), Some(1));
        assert_eq!(ladder.lowest_at(Some(0.95)), None);
        assert_eq!(ladder.best_within(29e3), Some(0));
        assert_eq!(ladder.best_within(9e3), None);
    }

    /// Implausible sizes are refused, and corrections keep sizes plausible.
    #[test]
    fn sizes_stay_within_what_is_believed() {
        let of = |mean: f64| {
            Profile::new(vec![RungProfile {
                bytes: ByteSizes { mean, p05: 0.0, p50: 0.0, p95: mean },
                ..rung("a", 1.0, 0.9)
            }])
        };
        for mean in [0.0, -1.0, 1e-4, 1e13, f64::INFINITY, f64::NAN] {
            assert!(matches!(of(mean), Err(ProfileError::Bytes { .. })), "{mean}");
        }
        for (mean, factor) in [(BYTES_MAX, 1e3), (BYTES_MIN, 1e-3)] {
            let rung = of(mean).expect("the last that is believed").rungs()[0].clone();
            let scaled = RungProfile { bytes: rung.bytes.times(factor), ..rung };
            Profile::new(vec![scaled]).expect("it is as sound as before");
        }
    }

    /// In this scene, video keeps everything that the original does. In another scene it may not, so the original stays, and a floor of 1 selects it.
    #[test]
    fn the_original_stays_above_a_rung_that_keeps_all() {
        let rungs = vec![
            rung("h264/q30", 3e3, 0.996),
            rung("h264/q22", 11e3, 1.0),
            rung("h264/q18", 19e3, 1.0),
            rung("original", 152e3, 1.0),
        ];
        let ladder = Profile::new(rungs).expect("sound").ladder();
        let names: Vec<&str> = ladder.rungs().iter().map(|rung| rung.rung.as_str()).collect();
        assert_eq!(names, ["h264/q30", "h264/q22", "h264/q18", "original"]);
        assert!(ladder.rungs().windows(2).all(|pair| pair[0].accuracy < pair[1].accuracy), "{ladder:?}");
        assert!(ladder.is_tied(3));
        assert_eq!((ladder.lowest_at(Some(0.999)), ladder.lowest_at(Some(1.0))), (Some(1), Some(3)));
    }

    /// In this scene, finer video adds nothing but noise. In another scene it may, so it stays as a tie, with the
    /// original above. A coarser rung that costs more is dropped, and so is a rung of another width that keeps less.
    #[test]
    fn finer_rungs_that_tie_stay_in_the_ladder() {
        let rungs = vec![
            rung("h264/q38", 1e3, 0.97),
            rung("h264/q30", 3e3, 0.996),
            rung("h264/q26", 5e3, 0.991),
            rung("h264/q22", 11e3, 0.9961),
            rung("h264/w640/q22", 12e3, 0.99),
            rung("original", 152e3, 1.0),
        ];
        let profile = Profile::new(rungs).expect("sound");
        let ladder = profile.ladder();
        let names: Vec<&str> = ladder.rungs().iter().map(|rung| rung.rung.as_str()).collect();
        assert_eq!(names, ["h264/q38", "h264/q30", "h264/q26", "h264/q22", "original"]);
        let ties: Vec<bool> = (0..ladder.len()).map(|place| ladder.is_tied(place)).collect();
        assert_eq!(ties, [false, false, true, true, true]);
        assert!(ladder.rungs().windows(2).all(|pair| pair[0].accuracy < pair[1].accuracy), "{ladder:?}");
        let fine = profile.accuracy_of(&Rung::new("h264/q26").expect("a valid name"));
        assert_eq!(fine, Some(0.996), "a finer quantiser keeps at least what a coarser one does");
    }

    /// A rung that leaves frames out has larger frames and fewer bytes per second. Both rungs stay, unless one is cheaper in both.
    #[test]
    fn rungs_that_leave_frames_out_stand_beside_those_that_do_not() {
        let rungs = vec![
            rung("h264/q32", 2e3, 0.95),
            rung("h264/q32/skip2", 3e3, 0.93),
            rung("h264/q30/skip1", 5e3, 0.94),
            rung("h264/q34/skip2", 2.5e3, 0.90),
        ];
        let ladder = Profile::new(rungs).expect("sound").ladder();
        let names: Vec<&str> = ladder.rungs().iter().map(|rung| rung.rung.as_str()).collect();
        assert_eq!(names, ["h264/q34/skip2", "h264/q32/skip2", "h264/q32"]);
        assert_eq!(ladder.best_within(2.2e3), Some(2));
    }

    #[test]
    fn profiles_that_cannot_be_are_refused() {
        assert_eq!(Profile::new(Vec::new()), Err(ProfileError::Empty));
        for bad in [
            vec![rung("a", 1e3, 0.5), rung("a", 2e3, 0.6)],
            vec![rung("a", 1e3, 1.5)],
            vec![rung("a", 0.0, 0.5)],
            vec![rung("a", f64::NAN, 0.5)],
            vec![RungProfile {
                bytes: ByteSizes { mean: 1.0, p05: 3.0, p50: 2.0, p95: 1.0 },
                ..rung("a", 1.0, 0.5)
            }],
        ] {
            assert!(Profile::new(bad.clone()).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn quantiles_of_sizes_go_through_those_that_are_known() {
        let sizes = ByteSizes { mean: 105.0, p05: 80.0, p50: 100.0, p95: 140.0 };
        for (quantile, bytes) in [(0.05, 80.0), (0.5, 100.0), (0.95, 140.0), (0.725, 120.0)] {
            assert!((sizes.quantile(quantile) - bytes).abs() < 1e-9);
        }
    }

    proptest! {
        /// With rungs that leave frames out: for each rung, some rung of the ladder
        /// is at least as accurate and costs no more per frame and per second.
        #[test]
        fn nothing_beats_a_ladder_that_leaves_frames_out(rungs in proptest::collection::vec((1.0f64..1e6, 0.0f64..1.0, 0u8..5), 1..=30)) {
            let name = |i: usize, skip: u8| {
                let skip = if skip > 0 { format!("/skip{skip}") } else { String::new() };
                format!("jpeg/w{}/q50/420{skip}", 16 + i)
            };
            let rungs: Vec<_> =
                rungs.iter().enumerate().map(|(i, (bytes, accuracy, skip))| rung(&name(i, *skip), *bytes, *accuracy)).collect();
            let ladder = Profile::new(rungs.clone()).expect("sound").ladder();
            prop_assert!(ladder.rungs().windows(2).all(|pair| pair[0].accuracy < pair[1].accuracy));
            let costs = |rung: &RungProfile| (rung.bytes.mean, rung.bytes.mean / f64::from(rung.rung.one_in()));
            for rung in &rungs {
                let (frame, second) = costs(rung);
                let no_worse = |other: &RungProfile| {
                    costs(other).0 <= frame && costs(other).1 <= second && other.accuracy >= rung.accuracy
                };
                prop_assert!(ladder.rungs().iter().any(no_worse), "{rung:?} is better than the ladder");
            }
        }

        /// For each rung of a profile, some rung of the ladder costs no more and is at
        /// least as accurate, except for the step by which a long frontier is thinned.
        #[test]
        fn nothing_in_a_profile_beats_its_ladder(rungs in proptest::collection::vec((1.0f64..1e6, 0.0f64..1.0), 1..200)) {
            let rungs: Vec<_> = rungs.iter().enumerate().map(|(i, r)| rung(&format!("r{i}"), r.0, r.1)).collect();
            let profile = Profile::new(rungs.clone()).expect("sound");
            let ladder = profile.ladder();
            prop_assert!(ladder.len() <= LADDER_RUNGS_MAX);
            prop_assert!(ladder.rungs().windows(2).all(|p| p[0].bytes.mean < p[1].bytes.mean && p[0].accuracy < p[1].accuracy));
            let span = ladder.rungs()[ladder.len() - 1].accuracy - ladder.rungs()[0].accuracy;
            let step = span / (LADDER_RUNGS_MAX - 1) as f64;
            for rung in &rungs {
                let near = ladder.rungs().iter().any(|l| l.bytes.mean <= rung.bytes.mean && l.accuracy >= rung.accuracy - step - 1e-6);
                prop_assert!(near, "{rung:?} is better than the ladder");
            }
        }
    }
}
