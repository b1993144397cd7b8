//! Names of files and folders within a store folder.

use std::path::{Path, PathBuf};

use mez_core::name::CameraName;
use mez_core::store::{KeyRing, RecordWords};

/// The lock of the edge that uses the store folder.
pub(super) const EDGE_LOCK: &str = "@edge";

/// The kinds of logs of a camera. Each kind has its own folder, within the folder of the camera's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Its frames.
    Frames,
    /// Notes about its frames: results of applications, changes of contracts and of the source ([`crate::notes`]).
    Notes,
}

impl LogKind {
    /// The name of the folder with the segments, and of the bounds file in the state folder. Camera names contain no `@`.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Frames => "@log",
            Self::Notes => "@notes",
        }
    }

    /// The keys of this log, derived from the keys of the frames.
    pub(crate) fn keys(self, frames: &KeyRing) -> KeyRing {
        match self {
            Self::Frames => frames.clone(),
            Self::Notes => frames.for_notes(),
        }
    }

    /// The words for its records in messages.
    pub const fn words(self) -> RecordWords {
        match self {
            Self::Frames => RecordWords::FRAMES,
            Self::Notes => RecordWords::NOTES,
        }
    }
}

/// The folder of a camera's segments within a store folder.
pub(super) fn log_folder(root: &Path, camera: &CameraName, kind: LogKind) -> PathBuf {
    root.join(camera.as_str()).join(kind.folder())
}
