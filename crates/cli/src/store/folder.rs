//! Options of `mez store` that name the store and its keys.

use std::path::PathBuf;

use clap::Args;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::store::KeyRing;
use mez_node::persist::keys::{StoreKeyError, find_store_keys};
use mez_node::persist::{LogKind, cameras_in, find_remembered, has_log};
use mez_node::state;

use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct Logs {
    /// Which cameras, such as dock/cam1 or 'dock/*' [default: all]
    #[arg(value_name = "PATTERN")]
    pub(super) pattern: Option<CameraPattern>,
    #[command(flatten)]
    pub(super) folder: Folder,
}

/// Where the logs and their keys are.
#[derive(Debug, Args)]
pub(super) struct Folder {
    /// Folder of the store, as in `mez camera --store` and `mez edge --store`
    #[arg(long, value_name = "DIR", env = "MEZ_STORE")]
    pub(super) store: PathBuf,
    /// File with the store's keys [default: the keys in the variable MEZ_STORE_KEY itself, else the systemd credential mez-store-key, else store.key in the folder of keys]
    #[arg(long, value_name = "FILE")]
    pub(super) store_key: Option<PathBuf>,
    /// Folder with the keys of this host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    pub(super) keys: Option<PathBuf>,
    /// The broker's folder for state, which lists what should be in the store [default: $MEZ_STATE, else /var/lib/mez for root and
    /// ~/.local/state/mez for others, if it belongs to this store]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
}

impl Logs {
    pub(super) fn cameras(&self) -> Result<(Vec<CameraName>, KeyRing), Failure> {
        let (mut cameras, keys) = self.folder.open()?;
        cameras.retain(|camera| self.pattern.as_ref().is_none_or(|pattern| pattern.matches(camera)));
        if cameras.is_empty() {
            return Err(Failure::text(format!(
                "no camera in {} matches the pattern",
                self.folder.store.display()
            )));
        }
        Ok((cameras, keys))
    }
}

impl Folder {
    /// The cameras with a log in the store, and the keys.
    pub(super) fn open(&self) -> Result<(Vec<CameraName>, KeyRing), Failure> {
        // Checked before the keys, since a missing folder needs none.
        if let Err(error) = std::fs::metadata(&self.store) {
            return Err(Failure::text(format!(
                "cannot read {}: {error}; give the folder of the store with --store",
                self.store.display()
            )));
        }
        let unreadable = |error| Failure::text(format!("cannot read {}: {error}", self.store.display()));
        let cameras = cameras_in(&self.store).map_err(unreadable)?;
        if cameras.is_empty() {
            // A folder without logs needs no keys either.
            return Err(Failure::text(format!("there is no camera's log in {}", self.store.display())));
        }
        let keys = find_store_keys(self.store_key.as_deref(), self.keys.as_deref());
        let keys = keys.map_err(|error| match error {
            StoreKeyError::NotFound { file } => Failure::text(format!(
                "cannot read the logs in {}: they are encrypted with the key of their broker, and {} does not exist; give the broker's \
                 store.key with --store-key FILE, or its folder of keys with --keys DIR. A new key cannot decrypt them",
                self.store.display(),
                file.display()
            )),
            error => Failure::new(error),
        })?;
        Ok((cameras, keys))
    }

    /// The kinds of logs that a camera has.
    pub(super) fn kinds(&self, camera: &CameraName) -> impl Iterator<Item = LogKind> {
        [LogKind::Frames, LogKind::Notes].into_iter().filter(|kind| has_log(&self.store, camera, *kind))
    }

    /// The bounds file of a camera's log, if there is one.
    pub(super) fn remembered(&self, camera: &CameraName, kind: LogKind) -> Option<PathBuf> {
        let state = state::folder(self.state.as_deref()).ok()?;
        find_remembered(&state, self.state.is_some(), &self.store, (camera, kind))
    }
}
