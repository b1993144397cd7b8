//! Builds the rungs for a frame and predicts the size of its frames at each. The rungs are those of a
//! profile, or the default ladder with assumed sizes.

use std::time::Duration;

use super::basis::{Basis, makeable, may_be};
use super::budgets::{Fallbacks, Measured, Spendable};
use super::drift::{Profiled, differs};
use crate::controller::{Coding, bytes_needed};
use crate::frame::{Encoding, Rung};
use crate::profile::{ByteSizes, Ladder, Profile, RungProfile, SizedProfile};
use crate::setting::{Chains, DeclaredKnobs, Form, H264, Quantiser, Setting, default_ladder};

/// The assumed time to encode a JPEG, in nanoseconds per source pixel: about 10 ms at 1080p. Measurements
/// soon correct it.
const NANOS_PER_PIXEL: f64 = 5.0;
/// The assumed time to encode a frame of a chain, in nanoseconds per source pixel: about 17 ms at 1080p.
/// Measurements soon correct it.
const CHAIN_NANOS_PER_PIXEL: f64 = 8.0;
/// The assumed relative standard deviation of the sizes of JPEGs of one rung.
const JPEG_DEVIATION: f64 = 0.08;
/// The assumed relative standard deviation of the sizes of frames that refer to others. It is larger, because
/// their size depends on what moves.
const CHAIN_DEVIATION: f64 = 0.35;
/// The assumed ratio of the bytes of a keyframe to those of other frames of its chain.
const ALONE_FACTOR: f64 = 10.0;
/// The smallest budget of a keyframe, as a share of its usual bytes. Such a keyframe looks coarse, and the
/// next frames refine it. With less, they would take too long to do so.
const ALONE_CUT_MAX: f64 = 0.25;
/// The constant part of the smallest budget of a chained frame, in bytes. With less, no quantiser is coarse
/// enough.
const BUDGET_BYTES_MIN: f64 = 1_000.0;
/// The part of the smallest budget of a chained frame that grows with its size, in bytes per pixel.
const BUDGET_BYTES_PER_PIXEL: f64 = 0.004;
/// The expected size of a frame as a share of its budget, if the budget limits it. Encoders stay below a
/// budget.
const BUDGET_USE: f64 = 0.8;
/// The longest encoding time that is believed of a profile.
const CAMERA_TIME_MAX: Duration = Duration::from_secs(3600);
/// An anchor may take as much of the link as this many frame intervals, so that no more frames than this wait meanwhile.
const ANCHOR_INTERVALS: f64 = 2.0;
/// The finest quantiser of a frame that is enlarged to probe the link.
const QUANTISER_MIN: u8 = 18;
/// How much the natural logarithm of a frame's bytes falls with each step of the quantiser: for frames that
/// refer to others, and for keyframes.
const QUANTISER_SLOPES: (f64, f64) = (0.2, 0.125);

/// The frame that the next one of a chain may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    /// The setting of the last frame.
    pub(crate) setting: &'a Setting,
    /// How many frames were lost after the frame that the next one would refer to.
    pub(crate) lost: u32,
}

/// The available rungs.
#[derive(Debug)]
pub(crate) struct Rungs {
    pub(crate) basis: Basis,
    pub(crate) ladder: Ladder,
    /// For each place of the ladder, its setting.
    pub(crate) settings: Vec<Setting>,
    /// For each place of the ladder, the sizes of keyframes.
    alone: Vec<ByteSizes>,
    /// For each place of the ladder, the sizes that the profile gives. `None`: there is no profile, or the frame goes
    /// unchanged.
    profiled: Vec<Option<Profiled>>,
    /// For each place of the ladder, `n` where one frame in `n` is sent.
    every: Vec<u32>,
    /// The sizes that the profile gives for frames as they were published, all of them JPEG.
    published: Option<ByteSizes>,
    /// The frame skips of the profile's rungs that could otherwise be used, ascending.
    skips: Vec<u8>,
    /// The accuracies of all rungs, including those that the ladder leaves out. A budget can turn a frame
    /// into one of these.
    known: Vec<(Setting, f64)>,
    /// For each place of the ladder, the measured rungs that a budget may turn its frames into.
    fallbacks: Vec<Fallbacks>,
}

/// What each rung costs for the waiting frame.
pub(crate) struct Costs {
    /// The place of the rung of the chain's last frame.
    continues: Option<usize>,
    /// How many frames were lost after the frame that this one would refer to.
    lost: u32,
    /// For each place of the ladder, whether the frame can continue the chain there.
    goes_on: Vec<bool>,
    /// For each place of the ladder, the sizes of the frame if the rung changes to it.
    sizes: Vec<ByteSizes>,
    /// For each place of the ladder, the byte budget of the frame.
    bytes_max: Vec<Option<f64>>,
}

impl Rungs {
    /// The rungs of a profile, or assumed ones. `knobs`: the knobs of the stream.
    pub(crate) fn new(basis: Basis, sized: Option<&SizedProfile>, knobs: Option<&DeclaredKnobs>) -> Self {
        let profile = sized.map(|sized| &sized.profile);
        let mut skips = Vec::new();
        let mut rungs: Vec<RungProfile> = match profile {
            Some(profile) => {
                let makes = |rung: &&RungProfile| {
                    let setting = makeable(&rung.rung, basis.pixels, basis.chains);
                    let setting = setting.filter(|setting| basis.allows(knobs, setting));
                    skips.extend(setting.map(|setting| setting.skip).filter(|skip| *skip > 0));
                    setting.is_some_and(|setting| setting.skip <= basis.skip_max)
                };
                profile.rungs().iter().filter(makes).cloned().collect()
            }
            None => assumed(&basis),
        };
        skips.sort_unstable();
        skips.dedup();
        let setting_of = |rung: &Rung| makeable(rung, basis.pixels, Chains::ALL).expect("only these");
        for rung in &mut rungs {
            let setting = setting_of(&rung.rung);
            if setting.form == Form::Original {
                // The frame goes unchanged, so its size and time are known.
                rung.bytes = ByteSizes::around(basis.original_bytes, JPEG_DEVIATION);
                rung.camera_time = Duration::ZERO;
            } else {
                let mut ratios = basis.ratios;
                rung.bytes = rung.bytes.times(*ratios.learned(&setting, false));
                if setting.is_of_data() {
                    // No knob adds bytes.
                    rung.bytes = rung.bytes.at_most(basis.original_bytes);
                }
                rung.camera_time = rung.camera_time.min(CAMERA_TIME_MAX).mul_f64(basis.ratios.time);
            }
        }
        let alone_of = |setting: &Setting, bytes: ByteSizes| {
            let factor = basis.ratios.of(setting).map(|ratios| ALONE_FACTOR * ratios.alone / ratios.going_on);
            factor.map_or(bytes, |factor| ByteSizes::around(bytes.mean * factor, JPEG_DEVIATION))
        };
        let measured = rungs.iter().map(|rung| {
            let setting = setting_of(&rung.rung);
            let bytes = (rung.bytes.p95, alone_of(&setting, rung.bytes).p95);
            Measured { setting, accuracy: rung.accuracy, bytes }
        });
        let mut measured: Vec<Measured> = measured.collect();
        let ladder =
            Profile::new(rungs).expect("rungs of a profile that was checked, or assumed ones").ladder();
        let settings: Vec<Setting> = ladder.rungs().iter().map(|rung| setting_of(&rung.rung)).collect();
        let places = || ladder.rungs().iter().zip(&settings);
        // The ladder lifts accuracies of rungs that tie. Floors are compared with the lifted accuracies.
        for (rung, setting) in places() {
            for same in measured.iter_mut().filter(|measured| measured.setting == *setting) {
                same.accuracy = rung.accuracy;
            }
        }
        let known = measured.iter().map(|measured| (measured.setting, measured.accuracy)).collect();
        let fallbacks = places().map(|(rung, setting)| Fallbacks::of(setting, rung.accuracy, &measured));
        let fallbacks = fallbacks.collect();
        let alone = places().map(|(rung, setting)| alone_of(setting, rung.bytes));
        let (alone, every) = (alone.collect(), settings.iter().map(Setting::one_in).collect());
        let profiled = ladder.rungs().iter().zip(&settings).map(|(rung, setting)| {
            let bytes = profile?.get(&rung.rung)?.bytes;
            let apart = sized?
                .interval
                .filter(|_| setting.is_chained())
                .map(|apart| apart.saturating_mul(setting.one_in()));
            (setting.form != Form::Original).then_some(Profiled { bytes, apart })
        });
        let profiled = profiled.collect();
        let published = profile.and_then(|profile| Some(profile.get(&Rung::original())?.bytes));
        let mut rungs =
            Self { basis, ladder, settings, alone, profiled, published, every, skips, known, fallbacks };
        // All three were built from the ladder's rungs. A place in the ladder is a place in each of them.
        debug_assert!(
            [rungs.settings.len(), rungs.alone.len(), rungs.every.len()] == [rungs.ladder.len(); 3],
            "{rungs:?}"
        );
        rungs.basis.skip_max = rungs.skip_within(basis.skip_max);
        rungs
    }

    /// The highest frame skip of the rungs up to `skip_max`. Limits with the same result are interchangeable.
    pub(crate) fn skip_within(&self, skip_max: u8) -> u8 {
        self.skips.iter().rfind(|skip| **skip <= skip_max).copied().unwrap_or(0)
    }

    /// The lowest place in the ladder from which on every rung keeps an accuracy, by the profile `own` if it
    /// is given. 0 if accuracies are unknown; `None` if not even the best rung keeps it.
    pub(crate) fn lowest_for(&self, own: Option<&Profile>, accuracy_floor: f64) -> Option<usize> {
        if self.basis.profile.is_none() {
            return Some(0);
        }
        let keeps = |rung: &RungProfile| {
            let unchanged = (rung.rung == Rung::original()).then_some(1.0);
            let accuracy = own.map_or(Some(rung.accuracy), |own| own.accuracy_of(&rung.rung).or(unchanged));
            accuracy.is_some_and(|accuracy| accuracy >= accuracy_floor)
        };
        let lowest = self.ladder.rungs().iter().rposition(|rung| !keeps(rung)).map_or(0, |place| place + 1);
        (lowest < self.ladder.len()).then_some(lowest)
    }

    /// The longest encoding time of the chained rungs, as far as is known.
    pub(crate) fn chain_time(&self) -> Duration {
        let chained =
            self.ladder.rungs().iter().zip(&self.settings).filter(|(_, setting)| setting.is_chained());
        chained.map(|(rung, _)| rung.camera_time).max().unwrap_or_default()
    }

    /// Whether any rung is chained or has a frame skip.
    pub(crate) fn need_coding(&self) -> bool {
        self.settings.iter().any(|setting| setting.is_chained() || setting.skip > 0)
    }

    /// Whether a frame of some measured rung that keeps the floor is at least as likely on time as late, if it may refer to `before`.
    fn any_fits(&self, before: Option<&Setting>, likely: f64, floor: Option<f64>) -> bool {
        let lowest = self.ladder.lowest_at(floor).unwrap_or(self.ladder.len() - 1);
        let goes_on = |setting: &Setting| before.is_some_and(|before| goes_on(before, setting));
        let places = self.settings.iter().zip(&self.fallbacks).skip(lowest);
        places.map(|(setting, measured)| measured.bytes(goes_on(setting), floor)).any(|bytes| bytes <= likely)
    }

    /// What each rung costs for a frame that may refer to `before`, given what may be spent on it.
    pub(crate) fn costs(
        &self,
        before: Option<Before<'_>>,
        spendable: Option<Spendable>,
        floor: Option<f64>,
        lift: f64,
    ) -> Costs {
        let lost = before.map_or(0, |before| before.lost);
        let before = before.map(|before| before.setting);
        let continues = before.and_then(|before| self.settings.iter().position(|setting| setting == before));
        let mut costs =
            Costs { continues, lost, goes_on: Vec::new(), sizes: Vec::new(), bytes_max: Vec::new() };
        let keeps_measured = self.basis.profile.is_some()
            && spendable.is_some_and(|spendable| self.any_fits(before, spendable.likely, floor));
        for (place, setting) in self.settings.iter().enumerate() {
            let sizes = self.ladder.rungs()[place].bytes;
            if !setting.is_chained() {
                costs.goes_on.push(true);
                costs.sizes.push(sizes);
                costs.bytes_max.push(None);
                continue;
            }
            let goes_on = before.is_some_and(|before| goes_on(before, setting));
            costs.goes_on.push(goes_on);
            let (sizes, least) = match goes_on {
                true => (sizes, sizes.mean),
                false => (self.alone[place], self.alone[place].mean * ALONE_CUT_MAX),
            };
            let (width, height) = setting.size(self.basis.pixels);
            let area = f64::from(width) * f64::from(height);
            let least = least.max(BUDGET_BYTES_MIN + BUDGET_BYTES_PER_PIXEL * area) * lift;
            let least = match keeps_measured {
                true => least.max(self.fallbacks[place].bytes_max(goes_on, floor)),
                false => least,
            };
            let bytes_max = spendable.map(|Spendable { in_time, .. }| in_time.max(least));
            costs.sizes.push(bytes_max.map_or(sizes, |most| within(sizes, most)));
            costs.bytes_max.push(bytes_max);
        }
        costs
    }

    /// The mean bytes of a frame that refers to others, and of a keyframe, at a place of the ladder.
    pub(crate) fn bytes_at(&self, place: usize) -> (f64, f64) {
        (self.ladder.rungs()[place].bytes.mean, self.alone[place].mean)
    }

    /// The sizes that the profile gives at a place of the ladder; `None` if it gives none.
    pub(crate) fn profiled_at(&self, place: usize) -> Option<Profiled> {
        self.profiled[place]
    }

    /// Whether a published frame differs in size from those that the profile was measured with.
    pub(crate) fn differs(&self, encoding: Encoding, bytes: usize) -> bool {
        encoding == Encoding::Jpeg && self.published.is_some_and(|profiled| differs(bytes as f64, &profiled))
    }

    /// See [`crate::controller::Offer::bytes_needed`].
    pub(crate) fn bytes_needed(&self, place: usize, interval: Duration, bound: Duration) -> f64 {
        bytes_needed(self.ladder.rungs()[place].bytes.mean, self.every[place], interval, bound)
    }

    /// The known accuracy of an encoded frame: that of its rung, or else the best of the rungs that differ
    /// from it only by a lower quality.
    pub(crate) fn accuracy_of(&self, made: &Setting) -> Option<f64> {
        let lower = self.known.iter().filter(|(known, _)| made.keeps_at_least(known));
        lower.map(|(_, accuracy)| *accuracy).reduce(f64::max)
    }
}

impl Costs {
    /// The costs in the form that the policy takes.
    pub(crate) fn coding<'a>(&'a self, rungs: &'a Rungs) -> Coding<'a> {
        Coding {
            continues: self.continues,
            left_out: self.lost,
            alone: &self.sizes,
            every: &rungs.every,
            stretches: true,
            goes_on: &self.goes_on,
        }
    }

    /// Whether a frame at this place can refer to the frame before it.
    pub(crate) fn goes_on_at(&self, place: usize) -> bool {
        self.goes_on[place]
    }

    /// The byte budget of a frame at this place; `None`: no limit.
    pub(crate) fn bytes_max_at(&self, place: usize) -> Option<u32> {
        self.bytes_max[place].map(|bytes| bytes.min(f64::from(u32::MAX)) as u32)
    }

    /// The most bytes of an anchor in place of a frame at this place, if frames come every `interval` and may take `bound`: what the
    /// link carries in [`ANCHOR_INTERVALS`] intervals. 0: the frame does not refer to the frame before it, or no budget is known.
    pub(crate) fn anchor_bytes_max_at(&self, place: usize, interval: Duration, bound: Duration) -> u32 {
        let share = (ANCHOR_INTERVALS * interval.div_duration_f64(bound)).min(1.0);
        let most = self.bytes_max[place].filter(|_| self.goes_on[place] && self.lost == 0);
        most.map_or(0, |most| (most * share) as u32)
    }
}

/// Whether a frame of setting `next` may refer to one of setting `before`.
fn goes_on(before: &Setting, next: &Setting) -> bool {
    match (before.form, next.form) {
        (Form::H264(before), Form::H264(next)) => before.width == next.width,
        // Unchanged tiles keep the quality that they were sent with.
        (Form::Tiles(before), Form::Tiles(next)) => {
            (before.width, before.sampling) == (next.width, next.sampling) && next.quality <= before.quality
        }
        _ => false,
    }
}

/// The sizes of frames with a budget of `most` bytes.
fn within(sizes: ByteSizes, most: f64) -> ByteSizes {
    if sizes.p95 <= most {
        return sizes;
    }
    let usual = most * BUDGET_USE;
    let ByteSizes { mean, p05, p50, .. } = sizes;
    ByteSizes { mean: mean.min(usual), p05: p05.min(usual), p50: p50.min(usual), p95: most }
}

/// The setting with frames `times` as large, but no finer than [`QUANTISER_MIN`].
pub(crate) fn finer(setting: Setting, times: f64) -> Setting {
    let Form::H264(h264) = setting.form else { return setting };
    let steps = (times.max(1.0).ln() / QUANTISER_SLOPES.0) as u8;
    let quantiser = h264.quantiser.get().saturating_sub(steps).max(QUANTISER_MIN.min(h264.quantiser.get()));
    Setting { form: Form::H264(H264 { quantiser: Quantiser::clamped(quantiser), ..h264 }), ..setting }
}

/// The factor by which a frame would be larger at the requested quantiser, if its budget forced a coarser
/// one.
pub(crate) fn coarsened(asked: &Setting, made: &Setting, alone: bool) -> f64 {
    let (Form::H264(H264 { quantiser: asked, .. }), Form::H264(H264 { quantiser: made, .. })) =
        (asked.form, made.form)
    else {
        return 1.0;
    };
    let steps = f64::from(made.get().saturating_sub(asked.get()));
    (steps * if alone { QUANTISER_SLOPES.1 } else { QUANTISER_SLOPES.0 }).exp()
}

/// The default ladder with assumed sizes and accuracies. Its JPEG sizes are relative to each other, and its
/// H.264 sizes relative to JPEG. The policy learns the real sizes. The accuracies only order the rungs: more
/// bytes keep more.
fn assumed(basis: &Basis) -> Vec<RungProfile> {
    let Basis { pixels, encoding, original_bytes, .. } = *basis;
    let area = f64::from(pixels.0) * f64::from(pixels.1);
    // Published JPEGs mostly have quality 95. Raw frames would have about a tenth of their bytes as such a
    // JPEG.
    let jpeg_bytes = if encoding == Encoding::Jpeg { original_bytes } else { area * 0.3 };
    // Very wide and low frames allow no chained rung at all.
    let chained = |chains: Chains| {
        let takes =
            |setting: &Setting| setting.is_chained() && makeable(&setting.rung(), pixels, chains).is_some();
        default_ladder(pixels, chains).iter().any(takes).then_some(chains)
    };
    let tiles = Chains { video: false, ..basis.chains };
    let chains = chained(basis.chains).or_else(|| chained(tiles)).unwrap_or(Chains::NONE);
    let mut rungs: Vec<RungProfile> = Vec::new();
    // A data record has one form.
    let ladder = if encoding.is_picture() { default_ladder(pixels, chains) } else { vec![Setting::ORIGINAL] };
    for setting in ladder {
        // Chained rungs keep nearly all that the original does, at a tenth of its bytes or less. The gap
        // between the two would be so wide that trying the original would block the link for many frames.
        let too_far = chains != Chains::NONE && setting == Setting::ORIGINAL;
        if too_far
            || !may_be(basis.encoding, None, &setting)
            || makeable(&setting.rung(), pixels, chains).is_none()
        {
            continue;
        }
        let (width, height) = setting.size(pixels);
        // Smaller pictures need more bits per pixel.
        let share = (f64::from(width) * f64::from(height) / area.max(1.0)).powf(0.8);
        let time = |nanos: f64| Duration::from_nanos((area * nanos) as u64);
        // `still`: the bytes of a JPEG of similar accuracy.
        let (bytes, still, camera_time) = match setting.form {
            Form::Jpeg(jpeg) | Form::Tiles(jpeg) => {
                let still = jpeg_bytes * quality_share(jpeg.quality.get()) * share;
                let bytes = if setting.is_chained() { still / ALONE_FACTOR } else { still };
                (bytes, still, time(NANOS_PER_PIXEL))
            }
            Form::H264(h264) => {
                let still = jpeg_bytes * quantiser_share(h264.quantiser.get()) * share;
                (still / ALONE_FACTOR, still, time(CHAIN_NANOS_PER_PIXEL))
            }
            Form::Original | Form::Knobs(_) | Form::Data(_) => {
                (original_bytes, original_bytes, Duration::ZERO)
            }
        };
        if rungs.iter().any(|rung| rung.rung == setting.rung()) {
            continue;
        }
        let deviation = if setting.is_chained() { CHAIN_DEVIATION } else { JPEG_DEVIATION };
        rungs.push(RungProfile {
            rung: setting.rung(),
            bytes: ByteSizes::around(bytes.max(1.0), deviation),
            accuracy: still / (still + jpeg_bytes / 16.0),
            camera_time,
            detector_time: None,
        });
    }
    rungs
}

/// The bytes of a JPEG relative to one of quality 95, for natural pictures: half at 85, a third at 70, a
/// quarter at 50.
fn quality_share(quality: u8) -> f64 {
    let scale = |quality: f64| if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 };
    // libjpeg scales its quantisation tables by this factor. Bytes fall with about its power of -0.6.
    (scale(f64::from(quality.clamp(1, 99))) / scale(95.0)).powf(-0.6)
}

/// The bytes of an H.264 keyframe relative to a JPEG of quality 95: half at quantiser 24, a quarter at 29.
fn quantiser_share(quantiser: u8) -> f64 {
    0.5 * (-QUANTISER_SLOPES.1 * (f64::from(quantiser) - 24.0)).exp()
}

#[cfg(test)]
mod tests {
    use super::super::basis::Ratios;
    use super::*;

    /// A picture too wide for the codec gets video at the widths that it takes, and one too low none at all.
    #[test]
    fn video_has_the_sizes_that_the_codec_takes() {
        let widths_of = |pixels: (u32, u32), chains: Chains| -> Vec<u32> {
            let basis = Basis {
                profile: None,
                pixels,
                encoding: Encoding::Jpeg,
                original_bytes: 1e6,
                chains,
                knobs: false,
                skip_max: 0,
                ratios: Ratios::default(),
            };
            let rungs = Rungs::new(basis, None, None);
            assert!(!rungs.settings.is_empty());
            let video = rungs.settings.iter().filter(|setting| setting.is_chained());
            video.map(|setting| setting.size(pixels).0).collect()
        };
        let widths = |pixels| widths_of(pixels, Chains { tiles: false, ..Chains::ALL });
        assert!(widths((1280, 720)).contains(&1280));
        let wide = widths((4000, 3000));
        assert!(!wide.is_empty() && wide.iter().all(|width| *width < 3840), "{wide:?}");
        assert!(widths((4000, 12)).is_empty());
        assert!(widths((4000, 20)).is_empty(), "no width that the codec takes leaves it 16 rows");
        let tiles = widths_of((4000, 20), Chains::ALL);
        assert_eq!(tiles, widths_of((4000, 20), Chains::TILES));
        assert!(tiles.contains(&4000), "tiles take what video does not: {tiles:?}");
    }
}
