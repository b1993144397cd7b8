//! Data records: records of a stream that are not pictures, with a content type and the frame that they were made of.
//!
//! In its description, a data record differs from a frame only by [`Encoding::Data`](crate::frame::Encoding::Data). Everything else is in a
//! head before the payload. So logs, links and disks carry and encrypt data records like frames (decision 48). `docs/wire.md` draws the head.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::frame::FrameId;
use crate::name::CameraName;
use crate::units::Timestamp;
use crate::wire::WireError;
use crate::wire::codec::{Reader, Write};

/// The most bytes of a content type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 127;
/// The most bytes of the head.
pub const HEAD_BYTES_MAX: usize = 1 + 2 + CONTENT_TYPE_BYTES_MAX + 2 + STREAM_BYTES_MAX + 24;
/// The longest name of a camera: eight segments of 64 bytes, with a slash between two.
const STREAM_BYTES_MAX: usize = 8 * 64 + 7;
/// The only version of the head.
const VERSION: u8 = 1;

/// What the bytes of a data record are, as a media type (RFC 6838): `application/json`, `text/plain; charset=utf-8`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContentType(Arc<str>);

impl ContentType {
    /// The content type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The type without its parameters, such as `text/plain`.
    pub fn essence(&self) -> &str {
        self.0.split(';').next().unwrap_or_default().trim_end()
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no content type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentTypeError {
    /// Longer than [`CONTENT_TYPE_BYTES_MAX`].
    #[error("a content type of {bytes} bytes is too long; give at most {CONTENT_TYPE_BYTES_MAX}")]
    TooLong {
        /// The length.
        bytes: usize,
    },
    /// Not `type/subtype`, with parameters after a semicolon.
    #[error("{text:?} is not a content type; give a media type such as application/json")]
    Form {
        /// What was given.
        text: String,
    },
}

impl FromStr for ContentType {
    type Err = ContentTypeError;
    fn from_str(text: &str) -> Result<Self, ContentTypeError> {
        if text.len() > CONTENT_TYPE_BYTES_MAX {
            return Err(ContentTypeError::TooLong { bytes: text.len() });
        }
        let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
        // The characters of a restricted name (RFC 6838, 4.2).
        let is_name = |name: &str| {
            name.starts_with(|first: char| first.is_ascii_alphanumeric())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let is_form = essence
            .trim_end_matches(' ')
            .split_once('/')
            .is_some_and(|(kind, sub)| is_name(kind) && is_name(sub));
        if !is_form || !parameters.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return Err(ContentTypeError::Form { text: text.escape_default().to_string() });
        }
        Ok(Self(text.into()))
    }
}

/// The frame or record that a data record was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The stream of the frame or record.
    pub camera: CameraName,
    /// The identity of the frame or record in this stream.
    pub frame: FrameId,
    /// When the frame or record was captured. The data record's own time is when it was published.
    pub captured: Timestamp,
}

/// A record that is not a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataRecord {
    /// What the bytes are.
    pub content_type: ContentType,
    /// The frame or record that this record was made of, if any.
    pub of: Option<Origin>,
    /// The bytes as they were published, at least one.
    pub body: Bytes,
}

impl DataRecord {
    /// The payload: the head, then a copy of the body.
    pub fn encode(&self) -> Bytes {
        let of_bytes = self.of.as_ref().map_or(0, |of| of.camera.as_str().len() + 24);
        let head_bytes = 1 + 2 + self.content_type.as_str().len() + 2 + of_bytes;
        // The exact size, because logs count the bytes held and not the capacity reserved.
        let mut out = Vec::with_capacity(head_bytes + self.body.len());
        out.u8(VERSION);
        out.text(self.content_type.as_str(), CONTENT_TYPE_BYTES_MAX);
        match &self.of {
            Some(Origin { camera, frame, captured }) => {
                out.text(camera.as_str(), STREAM_BYTES_MAX);
                out.frame_id(*frame);
                out.u64(captured.as_nanos());
            }
            None => out.text("", 0),
        }
        out.extend_from_slice(&self.body);
        debug_assert_eq!(out.len(), head_bytes + self.body.len(), "as reserved");
        out.into()
    }

    /// Parses a payload. The body shares the payload's memory.
    pub fn decode(payload: &Bytes) -> Result<Self, WireError> {
        let mut head = Reader::new(payload);
        let version = head.u8("version of a data record")?;
        if version != VERSION {
            return Err(WireError::Value { field: "version of a data record", value: version.into() });
        }
        let text = head.text("content type", CONTENT_TYPE_BYTES_MAX)?;
        let content_type = text.parse().map_err(|_| WireError::Text { field: "content type" })?;
        let of = match head.text("origin", STREAM_BYTES_MAX)? {
            "" => None,
            name => {
                let camera = name.parse().map_err(|_| WireError::Text { field: "origin" })?;
                let (frame, captured) = (head.frame_id()?, Timestamp::from_nanos(head.u64("captured")?));
                Some(Origin { camera, frame, captured })
            }
        };
        let body = payload.slice(payload.len() - head.left()..);
        Ok(Self { content_type, of, body })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Epoch, Sequence};

    #[test]
    fn media_types_are_content_types_and_other_texts_are_not() {
        for text in [
            "application/json",
            "text/plain; charset=utf-8",
            "application/vnd.apache.arrow.stream",
            "image/svg+xml",
            "x/y",
        ] {
            assert_eq!(text.parse::<ContentType>().unwrap().as_str(), text);
        }
        let long = format!("text/{}", "x".repeat(CONTENT_TYPE_BYTES_MAX));
        for text in [
            "",
            "json",
            "/",
            "text/",
            "/json",
            "text/plain\n",
            "te xt/plain",
            "text/plain;\u{e4}",
            "a/b/c",
            &long,
        ] {
            text.parse::<ContentType>().unwrap_err();
        }
        assert_eq!("text/plain ; charset=utf-8".parse::<ContentType>().unwrap().essence(), "text/plain");
    }

    #[test]
    fn a_payload_that_ends_within_its_head_is_refused() {
        let of = Origin {
            camera: "dock/cam1".parse().unwrap(),
            frame: FrameId { epoch: Epoch(3), sequence: Sequence(1_042) },
            captured: Timestamp::from_nanos(5),
        };
        let record = DataRecord {
            content_type: "application/json".parse().unwrap(),
            of: Some(of),
            body: Bytes::new(),
        };
        let payload = record.encode();
        assert_eq!(DataRecord::decode(&payload), Ok(record));
        for length in 0..payload.len() {
            DataRecord::decode(&payload.slice(..length)).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(of: Option<(u64, u64)>, body: Vec<u8>) {
            let of = of.map(|(epoch, sequence)| Origin {
                camera: "dock/cam1/faces".parse().unwrap(),
                frame: FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) },
                captured: Timestamp::from_nanos(epoch ^ sequence),
            });
            let record = DataRecord { content_type: "application/x-npy".parse().unwrap(), of, body: body.into() };
            let payload = record.encode();
            prop_assert!(payload.len() <= HEAD_BYTES_MAX + record.body.len());
            prop_assert_eq!(DataRecord::decode(&payload), Ok(record));
        }

        #[test]
        fn foreign_bytes_are_a_record_or_an_error(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            if let Ok(record) = DataRecord::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
