//! Puts the logs of a camera aside when the camera is reset or forgotten. Put-aside
//! logs are not written any more. `mez store` reads them like other logs.
//!
//! Each time, the logs move to a new store folder, `STORE/@aside/TIME`, and keep their path below it. No camera name contains
//! `@`, so this folder is never taken for a camera's. Put-aside logs count against no limit. The operator removes them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::layout::{LogKind, log_folder};
use crate::lock::FileLock;

/// The folder of put-aside logs, in the store folder.
const ASIDE: &str = "@aside";
/// How often logs may be put aside within the same second. The folder names consist of the second and a number.
const SAME_SECOND_MAX: u32 = 100;

/// Why a log was not put aside.
#[derive(Debug, thiserror::Error)]
pub enum PutAsideError {
    /// The writing thread did not release the log.
    #[error(
        "the log of {camera} was not put aside: the disk takes too long to complete it; reset the camera again when the disk works"
    )]
    Busy {
        /// The camera.
        camera: CameraName,
    },
    /// Another program writes the log.
    #[error("another broker writes the log in {}, so the log was not moved; give each broker its own --store", .0.display())]
    Held(PathBuf),
    /// The files could not be moved.
    #[error("the log was not put aside: cannot use {}: {source}; fix this, then reset the camera again", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The broker stopped before the log was moved.
    #[error("the broker stopped before the log was put aside; reset the camera again")]
    Stopped,
}

/// Moves a camera's logs to a put-aside store folder, and returns this folder. `None` if there are no logs.
pub(super) fn put_aside(
    root: &Path,
    camera: &CameraName,
    now: Timestamp,
) -> Result<Option<PathBuf>, PutAsideError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PutAsideError::Io { path, source }
    };
    // An absolute path, since it is shown to users with other working directories.
    let root = &std::path::absolute(root).map_err(failed(root))?;
    let folder_in = |root: &Path, kind| log_folder(root, camera, kind);
    let mut kinds = vec![LogKind::Frames, LogKind::Notes];
    kinds.retain(|kind| folder_in(root, *kind).is_dir());
    if kinds.is_empty() {
        return Ok(None);
    }
    let mut locks = Vec::new();
    for from in kinds.iter().map(|kind| folder_in(root, *kind)) {
        let path = from.join("lock");
        let lock = FileLock::take(&path).map_err(failed(&path))?;
        locks.push(lock.ok_or(PutAsideError::Held(from))?);
    }
    let time = now.to_string()[..19].replace(':', "-");
    for number in 1..=SAME_SECOND_MAX {
        let name = if number == 1 { format!("{time}Z") } else { format!("{time}Z-{number}") };
        let aside = root.join(ASIDE).join(name);
        if kinds.iter().any(|kind| folder_in(&aside, *kind).exists()) {
            continue;
        }
        let (before, after) = (root.join(camera.as_str()), aside.join(camera.as_str()));
        DirBuilder::new().mode(0o700).recursive(true).create(&after).map_err(failed(&after))?;
        for kind in kinds {
            let from = folder_in(root, kind);
            fs::rename(&from, folder_in(&aside, kind)).map_err(failed(&from))?;
        }
        for folder in [&before, &after] {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
        }
        return Ok(Some(aside));
    }
    Err(failed(&root.join(ASIDE))(io::Error::other("the log was put aside too often within one second")))
}

/// The put-aside store folders within a store folder, oldest first.
pub fn put_aside_in(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root.join(ASIDE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use mez_core::store::{SegmentNumber, Storage};

    use super::super::{LogFiles, cameras_in};
    use super::*;

    #[test]
    fn a_log_that_was_put_aside_is_read_where_it_is_then() {
        let root = tempfile::tempdir().unwrap();
        let camera: CameraName = "dock/cam1".parse().unwrap();
        let now = Timestamp::from_nanos(1_763_836_996_000_000_000);
        assert_eq!(put_aside(root.path(), &camera, now).unwrap(), None);

        let mut put = Vec::new();
        for bytes in [b"one", b"two"] {
            let mut files = LogFiles::open(root.path(), &camera, root.path().join("@state")).unwrap();
            files.create(SegmentNumber(1)).unwrap();
            files.append(SegmentNumber(1), bytes).unwrap();
            let held = put_aside(root.path(), &camera, now).unwrap_err();
            assert!(matches!(held, PutAsideError::Held(_)), "{held}");
            drop(files);
            // Its notes are put aside with it.
            let notes = LogKind::Notes;
            LogFiles::open_kind(root.path(), &camera, notes, root.path().join("@state")).unwrap();
            put.push(put_aside(root.path(), &camera, now).unwrap().expect("there was one"));
            assert_eq!(cameras_in(root.path()).unwrap(), [], "it is none of those that are kept");
        }
        assert_eq!(put_aside_in(root.path()).unwrap(), put);
        assert!(put[0].ends_with("@aside/2025-11-22T18-43-16Z"), "{}", put[0].display());
        for (folder, bytes) in put.iter().zip([b"one", b"two"]) {
            assert!(LogFiles::reader_of(folder, &camera, LogKind::Notes, None).exist());
            assert_eq!(cameras_in(folder).unwrap(), std::slice::from_ref(&camera));
            let mut buffer = [0; 3];
            LogFiles::read_only(folder, &camera).read_at(SegmentNumber(1), 0, &mut buffer).unwrap();
            assert_eq!(&buffer, bytes);
        }
    }
}
