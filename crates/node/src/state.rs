//! Keeps a broker's state between two starts: a camera's epoch, and which segments of its log exist.
//!
//! The state folder is the explicitly given one, else `MEZ_STATE`, else `/var/lib/mez` for root, else
//! `$XDG_STATE_HOME/mez` or `~/.local/state/mez`. In `cameras/NAME/`, `epoch` holds a decimal number, `lock` is held
//! by the running broker, and `@log` lists the segments (`docs/log-format.md`). At an edge, `@log` is in `edge/NAME/`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mez_core::broker::{EPOCH_MAX, EPOCH_RAISE_MAX, highest_believed};
use mez_core::frame::Epoch;
use mez_core::name::CameraName;

use crate::lock::FileLock;

/// The state of one camera, held by one broker at a time.
#[derive(Debug)]
pub struct CameraState {
    folder: PathBuf,
    epoch: Epoch,
    _lock: FileLock,
}

/// Why a camera's state could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// No folder was given, and no home folder is known.
    #[error("no folder for state: give a folder with --state, set MEZ_STATE, or set HOME")]
    NoFolder,
    /// Another broker of this camera runs on this machine.
    #[error("a camera broker for {camera} is already running (it holds {}); stop that broker, or choose another name", path.display())]
    Held {
        /// The camera.
        camera: CameraName,
        /// The lock.
        path: PathBuf,
    },
    /// The epoch's file does not contain an epoch.
    #[error("{} does not hold an epoch; remove the file to begin with a new epoch", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The epoch is too high to belong to a start of this camera.
    #[error("epoch {} is too far above this camera's own epoch, {}, to be one of its starts", above.0, own.0)]
    TooFar {
        /// The epoch that the next one should exceed.
        above: Epoch,
        /// The camera's own epoch.
        own: Epoch,
    },
    /// Reading or writing failed.
    #[error("cannot use {}: {source}; give a writable folder with --state or MEZ_STATE", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The path of the state folder. The folder is not created.
pub fn folder(explicit: Option<&Path>) -> Result<PathBuf, StateError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = explicit.map(Path::to_path_buf).or_else(|| variable("MEZ_STATE")) {
        return Ok(folder);
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/var/lib/mez".into());
    }
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("mez"))
        .ok_or(StateError::NoFolder)
}

/// The folder of a camera broker's state for a camera.
pub fn camera_folder(folder: &Path, camera: &CameraName) -> PathBuf {
    folder.join("cameras").join(camera.as_str())
}

/// The folder of an edge broker's state for a camera.
pub fn edge_folder(folder: &Path, camera: &CameraName) -> PathBuf {
    folder.join("edge").join(camera.as_str())
}

impl CameraState {
    /// Locks a camera's state and begins the next epoch, durably.
    pub fn open(folder: &Path, camera: &CameraName) -> Result<Self, StateError> {
        let folder = camera_folder(folder, camera);
        fs::create_dir_all(&folder).map_err(|source| StateError::Io { path: folder.clone(), source })?;
        let path = folder.join("lock");
        let lock = FileLock::take(&path).map_err(|source| StateError::Io { path: path.clone(), source })?;
        let Some(lock) = lock else { return Err(StateError::Held { camera: camera.clone(), path }) };
        let path = folder.join("epoch");
        let last = match fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|last| *last < EPOCH_MAX.0)
                .ok_or(StateError::Damaged { path })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(source) => return Err(StateError::Io { path, source }),
        };
        let mut state = Self { folder, epoch: Epoch(last), _lock: lock };
        state.raise_above(Epoch(last))?;
        Ok(state)
    }

    /// The epoch of this start.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Begins an epoch later than `above`, durably. Refuses an epoch that is too high, since it would stay in the counter forever.
    pub fn raise_above(&mut self, above: Epoch) -> Result<Epoch, StateError> {
        if above > highest_believed(self.epoch, EPOCH_RAISE_MAX) || above >= EPOCH_MAX {
            return Err(StateError::TooFar { above, own: self.epoch });
        }
        let epoch = Epoch(self.epoch.max(above).0 + 1);
        let path = self.folder.join("epoch");
        write_durably(&self.folder, &path, epoch.0.to_string().as_bytes())
            .map_err(|source| StateError::Io { path, source })?;
        self.epoch = epoch;
        Ok(epoch)
    }
}

/// Replaces a file atomically and durably: after a power cut it has either the old or the new content.
pub(crate) fn write_durably(folder: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use mez_core::broker::EPOCH_BASE;

    use super::*;

    fn camera() -> CameraName {
        "dock/cam1".parse().unwrap()
    }

    #[test]
    fn every_start_is_a_new_epoch() {
        let folder = tempfile::tempdir().unwrap();
        for expected in 1..4 {
            assert_eq!(CameraState::open(folder.path(), &camera()).unwrap().epoch(), Epoch(expected));
        }
        let mut state = CameraState::open(folder.path(), &camera()).unwrap();
        assert_eq!(state.raise_above(Epoch(90)).unwrap(), Epoch(91));
        drop(state);
        assert_eq!(CameraState::open(folder.path(), &camera()).unwrap().epoch(), Epoch(92));
    }

    #[test]
    fn an_absurd_epoch_never_enters_the_counter() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = CameraState::open(folder.path(), &camera()).unwrap();
        for above in [u64::MAX, EPOCH_MAX.0, EPOCH_BASE.0 + EPOCH_RAISE_MAX + 1] {
            let refused = state.raise_above(Epoch(above)).unwrap_err();
            assert!(matches!(refused, StateError::TooFar { .. }), "{refused}");
        }
        assert_eq!(state.raise_above(EPOCH_BASE).unwrap(), Epoch(EPOCH_BASE.0 + 1));
        drop(state);
        assert_eq!(CameraState::open(folder.path(), &camera()).unwrap().epoch(), Epoch(EPOCH_BASE.0 + 2));
    }

    #[test]
    fn a_second_broker_of_the_same_camera_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = CameraState::open(folder.path(), &camera()).unwrap();
        let second = CameraState::open(folder.path(), &camera()).unwrap_err();
        assert!(matches!(second, StateError::Held { .. }), "{second}");
        drop(first);
        CameraState::open(folder.path(), &camera()).unwrap();
    }

    #[test]
    fn a_damaged_counter_is_not_taken_for_a_first_start() {
        let folder = tempfile::tempdir().unwrap();
        CameraState::open(folder.path(), &camera()).unwrap();
        for text in ["x", "", "-1", "18446744073709551615", "18446744073709551616", &EPOCH_MAX.0.to_string()]
        {
            fs::write(folder.path().join("cameras/dock/cam1/epoch"), text).unwrap();
            let opened = CameraState::open(folder.path(), &camera());
            assert!(matches!(opened, Err(StateError::Damaged { .. })), "{text:?}");
        }
    }
}
