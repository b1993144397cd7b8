//! Errors of decoding JPEG.

use thiserror::Error;

use crate::encoding::Encoding;

/// Bytes could not be decoded as a JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not start like a JPEG.
    #[error("not a JPEG: {}; encode the image as JPEG, or pass raw pixels", describe_start(*len_bytes, starts_with, *found))]
    NotJpeg {
        /// Number of bytes.
        len_bytes: usize,
        /// The first four bytes, or all if there are fewer.
        starts_with: Vec<u8>,
        /// The encoding that the bytes look like, if it is known.
        found: Option<Encoding>,
    },
    /// The end of the image is missing.
    #[error("the JPEG is cut off: its {len_bytes} bytes contain no end marker; send the whole image")]
    Truncated {
        /// Number of bytes.
        len_bytes: usize,
    },
    /// The image contradicts itself, or its coded data do not decode.
    #[error("the JPEG is damaged: {detail}")]
    Corrupt {
        /// The defect.
        detail: String,
    },
    /// The header claims more pixels than the caller allows. Nothing was allocated.
    #[error(
        "the JPEG is {width}x{height}, which is more than the {pixels_max} pixels allowed; scale it down or raise the limit"
    )]
    TooManyPixels {
        /// Width that the header claims, in pixels.
        width: u32,
        /// Height that the header claims, in pixels.
        height: u32,
        /// The caller's limit, in pixels.
        pixels_max: u64,
    },
    /// A valid JPEG of a kind that Mez does not decode.
    #[error("the JPEG is {what}, which is not supported; encode it as 8-bit grey or colour JPEG")]
    Unsupported {
        /// The unsupported kind.
        what: &'static str,
    },
    /// The caller's buffer has another size than the image.
    #[error(
        "the JPEG is {width}x{height} pixels, but the buffer is for {buffer_width}x{buffer_height}; take the size \
         from the header"
    )]
    BufferSize {
        /// Width of the JPEG, in pixels.
        width: u32,
        /// Height of the JPEG, in pixels.
        height: u32,
        /// Width of the buffer, in pixels.
        buffer_width: u32,
        /// Height of the buffer, in pixels.
        buffer_height: u32,
    },
    /// libjpeg-turbo could not start, probably because memory ran out.
    #[error("libjpeg-turbo could not start: {detail}")]
    Codec {
        /// The message of libjpeg-turbo.
        detail: String,
    },
}

fn describe_start(len_bytes: usize, starts_with: &[u8], found: Option<Encoding>) -> String {
    match found {
        _ if len_bytes == 0 => "there are no bytes at all".to_owned(),
        Some(found) => format!("it looks like {found}"),
        None => {
            let hex: Vec<String> = starts_with.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("its {len_bytes} bytes start with {}", hex.join(" "))
        }
    }
}
