//! H.264 with a byte budget for every frame, and with references that survive losses. Built on openh264, and where the feature
//! `x264` is on and a camera asks for it, with x264 as the encoder ([`Library`]); one decoder takes what either makes.
//!
//! **The budget.** The quantiser is chosen by what earlier pictures took (`rate`); a picture that takes more than its budget is
//! thrown away and coded again, coarser. openh264 cannot undo a picture, but it can predict the next one from a long-term
//! reference, and it is made to keep the newest picture that arrived as one. So the second attempt is predicted from
//! the same picture as the first wherever acknowledgements come within a frame's time, and from an older one otherwise.
//!
//! **Headers of our own.** openh264's marks travel in pictures that may be thrown away or lost, and then encoder and decoder
//! disagree on what is kept, silently. Here each predicted picture gets a header under which what a decoder keeps depends on
//! the frames that it got and on nothing else (`slice`). The entropy-coded data stay as they are.
//!
//! **x264** can be told to forget its newest pictures, one or many, and then predicts from the newest that is left. So a second
//! attempt is always predicted from the same picture as the first, and a loss is recovered from with any of the last
//! pictures, sixteen or fewer large ones, that was acknowledged and still has its place at the receiver (`x264`).
//!
//! **After a loss** the next picture is predicted from one that arrived, at a fraction of the bytes of an independent one.
//! The decoder checks, for every picture, that what it holds at the place referred to is the frame that is meant.

mod bits;
mod coder;
mod decode;
mod encode;
mod native;
mod openh264;
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

use thiserror::Error;

pub use mez_core::setting::{H264_SIDE_MAX as SIDE_MAX, H264_SIDE_MIN as SIDE_MIN};

/// A picture could not be coded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum H264Error {
    /// The picture has a size that is not coded.
    #[error(
        "H.264 pictures have even sides of {SIDE_MIN} to {SIDE_MAX} pixels, at most 9,437,184 in all, not {width}x{height}; scale it"
    )]
    Size {
        /// Width of the picture, in pixels.
        width: u32,
        /// Height of the picture, in pixels.
        height: u32,
    },
    /// The codec reports an error.
    #[error("the H.264 codec failed in {call} with status {status}; start it anew with an independent frame")]
    Codec {
        /// The call that failed.
        call: &'static str,
        /// What it returned.
        status: i64,
    },
    /// The bytes are not a frame as this software makes them.
    #[error("the H.264 frame is damaged: {detail}")]
    Damaged {
        /// What was found.
        detail: &'static str,
    },
    /// The frame refers to one that is not held.
    #[error(
        "the H.264 frame is predicted from frame {refers}, and {} is held in its place; ask for an independent frame", held.map_or("nothing".into(), |held| format!("frame {held}"))
    )]
    NotHeld {
        /// The frame that it is predicted from.
        refers: u64,
        /// The frame that is held at that place.
        held: Option<u64>,
    },
    /// More pixels than allowed. Nothing was allocated.
    #[error(
        "the H.264 frame is {width}x{height}, which is more than the {pixels_max} pixels allowed; scale it down or raise the limit"
    )]
    TooManyPixels {
        /// Coded width, in pixels.
        width: u32,
        /// Coded height, in pixels.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
}
