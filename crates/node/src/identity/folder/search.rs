//! Searches for the folder of keys: options first, then the environment.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::KeyFolderError;

/// The environment variables that determine the folder of keys.
#[derive(Clone, Default)]
pub(super) struct Environment {
    pub(super) mez_keys: Option<OsString>,
    pub(super) xdg_config_home: Option<OsString>,
    pub(super) home: Option<OsString>,
}

impl Environment {
    pub(super) fn of_this_process() -> Self {
        // An empty variable counts as not set, as in the XDG rules.
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            mez_keys: variable("MEZ_KEYS"),
            xdg_config_home: variable("XDG_CONFIG_HOME"),
            home: variable("HOME"),
        }
    }
}

/// The chosen folder, and the places before it that were not given.
pub(super) struct Search {
    pub(super) chosen: Option<PathBuf>,
    pub(super) passed_over: Vec<&'static str>,
}

impl Search {
    pub(super) fn of(explicit: Option<&Path>, around: Environment) -> Self {
        let mut passed_over = Vec::new();
        if let Some(path) = explicit {
            return Self { chosen: Some(path.into()), passed_over };
        }
        passed_over.push("keys= or --keys (not given)");
        if let Some(path) = around.mez_keys {
            return Self { chosen: Some(path.into()), passed_over };
        }
        passed_over.push("MEZ_KEYS (not set)");
        // The XDG rules: a relative path is invalid and is ignored.
        let xdg = around.xdg_config_home.map(PathBuf::from).filter(|path| path.is_absolute());
        if xdg.is_none() {
            passed_over.push("XDG_CONFIG_HOME (not set)");
        }
        let config = xdg.or_else(|| around.home.map(|home| PathBuf::from(home).join(".config")));
        if config.is_none() {
            passed_over.push("HOME (not set)");
        }
        Self { chosen: config.map(|config| config.join("mez").join("keys")), passed_over }
    }

    pub(super) fn not_found(&self) -> KeyFolderError {
        let mut looked: Vec<String> = self.passed_over.iter().map(|&place| place.into()).collect();
        if let Some(path) = &self.chosen {
            let what = if path.exists() { "holds no authority.pem" } else { "does not exist" };
            looked.push(format!("{} ({what})", path.display()));
        }
        KeyFolderError::NotFound { looked: looked.join(", ") }
    }
}
