//! Writes IVF, which says of every picture how long it is, so that its reader has it without the next one.

/// Bytes before a picture.
pub(super) const FRAME_HEADER_BYTES: usize = 12;

/// The start of a file. Sides beyond 65,535 are not stated; the stream says them itself.
pub(super) fn file_header((width, height): (u32, u32)) -> [u8; 32] {
    let mut header = [0; 32];
    header[..4].copy_from_slice(b"DKIF");
    header[6] = 32;
    header[8..12].copy_from_slice(b"H264");
    let side = |side: u32| u16::try_from(side).unwrap_or_default().to_le_bytes();
    header[12..14].copy_from_slice(&side(width));
    header[14..16].copy_from_slice(&side(height));
    // Pictures are numbered; the clock has no meaning.
    header[16] = 25;
    header[20] = 1;
    header
}

/// What stands before picture `number`, which has `bytes` bytes.
pub(super) fn frame_header(number: u64, bytes: u32) -> [u8; FRAME_HEADER_BYTES] {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[..4].copy_from_slice(&bytes.to_le_bytes());
    header[4..].copy_from_slice(&number.to_le_bytes());
    header
}
