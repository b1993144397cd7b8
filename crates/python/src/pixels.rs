//! Converts between Python buffers and images.
//!
//! NumPy arrays use the buffer protocol, so this crate does not need NumPy.

use std::slice;

use bytes::Bytes;
use mez_core::frame::Encoding;
use mez_media::jpeg::{Encoder, PIXELS_MAX_DEFAULT, Sampling};
use mez_media::resize::{Filter, Resizer};
use mez_media::stream::{StreamDecodeError, show};
use mez_media::{Image, ImageView, ImageViewMut, PixelFormat, overlay, png};
use mez_node::api::image::{PayloadError, size_in_pixels};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;

/// The image that a caller publishes.
pub(crate) enum Given {
    /// Pixels, with the buffer that keeps them in place.
    Pixels(Pixels),
    /// An encoded image.
    Encoded(Encoded),
}

/// Rows of pixels in a buffer of Python.
pub(crate) struct Pixels {
    rows: Rows,
    width: u32,
    height: u32,
    row_stride_bytes: usize,
    format: PixelFormat,
}

enum Rows {
    /// In the caller's memory, one row after another at a stride.
    InPlace { buffer: PyUntypedBuffer, bytes: usize },
    /// Copied, because the pixels were not in rows from left to right and from top to bottom.
    Copied(Vec<u8>),
}

/// Bytes of an encoded image in a buffer of Python.
pub(crate) struct Encoded(PyUntypedBuffer);

impl Given {
    /// Reads `image`: an array of pixels, or the bytes of an image.
    pub(crate) fn read(image: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = image.py();
        let Ok(buffer) = PyUntypedBuffer::get(image) else { return Err(not_an_image(image)) };
        if !is_byte(&buffer) {
            let message = format!(
                "the image is {}, and its elements are not 8-bit; convert it, image.astype(\"uint8\") where its \
                 values are 0 to 255, or pass the bytes of a JPEG",
                describe(image)
            );
            return Err(error::raise(py, "ImageError", message));
        }
        if let [_] = buffer.shape() {
            if !buffer.is_c_contiguous() {
                let message = "the bytes have gaps between them; pass bytes(image)";
                return Err(error::raise(py, "ImageError", message));
            }
            return Ok(Self::Encoded(Encoded(buffer)));
        }
        let (height, width, channels) = match *buffer.shape() {
            [height, width] => (height, width, 1),
            [height, width, channels] => (height, width, channels),
            _ => return Err(wrong_shape(image)),
        };
        let format = match channels {
            1 => PixelFormat::Gray8,
            3 => PixelFormat::Bgr8,
            4 => PixelFormat::Bgra8,
            _ => return Err(wrong_shape(image)),
        };
        let (Ok(width), Ok(height)) = (u32::try_from(width), u32::try_from(height)) else {
            return Err(wrong_shape(image));
        };
        let row_bytes = width as usize * channels;
        let (rows, row_stride_bytes) = match row_stride(&buffer, channels, row_bytes) {
            Some(stride) => {
                // The rows lie within the buffer, whose size the exporter guarantees.
                let bytes = (height as usize).saturating_sub(1) * stride + row_bytes;
                (Rows::InPlace { buffer, bytes }, stride)
            }
            None => (Rows::Copied(buffer.as_typed::<u8>()?.to_vec(py)?), row_bytes),
        };
        Ok(Self::Pixels(Pixels { rows, width, height, row_stride_bytes, format }))
    }
}

impl Pixels {
    /// Width and height, in pixels.
    pub(crate) fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Encodes to JPEG. Takes milliseconds: do not call it while attached to the interpreter.
    pub(crate) fn encode(&self, encoder: &mut Encoder) -> Result<Bytes, mez_media::jpeg::EncodeError> {
        encoder.encode(&self.view()?)
    }

    /// A view of the pixels, without a copy.
    pub(crate) fn view(&self) -> Result<ImageView<'_>, mez_media::ImageError> {
        let data = match &self.rows {
            Rows::Copied(pixels) => pixels,
            // An empty buffer's pointer may be null.
            Rows::InPlace { .. } if self.width == 0 || self.height == 0 => &[][..],
            // SAFETY: the buffer protocol keeps the memory in place as long as `buffer` lives, and `read` computed `bytes` from
            // its shape and strides. Another Python thread may write to it meanwhile; this is the caller's race, documented at
            // `Publisher.send`. The bytes are only ever read, as opaque samples, so the worst result is a torn image.
            Rows::InPlace { buffer, bytes } => unsafe {
                slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), *bytes)
            },
        };
        ImageView::new(data, self.width, self.height, self.row_stride_bytes, self.format)
    }
}

impl Encoded {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Checks that it is a whole JPEG, and copies it. Do not call it while attached to the interpreter.
    pub(crate) fn take(&self) -> Result<(Bytes, (u32, u32)), PayloadError> {
        // The copy is checked, because another thread may change the original.
        let bytes = self.copied();
        let size = size_in_pixels(Encoding::Jpeg, (0, 0), &bytes)?;
        Ok((bytes, size))
    }

    /// A copy. Do not call it while attached to the interpreter.
    pub(crate) fn copied(&self) -> Bytes {
        let bytes = match self.len() {
            0 => &[][..],
            // SAFETY: as in `Pixels::view`; the buffer is contiguous and holds single bytes.
            len => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), len) },
        };
        Bytes::copy_from_slice(bytes)
    }
}

/// A Python array to which pixels are written. It is new and not shared yet.
pub(crate) struct Target {
    buffer: PyUntypedBuffer,
    size: (u32, u32),
    format: PixelFormat,
}

impl Target {
    /// Reads `image`, which must have the shape (height, width, 3) and no gaps.
    pub(crate) fn read(image: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::of(image, PixelFormat::Bgr8)
    }

    /// Reads `image`, which must have rows of pixels of this format without gaps.
    fn of(image: &Bound<'_, PyAny>, format: PixelFormat) -> PyResult<Self> {
        let buffer = contiguous(image, true)?;
        let &[height, width, channels] = buffer.shape() else { return Err(wrong_shape(image)) };
        if channels != format.bytes_per_pixel() {
            return Err(wrong_shape(image));
        }
        let (Ok(width), Ok(height)) = (u32::try_from(width), u32::try_from(height)) else {
            return Err(wrong_shape(image));
        };
        Ok(Self { buffer, size: (width, height), format })
    }

    /// Width and height, in pixels.
    pub(crate) fn size(&self) -> (u32, u32) {
        self.size
    }

    /// The pixels. Do not write to them while attached to the interpreter.
    pub(crate) fn view(&mut self) -> Result<ImageViewMut<'_>, mez_media::ImageError> {
        let (pointer, bytes) = (self.buffer.buf_ptr().cast::<u8>(), self.buffer.len_bytes());
        // SAFETY: `contiguous` has checked that the memory has no gaps and is writable. The buffer protocol keeps it in place
        // as long as the buffer lives, which is borrowed as long. The array is new, and its caller has not shared it yet.
        let data = unsafe { slice::from_raw_parts_mut(pointer, bytes) };
        ImageViewMut::packed(data, self.size.0, self.size.1, self.format)
    }
}

/// The distance between rows, if pixels are in rows from left to right, and rows from top to bottom.
fn row_stride(buffer: &PyUntypedBuffer, channels: usize, row_bytes: usize) -> Option<usize> {
    if buffer.suboffsets().is_some_and(|offsets| offsets.iter().any(|offset| *offset >= 0)) {
        return None;
    }
    let (rows, pixels, samples) = match *buffer.strides() {
        [rows, pixels] => (rows, pixels, 1),
        [rows, pixels, samples] => (rows, pixels, samples),
        _ => return None,
    };
    let packed = samples == 1 && usize::try_from(pixels).ok()? == channels;
    let rows = usize::try_from(rows).ok()?;
    // With one channel, its stride has no meaning; with one row, the stride of rows has none.
    let packed = packed || (channels == 1 && pixels == 1);
    let one_row = buffer.shape().first() == Some(&1);
    (packed && (rows >= row_bytes || one_row)).then_some(if one_row { row_bytes } else { rows })
}

fn is_byte(buffer: &PyUntypedBuffer) -> bool {
    // `c` is the type of a byte of text in ctypes. A byte order such as `<` has no meaning for single bytes.
    let format = buffer.format().to_bytes();
    let format = format.strip_prefix(b"@").or(format.strip_prefix(b"<")).unwrap_or(format);
    buffer.item_size() == 1 && matches!(format, b"B" | b"c")
}

fn describe(image: &Bound<'_, PyAny>) -> String {
    let attribute = |name| image.getattr(name).ok().map(|value: Bound<'_, PyAny>| value.to_string());
    match (attribute("shape"), attribute("dtype")) {
        (Some(shape), Some(dtype)) => format!("an array of shape {shape} and type {dtype}"),
        _ => image.get_type().to_string(),
    }
}

fn not_an_image(image: &Bound<'_, PyAny>) -> PyErr {
    let py = image.py();
    let message = if image.is_none() {
        let hint = "`ok, image = cap.read()` gives None when ok is False";
        format!("the image is None; check what the camera returned ({hint})")
    } else {
        let name = image.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        format!(
            "the image is of type {name}; pass a NumPy array of 8-bit pixels (numpy.asarray(image) makes one of most \
             image types), or the bytes of a JPEG"
        )
    };
    let error = error::raise(py, "ArgumentTypeError", message);
    // If the field cannot be set, the error is raised without it.
    let _ = error.value(py).setattr("field", "image");
    error
}

fn wrong_shape(image: &Bound<'_, PyAny>) -> PyErr {
    let py = image.py();
    let shape: Vec<usize> = image.getattr("shape").and_then(|shape| shape.extract()).unwrap_or_default();
    let remedy = match shape[..] {
        [1 | 3 | 4, height, width] if height > 4 && width > 4 => {
            "it looks as if channels came first; pass image.transpose(1, 2, 0)".to_owned()
        }
        [1, _, _, _] => "pass one image of the batch, image[0]".to_owned(),
        _ => "pass (height, width) for grey, (height, width, 3) for BGR or (height, width, 4) for BGRA"
            .to_owned(),
    };
    error::raise(py, "ImageError", format!("the image is {}; {remedy}", describe(image)))
}

/// Encodes an image to JPEG.
///
/// `image`: 8-bit pixels of shape (height, width), (height, width, 3) or (height, width, 4). `quality`: 1
/// to 100.
#[pyfunction]
pub(crate) fn encode_jpeg<'py>(image: &Bound<'py, PyAny>, quality: u8) -> PyResult<Bound<'py, PyBytes>> {
    let py = image.py();
    let Given::Pixels(pixels) = Given::read(image)? else {
        return Err(error::raise(py, "ImageError", "the image has one dimension; pass pixels in rows"));
    };
    let jpeg = py
        .detach(|| {
            let mut encoder = Encoder::new(quality, Sampling::default())?;
            pixels.encode(&mut encoder)
        })
        .map_err(|failure| error::encode(py, &failure))?;
    Ok(PyBytes::new(py, &jpeg))
}

/// Encodes an image to PNG, losslessly.
///
/// `image`: as for `encode_jpeg`; alpha is dropped.
#[pyfunction]
pub(crate) fn encode_png<'py>(image: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let py = image.py();
    let Given::Pixels(pixels) = Given::read(image)? else {
        return Err(error::raise(py, "ImageError", "the image has one dimension; pass pixels in rows"));
    };
    let png = py.detach(|| {
        let view = pixels.view().map_err(|failure| failure.to_string())?;
        png::encode(&view).map_err(|failure| failure.to_string())
    });
    Ok(PyBytes::new(py, &png.map_err(|failure| error::raise(py, "ImageError", failure))?))
}

/// Decodes an image that needs no other into `image`, an array of shape (height, width, 3) of its size whose memory has no gaps, as
/// BGR. `encoding`: `jpeg`, `png`, `bgr8` or `gray8`. Does not hold the interpreter.
#[pyfunction]
pub(crate) fn decode_into(
    encoding: &str,
    payload: &Bound<'_, PyAny>,
    image: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = payload.py();
    let encoding = Encoding::from_name(encoding)
        .ok_or_else(|| error::argument(py, "encoding", format!("there is no encoding {encoding:?}")))?;
    let payload = contiguous(payload, false)?;
    let mut target = Target::read(image)?;
    py.detach(|| {
        // SAFETY: as in `Pixels::view`; the buffer is contiguous and holds single bytes.
        let payload = unsafe { slice::from_raw_parts(payload.buf_ptr().cast::<u8>(), payload.len_bytes()) };
        show(encoding, payload, &mut target.view()?)
    })
    .map_err(|failure: StreamDecodeError| error::raise(py, "ImageError", failure))
}

/// Decodes the PNG of an overlay into `image`, an array of shape (height, width, 4) of its size whose memory has no gaps. Does not hold the
/// interpreter.
#[pyfunction]
pub(crate) fn decode_overlay_into(png: &Bound<'_, PyBytes>, image: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, bytes) = (png.py(), png.as_bytes());
    let mut target = Target::of(image, PixelFormat::Bgra8)?;
    py.detach(|| {
        let mut decoded = Image::empty();
        overlay::decode(bytes, PIXELS_MAX_DEFAULT, &mut decoded).map_err(|failure| failure.to_string())?;
        let mut view = target.view().map_err(|failure| failure.to_string())?;
        if (decoded.width(), decoded.height()) != (view.width(), view.height()) {
            return Err(format!("the overlay has {}x{} pixels", decoded.width(), decoded.height()));
        }
        view.data_mut().copy_from_slice(decoded.data());
        Ok(())
    })
    .map_err(|failure: String| error::raise(py, "ImageError", failure))
}

/// Draws `overlay`, its PNG or an array of shape (height, width, 4), over `image`, an array of shape (height, width, 3) whose memory has no gaps.
/// Does not hold the interpreter.
#[pyfunction]
pub(crate) fn draw_overlay(overlay: &Bound<'_, PyAny>, image: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, given) = (overlay.py(), Given::read(overlay)?);
    let mut target = Target::read(image)?;
    py.detach(|| {
        let mut decoded = Image::empty();
        let pixels = match &given {
            Given::Pixels(pixels) => pixels.view().map_err(|failure| failure.to_string())?,
            Given::Encoded(png) => {
                let refused = |failure: png::PngError| failure.to_string();
                overlay::decode(&png.copied(), PIXELS_MAX_DEFAULT, &mut decoded).map_err(refused)?;
                decoded.view().ok_or("the overlay is empty")?
            }
        };
        let mut view = target.view().map_err(|failure| failure.to_string())?;
        overlay::draw(&pixels, &mut view).map_err(|failure| failure.to_string())
    })
    .map_err(|failure: String| error::raise(py, "ImageError", failure))
}

/// Scales the pixels of `image` to the size of `target`; both are arrays of shape (height, width, 3), `target` without gaps. Does not hold
/// the interpreter.
#[pyfunction]
pub(crate) fn resize_into(image: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = image.py();
    let Given::Pixels(pixels) = Given::read(image)? else { return Err(wrong_shape(image)) };
    if pixels.format != PixelFormat::Bgr8 {
        return Err(wrong_shape(image));
    }
    let mut target = Target::read(target)?;
    let (size, mut scaled) = (target.size(), Image::empty());
    py.detach(|| {
        let view = pixels.view().map_err(|failure| failure.to_string())?;
        let resized = Resizer::new().resize(&view, size, Filter::Area, &mut scaled);
        resized.map_err(|failure| failure.to_string())?;
        let mut target = target.view().map_err(|failure| failure.to_string())?;
        target.data_mut().copy_from_slice(scaled.data());
        Ok(())
    })
    .map_err(|failure: String| error::raise(py, "ImageError", failure))
}

/// A non-empty buffer of single bytes without gaps.
fn contiguous(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    let usable = buffer.is_c_contiguous() && is_byte(&buffer) && buffer.len_bytes() > 0;
    if usable && !(writable && buffer.readonly()) {
        return Ok(buffer);
    }
    Err(error::raise(
        object.py(),
        "ImageError",
        "the buffer is empty, has gaps, or cannot be written to; pass a new one",
    ))
}
