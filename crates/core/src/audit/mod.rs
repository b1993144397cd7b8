//! The audit log of an edge: who joined, was refused, read the past, exported, changed rights, was revoked, operated.
//!
//! This module is the part that needs no files: what a record says and how it is written ([`record`]), how records
//! are chained so that changes are detected ([`chain`]), the check of a whole log ([`verify`]), how repeats become
//! one record ([`repeats`]), which frames a reading was for ([`span`]), and which files are deleted when there are
//! too many ([`rotation`]). The files are in `mez-node`; `docs/audit.md` describes the log for people.

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
