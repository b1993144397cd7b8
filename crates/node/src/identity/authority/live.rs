//! The authority of a folder, as it is now: another one after `mez keys rotate`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{AuthorityError, SiteAuthority};
use crate::identity::files::FileError;
use crate::identity::prepare::AUTHORITY_KEY;

/// What tells two files of one path apart: they are replaced as a whole.
type Stamp = (u64, i64, i64);

/// Reads the authority's key again when its file has been replaced.
#[derive(Debug)]
pub(in crate::identity) struct LiveAuthority {
    folder: PathBuf,
    known: Mutex<(Stamp, Arc<SiteAuthority>)>,
}

impl LiveAuthority {
    /// Loads the authority in `folder`.
    pub(in crate::identity) fn load(folder: &Path) -> Result<Self, AuthorityError> {
        let known = (stamp(folder)?, Arc::new(SiteAuthority::load(folder)?));
        Ok(Self { folder: folder.into(), known: Mutex::new(known) })
    }

    /// The authority now. Reads files: not on a thread that carries frames.
    pub(in crate::identity) fn now(&self) -> Result<Arc<SiteAuthority>, AuthorityError> {
        let found = stamp(&self.folder)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != found {
            *known = (found, Arc::new(SiteAuthority::load(&self.folder)?));
        }
        Ok(Arc::clone(&known.1))
    }
}

fn stamp(folder: &Path) -> Result<Stamp, AuthorityError> {
    let path = folder.join(AUTHORITY_KEY);
    let found = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(AuthorityError::NoKey { folder: folder.into() });
        }
        other => other.map_err(FileError::on("read", &path))?,
    };
    Ok((found.ino(), found.mtime(), found.mtime_nsec()))
}
