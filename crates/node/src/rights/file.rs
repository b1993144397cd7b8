//! The rights file in an edge's folder of keys.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mez_core::rights::Stance;

use super::edit::EditError;
use super::text::{RightsText, RightsTextError};
use crate::identity::FileError;
use crate::identity::files::{self, Present, Readers};
use crate::lock::FileLock;

/// The file in the folder of keys.
pub const RIGHTS: &str = "rights.toml";
/// The text of the file before a change removed all grants at once, so that a person can restore it. No program reads it.
pub const BEFORE: &str = "rights.toml.before";
/// Held while the file is changed. The lock file is never removed, and shows that a rights file existed.
const LOCK: &str = "rights.lock";
/// The largest file that is read. A grant takes about 30 bytes.
const BYTES_MAX: u64 = 4 << 20;
/// How long a change waits for another change.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

const STRICT: &str = r#"# Who may do what at this edge. What no grant allows is refused. The edge takes changes in within seconds, also
# for streams that run. `mez keys grant` and `mez keys ungrant` write here too, and keep comments.
#
#   [grants."app/counter"]      one application; app/** is every application, user/1000 a user of this host
#   watch = ["dock/*"]          frames of these cameras from now on, also of cameras that come later
#   reply = ["dock/cam1"]       results back to this one
#
# Verbs: watch, read (the past), originals (full quality out of the camera's log), reply, publish (streams of its own at
# the edge), observe (lists and states), profile (bring one's own), operate (reset, forget), export, join, administer.
# Cameras publish under their own names without a grant. The user that the edge runs as, and root, may do everything.

default = "deny"
"#;

const OPEN: &str = r#"# Who may do what at this edge. This site is older than grants: "open" lets every application of the site, and every
# user of this host who may open the edge's socket, do what they could do before. Grants then restrict nothing.
# Give each application its grants (`mez keys grant app/counter watch 'dock/*'`), then run `mez keys rights --strict`.

default = "open"
"#;

/// Why the rights are not known, or were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is invalid.
    #[error("{}: {error}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: RightsTextError,
    },
    /// The text cannot be changed in this way.
    #[error("{}: {error}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// Why.
        error: EditError,
    },
    /// Others may write the file.
    #[error("others may write {} (mode {mode:04o}), so they can give themselves rights; run `chmod 600 {}`", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file existed before.
    #[error(
        "{} is missing, so the rights are unknown; restore it from a copy, or write a new file that allows nothing with `mez keys rights --strict`",
        path.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Another command is changing the file.
    #[error("another command has been changing {} for 5 s; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
}

impl RightsError {
    /// Whether there is no file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::File(error) if error.is_absent())
    }
}

/// The rights file in a folder of keys.
#[derive(Clone, Debug)]
pub struct RightsFile {
    path: PathBuf,
    lock: PathBuf,
}

impl RightsFile {
    /// The rights file in `keys`, which need not exist.
    pub fn of(keys: &Path) -> Self {
        Self { path: keys.join(RIGHTS), lock: keys.join(LOCK) }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the rights. Refuses a file that others may write.
    pub fn read(&self) -> Result<RightsText, RightsError> {
        self.parse(&self.text()?)
    }

    /// Reads the rights and the text, at an edge that runs. A missing file is [`RightsError::Gone`].
    pub(super) fn read_again(&self) -> Result<(RightsText, String), RightsError> {
        match self.text() {
            Err(error) if error.is_absent() => Err(RightsError::Gone { path: self.path.clone() }),
            text => {
                let text = text?;
                Ok((self.parse(&text)?, text))
            }
        }
    }

    /// Writes `text` to [`BEFORE`]. Returns the path.
    pub(super) fn keep(&self, text: &str) -> Result<PathBuf, RightsError> {
        let path = self.path.with_file_name(BEFORE);
        files::write(&path, text.as_bytes(), Readers::Owner, Present::Replace)?;
        Ok(path)
    }

    /// Reads the rights. If there has never been a file, writes one with [`Stance::Open`], which allows
    /// everything that was allowed before grants existed. The second value tells whether the file was written.
    pub fn read_or_open(&self) -> Result<(RightsText, bool), RightsError> {
        match self.read() {
            Err(error) if error.is_absent() && self.lock.exists() => {
                Err(RightsError::Gone { path: self.path.clone() })
            }
            Err(error) if error.is_absent() => {
                let written = self.create(Stance::Open)?;
                Ok((self.read()?, written))
            }
            read => Ok((read?, false)),
        }
    }

    /// Writes a file without grants. Returns false, and changes nothing, if there is a file already.
    pub fn create(&self, stance: Stance) -> Result<bool, RightsError> {
        let _lock = self.lock()?;
        let text = match stance {
            Stance::Deny => STRICT,
            Stance::Open => OPEN,
        };
        match files::write(&self.path, text.as_bytes(), Readers::Owner, Present::Keep) {
            Ok(()) => Ok(true),
            Err(error) if error.exists_already() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes the text, under a lock. Readers see either the old text or the new text, each complete.
    pub fn edit(
        &self,
        change: impl FnOnce(String) -> Result<String, EditError>,
    ) -> Result<RightsText, RightsError> {
        let _lock = self.lock()?;
        let text = self.text()?;
        let changed =
            change(text.clone()).map_err(|error| RightsError::Edit { path: self.path.clone(), error })?;
        if changed != text {
            files::write(&self.path, changed.as_bytes(), Readers::Owner, Present::Replace)?;
        }
        self.parse(&changed)
    }

    /// The text, if nobody but the owner can have written it.
    pub(super) fn text(&self) -> Result<String, RightsError> {
        let attempt = || {
            let file = File::open(&self.path)?;
            let mode = file.metadata()?.permissions().mode() & 0o7777;
            let mut bytes = Vec::new();
            file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > BYTES_MAX {
                return Err(io::Error::other(format!("it is larger than {BYTES_MAX} bytes")));
            }
            Ok((bytes, mode))
        };
        let (bytes, mode) = attempt().map_err(FileError::on("read", &self.path))?;
        if mode & 0o022 != 0 {
            return Err(RightsError::Exposed { path: self.path.clone(), mode });
        }
        String::from_utf8(bytes).map_err(|error| RightsError::Text {
            path: self.path.clone(),
            error: RightsTextError::not_text(error.as_bytes(), error.utf8_error().valid_up_to()),
        })
    }

    pub(super) fn parse(&self, text: &str) -> Result<RightsText, RightsError> {
        RightsText::parse(text).map_err(|error| RightsError::Text { path: self.path.clone(), error })
    }

    fn lock(&self) -> Result<FileLock, RightsError> {
        let begun = Instant::now();
        loop {
            match FileLock::take(&self.lock).map_err(FileError::on("lock", &self.lock))? {
                Some(lock) => return Ok(lock),
                None if begun.elapsed() > LOCK_TIMEOUT => {
                    return Err(RightsError::Busy { path: self.path.clone() });
                }
                None => sleep(Duration::from_millis(20)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rights::edit::{with_grant, with_stance, without_grant};

    fn grant(who: &str, verb: &str, cameras: &str) -> mez_core::rights::Grant {
        mez_core::rights::Grant {
            grantee: who.parse().unwrap(),
            verb: verb.parse().unwrap(),
            cameras: cameras.parse().unwrap(),
        }
    }

    #[test]
    fn a_site_that_is_older_than_grants_goes_on_and_becomes_strict_when_told() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        let (open, written) = file.read_or_open().unwrap();
        assert_eq!((open.stance, open.grants.len(), written), (Stance::Open, 0, true));
        assert!(!file.read_or_open().unwrap().1, "it is said once");
        assert_eq!(files::mode(file.path()).unwrap(), 0o600);
        let counter = grant("app/counter", "watch", "dock/*");
        file.edit(|text| with_grant(&text, &counter)).unwrap();
        let strict = file.edit(|text| with_stance(&text, Stance::Deny)).unwrap();
        assert_eq!((strict.stance, strict.grants.contains(&counter)), (Stance::Deny, true));
        assert_eq!(file.read().unwrap(), strict);
        assert!(fs::read_to_string(file.path()).unwrap().contains("# Give each application"));
    }

    #[test]
    fn a_new_site_is_strict_and_both_templates_say_what_they_mean() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        assert!(file.create(Stance::Deny).unwrap());
        assert!(!file.create(Stance::Open).unwrap(), "what is there stays");
        assert_eq!(file.read_or_open().unwrap(), (RightsText::default(), false));
        assert_eq!(RightsText::parse(OPEN).unwrap().stance, Stance::Open);
    }

    /// Removing the file by mistake must not allow everything.
    #[test]
    fn a_file_that_is_gone_opens_nothing() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        file.create(Stance::Deny).unwrap();
        fs::remove_file(file.path()).unwrap();
        let error = file.read_or_open().unwrap_err().to_string();
        assert!(error.contains("is missing") && error.contains("mez keys rights --strict"), "{error}");
        file.create(Stance::Deny).unwrap();
        assert_eq!(file.read_or_open().unwrap().0.stance, Stance::Deny);
    }

    #[test]
    fn a_file_that_others_may_write_gives_nobody_rights() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        file.create(Stance::Deny).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o620)).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("mode 0620") && error.contains("chmod 600"), "{error}");
    }

    /// A photo was copied over the file, or the text has another encoding.
    #[test]
    fn a_file_that_is_no_text_is_named_by_line_with_a_remedy() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        files::write(file.path(), b"default = \"deny\"\n# f\xfcr alle\n", Readers::Owner, Present::Keep)
            .unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("rights.toml: line 2: the file: ") && error.contains("UTF-8"), "{error}");
        assert!(error.contains("from a copy"), "{error}");
    }

    #[test]
    fn two_commands_at_once_lose_nothing() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        file.create(Stance::Deny).unwrap();
        std::thread::scope(|threads| {
            for who in ["app/a", "app/b", "app/c"] {
                let file = &file;
                threads.spawn(move || {
                    for camera in ["x", "y", "z"] {
                        file.edit(|text| with_grant(&text, &grant(who, "watch", camera))).unwrap();
                    }
                    file.edit(|text| without_grant(&text, &grant(who, "watch", "x"))).unwrap();
                });
            }
        });
        assert_eq!(file.read().unwrap().grants.len(), 6);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        let keys = tempfile::tempdir().unwrap();
        let file = RightsFile::of(keys.path());
        files::write(file.path(), b"default = \"deny\"\nlimits = 3\n", Readers::Owner, Present::Keep)
            .unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("rights.toml: line 2: limits: "), "{error}");
    }
}
