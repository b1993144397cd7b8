//! Decodes a still to the pixels that an application gets.

use mez_core::frame::Encoding;

use super::decode::StreamDecodeError;
use crate::image::{Image, ImageView, ImageViewMut, PixelFormat};
use crate::jpeg;
use crate::png;

/// Decodes a still to BGR, 8 bits per channel, into memory of its size. Grey becomes three equal channels; alpha is dropped.
///
/// # Errors
/// [`StreamDecodeError`] if the still is damaged, has another size than `target`,
/// or has an encoding whose frames need others ([`StreamDecodeError::NotStill`]).
///
/// # Panics
/// If `target` is not BGR.
pub fn show(
    encoding: Encoding,
    payload: &[u8],
    target: &mut ImageViewMut<'_>,
) -> Result<(), StreamDecodeError> {
    assert_eq!(target.format(), PixelFormat::Bgr8, "applications see BGR");
    let stated = (target.width(), target.height());
    match encoding {
        Encoding::Jpeg => {
            jpeg::Decoder::default().decode_into(payload, target)?;
        }
        Encoding::Png => {
            let mut image = Image::empty();
            png::decode(payload, jpeg::PIXELS_MAX_DEFAULT, &mut image)?;
            let is = (image.width(), image.height());
            let view = image.view().filter(|_| is == stated);
            copy(&view.ok_or(StreamDecodeError::Size { is, stated })?, target);
        }
        Encoding::Bgr8 => copy(&raw(payload, stated, PixelFormat::Bgr8)?, target),
        Encoding::Gray8 => copy(&raw(payload, stated, PixelFormat::Gray8)?, target),
        Encoding::H264 | Encoding::H265 | Encoding::Av1 | Encoding::Tiles => {
            return Err(StreamDecodeError::NotStill { encoding });
        }
        Encoding::Data => return Err(StreamDecodeError::NotPicture),
    }
    Ok(())
}

/// Views raw pixels, which must be exactly as many as stated.
pub(super) fn raw(
    payload: &[u8],
    (width, height): (u32, u32),
    format: PixelFormat,
) -> Result<ImageView<'_>, StreamDecodeError> {
    let view = ImageView::packed(payload, width, height, format)?;
    let expected = width as usize * height as usize * format.bytes_per_pixel();
    if payload.len() > expected {
        return Err(StreamDecodeError::Bytes { bytes: payload.len(), expected });
    }
    Ok(view)
}

/// Copies pixels to an image of the same size. Grey is copied to all three channels.
pub(super) fn copy(from: &ImageView<'_>, to: &mut ImageViewMut<'_>) {
    let (stride, row_bytes) = (to.row_stride_bytes(), to.width() as usize * 3);
    // There may be no gap after the last row.
    let rows = to.data_mut().chunks_mut(stride).map(|row| &mut row[..row_bytes]);
    for (from_row, to_row) in from.rows().zip(rows) {
        if from.format() == PixelFormat::Gray8 {
            to_row.chunks_exact_mut(3).zip(from_row).for_each(|(pixel, grey)| pixel.fill(*grey));
        } else {
            to_row.copy_from_slice(from_row);
        }
    }
}
