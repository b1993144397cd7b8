//! Chains records: each holds the hash of the previous record, and the head names the last record.

use super::event::Event;
use super::record::{Record, RecordError, RecordHash};
use super::text::{Value, parse, put_number, put_text};

/// Where a log ends: the number of the next record, and the hash that the next record will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    next: u64,
    previous: RecordHash,
}

impl Chain {
    /// A log without records.
    pub const EMPTY: Self = Self { next: 1, previous: RecordHash::NONE };

    /// The chain after record `last`, whose line has this hash.
    pub const fn behind(last: u64, hash: RecordHash) -> Self {
        Self { next: last.saturating_add(1), previous: hash }
    }

    /// The number of the next record.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The number of the last record, 0 if there is none.
    pub const fn last(&self) -> u64 {
        self.next - 1
    }

    /// The hash of the last record, which the next record will hold.
    pub const fn hash(&self) -> RecordHash {
        self.previous
    }

    /// The line of the next record, and the chain after it. The caller adopts the new chain once the line is written.
    #[must_use]
    pub fn with(&self, event: Event) -> (String, Self) {
        let line = Record { number: self.next, event, previous: self.previous }.to_line();
        let hash = RecordHash::of(line.as_bytes());
        (line, Self::behind(self.next, hash))
    }

    /// The head of this log, whose oldest kept record is `oldest`.
    pub const fn head(&self, oldest: u64) -> Head {
        Head { last: self.last(), hash: self.previous, oldest }
    }
}

/// Which records a log should have. The head is kept beside the log, and anybody may note it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the last record, 0 if there is none.
    pub last: u64,
    /// The hash of the last record's line.
    pub hash: RecordHash,
    /// The number of the oldest record that is kept.
    pub oldest: u64,
}

impl Head {
    /// The head as a line, without its end.
    pub fn to_line(self) -> String {
        let mut line = String::new();
        put_number(&mut line, "last", self.last);
        put_text(&mut line, "hash", &self.hash.to_string());
        put_number(&mut line, "oldest", self.oldest);
        line.push('}');
        line
    }

    /// Parses a line.
    ///
    /// # Errors
    /// The line is no head.
    pub fn parse(line: &str) -> Result<Self, RecordError> {
        let mut fields = parse(line.trim_end()).ok_or(RecordError::Form)?;
        let mut number = |name| match fields.remove(name) {
            Some(Value::Number(number)) => Ok(number),
            _ => Err(RecordError::Field(name)),
        };
        let (last, oldest) = (number("last")?, number("oldest")?);
        match fields.remove("hash") {
            Some(Value::Text(hash)) => Ok(Self { last, hash: hash.parse()?, oldest }),
            _ => Err(RecordError::Field("hash")),
        }
    }
}
