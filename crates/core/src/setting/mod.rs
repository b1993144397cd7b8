//! Parses a rung's name into the settings of all knobs: what exactly is done to a frame before it is sent.
//!
//! [`Setting`] is the parsed form of a [`Rung`]'s name. Every setting has exactly one
//! name. The parser refuses any other spelling, so equal names mean equal pixels.
//!
//! ```text
//! original                                     the frame as it was published
//! jpeg[/wW]/qQ/S                               JPEG
//! tiles[/wW]/qQ/S                              JPEG of the tiles that changed
//! h264[/wW]/qQ                                 H.264
//! knobs[/sS][/C][/blurB][/A][/diffD]/(png|qQ)  the five knobs of the Mez paper
//! data/NAME=VALUE[/NAME=VALUE…]                data records, by the knobs that their publisher declares
//! …/skipN                                      any of these, and N frames left out after each
//! ```
//!
//! `wW`: width in pixels, omitted for the width of the source. `qQ`: JPEG quality 1 to 100, or H.264
//! quantiser 10 to 51. `S` in `jpeg` and `tiles`: `gray`, `420`, `422` or `444`. `sS`: `s68`, `s50`, `s33`,
//! `s25`. `C`: `gray`, `hsv`, `lab`, `luv`. `B`: 5, 8, 10, 15. `A`: `moving` or `contours`. `D`: percent, 0
//! to 100. A knob that does nothing is omitted.

mod data;
mod ladder;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

pub use data::{
    COMBINATIONS_MAX, DataKnobs, DeclareError, DeclaredKnobs, KNOB_NAME_BYTES_MAX, KNOBS_MAX, KnobValue,
    VALUES_MAX,
};
pub use ladder::{Chains, default_ladder};
pub use parse::SettingError;

use crate::frame::Rung;

/// Defines an integer type with bounds.
macro_rules! bounded {
    ($(#[$doc:meta])* $name:ident: $number:ty, $low:literal to $high:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($number);

        #[allow(unused_comparisons, reason = "a lowest value of 0 is compared like any other")]
        impl $name {
            /// The lowest value.
            pub const MIN: Self = Self($low);
            /// The highest value.
            pub const MAX: Self = Self($high);

            /// The value; `None` if it is out of bounds.
            pub const fn new(value: $number) -> Option<Self> {
                if value < $low || value > $high { None } else { Some(Self(value)) }
            }

            /// The value, or the nearest bound.
            pub const fn clamped(value: $number) -> Self {
                if value < $low {
                    Self::MIN
                } else if value > $high {
                    Self::MAX
                } else {
                    Self(value)
                }
            }

            /// The number.
            pub const fn get(self) -> $number {
                self.0
            }
        }
    };
}

bounded! {
    /// Width in pixels of the frame that is sent, 16 to 16384. The height follows from the aspect ratio of
    /// the source. A frame is never enlarged.
    Width: u32, 16 to 16_384
}
bounded! {
    /// JPEG quality, 1 (smallest) to 100 (best), with the table scaling of libjpeg.
    Quality: u8, 1 to 100
}
bounded! {
    /// H.264 quantiser, 10 (best) to 51 (smallest). Adding 6 doubles the quantiser step (ITU-T H.264).
    Quantiser: u8, 10 to 51
}
bounded! {
    /// Percent of a whole.
    Percent: u8, 0 to 100
}

/// Colour subsampling of a JPEG: the resolution of its colour relative to that of its brightness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sampling {
    /// No colour at all.
    Grey,
    /// Half the resolution both ways: the default of nearly every camera and encoder, and the cheapest with colour.
    #[default]
    Yuv420,
    /// Half the resolution across.
    Yuv422,
    /// Full resolution.
    Yuv444,
}

impl Sampling {
    /// All samplings.
    pub const ALL: [Self; 4] = [Self::Grey, Self::Yuv420, Self::Yuv422, Self::Yuv444];

    /// The sampling as a part of a rung's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grey => "gray",
            Self::Yuv420 => "420",
            Self::Yuv422 => "422",
            Self::Yuv444 => "444",
        }
    }
}

/// One setting of all knobs: the parsed form of a [`Rung`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// What is done to the pixels, and how they are coded.
    pub form: Form,
    /// How many published frames are skipped after each one that is sent: AWStream's frame skip. 0: none.
    pub skip: u8,
}

/// What is done to the pixels of a frame, and how they are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Nothing: the bytes that were published.
    Original,
    /// A still JPEG.
    Jpeg(Jpeg),
    /// JPEG of the tiles that changed since the frame that the receiver holds (`docs/tiles.md`); a chain.
    Tiles(Jpeg),
    /// H.264; a chain.
    H264(H264),
    /// The five knobs of the Mez paper (George et al., 2020, section 2.3.1).
    Knobs(Knobs),
    /// A data record, reduced by the knobs of its stream.
    Data(DataKnobs),
}

/// How an image is scaled and coded as JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Jpeg {
    /// Width in pixels; `None`: the width of the source.
    pub width: Option<Width>,
    /// JPEG quality.
    pub quality: Quality,
    /// Resolution of the colour.
    pub sampling: Sampling,
}

/// The longest side, in pixels, of an H.264 picture that the codec accepts.
pub const H264_SIDE_MAX: u32 = 3840;
/// The shortest side, in pixels, of an H.264 picture that the codec accepts: one macroblock.
pub const H264_SIDE_MIN: u32 = 16;
/// The most pixels of an H.264 picture: 36,864 macroblocks of 16×16 pixels, the limit of level 5.2 (ITU-T
/// H.264, table A-1).
pub const H264_PIXELS_MAX: u64 = 36_864 * 256;

/// Whether the codec accepts a picture of this size as H.264, once its sides are even.
pub fn h264_takes((width, height): (u32, u32)) -> bool {
    let sides = [width, height].iter().all(|side| (H264_SIDE_MIN..=H264_SIDE_MAX).contains(side));
    sides && u64::from(width) * u64::from(height) <= H264_PIXELS_MAX
}

/// How an image is scaled and coded as H.264.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct H264 {
    /// Width in pixels; `None`: the width of the source.
    pub width: Option<Width>,
    /// The finest quantiser. A byte budget may force a coarser one, which the frame then states.
    pub quantiser: Quantiser,
}

/// The five knobs of the Mez paper, in the order in which they are applied, and the coding of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knobs {
    /// Knob 1.
    pub scale: Scale,
    /// Knob 2.
    pub colour: ColourSpace,
    /// Knob 3; `None`: no blur.
    pub blur: Option<BoxBlur>,
    /// Knob 4.
    pub artefacts: Artefacts,
    /// Knob 5: a frame that differs by less than this from the last frame sent is skipped. `None`: no
    /// frame is skipped. 0 %: only frames that are identical pixel by pixel. The paper uses 0 to 72 %.
    pub difference: Option<Percent>,
    /// How the result is coded.
    pub coding: StillCoding,
}

/// Knob 1, resolution. Both sides are cut down to a multiple of 16, as in the sizes of the paper for a source
/// of 1920×1080: 1312×736, 960×528, 640×352 and 480×256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Scale {
    /// Unchanged.
    #[default]
    Full,
    /// 41/60 of either side.
    S68,
    /// A half.
    S50,
    /// A third.
    S33,
    /// A quarter.
    S25,
}

impl Scale {
    /// All settings.
    pub const ALL: [Self; 5] = [Self::Full, Self::S68, Self::S50, Self::S33, Self::S25];

    /// The size after scaling of an image of `source` pixels. A side that would be shorter than 16 is not
    /// rounded.
    pub fn size(self, source: (u32, u32)) -> (u32, u32) {
        let (numerator, denominator) = match self {
            Self::Full => return source,
            Self::S68 => (41, 60),
            Self::S50 => (1, 2),
            Self::S33 => (1, 3),
            Self::S25 => (1, 4),
        };
        let scaled = |side: u32| {
            let exact = (u64::from(side) * numerator / denominator) as u32;
            if exact >= 16 { exact / 16 * 16 } else { exact.max(1) }
        };
        (scaled(source.0), scaled(source.1))
    }

    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Full => None,
            Self::S68 => Some("s68"),
            Self::S50 => Some("s50"),
            Self::S33 => Some("s33"),
            Self::S25 => Some("s25"),
        }
    }
}

/// Knob 2, colour space. As in the paper, the application gets the image in this
/// colour space: one grey channel, or three channels of 8 bits in OpenCV's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ColourSpace {
    /// Blue, green, red: unchanged.
    #[default]
    Bgr,
    /// Brightness only.
    Gray,
    /// Hue (0 to 179), saturation, value.
    Hsv,
    /// CIE L*a*b*, each in 0 to 255.
    Lab,
    /// CIE L*u*v*, each in 0 to 255.
    Luv,
}

impl ColourSpace {
    /// All settings.
    pub const ALL: [Self; 5] = [Self::Bgr, Self::Gray, Self::Hsv, Self::Lab, Self::Luv];

    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Bgr => None,
            Self::Gray => Some("gray"),
            Self::Hsv => Some("hsv"),
            Self::Lab => Some("lab"),
            Self::Luv => Some("luv"),
        }
    }
}

/// Knob 3, the side of a normalised box filter, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoxBlur {
    /// 5×5.
    B5,
    /// 8×8.
    B8,
    /// 10×10.
    B10,
    /// 15×15.
    B15,
}

impl BoxBlur {
    /// All settings.
    pub const ALL: [Self; 4] = [Self::B5, Self::B8, Self::B10, Self::B15];

    /// The side, in pixels.
    pub const fn side(self) -> u32 {
        match self {
            Self::B5 => 5,
            Self::B8 => 8,
            Self::B10 => 10,
            Self::B15 => 15,
        }
    }
}

/// Knob 4, artefact removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Artefacts {
    /// Unchanged.
    #[default]
    Keep,
    /// Background subtraction: everything that does not move becomes black.
    Moving,
    /// Only the outlines of moving objects remain, white on black.
    Contours,
}

impl Artefacts {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Moving, Self::Contours];

    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Keep => None,
            Self::Moving => Some("moving"),
            Self::Contours => Some("contours"),
        }
    }
}

/// How the result of the five knobs is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StillCoding {
    /// Lossless.
    Png,
    /// JPEG with colour at half the resolution both ways.
    Jpeg(Quality),
}

impl Setting {
    /// Every frame, unchanged.
    pub const ORIGINAL: Self = Self { form: Form::Original, skip: 0 };

    /// A setting without frame skip.
    pub const fn every(form: Form) -> Self {
        Self { form, skip: 0 }
    }

    /// One in this many published frames is sent.
    pub const fn one_in(&self) -> u32 {
        self.skip as u32 + 1
    }

    /// Whether frames of this setting keep at least as much as frames of `other`: the settings
    /// are equal, or differ only in a finer quantiser or a higher quality of this one.
    pub fn keeps_at_least(&self, other: &Self) -> bool {
        let alike = match (self.form, other.form) {
            (Form::H264(own), Form::H264(other)) => {
                own.width == other.width && own.quantiser <= other.quantiser
            }
            (Form::Jpeg(own), Form::Jpeg(other)) | (Form::Tiles(own), Form::Tiles(other)) => {
                (own.width, own.sampling) == (other.width, other.sampling) && own.quality >= other.quality
            }
            (own, other) => own == other,
        };
        alike && self.skip == other.skip
    }

    /// The setting's canonical name.
    pub fn rung(&self) -> Rung {
        Rung::new(&self.to_string()).expect("the longest name of a setting has 64 bytes of printable ASCII")
    }

    /// The size in pixels of the frame that is sent for a source of `source` pixels. H.264 has even sides.
    pub fn size(&self, source: (u32, u32)) -> (u32, u32) {
        match self.form {
            Form::Original | Form::Data(_) => source,
            Form::Jpeg(jpeg) | Form::Tiles(jpeg) => scaled_to(jpeg.width, source),
            Form::H264(h264) => {
                let (width, height) = scaled_to(h264.width, source);
                ((width & !1).max(2), (height & !1).max(2))
            }
            Form::Knobs(knobs) => knobs.scale.size(source),
        }
    }

    /// Whether this setting is for data records.
    pub const fn is_of_data(&self) -> bool {
        matches!(self.form, Form::Data(_))
    }

    /// Whether frames of this setting need earlier frames to be decoded.
    pub const fn is_chained(&self) -> bool {
        matches!(self.form, Form::Tiles(_) | Form::H264(_))
    }

    /// Whether each frame can be encoded independently of all others: neither its pixels nor the decision to send it depend on other frames.
    pub const fn stands_alone(&self) -> bool {
        let alone = match self.form {
            Form::Original | Form::Jpeg(_) | Form::Data(_) => true,
            Form::Tiles(_) | Form::H264(_) => false,
            Form::Knobs(knobs) => matches!(knobs.artefacts, Artefacts::Keep) && knobs.difference.is_none(),
        };
        alone && self.skip == 0
    }
}

/// The size of `source` scaled to `width` in the same aspect ratio, never enlarged.
fn scaled_to(width: Option<Width>, source: (u32, u32)) -> (u32, u32) {
    match width {
        Some(Width(width)) if width < source.0 => {
            let exact = u64::from(source.1) * u64::from(width);
            let half = u64::from(source.0 / 2);
            (width, (((exact + half) / u64::from(source.0)) as u32).max(1))
        }
        _ => source,
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Original => f.write_str(Rung::ORIGINAL)?,
            Form::Jpeg(jpeg) => write!(f, "jpeg{jpeg}")?,
            Form::Tiles(jpeg) => write!(f, "tiles{jpeg}")?,
            Form::H264(H264 { width, quantiser }) => {
                f.write_str("h264")?;
                write_width(f, width)?;
                write!(f, "/q{}", quantiser.get())?;
            }
            Form::Knobs(knobs) => write!(f, "knobs{knobs}")?,
            Form::Data(knobs) => write!(f, "{}/{}", data::FAMILY, knobs.as_str())?,
        }
        if self.skip > 0 { write!(f, "/skip{}", self.skip) } else { Ok(()) }
    }
}

impl fmt::Display for Jpeg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_width(f, self.width)?;
        write!(f, "/q{}/{}", self.quality.get(), self.sampling.name())
    }
}

impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in [self.scale.name(), self.colour.name()].into_iter().flatten() {
            write!(f, "/{name}")?;
        }
        if let Some(blur) = self.blur {
            write!(f, "/blur{}", blur.side())?;
        }
        if let Some(name) = self.artefacts.name() {
            write!(f, "/{name}")?;
        }
        if let Some(difference) = self.difference {
            write!(f, "/diff{}", difference.get())?;
        }
        match self.coding {
            StillCoding::Png => f.write_str("/png"),
            StillCoding::Jpeg(quality) => write!(f, "/q{}", quality.get()),
        }
    }
}

fn write_width(f: &mut fmt::Formatter<'_>, width: Option<Width>) -> fmt::Result {
    match width {
        Some(width) => write!(f, "/w{}", width.get()),
        None => Ok(()),
    }
}
