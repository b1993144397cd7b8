//! Decodes JPEG to pixels.

use turbojpeg::{Decompressor, ScalingFactor, Subsamp, YuvImage};

use super::encode::native_format;
use super::error::DecodeError;
use super::scan::{Chroma, JpegInfo, Process, check};
use crate::image::{Image, ImageViewMut, PixelFormat};
use crate::yuv::Yuv420;

/// Default limit of an image's pixels: 2²⁶ (67 megapixels, 201 MB as BGR).
pub const PIXELS_MAX_DEFAULT: u64 = 1 << 26;

/// Maximum number of scans in a progressive JPEG. Encoders make about ten. With
/// thousands of scans, a file of a few kilobytes would keep a decoder busy for minutes.
const SCANS_MAX: u32 = 100;

/// Maximum number of extra bytes before a marker in an otherwise whole image. Many USB cameras
/// pad the coded data by a few bytes. More bytes mean that the decoder lost its place.
const BYTES_LEFT_OVER_MAX: u32 = 16;

/// Decodes JPEG images. A limit on pixels bounds the memory that a received image can take.
///
/// It refuses images that are cut off or damaged, instead of the grey that decoders fill in. No state is carried
/// from one image to the next. An image without coding tables (Motion JPEG may omit them) gets the standard tables.
#[derive(Debug, Clone)]
pub struct Decoder {
    pixels_max: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(PIXELS_MAX_DEFAULT)
    }
}

impl Decoder {
    /// Makes a decoder that refuses an image of more than `pixels_max` pixels before it allocates memory.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        Self { pixels_max }
    }

    /// Decodes to BGR, 8 bits per channel, into `image`, and reuses the memory of `image`. After an error, `image` may hold part of the picture.
    ///
    /// # Errors
    /// [`DecodeError`], except [`DecodeError::BufferSize`].
    pub fn decode_bgr(&mut self, jpeg: &[u8], image: &mut Image) -> Result<JpegInfo, DecodeError> {
        self.decode(jpeg, PixelFormat::Bgr8, image)
    }

    /// Like [`Decoder::decode_bgr`], for any format. If a colour image is decoded to grey, the grey values are the file's luma, unconverted.
    ///
    /// # Errors
    /// [`DecodeError`], except [`DecodeError::BufferSize`].
    pub fn decode(
        &mut self,
        jpeg: &[u8],
        format: PixelFormat,
        image: &mut Image,
    ) -> Result<JpegInfo, DecodeError> {
        let info = self.admit(jpeg)?;
        decompress(jpeg, ScalingFactor::ONE, &mut image.reset(info.width, info.height, format))?;
        Ok(info)
    }

    /// Like [`Decoder::decode`], but scaled to a half, a quarter or an eighth, if at least `smallest` pixels (width,
    /// height) remain. Fewer values are computed, which takes a fraction of the time. Sides are rounded up. Returns
    /// the number of columns and rows that the picture fills; it may fill the last column and row only in part.
    ///
    /// # Errors
    /// [`DecodeError`], except [`DecodeError::BufferSize`].
    pub fn decode_scaled(
        &mut self,
        jpeg: &[u8],
        format: PixelFormat,
        smallest: (u32, u32),
        image: &mut Image,
    ) -> Result<(f64, f64), DecodeError> {
        let info = self.admit(jpeg)?;
        let Scale { factor, size: (width, height), filled } = scale(&info, smallest);
        decompress(jpeg, factor, &mut image.reset(width, height, format))?;
        Ok(filled)
    }

    /// Decodes the samples of a 4:2:0 or grey JPEG, scaled as by [`Decoder::decode_scaled`], without conversion to pixels, for a
    /// video encoder. Returns `None`, and decodes nothing, if the file's chroma has another resolution or a scaled side is odd.
    ///
    /// # Errors
    /// [`DecodeError`], except [`DecodeError::BufferSize`].
    pub fn decode_yuv420_scaled(
        &mut self,
        jpeg: &[u8],
        smallest: (u32, u32),
        planes: &mut Yuv420,
    ) -> Result<Option<(f64, f64)>, DecodeError> {
        let info = self.admit(jpeg)?;
        let Scale { factor, size: (width, height), filled } = scale(&info, smallest);
        let subsamp = match info.chroma {
            Chroma::Yuv420 => Subsamp::Sub2x2,
            Chroma::Grey => Subsamp::Gray,
            _ => return Ok(None),
        };
        if width % 2 == 1 || height % 2 == 1 {
            return Ok(None);
        }
        let [luma, blue, red] = planes.reset(width, height);
        let luma_bytes = luma.len();
        if subsamp == Subsamp::Gray {
            blue.fill(128);
            red.fill(128);
        }
        let pixels = match subsamp {
            Subsamp::Gray => &mut planes.data_mut()[..luma_bytes],
            _ => planes.data_mut(),
        };
        let output = YuvImage { pixels, width: width as usize, align: 1, height: height as usize, subsamp };
        let mut decompressor = decompressor(factor)?;
        judge(decompressor.decompress_to_yuv(jpeg, output))?;
        Ok(Some(filled))
    }

    /// Decodes into a buffer of the caller, in the buffer's format. The buffer's size must be that of the JPEG ([`super::probe`] returns it).
    ///
    /// # Errors
    /// [`DecodeError`]. After an error, the buffer may hold part of the picture.
    pub fn decode_into(
        &mut self,
        jpeg: &[u8],
        buffer: &mut ImageViewMut<'_>,
    ) -> Result<JpegInfo, DecodeError> {
        let info = self.admit(jpeg)?;
        let (buffer_width, buffer_height) = (buffer.width(), buffer.height());
        let JpegInfo { width, height, .. } = info;
        if (buffer_width, buffer_height) != (width, height) {
            return Err(DecodeError::BufferSize { width, height, buffer_width, buffer_height });
        }
        decompress(jpeg, ScalingFactor::ONE, buffer)?;
        Ok(info)
    }

    /// Checks an image without decoding it.
    fn admit(&self, jpeg: &[u8]) -> Result<JpegInfo, DecodeError> {
        // The size is checked first: if the image is too large and also cut off, the error names the size.
        let info = super::probe(jpeg)?;
        if info.pixels() > self.pixels_max {
            return Err(DecodeError::TooManyPixels {
                width: info.width,
                height: info.height,
                pixels_max: self.pixels_max,
            });
        }
        if info.chroma == Chroma::FourComponents {
            return Err(DecodeError::Unsupported {
                what: "of four colour components (CMYK), made for print",
            });
        }
        if info.process == Process::Lossless {
            return Err(DecodeError::Unsupported { what: "lossless or hierarchical" });
        }
        if info.bits_per_sample != 8 {
            return Err(DecodeError::Unsupported { what: "of more than 8 bits per sample" });
        }
        check(jpeg)
    }
}

/// A scale at which an image is decoded.
struct Scale {
    factor: ScalingFactor,
    /// Width and height of the decoded image.
    size: (u32, u32),
    /// Columns and rows of the decoded image that the picture fills.
    filled: (f64, f64),
}

/// The smallest scale that leaves at least `smallest` pixels. Only scales for which libjpeg-turbo
/// has vector code are used: at other scales, decoding takes longer than at full size.
fn scale(info: &JpegInfo, smallest: (u32, u32)) -> Scale {
    let of = |denominator: u32| Scale {
        factor: ScalingFactor::new(1, denominator as usize),
        size: (info.width.div_ceil(denominator), info.height.div_ceil(denominator)),
        filled: (
            f64::from(info.width) / f64::from(denominator),
            f64::from(info.height) / f64::from(denominator),
        ),
    };
    let enough = |scale: &Scale| scale.size.0 >= smallest.0 && scale.size.1 >= smallest.1;
    [8, 4, 2].map(of).into_iter().find(enough).unwrap_or_else(|| of(1))
}

/// Makes a decompressor for one image. libjpeg keeps the coding tables for later images without tables, so with
/// a reused decompressor, a frame's pixels would depend on the frame before. Making one takes microseconds.
fn decompressor(factor: ScalingFactor) -> Result<Decompressor, DecodeError> {
    let codec = |error: turbojpeg::Error| DecodeError::Codec { detail: error.to_string() };
    let mut decompressor = Decompressor::new().map_err(codec)?;
    decompressor.set_scan_limit(SCANS_MAX).map_err(codec)?;
    decompressor.set_scaling_factor(factor).map_err(codec)?;
    Ok(decompressor)
}

fn decompress(jpeg: &[u8], factor: ScalingFactor, buffer: &mut ImageViewMut<'_>) -> Result<(), DecodeError> {
    let output = turbojpeg::Image {
        width: buffer.width() as usize,
        pitch: buffer.row_stride_bytes(),
        height: buffer.height() as usize,
        format: native_format(buffer.format()),
        pixels: buffer.data_mut(),
    };
    judge(decompressor(factor)?.decompress(jpeg, output))
}

fn judge(result: turbojpeg::Result<()>) -> Result<(), DecodeError> {
    match result {
        Ok(()) => Ok(()),
        Err(turbojpeg::Error::TurboJpegError(detail)) if is_harmless(&detail) => Ok(()),
        Err(turbojpeg::Error::TurboJpegError(detail)) => Err(DecodeError::Corrupt { detail }),
        Err(other) => Err(DecodeError::Corrupt { detail: other.to_string() }),
    }
}

/// True for the only warning after which libjpeg-turbo has still decoded the whole image.
fn is_harmless(detail: &str) -> bool {
    detail
        .strip_prefix("Corrupt JPEG data: ")
        .and_then(|rest| rest.split_once(" extraneous bytes before marker"))
        .and_then(|(count, _)| count.parse::<u32>().ok())
        .is_some_and(|count| count <= BYTES_LEFT_OVER_MAX)
}
