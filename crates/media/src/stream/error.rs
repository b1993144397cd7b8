//! Errors of encoding a frame.

use thiserror::Error;

use crate::h264::H264Error;
use crate::image::ImageError;
use crate::jpeg::{DecodeError, EncodeError};
use crate::png::PngError;
use crate::resize::ResizeError;

/// Why a frame could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamEncodeError {
    /// The frame cannot be decoded.
    #[error("the published frame cannot be used: {0}")]
    Source(#[from] DecodeError),
    /// The rung does not exist for this frame.
    #[error("raw pixels have no rung \"original\"; publish JPEG, or choose another rung")]
    NoOriginal,
    /// The rung is one of data records.
    #[error("rungs with knobs of a stream are for data records; choose another rung for pictures")]
    OfData,
    /// It has no pixels.
    #[error("the published frame has no pixels")]
    Empty,
    /// It cannot be scaled.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// Its buffer does not hold it.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// JPEG.
    #[error(transparent)]
    Jpeg(#[from] EncodeError),
    /// PNG.
    #[error(transparent)]
    Png(#[from] PngError),
    /// H.264.
    #[error(transparent)]
    H264(#[from] H264Error),
}
