//! What cameras see, and what codecs make of it, as sizes and times: measured with the codecs of `mez-media`, without any pixels.
//!
//! The bytes of a frame follow from three things: the rung, from what was measured there or at the nearest measured rung; the
//! scene, whose stir rises and falls over seconds and is the same for every rung; and what is left, anew in every frame. The logarithm of a
//! size is normal on either side of its median, with the deviation that meets the measured quantiles.

mod measured;

use std::time::Duration;

use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, RungProfile, SizedProfile};
use mez_core::setting::{Form, H264, Jpeg, Quality, Quantiser, Setting};

use crate::chance::Chance;
use crate::random::Random;

/// The 95 % quantile of the standard normal distribution.
const NORMAL_P95: f64 = 1.644_85;
/// Draws beyond so many deviations are brought back: no frame is endlessly large.
const DEVIATIONS_MAX: f64 = 3.5;
/// How long the stir of a scene lasts, and its texture, in seconds: time constants of their processes.
const STIR_S: f64 = 2.0;
const TEXTURE_S: f64 = 10.0;
/// The part of the variance of a frame's size that the scene's stir has; the rest is new in every frame.
const STIR_SHARE: f64 = 0.7;
/// The part of the variance of a published frame's size that the scene's texture has.
const TEXTURE_SHARE: f64 = 0.3;
/// Bytes of a picture against those of one of as many times its pixels: smaller pictures have more bits for each of their pixels.
const AREA_EXPONENT: f64 = 0.8;
/// The logarithm of the bytes of H.264 falls by so much with every step of the quantiser: of frames that refer to others, and of those that
/// stand alone.
const QUANTISER_SLOPES: (f64, f64) = (0.2, 0.125);
/// The deviation of frames that stand alone around their mean, as a share.
const ALONE_DEVIATION: f64 = 0.06;
/// What changes between two frames grows with the time between them, by this power,
const GAP_EXPONENT: f64 = 0.5;
/// and no further than to so many times what it is at the measured rate.
const GAP_FACTOR_MAX: f64 = 4.0;
/// The lowest quality that a budget may force.
const QUALITY_FLOOR: u8 = 10;
/// A frame that has to be brought below a budget is brought to this share of it.
const BUDGET_USE: f64 = 0.9;

/// 5, 50 and 95 % of frames have no more bytes.
pub type Quantiles = [f64; 3];

/// One rung as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Its name.
    pub rung: &'static str,
    /// Bytes of its frames; of a chain, of those that refer to others.
    pub bytes: Quantiles,
    /// Mean bytes of frames of a chain that stand alone; 0 for stills.
    pub alone_bytes: f64,
    /// What making a frame takes, in milliseconds: mean and 95 % quantile.
    pub ms: (f64, f64),
    /// The same, in the mean, of one of a chain that stands alone; 0 for stills.
    pub alone_ms: f64,
    /// What a detector of people kept, where that was measured.
    pub accuracy: Option<f64>,
}

/// What a camera sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footage {
    /// What scenario files call it.
    pub name: &'static str,
    /// What is to be seen.
    pub about: &'static str,
    /// Width and height of its frames, in pixels.
    pub pixels: (u32, u32),
    /// The frame rate at which it was measured.
    pub frames_per_second: f64,
    /// Bytes of its frames as they are published, as JPEG of quality 95.
    pub published: Quantiles,
    /// What was measured.
    pub rungs: &'static [Measured],
}

/// A frame as a codec made it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cooked {
    /// What was done: coarser than asked for where the budget forced it.
    pub(crate) setting: Setting,
    pub(crate) bytes: u64,
}

/// What a frame is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) setting: Setting,
    /// Pixels of the frame as published, and its bytes.
    pub(crate) pixels: (u32, u32),
    pub(crate) published: u64,
    pub(crate) bytes_max: u64,
    /// Time since the frame that it refers to; `None`: it stands alone.
    pub(crate) gap: Option<Duration>,
}

impl Footage {
    /// All that come with Mez.
    pub const ALL: [Self; 3] = [measured::PEDESTRIANS, measured::NOISY_1080P, measured::PANNING_720P];
    /// People who walk by, seen by a camera that stands still.
    pub const PEDESTRIANS: Self = measured::PEDESTRIANS;

    /// The footage of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name == name)
    }

    /// What an application's profile of it says, where accuracies were measured.
    pub fn profile(&self) -> Option<SizedProfile> {
        let rungs: Vec<RungProfile> = self.rungs.iter().filter_map(Measured::profile).collect();
        let profile = Profile::new(rungs).ok()?;
        Some(SizedProfile { size: self.pixels, profile })
    }

    /// Whether this rung was measured.
    pub(crate) fn knows(&self, rung: &Rung) -> bool {
        self.rungs.iter().any(|known| known.rung == rung.as_str())
    }

    /// Bytes of the next frame as it is published, of a size `within` which the scene's texture puts it.
    pub(crate) fn published_bytes(within: (u32, u32), scene: &mut Scene) -> u32 {
        let (least, most) = (f64::from(within.0), f64::from(within.1));
        let own = scene.chance.normal();
        let place = TEXTURE_SHARE.sqrt() * scene.texture + (1.0 - TEXTURE_SHARE).sqrt() * own;
        (least + (most - least) * share_below(place)) as u32
    }

    /// What a codec makes of a frame; the error is the fewest bytes that it came down to.
    pub(crate) fn make(&self, order: &Order, scene: &mut Scene) -> Result<Cooked, u64> {
        let (measured, known) = self.nearest(&order.setting, order.pixels, &scene.settings);
        let alone = order.gap.is_none();
        let slope = if alone { QUANTISER_SLOPES.1 } else { QUANTISER_SLOPES.0 };
        let factor = (log_factor(&known, &order.setting, (self.pixels, order.pixels), slope)).exp()
            * order.published as f64
            / self.published[1];
        let own = scene.chance.normal();
        let usual = match order.gap {
            None if order.setting.is_chained() => {
                measured.alone_bytes * (1.0 + ALONE_DEVIATION * own.clamp(-2.0, 2.0))
            }
            None => at(&measured.bytes, scene.mixed(scene.texture, own)),
            Some(gap) => {
                let gaps = gap.as_secs_f64() * self.frames_per_second;
                at(&measured.bytes, scene.mixed(scene.stir, own))
                    * gaps.powf(GAP_EXPONENT).clamp(0.5, GAP_FACTOR_MAX)
            }
        };
        let bytes = (usual * factor).max(1.0);
        let (setting, bytes) = kept_within(order, bytes, slope)?;
        // Nothing that a codec made is larger than what it was made of: here it has to be, since it is a part of it.
        Ok(Cooked { setting, bytes: (bytes as u64).clamp(1, order.published) })
    }

    /// How long that takes.
    pub(crate) fn making_time(&self, order: &Order, scene: &mut Scene) -> Duration {
        let (measured, _) = self.nearest(&order.setting, order.pixels, &scene.settings);
        let (mean, p95) = measured.ms;
        let deviation = (p95 / mean).max(1.0).ln() / NORMAL_P95;
        let usual = if order.gap.is_none() && order.setting.is_chained() { measured.alone_ms } else { mean };
        let ms = usual * (deviation * scene.chance.normal().clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX)).exp();
        Duration::from_secs_f64(ms / 1e3)
    }

    /// The longest that a codec takes for one of its frames.
    pub(crate) fn making_time_max(&self) -> Duration {
        let longest = self.rungs.iter().map(|rung| {
            let spread = (rung.ms.1 / rung.ms.0).max(1.0).powf(DEVIATIONS_MAX / NORMAL_P95);
            rung.ms.0.max(rung.alone_ms) * spread
        });
        Duration::from_secs_f64(longest.fold(0.0, f64::max) / 1e3)
    }

    /// What was measured at the rung that is the most like this one.
    fn nearest(
        &self,
        setting: &Setting,
        pixels: (u32, u32),
        settings: &[Setting],
    ) -> (&'static Measured, Setting) {
        let settings = self.rungs.iter().zip(settings.iter().copied());
        let near = settings.min_by(|(_, one), (_, other)| {
            let distance = |known: &Setting| {
                let steps = log_factor(known, setting, (self.pixels, pixels), QUANTISER_SLOPES.0).abs();
                if same_family(known, setting) { steps } else { 100.0 + steps }
            };
            distance(one).total_cmp(&distance(other))
        });
        near.expect("every footage has rungs")
    }
}

impl Measured {
    fn setting(&self) -> Setting {
        self.rung.parse().expect("rungs of built-in footage are spelt right; a test looks at them")
    }

    fn profile(&self) -> Option<RungProfile> {
        let [p05, p50, p95] = self.bytes;
        Some(RungProfile {
            rung: self.setting().rung(),
            bytes: ByteSizes { mean: p50, p05, p50, p95 },
            accuracy: self.accuracy?,
            camera_time: Duration::from_secs_f64(self.ms.0 / 1e3),
            detector_time: None,
        })
    }
}

/// The state of a scene: how much stirs in it, and how much there is to be seen; both standard normal.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    chance: Chance,
    /// Those of the footage's rungs, in their order.
    settings: Vec<Setting>,
    stir: f64,
    texture: f64,
}

impl Scene {
    pub(crate) fn new(footage: &Footage, random: Random) -> Self {
        let settings = footage.rungs.iter().map(Measured::setting).collect();
        let mut chance = Chance::new(random);
        let (stir, texture) = (chance.normal(), chance.normal());
        Self { chance, settings, stir, texture }
    }

    /// Time goes by.
    pub(crate) fn pass(&mut self, time: Duration) {
        let mut next = |value: f64, constant_s: f64| {
            let kept = (-time.as_secs_f64() / constant_s).exp();
            kept * value + (1.0 - kept * kept).sqrt() * self.chance.normal()
        };
        (self.stir, self.texture) = (next(self.stir, STIR_S), next(self.texture, TEXTURE_S));
    }

    fn mixed(&self, common: f64, own: f64) -> f64 {
        STIR_SHARE.sqrt() * common + (1.0 - STIR_SHARE).sqrt() * own
    }
}

/// The size at so many deviations from the median.
fn at(bytes: &Quantiles, deviations: f64) -> f64 {
    let [p05, p50, p95] = *bytes;
    let deviations = deviations.clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX);
    let deviation = if deviations < 0.0 { (p50 / p05).ln() } else { (p95 / p50).ln() } / NORMAL_P95;
    p50 * (deviations * deviation).exp()
}

/// The share of a standard normal distribution below `value`, to 10⁻⁴ (logistic approximation of Bowling et al. 2009).
fn share_below(value: f64) -> f64 {
    1.0 / (1.0 + (-0.07056 * value.powi(3) - 1.5976 * value).exp())
}

fn same_family(one: &Setting, other: &Setting) -> bool {
    std::mem::discriminant(&one.form) == std::mem::discriminant(&other.form)
}

/// The logarithm of the bytes at `wanted` against those at `known`, both of frames of their own size as published.
fn log_factor(known: &Setting, wanted: &Setting, pixels: ((u32, u32), (u32, u32)), slope: f64) -> f64 {
    let share = |setting: &Setting, source: (u32, u32)| {
        let (width, height) = setting.size(source);
        f64::from(width) * f64::from(height) / (f64::from(source.0) * f64::from(source.1))
    };
    let area = AREA_EXPONENT * (share(wanted, pixels.1) / share(known, pixels.0)).ln();
    let level = match (known.form, wanted.form) {
        (Form::H264(known), Form::H264(wanted)) => {
            slope * (f64::from(known.quantiser.get()) - f64::from(wanted.quantiser.get()))
        }
        (Form::Jpeg(known) | Form::Tiles(known), Form::Jpeg(wanted) | Form::Tiles(wanted)) => {
            quality_log(&wanted) - quality_log(&known)
        }
        _ => 0.0,
    };
    area + level
}

/// The logarithm of the bytes of a JPEG: libjpeg scales its tables by this, and bytes fall with about its power of -0.6.
fn quality_log(jpeg: &Jpeg) -> f64 {
    let quality = f64::from(jpeg.quality.get().clamp(1, 99));
    let scale = if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 };
    -0.6 * scale.ln()
}

/// A frame brought within its budget, by a coarser quantiser or a lower quality, where there is one.
fn kept_within(order: &Order, bytes: f64, slope: f64) -> Result<(Setting, f64), u64> {
    let most = order.bytes_max as f64;
    if bytes <= most {
        return Ok((order.setting, bytes));
    }
    let (form, left) = match order.setting.form {
        Form::H264(H264 { width, quantiser }) => {
            let steps = ((bytes / (most * BUDGET_USE)).ln() / slope).ceil() as u64;
            let coarser = Quantiser::clamped((u64::from(quantiser.get()) + steps).min(255) as u8);
            let left = bytes * (-slope * f64::from(coarser.get() - quantiser.get())).exp();
            (Form::H264(H264 { width, quantiser: coarser }), left)
        }
        Form::Tiles(asked) => {
            let lower = |quality: u8| Jpeg { quality: Quality::clamped(quality), ..asked };
            let left = |jpeg: Jpeg| bytes * (quality_log(&jpeg) - quality_log(&asked)).exp();
            let fits = |jpeg: &Jpeg| left(*jpeg) <= most * BUDGET_USE;
            let lowest = lower(QUALITY_FLOOR);
            let made = (QUALITY_FLOOR..asked.quality.get()).rev().map(lower).find(fits).unwrap_or(lowest);
            (Form::Tiles(made), left(made))
        }
        _ => return Err(bytes as u64),
    };
    if left > most {
        return Err(left as u64);
    }
    Ok((Setting { form, ..order.setting }, left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    fn order(setting: Setting, footage: &Footage) -> Order {
        Order {
            setting,
            pixels: footage.pixels,
            published: footage.published[1] as u64,
            bytes_max: u64::from(u32::MAX),
            gap: Some(Duration::from_secs_f64(1.0 / footage.frames_per_second)),
        }
    }

    #[test]
    fn built_in_footage_is_sound() {
        for footage in Footage::ALL {
            assert_eq!(Footage::named(footage.name), Some(footage));
            for rung in footage.rungs {
                let [p05, p50, p95] = rung.bytes;
                assert!(0.0 < p05 && p05 <= p50 && p50 <= p95 && rung.ms.0 > 0.0, "{rung:?}");
                assert_eq!(rung.setting().to_string(), rung.rung);
                assert_eq!(rung.setting().is_chained(), rung.alone_bytes > p50, "{rung:?}");
            }
        }
        assert!(Footage::PEDESTRIANS.profile().is_some());
    }

    /// Over a long time, sizes have the quantiles that were measured; from one frame to the next they are alike.
    #[test]
    fn sizes_are_those_that_were_measured() {
        for footage in Footage::ALL {
            for rung in footage.rungs {
                let mut scene = Scene::new(&footage, Random::seeded(3));
                let mut order = order(rung.setting(), &footage);
                order.gap = order.gap.filter(|_| rung.alone_bytes > 0.0);
                let mut sizes: Vec<f64> = Vec::new();
                for _ in 0..5_000 {
                    scene.pass(ms(100));
                    sizes.push(
                        footage.make(&order, &mut scene).expect("it may be as large as it likes").bytes
                            as f64,
                    );
                }
                let near: f64 = sizes.windows(2).map(|pair| (pair[1] / pair[0]).ln().abs()).sum();
                let far: f64 = sizes.windows(500).map(|some| (some[499] / some[0]).ln().abs()).sum();
                let (near, far) = (near / 4_999.0, far / 4_501.0);
                assert!(near < far, "{}: neighbours differ by {near}, others by {far}", rung.rung);
                sizes.sort_by(f64::total_cmp);
                for (quantile, wanted) in
                    [(250, rung.bytes[0]), (2_500, rung.bytes[1]), (4_750, rung.bytes[2])]
                {
                    let off = (sizes[quantile] / wanted).ln().abs();
                    assert!(
                        off < 0.15,
                        "{} of {}: {} instead of {wanted}",
                        rung.rung,
                        footage.name,
                        sizes[quantile]
                    );
                }
            }
        }
    }

    #[test]
    fn a_budget_is_kept_by_a_coarser_quantiser_and_said() {
        let footage = Footage::PEDESTRIANS;
        let mut scene = Scene::new(&footage, Random::seeded(4));
        let fine: Setting = "h264/q24".parse().expect("a rung");
        let free = footage.make(&order(fine, &footage), &mut scene).expect("no budget");
        assert_eq!(free.setting, fine);
        let tight = Order { bytes_max: free.bytes / 2, ..order(fine, &footage) };
        let made = footage.make(&tight, &mut scene).expect("a coarser quantiser does it");
        assert!(made.bytes <= tight.bytes_max && made.bytes > tight.bytes_max / 2, "{made:?}");
        assert_ne!(made.setting, fine);
        let hopeless = Order { bytes_max: 10, ..tight };
        assert!(footage.make(&hopeless, &mut scene).is_err_and(|least| least > 10));
    }

    #[test]
    fn frames_that_stand_alone_are_many_times_as_large() {
        for footage in Footage::ALL {
            let setting: Setting = "h264/q32".parse().expect("a rung");
            let mut scene = Scene::new(&footage, Random::seeded(5));
            let going_on = footage.make(&order(setting, &footage), &mut scene).expect("no budget").bytes;
            let alone = Order { gap: None, ..order(setting, &footage) };
            let alone = footage.make(&alone, &mut scene).expect("no budget").bytes;
            assert!(alone > going_on, "{}: {alone} and {going_on}", footage.name);
        }
    }
}
