//! Options with which commands reach an edge broker.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use mez_node::client::{Address, ClientOptions, EdgeClient, Which};
use mez_node::identity::{KeyFolder, Role};

use crate::Application;
use crate::config::{self, Contradictions, OFF, OfRole, Take};
use crate::failure::Failure;
use crate::unnamed;

/// Where the edge is, and which keys to use.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The edge: a host name, an address, or unix:///PATH. To give several edges, repeat the option or write commas between them, in order of
    /// preference [default: the Unix socket of the edge on this host, as in `mez edge`, if one runs; else the edge that answers on the local network]
    #[arg(long, value_name = "EDGE", env = "MEZ_EDGE", value_delimiter = ',', value_parser = parse_edge)]
    edge: Vec<String>,
    /// Folder with the keys of this host, which are needed for an edge on another host [default: ~/.config/mez/keys]
    #[arg(long, value_name = "DIR", env = "MEZ_KEYS")]
    keys: Option<PathBuf>,
    /// File of settings (TOML): app.toml with the edge and the keys, or edge.toml of the edge on this host, whose socket is used; or `off` for none
    /// [default: app.toml in ~/.config/mez, else in /etc/mez; for the socket, edge.toml there]
    #[arg(long, value_name = "FILE|off", env = "MEZ_APP_CONFIG")]
    config: Option<OsString>,
}

fn parse_edge(text: &str) -> Result<String, String> {
    Address::parse(text, Which::Edge).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

impl OfRole for ConnectArgs {
    const ROLE: config::Role = config::Role::App;

    // Each command reads its settings once, at its start.
    const RELOADED: &'static [(&'static str, Take<Self>)] = &[];

    fn contradictions(&self, given: &dyn Fn(&str) -> bool) -> Contradictions {
        let twice = (1..self.edge.len()).find(|place| self.edge[..*place].contains(&self.edge[*place]));
        let twice = twice
            .map(|place| ("edge", format!("{:?} is named twice; name each edge once", self.edge[place])));
        // Without a value there was no intention to set it.
        let empty = self.edge.is_empty() && given("edge");
        let empty = empty.then(|| {
            let what = "the list is empty, so there is no edge to connect to; name an edge, or leave this setting out to use the edge on this host";
            ("edge", what.to_owned())
        });
        twice.into_iter().chain(empty).collect()
    }

    fn computed(&self) -> Vec<(&'static str, String)> {
        let keys = KeyFolder::location(self.keys.as_deref()).ok();
        keys.map(|keys| ("keys", keys.display().to_string())).into_iter().collect()
    }
}

impl ConnectArgs {
    /// The named edges and keys.
    pub(crate) fn named(self) -> Application {
        Application { edges: self.edge, keys: self.keys }
    }

    /// The settings files of applications, and of this host's edge. `--config` may name either.
    fn files(&self) -> (Option<&OsStr>, Option<&OsStr>) {
        let named = self.config.as_deref();
        let off = OsStr::new(OFF);
        match named {
            Some(file) if file == off => (Some(off), Some(off)),
            Some(file) if config::whose(Path::new(file)).is_ok_and(|role| role == config::Role::Edge) => {
                (Some(off), Some(file))
            }
            named => (named, None),
        }
    }

    /// Connects. Keys are only needed if the edge asks for a certificate.
    pub(crate) async fn connect(&self, application: &str) -> Result<EdgeClient, Failure> {
        let (of_applications, of_edge) = self.files();
        // Flags and variables are part of `self` already.
        let file = config::of_applications(of_applications)?;
        let edges = if self.edge.is_empty() { &file.edge } else { &self.edge };
        let keys = self.keys.as_deref().or(file.keys.as_deref());
        let given = edges.iter().map(|text| Address::parse(text, Which::Edge));
        let mut addresses = given.collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            addresses.push(unnamed::for_application(of_edge, keys).await?);
        }
        let is_remote = addresses.iter().any(|address| address.as_unix().is_none());
        let credentials = match is_remote {
            true => Some(KeyFolder::find(keys)?.credentials(Role::App, None)?),
            false => None,
        };
        let options = ClientOptions { application: application.into(), ..ClientOptions::default() };
        Ok(EdgeClient::connect(addresses, credentials.as_ref(), options).await?)
    }
}
