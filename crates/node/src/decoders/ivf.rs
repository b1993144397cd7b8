//! Writes IVF, which contains the length of every picture, so that a reader can decode a picture before the next one comes.

use mez_core::frame::Encoding;

/// Length of the header of a picture.
pub(super) const FRAME_HEADER_BYTES: usize = 12;
/// Length of the header of a file.
const FILE_HEADER_BYTES: usize = 32;

/// The header of a file. Sides over 65,535 are written as 0; the stream contains them.
pub(super) fn file_header(encoding: Encoding, (width, height): (u32, u32)) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..4].copy_from_slice(b"DKIF");
    header[6] = 32;
    header[8..12].copy_from_slice(match encoding {
        Encoding::H265 => b"HEVC",
        Encoding::Av1 => b"AV01",
        _ => b"H264",
    });
    let side = |side: u32| u16::try_from(side).unwrap_or_default().to_le_bytes();
    header[12..14].copy_from_slice(&side(width));
    header[14..16].copy_from_slice(&side(height));
    // Time stamps are picture numbers; the time base has no meaning.
    header[16] = 25;
    header[20] = 1;
    header
}

/// The header of picture `number` of `bytes` bytes.
pub(super) fn frame_header(number: u64, bytes: u32) -> [u8; FRAME_HEADER_BYTES] {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[..4].copy_from_slice(&bytes.to_le_bytes());
    header[4..].copy_from_slice(&number.to_le_bytes());
    header
}

/// The pictures of a complete file.
pub(super) fn pictures(file: &[u8]) -> Vec<&[u8]> {
    let mut rest = file.get(FILE_HEADER_BYTES..).unwrap_or_default();
    let mut pictures = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(FRAME_HEADER_BYTES) {
        let bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let Some((picture, others)) = after.split_at_checked(bytes as usize) else { break };
        pictures.push(picture);
        rest = others;
    }
    pictures
}
