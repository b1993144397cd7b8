//! Knob 4: keeps only moving regions, or only their outlines.
//!
//! As in the paper (`absdiff`, `threshold`, `dilate`, `findContours`), a pixel moves if two consecutive frames differ there by
//! more than 20 in any channel. Moving spots are widened by three pixels in each direction, which joins the spots of one object.
//! Background subtraction keeps these regions and blackens the rest. Contours keep only the rims of the regions, white on black.
//!
//! A person who stands still for one frame disappears. This follows from the knob's definition; a profile shows the loss of accuracy.

use mez_core::setting::Artefacts;

use crate::image::{Image, PixelFormat};

/// Motion is a difference of more than this between two frames.
const THRESHOLD: u8 = 20;
/// Pixels by which moving spots are widened: the same as three dilations with a box of 3×3.
const WIDEN: usize = 3;

/// State of the knob: the last frame, with which the next one is compared.
#[derive(Debug, Default)]
pub struct Motion {
    last: Image,
    moving: Vec<u8>,
    spare: Vec<u8>,
}

impl Motion {
    /// Applies the knob to the next frame, in place. A frame without a comparable predecessor (the first
    /// frame, or the first of another size or format) stays as it is: everything counts as moving.
    pub fn remove(&mut self, kind: Artefacts, image: &mut Image) {
        if kind == Artefacts::Keep {
            self.last = Image::empty();
            return;
        }
        let comparable = (self.last.width(), self.last.height(), self.last.format())
            == (image.width(), image.height(), image.format());
        if !comparable {
            self.last.clone_from(image);
            return;
        }
        self.find(image);
        self.last.clone_from(image);
        let (width, height) = (image.width() as usize, image.height() as usize);
        let format = image.format();
        let mut pixels = image.reset(width as u32, height as u32, format);
        let pixels = pixels.data_mut().chunks_exact_mut(format.bytes_per_pixel());
        match kind {
            Artefacts::Keep => {}
            Artefacts::Moving => {
                for (pixel, &moving) in pixels.zip(&self.moving) {
                    pixel.iter_mut().for_each(|value| *value &= moving);
                }
            }
            Artefacts::Contours => {
                let is_rim = |x: usize, y: usize| {
                    let at = y * width + x;
                    self.moving[at] != 0
                        && (x == 0
                            || y == 0
                            || x + 1 == width
                            || y + 1 == height
                            || self.moving[at - 1] == 0
                            || self.moving[at + 1] == 0
                            || self.moving[at - width] == 0
                            || self.moving[at + width] == 0)
                };
                for (at, pixel) in pixels.enumerate() {
                    pixel.fill(if is_rim(at % width, at / width) { 255 } else { 0 });
                }
            }
        }
    }

    /// Fills `moving` with 255 where something moves and 0 elsewhere.
    fn find(&mut self, image: &Image) {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let over = |(a, b): (&u8, &u8)| a.abs_diff(*b) > THRESHOLD;
        self.moving.clear();
        match image.format() {
            PixelFormat::Gray8 => {
                let pairs = image.data().iter().zip(self.last.data());
                self.moving.extend(pairs.map(|pair| if over(pair) { 255 } else { 0 }));
            }
            format => {
                let channels = format.bytes_per_pixel();
                let pairs = image.data().chunks_exact(channels).zip(self.last.data().chunks_exact(channels));
                let moves = |(a, b): (&[u8], &[u8])| a.iter().zip(b).any(over);
                self.moving.extend(pairs.map(|pair| if moves(pair) { 255 } else { 0 }));
            }
        }
        widen_rows(&self.moving, width, &mut self.spare);
        widen_columns(&self.spare, width, height, &mut self.moving);
    }
}

fn widen_rows(source: &[u8], width: usize, target: &mut Vec<u8>) {
    target.clear();
    target.resize(source.len(), 0);
    for (from, to) in source.chunks_exact(width).zip(target.chunks_exact_mut(width)) {
        // The row is filled up to here.
        let mut done = 0;
        for (x, _) in from.iter().enumerate().filter(|(_, moving)| **moving != 0) {
            let end = (x + WIDEN + 1).min(width);
            let start = x.saturating_sub(WIDEN).max(done);
            if start < end {
                to[start..end].fill(255);
                done = end;
            }
        }
    }
}

fn widen_columns(source: &[u8], width: usize, height: usize, target: &mut [u8]) {
    for (y, to) in target.chunks_exact_mut(width).enumerate() {
        to.fill(0);
        let rows = y.saturating_sub(WIDEN)..(y + WIDEN + 1).min(height);
        for from in source[rows.start * width..rows.end * width].chunks_exact(width) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
        }
    }
}
