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
    /// The published frame cannot be decoded.
    #[error("the published frame cannot be used: {0}")]
    Source(#[from] DecodeError),
    /// The rung `original` does not exist for a frame of raw pixels.
    #[error("raw pixels have no rung \"original\"; publish JPEG, or choose another rung")]
    NoOriginal,
    /// The rung is for data records.
    #[error("rungs with knobs of a stream are for data records; choose another rung for pictures")]
    OfData,
    /// The frame has no pixels.
    #[error("the published frame has no pixels")]
    Empty,
    /// The frame cannot be scaled.
    #[error(transparent)]
    Resize(#[from] ResizeError),
    /// The frame's buffer has the wrong size.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The JPEG encoder's error.
    #[error(transparent)]
    Jpeg(#[from] EncodeError),
    /// The PNG encoder's error.
    #[error(transparent)]
    Png(#[from] PngError),
    /// The H.264 encoder's error.
    #[error(transparent)]
    H264(#[from] H264Error),
}
