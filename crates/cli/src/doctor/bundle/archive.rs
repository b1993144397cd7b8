//! Packs texts into a compressed tar archive (POSIX ustar).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The block size of the format.
const BLOCK: usize = 512;
/// The folder in the archive.
const FOLDER: &str = "mez-doctor";
/// The longest name that a header holds.
const NAME_BYTES_MAX: usize = 99;

/// The archive of these names and texts.
pub(super) fn pack(texts: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    for (name, text) in texts {
        out.write_all(&header(&format!("{FOLDER}/{name}"), text.len()))?;
        out.write_all(text.as_bytes())?;
        out.write_all(&vec![0; text.len().next_multiple_of(BLOCK) - text.len()])?;
    }
    // Two empty blocks mark the end.
    out.write_all(&[0; 2 * BLOCK])?;
    out.finish()
}

fn header(name: &str, bytes: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, &name.as_bytes()[..name.len().min(NAME_BYTES_MAX)]);
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The checksum is computed with blanks in its own field.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
