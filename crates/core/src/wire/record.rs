//! Carries several streams within one byte stream, for a link over TCP. QUIC does this by itself.

use super::WireError;
use super::codec::{Reader, Write};

/// The size of a record's head, in bytes.
pub const RECORD_HEAD_BYTES: usize = 8;
/// The most bytes of a record after its head. With the head, it fills one TLS record.
pub const RECORD_BYTES_MAX: usize = (16 << 10) - RECORD_HEAD_BYTES;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A part of the control stream, either way. Its stream number is 0.
    Control = 1,
    /// A part of the stream of a frame, or, from the edge, of an answer. The first record of a stream holds exactly the header.
    Data = 2,
    /// The stream of a frame or answer is complete.
    End = 3,
    /// The sender gave up the frame or answer.
    Reset = 4,
    /// The receiver refuses the frame or answer, so its bytes need not be sent.
    Stop = 5,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// The kind of the record.
    pub kind: RecordKind,
    /// The number of bytes that follow, at most [`RECORD_BYTES_MAX`].
    pub bytes: u16,
    /// The number of the record's stream. Each side numbers the streams that it begins from 1, in increasing order.
    pub stream: u32,
}

impl RecordHead {
    /// Encodes the head.
    pub fn encode(&self) -> [u8; RECORD_HEAD_BYTES] {
        let mut out = Vec::with_capacity(RECORD_HEAD_BYTES);
        out.u8(self.kind as u8);
        out.u8(0);
        out.u16(self.bytes);
        out.u32(self.stream);
        out.try_into().expect("four fields of eight bytes in all")
    }

    /// Decodes a head.
    pub fn decode(head: [u8; RECORD_HEAD_BYTES]) -> Result<Self, WireError> {
        let mut r = Reader::new(&head);
        let kind = match r.u8("kind")? {
            1 => RecordKind::Control,
            2 => RecordKind::Data,
            3 => RecordKind::End,
            4 => RecordKind::Reset,
            5 => RecordKind::Stop,
            other => return Err(WireError::Value { field: "kind", value: other.into() }),
        };
        let value = |field, value: u64| Err(WireError::Value { field, value });
        match r.u8("reserved")? {
            0 => {}
            other => return value("reserved", other.into()),
        }
        let (bytes, stream) = (r.u16("bytes")?, r.u32("stream")?);
        if usize::from(bytes) > RECORD_BYTES_MAX {
            let max = RECORD_BYTES_MAX as u64;
            return Err(WireError::TooLong { field: "bytes", length: bytes.into(), max });
        }
        let carries = matches!(kind, RecordKind::Control | RecordKind::Data);
        if carries != (bytes > 0) {
            return value("bytes", bytes.into());
        }
        if (kind == RecordKind::Control) != (stream == 0) {
            return value("stream", stream.into());
        }
        Ok(Self { kind, bytes, stream })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every head that is accepted is encoded to the same bytes, and keeps to the limits.
        #[test]
        fn what_is_taken_is_what_was_written(
            kind in 0u8..8, reserved in prop_oneof![9 => Just(0u8), 1 => any::<u8>()], bytes: u16, stream in 0u32..4,
        ) {
            let mut head = [kind, reserved, 0, 0, 0, 0, 0, 0];
            head[2..4].copy_from_slice(&bytes.to_le_bytes());
            head[4..].copy_from_slice(&stream.to_le_bytes());
            if let Ok(decoded) = RecordHead::decode(head) {
                prop_assert_eq!(decoded.encode(), head);
                prop_assert!(usize::from(decoded.bytes) <= RECORD_BYTES_MAX);
                prop_assert_eq!(decoded.kind == RecordKind::Control, decoded.stream == 0);
            }
        }
    }
}
