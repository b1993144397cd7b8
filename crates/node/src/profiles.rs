//! Holds the profiles of an edge. Applications send them, or name one in the edge's profile folder.
//!
//! A profile is held while subscriptions use it, and after that until its room is needed.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mez_core::profile::SizedProfile;

use crate::profile::{BYTES_MAX, NamedProfile, ReadProfileError};

/// The most profiles that an edge holds in memory.
pub const PROFILES_MAX: usize = 64;
/// The most bytes of all profiles together.
pub const PROFILES_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a profile's name.
const NAME_BYTES_MAX: usize = 128;
/// Profiles that every edge has, by name. Users can try Mez with them before they measure a profile of their own.
const SHIPPED: [(&str, &[u8]); 1] =
    [("pedestrian-hog-vtest", include_bytes!("../../../python/mez/profiles/pedestrian-hog-vtest.json"))];

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileStoreError {
    /// The profile is invalid.
    #[error(transparent)]
    Read(#[from] ReadProfileError),
    /// The folder has no profile of this name.
    #[error("the edge has no profile {name:?} in {}; put it there, or send the file itself (Mez includes {})", folder.display(), SHIPPED[0].0)]
    Unknown {
        /// The requested name.
        name: String,
        /// The profile folder.
        folder: PathBuf,
    },
    /// The name is invalid.
    #[error(
        "{name:?} cannot be the name of a profile: letters, digits, `.`, `_` and `-`, at most 128 of them"
    )]
    Name {
        /// The requested name.
        name: String,
    },
    /// The folder could not be read.
    #[error("the edge cannot read {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Subscriptions use the maximum of profiles.
    #[error(
        "subscriptions use {PROFILES_MAX} profiles or {PROFILES_BYTES_MAX} bytes of profiles, which is the edge's limit; end some subscriptions"
    )]
    Full,
}

/// A profile that an edge holds.
#[derive(Debug)]
pub struct HeldProfile {
    /// The bytes of the file, which are sent to cameras.
    pub bytes: Bytes,
    /// The SHA-256 of the file, which identifies the profile.
    pub sha256: [u8; 32],
    /// The parsed profile.
    pub profile: Arc<SizedProfile>,
}

/// The profiles of an edge.
#[derive(Debug)]
pub struct ProfileStore {
    folder: PathBuf,
    /// Sorted by use. The most recently used one is last.
    held: Mutex<Vec<Arc<HeldProfile>>>,
}

impl ProfileStore {
    /// An empty store. Profiles are looked up by name in `folder`, which need not exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, held: Mutex::default() }
    }

    /// Adds a profile, unless the store has it already.
    ///
    /// # Errors
    /// See [`ProfileStoreError`].
    pub fn take_in(&self, bytes: Bytes) -> Result<Arc<HeldProfile>, ProfileStoreError> {
        let NamedProfile { sha256, camera_size, interval, profile, .. } = NamedProfile::read(&bytes)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = held.iter().position(|known| known.sha256 == sha256) {
            let known = held.remove(place);
            held.push(Arc::clone(&known));
            return Ok(known);
        }
        while held.len() >= PROFILES_MAX
            || held.iter().map(|known| known.bytes.len()).sum::<usize>() + bytes.len() > PROFILES_BYTES_MAX
        {
            let unused = held.iter().position(|known| Arc::strong_count(known) == 1);
            held.remove(unused.ok_or(ProfileStoreError::Full)?);
        }
        let profile = Arc::new(SizedProfile { size: camera_size, interval, profile });
        let fresh = Arc::new(HeldProfile { bytes, sha256, profile });
        held.push(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// Reads the file `name` or `name.json` from the folder. If there is none, returns the profile of this name that is part of Mez. Blocks.
    ///
    /// # Errors
    /// See [`ProfileStoreError`].
    pub fn named(&self, name: &str) -> Result<Arc<HeldProfile>, ProfileStoreError> {
        let ok = name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !ok {
            return Err(ProfileStoreError::Name { name: name.chars().take(NAME_BYTES_MAX).collect() });
        }
        let candidates = [name.to_owned(), format!("{name}.json")];
        for path in candidates.iter().map(|file| self.folder.join(file)) {
            match read(&path) {
                Ok(bytes) => return self.take_in(bytes.into()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(ProfileStoreError::System { path, source }),
            }
        }
        let stem = name.strip_suffix(".json").unwrap_or(name);
        if let Some((_, bytes)) = SHIPPED.iter().find(|(shipped, _)| *shipped == stem) {
            return self.take_in(Bytes::from_static(bytes));
        }
        Err(ProfileStoreError::Unknown { name: name.into(), folder: self.folder.clone() })
    }
}

/// Reads a file, up to one byte more than the maximum size of a profile.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(width: u32, app: &str) -> Bytes {
        let rung = r#"{"rung":"original","bytes":{"mean":9,"p05":8,"p50":9,"p95":10},"accuracy_normalised":{"value":1.0}}"#;
        format!(
            r#"{{"format":"mez-profile","version":1,"app":"{app}","width":{width},"height":576,"rungs":[{rung}]}}"#
        )
        .into()
    }

    #[test]
    fn names_stay_within_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("people.json"), document(768, "people")).unwrap();
        let store = ProfileStore::new(folder.path().into());
        let by_name = store.named("people").unwrap();
        assert_eq!(by_name.profile.size, (768, 576));
        assert!(Arc::ptr_eq(&by_name, &store.named("people.json").unwrap()), "it is here already");
        for bad in ["", "../people", ".hidden", "a/b", &"x".repeat(129)] {
            assert!(matches!(store.named(bad), Err(ProfileStoreError::Name { .. })), "{bad}");
        }
        let missing = store.named("faces").unwrap_err().to_string();
        assert!(missing.contains("no profile \"faces\" in"), "{missing}");
    }

    /// It needs no folder. A file of the same name takes precedence.
    #[test]
    fn the_profile_that_comes_with_mez_has_a_name_at_every_edge() {
        let folder = tempfile::tempdir().unwrap();
        let store = ProfileStore::new(folder.path().join("missing"));
        let (name, bytes) = SHIPPED[0];
        let shipped = store.named(name).unwrap();
        assert!(shipped.bytes == bytes && shipped.profile.profile.ladder().len() > 5);
        assert!(Arc::ptr_eq(&shipped, &store.named(&format!("{name}.json")).unwrap()));
        std::fs::write(folder.path().join(name), document(768, "mine")).unwrap();
        let own = ProfileStore::new(folder.path().into()).named(name).unwrap();
        assert_eq!(own.bytes, document(768, "mine"));
    }

    #[test]
    fn what_nobody_uses_makes_room_and_what_is_used_stays() {
        let store = ProfileStore::new(PathBuf::new());
        let kept = store.take_in(document(768, "kept")).unwrap();
        for number in 0..2 * PROFILES_MAX {
            store.take_in(document(768, &format!("app{number}"))).unwrap();
        }
        assert!(Arc::ptr_eq(&kept, &store.take_in(document(768, "kept")).unwrap()));
        let all: Vec<_> = (0..PROFILES_MAX - 1)
            .map(|number| store.take_in(document(768, &format!("used{number}"))).unwrap())
            .collect();
        assert!(matches!(store.take_in(document(768, "one more")), Err(ProfileStoreError::Full)));
        drop(all);
        assert!(store.take_in(document(768, "one more")).is_ok());
    }
}
