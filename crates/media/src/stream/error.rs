//! Why a frame could not be encoded.

use thiserror::Error;

use crate::h264::H264Error;
use crate::image::ImageError;
use crate::jpeg::{DecodeError, EncodeError};
use crate::png::PngError;
use crate::resize::ResizeError;

/// A frame could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StreamEncodeError {
    /// The frame cannot be decoded.
    #[error("the published frame cannot be used: {0}")]
    Source(#[from] DecodeError),
    /// The rung does not exist for this frame.
    #[error(
        "a frame of these pixels is not published under the rung original; publish JPEG, or take another rung"
    )]
    NoOriginal,
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
