//! The audit log of an edge: who joined, was refused, read the past, exported, changed rights, was revoked, operated.
//!
//! This module is the part that needs no files. `mez-node` keeps the files, and `docs/audit.md` describes the log for users.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`record`] | says what a record contains, and how it is written |
//! | [`chain`] | chains records, so that changes are detected |
//! | [`verify`] | checks a whole log |
//! | [`repeats`] | makes one record of repeated events |
//! | [`span`] | says which frames a reading was for |
//! | [`rotation`] | chooses the files to delete when there are too many |

pub mod chain;
pub mod event;
pub mod record;
pub mod repeats;
pub mod rotation;
pub mod span;
mod text;
pub mod verify;

pub use self::chain::{Chain, Head};
pub use self::event::{Event, Kind};
pub use self::record::{LINE_BYTES_MAX, Record, RecordError, RecordHash};
pub use self::repeats::Repeats;
pub use self::rotation::{FileFacts, Rotation};
pub use self::span::Span;
pub use self::verify::{Flaw, Report, Verifier};

#[cfg(test)]
mod tests;
