//! Keeps facts about derived streams over restarts of the edge: how often a stream began, its owner, and its sources.
//!
//! The facts are in `edge/NAME/@derived` in the state folder, as JSON. Without a state folder they are in memory only.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mez_core::broker::EPOCH_MAX;
use mez_core::broker::edge::Deriving;
use mez_core::frame::Epoch;
use mez_core::name::CameraName;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::state::{edge_folder, write_durably};

/// Why a stream could not begin: without its last epoch, the numbers of its records could repeat.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {source}; give the edge a writable folder with --state or MEZ_STATE", path.display())]
pub struct BeginError {
    /// The file.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

/// The file in a stream's state folder.
const FILE: &str = "@derived";

/// The facts about a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// The epoch of the newest start. It is kept when the stream is forgotten: if the stream returns, readers must not take its records for old ones.
    epoch: u64,
    owner: String,
    of: Vec<String>,
    /// Whether the stream was forgotten since then. If so, data on disk under its name belongs to another stream or camera.
    is_forgotten: bool,
}

/// The facts about an edge's derived streams. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DerivedStates {
    folder: Option<PathBuf>,
    /// The epochs, if there is no folder. Locked while an epoch begins.
    epochs: Arc<Mutex<BTreeMap<CameraName, u64>>>,
}

impl DerivedStates {
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, epochs: Arc::default() }
    }

    /// Begins the next epoch of a stream, durably. Blocks.
    pub(crate) fn begin(
        &self,
        stream: &CameraName,
        deriving: &Deriving,
        above: Epoch,
    ) -> Result<Epoch, BeginError> {
        let mut epochs = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = &self.folder else {
            let last = epochs.entry(stream.clone()).or_default();
            *last = above.0.max(*last) + 1;
            return Ok(Epoch(*last));
        };
        let folder = edge_folder(state, stream);
        let path = folder.join(FILE);
        let io = |source| BeginError { path: path.clone(), source };
        fs::create_dir_all(&folder).map_err(io)?;
        let last = read(&path).map_err(io)?.map_or(0, |kept| kept.epoch);
        let epoch = above.0.max(last).min(EPOCH_MAX.0) + 1;
        let of = deriving.of.iter().map(ToString::to_string).collect();
        write(&folder, &path, &Kept { epoch, owner: deriving.owner.clone(), of, is_forgotten: false })
            .map_err(io)?;
        Ok(Epoch(epoch))
    }

    /// Marks a stream as forgotten or reset, if `epoch` is still its newest one. Blocks.
    pub(crate) fn forget(&self, stream: &CameraName, epoch: Epoch) {
        let _held = self.epochs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = &self.folder else { return };
        let folder = edge_folder(state, stream);
        let path = folder.join(FILE);
        let forgotten = read(&path).and_then(|kept| match kept {
            Some(kept) if kept.epoch == epoch.0 => {
                write(&folder, &path, &Kept { is_forgotten: true, ..kept })
            }
            // The name belongs to a camera, or the stream began again.
            _ => Ok(()),
        });
        if let Err(error) = forgotten {
            warn!(%stream, "{} cannot be changed: {error}", path.display());
        }
    }
}

/// The owner and the sources of the stream with this name. `None` if the data on disk under this name is not from a derived stream.
pub(crate) fn remembered(state: &Path, name: &CameraName) -> Option<Deriving> {
    let path = edge_folder(state, name).join(FILE);
    let kept = read(&path).unwrap_or_else(|error| {
        warn!(camera = %name, "{} cannot be read, so it counts as a camera: {error}", path.display());
        None
    });
    let Kept { owner, of, .. } = kept.filter(|kept| !kept.is_forgotten)?;
    Some(Deriving { owner, of: of.iter().filter_map(|name| name.parse().ok()).collect() })
}

fn read(path: &Path) -> io::Result<Option<Kept>> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(folder: &Path, path: &Path, kept: &Kept) -> io::Result<()> {
    let text = serde_json::to_vec(kept).map_err(io::Error::other)?;
    write_durably(folder, path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deriving() -> Deriving {
        Deriving { owner: "app/counter".into(), of: vec!["dock/cam1".parse().unwrap()] }
    }

    #[test]
    fn every_run_of_the_edge_begins_a_later_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let stream: CameraName = "dock/cam1/faces".parse().unwrap();
        let begin = |above| {
            let states = DerivedStates::new(Some(folder.path().to_owned()));
            states.begin(&stream, &deriving(), Epoch(above)).unwrap().0
        };
        assert_eq!([begin(0), begin(0), begin(7), begin(3)], [1, 2, 8, 9]);
        assert_eq!(remembered(folder.path(), &stream), Some(deriving()));
        assert_eq!(remembered(folder.path(), &"dock/cam1".parse().unwrap()), None);
        // The epoch keeps counting when the stream returns. Until then, data on disk under its name may be a camera's.
        DerivedStates::new(Some(folder.path().to_owned())).forget(&stream, Epoch(9));
        assert_eq!(remembered(folder.path(), &stream), None);
        assert_eq!(begin(0), 10);
        let states = DerivedStates::new(None);
        let in_memory = || states.begin(&stream, &deriving(), Epoch(0)).unwrap().0;
        assert_eq!([in_memory(), in_memory()], [1, 2]);
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_a_first_start() {
        let folder = tempfile::tempdir().unwrap();
        let stream: CameraName = "dock/cam1/faces".parse().unwrap();
        let states = DerivedStates::new(Some(folder.path().to_owned()));
        states.begin(&stream, &deriving(), Epoch(0)).unwrap();
        fs::write(edge_folder(folder.path(), &stream).join(FILE), "{").unwrap();
        let refused = states.begin(&stream, &deriving(), Epoch(0)).unwrap_err();
        assert!(refused.to_string().contains("@derived"), "{refused}");
    }
}
