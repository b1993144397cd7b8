//! Finds the credentials of a process.

use std::env;
use std::path::{Path, PathBuf};

use mez_node::identity::{Credentials, KeyFolder, Name, Role};
use pyo3::prelude::*;

use crate::error;

/// The folder of keys: the given one, otherwise that of `MEZ_KEYS`, otherwise the user's.
pub(crate) fn folder(py: Python<'_>, keys: Option<&Path>) -> PyResult<KeyFolder> {
    KeyFolder::find(keys).map_err(|failure| error::raise(py, "KeysError", failure))
}

/// The folder that `app.toml` names; `None` if `MEZ_KEYS` is set.
pub(crate) fn of_application(py: Python<'_>) -> PyResult<Option<PathBuf>> {
    if env::var_os("MEZ_KEYS").is_some_and(|keys| !keys.is_empty()) {
        return Ok(None);
    }
    let file = mez_cli::application().map_err(|failure| error::argument(py, "keys", failure))?;
    Ok(file.keys)
}

/// The credentials in this folder for a role and, for a camera, its name.
pub(crate) fn credentials(
    py: Python<'_>,
    keys: Option<&Path>,
    role: Role,
    name: Option<&str>,
) -> PyResult<Credentials> {
    let folder = folder(py, keys)?;
    let name: Option<Name> = name
        .map(str::parse)
        .transpose()
        .map_err(|failure: <Name as std::str::FromStr>::Err| error::argument(py, "camera", failure))?;
    folder.credentials(role, name.as_ref()).map_err(|failure| error::raise(py, "KeysError", failure))
}
