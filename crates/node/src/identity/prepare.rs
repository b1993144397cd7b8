//! Prepares a folder for keys, and names the files of the authority in it.

use std::path::{Path, PathBuf};

use super::files::{self, FileError};
use crate::rights::RIGHTS;

/// The file with the certificate of the site's authority. It is public, and every host of the site has it.
pub const AUTHORITY_CERTIFICATE: &str = "authority.pem";
/// The file with the authority's private key. Only the authority's host has it.
pub const AUTHORITY_KEY: &str = "authority.key";

/// Why a folder cannot take keys.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The folder contains other files.
    #[error(
        "{} holds other files and no keys; choose a separate folder with --keys, which is then created",
        folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Prepares `folder` for keys: creates it, or removes others' access to an empty folder or an existing key folder.
pub(super) fn prepare(folder: &Path) -> Result<(), PrepareError> {
    files::make_private_folder(folder)?;
    // The rights file is written first.
    let ours = [AUTHORITY_KEY, AUTHORITY_CERTIFICATE, RIGHTS];
    let is_ours = || ours.iter().any(|name| folder.join(name).exists());
    // Emptiness is checked first, because another process may fill the same folder between the two checks.
    if !(files::is_empty(folder)? || is_ours()) {
        return Err(PrepareError::Occupied { folder: folder.into() });
    }
    files::close_to_others(folder)?;
    Ok(())
}
