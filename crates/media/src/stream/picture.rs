//! A decoded picture before it is converted to pixels: who does not look at it has no conversion to pay.

use bytes::Bytes;

use super::decode::StreamDecodeError;
use super::show::{copy, raw};
use crate::image::{Image, ImageViewMut, PixelFormat};
use crate::yuv::{Yuv420, packed, to_bgr, write_bgr};

/// A decoded picture in the form that its encoding has.
#[derive(Debug)]
pub enum Picture<'a> {
    /// Of H.264.
    Planes(&'a Yuv420),
    /// Of tiles: BGR, or grey.
    Image(&'a Image),
}

impl Picture<'_> {
    /// A copy in the same form, for whoever converts it to pixels later. `copy` copies its bytes.
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

/// In which form a picture is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Planes of 4:2:0, one behind the other: half the bytes that the pixels have.
    Planes,
    Pixels(PixelFormat),
}

/// A decoded picture that nobody has converted to pixels yet.
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

    /// Converts it to BGR, 8 bits each, into memory of its size; grey becomes three equal channels.
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
