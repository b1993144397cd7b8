//! Calls libx264 through a bridge in C that knows its structures (`bridge.c`).
#![allow(unsafe_code, reason = "the codec is C; every call says why it is sound")]

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use crate::h264::H264Error;
use crate::image::Yuv420View;
#[cfg(test)]
use crate::yuv::Yuv420;

/// The bridge's state. Only the bridge knows its fields.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn mez_x264_open(width: c_int, height: c_int, pictures: c_int) -> *mut Opaque;
    fn mez_x264_encode(
        encoder: *mut Opaque,
        planes: *const [*const u8; 3],
        number: i64,
        independent: c_int,
        quantiser: c_int,
        stream: *mut *const u8,
    ) -> c_int;
    fn mez_x264_forget(encoder: *mut Opaque, from: i64) -> c_int;
    #[cfg(test)]
    fn mez_x264_shown(encoder: *const Opaque, planes: *mut [*const u8; 2], strides: *mut [c_int; 2]);
    fn mez_x264_close(encoder: *mut Opaque);
}

/// An encoder of pictures of one size.
#[derive(Debug)]
pub(super) struct Native {
    raw: NonNull<Opaque>,
    size: (u32, u32),
}

// SAFETY: an encoder starts no threads (`i_threads` 1), and keeps nothing in thread-local
// storage. It may be used from any thread, one at a time, which `&mut self` ensures.
unsafe impl Send for Native {}

impl Native {
    /// An encoder that keeps `pictures` pictures to predict from.
    pub(super) fn new(width: u32, height: u32, pictures: usize) -> Result<Self, H264Error> {
        // SAFETY: no preconditions; null is a failure.
        let raw = unsafe { mez_x264_open(width as c_int, height as c_int, pictures as c_int) };
        let raw = NonNull::new(raw).ok_or(H264Error::Codec { call: "x264_encoder_open", status: -1 })?;
        Ok(Self { raw, size: (width, height) })
    }

    /// Encodes a picture into `out` (annex B, overwritten). `number` must be higher than that of the picture before.
    pub(super) fn encode(
        &mut self,
        image: &Yuv420View<'_>,
        number: i64,
        independent: bool,
        quantiser: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), H264Error> {
        assert_eq!((image.width(), image.height()), self.size, "an encoder is made for pictures of one size");
        let planes = [image.luma().as_ptr(), image.chroma_blue().as_ptr(), image.chroma_red().as_ptr()];
        let mut stream = ptr::null();
        // SAFETY: the planes have the sizes that the bridge expects (even sides, as
        // given to `new`), are only read, and outlive the call; `stream` is written.
        let bytes = unsafe {
            mez_x264_encode(
                self.raw.as_ptr(),
                &planes,
                number,
                independent.into(),
                quantiser.into(),
                &mut stream,
            )
        };
        out.clear();
        // Without look-ahead and B-pictures, every call outputs a picture.
        if bytes <= 0 || stream.is_null() {
            return Err(H264Error::Codec { call: "x264_encoder_encode", status: bytes.into() });
        }
        // SAFETY: x264 states the number of bytes, and does not change them until the next call.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(stream, bytes as usize) });
        Ok(())
    }

    /// Makes x264 forget pictures of this number or a higher one: later pictures are not predicted from them.
    pub(super) fn forget(&mut self, from: i64) -> Result<(), H264Error> {
        // SAFETY: the encoder is open.
        match unsafe { mez_x264_forget(self.raw.as_ptr(), from) } {
            0 => Ok(()),
            status => {
                Err(H264Error::Codec { call: "x264_encoder_invalidate_reference", status: status.into() })
            }
        }
    }

    /// The picture coded last, from which x264 predicts.
    #[cfg(test)]
    pub(super) fn shown(&self) -> Yuv420 {
        let (mut planes, mut strides) = ([ptr::null(); 2], [0; 2]);
        // SAFETY: the encoder is open, and has coded a picture; both arrays are written.
        unsafe { mez_x264_shown(self.raw.as_ptr(), &mut planes, &mut strides) };
        let (width, height) = (self.size.0 as usize, self.size.1 as usize);
        let row = |plane: usize, y: usize| {
            // SAFETY: a plane of x264's own pictures has rows of at least the picture's width: luma, or
            // half as many samples of each chroma, interleaved. It does not change until the next call.
            unsafe { std::slice::from_raw_parts(planes[plane].add(y * strides[plane] as usize), width) }
        };
        let mut shown = Yuv420::empty();
        let [luma, blue, red] = shown.reset(self.size.0, self.size.1);
        for y in 0..height {
            luma[y * width..][..width].copy_from_slice(row(0, y));
        }
        for y in 0..height / 2 {
            for (x, pair) in row(1, y).chunks_exact(2).enumerate() {
                (blue[y * width / 2 + x], red[y * width / 2 + x]) = (pair[0], pair[1]);
            }
        }
        shown
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once, and not used afterwards.
        unsafe { mez_x264_close(self.raw.as_ptr()) }
    }
}
