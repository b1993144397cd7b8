//! Names of files and folders within a folder of logs.

use std::path::{Path, PathBuf};

use mez_core::name::CameraName;

/// A camera's segments, in the folder of the camera's name. No camera has such a name.
pub(super) const FOLDER: &str = "@log";
/// The lock of the edge that keeps its logs in the folder.
pub(super) const EDGE_LOCK: &str = "@edge";

/// Where a camera's segments are in a folder of logs.
pub(super) fn log_folder(root: &Path, camera: &CameraName) -> PathBuf {
    root.join(camera.as_str()).join(FOLDER)
}
