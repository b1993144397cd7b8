//! Encodes pixels as JPEG.

use std::fmt;

use bytes::Bytes;
use thiserror::Error;
use turbojpeg::{Compressor, Subsamp, YuvPlanesImage, compressed_buf_len};

use super::SIDE_MAX;
use crate::image::{ImageError, ImageView, PixelFormat, Yuv420View};

pub use mez_core::setting::Sampling;

/// Pixels could not be encoded as JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The quality is outside 1 to 100.
    #[error("JPEG quality {quality} does not exist: give 1 (smallest) to 100 (best)")]
    Quality {
        /// Quality as given.
        quality: u8,
    },
    /// A side is longer than a JPEG allows.
    #[error(
        "the image is {width}x{height} pixels, but a JPEG has at most {SIDE_MAX} along a side; scale it down"
    )]
    TooLarge {
        /// Width of the image, in pixels.
        width: u32,
        /// Height of the image, in pixels.
        height: u32,
    },
    /// The buffer does not hold an image of the given size.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// libjpeg-turbo refused, for example because memory ran out.
    #[error("libjpeg-turbo could not encode the image: {detail}")]
    Codec {
        /// The message of libjpeg-turbo.
        detail: String,
    },
}

/// Encodes images as JPEG, one after another, with the same settings. It reuses its working memory, and carries no other state from image to image.
pub struct Encoder {
    compressor: Compressor,
    quality: u8,
    sampling: Sampling,
    /// Memory for the largest output that the codec can need. Only pages that were written are resident.
    output: Vec<u8>,
    /// Luma padded to even sides, for odd planar images.
    padded_luma: Vec<u8>,
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("quality", &self.quality)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

impl Encoder {
    /// Makes an encoder with this quality, 1 (smallest) to 100 (best), and this chroma resolution.
    ///
    /// # Errors
    /// [`EncodeError::Quality`]; [`EncodeError::Codec`] if memory is short.
    pub fn new(quality: u8, sampling: Sampling) -> Result<Self, EncodeError> {
        let compressor = Compressor::new().map_err(codec_error)?;
        let mut encoder = Self { compressor, quality, sampling, output: Vec::new(), padded_luma: Vec::new() };
        encoder.set_quality(quality)?;
        Ok(encoder)
    }

    /// Quality of the next images, 1 to 100.
    #[must_use]
    pub fn quality(&self) -> u8 {
        self.quality
    }

    /// Sets the quality of the next images.
    ///
    /// # Errors
    /// [`EncodeError::Quality`] outside of 1 to 100; the quality then stays as it is.
    pub fn set_quality(&mut self, quality: u8) -> Result<(), EncodeError> {
        if !(1..=100).contains(&quality) {
            return Err(EncodeError::Quality { quality });
        }
        self.compressor.set_quality(quality.into()).map_err(codec_error)?;
        self.quality = quality;
        Ok(())
    }

    /// Chroma resolution of the next images.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// Sets the chroma resolution of the next images.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampling = sampling;
    }

    /// Encodes one image. Grey pixels become a grey JPEG with any sampling. Alpha is dropped.
    ///
    /// # Errors
    /// [`EncodeError::TooLarge`] if a side is above [`SIDE_MAX`] pixels, [`EncodeError::Codec`].
    pub fn encode(&mut self, image: &ImageView<'_>) -> Result<Bytes, EncodeError> {
        let subsamp = match (image.format(), self.sampling) {
            // The codec cannot make colour from grey pixels, and a grey JPEG has fewer bytes.
            (PixelFormat::Gray8, _) | (_, Sampling::Grey) => Subsamp::Gray,
            (_, Sampling::Yuv420) => Subsamp::Sub2x2,
            (_, Sampling::Yuv422) => Subsamp::Sub2x1,
            (_, Sampling::Yuv444) => Subsamp::None,
        };
        self.prepare(image.width(), image.height(), subsamp)?;
        let pixels = turbojpeg::Image {
            pixels: image.data(),
            width: image.width() as usize,
            pitch: image.row_stride_bytes(),
            height: image.height() as usize,
            format: native_format(image.format()),
        };
        let len = self.compressor.compress_to_slice(pixels, &mut self.output).map_err(codec_error)?;
        Ok(Bytes::copy_from_slice(&self.output[..len]))
    }

    /// Encodes one planar image as a 4:2:0 JPEG without converting its samples. With [`Sampling::Grey`], only
    /// its luma is encoded, as a grey JPEG. Other samplings have no effect: the image has no finer chroma.
    ///
    /// # Errors
    /// As [`Encoder::encode`].
    pub fn encode_yuv420(&mut self, image: &Yuv420View<'_>) -> Result<Bytes, EncodeError> {
        let (width, height) = (image.width(), image.height());
        if self.sampling == Sampling::Grey {
            return self.encode(&ImageView::packed(image.luma(), width, height, PixelFormat::Gray8)?);
        }
        self.prepare(width, height, Subsamp::Sub2x2)?;
        let (width, height) = (width as usize, height as usize);
        let (padded_width, padded_height) = (width.next_multiple_of(2), height.next_multiple_of(2));
        let luma = if (padded_width, padded_height) == (width, height) {
            image.luma()
        } else {
            // The codec reads luma in blocks of 2×2 samples.
            pad_luma(image.luma(), width, &mut self.padded_luma);
            &self.padded_luma
        };
        let planes = YuvPlanesImage {
            y_plane: luma,
            u_plane: image.chroma_blue(),
            v_plane: image.chroma_red(),
            width,
            height,
            y_stride: padded_width,
            u_stride: padded_width / 2,
            v_stride: padded_width / 2,
            subsamp: Subsamp::Sub2x2,
        };
        let len =
            self.compressor.compress_yuv_planes_to_slice(&planes, &mut self.output).map_err(codec_error)?;
        Ok(Bytes::copy_from_slice(&self.output[..len]))
    }

    fn prepare(&mut self, width: u32, height: u32, subsamp: Subsamp) -> Result<(), EncodeError> {
        if width > SIDE_MAX || height > SIDE_MAX {
            return Err(EncodeError::TooLarge { width, height });
        }
        self.compressor.set_subsamp(subsamp).map_err(codec_error)?;
        let needed = compressed_buf_len(width as usize, height as usize, subsamp).map_err(codec_error)?;
        if self.output.len() < needed {
            // Fresh zeroed memory comes untouched from the kernel. Growing the vector in place would copy and touch all of it.
            self.output = Vec::new();
            self.output = vec![0; needed];
        }
        Ok(())
    }
}

/// Repeats the last column and the last row where a side is odd, so that padding does not bleed into the picture.
fn pad_luma(luma: &[u8], width: usize, padded: &mut Vec<u8>) {
    padded.clear();
    let mut rows = 0;
    let mut last_row = 0;
    for row in luma.chunks_exact(width) {
        last_row = padded.len();
        padded.extend_from_slice(row);
        if width % 2 == 1 {
            padded.push(row[width - 1]);
        }
        rows += 1;
    }
    if rows % 2 == 1 {
        padded.extend_from_within(last_row..);
    }
}

pub(super) fn native_format(format: PixelFormat) -> turbojpeg::PixelFormat {
    match format {
        PixelFormat::Bgr8 => turbojpeg::PixelFormat::BGR,
        PixelFormat::Gray8 => turbojpeg::PixelFormat::GRAY,
        PixelFormat::Bgra8 => turbojpeg::PixelFormat::BGRA,
    }
}

fn codec_error(error: turbojpeg::Error) -> EncodeError {
    EncodeError::Codec { detail: error.to_string() }
}

/// Returns a quality for the next attempt to encode an image that took `bytes` at `quality`, so that it takes at most
/// `most` bytes. The result is at least `floor`, and `floor` for the last attempt. Sizes grow about with the power −2/3 of
/// the quantiser's step. The step's scale is 50/q below quality 50 and 2 − q/50 above (libjpeg's `jpeg_quality_scaling`).
pub(crate) fn lower_quality(quality: u8, floor: u8, bytes: usize, most: usize, last: bool) -> u8 {
    if last {
        return floor;
    }
    let (old, ratio) = (f64::from(quality), bytes as f64 / (0.92 * most.max(1) as f64));
    let step = if old < 50.0 { 50.0 / old } else { (2.0 - old / 50.0).max(0.02) };
    let step = step * ratio.powf(1.5);
    let wanted = if step >= 1.0 { 50.0 / step } else { 100.0 - 50.0 * step };
    (wanted as u8).min(quality - 1).max(floor)
}
