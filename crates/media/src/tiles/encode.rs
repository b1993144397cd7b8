//! Finds the tiles that changed, and encodes them.

use bytes::Bytes;
use mez_core::setting::{Jpeg, Quality};

use super::Base;
use super::payload::{Grid, TILE_SIDE, head_bytes_max, sheet, write};
use crate::image::{Image, ImageView, PixelFormat};
use crate::jpeg::{EncodeError, Encoder, Sampling, lower_quality};

/// A block of 8×8 pixels has changed if its bytes differ on average by more than this from those last sent. The value is above
/// the noise of cameras (two pictures with noise of three grey levels differ by 3.4), and below what a detector notices.
const CHANGE: u32 = 6;
/// The lowest JPEG quality that a byte budget may force.
const QUALITY_FLOOR: u8 = 10;
/// Maximum number of attempts to fit a frame into its budget.
const ATTEMPTS_MAX: u32 = 6;
/// In each frame, at most one tile in this many is sent again because it is coarser than the rung. All
/// tiles are refined within one or two seconds, for a few percent of a whole picture's bytes per frame.
const REFINED_ONE_IN: usize = 16;
/// A tile is coarse if its JPEG quality is this far below the rung's.
const COARSE: u8 = 5;

/// An encoded frame of tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileFrame {
    /// The bytes to send (`docs/tiles.md`).
    pub payload: Bytes,
    /// Number of tiles in the payload.
    pub tiles: usize,
    /// Number of tiles in the whole picture.
    pub tiles_of: usize,
    /// The quality of the payload's tiles: that of the setting, or a lower one that the budget forced.
    pub quality: Quality,
    /// The lowest quality of all tiles of the picture that the receiver then shows.
    pub quality_min: Quality,
    /// Whether the payload is within the budget.
    pub fits: bool,
}

/// Encodes the changed tiles of one stream. Remembers for each tile the source pixels last sent, the frame and the quality.
pub struct TileEncoder {
    encoder: Encoder,
    /// The source pixels of every tile when it was last sent.
    sent: Image,
    /// The number of the frame in which each tile was last sent.
    sent_in: Vec<u64>,
    /// The quality at which each tile was last sent.
    sent_at: Vec<u8>,
    /// The tile at which the search for coarse tiles continues.
    refine_from: usize,
    sheet: Image,
    /// Indices of the frame's tiles, ascending.
    changed: Vec<u32>,
    /// Those of `changed` that did not change and are sent again because they are coarse.
    refined: Vec<u32>,
}

impl std::fmt::Debug for TileEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TileEncoder").field("tiles", &self.sent_in.len()).finish_non_exhaustive()
    }
}

impl TileEncoder {
    /// An encoder that has sent nothing.
    ///
    /// # Errors
    /// [`EncodeError::Codec`] if memory is short.
    pub fn new() -> Result<Self, EncodeError> {
        Ok(Self {
            encoder: Encoder::new(80, Sampling::Yuv420)?,
            sent: Image::empty(),
            sent_in: Vec::new(),
            sent_at: Vec::new(),
            refine_from: 0,
            sheet: Image::empty(),
            changed: Vec::new(),
            refined: Vec::new(),
        })
    }

    /// Whether a frame of this picture can build on earlier frames: they have its size and format.
    #[must_use]
    pub fn continues(&self, image: &ImageView<'_>) -> bool {
        (self.sent.width(), self.sent.height(), self.sent.format())
            == (image.width(), image.height(), image.format())
    }

    /// Encodes the tiles of `image` (BGR or grey) that the receiver does not hold. `number` must increase with every
    /// frame. `image` must already have the scale of `setting`. If the payload is above `bytes_max`, the quality is
    /// lowered. Tiles sent with a lowered quality are sent again later, a few in each frame with room. If a frame does
    /// not fit at the lowest quality, `fits` is false: send it anyway, or drop it and call [`TileEncoder::forget`].
    ///
    /// # Errors
    /// [`EncodeError`]; then nothing counts as sent.
    pub fn encode(
        &mut self,
        image: &ImageView<'_>,
        setting: &Jpeg,
        number: u64,
        base: Base,
        bytes_max: Option<usize>,
    ) -> Result<TileFrame, EncodeError> {
        let (width, height) = (image.width(), image.height());
        if width > u32::from(u16::MAX) || height > u32::from(u16::MAX) {
            return Err(EncodeError::TooLarge { width, height });
        }
        if image.format() == PixelFormat::Bgra8 {
            let detail = "tiles are made of BGR or grey pixels".into();
            return Err(EncodeError::Codec { detail });
        }
        let grid = Grid { width, height };
        let base = if self.continues(image) { base } else { Base::Nothing };
        self.find(image, grid, base);
        self.refine(grid, base, setting.quality);
        let grey = image.format() == PixelFormat::Gray8 || setting.sampling == Sampling::Grey;
        self.encoder.set_sampling(setting.sampling);
        let mut quality = setting.quality.get();
        self.lay_out(image, grid);
        let mut head = Vec::with_capacity(head_bytes_max(self.changed.len()));
        write(grid, grey, &self.changed, &mut head);
        let mut payload;
        let mut attempt = 0;
        loop {
            payload = head.clone();
            if let Some(view) = self.sheet.view().filter(|_| !self.changed.is_empty()) {
                self.encoder.set_quality(quality)?;
                append_without_tables(&self.encoder.encode(&view)?, &mut payload);
            }
            attempt += 1;
            let over = bytes_max.filter(|most| payload.len() > *most);
            if over.is_some() && !self.refined.is_empty() {
                // Coarse tiles can wait.
                self.changed.retain(|index| self.refined.binary_search(index).is_err());
                self.refined.clear();
                self.lay_out(image, grid);
                head.clear();
                write(grid, grey, &self.changed, &mut head);
                attempt -= 1;
                continue;
            }
            let Some(most) = over.filter(|_| quality > QUALITY_FLOOR && attempt < ATTEMPTS_MAX) else {
                break;
            };
            quality = lower_quality(quality, QUALITY_FLOOR, payload.len(), most, attempt + 1 == ATTEMPTS_MAX);
        }
        self.remember(image, grid, number, quality);
        let quality_min = self.sent_at.iter().copied().min().unwrap_or(quality);
        Ok(TileFrame {
            tiles: self.changed.len(),
            tiles_of: grid.tiles(),
            quality: Quality::clamped(quality),
            quality_min: Quality::clamped(quality_min),
            fits: bytes_max.is_none_or(|most| payload.len() <= most),
            payload: payload.into(),
        })
    }

    /// Reports that the last frame was not sent. The next frame is independent.
    pub fn forget(&mut self) {
        self.sent = Image::empty();
        self.sent_in.clear();
        self.sent_at.clear();
    }

    /// Bytes of memory that the encoder holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sent.data().len()
            + self.sheet.data().len()
            + self.sent_in.len() * 9
            + (self.changed.capacity() + self.refined.capacity()) * 4
    }

    /// Adds some coarse tiles to the frame, in turn.
    fn refine(&mut self, grid: Grid, base: Base, quality: Quality) {
        self.refined.clear();
        if base == Base::Nothing {
            return;
        }
        let (tiles, most) = (grid.tiles(), grid.tiles().div_ceil(REFINED_ONE_IN));
        let is_coarse = |index: &usize| {
            self.sent_at[*index].saturating_add(COARSE) <= quality.get()
                && self.changed.binary_search(&(*index as u32)).is_err()
        };
        let in_turn = (0..tiles).map(|step| (self.refine_from + step) % tiles);
        self.refined.extend(in_turn.filter(is_coarse).take(most).map(|index| index as u32));
        if let Some(last) = self.refined.last() {
            self.refine_from = *last as usize + 1;
            self.refined.sort_unstable();
            self.changed.extend(&self.refined);
            self.changed.sort_unstable();
        }
    }

    fn find(&mut self, image: &ImageView<'_>, grid: Grid, base: Base) {
        self.changed.clear();
        let all = 0..grid.tiles() as u32;
        let after = match base {
            Base::Nothing => return self.changed.extend(all),
            Base::Last => u64::MAX,
            Base::Frame(number) => number,
        };
        let channels = image.format().bytes_per_pixel();
        let stride = grid.width as usize * channels;
        for index in all {
            let tile = grid.tile(index as usize);
            let lost = self.sent_in[index as usize] > after;
            let differs = || {
                (0..tile.height).step_by(8).any(|dy| {
                    let rows = 8.min(tile.height - dy);
                    (0..tile.width).step_by(8).any(|dx| {
                        let row_bytes = 8.min(tile.width - dx) * channels;
                        let sum: u32 = (0..rows)
                            .map(|row| {
                                let (x, y) = ((tile.x + dx) * channels, tile.y + dy + row);
                                let now = &image.data()[y * image.row_stride_bytes() + x..][..row_bytes];
                                let then = &self.sent.data()[y * stride + x..][..row_bytes];
                                now.iter().zip(then).map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>()
                            })
                            .sum();
                        sum > CHANGE * (rows * row_bytes) as u32
                    })
                })
            };
            if lost || differs() {
                self.changed.push(index);
            }
        }
    }

    /// Lays the changed tiles side by side. Tiles that the picture cuts off are filled with its last column and row.
    fn lay_out(&mut self, image: &ImageView<'_>, grid: Grid) {
        let (columns, rows) = sheet(self.changed.len(), grid);
        let side = TILE_SIDE as usize;
        let channels = image.format().bytes_per_pixel();
        let mut sheet = self.sheet.reset((columns * side) as u32, (rows * side) as u32, image.format());
        let stride = columns * side * channels;
        let pixels = sheet.data_mut();
        // Empty places cost least if all their pixels are equal.
        pixels.fill(128);
        for (place, &index) in self.changed.iter().enumerate() {
            let tile = grid.tile(index as usize);
            let (x, y) = (place % columns * side, place / columns * side);
            for row in 0..side {
                let from_row = tile.y + row.min(tile.height - 1);
                let at = from_row * image.row_stride_bytes() + tile.x * channels;
                let from = &image.data()[at..][..tile.width * channels];
                let to = &mut pixels[(y + row) * stride + x * channels..][..side * channels];
                to[..from.len()].copy_from_slice(from);
                let last = from.len() - channels;
                for pixel in to[from.len()..].chunks_exact_mut(channels) {
                    pixel.copy_from_slice(&from[last..]);
                }
            }
        }
    }

    fn remember(&mut self, image: &ImageView<'_>, grid: Grid, number: u64, quality: u8) {
        let channels = image.format().bytes_per_pixel();
        if !self.continues(image) {
            self.sent.reset(grid.width, grid.height, image.format());
            self.sent_in = vec![0; grid.tiles()];
            self.sent_at = vec![0; grid.tiles()];
        }
        let stride = grid.width as usize * channels;
        let mut sent = self.sent.reset(grid.width, grid.height, image.format());
        for &index in &self.changed {
            let tile = grid.tile(index as usize);
            self.sent_in[index as usize] = number;
            self.sent_at[index as usize] = quality;
            for y in tile.y..tile.y + tile.height {
                let from = &image.data()[y * image.row_stride_bytes() + tile.x * channels..];
                let to = &mut sent.data_mut()[y * stride + tile.x * channels..];
                to[..tile.width * channels].copy_from_slice(&from[..tile.width * channels]);
            }
        }
    }
}

/// Appends a JPEG without the segments that every decoder knows: the application segment, and the
/// standard Huffman tables (ITU-T T.81, annex K.3). They are 440 of the 620 bytes before the JPEG's data.
fn append_without_tables(jpeg: &[u8], out: &mut Vec<u8>) {
    let (start, mut rest) = jpeg.split_at(2);
    out.extend_from_slice(start);
    while let &[0xFF, code, high, low, ..] = rest
        && code != 0xDA
    {
        let (segment, tail) = rest.split_at(2 + usize::from(u16::from_be_bytes([high, low])));
        if !matches!(code, 0xC4 | 0xE0..=0xEF) {
            out.extend_from_slice(segment);
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
}
