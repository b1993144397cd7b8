//! Takes in what commands on the edge's host did without the edge: an export that read the store's files, a grant, a revocation.
//!
//! The command leaves a file in a folder beside the log. The edge takes it in within a second, or when it starts. The owner
//! of the file, whom the kernel knows, says who it was.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use mez_core::audit::{Event, Kind, LINE_BYTES_MAX, Record, RecordHash};

use crate::identity::FileError;
use crate::identity::files::{self, Present, Readers};

/// The folder beside the log.
const TOLD: &str = "told";
/// The most files that are taken in at once.
const FILES_MAX: usize = 64;

/// Tells the edge whose log is in `log` of something that was done. False if no edge keeps a log there.
///
/// # Errors
/// The file cannot be written.
pub fn tell(log: &Path, event: &Event) -> Result<bool, FileError> {
    if !log.is_dir() {
        return Ok(false);
    }
    let folder = log.join(TOLD);
    files::make_private_folder(&folder)?;
    // Root tells an edge of another user: that user has to read and to remove it.
    let of = |error| FileError::on("read", log)(error);
    let owner = fs::metadata(log).map_err(of)?;
    if fs::metadata(&folder).map_err(of)?.uid() != owner.uid() {
        chown(&folder, Some(owner.uid()), Some(owner.gid())).map_err(FileError::on("give away", &folder))?;
    }
    let line = Record { number: 0, event: event.clone(), previous: RecordHash::NONE }.to_line();
    let process = rustix::process::getpid().as_raw_nonzero();
    // One command may tell of several things at once.
    let path = |more: u32| folder.join(format!("{:020}-{process}-{more:04}", event.at.as_nanos()));
    let path = (0..).map(path).find(|path| !path.exists()).expect("numbers do not end");
    files::write(&path, line.as_bytes(), Readers::Everybody, Present::Replace)?;
    Ok(true)
}

/// What was told, and in which files.
pub(super) fn read(log: &Path) -> Vec<(Event, PathBuf)> {
    let folder = log.join(TOLD);
    let mut names = files::names(&folder).unwrap_or_default();
    names.retain(|name| !name.starts_with('.'));
    names.truncate(FILES_MAX);
    names.iter().filter_map(|name| one(&folder.join(name))).collect()
}

/// Where such events are from.
const FROM: &str = "this host";

/// It is recorded.
pub(super) fn done(file: &Path) {
    let _ = fs::remove_file(file);
}

fn one(path: &Path) -> Option<(Event, PathBuf)> {
    let mut line = Vec::new();
    let file = fs::File::open(path).ok()?;
    let owner = file.metadata().ok()?.uid();
    file.take(LINE_BYTES_MAX as u64).read_to_end(&mut line).ok()?;
    match Record::parse(&line) {
        // Nothing else can be told this way, and nobody can say that it was somebody else.
        Ok(Record { event, .. }) if matches!(event.kind, Kind::Exported | Kind::Rights | Kind::Revoked) => {
            Some((Event { who: format!("user/{owner}"), from: FROM.into(), count: 1, ..event }, path.into()))
        }
        _ => {
            tracing::warn!("{} is removed: it tells nothing that belongs into the audit log", path.display());
            done(path);
            None
        }
    }
}
