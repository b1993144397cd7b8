//! Why the stream of another encoder is not taken unchanged.

use thiserror::Error;

/// Why a picture was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BitstreamError {
    /// The bytes violate the standard. This picture is lost; decoding can begin again at the next key frame.
    #[error("the video stream is damaged: {detail}")]
    Damaged {
        /// The defect.
        detail: &'static str,
    },
    /// A picture exceeds the caller's limit.
    #[error(
        "a picture of the video stream has more than {bytes_max} bytes; lower the source's bit rate, or raise the limit"
    )]
    TooLarge {
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The stream is valid, but of a kind that is not passed on unchanged. This will not change.
    #[error(transparent)]
    Unfit(#[from] Unfit),
}

/// Why a valid stream is not passed on unchanged. Each message says what to set at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// A picture is shown before one that was coded before it.
    #[error(
        "the video stream has B-frames: pictures come in another order than they were captured in; set B-frames to 0 at the \
         source, or its profile to baseline"
    )]
    Reordered,
    /// Interlaced: pictures or macroblock rows consist of two fields.
    #[error("the video stream is interlaced; set the source to progressive pictures")]
    Interlaced,
    /// The slices of a picture are not in the order in which they are shown: slice groups, or arbitrary slice order.
    #[error(
        "the video stream has slices in arbitrary order (FMO or ASO); set the source's profile to main or high"
    )]
    Scattered,
    /// Slices are split by the kind of their data (data partitioning).
    #[error("the video stream has data partitions; set the source's profile to baseline, main or high")]
    Partitioned,
    /// The decoders of Mez do not support these samples.
    #[error(
        "the video stream has samples of {bits} bits and chroma format {chroma}; set the source to 8 bits and 4:2:0 (profile high or \
         below; main of H.265 and AV1)"
    )]
    Samples {
        /// Bits per sample, the larger value of luma and chroma.
        bits: u32,
        /// `chroma_format_idc`: 0 is grey, 1 is 4:2:0, 2 is 4:2:2, 3 is 4:4:4.
        chroma: u32,
    },
    /// The pictures exceed the limit of pixels.
    #[error(
        "the video stream has pictures of {width}x{height}, more than {pixels_max} pixels; set a smaller picture at the source"
    )]
    TooManyPixels {
        /// Pixels in a row.
        width: u32,
        /// Number of rows.
        height: u32,
        /// The limit, in pixels.
        pixels_max: u64,
    },
}

/// Makes a [`BitstreamError::Damaged`].
pub(super) fn damaged(detail: &'static str) -> BitstreamError {
    BitstreamError::Damaged { detail }
}
