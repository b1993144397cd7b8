//! Encodes and decodes H.264, with a byte budget for every frame and references that survive losses.
//!
//! The encoder is openh264. Builds with the feature `x264` also have x264, for cameras that ask for it ([`Library`]). One decoder takes the
//! output of both.
//!
//! **Budget.** The quantiser follows from the sizes of earlier pictures (`rate`). A picture that exceeds its budget is
//! thrown away and coded again with a coarser quantiser. openh264 cannot undo a picture, but it can predict the next one
//! from a long-term reference. Mez makes it keep the newest acknowledged picture as one. If acknowledgements arrive within
//! one frame interval, the second attempt is predicted from the same picture as the first; otherwise from an older one.
//!
//! **Headers.** openh264 marks in each picture which pictures the decoder keeps. If a marked picture is thrown away or lost, encoder and
//! decoder silently disagree. Mez therefore writes its own slice header for each predicted picture (`slice`). With it, what a decoder keeps
//! depends only on the frames that it received. The entropy-coded data stay as they are.
//!
//! **x264** can be told to forget its newest pictures. It then predicts from the newest that is left. So a second
//! attempt is always predicted from the same picture as the first. After a loss, the next picture can be predicted
//! from any of the last 5 to 16 pictures that was acknowledged and still has a slot at the receiver (`x264`).
//!
//! **After a loss**, the next picture is predicted from one that arrived. It has a fraction of the bytes of an
//! independent picture. For every picture, the decoder checks that the slot referred to holds the intended frame.
//!
//! **Anchors.** If there is room, every 25th picture is predicted from a picture that is kept for this purpose.
//! A decoder can then decode one picture of a chain without most of those before it (`anchors`; openh264 only).
//!
//! **Other decoders**, such as those of the platform, are used beside openh264 if the caller gives them ([`OutsideDecoders`], `pair`).
//!
//! **Streams of sources** have no slots ([`crate::bitstream`]). The same decoder decodes their frames in order.

mod anchors;
mod at_once;
pub(crate) mod bits;
mod coder;
mod decode;
mod encode;
mod foreign;
mod native;
mod openh264;
mod pair;
mod rate;
mod receiver;
mod slice;
#[cfg(test)]
mod tests;
#[cfg(feature = "x264")]
mod x264;

pub use coder::{H264Frame, Wanted};
pub use decode::H264Decoder;
pub use encode::{H264Encoder, Library, LibraryError};
pub use foreign::{ForeignEncoder, ForeignOptions};
pub use pair::{OutsideDecoder, OutsideDecoders};

use thiserror::Error;

pub use mez_core::setting::{H264_SIDE_MAX as SIDE_MAX, H264_SIDE_MIN as SIDE_MIN};

/// Why a picture could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum H264Error {
    /// The picture's size is out of range.
    #[error(
        "H.264 pictures have even sides of {SIDE_MIN} to {SIDE_MAX} pixels, at most 9,437,184 in all, not {width}x{height}; scale the picture"
    )]
    Size {
        /// Width of the picture, in pixels.
        width: u32,
        /// Height of the picture, in pixels.
        height: u32,
    },
    /// The codec reports an error.
    #[error("the H.264 codec failed in {call} with status {status}; restart it with an independent frame")]
    Codec {
        /// The call that failed.
        call: &'static str,
        /// The status that it returned.
        status: i64,
    },
    /// The bytes are not a frame that this decoder supports.
    #[error("the H.264 frame is damaged: {detail}")]
    Damaged {
        /// The defect.
        detail: &'static str,
    },
    /// The frame refers to a frame that the decoder does not hold.
    #[error(
        "the H.264 frame is predicted from frame {refers}, but in its place the decoder holds {}; ask for an independent frame", held.map_or("nothing".into(), |held| format!("frame {held}"))
    )]
    NotHeld {
        /// The frame that this one is predicted from.
        refers: u64,
        /// The frame in the slot that it names.
        held: Option<u64>,
    },
    /// The frame has more pixels than allowed. Nothing was allocated.
    #[error(
        "the H.264 frame is {width}x{height}, which is more than the {pixels_max} pixels allowed; scale it down or raise the limit"
    )]
    TooManyPixels {
        /// Coded width, in pixels.
        width: u32,
        /// Coded height, in pixels.
        height: u32,
        /// The limit, in pixels.
        pixels_max: u64,
    },
}
