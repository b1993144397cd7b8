//! Makes a folder ready to take keys, and names the files of the authority in it.

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
    /// It is full of other things.
    #[error(
        "{} holds other files and no keys; choose a folder of its own with --keys, which is then created",
        folder.display()
    )]
    Occupied {
        /// The folder.
        folder: PathBuf,
    },
    /// It could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Makes `folder` ready to take keys: creates it, or closes an empty or earlier one to others.
pub(super) fn prepare(folder: &Path) -> Result<(), PrepareError> {
    files::make_private_folder(folder)?;
    // The file of rights is the first that is written.
    let ours = [AUTHORITY_KEY, AUTHORITY_CERTIFICATE, RIGHTS];
    let is_ours = || ours.iter().any(|name| folder.join(name).exists());
    // Emptiness first: whoever prepares the same folder at the same time may fill it in between.
    if !(files::is_empty(folder)? || is_ours()) {
        return Err(PrepareError::Occupied { folder: folder.into() });
    }
    files::close_to_others(folder)?;
    Ok(())
}
