//! Reads and writes little-endian fields, and checks every length.

use crate::frame::{Epoch, FrameId, Sequence};
use crate::units::Instant;

/// The most bytes of a text for people.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field reaches beyond the end of the bytes.
    #[error("the message ends within its field `{field}`")]
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// A length exceeds its limit.
    #[error("the length {length} of `{field}` is above the limit of {max}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The length that was claimed.
        length: u64,
        /// The limit.
        max: u64,
    },
    /// A value that the field cannot have.
    #[error("`{field}` has the value {value}, which version 1 does not know")]
    Value {
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// Text that is not UTF-8, or not a valid name.
    #[error("`{field}` is not valid text")]
    Text {
        /// The field.
        field: &'static str,
    },
    /// Bytes remain after the last field.
    #[error("{bytes} bytes are left after the last field")]
    Trailing {
        /// The number of bytes that remain.
        bytes: usize,
    },
}

/// Takes fields off the front of a slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn bytes(&mut self, field: &'static str, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(WireError::Truncated { field })?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(WireError::Truncated { field })?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_le_bytes)
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_le_bytes)
    }

    pub(crate) fn f64(&mut self, field: &'static str) -> Result<f64, WireError> {
        self.array(field).map(f64::from_le_bytes)
    }

    pub(crate) fn fixed<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        self.array(field)
    }

    /// A text after its length in 16 bits.
    pub(crate) fn text(&mut self, field: &'static str, max: usize) -> Result<&'a str, WireError> {
        let length = usize::from(self.u16(field)?);
        if length > max {
            return Err(WireError::TooLong { field, length: length as u64, max: max as u64 });
        }
        std::str::from_utf8(self.bytes(field, length)?).map_err(|_| WireError::Text { field })
    }

    pub(crate) fn instant(&mut self, field: &'static str) -> Result<Instant, WireError> {
        self.u64(field).map(Instant::from_nanos)
    }

    pub(crate) fn frame_id(&mut self) -> Result<FrameId, WireError> {
        Ok(FrameId { epoch: Epoch(self.u64("epoch")?), sequence: Sequence(self.u64("sequence")?) })
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(self) -> Result<(), WireError> {
        match self.bytes.len() {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }
}

/// Appends fields to a vector.
pub(crate) trait Write {
    fn u8(&mut self, value: u8);
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn i32(&mut self, value: i32);
    fn f64(&mut self, value: f64);
    /// Appends a text after its length in 16 bits. It is cut to at most `max` bytes, between two characters.
    fn text(&mut self, value: &str, max: usize);

    fn instant(&mut self, value: Instant) {
        self.u64(value.as_nanos());
    }

    fn frame_id(&mut self, value: FrameId) {
        self.u64(value.epoch.0);
        self.u64(value.sequence.0);
    }
}

impl Write for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn f64(&mut self, value: f64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, value: &str, max: usize) {
        let value = &value[..value.floor_char_boundary(max)];
        Write::u16(self, u16::try_from(value.len()).expect("every limit on texts is below 64 KiB"));
        self.extend_from_slice(value.as_bytes());
    }
}
