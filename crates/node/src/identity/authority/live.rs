//! The current authority of a folder. `mez keys rotate` replaces it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{AuthorityError, SiteAuthority};
use crate::identity::files::{self, Stamp};
use crate::identity::prepare::AUTHORITY_KEY;

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

    /// The folder of keys with the authority.
    pub(in crate::identity) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The current authority. Reads files, so do not call it on a thread that carries frames.
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
    match files::stamp(&folder.join(AUTHORITY_KEY)) {
        Err(error) if error.is_absent() => Err(AuthorityError::NoKey { folder: folder.into() }),
        other => Ok(other?),
    }
}
