//! The files of a log: their names, their order, their lines.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mez_core::audit::{FileFacts, LINE_BYTES_MAX};
use mez_core::units::Timestamp;

/// The file extension of records.
const ENDING: &str = ".jsonl";

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogFile {
    /// The number of its first record.
    pub(super) first: u64,
    /// Distinguishes files that begin with the same record. There are several if the end of the previous one was incomplete.
    again: u64,
    pub(super) path: PathBuf,
}

impl LogFile {
    pub(super) fn new(folder: &Path, first: u64, again: u64) -> Self {
        let name = match again {
            0 => format!("{first:012}{ENDING}"),
            again => format!("{first:012}-{again}{ENDING}"),
        };
        Self { first, again, path: folder.join(name) }
    }

    /// The next file that begins with the same record.
    pub(super) fn again(&self, folder: &Path) -> Self {
        Self::new(folder, self.first, self.again + 1)
    }

    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub(super) fn facts(&self) -> io::Result<FileFacts> {
        let metadata = fs::metadata(&self.path)?;
        let written = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let written = Timestamp::from_nanos(u64::try_from(written.as_nanos()).unwrap_or(u64::MAX));
        Ok(FileFacts { first: self.first, bytes: metadata.len(), written })
    }
}

/// The files in a folder, oldest first. Empty if the folder does not exist.
pub(super) fn files_in(folder: &Path) -> io::Result<Vec<LogFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(ENDING)) else { continue };
        let (first, again) = stem.split_once('-').unwrap_or((stem, "0"));
        if let (Ok(first), Ok(again)) = (first.parse(), again.parse()) {
            found.push(LogFile { first, again, path: entry.path() });
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the lines of a file.
pub(super) struct Lines {
    reader: BufReader<File>,
    /// The offset after the last complete line.
    pub(super) bytes: u64,
}

/// The next line of a file.
pub(super) enum Line {
    /// A complete line, without its line break. A line that is too long for a record is truncated.
    Whole(Vec<u8>),
    /// The file ends within a line.
    Torn,
    /// The file ends here.
    End,
}

impl Lines {
    /// The lines of a file from the offset `from` on, where a line must begin.
    pub(super) fn open(path: &Path, from: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        Ok(Self { reader: BufReader::new(file), bytes: from })
    }

    pub(super) fn next(&mut self) -> io::Result<Line> {
        let (mut line, mut more) = (Vec::new(), Vec::new());
        self.reader.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        let mut length = line.len() as u64;
        // The rest of a line that is too long is skipped.
        let mut is_whole = line.last() == Some(&b'\n');
        while !is_whole && length > LINE_BYTES_MAX as u64 {
            more.clear();
            let read = self.reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut more)?;
            length += read as u64;
            is_whole = more.last() == Some(&b'\n');
            if read == 0 {
                break;
            }
        }
        if is_whole {
            self.bytes += length;
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            return Ok(Line::Whole(line));
        }
        Ok(if length > 0 { Line::Torn } else { Line::End })
    }
}
