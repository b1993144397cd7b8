//! Why a stream of somebody else's encoder cannot be taken as it is.

use thiserror::Error;

/// A picture was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitstreamError {
    /// The bytes are not what the standard says. This picture is lost; the next key frame begins anew.
    #[error("the video stream is damaged: {detail}")]
    Damaged {
        /// What was found.
        detail: &'static str,
    },
    /// A picture is larger than the caller takes.
    #[error(
        "a picture of the video stream has more than {bytes_max} bytes; lower the source's bit rate, or raise the limit"
    )]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The stream is in order, but of a kind that is not passed on as it is. It will stay so.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// Why a stream that is in order is not passed on as it is. Each says what to set at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// A picture is shown before one that was coded before it.
    #[error(
        "the video stream has B-frames: pictures come in another order than they were captured in; set B-frames to 0 at the \
         source, or its profile to baseline"
    )]
    Reordered,
    /// Pictures of two fields, or macroblock rows of them.
    #[error("the video stream is interlaced; set the source to progressive pictures")]
    Interlaced,
    /// The parts of a picture are not in the order in which they are shown: slice groups, or slices in arbitrary order.
    #[error("the video stream scatters its slices (FMO or ASO); set the source's profile to main or high")]
    Scattered,
    /// Slices are split by the kind of their data.
    #[error("the video stream has data partitions; set the source's profile to baseline, main or high")]
    Partitioned,
    /// Samples that the decoders of Mez do not have.
    #[error(
        "the video stream has samples of {bits} bits and chroma format {chroma}; set the source to 8 bits and 4:2:0 (profile high or \
         below; main of H.265 and AV1)"
    )]
    Samples {
        /// Bits of a sample, the larger of luma and chroma.
        bits: u32,
        /// `chroma_format_idc`: 0 is grey, 1 is 4:2:0, 2 is 4:2:2, 3 is 4:4:4.
        chroma: u32,
    },
    /// Pictures larger than those that are decoded here.
    #[error(
        "the video stream has pictures of {width}x{height}, more than {pixels_max} pixels; set a smaller picture at the source"
    )]
    TooManyPixels {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit.
        pixels_max: u64,
    },
}

/// A shorthand.
pub(super) fn damaged(detail: &'static str) -> BitstreamError {
    BitstreamError::Damaged { detail }
}
