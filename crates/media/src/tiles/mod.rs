//! Encodes only the changed tiles of a picture, as one JPEG. It suits cameras that stand still, where a video codec is missing or too slow.
//!
//! A picture is cut into tiles of 32×32 pixels. Tiles that differ from what the receiver holds are laid side by side in one JPEG;
//! `docs/tiles.md` has every byte of the payload. A frame with all tiles is independent. Any other frame needs the frames before it in its
//! chain.

mod decode;
mod encode;
mod payload;

pub use decode::{TileDecoder, TileError};
pub use encode::{TileEncoder, TileFrame};
pub use payload::{GridError, TILE_SIDE, VERSION};

/// What the receiver is known to hold when a frame is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// Nothing: all tiles are sent.
    Nothing,
    /// The last frame that was encoded.
    Last,
    /// The frame with this number, and perhaps later ones. Every tile that was sent since is sent again.
    Frame(u64),
}
