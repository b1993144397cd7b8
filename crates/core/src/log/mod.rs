//! Keeps frames in memory in an append-only, circular log with a byte budget, one writer and many readers.
//!
//! Records are ordered by `(epoch, sequence)`, never by the wall clock. They are grouped in segments, which are evicted
//! as a whole. Readers never block the writer, and the writer never waits for a reader (`ring.rs`). Payloads are
//! reference-counted, so a read copies no pixels. Evicted records count in the budget until their readers drop them.

mod reader;
mod record;
mod ring;
mod short;
mod writer;

pub use self::reader::{Cursor, LogReader, Read};
pub use self::record::Record;
pub(crate) use self::record::{RECORD_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES_MAX};
pub use self::short::{SHORT_LOG_FRAMES_MAX, ShortLogWriter, short_log};
pub use self::writer::{AppendError, LogConfig, LogWriter, log};

#[cfg(test)]
mod tests;
