//! Fuzzes the decoder of changed tiles.

use mez_media::tiles::{TileDecoder, TileError};

/// Maximum number of pixels that are decoded. It is small, so that many headers claim more.
const PIXELS_MAX: u64 = 1 << 14;

/// The input is two frames. Its first two bytes give the length of the first frame.
pub fn tiles(bytes: &[u8]) {
    let [low, high, rest @ ..] = bytes else { return };
    let (first, second) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
    let mut decoder = TileDecoder::new(PIXELS_MAX);
    let held = decode(&mut decoder, first);
    let then = decode(&mut decoder, second);
    if then.is_none() && held.is_some() {
        // A refused frame changes nothing: it is refused again for the same reason, and the picture is kept.
        assert!(decoder.decode(second).is_err());
    }
    // The result does not depend on what another decoder did before.
    let mut fresh = TileDecoder::new(PIXELS_MAX);
    assert_eq!(decode(&mut fresh, first), held);
    assert_eq!(decode(&mut fresh, second), then);
}

/// Runs an input and returns how many frames are decoded, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> usize {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return 0 };
    let (first, second) = rest.split_at(usize::from(u16::from_le_bytes(*length)));
    let mut decoder = TileDecoder::new(PIXELS_MAX);
    [first, second].into_iter().filter(|frame| decoder.decode(frame).is_ok()).count()
}

fn decode(decoder: &mut TileDecoder, payload: &[u8]) -> Option<Vec<u8>> {
    match decoder.decode(payload) {
        Ok(image) => {
            let pixels = u64::from(image.width()) * u64::from(image.height());
            assert!((1..=PIXELS_MAX).contains(&pixels));
            assert_eq!(image.data().len() as u64, pixels * image.format().bytes_per_pixel() as u64);
            Some(image.data().to_vec())
        }
        Err(TileError::NothingHeld { tiles, tiles_of }) => {
            assert!(tiles < tiles_of);
            None
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
