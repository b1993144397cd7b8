//! Writes private files so that they are either complete or absent.
//!
//! A file is written under a temporary name in the same folder, flushed to disk, and then renamed.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Prefix of files that are being written. A power cut may leave such a file, which may be deleted.
const UNFINISHED: &str = ".mez-unfinished-";

/// The largest key file that is read. Key files have a few kilobytes, so a larger file is something else.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// A file or folder that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// The action that failed: "read", "write" …
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the operating system.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn on(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { action, path, source }
    }

    /// Whether the file did not exist.
    pub fn is_absent(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the file existed already.
    pub(crate) fn exists_already(&self) -> bool {
        self.source.kind() == io::ErrorKind::AlreadyExists
    }
}

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Its owner: mode 0600.
    Owner,
    /// Everybody: mode 0644.
    Everybody,
}

/// What to do if the file exists already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Present {
    /// Keep the old file and fail with `AlreadyExists`, also if two processes write at once.
    Keep,
    /// Replace the old file.
    Replace,
}

/// Writes a whole file or nothing. When this function returns, file and name are on disk.
pub(crate) fn write(
    path: &Path,
    content: &[u8],
    readers: Readers,
    present: Present,
) -> Result<(), FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = if readers == Readers::Owner { 0o600 } else { 0o644 };
    let attempt = || {
        let mut file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        match present {
            Present::Keep => file.persist_noclobber(path).map_err(|e| e.error)?,
            Present::Replace => file.persist(path).map_err(|e| e.error)?,
        };
        sync_folder(folder)
    };
    attempt().map_err(FileError::on("write", path))
}

/// Makes renames and removals inside `folder` survive a power cut.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Reads a key file. Fails if the file is larger than any key file, so that it cannot fill the memory.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_at_most(path, KEY_FILE_BYTES_MAX, "key file")
}

/// Reads a file of at most `bytes_max` bytes. `what` names the kind of file in the error.
pub(crate) fn read_at_most(path: &Path, bytes_max: u64, what: &str) -> Result<Vec<u8>, FileError> {
    let attempt = || {
        let file = File::open(path)?;
        let mut content = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut content)?;
        if content.len() as u64 > bytes_max {
            return Err(io::Error::other(format!(
                "it is larger than {bytes_max} bytes, so it is not a {what}"
            )));
        }
        Ok(content)
    };
    attempt().map_err(FileError::on("read", path))
}

/// The permission bits of a file or folder.
pub(crate) fn mode(path: &Path) -> Result<u32, FileError> {
    let metadata = fs::metadata(path).map_err(FileError::on("read", path))?;
    Ok(metadata.permissions().mode() & 0o7777)
}

/// Distinguishes two files with the same path, if files are replaced as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    changed: (i64, i64),
}

/// The stamp of a file.
pub(crate) fn stamp(path: &Path) -> Result<Stamp, FileError> {
    let found = fs::metadata(path).map_err(FileError::on("read", path))?;
    Ok(Stamp { inode: found.ino(), changed: (found.ctime(), found.ctime_nsec()) })
}

/// Creates a folder that only its owner may enter (0700), with its parents. An existing folder stays as it is.
pub(crate) fn make_private_folder(folder: &Path) -> Result<(), FileError> {
    let attempt = || {
        DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        match folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => sync_folder(parent),
            None => Ok(()),
        }
    };
    attempt().map_err(FileError::on("create", folder))
}

/// Removes other users' access to a folder.
pub(crate) fn close_to_others(folder: &Path) -> Result<(), FileError> {
    if mode(folder)? & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(FileError::on("protect", folder))
}

/// Whether a folder is empty, not counting files left over from an interrupted write.
pub(crate) fn is_empty(folder: &Path) -> Result<bool, FileError> {
    let mut names = names(folder)?;
    names.retain(|name| !name.starts_with(UNFINISHED));
    Ok(names.is_empty())
}

/// The names in a folder, sorted. Names that are not UTF-8 are left out, because Mez has none.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, FileError> {
    let attempt = || {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    };
    attempt().map_err(FileError::on("list", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_private_and_never_replaces_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.key");
        write(&path, b"first", Readers::Owner, Present::Keep).unwrap();
        assert_eq!(mode(&path).unwrap(), 0o600);
        let refused = write(&path, b"second", Readers::Owner, Present::Keep).unwrap_err();
        assert!(refused.exists_already(), "{refused}");
        assert_eq!(read(&path).unwrap(), b"first");
        write(&path, b"second", Readers::Everybody, Present::Replace).unwrap();
        assert_eq!(read(&path).unwrap(), b"second");
        assert_eq!(mode(&path).unwrap() & 0o600, 0o600);
        assert_eq!(names(folder.path()).unwrap(), ["x.key"], "something was left behind");
    }

    #[test]
    fn a_file_too_large_for_a_key_is_not_read_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("video.pem");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("is not a key file"));
    }

    #[test]
    fn a_new_folder_and_those_above_it_are_private() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("config/mez/keys");
        make_private_folder(&folder).unwrap();
        for made in [folder.as_path(), folder.parent().unwrap(), &top.path().join("config")] {
            assert_eq!(mode(made).unwrap(), 0o700, "{}", made.display());
        }
        make_private_folder(&folder).unwrap();
        assert!(is_empty(&folder).unwrap());
    }
}
