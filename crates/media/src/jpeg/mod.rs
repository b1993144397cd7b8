//! Encodes and decodes JPEG, reads headers, finds damage, and cuts a byte stream into frames.
//!
//! Pixels go through libjpeg-turbo ([`Encoder`], [`Decoder`]). [`probe`], [`check`] and [`Splitter`] need
//! only the structure of the file; they read the markers themselves, without native code and without a copy.

mod decode;
mod encode;
mod error;
mod scan;
mod split;

pub use decode::{Decoder, PIXELS_MAX_DEFAULT};
pub(crate) use encode::lower_quality;
pub use encode::{EncodeError, Encoder, Sampling};
pub use error::DecodeError;
pub use scan::{Chroma, JpegInfo, Process, check, probe};
pub use split::{FRAME_BYTES_MAX_DEFAULT, JpegFrame, Splitter, SplitterCounts};

/// The most pixels that libjpeg-turbo writes or reads along one side (`JPEG_MAX_DIMENSION`).
pub const SIDE_MAX: u32 = 65_500;
