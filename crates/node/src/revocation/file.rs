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

/// Whose signature counts.
#[derive(Clone, Debug)]
pub enum Trusted {
    /// That of these authorities.
    These(Trust),
    /// Those that a member trusts at the time, which change when the authority is replaced.
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
    /// That in a folder, whether it is there or not. Only lists that a trusted authority has signed for its site count.
    pub fn of(folder: &Path, trusted: impl Into<Trusted>) -> Self {
        Self { path: folder.join(REVOKED), lock: folder.join(LOCK), trusted: trusted.into() }
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
            None => Ok(SignedList::none(self.trusted.now().site())),
        }
    }

    /// What it says. `None` if it is not there.
    pub(super) fn present(&self) -> Result<Option<SignedList>, RevokedError> {
        let content = match files::read_at_most(&self.path, BYTES_MAX, "deny list") {
            Ok(content) => content,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let read = SignedList::from_text(&String::from_utf8_lossy(&content), &self.trusted.now());
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

    /// What `act` makes of the list, which nobody changes meanwhile. So whoever issues a certificate here does it before a change, or knows of it.
    pub(crate) fn while_it_stays<T>(&self, act: impl FnOnce(&Revocations) -> T) -> Result<T, RevokedError> {
        let _lock = match self.lock() {
            Ok(lock) => Some(lock),
            // In a folder that cannot be written the list is not changed either.
            Err(RevokedError::File(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(act(&self.read()?.list))
    }

    /// Has the list signed by an authority that has replaced the one before, one version up, so that everybody fetches it. Does nothing if that
    /// authority has signed it already, or there is none.
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
