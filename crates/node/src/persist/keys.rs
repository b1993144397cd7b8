//! Finds the keys of the log on disk: in a file, an environment variable or a systemd credential.

use std::env;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mez_core::store::{KEY_BYTES, KEYS_MAX, KeyId, KeyRing, MasterKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::identity::KeyFolder;
use crate::identity::files::{self, FileError, Present, Readers};
use crate::identity::folder::KeyFolderError;

/// The file with the log's keys, in the key folder.
pub const STORE_KEY_FILE: &str = "store.key";
/// The environment variable that contains the log's keys themselves, not a file name.
pub const STORE_KEY_VARIABLE: &str = "MEZ_STORE_KEY";
/// The name of the systemd credential (`LoadCredential=mez-store-key:…`, or `LoadCredentialEncrypted=`).
pub const STORE_KEY_CREDENTIAL: &str = "mez-store-key";

const INTRODUCTION: &str = "\
# Keys of the logs that Mez keeps on this host's disks: the last one writes, all of them read.
# Whoever has this file can read the logs; without it they are lost. Keep a copy in a safe place.
";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum StoreKeyError {
    /// No keys were found.
    #[error(
        "no key for the store: make a key with `mez store key` (it writes {}), or give a key in {STORE_KEY_VARIABLE} or as the systemd credential \
         {STORE_KEY_CREDENTIAL}", file.display()
    )]
    NotFound {
        /// The last place where a key file was looked for.
        file: PathBuf,
    },
    /// There is a key already.
    #[error(
        "{} already has a key, which brokers use: there is nothing to do. `mez store key --rotate` adds another key for new frames",
        file.display()
    )]
    Exists {
        /// The file with the key.
        file: PathBuf,
    },
    /// Others may read the file.
    #[error("others may read or change {} (mode {mode:04o}); run: chmod 600 {0}", .file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The found text is not a list of keys.
    #[error("{place}, line {line}: not a key; a key is 32 bytes in base64, as `mez store key` writes it")]
    Malformed {
        /// Where the text was found.
        place: String,
        /// The line number, from 1.
        line: usize,
    },
    /// There are no keys, or too many.
    #[error("{place} holds {count} keys; give at least one and at most {KEYS_MAX}")]
    Count {
        /// Where the keys were found.
        place: String,
        /// Their number.
        count: usize,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key folder is unknown.
    #[error(transparent)]
    Folder(#[from] KeyFolderError),
    /// The system returned no random bytes.
    #[error("the operating system gives no random bytes")]
    Random,
}

/// Finds the keys: in the file `explicit`, else in the environment variable, else in the
/// credential, else in the file in the key folder `keys`. Only the first existing place is used.
pub fn find_store_keys(explicit: Option<&Path>, keys: Option<&Path>) -> Result<KeyRing, StoreKeyError> {
    if let Some(file) = explicit {
        return read_store_keys(file);
    }
    if let Some(text) = env::var(STORE_KEY_VARIABLE).ok().filter(|text| !text.is_empty()) {
        return parse(STORE_KEY_VARIABLE, &text);
    }
    if let Some(folder) = env::var_os("CREDENTIALS_DIRECTORY") {
        let file = Path::new(&folder).join(STORE_KEY_CREDENTIAL);
        if file.exists() {
            // The service manager controls who may read it.
            let text = String::from_utf8_lossy(&files::read(&file)?).into_owned();
            return parse(&file.display().to_string(), &text);
        }
    }
    read_store_keys(&KeyFolder::location(keys)?.join(STORE_KEY_FILE))
}

/// Reads a key file. Refuses a file that other users may read.
pub fn read_store_keys(file: &Path) -> Result<KeyRing, StoreKeyError> {
    if !file.exists() {
        return Err(StoreKeyError::NotFound { file: file.into() });
    }
    let mode = files::mode(file)?;
    if mode & 0o077 != 0 {
        return Err(StoreKeyError::Exposed { file: file.into(), mode });
    }
    let text = String::from_utf8_lossy(&files::read(file)?).into_owned();
    parse(&file.display().to_string(), &text)
}

/// Creates a file with a new key. Fails if the file exists. Returns the key's ID.
pub fn create_store_key(file: &Path) -> Result<KeyId, StoreKeyError> {
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        files::make_private_folder(folder)?;
    }
    if file.exists() {
        return Err(StoreKeyError::Exists { file: file.into() });
    }
    let mut text = INTRODUCTION.to_owned();
    let id = append_new(&mut text)?;
    files::write(file, text.as_bytes(), Readers::Owner, Present::Keep)?;
    Ok(id)
}

/// Adds a new key to a file. New segments are written with the new key; the older keys remain for reading. Returns the new key's ID.
pub fn rotate_store_key(file: &Path) -> Result<KeyId, StoreKeyError> {
    let held = read_store_keys(file)?;
    let place = file.display().to_string();
    if held.ids().count() >= KEYS_MAX {
        return Err(StoreKeyError::Count { place, count: KEYS_MAX + 1 });
    }
    let mut text = String::from_utf8_lossy(&files::read(file)?).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let id = append_new(&mut text)?;
    files::write(file, text.as_bytes(), Readers::Owner, Present::Replace)?;
    Ok(id)
}

fn append_new(text: &mut String) -> Result<KeyId, StoreKeyError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| StoreKeyError::Random)?;
    let _ = writeln!(text, "{}", STANDARD.encode(bytes));
    Ok(MasterKey::new(bytes).id())
}

/// Parses keys that are separated by white space. A `#` starts a comment.
fn parse(place: &str, text: &str) -> Result<KeyRing, StoreKeyError> {
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split('#').next().unwrap_or_default().split_whitespace() {
            let malformed = || StoreKeyError::Malformed { place: place.into(), line: number + 1 };
            let bytes = STANDARD.decode(word).map_err(|_| malformed())?;
            keys.push(MasterKey::new(bytes.try_into().map_err(|_| malformed())?));
        }
    }
    let count = keys.len();
    KeyRing::new(keys).ok_or_else(|| StoreKeyError::Count { place: place.into(), count })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_kept_private_and_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys/store.key");
        let missing = read_store_keys(&file).unwrap_err().to_string();
        assert!(missing.contains("mez store key"), "{missing}");
        let first = create_store_key(&file).unwrap();
        assert_eq!(files::mode(&file).unwrap(), 0o600);
        let again = create_store_key(&file).unwrap_err().to_string();
        assert!(again.contains("already has a key") && again.contains("--rotate"), "{again}");
        let second = rotate_store_key(&file).unwrap();
        let ring = read_store_keys(&file).unwrap();
        assert_eq!(ring.ids().collect::<Vec<_>>(), [first, second]);
        assert_eq!(ring.newest().id(), second);

        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let exposed = read_store_keys(&file).unwrap_err().to_string();
        assert!(exposed.contains("chmod 600"), "{exposed}");
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_line() {
        let key = STANDARD.encode([7; KEY_BYTES]);
        assert_eq!(parse("x", &format!("# ours\n{key} {key}")).unwrap().ids().count(), 2);
        for (text, expected) in [
            (format!("{key}\nc2hvcnQ="), "line 2"),
            ("# nothing\n".to_owned(), "0 keys"),
            (format!("{key} ").repeat(KEYS_MAX + 1), "65 keys"),
        ] {
            let refused = parse("x", &text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
