//! Pixels in memory: borrowed views that are checked once, and an owned image whose memory is reused.
//!
//! A view connects a buffer of another owner (a NumPy array, a decoder's pipe) with native code.
//! The view's constructor proves that every row lies inside the buffer; native code relies on this.

use std::fmt;

use thiserror::Error;

/// Order and meaning of the bytes of one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PixelFormat {
    /// Blue, green, red; one byte each. The order of OpenCV and of Mez's Python images.
    Bgr8,
    /// One byte of luminance.
    Gray8,
    /// Blue, green, red, alpha; one byte each. Encoding to JPEG drops alpha; decoding sets it to 255.
    Bgra8,
}

impl PixelFormat {
    /// Bytes of one pixel.
    #[must_use]
    pub const fn bytes_per_pixel(self) -> usize {
        match self {
            Self::Bgr8 => 3,
            Self::Gray8 => 1,
            Self::Bgra8 => 4,
        }
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bgr8 => "BGR (3 bytes per pixel)",
            Self::Gray8 => "grey (1 byte per pixel)",
            Self::Bgra8 => "BGRA (4 bytes per pixel)",
        })
    }
}

/// A buffer and a size that do not make an image.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Width or height is zero.
    #[error("the image is {width}x{height} pixels: both sides must be at least 1")]
    ZeroSized {
        /// Width as given, in pixels.
        width: u32,
        /// Height as given, in pixels.
        height: u32,
    },
    /// The rows overlap: the stride is shorter than a row.
    #[error(
        "a row stride of {row_stride_bytes} bytes is too short: {width} pixels of {format} take \
         {row_bytes} bytes; give the distance between the starts of two rows"
    )]
    RowStrideTooShort {
        /// Stride as given, in bytes.
        row_stride_bytes: usize,
        /// Bytes of the pixels of one row.
        row_bytes: usize,
        /// Width as given, in pixels.
        width: u32,
        /// Format as given.
        format: PixelFormat,
    },
    /// The buffer ends before the last row does.
    #[error(
        "the buffer has {len_bytes} bytes, but {width}x{height} pixels at a stride of {row_stride_bytes} bytes \
         need {needed_bytes}; pass the whole image or correct its size"
    )]
    BufferTooShort {
        /// Length of the buffer, in bytes.
        len_bytes: usize,
        /// Bytes that the image needs, from its first row to the end of its last row.
        needed_bytes: usize,
        /// Width as given, in pixels.
        width: u32,
        /// Height as given, in pixels.
        height: u32,
        /// Stride as given, in bytes.
        row_stride_bytes: usize,
    },
    /// The buffer continues after the last row, where it must end.
    #[error(
        "the buffer has {len_bytes} bytes, but {width}x{height} pixels take exactly {needed_bytes}; \
         correct the size or cut the buffer"
    )]
    BufferTooLong {
        /// Length of the buffer, in bytes.
        len_bytes: usize,
        /// Bytes that the image takes.
        needed_bytes: usize,
        /// Width as given, in pixels.
        width: u32,
        /// Height as given, in pixels.
        height: u32,
    },
    /// The size in bytes does not fit the arithmetic of the machine or of the codec.
    #[error(
        "an image of {width}x{height} pixels at a stride of {row_stride_bytes} bytes is too large to address; \
         scale it down"
    )]
    TooLarge {
        /// Width as given, in pixels.
        width: u32,
        /// Height as given, in pixels.
        height: u32,
        /// Stride as given, in bytes.
        row_stride_bytes: usize,
    },
}

/// Where the rows of an image lie in a buffer. [`Layout::check`] makes one only if every row lies inside the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    width: u32,
    height: u32,
    row_stride_bytes: usize,
    format: PixelFormat,
}

impl Layout {
    fn check(
        len_bytes: usize,
        width: u32,
        height: u32,
        row_stride_bytes: usize,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::ZeroSized { width, height });
        }
        let too_large = ImageError::TooLarge { width, height, row_stride_bytes };
        let row_bytes = (width as usize).checked_mul(format.bytes_per_pixel()).ok_or(too_large.clone())?;
        // A single row has no next row, so its stride has no meaning, and array libraries set it to any number.
        let row_stride_bytes = if height == 1 { row_bytes } else { row_stride_bytes };
        if row_stride_bytes < row_bytes {
            return Err(ImageError::RowStrideTooShort { row_stride_bytes, row_bytes, width, format });
        }
        // The codec takes strides as C ints.
        if i32::try_from(row_stride_bytes).is_err() {
            return Err(too_large);
        }
        let needed_bytes = (height as usize - 1)
            .checked_mul(row_stride_bytes)
            .and_then(|before_last| before_last.checked_add(row_bytes))
            .ok_or(too_large)?;
        if len_bytes < needed_bytes {
            return Err(ImageError::BufferTooShort {
                len_bytes,
                needed_bytes,
                width,
                height,
                row_stride_bytes,
            });
        }
        Ok(Self { width, height, row_stride_bytes, format })
    }

    fn row_bytes(&self) -> usize {
        self.width as usize * self.format.bytes_per_pixel()
    }
}

/// A read-only view of pixels in a borrowed buffer.
#[derive(Debug, Clone, Copy)]
pub struct ImageView<'a> {
    data: &'a [u8],
    layout: Layout,
}

impl<'a> ImageView<'a> {
    /// Views `data` as `height` rows of `width` pixels. The first row is at the start of `data`, each next row
    /// `row_stride_bytes` further. Bytes between rows and after the last row are ignored. The stride of a single row is ignored.
    ///
    /// # Errors
    /// [`ImageError`] if a side is zero, the rows would overlap, or the last row would end outside of `data`.
    pub fn new(
        data: &'a [u8],
        width: u32,
        height: u32,
        row_stride_bytes: usize,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        let layout = Layout::check(data.len(), width, height, row_stride_bytes, format)?;
        Ok(Self { data, layout })
    }

    /// Views `data` as rows without gaps between them.
    ///
    /// # Errors
    /// As [`ImageView::new`].
    pub fn packed(data: &'a [u8], width: u32, height: u32, format: PixelFormat) -> Result<Self, ImageError> {
        Self::new(data, width, height, (width as usize).saturating_mul(format.bytes_per_pixel()), format)
    }

    /// The whole buffer, gaps included.
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Pixels in a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.layout.width
    }

    /// Number of rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.layout.height
    }

    /// Bytes from the start of one row to the start of the next.
    #[must_use]
    pub fn row_stride_bytes(&self) -> usize {
        self.layout.row_stride_bytes
    }

    /// Order and meaning of the bytes of one pixel.
    #[must_use]
    pub fn format(&self) -> PixelFormat {
        self.layout.format
    }

    /// The pixels row by row, without the gaps between rows.
    pub fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (data, layout) = (self.data, self.layout);
        (0..layout.height as usize).map(move |row| {
            let start = row * layout.row_stride_bytes;
            &data[start..start + layout.row_bytes()]
        })
    }
}

/// A view of pixels in a borrowed buffer, for overwriting them.
#[derive(Debug)]
pub struct ImageViewMut<'a> {
    data: &'a mut [u8],
    layout: Layout,
}

impl<'a> ImageViewMut<'a> {
    /// As [`ImageView::new`], for writing. Bytes between rows are left as they are.
    ///
    /// # Errors
    /// As [`ImageView::new`].
    pub fn new(
        data: &'a mut [u8],
        width: u32,
        height: u32,
        row_stride_bytes: usize,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        let layout = Layout::check(data.len(), width, height, row_stride_bytes, format)?;
        Ok(Self { data, layout })
    }

    /// As [`ImageView::packed`], for writing.
    ///
    /// # Errors
    /// As [`ImageView::new`].
    pub fn packed(
        data: &'a mut [u8],
        width: u32,
        height: u32,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        Self::new(data, width, height, (width as usize).saturating_mul(format.bytes_per_pixel()), format)
    }

    /// The whole buffer, gaps included.
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.data
    }

    /// Pixels in a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.layout.width
    }

    /// Number of rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.layout.height
    }

    /// Bytes from the start of one row to the start of the next.
    #[must_use]
    pub fn row_stride_bytes(&self) -> usize {
        self.layout.row_stride_bytes
    }

    /// Order and meaning of the bytes of one pixel.
    #[must_use]
    pub fn format(&self) -> PixelFormat {
        self.layout.format
    }
}

/// An image that owns its pixels, without gaps between rows. It is made for
/// reuse: it keeps its memory, which grows to the largest image that it has held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    data: Vec<u8>,
    width: u32,
    height: u32,
    format: PixelFormat,
}

impl Default for Image {
    fn default() -> Self {
        Self::empty()
    }
}

impl Image {
    /// An image without pixels, for a decoder to fill.
    #[must_use]
    pub const fn empty() -> Self {
        Self { data: Vec::new(), width: 0, height: 0, format: PixelFormat::Bgr8 }
    }

    /// Takes pixels without gaps between rows.
    ///
    /// # Errors
    /// [`ImageError`] if `data` is not exactly as long as a `width` × `height` image. Longer data is refused because the size is then wrong.
    pub fn from_packed(
        data: Vec<u8>,
        width: u32,
        height: u32,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        let layout = ImageView::packed(&data, width, height, format)?.layout;
        let needed_bytes = layout.row_stride_bytes * layout.height as usize;
        if data.len() != needed_bytes {
            return Err(ImageError::BufferTooLong { len_bytes: data.len(), needed_bytes, width, height });
        }
        Ok(Self { data, width, height, format })
    }

    /// Makes this image `width` × `height` pixels for overwriting, and returns a view of them. The memory is reused.
    pub(crate) fn reset(&mut self, width: u32, height: u32, format: PixelFormat) -> ImageViewMut<'_> {
        let row_stride_bytes = width as usize * format.bytes_per_pixel();
        self.data.resize(row_stride_bytes * height as usize, 0);
        (self.width, self.height, self.format) = (width, height, format);
        ImageViewMut { data: &mut self.data, layout: Layout { width, height, row_stride_bytes, format } }
    }

    /// A view of the pixels; `None` while the image is empty.
    #[must_use]
    pub fn view(&self) -> Option<ImageView<'_>> {
        ImageView::packed(&self.data, self.width, self.height, self.format).ok()
    }

    /// The pixels, row after row.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// The pixels, row after row, without a copy.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Pixels in a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Number of rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Order and meaning of the bytes of one pixel.
    #[must_use]
    pub fn format(&self) -> PixelFormat {
        self.format
    }
}

/// A planar image in full-range Y′CbCr (BT.601, as in JFIF), without gaps between rows.
/// Its chroma has half the resolution both ways, as in a video decoder's `yuv420p`.
///
/// The sizes of the chroma planes are rounded up: luma of 5×3 has two chroma planes of 3×2.
#[derive(Debug, Clone, Copy)]
pub struct Yuv420View<'a> {
    luma: &'a [u8],
    chroma_blue: &'a [u8],
    chroma_red: &'a [u8],
    width: u32,
    height: u32,
}

impl<'a> Yuv420View<'a> {
    /// Bytes of an image of this size: the luma plane and two chroma planes. `None` on overflow.
    #[must_use]
    pub fn len_bytes(width: u32, height: u32) -> Option<usize> {
        let luma = (width as usize).checked_mul(height as usize)?;
        let chroma = (width.div_ceil(2) as usize).checked_mul(height.div_ceil(2) as usize)?;
        luma.checked_add(chroma.checked_mul(2)?)
    }

    /// Views `data` as the luma plane followed by the blue and the red chroma plane.
    ///
    /// # Errors
    /// [`ImageError`] if a side is zero or `data` is shorter than [`Yuv420View::len_bytes`].
    pub fn packed(data: &'a [u8], width: u32, height: u32) -> Result<Self, ImageError> {
        if width == 0 || height == 0 {
            return Err(ImageError::ZeroSized { width, height });
        }
        let row_stride_bytes = width as usize;
        let needed_bytes =
            Self::len_bytes(width, height).ok_or(ImageError::TooLarge { width, height, row_stride_bytes })?;
        if data.len() < needed_bytes {
            return Err(ImageError::BufferTooShort {
                len_bytes: data.len(),
                needed_bytes,
                width,
                height,
                row_stride_bytes,
            });
        }
        let luma_bytes = width as usize * height as usize;
        let chroma_bytes = (needed_bytes - luma_bytes) / 2;
        let (luma, chroma) = data[..needed_bytes].split_at(luma_bytes);
        let (chroma_blue, chroma_red) = chroma.split_at(chroma_bytes);
        Ok(Self { luma, chroma_blue, chroma_red, width, height })
    }

    /// Luma, `width` × `height` bytes.
    #[must_use]
    pub fn luma(&self) -> &'a [u8] {
        self.luma
    }

    /// Blue-difference chroma, half the size both ways, rounded up.
    #[must_use]
    pub fn chroma_blue(&self) -> &'a [u8] {
        self.chroma_blue
    }

    /// Red-difference chroma, half the size both ways, rounded up.
    #[must_use]
    pub fn chroma_red(&self) -> &'a [u8] {
        self.chroma_red
    }

    /// Luma samples in a row.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Number of rows of luma.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_refused_unless_every_row_lies_inside_the_buffer() {
        let data = [0u8; 30];
        let view = |width, height, stride| ImageView::new(&data, width, height, stride, PixelFormat::Bgr8);
        assert!(view(3, 3, 9).is_ok());
        assert!(view(3, 3, 10).is_ok(), "the last row needs no gap after it: 2 * 10 + 9 = 29");
        assert!(matches!(
            view(3, 3, 11),
            Err(ImageError::BufferTooShort { needed_bytes: 31, len_bytes: 30, .. })
        ));
        assert!(matches!(view(3, 3, 8), Err(ImageError::RowStrideTooShort { row_bytes: 9, .. })));
        assert!(matches!(view(0, 3, 9), Err(ImageError::ZeroSized { .. })));
        assert!(matches!(view(3, 0, 9), Err(ImageError::ZeroSized { .. })));
        assert!(matches!(view(2, u32::MAX, usize::MAX), Err(ImageError::TooLarge { .. })));
        assert!(view(10, 1, 0).is_ok(), "the stride of a single row means nothing");
        assert!(matches!(view(u32::MAX, 1, 0), Err(ImageError::TooLarge { .. })));
    }

    #[test]
    fn rows_leave_out_the_gaps() {
        let data = [1, 2, 9, 3, 4, 9, 5, 6];
        let view = ImageView::new(&data, 2, 3, 3, PixelFormat::Gray8).unwrap();
        assert_eq!(view.rows().collect::<Vec<_>>(), [&[1, 2], &[3, 4], &[5, 6]]);
    }

    #[test]
    fn an_owned_image_has_exactly_its_pixels() {
        assert!(Image::from_packed(vec![0; 12], 2, 2, PixelFormat::Bgr8).is_ok());
        assert!(Image::from_packed(vec![0; 13], 2, 2, PixelFormat::Bgr8).is_err());
        assert!(Image::from_packed(vec![0; 11], 2, 2, PixelFormat::Bgr8).is_err());
        assert!(Image::empty().view().is_none());
    }

    #[test]
    fn odd_planar_sizes_round_chroma_up() {
        assert_eq!(Yuv420View::len_bytes(5, 3), Some(15 + 2 * 6));
        let data = [0u8; 27];
        let view = Yuv420View::packed(&data, 5, 3).unwrap();
        assert_eq!((view.luma().len(), view.chroma_blue().len(), view.chroma_red().len()), (15, 6, 6));
        assert!(matches!(
            Yuv420View::packed(&data[..26], 5, 3),
            Err(ImageError::BufferTooShort { needed_bytes: 27, .. })
        ));
        assert!(matches!(Yuv420View::packed(&data, 0, 3), Err(ImageError::ZeroSized { .. })));
    }

    #[test]
    fn errors_say_what_to_do() {
        let message = ImageView::packed(&[0; 5], 2, 1, PixelFormat::Bgr8).unwrap_err().to_string();
        assert_eq!(
            message,
            "the buffer has 5 bytes, but 2x1 pixels at a stride of 6 bytes need 6; pass the whole image or correct \
             its size"
        );
    }
}
