//! Names of files and folders within a folder of logs.

use std::path::{Path, PathBuf};

use mez_core::name::CameraName;
use mez_core::store::{KeyRing, RecordWords};

/// The lock of the edge that keeps its logs in the folder.
pub(super) const EDGE_LOCK: &str = "@edge";

/// What a log of a camera holds. Each is in a folder of its own, in the folder of the camera's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// Its frames.
    Frames,
    /// What was said of its frames: results of applications, changes of contracts, why there were none ([`crate::notes`]).
    Notes,
}

impl LogKind {
    /// The folder of the segments, and the file in the folder for state that remembers them. No name of a camera holds an `@`.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Frames => "@log",
            Self::Notes => "@notes",
        }
    }

    /// The keys that it is sealed with, of those that frames are sealed with.
    pub(crate) fn keys(self, frames: &KeyRing) -> KeyRing {
        match self {
            Self::Frames => frames.clone(),
            Self::Notes => frames.for_notes(),
        }
    }

    /// How people call its records.
    pub const fn words(self) -> RecordWords {
        match self {
            Self::Frames => RecordWords::FRAMES,
            Self::Notes => RecordWords::NOTES,
        }
    }
}

/// Where a camera's segments are in a folder of logs.
pub(super) fn log_folder(root: &Path, camera: &CameraName, kind: LogKind) -> PathBuf {
    root.join(camera.as_str()).join(kind.folder())
}
