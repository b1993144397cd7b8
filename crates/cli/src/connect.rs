//! Options by which commands reach an edge broker.

use std::path::PathBuf;

use clap::Args;
use mez_node::client::{Address, ClientOptions, EdgeClient, Which};
use mez_node::identity::{KeyFolder, Role};

use crate::failure::Failure;

/// Where the edge is, and which keys to use.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The edge: a host name, an address, or unix:///PATH. Give several (repeated, or separated by commas) in order of preference [default: the
    /// Unix socket of the edge on this host]
    #[arg(long, value_name = "EDGE", env = "MEZ_EDGE", value_delimiter = ',')]
    edge: Vec<String>,
    /// Folder with the keys of this host, which an edge on another host asks for [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

impl ConnectArgs {
    /// Connects; keys are only looked for where the edge asks for a certificate.
    pub(crate) async fn connect(&self, application: &str) -> Result<EdgeClient, Failure> {
        let given = self.edge.iter().map(|text| Address::parse(text, Which::Edge));
        let mut addresses = given.collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() {
            addresses.push(Address::local(Which::Edge));
        }
        let is_remote = addresses.iter().any(|address| address.as_unix().is_none());
        let credentials = match is_remote {
            true => Some(KeyFolder::find(self.keys.as_deref())?.credentials(Role::App, None)?),
            false => None,
        };
        let options = ClientOptions { application: application.into(), ..ClientOptions::default() };
        Ok(EdgeClient::connect(addresses, credentials.as_ref(), options).await?)
    }
}
