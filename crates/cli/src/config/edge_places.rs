//! The folders and addresses of this host's edge, for other commands. They are the same that `mez edge` uses.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::fault::{Fault, Origin};
use super::file;
use super::resolve::{Gathered, Typed};
use super::setting::Role;
use crate::failure::Failure;

/// The values from flags, variables or the edge's settings file. `None` stands for the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct EdgePlaces {
    /// The key folder.
    pub(crate) keys: Option<PathBuf>,
    /// The state folder.
    pub(crate) state: Option<PathBuf>,
    /// The Unix socket.
    pub(crate) socket: Option<PathBuf>,
    /// The address for cameras.
    pub(crate) listen: Option<SocketAddr>,
    /// The edge's name within the site.
    pub(crate) name: Option<String>,
    /// Whether another process has the authority's key.
    pub(crate) has_signer: bool,
}

/// The settings that are used here.
const LOOKED_AT: [&str; 6] = ["keys", "state", "socket", "listen", "name", "signer"];

impl EdgePlaces {
    /// The places for a command with the options `config`, `keys` and `state`.
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

    /// The Unix socket of this host's edge, for an application. If only the edge's user may read the file, the default counts.
    pub(crate) fn socket_for_applications(config: Option<&OsStr>) -> Result<Option<PathBuf>, Failure> {
        Self::for_others(config).map(|places| places.socket)
    }

    /// For a camera: the Unix socket of this host's edge, and its address for cameras.
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

/// The error for invalid settings. The folders of another edge would be worse than none.
fn unsettled(faults: &[Fault]) -> Failure {
    let lines = super::lines(faults);
    let (before, after) = if faults.len() == 1 { (": ", " ") } else { (":\n", "\n") };
    Failure::usage(format!(
        "the settings of this host's edge cannot be read{before}{lines}{after}(or give --config off, and name the folders with --keys and --state)"
    ))
}
