//! Describes what the available rungs depend on: the frame, the stream, the codecs, and what was learned of sizes and times.

use std::time::Duration;

use crate::frame::{Encoding, Rung};
use crate::setting::{Chains, DeclaredKnobs, Form, H264_SIDE_MIN, Setting, h264_takes};

/// The ladder is kept while measured encoding times differ from its own by less than this factor.
const TIME_TOLERANCE: f64 = 1.25;
/// The ladder is kept while measured sizes differ from its own by less than this factor.
const SIZE_TOLERANCE: f64 = 1.15;
/// The longest time between sent frames that a rung with frame skip may have. A
/// contract's state covers about a second; with one frame in it, no state could be told.
const SENT_INTERVAL_MAX: Duration = Duration::from_millis(500);
/// The time between frames may exceed the requested one by this factor, because it is measured and varies.
const INTERVAL_TOLERANCE: f64 = 1.05;

/// Learned ratios: measured values divided by those of the profile or of the default ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    /// Bytes of stills.
    pub(crate) still: f64,
    /// Bytes of data records that knobs have degraded.
    pub(crate) data: f64,
    /// Bytes of frames of video.
    pub(crate) video: ChainRatios,
    /// Bytes of frames of changed tiles.
    pub(crate) tiles: ChainRatios,
    /// The time to encode a frame.
    pub(crate) time: f64,
}

/// Learned ratios of a chained codec: measured bytes divided by those of the profile or of the default
/// ladder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChainRatios {
    /// The ratio of frames that refer to others.
    pub(crate) going_on: f64,
    /// The ratio of keyframes.
    pub(crate) alone: f64,
}

impl Default for Ratios {
    fn default() -> Self {
        let chain = ChainRatios { going_on: 1.0, alone: 1.0 };
        Self { still: 1.0, data: 1.0, video: chain, tiles: chain, time: 1.0 }
    }
}

impl Ratios {
    /// The ratios of the codec of a chained setting; `None` for a still.
    pub(super) fn of(&self, setting: &Setting) -> Option<ChainRatios> {
        match setting.form {
            Form::H264(_) => Some(self.video),
            Form::Tiles(_) => Some(self.tiles),
            _ => None,
        }
    }

    /// The learned ratio of a setting: of its keyframes (`alone`), or of its other frames.
    pub(crate) fn learned(&mut self, setting: &Setting, alone: bool) -> &mut f64 {
        let chain = match setting.form {
            Form::H264(_) => &mut self.video,
            Form::Tiles(_) => &mut self.tiles,
            Form::Data(_) => return &mut self.data,
            _ => return &mut self.still,
        };
        if alone { &mut chain.alone } else { &mut chain.going_on }
    }
}

/// What the available rungs depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Basis {
    pub(crate) profile: Option<[u8; 32]>,
    pub(crate) pixels: (u32, u32),
    pub(crate) encoding: Encoding,
    /// Bytes of the frame as it was published.
    pub(crate) original_bytes: f64,
    /// The chained codecs that may be used.
    pub(crate) chains: Chains,
    /// Whether knobs may be used on a data record.
    pub(crate) knobs: bool,
    /// The highest frame skip that a rung may have.
    pub(crate) skip_max: u8,
    pub(crate) ratios: Ratios,
}

impl Basis {
    /// Whether frames on this basis may have a setting, given that it can be made.
    pub(crate) fn allows(&self, knobs: Option<&DeclaredKnobs>, setting: &Setting) -> bool {
        (self.knobs || !setting.is_of_data()) && may_be(self.encoding, knobs, setting)
    }

    /// Whether rungs on this basis also serve another basis.
    pub(crate) fn will_do_for(&self, other: &Self) -> bool {
        let near = |ours: f64, theirs: f64, factor: f64| (1.0 / factor..=factor).contains(&(theirs / ours));
        let same = |basis: &Self| {
            (basis.profile, basis.pixels, basis.encoding, basis.chains, basis.knobs, basis.skip_max)
        };
        let (ours, theirs) = (&self.ratios, &other.ratios);
        same(self) == same(other)
            && near(self.original_bytes, other.original_bytes, SIZE_TOLERANCE)
            && near(ours.still, theirs.still, SIZE_TOLERANCE)
            && near(ours.data, theirs.data, SIZE_TOLERANCE)
            && [(ours.video, theirs.video), (ours.tiles, theirs.tiles)].iter().all(|(ours, theirs)| {
                near(ours.going_on, theirs.going_on, SIZE_TOLERANCE)
                    && near(ours.alone, theirs.alone, SIZE_TOLERANCE)
            })
            && near(ours.time, theirs.time, TIME_TOLERANCE)
    }
}

/// Whether frames of an encoding may have a setting. `original` is not a rung of a source's own video: whether its frames can go
/// unchanged depends on other frames ([`Own`](super::candidate::Own)). Data records have only the rungs of their stream's knobs.
pub(crate) fn may_be(encoding: Encoding, knobs: Option<&DeclaredKnobs>, setting: &Setting) -> bool {
    match setting.form {
        Form::Original if encoding.is_picture() => !encoding.is_chained(),
        Form::Original => setting.skip == 0 || knobs.is_some_and(|knobs| knobs.skips(setting.skip)),
        Form::Data(of) => {
            !encoding.is_picture() && knobs.is_some_and(|knobs| knobs.has(&of) && knobs.skips(setting.skip))
        }
        _ => encoding.is_picture(),
    }
}

/// Whether chained codecs accept frames of this size.
pub(crate) fn chains_take((width, height): (u32, u32)) -> bool {
    width >= H264_SIDE_MIN && height >= H264_SIDE_MIN
}

/// The highest frame skip that a rung may have, if a frame is published every `interval` and `min_fps` frames
/// a second are requested.
pub(crate) fn skip_max(interval: Duration, min_fps: f64) -> u8 {
    let asked = if min_fps > 0.0 { 1.0 / min_fps } else { f64::INFINITY };
    let apart = asked.min(SENT_INTERVAL_MAX.as_secs_f64()) * INTERVAL_TOLERANCE;
    ((apart / interval.as_secs_f64().max(1e-3)) as u8).saturating_sub(1)
}

/// The setting of a rung, if frames of this size can be encoded so: the codecs that it needs may be used, and
/// it skips no frames because of their content.
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

#[cfg(test)]
mod tests {
    use super::*;

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
