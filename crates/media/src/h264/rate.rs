//! Predicts the bytes of a picture at a quantiser, from earlier pictures.
//!
//! `ln bytes = level − slope · (quantiser − 32)`. The level follows the scene. The slope, which is the saving
//! per step of the quantiser, changes slowly. There is one model for independent and one for predicted pictures.

/// The quantiser at which the level is stated.
const PIVOT: f64 = 32.0;
/// Weight of the newest picture in the level.
const LEVEL_WEIGHT: f64 = 0.6;
/// Weight of the newest pair of sizes in the slope.
const SLOPE_WEIGHT: f64 = 0.1;
/// Two sizes update the slope only if their quantisers differ by at least this. With closer ones, noise dominates.
const SLOPE_STEPS_MIN: f64 = 2.0;
/// The lowest accepted slope. A picture becomes 1.8 times smaller with six steps, which double the quantiser's step size.
const SLOPE_MIN: f64 = 0.1;
/// The highest accepted slope. A picture becomes 11 times smaller with six steps.
const SLOPE_MAX: f64 = 0.4;
/// Share of a budget to aim at. The model errs by a quarter at the 95th percentile, and a picture that misses is coded again. A lower aim
/// would waste more bytes than it saves time. Measured: with 0.9 to 1.0, each picture is coded 1.16 to 1.27 times.
const AIM: f64 = 0.95;
/// Share of a budget to aim at in a second attempt. The picture's size at another quantiser is then known, but the slope is not exact.
const AIM_AGAIN: f64 = 0.93;
/// The highest slope that a second attempt assumes. A higher one would raise the quantiser too little, and need a third attempt.
const SLOPE_AGAIN_MAX: f64 = 0.2;

/// Maximum number of attempts to fit a picture into its budget. Then it is coded once more, at the coarsest quantiser.
pub(super) const ATTEMPTS_MAX: u32 = 5;
/// The coarsest quantiser of the standard.
pub(super) const QUANTISER_MAX: u8 = 51;

/// Bytes by quantiser for one kind of picture.
#[derive(Debug, Clone)]
pub(super) struct Model {
    level: Option<f64>,
    slope: f64,
}

impl Model {
    pub(super) const fn independent() -> Self {
        Self { level: None, slope: 0.125 }
    }

    pub(super) const fn predicted() -> Self {
        Self { level: None, slope: 0.2 }
    }

    /// The finest quantiser, `finest` or coarser, at which a picture should take no more than `bytes_max`.
    pub(super) fn choose(&self, finest: u8, bytes_max: usize) -> u8 {
        let Some(level) = self.level else { return finest };
        let steps = (level - (AIM * bytes_max.max(1) as f64).ln()) / self.slope;
        ((PIVOT + steps).ceil().clamp(f64::from(finest), f64::from(QUANTISER_MAX))) as u8
    }

    /// The expected bytes of a picture at a quantiser. `None`: nothing is known yet.
    pub(super) fn bytes(&self, quantiser: u8) -> Option<usize> {
        Some((self.level? - self.slope * (f64::from(quantiser) - PIVOT)).exp() as usize)
    }

    /// The quantiser of the next attempt, after attempt number `attempt` at `quantiser` took `bytes`, more than `bytes_max`.
    pub(super) fn again(&self, quantiser: u8, bytes: usize, bytes_max: usize, attempt: u32) -> u8 {
        if attempt >= ATTEMPTS_MAX {
            return QUANTISER_MAX;
        }
        let over = (bytes as f64 / (AIM_AGAIN * bytes_max.max(1) as f64)).ln();
        let steps = (over / self.slope.min(SLOPE_AGAIN_MAX)).ceil().max(1.0) + f64::from(attempt - 1);
        (f64::from(quantiser) + steps).min(f64::from(QUANTISER_MAX)) as u8
    }

    /// Learns from a picture. Only the attempt that was sent counts, because it predicts the size of the next picture.
    pub(super) fn learn(&mut self, quantiser: u8, bytes: usize) {
        let level = (bytes.max(1) as f64).ln() + self.slope * (f64::from(quantiser) - PIVOT);
        let weight = if self.level.is_some() { LEVEL_WEIGHT } else { 1.0 };
        let old = self.level.unwrap_or(level);
        self.level = Some(old + weight * (level - old));
    }

    /// Learns the slope from two attempts at the same picture with the same reference.
    pub(super) fn learn_slope(&mut self, (q0, bytes0): (u8, usize), (q1, bytes1): (u8, usize)) {
        let steps = f64::from(q1) - f64::from(q0);
        if steps.abs() >= SLOPE_STEPS_MIN && bytes0 > 0 && bytes1 > 0 {
            let slope = (bytes0 as f64 / bytes1 as f64).ln() / steps;
            self.slope = (self.slope + SLOPE_WEIGHT * (slope - self.slope)).clamp(SLOPE_MIN, SLOPE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a scene that obeys the formula, the choice is right immediately, within a step of the quantiser.
    #[test]
    fn a_scene_that_obeys_the_law_is_met() {
        let bytes = |quantiser: u8| (9.0 - 0.2 * (f64::from(quantiser) - PIVOT)).exp() as usize;
        let mut model = Model::predicted();
        assert_eq!(model.choose(24, 1), 24, "nothing is known yet");
        model.learn(24, bytes(24));
        for bytes_max in [3000, 5000, 9000, 20_000, 100_000] {
            let chosen = model.choose(18, bytes_max);
            assert!(bytes(chosen) <= bytes_max, "{bytes_max}: {chosen}");
            assert!(chosen == 18 || bytes(chosen) * 100 > bytes_max * 73, "{bytes_max}: {}", bytes(chosen));
            let again = model.again(18, bytes(18), bytes_max.min(bytes(18) - 1), 1);
            assert!(again > 18 && bytes(again) <= bytes_max);
        }
        assert_eq!(model.choose(18, 10), QUANTISER_MAX);
        assert!(model.bytes(30).unwrap().abs_diff(bytes(30)) <= 1, "{:?}", model.bytes(30));
    }

    #[test]
    fn the_slope_is_learned_within_bounds() {
        let mut model = Model::predicted();
        (0..200).for_each(|_| model.learn_slope((20, 10_000), (30, 4_000)));
        assert!((model.slope - 0.0916f64.max(SLOPE_MIN)).abs() < 0.001, "{}", model.slope);
        (0..200).for_each(|_| model.learn_slope((20, 10_000), (21, 1)));
        assert!(model.slope < 0.11, "one step says too little");
    }
}
