//! Recognises an image's encoding by its first bytes.

use std::fmt;

/// The encoding of an image, judged by its first bytes.
///
/// A variant does not mean that Mez accepts images of this encoding: the variants let an error name what was sent instead of a JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// JPEG (ISO 10918-1), starting `FF D8 FF`.
    Jpeg,
    /// PNG (ISO 15948), starting `89 50 4E 47 0D 0A 1A 0A`.
    Png,
    /// GIF, starting `GIF87a` or `GIF89a`.
    Gif,
    /// WebP, a RIFF container of type `WEBP`.
    WebP,
    /// Windows bitmap, starting `BM`, with a plausible header.
    Bmp,
    /// TIFF, in either byte order.
    Tiff,
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::Gif => "GIF",
            Self::WebP => "WebP",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
        })
    }
}

/// Recognises the encoding of `bytes` by their magic number. `None` if it is unknown.
///
/// Reads at most the first 18 bytes, so the rest may be missing or damaged.
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<Encoding> {
    if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
        Some(Encoding::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some(Encoding::Png)
    } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
        Some(Encoding::Gif)
    } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        Some(Encoding::WebP)
    } else if bytes.starts_with(b"II*\0") || bytes.starts_with(b"MM\0*") {
        Some(Encoding::Tiff)
    } else if bytes.starts_with(b"BM")
        && matches!(bytes.get(14..18), Some([12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]))
    {
        // The two letters alone would match any text that starts with them, so the size field of the second header is checked too.
        Some(Encoding::Bmp)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_it_knows_and_nothing_else() {
        let mut bmp = *b"BM____________\x28\0\0\0";
        let cases: [(&[u8], Option<Encoding>); 11] = [
            (&[0xFF, 0xD8, 0xFF, 0xE0], Some(Encoding::Jpeg)),
            (b"\x89PNG\r\n\x1a\n....", Some(Encoding::Png)),
            (b"GIF89a", Some(Encoding::Gif)),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some(Encoding::WebP)),
            (b"RIFF\0\0\0\0AVI LIST", None),
            (b"MM\0*\0\0\0\x08", Some(Encoding::Tiff)),
            (&bmp, Some(Encoding::Bmp)),
            (b"BMW is a car maker", None),
            (&[0xFF, 0xD8], None),
            (b"\x89PNG\r\n", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(sniff(bytes), expected, "{bytes:?}");
        }
        bmp[14] = 41;
        assert_eq!(sniff(&bmp), None);
    }
}
