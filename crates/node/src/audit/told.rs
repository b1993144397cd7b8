//! Records what commands on the edge's host did without the edge: an export from the store's files, a grant, a revocation.
//!
//! The command leaves a file in a folder beside the log. The edge records it within a second,
//! or at its start. The owner of the file, which the kernel knows, is recorded as the author.

use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use mez_core::audit::{Event, Kind, LINE_BYTES_MAX, Record, RecordHash};

use crate::identity::FileError;
use crate::identity::files::{self, Present, Readers};

/// The folder beside the log.
const TOLD: &str = "told";
/// The most files per batch.
const FILES_MAX: usize = 64;

/// Reports an event to the edge whose audit log is in `log`. Returns false if no edge keeps a log there.
///
/// # Errors
/// The file cannot be written.
pub fn tell(log: &Path, event: &Event) -> Result<bool, FileError> {
    if !log.is_dir() {
        return Ok(false);
    }
    let folder = log.join(TOLD);
    files::make_private_folder(&folder)?;
    // If root reports to another user's edge, this user must be able to read and remove the file.
    let owner = fs::metadata(log).map_err(FileError::on("read", log))?;
    // The owner of the log could have put a link here, so that root gives away the link's target.
    let found = fs::symlink_metadata(&folder).map_err(FileError::on("read", &folder))?;
    if !found.is_dir() {
        return Err(FileError::on("use", &folder)(io::Error::other("it is not a folder; remove it")));
    }
    if found.uid() != owner.uid() {
        lchown(&folder, Some(owner.uid()), Some(owner.gid())).map_err(FileError::on("give away", &folder))?;
    }
    let line = Record { number: 0, event: event.clone(), previous: RecordHash::NONE }.to_line();
    let process = rustix::process::getpid().as_raw_nonzero();
    // One command may report several events with the same time.
    let path = |more: u32| folder.join(format!("{:020}-{process}-{more:04}", event.at.as_nanos()));
    let path = (0..).map(path).find(|path| !path.exists()).expect("numbers do not end");
    files::write(&path, line.as_bytes(), Readers::Everybody, Present::Replace)?;
    // Root's umask may have removed the edge's right to read it.
    let readable = Permissions::from_mode(0o644);
    fs::set_permissions(&path, readable).map_err(FileError::on("open to the edge", &path))?;
    Ok(true)
}

/// The reported events, with their files.
pub(super) fn read(log: &Path) -> Vec<(Event, PathBuf)> {
    let folder = log.join(TOLD);
    let mut names = files::names(&folder).unwrap_or_default();
    names.retain(|name| !name.starts_with('.'));
    names.iter().filter_map(|name| one(&folder.join(name))).take(FILES_MAX).collect()
}

/// The origin in the records of such events.
const FROM: &str = "this host";

/// Removes a file after its event was recorded.
pub(super) fn done(file: &Path) {
    let _ = fs::remove_file(file);
}

/// The content of a file, and its owner's user ID.
fn contents(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    let file = fs::File::open(path)?;
    let owner = file.metadata()?.uid();
    let mut line = Vec::new();
    file.take(LINE_BYTES_MAX as u64).read_to_end(&mut line)?;
    Ok((line, owner))
}

fn one(path: &Path) -> Option<(Event, PathBuf)> {
    let (line, owner) = match contents(path) {
        Ok(found) => found,
        // Another process has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{} is removed: it cannot be read: {error}", path.display());
            done(path);
            return None;
        }
    };
    match Record::parse(&line) {
        // Other events cannot be reported this way. The file's owner replaces the name in the report.
        Ok(Record { event, .. }) if matches!(event.kind, Kind::Exported | Kind::Rights | Kind::Revoked) => {
            Some((Event { who: format!("user/{owner}"), from: FROM.into(), count: 1, ..event }, path.into()))
        }
        _ => {
            tracing::warn!(
                "{} is removed: its content is not a valid event for the audit log",
                path.display()
            );
            done(path);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use mez_core::units::Timestamp;

    use super::*;

    fn event(cameras: &str) -> Event {
        Event::new(Timestamp::from_nanos(7), Kind::Exported, "").cameras(cameras)
    }

    /// Otherwise root, when it reports a grant, would give the folder behind the link to the owner of the link.
    #[test]
    fn a_link_to_another_folder_is_not_followed() {
        let (log, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), log.path().join(TOLD)).unwrap();
        let refused = tell(log.path(), &event("dock/cam1")).unwrap_err().to_string();
        assert!(refused.contains("it is not a folder; remove it"), "{refused}");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
    }

    /// Useless files do not prevent a valid one from being recorded, however many they are.
    #[test]
    fn files_that_tell_nothing_are_removed() {
        let log = tempfile::tempdir().unwrap();
        assert!(tell(log.path(), &event("dock/cam1")).unwrap());
        for number in 0..2 * FILES_MAX {
            fs::write(log.path().join(TOLD).join(format!("{number:03}")), "nothing").unwrap();
        }
        let told = read(log.path());
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].0.cameras, "dock/cam1");
        assert_eq!(fs::read_dir(log.path().join(TOLD)).unwrap().count(), 1);
    }
}
