//! Encodes and decodes PNG, for lossless rungs of the five knobs.

use std::io::Cursor;

use bytes::Bytes;
use thiserror::Error;

use crate::image::{Image, ImageView, PixelFormat};

/// Why an image could not be encoded as PNG, or a PNG not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PngError {
    /// The header claims more pixels than the caller allows. Nothing was allocated for them.
    #[error(
        "the PNG is {width}x{height}, which is more than the {pixels_max} pixels allowed; scale it down or raise the limit"
    )]
    TooManyPixels {
        /// Width that the header claims, in pixels.
        width: u32,
        /// Height that the header claims, in pixels.
        height: u32,
        /// The caller's limit, in pixels.
        pixels_max: u64,
    },
    /// The bytes are not a PNG, or a PNG that is cut off or damaged.
    #[error("the PNG is damaged: {detail}")]
    Corrupt {
        /// The defect.
        detail: String,
    },
    /// The encoder refused the image.
    #[error("cannot write a PNG: {detail}")]
    Encode {
        /// The encoder's message.
        detail: String,
    },
}

/// Encodes an image, losslessly. Alpha is dropped. Three channels are written as blue, green and red, whatever their colour space.
///
/// # Errors
/// [`PngError::Encode`].
pub fn encode(image: &ImageView<'_>) -> Result<Bytes, PngError> {
    let refused = |error: png::EncodingError| PngError::Encode { detail: error.to_string() };
    let channels = image.format().bytes_per_pixel();
    let mut output = Vec::new();
    let mut encoder = png::Encoder::new(&mut output, image.width(), image.height());
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(if channels == 1 { png::ColorType::Grayscale } else { png::ColorType::Rgb });
    // Ten times as fast as the next better level, for about a tenth more bytes.
    encoder.set_compression(png::Compression::Fast);
    let mut pixels = Vec::with_capacity(image.width() as usize * image.height() as usize * channels.min(3));
    for row in image.rows() {
        if channels == 1 {
            pixels.extend_from_slice(row);
        } else {
            row.chunks_exact(channels).for_each(|bgr| pixels.extend_from_slice(&[bgr[2], bgr[1], bgr[0]]));
        }
    }
    let mut writer = encoder.write_header().map_err(refused)?;
    writer.write_image_data(&pixels).map_err(refused)?;
    writer.finish().map_err(refused)?;
    Ok(output.into())
}

/// Decodes any PNG to 8-bit grey (if it has no colour) or BGR. Alpha is dropped; 16 bits become 8.
///
/// # Errors
/// [`PngError::TooManyPixels`], before memory is taken, or [`PngError::Corrupt`].
pub fn decode(bytes: &[u8], pixels_max: u64, image: &mut Image) -> Result<(), PngError> {
    let damaged = |error: png::DecodingError| PngError::Corrupt { detail: error.to_string() };
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let header = decoder.read_header_info().map_err(damaged)?;
    let (width, height) = (header.width, header.height);
    if u64::from(width) * u64::from(height) > pixels_max {
        return Err(PngError::TooManyPixels { width, height, pixels_max });
    }
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = reader
        .output_buffer_size()
        .ok_or_else(|| PngError::Corrupt { detail: "its size cannot be addressed".into() })?;
    let mut pixels = vec![0; size];
    let info = reader.next_frame(&mut pixels).map_err(damaged)?;
    let pixels = &pixels[..info.buffer_size()];
    let channels = info.color_type.samples();
    let format = if channels <= 2 { PixelFormat::Gray8 } else { PixelFormat::Bgr8 };
    let mut output = image.reset(width, height, format);
    let pairs =
        output.data_mut().chunks_exact_mut(format.bytes_per_pixel()).zip(pixels.chunks_exact(channels));
    for (to, from) in pairs {
        if channels <= 2 {
            to[0] = from[0];
        } else {
            to.copy_from_slice(&[from[2], from[1], from[0]]);
        }
    }
    Ok(())
}
