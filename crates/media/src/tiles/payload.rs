//! Reads and writes the payload of a tile frame without its JPEG (`docs/tiles.md`).

use thiserror::Error;

/// Pixels along a side of a tile. At half resolution, the chroma of a tile is 2×2 JPEG blocks of 8×8, so no block crosses a tile's border.
pub const TILE_SIDE: u32 = 32;
/// The version of the format.
pub const VERSION: u8 = 1;
/// Bytes before the number of runs.
const HEADER_BYTES: usize = 6;

/// The tiles that cover a picture, row by row from the top left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Grid {
    pub(super) fn columns(self) -> usize {
        self.width.div_ceil(TILE_SIDE) as usize
    }

    pub(super) fn tiles(self) -> usize {
        self.columns() * self.height.div_ceil(TILE_SIDE) as usize
    }

    /// Position of a tile, and how many of its columns and rows lie inside the picture.
    pub(super) fn tile(self, index: usize) -> Tile {
        let side = TILE_SIDE as usize;
        let (x, y) = (index % self.columns() * side, index / self.columns() * side);
        let (width, height) = (self.width as usize, self.height as usize);
        Tile { x, y, width: side.min(width - x), height: side.min(height - y) }
    }
}

/// Position and size of a tile in its picture, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// Columns and rows of tiles on the sheet in which `count` tiles of a grid are encoded. The sheet is at most as
/// wide as the grid, with as few rows and then as few columns as possible. All tiles of a grid keep their places.
pub(super) fn sheet(count: usize, grid: Grid) -> (usize, usize) {
    let rows = count.div_ceil(grid.columns());
    (count.div_ceil(rows.max(1)), rows)
}

/// Why a payload is not a valid tile payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GridError {
    /// The payload ends within its header or runs.
    #[error("it ends after {len_bytes} bytes, inside its header")]
    Truncated {
        /// Number of bytes.
        len_bytes: usize,
    },
    /// The payload has another version.
    #[error("its version is {version}, this software knows {VERSION}")]
    Version {
        /// The version.
        version: u8,
    },
    /// A side is zero, or the picture has more pixels than allowed.
    #[error("it is {width}x{height}; both sides must be at least 1 and all pixels at most {pixels_max}")]
    Size {
        /// Width in the header, in pixels.
        width: u32,
        /// Height in the header, in pixels.
        height: u32,
        /// The limit, in pixels.
        pixels_max: u64,
    },
    /// Flags, runs or counts are invalid.
    #[error("its {field} cannot be {value}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

/// A payload's header, runs and JPEG.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload<'a> {
    pub(super) grid: Grid,
    pub(super) grey: bool,
    /// Indices of the tiles in the JPEG, ascending.
    pub(super) tiles: Vec<u32>,
    pub(super) jpeg: &'a [u8],
}

/// Writes everything before the JPEG. `tiles` must be ascending.
pub(super) fn write(grid: Grid, grey: bool, tiles: &[u32], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.push(u8::from(grey));
    out.extend_from_slice(&(grid.width as u16).to_le_bytes());
    out.extend_from_slice(&(grid.height as u16).to_le_bytes());
    let mut runs: Vec<(u32, u32)> = Vec::new();
    let mut end = 0;
    for &tile in tiles {
        match runs.last_mut() {
            Some((_, taken)) if tile == end => *taken += 1,
            _ => runs.push((tile - end, 1)),
        }
        end = tile + 1;
    }
    write_number(runs.len() as u32, out);
    for (passed, taken) in runs {
        write_number(passed, out);
        write_number(taken, out);
    }
}

/// Reads a payload. Takes memory for at most the tiles of a picture of `pixels_max` pixels.
pub(super) fn read(bytes: &[u8], pixels_max: u64) -> Result<Payload<'_>, GridError> {
    let truncated = GridError::Truncated { len_bytes: bytes.len() };
    // The shortest payload has a header and no runs.
    let &[version, flags, w0, w1, h0, h1, ref rest @ ..] = bytes else { return Err(truncated) };
    if version != VERSION {
        return Err(GridError::Version { version });
    }
    if flags > 1 {
        return Err(GridError::Value { field: "flags", value: flags.into() });
    }
    let grid =
        Grid { width: u16::from_le_bytes([w0, w1]).into(), height: u16::from_le_bytes([h0, h1]).into() };
    let pixels = u64::from(grid.width) * u64::from(grid.height);
    if pixels == 0 || pixels > pixels_max {
        return Err(GridError::Size { width: grid.width, height: grid.height, pixels_max });
    }
    let mut rest = rest;
    let mut number = || read_number(&mut rest, &truncated);
    let mut tiles = Vec::new();
    let mut end = 0u64;
    for run in 0..number()? {
        let (passed, taken) = (number()?, number()?);
        // A payload has only one form: two runs without a tile between them must be one run.
        if taken == 0 || (run > 0 && passed == 0) {
            return Err(GridError::Value { field: "run", value: taken.into() });
        }
        let start = end + u64::from(passed);
        end = start + u64::from(taken);
        if end > grid.tiles() as u64 {
            return Err(GridError::Value { field: "last tile", value: end });
        }
        tiles.extend(start as u32..end as u32);
    }
    if tiles.is_empty() && !rest.is_empty() {
        return Err(GridError::Value { field: "number of bytes after no tiles", value: rest.len() as u64 });
    }
    Ok(Payload { grid, grey: flags == 1, tiles, jpeg: rest })
}

/// LEB128: seven bits in each byte, lowest first. The top bit is set in all bytes but the last.
fn write_number(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(rest: &mut &[u8], truncated: &GridError) -> Result<u32, GridError> {
    let mut number = 0u64;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, tail) = rest.split_first().ok_or_else(|| truncated.clone())?;
        *rest = tail;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            // A number must have its shortest form.
            let canonical = byte != 0 || shift == 0;
            return match u32::try_from(number) {
                Ok(number) if canonical => Ok(number),
                _ => Err(GridError::Value { field: "number", value: number }),
            };
        }
    }
    Err(GridError::Value { field: "number", value: number })
}

/// Maximum bytes of header and runs.
pub(super) fn head_bytes_max(tiles: usize) -> usize {
    HEADER_BYTES + 5 + 2 * 5 * tiles.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            width in 1u32..400,
            height in 1u32..400,
            grey in any::<bool>(),
            chosen in any::<u64>(),
            all in any::<bool>(),
        ) {
            let grid = Grid { width, height };
            let tiles: Vec<u32> =
                (0..grid.tiles() as u32).filter(|tile| all || chosen >> (tile % 64) & 1 == 1).collect();
            let mut bytes = Vec::new();
            write(grid, grey, &tiles, &mut bytes);
            prop_assert!(bytes.len() <= head_bytes_max(grid.tiles()));
            let jpeg: &[u8] = if tiles.is_empty() { b"" } else { b"jpeg" };
            bytes.extend_from_slice(jpeg);
            prop_assert_eq!(read(&bytes, 1 << 20), Ok(Payload { grid, grey, tiles, jpeg }));
        }

        /// A payload has only one form: writing its content again gives the same bytes.
        #[test]
        fn foreign_bytes_are_errors_or_canonical(bytes in prop::collection::vec(0u8..8, 0..40)) {
            let bytes = [&[VERSION][..], &bytes].concat();
            if let Ok(payload) = read(&bytes, 1 << 16) {
                let mut again = Vec::new();
                write(payload.grid, payload.grey, &payload.tiles, &mut again);
                again.extend_from_slice(payload.jpeg);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn sheets_waste_little_and_keep_a_whole_picture_as_it_is() {
        let grid = Grid { width: 1920, height: 1080 };
        assert_eq!((grid.columns(), grid.tiles()), (60, 2040));
        assert_eq!(sheet(2040, grid), (60, 34));
        assert_eq!(sheet(61, grid), (31, 2));
        assert_eq!(sheet(5, grid), (5, 1));
        assert_eq!(sheet(0, grid), (0, 0));
        assert_eq!(grid.tile(2039), Tile { x: 1888, y: 1056, width: 32, height: 24 });
    }
}
