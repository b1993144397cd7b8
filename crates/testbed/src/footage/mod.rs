//! Simulates what cameras see and what codecs make of it, as sizes and times without any pixels. The numbers were measured with the codecs of
//! `mez-media`, except those of [`Footage::STILLS`].
//!
//! The bytes of a frame depend on three things: its rung, by the measurements of this or the nearest measured rung; the motion in the scene, which
//! changes over seconds and is the same for every rung; and noise, which is new in every frame. The logarithm of a size is normally distributed on
//! either side of its median, with the deviation that fits the measured quantiles.

mod measured;
mod stills;

use std::time::Duration;

use mez_core::frame::Rung;
use mez_core::profile::{ByteSizes, Profile, RungProfile, SizedProfile};
use mez_core::setting::{Form, H264, Jpeg, Quality, Quantiser, Setting};

use crate::chance::Chance;
use crate::random::Random;

/// The standard normal distribution has its 95 % quantile here.
const NORMAL_P95: f64 = 1.644_85;
/// Draws beyond this many deviations are clamped, so that no frame is absurdly large.
const DEVIATIONS_MAX: f64 = 3.5;
/// The time constant of the motion in a scene, in seconds.
const STIR_S: f64 = 2.0;
/// The time constant of the texture in a scene, in seconds.
const TEXTURE_S: f64 = 10.0;
/// The share of motion in the variance of a frame's size. The rest is noise.
const STIR_SHARE: f64 = 0.7;
/// The share of the scene's texture in the variance of a published frame's size.
const TEXTURE_SHARE: f64 = 0.3;
/// The bytes of a picture grow with its number of pixels to this power: smaller pictures need more bits per pixel.
const AREA_EXPONENT: f64 = 0.8;
/// How much the natural logarithm of an H.264 frame's bytes falls with each step of the quantiser: for
/// frames that refer to others, and for keyframes.
const QUANTISER_SLOPES: (f64, f64) = (0.2, 0.125);
/// The relative deviation of the sizes of keyframes.
const ALONE_DEVIATION: f64 = 0.06;
/// The bytes of a frame that refers to another grow with the time between them to this power.
const GAP_EXPONENT: f64 = 0.5;
/// The largest factor of that growth, relative to the measured frame rate.
const GAP_FACTOR_MAX: f64 = 4.0;
/// The lowest quality that a budget may force.
const QUALITY_FLOOR: u8 = 10;
/// The size of a frame that a budget limits, as a share of the budget.
const BUDGET_USE: f64 = 0.9;

/// The 5 %, 50 % and 95 % quantiles of the bytes of frames.
pub type Quantiles = [f64; 3];

/// The measurements of one rung.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The rung's name.
    pub rung: &'static str,
    /// Bytes of the rung's frames. For a chained rung, only of frames that refer to others.
    pub bytes: Quantiles,
    /// Mean bytes of keyframes. 0 for stills.
    pub alone_bytes: f64,
    /// The time to encode a frame, in milliseconds: mean and 95 % quantile.
    pub ms: (f64, f64),
    /// The mean time to encode a keyframe, in milliseconds. 0 for stills.
    pub alone_ms: f64,
    /// The accuracy of a people detector at this rung, if it was measured.
    pub accuracy: Option<f64>,
}

/// What a camera sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footage {
    /// The name in scenario files.
    pub name: &'static str,
    /// What the video shows.
    pub about: &'static str,
    /// Width and height of the frames, in pixels.
    pub pixels: (u32, u32),
    /// The frame rate of the measurement.
    pub frames_per_second: f64,
    /// Bytes of published frames, as JPEG of quality 95.
    pub published: Quantiles,
    /// The measured rungs.
    pub rungs: &'static [Measured],
}

/// A frame that a codec encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cooked {
    /// The setting that was used. It is coarser than the requested one if the budget forced it.
    pub(crate) setting: Setting,
    pub(crate) bytes: u64,
}

/// A request to encode a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) setting: Setting,
    /// Width and height of the published frame.
    pub(crate) pixels: (u32, u32),
    /// Bytes of the published frame.
    pub(crate) published: u64,
    pub(crate) bytes_max: u64,
    /// The time since the frame that this one refers to. `None`: this is a keyframe.
    pub(crate) gap: Option<Duration>,
}

impl Footage {
    /// The profile of an application for this footage, from the rungs with a measured accuracy.
    pub fn profile(&self) -> Option<SizedProfile> {
        let rungs: Vec<RungProfile> = self.rungs.iter().filter_map(Measured::profile).collect();
        let profile = Profile::new(rungs).ok()?;
        let interval = Duration::from_secs_f64(1.0 / self.frames_per_second);
        Some(SizedProfile { size: self.pixels, interval: Some(interval), profile })
    }

    /// The measured accuracy of a rung. 1 for the original. `None`: unknown.
    pub fn accuracy_of(&self, rung: &Rung) -> Option<f64> {
        if *rung == Rung::original() {
            return Some(1.0);
        }
        self.profile()?.profile.accuracy_of(rung)
    }

    /// Whether this rung was measured.
    pub(crate) fn knows(&self, rung: &Rung) -> bool {
        self.rungs.iter().any(|known| known.rung == rung.as_str())
    }

    /// Bytes of the next published frame. The scene's texture moves them between the two sizes `within`.
    pub(crate) fn published_bytes(within: (u32, u32), scene: &mut Scene) -> u32 {
        let (least, most) = (f64::from(within.0), f64::from(within.1));
        let own = scene.chance.normal();
        let place = TEXTURE_SHARE.sqrt() * scene.texture + (1.0 - TEXTURE_SHARE).sqrt() * own;
        (least + (most - least) * share_below(place)) as u32
    }

    /// Encodes a frame. The error is the fewest bytes to which the frame could be reduced.
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
        // A real codec may produce more bytes than the original. Here the payload is a part of the original,
        // so it cannot.
        Ok(Cooked { setting, bytes: (bytes as u64).clamp(1, order.published) })
    }

    /// How long it takes to encode a frame.
    pub(crate) fn making_time(&self, order: &Order, scene: &mut Scene) -> Duration {
        let (measured, _) = self.nearest(&order.setting, order.pixels, &scene.settings);
        let (mean, p95) = measured.ms;
        let deviation = (p95 / mean).max(1.0).ln() / NORMAL_P95;
        let usual = if order.gap.is_none() && order.setting.is_chained() { measured.alone_ms } else { mean };
        let ms = usual * (deviation * scene.chance.normal().clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX)).exp();
        Duration::from_secs_f64(ms / 1e3)
    }

    /// The longest time that a codec takes for a frame of this footage.
    pub(crate) fn making_time_max(&self) -> Duration {
        let longest = self.rungs.iter().map(|rung| {
            let spread = (rung.ms.1 / rung.ms.0).max(1.0).powf(DEVIATIONS_MAX / NORMAL_P95);
            rung.ms.0.max(rung.alone_ms) * spread
        });
        Duration::from_secs_f64(longest.fold(0.0, f64::max) / 1e3)
    }

    /// The measurements of the rung that is most similar to `setting`.
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

/// The state of a scene: its motion and its texture, both with a standard normal distribution.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    chance: Chance,
    /// The settings of the footage's rungs, in their order.
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

    /// Advances the scene by `time`.
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

/// The size at this many deviations from the median.
fn at(bytes: &Quantiles, deviations: f64) -> f64 {
    let [p05, p50, p95] = *bytes;
    let deviations = deviations.clamp(-DEVIATIONS_MAX, DEVIATIONS_MAX);
    let deviation = if deviations < 0.0 { (p50 / p05).ln() } else { (p95 / p50).ln() } / NORMAL_P95;
    p50 * (deviations * deviation).exp()
}

/// The share of a standard normal distribution below `value`, to 10⁻⁴ (logistic approximation, Bowling et
/// al., 2009).
fn share_below(value: f64) -> f64 {
    1.0 / (1.0 + (-0.07056 * value.powi(3) - 1.5976 * value).exp())
}

fn same_family(one: &Setting, other: &Setting) -> bool {
    std::mem::discriminant(&one.form) == std::mem::discriminant(&other.form)
}

/// The logarithm of the ratio of the bytes at `wanted` to the bytes at `known`, each for frames of their own published size.
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

/// The logarithm of the relative bytes of a JPEG. libjpeg scales its quantisation tables by quality, and
/// bytes fall with about the power -0.6 of that scale.
fn quality_log(jpeg: &Jpeg) -> f64 {
    let quality = f64::from(jpeg.quality.get().clamp(1, 99));
    let scale = if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 };
    -0.6 * scale.ln()
}

/// Reduces a frame to its byte budget with a coarser quantiser or a lower quality, if there is one.
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
        for footage in Footage::known() {
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
        for footage in Footage::known() {
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
