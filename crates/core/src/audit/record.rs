//! A record: an event with its number and the hash of the previous record, as one line of text.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};

use super::event::{Event, Kind};
use super::text::{Value, parse, put_number, put_text};
use crate::units::Timestamp;

/// The longest line of a log, without its end. A longer line is no record.
pub const LINE_BYTES_MAX: usize = 24 << 10;

/// The SHA-256 of a record's line, without the end of the line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordHash([u8; 32]);

impl RecordHash {
    /// The hash that the first record of a log holds.
    pub const NONE: Self = Self([0; 32]);

    /// The hash of a line.
    pub fn of(line: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, line).as_ref());
        Self(hash)
    }
}

impl fmt::Display for RecordHash {
    /// 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RecordHash {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(RecordError::Hash);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(RecordError::Hash);
        let mut hash = [0; 32];
        for (place, pair) in hash.iter_mut().zip(bytes.chunks_exact(2)) {
            *place = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| RecordError::Hash)?;
        }
        Ok(Self(hash))
    }
}

/// Why a line is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The line is no line of an audit log.
    #[error("not a line of an audit log")]
    Form,
    /// A field is missing.
    #[error("{0} is missing or invalid")]
    Field(&'static str),
    /// A hash is not valid.
    #[error("a hash has 64 hexadecimal digits")]
    Hash,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record's number in the log, from 1.
    pub number: u64,
    /// What happened.
    pub event: Event,
    /// The hash of the previous record; [`RecordHash::NONE`] for the first.
    pub previous: RecordHash,
}

impl Record {
    /// The record as a line, without its end.
    pub fn to_line(&self) -> String {
        let Self { number, event, previous } = self;
        let mut line = String::with_capacity(320);
        put_number(&mut line, "n", *number);
        put_text(&mut line, "utc", &event.at.to_string());
        put_number(&mut line, "utc_ns", event.at.as_nanos());
        put_text(&mut line, "kind", event.kind.as_str());
        let texts = [
            ("who", &event.who),
            ("what", &event.what),
            ("cameras", &event.cameras),
            ("from", &event.from),
            ("why", &event.why),
        ];
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            put_text(&mut line, name, text);
        }
        put_number(&mut line, "count", event.count);
        if let Some(since) = event.since {
            put_number(&mut line, "since_utc_ns", since.as_nanos());
        }
        put_text(&mut line, "previous", &previous.to_string());
        line.push('}');
        line
    }

    /// Parses a line. Fields that this version does not know are ignored.
    ///
    /// # Errors
    /// The line is no record.
    pub fn parse(line: &[u8]) -> Result<Self, RecordError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(RecordError::Form);
        }
        let mut fields = std::str::from_utf8(line).ok().and_then(parse).ok_or(RecordError::Form)?;
        let mut field = |name: &'static str| fields.remove(name);
        let mut number = |name| match field(name) {
            Some(Value::Number(number)) => Ok(Some(number)),
            None => Ok(None),
            Some(Value::Text(_)) => Err(RecordError::Field(name)),
        };
        let place = number("n")?.ok_or(RecordError::Field("n"))?;
        let at = Timestamp::from_nanos(number("utc_ns")?.ok_or(RecordError::Field("utc_ns"))?);
        let count = number("count")?.ok_or(RecordError::Field("count"))?;
        let since = number("since_utc_ns")?.map(Timestamp::from_nanos);
        let mut text = |name| match fields.remove(name) {
            Some(Value::Text(text)) => Ok(text),
            None => Ok(String::new()),
            Some(Value::Number(_)) => Err(RecordError::Field(name)),
        };
        let kind: Kind = text("kind")?.parse().map_err(|_| RecordError::Field("kind"))?;
        let previous = text("previous")?.parse()?;
        let event = Event {
            at,
            kind,
            who: text("who")?,
            what: text("what")?,
            cameras: text("cameras")?,
            from: text("from")?,
            why: text("why")?,
            count,
            since,
            span: None,
        };
        Ok(Self { number: place, event, previous })
    }
}
