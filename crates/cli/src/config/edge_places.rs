//! Where the edge of this host keeps its things, for commands that change or show them: the same places as `mez edge` finds.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::fault::{Fault, Origin};
use super::file;
use super::resolve::{Gathered, Typed};
use super::setting::Role;
use crate::failure::Failure;

/// What flags, variables or the edge's file of settings say. `None`: none of them says anything, so the default counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePlaces {
    /// The folder of keys.
    pub(crate) keys: Option<PathBuf>,
    /// The folder for state.
    pub(crate) state: Option<PathBuf>,
    /// The Unix socket.
    pub(crate) socket: Option<PathBuf>,
    /// Where cameras connect.
    pub(crate) listen: Option<SocketAddr>,
    /// What the edge is called within the site.
    pub(crate) name: Option<String>,
    /// Whether somebody else has the authority's key.
    pub(crate) has_signer: bool,
}

/// The settings that are looked at.
const LOOKED_AT: [&str; 6] = ["keys", "state", "socket", "listen", "name", "signer"];

impl EdgePlaces {
    /// What is in force for a command that was given `config`, `keys` and `state`.
    pub(crate) fn find(
        config: Option<&OsStr>,
        keys: Option<&Path>,
        state: Option<&Path>,
    ) -> Result<Self, Failure> {
        let raws = |path: Option<&Path>| path.into_iter().map(OsString::from).collect();
        let given = vec![("keys", raws(keys)), ("state", raws(state))];
        let gathered = Gathered::of(Role::Edge, &Typed::given(config.map(Into::into), given));
        let matters = |fault: &&Fault| {
            matches!(fault.origin, Origin::File(..)) || LOOKED_AT.contains(&fault.field.as_str())
        };
        let faults: Vec<Fault> = gathered.faults.iter().filter(matters).cloned().collect();
        if !faults.is_empty() {
            return Err(unsettled(&faults));
        }
        let raw = |key: &str| {
            let line = gathered.lines.iter().find(|line| line.setting.key == key)?;
            line.raws.first().cloned()
        };
        let path = |key| raw(key).map(PathBuf::from);
        Ok(Self {
            keys: path("keys"),
            state: path("state"),
            socket: path("socket"),
            listen: raw("listen").and_then(|listen| listen.to_str()?.parse().ok()),
            name: raw("name").and_then(|name| name.into_string().ok()),
            has_signer: raw("signer").is_some(),
        })
    }

    /// The Unix socket of this host's edge, for an application. The file may be one that only the edge's user reads: then the default counts.
    pub(crate) fn socket_for_applications(config: Option<&OsStr>) -> Result<Option<PathBuf>, Failure> {
        Self::for_others(config).map(|places| places.socket)
    }

    /// The Unix socket of this host's edge, and where its cameras connect, for a camera.
    pub(crate) fn link_for_cameras() -> Result<(Option<PathBuf>, Option<SocketAddr>), Failure> {
        Self::for_others(None).map(|places| (places.socket, places.listen))
    }

    fn for_others(config: Option<&OsStr>) -> Result<Self, Failure> {
        let named = Typed::given(config.map(Into::into), Vec::new()).config(Role::Edge);
        let found = file::find(Role::Edge, named.as_deref());
        let is_private = found.as_deref().is_some_and(file::is_denied);
        let config = if is_private { Some(OsStr::new(file::OFF)) } else { config };
        Self::find(config, None, None)
    }
}

/// Nobody knows which folders are meant: those of another edge would be worse than none.
fn unsettled(faults: &[Fault]) -> Failure {
    let lines = super::lines(faults);
    let (before, after) = if faults.len() == 1 { (": ", " ") } else { (":\n", "\n") };
    Failure::usage(format!(
        "the settings of this host's edge cannot be read{before}{lines}{after}(or name the folders with --keys and --state, and --config off)"
    ))
}
