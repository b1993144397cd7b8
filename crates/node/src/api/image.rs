//! Checks whether a payload matches its description. Every frame from another process is checked.

use mez_core::answers::AnswerKind;
use mez_core::frame::Encoding;
use mez_media::jpeg;

/// Why a payload does not match its description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload is not an image of this encoding, or is damaged.
    #[error("the payload is not a whole {} image: {detail}", encoding.name())]
    Damaged {
        /// The stated encoding.
        encoding: Encoding,
        /// What is wrong.
        detail: String,
    },
    /// The image has another size than stated.
    #[error("the {} image has {}x{} pixels, not {}x{}; give its own size, or 0 for both", encoding.name(), .is.0, .is.1, .stated.0, .stated.1)]
    Size {
        /// The encoding.
        encoding: Encoding,
        /// The image's size.
        is: (u32, u32),
        /// The stated size.
        stated: (u32, u32),
    },
    /// The number of bytes of a raw image does not match its size.
    #[error(
        "a {} image of {width}x{height} pixels has {expected} bytes, not {bytes}; rows have no padding",
        encoding.name()
    )]
    Bytes {
        /// The encoding.
        encoding: Encoding,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// The number of bytes that such an image has.
        expected: u64,
        /// The number of bytes of the payload.
        bytes: usize,
    },
    /// The encoding is one whose frames need each other.
    #[error("{} frames are made by camera brokers and cannot be published; publish jpeg, png, bgr8 or gray8", encoding.name())]
    Chained {
        /// The encoding.
        encoding: Encoding,
    },
}

/// The size of the image in `payload`. `stated` may be `(0, 0)` if the image itself contains its size.
///
/// Reads the markers of a JPEG to its end, so that a cut image is refused. Decodes nothing.
pub fn size_in_pixels(
    encoding: Encoding,
    stated: (u32, u32),
    payload: &[u8],
) -> Result<(u32, u32), PayloadError> {
    let is = match encoding {
        Encoding::Jpeg => {
            let info = jpeg::check(payload)
                .map_err(|error| PayloadError::Damaged { encoding, detail: error.to_string() })?;
            (info.width, info.height)
        }
        Encoding::Png => png_size(payload)?,
        Encoding::Bgr8 => return raw(encoding, stated, 3, payload.len()),
        Encoding::Gray8 => return raw(encoding, stated, 1, payload.len()),
        Encoding::Data => return Ok((0, 0)),
        // Part of a chain. The publisher would have to describe its links, for which this interface has no fields.
        Encoding::H264 | Encoding::H265 | Encoding::Av1 | Encoding::Tiles => {
            return Err(PayloadError::Chained { encoding });
        }
    };
    if stated != (0, 0) && stated != is {
        return Err(PayloadError::Size { encoding, is, stated });
    }
    Ok(is)
}

/// What an answer of these bytes is, and its size in pixels. Decodes nothing.
pub fn answer_kind(payload: &[u8]) -> Result<(AnswerKind, (u32, u32)), PayloadError> {
    if !payload.starts_with(b"\x89PNG") {
        return Ok((AnswerKind::Picture, size_in_pixels(Encoding::Jpeg, (0, 0), payload)?));
    }
    let size = png_size(payload)?;
    // The header continues with the bit depth and the colour type (W3C PNG, 11.2.1).
    if payload.get(24..26) == Some(&[8, 6]) {
        return Ok((AnswerKind::Overlay, size));
    }
    let detail = "an overlay has 8-bit red, green, blue and alpha; give pictures without alpha as JPEG";
    Err(PayloadError::Damaged { encoding: Encoding::Png, detail: detail.into() })
}

/// Reads the header of a PNG, whose first chunk has a fixed place (W3C PNG, 5.2 and 11.2.1).
fn png_size(payload: &[u8]) -> Result<(u32, u32), PayloadError> {
    let damaged = |detail: &str| PayloadError::Damaged { encoding: Encoding::Png, detail: detail.into() };
    let header = payload.strip_prefix(b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR");
    let header = header.ok_or_else(|| damaged("it does not begin with the PNG signature"))?;
    let number = |at: usize| header.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (Some(width), Some(height)) = (number(0), number(4)) else {
        return Err(damaged("it ends within its header"));
    };
    // An empty IEND chunk with its checksum ends every whole PNG.
    if !payload.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82") {
        return Err(damaged("its end is missing"));
    }
    Ok((width, height))
}

fn raw(
    encoding: Encoding,
    stated: (u32, u32),
    channels: u64,
    bytes: usize,
) -> Result<(u32, u32), PayloadError> {
    let (width, height) = stated;
    let pixels = u64::from(width) * u64::from(height);
    let expected = pixels.saturating_mul(channels);
    if pixels == 0 || expected != bytes as u64 {
        return Err(PayloadError::Bytes { encoding, width, height, expected, bytes });
    }
    Ok(stated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] =
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x02\x08\x02\0\0\0....\0\0\0\0IEND\xae\x42\x60\x82";

    #[test]
    fn sizes_are_read_out_of_images_and_checked() {
        assert_eq!(size_in_pixels(Encoding::Png, (0, 0), PNG), Ok((3, 2)));
        assert_eq!(size_in_pixels(Encoding::Png, (3, 2), PNG), Ok((3, 2)));
        assert!(matches!(size_in_pixels(Encoding::Png, (2, 3), PNG), Err(PayloadError::Size { .. })));
        assert_eq!(size_in_pixels(Encoding::Gray8, (4, 2), &[0; 8]), Ok((4, 2)));
        assert_eq!(size_in_pixels(Encoding::Bgr8, (4, 2), &[0; 24]), Ok((4, 2)));
    }

    #[test]
    fn what_is_not_the_image_it_claims_to_be_is_refused() {
        for (encoding, stated, payload) in [
            (Encoding::Png, (0, 0), &PNG[..PNG.len() - 1]),
            (Encoding::Png, (0, 0), &PNG[..20]),
            (Encoding::Png, (0, 0), &b""[..]),
            (Encoding::Jpeg, (0, 0), PNG),
            (Encoding::Jpeg, (2, 2), b"\xff\xd8\xff\xd9"),
            (Encoding::Gray8, (0, 0), b""),
            (Encoding::Gray8, (4, 2), b"1234567"),
            (Encoding::Bgr8, (u32::MAX, u32::MAX), b"x"),
        ] {
            assert!(
                size_in_pixels(encoding, stated, payload).is_err(),
                "{encoding:?} {stated:?} was accepted"
            );
        }
    }
}
