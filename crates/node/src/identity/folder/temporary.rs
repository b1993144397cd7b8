//! A temporary site, for a test, a notebook or the demo. It is removed when the value is dropped.

use std::env;

use tempfile::TempDir;

use super::{KeyFolder, TemporarySiteError};
use crate::identity::authority::SiteAuthority;
use crate::identity::files::FileError;
use crate::identity::name::SiteName;

/// A site that exists as long as this value. Dropping it removes the authority and the folder.
#[derive(Debug)]
pub struct TemporarySite {
    keys: KeyFolder,
    // Dropped last, and removes the folder. After `kill -9` the folder remains, readable only by its owner.
    _folder: TempDir,
}

impl TemporarySite {
    /// Makes an authority for `site` in a new folder (mode 0700) of the system's folder for temporary files.
    ///
    /// For an edge inside a notebook or a test. Other processes of the same user join by the folder's path.
    pub fn create(site: &SiteName) -> Result<Self, TemporarySiteError> {
        let temporary = tempfile::Builder::new()
            .prefix("mez-keys-")
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .tempdir()
            .map_err(FileError::on("create a temporary folder in", &env::temp_dir()))?;
        SiteAuthority::create(temporary.path(), site)?;
        Ok(Self { keys: KeyFolder::open(temporary.path())?, _folder: temporary })
    }

    /// The site's folder of keys.
    pub fn keys(&self) -> &KeyFolder {
        &self.keys
    }
}
