//! Lists the rungs that a camera chooses from while no profile is known.

use super::{Form, H264, Jpeg, Quality, Quantiser, Sampling, Setting, Width};

/// The chained codecs that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chains {
    /// H.264.
    pub video: bool,
    /// Changed tiles.
    pub tiles: bool,
}

impl Chains {
    /// Both codecs.
    pub const ALL: Self = Self { video: true, tiles: true };
    /// Changed tiles only.
    pub const TILES: Self = Self { video: false, tiles: true };
    /// None: every frame is a still.
    pub const NONE: Self = Self { video: false, tiles: false };
}

/// The H.264 rungs, best first: width as a fraction of the source (numerator, denominator), and quantiser.
const H264_RUNGS: [(u32, u32, u8); 7] =
    [(1, 1, 24), (1, 1, 28), (1, 1, 32), (2, 3, 30), (2, 3, 34), (1, 2, 34), (1, 3, 36)];

/// The rungs of JPEG and of changed tiles, best first: width as a fraction of the source (numerator,
/// denominator), and quality.
const JPEG_RUNGS: [(u32, u32, u8); 6] =
    [(1, 1, 85), (1, 1, 70), (2, 3, 70), (1, 2, 70), (1, 3, 60), (1, 4, 50)];

/// The rungs for frames of `source` pixels, from the best to the smallest, for an application without a profile:
/// H.264 if it may be used, otherwise changed tiles, otherwise plain JPEG. With a fixed camera, changed tiles have
/// a fraction of the bytes of whole JPEGs; if the camera moves, hardly more. Plain JPEG needs no earlier frame.
///
/// The accuracy of these rungs is unknown, so the contract is `unverified`.
pub fn default_ladder(source: (u32, u32), chains: Chains) -> Vec<Setting> {
    let width = |numerator: u32, denominator: u32| {
        let share = (u64::from(source.0) * u64::from(numerator) / u64::from(denominator)) as u32;
        (numerator != denominator).then(|| Width::clamped(share / 2 * 2))
    };
    let mut ladder = vec![Setting::ORIGINAL];
    if chains.video {
        ladder.extend(H264_RUNGS.map(|(numerator, denominator, quantiser)| {
            let quantiser = Quantiser::clamped(quantiser);
            Setting::every(Form::H264(H264 { width: width(numerator, denominator), quantiser }))
        }));
    } else {
        ladder.extend(JPEG_RUNGS.map(|(numerator, denominator, quality)| {
            let (quality, sampling) = (Quality::clamped(quality), Sampling::Yuv420);
            let jpeg = Jpeg { width: width(numerator, denominator), quality, sampling };
            Setting::every(if chains.tiles { Form::Tiles(jpeg) } else { Form::Jpeg(jpeg) })
        }));
    }
    ladder
}
