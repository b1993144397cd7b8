//! The file with the deny list.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mez_core::revocation::{ListFull, Offer, Revocations};

use super::signed::{ListError, SignedList};
use crate::identity::files::{self, Present, Readers};
use crate::identity::trust::Trust;
use crate::identity::{Credentials, FileError, SiteAuthority};
use crate::lock::FileLock;

/// The file in the folder of keys.
pub const REVOKED: &str = "revoked.list";
/// Held while the file is changed. The lock file is never removed, and contains the newest version that the file has had.
const LOCK: &str = "revoked.lock";
/// The most bytes that are read: the largest list in base64, and the text around it.
const BYTES_MAX: u64 = 128 << 10;
/// How long a change waits for another change.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the deny list is not known, or was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RevokedError {
    /// The file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a list of this site.
    #[error(
        "{}: {error}; copy {REVOKED} again from another edge of the site, or from the host where the site was made", path.display()
    )]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: ListError,
    },
    /// The file existed before.
    #[error(
        "{} is missing, so it is not known who was revoked; copy it again from another edge of the site, or remove {} too to continue without the \
         list until a camera brings it",
        path.display(),
        lock.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The file that shows that the list existed.
        lock: PathBuf,
    },
    /// An older list has replaced the file.
    #[error(
        "{} has version {version}, but version {mark} was here before: an old copy replaced it; copy the newest list from another edge of the \
         site, or remove {} too to continue with this version until a camera brings the newest",
        path.display(),
        lock.display()
    )]
    RolledBack {
        /// The file.
        path: PathBuf,
        /// The file that shows which versions existed here.
        lock: PathBuf,
        /// The version in the file.
        version: u64,
        /// The newest version that the file had.
        mark: u64,
    },
    /// Another program is changing the file.
    #[error("another program has been changing {} for 5 s; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The list is full.
    #[error(transparent)]
    Full(#[from] ListFull),
    /// The subject is not on the list.
    #[error("{subject} is not on the deny list; `mez keys revoked` shows the list")]
    NotRevoked {
        /// The subject that was to be removed.
        subject: String,
    },
    /// The list could not be signed.
    #[error("cannot sign the deny list: {0}")]
    Sign(#[from] rcgen::Error),
}

/// Whose signature is valid.
#[derive(Clone, Debug)]
pub enum Trusted {
    /// The signature of one of these authorities.
    These(Trust),
    /// The signature of an authority that a member trusts at the time of reading. They change when the authority is replaced.
    By(Credentials),
}

impl From<&Trust> for Trusted {
    fn from(trust: &Trust) -> Self {
        Self::These(trust.clone())
    }
}

impl From<&Credentials> for Trusted {
    fn from(credentials: &Credentials) -> Self {
        Self::By(credentials.clone())
    }
}

impl Trusted {
    fn now(&self) -> Trust {
        match self {
            Self::These(trust) => trust.clone(),
            Self::By(credentials) => credentials.trust(),
        }
    }
}

/// The file with the deny list of one site.
#[derive(Clone, Debug)]
pub struct RevokedFile {
    path: PathBuf,
    lock: PathBuf,
    trusted: Trusted,
}

impl RevokedFile {
    /// The file in `folder`, which need not exist. Only lists that a trusted authority has signed for its site count.
    pub fn of(folder: &Path, trusted: impl Into<Trusted>) -> Self {
        Self { path: folder.join(REVOKED), lock: folder.join(LOCK), trusted: trusted.into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the list. Returns the empty list if the file never existed.
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
            None => Ok(SignedList::none(self.trusted.now().site())),
        }
    }

    /// Reads the list. `None` if the file does not exist.
    pub(super) fn present(&self) -> Result<Option<SignedList>, RevokedError> {
        let content = match files::read_at_most(&self.path, BYTES_MAX, "deny list") {
            Ok(content) => content,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = SignedList::from_text(&String::from_utf8_lossy(&content), &self.trusted.now());
        read.map(Some).map_err(|error| RevokedError::List { path: self.path.clone(), error })
    }

    /// Changes the list and signs it, under a lock. Readers see either the old list or the new list, each complete.
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

    /// Runs `act` on the list under the lock, so that nobody changes the list meanwhile. A program that
    /// issues a certificate here does it before a change of the list, or with knowledge of the change.
    pub(crate) fn while_it_stays<T>(&self, act: impl FnOnce(&Revocations) -> T) -> Result<T, RevokedError> {
        let _lock = match self.lock() {
            Ok(lock) => Some(lock),
            // In a folder that cannot be written, the list is not changed either.
            Err(RevokedError::File(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(act(&self.read()?.list))
    }

    /// Signs the list with an authority that has replaced the previous one. The version increases by one, so that
    /// everybody fetches the list. Does nothing if this authority has signed the list already, or if there is no list.
    pub(crate) fn sign_anew(&self, authority: &SiteAuthority) -> Result<(), RevokedError> {
        let is_signed = |held: &SignedList| {
            let alone = Trust::of(vec![authority.certificate().clone()]);
            alone.is_ok_and(|alone| SignedList::read(held.bytes.clone(), &alone).is_ok())
        };
        if self.read()?.list.version() == 0 {
            return Ok(());
        }
        let _lock = self.lock()?;
        let held = self.read()?;
        if !is_signed(&held) {
            self.write(&SignedList::sign(authority, held.list.again())?)?;
        }
        Ok(())
    }

    /// Writes a list into the file, unless the file has the same or a newer list. Returns the list
    /// that was overwritten, which is lost: an older list, or a different list with the same version.
    pub(super) fn store(&self, signed: &SignedList) -> Result<Option<SignedList>, RevokedError> {
        let _lock = self.lock()?;
        // A file that cannot be read counts as no list, and is overwritten.
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
