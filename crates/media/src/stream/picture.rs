//! A decoded picture before its conversion to pixels. Only readers of the pixels pay for the conversion.

use bytes::Bytes;

use super::decode::StreamDecodeError;
use super::show::{copy, raw};
use crate::image::{Image, ImageViewMut, PixelFormat};
use crate::yuv::{Yuv420, packed, to_bgr, write_bgr};

/// A decoded picture in the format of its codec.
#[derive(Debug)]
pub enum Picture<'a> {
    /// A picture of H.264, H.265 or AV1.
    Planes(&'a Yuv420),
    /// A picture of tiles: BGR or grey.
    Image(&'a Image),
}

impl Picture<'_> {
    /// Copies the picture without conversion, for a later conversion to pixels. `copy` copies its bytes.
    pub fn keep(&self, copy: impl FnOnce(&[u8]) -> Bytes) -> OwnedPicture {
        let (form, data, size) = match self {
            Picture::Planes(planes) => (Form::Planes, planes.data(), (planes.width(), planes.height())),
            Picture::Image(image) => {
                (Form::Pixels(image.format()), image.data(), (image.width(), image.height()))
            }
        };
        OwnedPicture { form, data: copy(data), size }
    }
}

/// The format of a stored picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The planes of 4:2:0, one after another: half the bytes of BGR.
    Planes,
    Pixels(PixelFormat),
}

/// The number of [`Form::Planes`] between processes of the same version.
const PLANES: u8 = 1;
/// The number of grey pixels between processes of the same version.
const GREY: u8 = 2;
/// The number of BGR pixels between processes of the same version.
const COLOUR: u8 = 3;

/// A decoded picture that was not converted to pixels yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedPicture {
    form: Form,
    data: Bytes,
    size: (u32, u32),
}

impl OwnedPicture {
    /// Width and height, in pixels.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// The number of its form, its size and its samples, for sending to another process.
    #[must_use]
    pub fn into_parts(self) -> (u8, (u32, u32), Bytes) {
        let form = match self.form {
            Form::Planes => PLANES,
            Form::Pixels(PixelFormat::Gray8) => GREY,
            Form::Pixels(_) => COLOUR,
        };
        (form, self.size, self.data)
    }

    /// Makes a picture from the parts of another one. `None` if the form does not exist, or `data` does not have the bytes of such a picture.
    #[must_use]
    pub fn from_parts(form: u8, size: (u32, u32), data: Bytes) -> Option<Self> {
        let (width, height) = (u64::from(size.0), u64::from(size.1));
        let pixels = width.checked_mul(height).filter(|pixels| *pixels > 0 && *pixels < 1 << 32)?;
        let (form, bytes) = match form {
            PLANES => (Form::Planes, pixels + 2 * width.div_ceil(2) * height.div_ceil(2)),
            GREY => (Form::Pixels(PixelFormat::Gray8), pixels),
            COLOUR => (Form::Pixels(PixelFormat::Bgr8), 3 * pixels),
            _ => return None,
        };
        (data.len() as u64 == bytes).then_some(Self { form, data, size })
    }

    /// Converts the picture to BGR, 8 bits per channel, into memory of its size. Grey becomes three equal channels.
    ///
    /// # Errors
    /// [`StreamDecodeError::Size`] if `target` has another size.
    ///
    /// # Panics
    /// If `target` is not BGR.
    pub fn show(&self, target: &mut ImageViewMut<'_>) -> Result<(), StreamDecodeError> {
        assert_eq!(target.format(), PixelFormat::Bgr8, "applications see BGR");
        let (is, stated) = (self.size, (target.width(), target.height()));
        if is != stated {
            return Err(StreamDecodeError::Size { is, stated });
        }
        match self.form {
            Form::Pixels(format) => copy(&raw(&self.data, is, format)?, target),
            Form::Planes => {
                let planes = packed(&self.data, is.0, is.1);
                if target.row_stride_bytes() == 3 * is.0 as usize {
                    write_bgr(&planes, is, target.data_mut());
                } else {
                    let mut image = Image::empty();
                    to_bgr(&planes, is.0, is.1, &mut image);
                    copy(&image.view().ok_or(StreamDecodeError::Size { is, stated })?, target);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts from another process must be consistent.
    #[test]
    fn parts_make_a_picture_only_if_they_fit() {
        let of = |form, size, bytes: usize| OwnedPicture::from_parts(form, size, vec![7; bytes].into());
        for (form, bytes) in [(PLANES, 15 + 2 * 6), (GREY, 15), (COLOUR, 45)] {
            let picture = of(form, (5, 3), bytes).unwrap();
            let mut pixels = vec![0; 45];
            picture.show(&mut ImageViewMut::packed(&mut pixels, 5, 3, PixelFormat::Bgr8).unwrap()).unwrap();
            assert_eq!(picture.into_parts(), (form, (5, 3), vec![7; bytes].into()));
            assert_eq!(of(form, (5, 3), bytes - 1), None);
            assert_eq!(of(form, (5, 3), bytes + 1), None);
        }
        assert_eq!(of(0, (5, 3), 15), None);
        assert_eq!(of(GREY, (0, 3), 0), None);
        assert_eq!(of(GREY, (u32::MAX, u32::MAX), 15), None);
    }
}
