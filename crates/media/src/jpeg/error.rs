//! Errors of decoding JPEG.

use thiserror::Error;

use crate::encoding::Encoding;

/// Bytes could not be decoded as a JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes do not start as a JPEG does.
    #[error("not a JPEG: {}; encode the image as JPEG, or pass raw pixels", describe_start(*len_bytes, starts_with, *found))]
    NotJpeg {
        /// How many bytes there are.
        len_bytes: usize,
        /// The first four of them, or all.
        starts_with: Vec<u8>,
        /// The encoding that they look like, if it is known.
        found: Option<Encoding>,
    },
    /// The end of the image is missing.
    #[error("the JPEG is cut off: its end marker is not among its {len_bytes} bytes; send it whole")]
    Truncated {
        /// How many bytes there are.
        len_bytes: usize,
    },
    /// The image contradicts itself, or its coded data do not decode.
    #[error("the JPEG is damaged: {detail}")]
    Corrupt {
        /// What was found.
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
        /// The limit that it broke.
        pixels_max: u64,
    },
    /// A valid JPEG of a kind that Mez does not decode.
    #[error("the JPEG is {what}, which is not supported; encode it as 8-bit grey or colour JPEG")]
    Unsupported {
        /// The kind.
        what: &'static str,
    },
    /// The caller's buffer is for an image of another size.
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
    /// libjpeg-turbo could not start; running out of memory is the likely reason.
    #[error("libjpeg-turbo could not start: {detail}")]
    Codec {
        /// Its message.
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
