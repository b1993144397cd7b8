//! Finds the credentials of a process.

use std::path::Path;

use mez_node::identity::{Credentials, KeyFolder, Name, Role};
use pyo3::prelude::*;

use crate::error;

/// The folder of keys: the one given, else `MEZ_KEYS`, else the user's.
pub(crate) fn folder(py: Python<'_>, keys: Option<&Path>) -> PyResult<KeyFolder> {
    KeyFolder::find(keys).map_err(|failure| error::raise(py, "KeysError", failure))
}

/// The credentials of that folder for a role, and, for a camera, its name.
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
