//! The edge of commands and programs for which none is configured: that of this host, or one that answers on the network.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use mez_node::api::socket::Which;
use mez_node::client::Address;
use mez_node::discovery::{FindError, edge_for_application, edge_for_camera, is_of_edge, is_served};
use mez_node::identity::{Credentials, KeyFolder};
use mez_node::ports::EdgeAddress;

use crate::config::EdgePlaces;
use crate::failure::Failure;

/// A command searches once.
const ONCE: Duration = Duration::ZERO;

/// The edge of an application. `of_edge` is the settings file of this host's edge, if it is named.
pub(crate) async fn for_application(
    of_edge: Option<&OsStr>,
    keys: Option<&Path>,
) -> Result<Address, Failure> {
    let local = local_address(EdgePlaces::socket_for_applications(of_edge)?);
    Ok(edge_for_application(local, keys, ONCE).await?)
}

/// The edge of a camera.
pub(crate) async fn for_camera(
    credentials: &Credentials,
    keys: Option<&Path>,
) -> Result<EdgeAddress, Failure> {
    match local_link(keys)? {
        Some(local) => Ok(local),
        None => Ok(edge_for_camera(credentials).await?),
    }
}

/// The link of this host's edge, if it runs, or if the key folder is that of an edge's host.
pub(crate) fn local_link(keys: Option<&Path>) -> Result<Option<EdgeAddress>, Failure> {
    let (socket, listen) = EdgePlaces::link_for_cameras()?;
    let is_here =
        is_served(&local_address(socket)) || KeyFolder::find(keys).is_ok_and(|keys| is_of_edge(&keys));
    let link = listen.map(|listen| {
        let ip = listen.ip().to_canonical();
        let host = if ip.is_unspecified() { "localhost".to_owned() } else { ip.to_string() };
        EdgeAddress { host, port: listen.port() }
    });
    Ok(is_here.then(|| link.unwrap_or_else(usual_link)))
}

/// The default link of this host's edge.
fn usual_link() -> EdgeAddress {
    EdgeAddress { host: "localhost".into(), port: mez_node::ports::LINK }
}

fn local_address(socket: Option<std::path::PathBuf>) -> Address {
    socket.map_or_else(|| Address::local(Which::Edge), Address::Unix)
}

/// The edge of a publisher that starts without an edge. If none answers on the network, that of this host, which may start later.
pub(crate) async fn for_publisher(
    credentials: &Credentials,
    keys: Option<&Path>,
) -> Result<EdgeAddress, Failure> {
    if let Some(local) = local_link(keys)? {
        return Ok(local);
    }
    match edge_for_camera(credentials).await {
        Ok(found) => Ok(found),
        Err(error @ FindError::Several { .. }) => Err(error.into()),
        Err(error @ (FindError::Nobody { .. } | FindError::Network(_))) => {
            tracing::warn!("{error}; frames will be sent to the edge on this host, as soon as one runs here");
            Ok(usual_link())
        }
    }
}
