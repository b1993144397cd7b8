//! Finds out whether a folder exists, or could be made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs};

/// File systems that only the kernel fills: /proc, /sys, control groups.
const OF_THE_KERNEL: [u64; 3] = [0x9fa0, 0x6265_6572, 0x6367_7270];

/// The path of a wanted folder, and what exists there. Nothing is changed.
pub(crate) struct Place {
    /// The folder itself, or its nearest existing ancestor.
    pub(crate) there: PathBuf,
    /// Whether the folder itself exists.
    pub(crate) exists: bool,
}

impl Place {
    pub(crate) fn of(path: &Path) -> Self {
        let path = if path.is_absolute() { path.to_owned() } else { PathBuf::from(".").join(path) };
        let exists = |folder: &&Path| fs::metadata(folder).is_ok();
        let there = path.ancestors().find(exists).map_or_else(|| PathBuf::from("/"), Path::to_owned);
        let exists = there == path;
        Self { there, exists }
    }

    /// Why this user cannot write there, or make the folder. `None` if nothing is in the way.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let shown = self.there.display();
        if !self.there.is_dir() {
            return Some(format!("{shown} is not a folder"));
        }
        let kind = statfs(&self.there).ok().and_then(|found| u64::try_from(found.f_type).ok());
        if kind.is_some_and(|kind| OF_THE_KERNEL.contains(&kind)) {
            return Some(format!("{shown} belongs to the kernel, and cannot hold other files"));
        }
        let denied = access(&self.there, Access::WRITE_OK | Access::EXEC_OK).err()?;
        let denied = io::Error::from(denied);
        Some(if self.exists { denied.to_string() } else { format!("{shown}: {denied}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_is_in_the_way() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), b"").unwrap();
        let obstacle = |path: &str| Place::of(&home.path().join(path)).obstacle();
        assert_eq!((obstacle("a/b"), obstacle("")), (None, None));
        assert!(obstacle("file/b").unwrap().ends_with("file is not a folder"));
        let kernels = Place::of(Path::new("/proc/nope/store"));
        assert!(kernels.there == Path::new("/proc") && !kernels.exists);
        assert!(kernels.obstacle().unwrap().contains("belongs to the kernel"));
    }
}
