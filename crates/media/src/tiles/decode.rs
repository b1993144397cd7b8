//! Decodes changed tiles into the picture that the receiver holds.

use thiserror::Error;

use super::payload::{GridError, Payload, TILE_SIDE, read, sheet};
use crate::image::{Image, PixelFormat};
use crate::jpeg::{DecodeError, Decoder, probe};

/// Why a frame of tiles could not be decoded. The held picture is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TileError {
    /// The bytes before the JPEG are invalid.
    #[error("the frame of tiles is damaged: {0}")]
    Grid(#[from] GridError),
    /// The JPEG is damaged.
    #[error("the tiles are damaged: {0}")]
    Jpeg(#[from] DecodeError),
    /// The JPEG has another size than its tiles.
    #[error(
        "{tiles} tiles take {expected_width}x{expected_height} pixels, but their JPEG has {width}x{height}"
    )]
    Sheet {
        /// Number of tiles in the payload.
        tiles: usize,
        /// Width of the tiles' sheet, in pixels.
        expected_width: u32,
        /// Height of the tiles' sheet, in pixels.
        expected_height: u32,
        /// Width of the JPEG, in pixels.
        width: u32,
        /// Height of the JPEG, in pixels.
        height: u32,
    },
    /// The frame changes a picture that is not held: there is none, or it has another size or format.
    #[error(
        "the frame has {tiles} of {tiles_of} tiles, and the picture that they change is not held; ask for an independent frame"
    )]
    NothingHeld {
        /// Number of tiles in the payload.
        tiles: usize,
        /// Number of tiles in the picture.
        tiles_of: usize,
    },
}

/// Decodes frames of tiles, one after another. Bytes from outside become errors,
/// never panics, and never take more memory than the allowed pixels need.
#[derive(Debug)]
pub struct TileDecoder {
    decoder: Decoder,
    pixels_max: u64,
    held: Image,
    sheet: Image,
}

impl TileDecoder {
    /// A decoder of pictures of at most `pixels_max` pixels. It holds no picture.
    #[must_use]
    pub fn new(pixels_max: u64) -> Self {
        // No limit here: a sheet holds whole tiles, so it may have more pixels than the picture.
        let decoder = Decoder::new(u64::MAX);
        Self { decoder, pixels_max, held: Image::empty(), sheet: Image::empty() }
    }

    /// Decodes the tiles of a frame into the held picture, and returns this picture.
    /// The caller must have checked the chain: the frame must build on this picture.
    ///
    /// # Errors
    /// [`TileError`]; the held picture stays as it was.
    pub fn decode(&mut self, payload: &[u8]) -> Result<&Image, TileError> {
        let payload = read(payload, self.pixels_max)?;
        let grid = payload.grid;
        let format = if payload.grey { PixelFormat::Gray8 } else { PixelFormat::Bgr8 };
        let fits =
            (self.held.width(), self.held.height(), self.held.format()) == (grid.width, grid.height, format);
        let (tiles, tiles_of) = (payload.tiles.len(), grid.tiles());
        if !fits && tiles < tiles_of {
            return Err(TileError::NothingHeld { tiles, tiles_of });
        }
        if tiles > 0 {
            self.decode_sheet(&payload, format)?;
            self.paint(&payload, format);
        }
        Ok(&self.held)
    }

    /// The held picture. Empty if there is none.
    #[must_use]
    pub fn held(&self) -> &Image {
        &self.held
    }

    /// Forgets the held picture.
    pub fn forget(&mut self) {
        self.held = Image::empty();
    }

    fn decode_sheet(&mut self, payload: &Payload<'_>, format: PixelFormat) -> Result<(), TileError> {
        let (columns, rows) = sheet(payload.tiles.len(), payload.grid);
        let (expected_width, expected_height) = (columns as u32 * TILE_SIDE, rows as u32 * TILE_SIDE);
        let info = probe(payload.jpeg)?;
        let (width, height) = (info.width, info.height);
        if (width, height) != (expected_width, expected_height) {
            let tiles = payload.tiles.len();
            return Err(TileError::Sheet { tiles, expected_width, expected_height, width, height });
        }
        self.decoder.decode(payload.jpeg, format, &mut self.sheet)?;
        Ok(())
    }

    fn paint(&mut self, payload: &Payload<'_>, format: PixelFormat) {
        let grid = payload.grid;
        let channels = format.bytes_per_pixel();
        let (columns, _) = sheet(payload.tiles.len(), grid);
        let side = TILE_SIDE as usize;
        let (stride, sheet_stride) = (grid.width as usize * channels, columns * side * channels);
        let mut held = self.held.reset(grid.width, grid.height, format);
        let held = held.data_mut();
        for (place, &index) in payload.tiles.iter().enumerate() {
            let tile = grid.tile(index as usize);
            let (x, y) = (place % columns * side, place / columns * side);
            for row in 0..tile.height {
                let from = &self.sheet.data()[(y + row) * sheet_stride + x * channels..];
                let to = &mut held[(tile.y + row) * stride + tile.x * channels..];
                to[..tile.width * channels].copy_from_slice(&from[..tile.width * channels]);
            }
        }
    }
}
