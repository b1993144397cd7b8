//! Converts the options of logs on disk from Python's keyword arguments.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mez_core::store::Durability;
use mez_node::persist::PersistOptions;
use mez_node::persist::keys::find_store_keys;
use pyo3::prelude::*;

use crate::error;

/// Folder, file of keys, maximum bytes on disk per camera, seconds until frames expire, durability, whether notes are kept.
pub(crate) type LogOnDisk = (PathBuf, Option<PathBuf>, u64, Option<f64>, String, bool);

/// The options; `None` without a folder. `keys` is the folder of keys, which contains the log's key by default.
pub(crate) fn options(
    py: Python<'_>,
    log: Option<LogOnDisk>,
    keys: Option<&Path>,
) -> PyResult<Option<PersistOptions>> {
    let Some((folder, key, disk_bytes_max, age_s, durability, notes)) = log else { return Ok(None) };
    let ring =
        find_store_keys(key.as_deref(), keys).map_err(|failure| error::raise(py, "KeysError", failure))?;
    let disk_age_max = age_s
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|failure| error::argument(py, "store_age", failure))?;
    let durability = match durability.as_str() {
        "async" => Durability::Async,
        "group" => Durability::Group,
        "sync" => Durability::Sync,
        other => {
            let message = format!("durability is {other:?}; write \"async\", \"group\" or \"sync\"");
            return Err(error::argument(py, "durability", message));
        }
    };
    let options = PersistOptions::new(folder, ring);
    Ok(Some(PersistOptions { durability, disk_bytes_max, disk_age_max, notes, ..options }))
}
