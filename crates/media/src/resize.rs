//! Scales an image.

use fast_image_resize as fir;
use thiserror::Error;

use crate::image::{Image, ImageView, PixelFormat, Yuv420View};
use crate::yuv::Yuv420;

/// How the pixels of the scaled image are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// A triangle filter as wide as the distance between two output pixels, so every source
    /// pixel counts. Detectors are trained on such images, and the images have fewer bytes.
    Area,
    /// Interpolates between the four nearest pixels at any factor, the default of `cv2.resize`. Aliases if the image is scaled to less than half.
    Linear,
}

/// An image could not be scaled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot scale {width}x{height} pixels to {to_width}x{to_height}: {detail}")]
pub struct ResizeError {
    /// Width of the source, in pixels.
    pub width: u32,
    /// Height of the source, in pixels.
    pub height: u32,
    /// Requested width, in pixels.
    pub to_width: u32,
    /// Requested height, in pixels.
    pub to_height: u32,
    /// The reason.
    pub detail: String,
}

/// Scales images, one after another. It keeps only its working memory from image to image.
#[derive(Debug, Default)]
pub struct Resizer {
    resizer: fir::Resizer,
    packed: Vec<u8>,
}

impl Resizer {
    /// A resizer that has not allocated memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Scales `source` to `width` × `height` into `target`.
    ///
    /// # Errors
    /// [`ResizeError`] if a side is zero.
    pub fn resize(
        &mut self,
        source: &ImageView<'_>,
        size: (u32, u32),
        filter: Filter,
        target: &mut Image,
    ) -> Result<(), ResizeError> {
        let whole = (source.width().into(), source.height().into());
        self.resize_filled(source, whole, size, filter, target)
    }

    /// Like [`Resizer::resize`], for a picture that fills only the first `filled` columns and rows of `source`. The last ones may be filled in part.
    ///
    /// # Errors
    /// [`ResizeError`] if a side is zero, or `filled` is larger than `source`.
    pub fn resize_filled(
        &mut self,
        source: &ImageView<'_>,
        filled: (f64, f64),
        (width, height): (u32, u32),
        filter: Filter,
        target: &mut Image,
    ) -> Result<(), ResizeError> {
        let refused = |detail: String| ResizeError {
            width: source.width(),
            height: source.height(),
            to_width: width,
            to_height: height,
            detail,
        };
        if width == 0 || height == 0 {
            return Err(refused("both sides must be at least 1".into()));
        }
        let mut output = target.reset(width, height, source.format());
        let pixels = packed(source, &mut self.packed);
        if (width, height) == (source.width(), source.height()) && filled == (width.into(), height.into()) {
            output.data_mut().copy_from_slice(pixels);
            return Ok(());
        }
        let pixel = match source.format() {
            PixelFormat::Gray8 => fir::PixelType::U8,
            PixelFormat::Bgr8 => fir::PixelType::U8x3,
            PixelFormat::Bgra8 => fir::PixelType::U8x4,
        };
        let error = |error: &dyn std::fmt::Display| refused(error.to_string());
        let from = fir::images::ImageRef::new(source.width(), source.height(), pixels, pixel)
            .map_err(|e| error(&e))?;
        let mut to = fir::images::Image::from_slice_u8(width, height, output.data_mut(), pixel)
            .map_err(|e| error(&e))?;
        let algorithm = match filter {
            Filter::Area => fir::ResizeAlg::Convolution(fir::FilterType::Bilinear),
            Filter::Linear => fir::ResizeAlg::Interpolation(fir::FilterType::Bilinear),
        };
        // Alpha is scaled like the other channels; nothing is blended with it.
        let options = fir::ResizeOptions::new().resize_alg(algorithm).use_alpha(false);
        let options = options.crop(0.0, 0.0, filled.0, filled.1);
        self.resizer.resize(&from, &mut to, &options).map_err(|e| error(&e))
    }

    /// Scales each plane of `source` to a picture of `width` × `height`, into `target`.
    /// The picture fills the first `filled` columns and rows of the luma plane.
    ///
    /// # Errors
    /// [`ResizeError`] if a side is zero.
    pub fn resize_planes(
        &mut self,
        source: &Yuv420View<'_>,
        filled: (f64, f64),
        (width, height): (u32, u32),
        target: &mut Yuv420,
    ) -> Result<(), ResizeError> {
        let half = |(width, height): (u32, u32)| (width.div_ceil(2), height.div_ceil(2));
        let size = (source.width(), source.height());
        let refused = |detail: String| ResizeError {
            width: size.0,
            height: size.1,
            to_width: width,
            to_height: height,
            detail,
        };
        if width == 0 || height == 0 {
            return Err(refused("both sides must be at least 1".into()));
        }
        let planes = [source.luma(), source.chroma_blue(), source.chroma_red()];
        let sizes = [size, half(size), half(size)];
        let targets = [(width, height), half((width, height)), half((width, height))];
        let options =
            fir::ResizeOptions::new().resize_alg(fir::ResizeAlg::Convolution(fir::FilterType::Bilinear));
        let colour = (filled.0 / 2.0, filled.1 / 2.0);
        let parts = [filled, colour, colour];
        for ((((plane, from), part), to), output) in
            planes.into_iter().zip(sizes).zip(parts).zip(targets).zip(target.reset(width, height))
        {
            let options = options.crop(0.0, 0.0, part.0, part.1);
            let from = fir::images::ImageRef::new(from.0, from.1, plane, fir::PixelType::U8);
            let to = fir::images::Image::from_slice_u8(to.0, to.1, output, fir::PixelType::U8);
            let from = from.map_err(|error| refused(error.to_string()))?;
            let mut to = to.map_err(|error| refused(error.to_string()))?;
            self.resizer.resize(&from, &mut to, &options).map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }
}

/// The pixels of a view without gaps between rows. They are copied only if the view has gaps.
pub(crate) fn packed<'a>(view: &ImageView<'a>, copy: &'a mut Vec<u8>) -> &'a [u8] {
    let row_bytes = view.width() as usize * view.format().bytes_per_pixel();
    if view.row_stride_bytes() == row_bytes {
        return &view.data()[..row_bytes * view.height() as usize];
    }
    copy.clear();
    view.rows().for_each(|row| copy.extend_from_slice(row));
    copy
}
