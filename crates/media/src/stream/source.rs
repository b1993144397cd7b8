//! Converts a published frame to the size and pixel format that an encoder needs.

use bytes::Bytes;

use super::error::StreamEncodeError;
use crate::image::{Image, ImageView, PixelFormat};
use crate::jpeg::{Decoder, probe};
use crate::resize::{Filter, Resizer};
use crate::yuv::Yuv420;

/// A frame as its publisher or source gave it.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// A JPEG.
    Jpeg(&'a Bytes),
    /// Pixels.
    Pixels(ImageView<'a>),
    /// A decoded picture of the source's own video.
    Planes(&'a Yuv420),
}

impl Source<'_> {
    /// Width and height, in pixels.
    ///
    /// # Errors
    /// [`StreamEncodeError::Source`] for a JPEG whose header is damaged.
    pub fn size(&self) -> Result<(u32, u32), StreamEncodeError> {
        match self {
            Source::Jpeg(bytes) => {
                let info = probe(bytes)?;
                Ok((info.width, info.height))
            }
            Source::Pixels(view) => Ok((view.width(), view.height())),
            Source::Planes(planes) => Ok((planes.width(), planes.height())),
        }
    }
}

/// Where [`Reader::read`] has put the pixels.
enum Place {
    Decoded,
    Scaled,
}

/// Scales and converts frames. It keeps only its working memory from frame to frame.
#[derive(Debug)]
pub(super) struct Reader {
    decoder: Decoder,
    resizer: Resizer,
    /// A picture of planes, converted to BGR.
    whole: Image,
    decoded: Image,
    scaled: Image,
    decoded_planes: Yuv420,
    planes: Yuv420,
}

impl Reader {
    pub(super) fn new(pixels_max: u64) -> Self {
        Self {
            decoder: Decoder::new(pixels_max),
            resizer: Resizer::new(),
            whole: Image::empty(),
            decoded: Image::empty(),
            scaled: Image::empty(),
            decoded_planes: Yuv420::empty(),
            planes: Yuv420::empty(),
        }
    }

    /// The frame's pixels at `size`, without alpha. Grey if `grey` is set or the frame has no colour.
    pub(super) fn pixels(
        &mut self,
        source: &Source<'_>,
        size: (u32, u32),
        grey: bool,
    ) -> Result<&Image, StreamEncodeError> {
        Ok(match self.read(source, size, grey)? {
            Place::Decoded => &self.decoded,
            Place::Scaled => &self.scaled,
        })
    }

    /// Scales the frame's pixels to `size`, and returns where they are.
    fn read(
        &mut self,
        source: &Source<'_>,
        size: (u32, u32),
        grey: bool,
    ) -> Result<Place, StreamEncodeError> {
        let format = if grey { PixelFormat::Gray8 } else { PixelFormat::Bgr8 };
        match source {
            Source::Jpeg(bytes) => {
                let filled = self.decoder.decode_scaled(bytes, format, size, &mut self.decoded)?;
                if filled == (size.0.into(), size.1.into()) {
                    return Ok(Place::Decoded);
                }
                let view = self.decoded.view().ok_or(StreamEncodeError::Empty)?;
                self.resizer.resize_filled(&view, filled, size, Filter::Area, &mut self.scaled)?;
            }
            Source::Pixels(view) => {
                self.resizer.resize(view, size, Filter::Area, &mut self.scaled)?;
                if view.format() == PixelFormat::Bgra8 || (grey && view.format() == PixelFormat::Bgr8) {
                    convert(&self.scaled, format, &mut self.decoded);
                    return Ok(Place::Decoded);
                }
            }
            Source::Planes(planes) => {
                let mut whole = std::mem::take(&mut self.whole);
                planes.to_bgr(&mut whole);
                let view = whole.view().ok_or(StreamEncodeError::Empty)?;
                self.resizer.resize(&view, size, Filter::Area, &mut self.scaled)?;
                self.whole = whole;
                if grey {
                    convert(&self.scaled, format, &mut self.decoded);
                    return Ok(Place::Decoded);
                }
            }
        }
        Ok(Place::Scaled)
    }

    /// The frame as planes at `size`.
    pub(super) fn planes(
        &mut self,
        source: &Source<'_>,
        size: (u32, u32),
    ) -> Result<&Yuv420, StreamEncodeError> {
        if let Source::Jpeg(bytes) = source
            && let Some(filled) = self.decoder.decode_yuv420_scaled(bytes, size, &mut self.decoded_planes)?
        {
            if filled == (size.0.into(), size.1.into()) {
                return Ok(&self.decoded_planes);
            }
            self.resizer.resize_planes(&self.decoded_planes.view()?, filled, size, &mut self.planes)?;
            return Ok(&self.planes);
        }
        if let Source::Planes(planes) = source {
            let whole = (planes.width().into(), planes.height().into());
            if (planes.width(), planes.height()) == size {
                self.planes.copy_from(&planes.planes(), size.0, size.1);
            } else {
                self.resizer.resize_planes(&planes.view()?, whole, size, &mut self.planes)?;
            }
            return Ok(&self.planes);
        }
        if let Source::Pixels(view) = source
            && view.width().is_multiple_of(2)
            && view.height().is_multiple_of(2)
            && u64::from(size.0) * 5 > u64::from(view.width()) * 3
        {
            // Converting first leaves half as many samples to scale. For smaller outputs, scaling first is faster.
            self.decoded_planes.fill_from(view);
            if (view.width(), view.height()) == size {
                return Ok(&self.decoded_planes);
            }
            let whole = (view.width().into(), view.height().into());
            self.resizer.resize_planes(&self.decoded_planes.view()?, whole, size, &mut self.planes)?;
            return Ok(&self.planes);
        }
        let image = match self.read(source, size, false)? {
            Place::Decoded => &self.decoded,
            Place::Scaled => &self.scaled,
        };
        self.planes.fill_from(&image.view().ok_or(StreamEncodeError::Empty)?);
        Ok(&self.planes)
    }

    /// The frame's pixels at their own size.
    pub(super) fn original(&mut self, source: &Source<'_>) -> Result<&Image, StreamEncodeError> {
        let size = source.size()?;
        self.pixels(source, size, false)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let images = self.whole.data().len() + self.decoded.data().len() + self.scaled.data().len();
        images + self.decoded_planes.data().len() + self.planes.data().len()
    }
}

/// Drops alpha, or converts to grey.
fn convert(source: &Image, format: PixelFormat, target: &mut Image) {
    let channels = source.format().bytes_per_pixel();
    let mut output = target.reset(source.width(), source.height(), format);
    let pixels = source.data().chunks_exact(channels);
    for (to, from) in output.data_mut().chunks_exact_mut(format.bytes_per_pixel()).zip(pixels) {
        match to {
            [grey] => *grey = crate::knobs::colour::luma(from[0], from[1], from[2]),
            bgr => bgr.copy_from_slice(&from[..3]),
        }
    }
}
