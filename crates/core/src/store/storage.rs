//! What a log needs of the place where it is kept: files in `mez-node`, a disk that lies and tears in `mez-testbed`.

use super::SegmentNumber;
use crate::frame::Epoch;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// No room is left.
    Full,
    /// The storage may not be written or read by this program.
    Denied,
    /// There is no such segment.
    Missing,
    /// What has the segment's name is no file: a folder, a link, a pipe, a socket or a device.
    NotAFile,
    /// Reading or writing failed.
    Io,
}

/// The storage did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct StorageError {
    /// What kind of thing went wrong.
    pub kind: StorageErrorKind,
    /// In words, with the file and what the system says.
    pub text: String,
}

/// What is remembered outside of the log, where a copy of the log does not reach: which of its segments there are.
///
/// The file implementation keeps it with the camera's epoch, in the folder for state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest segment that has not expired. What is older must never come back.
    pub oldest: SegmentNumber,
    /// One above the newest segment that was opened.
    pub next: SegmentNumber,
    /// The index of the oldest record that has not expired, where it is known.
    pub first_index: Option<u64>,
    /// The epoch of the newest segment that was opened.
    pub epoch: Option<Epoch>,
}

/// How far the writer has come, remembered outside of the log at every step, so that a log can be told from a shorter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The segment that is written.
    pub segment: SegmentNumber,
    /// The index after the last record that is durable: nothing takes those before it away but damage.
    pub durable: u64,
    /// The index after the last record that was handed over. The end of a broker does not take those before it away, but a power cut may:
    /// `None` if there may have been one since.
    pub written: Option<u64>,
}

impl Progress {
    /// The index up to which all records have to be there.
    pub fn reached(&self) -> u64 {
        self.written.unwrap_or(self.durable)
    }
}

/// The place of one camera's log. One writer; what is appended is found by [`Storage::read_at`] at once, and after a power
/// cut if it was synced.
pub trait Storage {
    /// All segments there are, with their sizes in bytes, in any order. Other files are passed over.
    fn list(&mut self) -> Result<Vec<(SegmentNumber, u64)>, StorageError>;

    /// Makes an empty segment; fails if there is one of this number.
    fn create(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// Appends to a segment. After an error nobody knows how much of `bytes` is there, and the segment is not
    /// appended to again.
    fn append(&mut self, segment: SegmentNumber, bytes: &[u8]) -> Result<(), StorageError>;

    /// Begins to make durable that the segment exists, and all that was appended to it so far. One at a time.
    fn start_sync(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// How the sync went that was begun last; `None` while it goes on. After an error nobody knows what is durable.
    fn finish_sync(&mut self) -> Option<Result<(), StorageError>>;

    /// Reads into `buffer` from `offset` on, and returns how many bytes there were: fewer only at the end.
    fn read_at(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, StorageError>;

    /// Tells that a segment will be read soon, so that it may be fetched meanwhile.
    fn prefetch(&mut self, _segment: SegmentNumber) {}

    /// Removes a segment. It may come back at a power cut; [`Bounds`] are there for that.
    fn remove(&mut self, segment: SegmentNumber) -> Result<(), StorageError>;

    /// What was remembered last; `None` if nothing ever was.
    fn read_bounds(&mut self) -> Result<Option<Bounds>, StorageError>;

    /// Remembers, durably before this returns, and with it what was last remembered of the progress.
    fn write_bounds(&mut self, bounds: Bounds) -> Result<(), StorageError>;

    /// How far the writer had come; `None` if nothing is known of it.
    fn read_progress(&mut self) -> Result<Option<Progress>, StorageError>;

    /// Remembers how far the writer has come, cheaply: a power cut may leave an earlier one, or none.
    fn write_progress(&mut self, progress: Progress) -> Result<(), StorageError>;
}
