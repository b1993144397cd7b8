//! Defines what a log requires of its storage. `mez-node` implements it with files, `mez-testbed` with a simulated disk that loses and tears writes.

use super::SegmentNumber;
use crate::frame::Epoch;

/// The kind of a storage error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// No room is left.
    Full,
    /// This program has no permission to read or write the storage.
    Denied,
    /// The segment does not exist.
    Missing,
    /// The name of the segment belongs to something else than a file: a folder, a link, a pipe, a socket or a
    /// device.
    NotAFile,
    /// Reading or writing failed.
    Io,
}

/// The storage failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StorageError {
    /// The kind of the error.
    pub kind: StorageErrorKind,
    /// The error in words, with the file and the message of the operating system.
    pub text: String,
}

/// Which segments of the log exist. The bounds are remembered outside of the log, so that an older copy of the log's files is noticed.
///
/// With files, the bounds are in the state folder, beside the camera's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest segment that has not expired. Older ones must never be read again.
    pub oldest: SegmentNumber,
    /// One above the newest segment that was created.
    pub next: SegmentNumber,
    /// The index of the oldest record that has not expired; `None` if unknown.
    pub first_index: Option<u64>,
    /// The epoch of the newest segment that was created.
    pub epoch: Option<Epoch>,
}

/// How far the writer has come. The progress is remembered outside of the log after every batch, so that a log that was cut short is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The segment that is being written.
    pub segment: SegmentNumber,
    /// One past the index of the last durable record. If a record before it is missing, the log is damaged.
    pub durable: u64,
    /// One past the index of the last record that was handed to the storage. These records outlive the broker, but
    /// a power cut may lose the records that are not durable. `None` if there may have been a power cut since.
    pub written: Option<u64>,
}

impl Progress {
    /// One past the index of the last record that must be on disk.
    pub fn reached(&self) -> u64 {
        self.written.unwrap_or(self.durable)
    }
}

/// The storage of one camera's log. It has one writer. [`Storage::read_at`] finds
/// appended bytes at once. After a power cut, it finds the bytes that were synced.
pub trait Storage {
    /// All segments with their sizes in bytes, in any order. Other files are ignored.
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError>;

    /// Creates an empty segment. Fails if one with this number exists.
    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// Appends to a segment. After an error it is unknown how much of `bytes` was written, and the caller
    /// never appends to this segment again.
    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError>;

    /// Starts to make the segment, and all that was appended to it so far, durable. Only one sync runs at a
    /// time.
    fn start_sync(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// The result of the last sync that was started; `None` while it runs. After an error it is unknown what
    /// is durable.
    fn finish_sync(&mut self) -> Option<Result<(), StorageError>>;

    /// Reads into `buffer` from `offset` on. Returns how many bytes were read: fewer than `buffer` holds only
    /// at the end of the segment.
    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError>;

    /// Announces that a segment will be read soon, so that it can be fetched in the meantime.
    fn prefetch(&mut self, _segment: SegmentNumber) {}

    /// Removes a segment. After a power cut it may be back. The [`Bounds`] tell that it has expired.
    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// The bounds that were written last. `None` if they were never written.
    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError>;

    /// Writes the bounds, and with them the last written progress. Both are durable when this returns.
    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError>;

    /// The progress that was written last; `None` if none is known.
    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError>;

    /// Writes the progress, without a sync. After a power cut, an earlier progress may be found, or none.
    fn write_progress(&mut self, progress: Progress) -> Result<(), StorageError>;
}
