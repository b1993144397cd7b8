//! Pictures and JPEGs for all tests.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub mod declared;

use mez_media::jpeg::{Encoder, Sampling};
use mez_media::{ImageView, PixelFormat};

/// A picture with gradients, an edge and some texture, to detect all kinds of codec errors.
pub fn picture(width: u32, height: u32, format: PixelFormat, seed: u32) -> Vec<u8> {
    let mut noise = seed.wrapping_mul(2_654_435_761) | 1;
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let texture = (noise >> 28) as u8;
            let slope_x = (x * 200 / width.max(1)) as u8;
            let slope_y = (y * 200 / height.max(1)) as u8;
            let edge = if (x + y + seed) % 40 < 20 { 30 } else { 0 };
            let bgra = [slope_x + texture, slope_y + texture + edge, 220 - slope_x / 2, 77];
            pixels.extend_from_slice(match format {
                PixelFormat::Gray8 => &bgra[..1],
                PixelFormat::Bgr8 => &bgra[..3],
                PixelFormat::Bgra8 => &bgra[..4],
            });
        }
    }
    pixels
}

/// [`picture`] as a colour JPEG.
pub fn jpeg(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let pixels = picture(width, height, PixelFormat::Bgr8, seed);
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap();
    Encoder::new(80, Sampling::Yuv420).unwrap().encode(&view).unwrap().to_vec()
}

/// [`picture`] as a JPEG made directly with libjpeg-turbo, for kinds that Mez does not write.
pub fn native_jpeg(
    width: u32,
    height: u32,
    format: turbojpeg::PixelFormat,
    set: impl FnOnce(&mut turbojpeg::Compressor),
) -> Vec<u8> {
    let mez_format = match format.size() {
        1 => PixelFormat::Gray8,
        3 => PixelFormat::Bgr8,
        _ => PixelFormat::Bgra8,
    };
    let pixels = picture(width, height, mez_format, 5);
    let mut compressor = turbojpeg::Compressor::new().unwrap();
    compressor.set_quality(80).unwrap();
    set(&mut compressor);
    let (width, height) = (width as usize, height as usize);
    let image = turbojpeg::Image { pixels: &pixels[..], width, pitch: width * format.size(), height, format };
    compressor.compress_to_vec(image).unwrap()
}

/// Inserts a segment directly after the start marker of a JPEG.
pub fn with_segment(jpeg: &[u8], code: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0xFF, 0xD8, 0xFF, code];
    out.extend_from_slice(&u16::try_from(payload.len() + 2).unwrap().to_be_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&jpeg[2..]);
    out
}

/// Removes the segments with this code, which must come before the image data.
pub fn without_segments(jpeg: &[u8], code: u8) -> Vec<u8> {
    let mut out = jpeg[..2].to_vec();
    let mut at = 2;
    while jpeg[at + 1] != 0xDA {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        if jpeg[at + 1] != code {
            out.extend_from_slice(&jpeg[at..end]);
        }
        at = end;
    }
    out.extend_from_slice(&jpeg[at..]);
    out
}

/// Position of the first marker with this code.
pub fn find_marker(jpeg: &[u8], code: u8) -> usize {
    jpeg.windows(2).position(|pair| pair == [0xFF, code]).expect("the marker is there")
}

/// FNV-1a, to store a golden result as one number.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
