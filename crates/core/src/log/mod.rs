//! The in-memory log: append-only, circular, byte-budgeted, in segments; one writer, many readers.
//!
//! Records are ordered by `(epoch, sequence)`, never by the wall clock. Reads never block the writer and the
//! writer never waits for a reader (`ring.rs`). Payloads are reference-counted: a read copies no pixels. What
//! readers still hold of evicted records counts in the budget until they let go of it.

mod chains;
mod reader;
mod record;
mod ring;
mod writer;

pub use self::chains::{CHAIN_LOG_BYTES_MAX, CHAIN_LOG_FRAMES_MAX, ChainLogWriter, chain_log};
pub use self::reader::{Cursor, LogReader, Read};
pub use self::record::Record;
pub use self::writer::{AppendError, LogConfig, LogWriter, log};

#[cfg(all(test, not(loom)))]
mod tests;
