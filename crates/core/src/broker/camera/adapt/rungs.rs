//! Decides which rungs there are for a frame, and says how large its frames get at each: those of a profile, or the default ladder with what can be
//! said of it before any frame was made.

use std::time::Duration;

use crate::controller::{Coding, bytes_needed};
use crate::frame::{Encoding, Rung};
use crate::profile::{ByteSizes, Ladder, Profile, RungProfile};
use crate::setting::{Chains, Form, H264, H264_SIDE_MIN, Quantiser, Setting, default_ladder, h264_takes};

/// What making a JPEG takes for each pixel of the source, before it was measured: about 10 ms at 1080p.
const NANOS_PER_PIXEL: f64 = 5.0;
/// What making a frame of a chain takes for each pixel of the source, before it was measured.
const CHAIN_NANOS_PER_PIXEL: f64 = 8.0;
/// Measurements that differ from what the ladder says by less than this factor leave it as it is.
const TIME_TOLERANCE: f64 = 1.25;
/// Sizes that differ from what the ladder says by less than this factor leave it as it is.
const SIZE_TOLERANCE: f64 = 1.15;
/// Relative deviation of the sizes of JPEGs of one rung around what is expected of them.
const JPEG_DEVIATION: f64 = 0.08;
/// Relative deviation of the sizes of frames that refer to others. It is larger: what moves decides.
const CHAIN_DEVIATION: f64 = 0.35;
/// A frame of a chain that stands alone has so many times the bytes of one that does not, before it was measured.
const ALONE_FACTOR: f64 = 10.0;
/// A frame that stands alone may be cut down to this share of its bytes. It looks coarse, and the next frames make up for it; from less,
/// they would take too long.
const ALONE_CUT_MAX: f64 = 0.25;
/// The part of the least budget of a frame of a chain that does not depend on its size: with less, no quantiser would do.
const BUDGET_BYTES_MIN: f64 = 1_000.0;
/// The part of the least budget of a frame of a chain that comes with each of its pixels.
const BUDGET_BYTES_PER_PIXEL: f64 = 0.004;
/// The share of its budget that a frame has where the budget binds.
const BUDGET_USE: f64 = 0.8;
/// A rung that leaves frames out is passed over where the frames that it sends are further apart than this: a contract's state is about a
/// second, and of one frame in it nothing can be said.
const SENT_INTERVAL_MAX: Duration = Duration::from_millis(500);
/// Times between frames may be above what is asked by this factor, since they are measured.
const INTERVAL_TOLERANCE: f64 = 1.05;
/// No frame is made larger by a finer quantiser than this.
const QUANTISER_MIN: u8 = 18;
/// The logarithm of the bytes of frames of a chain falls by so much with every step of the quantiser: of those that refer to others, and of
/// those that stand alone.
const QUANTISER_SLOPES: (f64, f64) = (0.2, 0.125);

/// What was measured ÷ what the profile says, or the default ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    /// Bytes of stills.
    pub(crate) still: f64,
    /// Bytes of frames of video.
    pub(crate) video: ChainRatios,
    /// Bytes of frames of changed tiles.
    pub(crate) tiles: ChainRatios,
    /// What making a frame takes.
    pub(crate) time: f64,
}

/// Measured bytes of frames of a chain ÷ what the profile says, or the default ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChainRatios {
    /// Of frames that refer to others.
    pub(crate) going_on: f64,
    /// Of frames that stand alone.
    pub(crate) alone: f64,
}

impl Default for Ratios {
    fn default() -> Self {
        let chain = ChainRatios { going_on: 1.0, alone: 1.0 };
        Self { still: 1.0, video: chain, tiles: chain, time: 1.0 }
    }
}

impl Ratios {
    /// Those of the chains of a setting; `None` for a still.
    fn of(&self, setting: &Setting) -> Option<ChainRatios> {
        match setting.form {
            Form::H264(_) => Some(self.video),
            Form::Tiles(_) => Some(self.tiles),
            _ => None,
        }
    }

    /// What is learned about a setting: the ratio of frames that stand alone, or of those that do not.
    pub(crate) fn learned(&mut self, setting: &Setting, alone: bool) -> &mut f64 {
        let chain = match setting.form {
            Form::H264(_) => &mut self.video,
            Form::Tiles(_) => &mut self.tiles,
            _ => return &mut self.still,
        };
        if alone { &mut chain.alone } else { &mut chain.going_on }
    }
}

/// What the next frame of a chain may go on after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before<'a> {
    /// What was asked for the last frame.
    pub(crate) setting: &'a Setting,
    /// Frames that were lost since the one that it would refer to.
    pub(crate) lost: u32,
}

/// What the rungs to choose from depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis {
    pub(crate) profile: Option<[u8; 32]>,
    pub(crate) pixels: (u32, u32),
    pub(crate) encoding: Encoding,
    /// Of a frame as it was published.
    pub(crate) original_bytes: f64,
    /// How frames may refer to others.
    pub(crate) chains: Chains,
    /// The most frames that a rung may leave out after each.
    pub(crate) skip_max: u8,
    pub(crate) ratios: Ratios,
}

impl Basis {
    /// Whether rungs on this basis will do for another.
    pub(crate) fn will_do_for(&self, other: &Self) -> bool {
        let near = |ours: f64, theirs: f64, factor: f64| (1.0 / factor..=factor).contains(&(theirs / ours));
        let same = |basis: &Self| (basis.profile, basis.pixels, basis.encoding, basis.chains, basis.skip_max);
        let (ours, theirs) = (&self.ratios, &other.ratios);
        same(self) == same(other)
            && near(self.original_bytes, other.original_bytes, SIZE_TOLERANCE)
            && near(ours.still, theirs.still, SIZE_TOLERANCE)
            && [(ours.video, theirs.video), (ours.tiles, theirs.tiles)].iter().all(|(ours, theirs)| {
                near(ours.going_on, theirs.going_on, SIZE_TOLERANCE)
                    && near(ours.alone, theirs.alone, SIZE_TOLERANCE)
            })
            && near(ours.time, theirs.time, TIME_TOLERANCE)
    }
}

/// Whether codecs of chains take frames of this size.
pub(crate) fn chains_take((width, height): (u32, u32)) -> bool {
    width >= H264_SIDE_MIN && height >= H264_SIDE_MIN
}

/// The most frames that a rung may leave out after each, where a frame is published in every interval and so many a second are asked for.
pub(crate) fn skip_max(interval: Duration, min_fps: f64) -> u8 {
    let asked = if min_fps > 0.0 { 1.0 / min_fps } else { f64::INFINITY };
    let apart = asked.min(SENT_INTERVAL_MAX.as_secs_f64()) * INTERVAL_TOLERANCE;
    ((apart / interval.as_secs_f64().max(1e-3)) as u8).saturating_sub(1)
}

/// The setting of a rung that can be made of frames of so many pixels: it leaves none out for what is in it, and refers to others only where
/// it may.
pub(crate) fn makeable(rung: &Rung, pixels: (u32, u32), chains: Chains) -> Option<Setting> {
    let setting: Setting = rung.as_str().parse().ok()?;
    let leaves_out = matches!(setting.form, Form::Knobs(knobs) if knobs.difference.is_some());
    let size = setting.size(pixels);
    let takes = match setting.form {
        Form::H264(_) => chains.video && h264_takes(size),
        Form::Tiles(_) => chains.tiles && chains_take(size),
        _ => true,
    };
    (takes && !leaves_out).then_some(setting)
}

/// The rungs to choose from.
#[derive(Debug)]
pub(crate) struct Rungs {
    pub(crate) basis: Basis,
    pub(crate) ladder: Ladder,
    /// Of each place of the ladder.
    pub(crate) settings: Vec<Setting>,
    /// Of each place of the ladder: what a frame has that stands alone.
    alone: Vec<ByteSizes>,
    /// Of each place of the ladder: of so many frames one is sent.
    every: Vec<u32>,
    /// What rungs of the profile leave out that could be made otherwise, ascending.
    skips: Vec<u8>,
    /// The accuracies of all rungs, also of those that others beat: a budget may make of a frame what one of them says.
    known: Vec<(Setting, f64)>,
}

/// What the rungs cost with the frame that waits, and within which bytes.
pub(crate) struct Costs {
    /// The place of the rung that the chain goes on at.
    continues: Option<usize>,
    /// Frames that were lost since the one that it would refer to.
    lost: u32,
    /// By place in the ladder: whether a frame can go on there.
    goes_on: Vec<bool>,
    /// By place in the ladder: what a frame has at any other rung than that.
    sizes: Vec<ByteSizes>,
    /// By place in the ladder: the most bytes that a frame may have.
    bytes_max: Vec<Option<f64>>,
}

impl Rungs {
    pub(crate) fn new(basis: Basis, profile: Option<&Profile>) -> Self {
        let mut skips = Vec::new();
        let mut rungs: Vec<RungProfile> = match profile {
            Some(profile) => {
                let makes = |rung: &&RungProfile| {
                    let setting = makeable(&rung.rung, basis.pixels, basis.chains);
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
                // It goes as it is: nothing is to be assumed of it.
                rung.bytes = ByteSizes::around(basis.original_bytes, JPEG_DEVIATION);
                rung.camera_time = Duration::ZERO;
            } else {
                let ratio = basis.ratios.of(&setting).map_or(basis.ratios.still, |ratios| ratios.going_on);
                rung.bytes = rung.bytes.times(ratio);
                rung.camera_time = rung.camera_time.mul_f64(basis.ratios.time);
            }
        }
        let known = rungs.iter().map(|rung| (setting_of(&rung.rung), rung.accuracy)).collect();
        let ladder =
            Profile::new(rungs).expect("rungs of a profile that was checked, or assumed ones").ladder();
        let settings: Vec<Setting> = ladder.rungs().iter().map(|rung| setting_of(&rung.rung)).collect();
        let alone = ladder.rungs().iter().zip(&settings).map(|(rung, setting)| {
            let factor = basis.ratios.of(setting).map(|ratios| ALONE_FACTOR * ratios.alone / ratios.going_on);
            factor.map_or(rung.bytes, |factor| ByteSizes::around(rung.bytes.mean * factor, JPEG_DEVIATION))
        });
        let (alone, every) = (alone.collect(), settings.iter().map(Setting::one_in).collect());
        let mut rungs = Self { basis, ladder, settings, alone, every, skips, known };
        // All three were made of the ladder's rungs, one by one. A place in the ladder is a place in each of them.
        debug_assert!(
            [rungs.settings.len(), rungs.alone.len(), rungs.every.len()] == [rungs.ladder.len(); 3],
            "{rungs:?}"
        );
        rungs.basis.skip_max = rungs.skip_within(basis.skip_max);
        rungs
    }

    /// What the rungs leave out at most where they may leave out so many frames: another bound that comes to the same changes nothing.
    pub(crate) fn skip_within(&self, skip_max: u8) -> u8 {
        self.skips.iter().rfind(|skip| **skip <= skip_max).copied().unwrap_or(0)
    }

    /// The place in the ladder from which on every rung has that accuracy, by `own` where it is another profile than the ladder's. The lowest where
    /// nobody knows accuracies; `None` where not even the best rung has it.
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

    /// What frames of chains take to be made, as far as is known.
    pub(crate) fn chain_time(&self) -> Duration {
        let chained =
            self.ladder.rungs().iter().zip(&self.settings).filter(|(_, setting)| setting.is_chained());
        chained.map(|(rung, _)| rung.camera_time).max().unwrap_or_default()
    }

    /// Whether rungs refer to frames before, or leave frames out.
    pub(crate) fn need_coding(&self) -> bool {
        self.settings.iter().any(|setting| setting.is_chained() || setting.skip > 0)
    }

    /// What each rung costs with a frame that may go on after `before`, where so many bytes are there in time.
    pub(crate) fn costs(&self, before: Option<Before<'_>>, in_time: Option<f64>, lift: f64) -> Costs {
        let lost = before.map_or(0, |before| before.lost);
        let before = before.map(|before| before.setting);
        let continues = before.and_then(|before| self.settings.iter().position(|setting| setting == before));
        let mut costs =
            Costs { continues, lost, goes_on: Vec::new(), sizes: Vec::new(), bytes_max: Vec::new() };
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
            let bytes_max = in_time.map(|bytes| bytes.max(least));
            costs.sizes.push(bytes_max.map_or(sizes, |most| within(sizes, most)));
            costs.bytes_max.push(bytes_max);
        }
        costs
    }

    /// Bytes of a frame that goes on at a place of the ladder, and of one that stands alone.
    pub(crate) fn bytes_at(&self, place: usize) -> (f64, f64) {
        (self.ladder.rungs()[place].bytes.mean, self.alone[place].mean)
    }

    /// See [`crate::controller::Offer::bytes_needed`].
    pub(crate) fn bytes_needed(&self, place: usize, interval: Duration, bound: Duration) -> f64 {
        bytes_needed(self.ladder.rungs()[place].bytes.mean, self.every[place], interval, bound)
    }

    /// The accuracy that is known of what was made: that of the rung, or at least that of the next lower one that differs in
    /// nothing else.
    pub(crate) fn accuracy_of(&self, made: &Setting) -> Option<f64> {
        let lower = self.known.iter().filter(|(known, _)| made.keeps_at_least(known));
        lower.map(|(_, accuracy)| *accuracy).reduce(f64::max)
    }
}

impl Costs {
    /// For the policy.
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

    /// Whether a frame can go on there after the one before.
    pub(crate) fn goes_on_at(&self, place: usize) -> bool {
        self.goes_on[place]
    }

    /// The most bytes that a frame may have there; `None`: any.
    pub(crate) fn bytes_max_at(&self, place: usize) -> Option<u32> {
        self.bytes_max[place].map(|bytes| bytes.min(f64::from(u32::MAX)) as u32)
    }
}

/// Whether a frame of setting `next` may refer to one of setting `before`.
fn goes_on(before: &Setting, next: &Setting) -> bool {
    match (before.form, next.form) {
        (Form::H264(before), Form::H264(next)) => before.width == next.width,
        // Tiles that do not change keep the quality of their time.
        (Form::Tiles(before), Form::Tiles(next)) => {
            (before.width, before.sampling) == (next.width, next.sampling) && next.quality <= before.quality
        }
        _ => false,
    }
}

/// Sizes of frames that are kept within `most` bytes.
fn within(sizes: ByteSizes, most: f64) -> ByteSizes {
    if sizes.p95 <= most {
        return sizes;
    }
    let usual = most * BUDGET_USE;
    let ByteSizes { mean, p05, p50, .. } = sizes;
    ByteSizes { mean: mean.min(usual), p05: p05.min(usual), p50: p50.min(usual), p95: most }
}

/// The setting whose frames that go on are so many times as large; no finer than what serves anybody.
pub(crate) fn finer(setting: Setting, times: f64) -> Setting {
    let Form::H264(h264) = setting.form else { return setting };
    let steps = (times.max(1.0).ln() / QUANTISER_SLOPES.0) as u8;
    let quantiser = h264.quantiser.get().saturating_sub(steps).max(QUANTISER_MIN.min(h264.quantiser.get()));
    Setting { form: Form::H264(H264 { quantiser: Quantiser::clamped(quantiser), ..h264 }), ..setting }
}

/// How many times as many bytes a frame would have at the quantiser that was asked for, where the budget forced a coarser one.
pub(crate) fn coarsened(asked: &Setting, made: &Setting, alone: bool) -> f64 {
    let (Form::H264(H264 { quantiser: asked, .. }), Form::H264(H264 { quantiser: made, .. })) =
        (asked.form, made.form)
    else {
        return 1.0;
    };
    let steps = f64::from(made.get().saturating_sub(asked.get()));
    (steps * if alone { QUANTISER_SLOPES.1 } else { QUANTISER_SLOPES.0 }).exp()
}

/// The default ladder with what can be said of it before any frame was made: the sizes of JPEGs against each other, of H.264 against
/// them, and that more bytes keep more. The policy learns how the sizes really are; the accuracies only order the rungs.
fn assumed(basis: &Basis) -> Vec<RungProfile> {
    let Basis { pixels, encoding, original_bytes, .. } = *basis;
    let area = f64::from(pixels.0) * f64::from(pixels.1);
    // Published JPEGs are mostly of quality 95; pixels would have about a tenth of their bytes as such a JPEG.
    let jpeg_bytes = if encoding == Encoding::Jpeg { original_bytes } else { area * 0.3 };
    // Of frames that are very wide and low, none at all.
    let chained = |chains: Chains| {
        let takes =
            |setting: &Setting| setting.is_chained() && makeable(&setting.rung(), pixels, chains).is_some();
        default_ladder(pixels, chains).iter().any(takes).then_some(chains)
    };
    let tiles = Chains { video: false, ..basis.chains };
    let chains = chained(basis.chains).or_else(|| chained(tiles)).unwrap_or(Chains::NONE);
    let mut rungs: Vec<RungProfile> = Vec::new();
    for setting in default_ladder(pixels, chains) {
        // Chains keep nearly all that the original does, at a tenth of its bytes or less. Between the two the ladder would have a gap so wide that a try
        // of the original holds up the link for many frames.
        let too_far = chains != Chains::NONE && setting == Setting::ORIGINAL;
        if too_far || makeable(&setting.rung(), pixels, chains).is_none() {
            continue;
        }
        let (width, height) = setting.size(pixels);
        // Smaller pictures have more bits for each of their pixels.
        let share = (f64::from(width) * f64::from(height) / area.max(1.0)).powf(0.8);
        let time = |nanos: f64| Duration::from_nanos((area * nanos) as u64);
        // `still`: the bytes of a JPEG that keeps about as much.
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
            Form::Original | Form::Knobs(_) => (original_bytes, original_bytes, Duration::ZERO),
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

/// The bytes of a JPEG of a quality against one of quality 95, for natural pictures: half at 85, a third at 70, a quarter at 50.
fn quality_share(quality: u8) -> f64 {
    let scale = |quality: f64| if quality < 50.0 { 50.0 / quality } else { 2.0 - quality / 50.0 };
    // libjpeg scales its tables by this; bytes fall with about its power of -0.6.
    (scale(f64::from(quality.clamp(1, 99))) / scale(95.0)).powf(-0.6)
}

/// The bytes of a picture of H.264 that stands alone against a JPEG of quality 95: half at 24, a quarter at 29.
fn quantiser_share(quantiser: u8) -> f64 {
    0.5 * (-QUANTISER_SLOPES.1 * (f64::from(quantiser) - 24.0)).exp()
}

#[cfg(test)]
mod tests {
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
                skip_max: 0,
                ratios: Ratios::default(),
            };
            let rungs = Rungs::new(basis, None);
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

    #[test]
    fn frames_are_left_out_as_far_as_the_rate_allows_that_is_asked() {
        let at = |fps: f64, min_fps: f64| skip_max(Duration::from_secs_f64(1.0 / fps), min_fps);
        assert_eq!([at(15.0, 5.0), at(14.9, 5.0), at(15.0, 4.0), at(15.0, 0.0)], [2, 2, 2, 6]);
        assert_eq!(
            [at(30.0, 0.0), at(2.0, 0.0), at(1.0, 0.0), at(15.0, 15.0), at(15.0, 100.0)],
            [14, 0, 0, 0, 0]
        );
        assert_eq!(skip_max(Duration::ZERO, 0.0), 254);
    }
}
