//! The file with the deny list.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mez_core::revocation::{ListFull, Offer, Revocations};
use rustls::pki_types::CertificateDer;

use super::signed::{ListError, SignedList};
use crate::identity::files::{self, Present, Readers};
use crate::identity::{FileError, SiteAuthority, SiteName};
use crate::lock::FileLock;

/// The file in the folder of keys.
pub const REVOKED: &str = "revoked.list";
/// Held while the file is changed. It stays for good, and holds the newest version that the file has had.
const LOCK: &str = "revoked.lock";
/// The most bytes that are read: the largest list in base64, and the words around it.
const BYTES_MAX: u64 = 128 << 10;
/// How long a change waits for another one.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the deny list is not known, or was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// The file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is not a list of this site.
    #[error(
        "{}: {error}; copy {REVOKED} anew from another edge of the site, or from where the site was made", path.display()
    )]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ListError,
    },
    /// It has been there before.
    #[error(
        "{} is gone, so nobody knows who was revoked; copy it anew from another edge of the site, or remove {} as well to go on \
         without it until a camera brings it",
        path.display(),
        lock.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The file that shows that it has been there.
        lock: PathBuf,
    },
    /// An older list has come in its place.
    #[error(
        "{} has version {version}, and version {mark} was here before: an old copy took its place; copy the newest anew from another \
         edge of the site, or remove {} as well to go on with this one until a camera brings the newest",
        path.display(),
        lock.display()
    )]
    RolledBack {
        /// The file.
        path: PathBuf,
        /// The file that shows which versions have been here.
        lock: PathBuf,
        /// The version that it has.
        version: u64,
        /// The version that it had.
        mark: u64,
    },
    /// Somebody else changes it.
    #[error("another program has been changing {} for 5 s; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// There is no room.
    #[error(transparent)]
    Full(#[from] ListFull),
    /// Nothing of the kind is revoked.
    #[error("{subject} is not on the deny list; `mez keys revoked` shows what is")]
    NotRevoked {
        /// What was to be taken off.
        subject: String,
    },
    /// The list could not be signed.
    #[error("cannot sign the deny list: {0}")]
    Sign(#[from] rcgen::Error),
}

/// The file with the deny list of one site.
#[derive(Clone, Debug)]
pub struct RevokedFile {
    path: PathBuf,
    lock: PathBuf,
    site: SiteName,
    authority: CertificateDer<'static>,
}

impl RevokedFile {
    /// That in a folder, whether it is there or not. Only lists that `authority` has signed for `site` count.
    pub fn of(folder: &Path, site: &SiteName, authority: &CertificateDer<'static>) -> Self {
        let (site, authority) = (site.clone(), authority.clone());
        Self { path: folder.join(REVOKED), lock: folder.join(LOCK), site, authority }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says; the empty list if it has never been there.
    pub fn read(&self) -> Result<SignedList, RevokedError> {
        let (path, lock) = (|| self.path.clone(), || self.lock.clone());
        let mark = std::fs::read_to_string(&self.lock).ok().and_then(|text| text.trim().parse().ok());
        let mark: u64 = mark.unwrap_or(0);
        match self.present()? {
            Some(held) if held.list.version() < mark => {
                let version = held.list.version();
                Err(RevokedError::RolledBack { path: path(), lock: lock(), version, mark })
            }
            Some(held) => Ok(held),
            None if mark > 0 => Err(RevokedError::Gone { path: path(), lock: lock() }),
            None => Ok(SignedList::none(&self.site)),
        }
    }

    /// What it says. `None` if it is not there.
    pub(super) fn present(&self) -> Result<Option<SignedList>, RevokedError> {
        let content = match files::read_at_most(&self.path, BYTES_MAX, "deny list") {
            Ok(content) => content,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = SignedList::from_text(&String::from_utf8_lossy(&content), &self.site, &self.authority);
        read.map(Some).map_err(|error| RevokedError::List { path: self.path.clone(), error })
    }

    /// Changes the list and signs it. Nobody else changes it meanwhile, and readers see the old list or the new one
    /// whole.
    pub fn edit(
        &self,
        authority: &SiteAuthority,
        change: impl FnOnce(Revocations) -> Result<Revocations, RevokedError>,
    ) -> Result<SignedList, RevokedError> {
        let _lock = self.lock()?;
        let held = self.read()?;
        let changed = change(held.list.clone())?;
        if changed == held.list {
            return Ok(held);
        }
        let signed = SignedList::sign(authority, changed)?;
        self.write(&signed)?;
        Ok(signed)
    }

    /// Puts a list into the file, unless a newer one is there already. Returns what was there of an older or another
    /// list of the same version, and is lost.
    pub(super) fn store(&self, signed: &SignedList) -> Result<Option<SignedList>, RevokedError> {
        let _lock = self.lock()?;
        // What cannot be read is no list, so a list takes its place.
        let there = self.present().ok().flatten();
        match there.as_ref().map(|there| signed.list.judge(&there.list)) {
            Some(Offer::Newer | Offer::Same) => Ok(None),
            Some(Offer::Older | Offer::Conflict) | None => {
                self.write(signed)?;
                Ok(there)
            }
        }
    }

    fn write(&self, signed: &SignedList) -> Result<(), RevokedError> {
        files::write(&self.path, signed.to_text().as_bytes(), Readers::Everybody, Present::Replace)?;
        let mark = signed.list.version().to_string();
        Ok(std::fs::write(&self.lock, mark).map_err(FileError::on("write", &self.lock))?)
    }

    fn lock(&self) -> Result<FileLock, RevokedError> {
        let begun = Instant::now();
        loop {
            match FileLock::take(&self.lock).map_err(FileError::on("lock", &self.lock))? {
                Some(lock) => return Ok(lock),
                None if begun.elapsed() > LOCK_TIMEOUT => {
                    return Err(RevokedError::Busy { path: self.path.clone() });
                }
                None => sleep(Duration::from_millis(20)),
            }
        }
    }
}
