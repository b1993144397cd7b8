//! Turns chained frames into stills.

use std::sync::Arc;

use bytes::Bytes;
use mez_core::frame::{ChainLink, Encoding, Sequence};
use mez_core::setting::Sampling;
use thiserror::Error;

use super::decode::{StreamDecodeError, StreamDecoder};
use super::picture::Picture;
use super::show::raw;
use crate::h264::OutsideDecoders;
use crate::image::{Image, ImageError, PixelFormat};
use crate::jpeg::{EncodeError, Encoder, PIXELS_MAX_DEFAULT};
use crate::platform::PlatformDecoders;
use crate::png;

/// The JPEG quality of stills made of chained frames. Detectors do not notice the additional loss (`docs/decisions/0043-video-stays-video.md`).
pub const TRANSCODED_QUALITY: u8 = 95;

/// Why a still was not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TranscodeError {
    /// The frame cannot be decoded.
    #[error(transparent)]
    Decode(#[from] StreamDecodeError),
    /// The picture cannot be encoded as JPEG.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The picture has no pixels.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl TranscodeError {
    /// Whether the only problem is that the frame needs others that are not held.
    #[must_use]
    pub fn is_not_held(&self) -> bool {
        use StreamDecodeError::{NotHeld, TooLate};
        matches!(self, Self::Decode(NotHeld { .. } | TooLate { .. }))
    }
}

/// A frame that decodes by itself: a JPEG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Still {
    /// The JPEG.
    pub payload: Bytes,
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// Decodes the chains of one stream, and makes JPEGs of requested frames.
#[derive(Debug)]
pub struct Transcoder {
    decoder: StreamDecoder,
    jpeg: Encoder,
}

impl Transcoder {
    /// A transcoder of frames of at most `pixels_max` pixels. It holds no frame.
    ///
    /// # Errors
    /// [`TranscodeError::Encode`] if memory is short.
    pub fn new(pixels_max: u64) -> Result<Self, TranscodeError> {
        let jpeg = Encoder::new(TRANSCODED_QUALITY, Sampling::Yuv420)?;
        Ok(Self { decoder: StreamDecoder::new(pixels_max), jpeg })
    }

    /// Adds decoders of H.264 that are used beside the library.
    #[must_use]
    pub fn with_outside(mut self, outside: Arc<dyn OutsideDecoders>) -> Self {
        self.decoder = self.decoder.with_outside(outside);
        self
    }

    /// Adds decoders of H.265 and AV1.
    #[must_use]
    pub fn with_platform(mut self, decoders: Arc<dyn PlatformDecoders>) -> Self {
        self.decoder = self.decoder.with_platform(decoders);
        self
    }

    /// Decodes a frame of a chain, and makes a JPEG of quality [`TRANSCODED_QUALITY`] if `wanted`. A video frame keeps
    /// its 4:2:0 samples. A tile frame gets chroma at full resolution, because its tiles may have any chroma resolution.
    ///
    /// # Errors
    /// [`TranscodeError`]; see [`StreamDecoder::decode`].
    pub fn transcode(
        &mut self,
        encoding: Encoding,
        (sequence, link): (Sequence, &ChainLink),
        payload: &[u8],
        wanted: bool,
    ) -> Result<Option<Still>, TranscodeError> {
        let picture = self.decoder.advance(encoding, sequence, link, payload)?;
        if !wanted {
            return Ok(None);
        }
        still(&mut self.jpeg, &picture).map(Some)
    }

    /// Decodes a frame only because later frames need it. [`Transcoder::show`] cannot show it afterwards.
    ///
    /// # Errors
    /// [`TranscodeError::Decode`].
    pub fn pass(
        &mut self,
        encoding: Encoding,
        (sequence, link): (Sequence, &ChainLink),
        payload: &[u8],
    ) -> Result<(), TranscodeError> {
        Ok(self.decoder.pass(encoding, sequence, link, payload)?)
    }

    /// Makes a JPEG of the frame that was decoded last, which must be `sequence`.
    ///
    /// # Errors
    /// [`StreamDecodeError::NotHeld`] if another frame was decoded last; those of [`Transcoder::transcode`].
    pub fn show(&mut self, sequence: Sequence) -> Result<Still, TranscodeError> {
        let not_held = StreamDecodeError::NotHeld { sequence, chain: sequence };
        still(&mut self.jpeg, &self.decoder.advanced(sequence).ok_or(not_held)?)
    }

    /// The picture of the frame that was decoded last, which must be `sequence`, in the codec's format.
    ///
    /// # Errors
    /// [`StreamDecodeError::NotHeld`] if another frame was decoded last.
    pub fn picture(&self, sequence: Sequence) -> Result<Picture<'_>, TranscodeError> {
        let not_held = StreamDecodeError::NotHeld { sequence, chain: sequence };
        Ok(self.decoder.advanced(sequence).ok_or(not_held)?)
    }

    /// Forgets all frames, and keeps the memory of the codecs for the next chain.
    pub fn restart(&mut self) {
        self.decoder.restart();
    }
}

fn still(jpeg: &mut Encoder, picture: &Picture<'_>) -> Result<Still, TranscodeError> {
    match picture {
        Picture::Planes(planes) => {
            jpeg.set_sampling(Sampling::Yuv420);
            let payload = jpeg.encode_yuv420(&planes.view()?)?;
            Ok(Still { payload, width: planes.width(), height: planes.height() })
        }
        Picture::Image(image) => {
            jpeg.set_sampling(sampling_of(image));
            let (width, height) = (image.width(), image.height());
            let view = image.view().ok_or(ImageError::ZeroSized { width, height })?;
            let payload = jpeg.encode(&view)?;
            Ok(Still { payload, width, height })
        }
    }
}

/// Makes a JPEG of quality [`TRANSCODED_QUALITY`] from a still in another encoding, for clients that decode only JPEG.
///
/// # Errors
/// [`TranscodeError`], also for encodings whose frames need others; use [`Transcoder`] for them.
pub fn jpeg_of(encoding: Encoding, payload: &Bytes, size: (u32, u32)) -> Result<Bytes, TranscodeError> {
    let (width, height) = size;
    let mut jpeg = Encoder::new(TRANSCODED_QUALITY, Sampling::Yuv420)?;
    let image;
    let view = match encoding {
        Encoding::Jpeg => return Ok(payload.clone()),
        Encoding::Png => {
            image = decoded(payload)?;
            image.view().ok_or(ImageError::ZeroSized { width, height })?
        }
        Encoding::Bgr8 => raw(payload, size, PixelFormat::Bgr8)?,
        Encoding::Gray8 => raw(payload, size, PixelFormat::Gray8)?,
        Encoding::H264 | Encoding::H265 | Encoding::Av1 | Encoding::Tiles => {
            return Err(StreamDecodeError::NotStill { encoding }.into());
        }
        Encoding::Data => return Err(StreamDecodeError::NotPicture.into()),
    };
    if (view.width(), view.height()) != size {
        return Err(StreamDecodeError::Size { is: (view.width(), view.height()), stated: size }.into());
    }
    Ok(jpeg.encode(&view)?)
}

fn decoded(png: &[u8]) -> Result<Image, StreamDecodeError> {
    let mut image = Image::empty();
    png::decode(png, PIXELS_MAX_DEFAULT, &mut image)?;
    Ok(image)
}

fn sampling_of(image: &Image) -> Sampling {
    if image.format() == PixelFormat::Gray8 { Sampling::Grey } else { Sampling::Yuv444 }
}
