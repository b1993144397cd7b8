//! How commands of applications reach an edge broker.

use std::path::PathBuf;

use clap::Args;
use mez_node::client::{Address, ClientOptions, EdgeClient, Which};
use mez_node::identity::{KeyFolder, Role};

use crate::failure::Failure;

/// Where the edge is, and who asks.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// The edge, by host name or address, or unix:///PATH [default: the Unix socket of the edge on this host]
    #[arg(long, value_name = "EDGE", env = "MEZ_EDGE")]
    edge: Option<String>,
    /// Folder of keys, for an edge on another host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

impl ConnectArgs {
    /// Connects; keys are only looked for where the edge asks for a certificate.
    pub(crate) async fn connect(&self, application: &str) -> Result<EdgeClient, Failure> {
        let address = match &self.edge {
            Some(text) => Address::parse(text, Which::Edge)?,
            None => Address::local(Which::Edge),
        };
        let credentials = match address {
            Address::Unix(_) => None,
            Address::Tcp { .. } => Some(KeyFolder::find(self.keys.as_deref())?.credentials(Role::App, None)?),
        };
        let options = ClientOptions { application: application.into(), ..ClientOptions::default() };
        Ok(EdgeClient::connect(address, credentials.as_ref(), options).await?)
    }
}
