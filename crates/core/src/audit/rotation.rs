//! Decides when a log begins another file, and which files are deleted.

use std::time::Duration;

use crate::units::Timestamp;

/// The most files of a log, whatever their sizes.
pub const FILES_MAX: usize = 1024;

/// Bounds of a log on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The most bytes of one file. Default 1 MiB, about 3,000 records.
    pub file_bytes_max: u64,
    /// The most bytes of all files. Default 64 MiB. The oldest file is deleted first, and never the newest.
    pub total_bytes_max: u64,
    /// How long records are kept. Default 400 days. Whole files are deleted, so records may stay as long as their file is written.
    pub age_max: Duration,
}

impl Default for Rotation {
    fn default() -> Self {
        Self::new(64 << 20, Duration::from_secs(400 * 86_400))
    }
}

/// What a decision about a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// The number of the file's first record.
    pub first: u64,
    /// The file's size in bytes.
    pub bytes: u64,
    /// When the file was last written.
    pub written: Timestamp,
}

impl Rotation {
    /// Bounds for a log of at most `total_bytes_max`.
    pub fn new(total_bytes_max: u64, age_max: Duration) -> Self {
        let file_bytes_max = (total_bytes_max / 16).clamp(64 << 10, 1 << 20);
        Self { file_bytes_max, total_bytes_max, age_max }
    }

    /// Whether a line of `line_bytes` begins another file, if the current file has `bytes`.
    pub const fn begins_file(&self, bytes: u64, line_bytes: u64) -> bool {
        bytes > 0 && bytes + line_bytes > self.file_bytes_max
    }

    /// How many of these files, oldest first, must be deleted for their size or number. Never the newest.
    pub fn too_many(&self, files: &[FileFacts]) -> usize {
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        let mut gone = 0;
        while gone + 1 < files.len() && (total > self.total_bytes_max || files.len() - gone > FILES_MAX) {
            total -= files[gone].bytes;
            gone += 1;
        }
        gone
    }

    /// Whether the oldest of these files must be deleted for its age. Never the newest. Call
    /// this once a day: then a clock that is a year ahead costs one file a day, not the log.
    pub fn is_too_old(&self, files: &[FileFacts], now: Timestamp) -> bool {
        files.len() > 1 && files[0].written < now - self.age_max
    }
}
