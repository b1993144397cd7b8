//! The Unix socket of a broker: its path and its permissions. Ensures that only one broker listens on it.
//!
//! The socket has mode 0660 in a folder of mode 0750, so only the broker's user and group may
//! connect. A host has no other authentication. All other connections require a certificate.
//!
//! A killed broker leaves its socket file. A lock on a file beside the socket shows whether the owner still runs: the kernel releases the lock of
//! a dead process. A new socket is put in place by a rename, so a client finds either the old socket, or the new one with its permissions set.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The broker that listens on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The edge broker.
    Edge,
    /// The camera broker.
    Camera,
}

impl Which {
    /// The file name of the socket.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Edge => "edge.sock",
            Self::Camera => "camera.sock",
        }
    }
}

/// The default path on which a broker of this user listens: in `/run/mez` for root, else in `$XDG_RUNTIME_DIR/mez`, else in `~/.cache/mez`.
pub fn default_path(which: Which) -> PathBuf {
    let root = rustix::process::geteuid().is_root();
    default_folder(root, env::var_os("XDG_RUNTIME_DIR"), env::var_os("HOME")).join(which.file_name())
}

/// The default path at which a client looks for a broker: this user's own, or else the system's. If neither exists, this user's own.
pub fn find(which: Which) -> PathBuf {
    let own = default_path(which);
    let system = Path::new(SYSTEM_FOLDER).join(which.file_name());
    if !own.exists() && system.exists() { system } else { own }
}

const SYSTEM_FOLDER: &str = "/run/mez";

fn default_folder(
    root: bool,
    runtime: Option<std::ffi::OsString>,
    home: Option<std::ffi::OsString>,
) -> PathBuf {
    let given =
        |value: Option<std::ffi::OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    match (root, given(runtime), given(home)) {
        (true, ..) => SYSTEM_FOLDER.into(),
        (false, Some(runtime), _) => runtime.join("mez"),
        (false, None, Some(home)) => home.join(".cache/mez"),
        // Some services have neither variable. The system's folder then fails with an error that contains its name.
        (false, None, None) => SYSTEM_FOLDER.into(),
    }
}

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another broker listens on the socket.
    #[error(
        "another broker is listening on {}; stop that broker, or give this broker another socket",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; remove the file, or give another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The path is too long: the kernel allows 107 bytes.
    #[error("the socket's path {} is too long ({bytes} bytes; at most {PATH_BYTES_MAX}); give a shorter one", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// The length of the path, including the suffix that is used until the rename.
        bytes: usize,
    },
    /// A system call failed.
    #[error("cannot open the socket {}: {source}", path.display())]
    System {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The most bytes in the path of a Unix socket.
pub const PATH_BYTES_MAX: usize = 107;

/// A socket on which a broker listens. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode, because another file may have replaced the socket before this is dropped.
    file: (u64, u64),
    /// Held as long as the broker runs.
    _lock: File,
}

impl Socket {
    /// Listens on `path`, and creates its folder if it does not exist. Needs a tokio runtime.
    pub fn open(path: &Path) -> Result<Self, SocketError> {
        let system = |at: &Path| {
            let path = at.to_owned();
            move |source| SocketError::System { path, source }
        };
        let fresh = beside(path, ".new");
        let bytes = fresh.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(SocketError::TooLong { path: path.into(), bytes });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(system(folder))?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(SocketError::NotASocket { path: path.into() });
            }
            // A foreign program holds no lock, but answers.
            Ok(_) if StdUnixStream::connect(path).is_ok() => {
                return Err(SocketError::InUse { path: path.into() });
            }
            _ => {}
        }
        // Left by a process that died between the next lines.
        let _ = fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh).map_err(system(&fresh))?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o660)).map_err(system(&fresh))?;
        fs::rename(&fresh, path).map_err(system(path))?;
        let made = fs::symlink_metadata(path).map_err(system(path))?;
        Ok(Self { listener, path: path.into(), file: (made.dev(), made.ino()), _lock: lock })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts connections.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
        // The lock file stays: if it were removed, two brokers could lock two files of the same name.
    }
}

/// Takes the lock that the listening broker holds.
fn lock(path: &Path) -> Result<File, SocketError> {
    let file = beside(path, ".lock");
    let system = |source| SocketError::System { path: file.clone(), source };
    let lock = File::options().create(true).append(true).open(&file).map_err(system)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(SocketError::InUse { path: path.into() }),
        Err(TryLockError::Error(source)) => Err(SocketError::System { path: file, source }),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_the_user() {
        let folder = |root, runtime: Option<&str>, home: Option<&str>| {
            default_folder(root, runtime.map(Into::into), home.map(Into::into))
        };
        assert_eq!(folder(true, Some("/run/user/0"), Some("/root")), Path::new("/run/mez"));
        assert_eq!(folder(false, Some("/run/user/7"), Some("/home/a")), Path::new("/run/user/7/mez"));
        assert_eq!(folder(false, None, Some("/home/a")), Path::new("/home/a/.cache/mez"));
        assert_eq!(folder(false, Some(""), Some("/home/a")), Path::new("/home/a/.cache/mez"));
        assert_eq!(folder(false, None, None), Path::new("/run/mez"));
    }

    #[tokio::test]
    async fn one_broker_at_a_time_listens_and_a_dead_ones_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/edge.sock");
        let first = Socket::open(&path).unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o660);
        // No access for others, no writing by the group. A strict umask may remove more.
        assert_eq!(mode(path.parent().unwrap()) & 0o027, 0);
        let error = Socket::open(&path).unwrap_err();
        assert!(matches!(error, SocketError::InUse { .. }));
        assert!(error.to_string().starts_with("another broker is listening on "), "{error}");
        drop(first);
        assert!(!path.exists());

        // A killed broker leaves a socket on which nobody answers, and a file that nobody locks.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Socket::open(&path).unwrap();
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(second);
    }

    #[tokio::test]
    async fn what_is_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("edge.sock");
        fs::write(&file, "notes").unwrap();
        assert!(matches!(Socket::open(&file), Err(SocketError::NotASocket { .. })));
        assert_eq!(fs::read(&file).unwrap(), b"notes");

        let taken = folder.path().join("taken.sock");
        let _stranger = std::os::unix::net::UnixListener::bind(&taken).unwrap();
        assert!(matches!(Socket::open(&taken), Err(SocketError::InUse { .. })));

        let long = folder.path().join("x".repeat(100));
        assert!(matches!(Socket::open(&long), Err(SocketError::TooLong { .. })));
    }

    #[tokio::test]
    async fn a_socket_that_was_replaced_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.sock");
        let socket = Socket::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
