//! Converts images with even sides with libjpeg-turbo's vector code.
//!
//! The vector code is several times as fast as the plain code, and gives the
//! same bits with every instruction set. Its BGR equals that of the plain code.
#![allow(
    unsafe_code,
    reason = "these calls of libjpeg-turbo have no safe wrapper; each says why it is sound"
)]

use turbojpeg::raw;

use super::planes::Planes;
use crate::image::{ImageView, PixelFormat};

/// A handle of the library for one call; making one costs microseconds.
struct Handle(raw::tjhandle);

impl Handle {
    fn new(kind: raw::TJINIT) -> Option<Self> {
        // SAFETY: no preconditions; a null handle is a failure.
        let handle = unsafe { raw::tj3Init(kind as i32) };
        if handle.is_null() {
            return None;
        }
        let handle = Self(handle);
        // SAFETY: the handle is valid.
        let status =
            unsafe { raw::tj3Set(handle.0, raw::TJPARAM_TJPARAM_SUBSAMP as i32, raw::TJSAMP_TJSAMP_420) };
        (status == 0).then_some(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        unsafe { raw::tj3Destroy(self.0) }
    }
}

const fn is_even((width, height): (u32, u32)) -> bool {
    width % 2 == 0 && height % 2 == 0
}

/// Converts BGR or BGRA to planes without gaps. Returns false if this was not done.
pub(super) fn fill(image: &ImageView<'_>, planes: [&mut [u8]; 3]) -> bool {
    let (width, height) = (image.width(), image.height());
    let format = match image.format() {
        PixelFormat::Bgr8 => raw::TJPF_TJPF_BGR,
        PixelFormat::Bgra8 => raw::TJPF_TJPF_BGRA,
        PixelFormat::Gray8 => return false,
    };
    let (luma, chroma) = (width as usize * height as usize, (width / 2) as usize * (height / 2) as usize);
    if !is_even((width, height)) || planes.each_ref().map(|plane| plane.len()) != [luma, chroma, chroma] {
        return false;
    }
    let Some(handle) = Handle::new(raw::TJINIT_TJINIT_COMPRESS) else { return false };
    let mut pointers = planes.map(|plane| plane.as_mut_ptr());
    let mut strides = [width as i32, width as i32 / 2, width as i32 / 2];
    // SAFETY: a view holds `height` rows of `width` pixels at its stride (its constructor checks this, and that
    // the stride fits an int). With even sides, the planes have exactly the sizes that were just compared.
    let status = unsafe {
        raw::tj3EncodeYUVPlanes8(
            handle.0,
            image.data().as_ptr(),
            width as i32,
            image.row_stride_bytes() as i32,
            height as i32,
            format,
            pointers.as_mut_ptr(),
            strides.as_mut_ptr(),
        )
    };
    status == 0
}

/// Converts planes to BGR without gaps. Returns false if this was not done.
pub(super) fn to_bgr(planes: &Planes<'_>, (width, height): (u32, u32), output: &mut [u8]) -> bool {
    let (w, h) = (width as usize, height as usize);
    let last_row = |stride: usize, rows: usize, width: usize| stride * (rows - 1) + width;
    let strides = [planes.luma_stride, planes.chroma_stride, planes.chroma_stride];
    let held = w > 0
        && h > 0
        && is_even((width, height))
        && output.len() == 3 * w * h
        && planes.luma_stride >= w
        && planes.chroma_stride >= w / 2
        && planes.luma.len() >= last_row(planes.luma_stride, h, w)
        && [planes.blue, planes.red]
            .iter()
            .all(|plane| plane.len() >= last_row(planes.chroma_stride, h / 2, w / 2));
    let (Ok(pitch), Ok(luma), Ok(chroma)) =
        (i32::try_from(3 * w), i32::try_from(strides[0]), i32::try_from(strides[1]))
    else {
        return false;
    };
    if !held {
        return false;
    }
    let Some(handle) = Handle::new(raw::TJINIT_TJINIT_DECOMPRESS) else { return false };
    let pointers = [planes.luma.as_ptr(), planes.blue.as_ptr(), planes.red.as_ptr()];
    let strides = [luma, chroma, chroma];
    // SAFETY: all planes and the output have the rows that were just compared, and only the output is written.
    let status = unsafe {
        raw::tj3DecodeYUVPlanes8(
            handle.0,
            pointers.as_ptr(),
            strides.as_ptr(),
            output.as_mut_ptr(),
            width as i32,
            pitch,
            height as i32,
            raw::TJPF_TJPF_BGR,
        )
    };
    status == 0
}
