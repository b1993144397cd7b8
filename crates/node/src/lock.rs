//! Locks on files, so that two programs never write to the same thing.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// A lock on a file, held until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Takes the lock at `path`, a file that only its owner can open; creates it if needed. `None` if another process holds it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        // Without NONBLOCK, opening a pipe would block.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process holds the lock at `path`.
    pub(crate) fn is_held(path: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let Ok(file) = open(path, flags, Mode::empty()).map(File::from) else { return false };
        let held = flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
        let _ = flock(&file, FlockOperation::Unlock);
        held
    }
}

impl Drop for FileLock {
    /// Closing the file is not enough: a forked child that has not called `exec` yet still has it open.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_had_once_and_free_when_dropped_though_a_copy_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::take(&path).unwrap().unwrap();
        assert!(FileLock::take(&path).unwrap().is_none() && FileLock::is_held(&path));
        // The copy of a forked child.
        let copy = lock.0.try_clone().unwrap();
        drop(lock);
        assert!(!FileLock::is_held(&path));
        FileLock::take(&path).unwrap().unwrap();
        drop(copy);
    }
}
