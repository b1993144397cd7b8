//! Finds the edges that a program connects to.

use std::env;
use std::path::Path;
use std::time::Duration;

use mez_node::background::Background;
use mez_node::client::{Address, Which};
use mez_node::discovery::edge_for_application;
use mez_node::identity::Credentials;
use mez_node::ports::EdgeAddress;
use pyo3::prelude::*;

use crate::error;
use crate::runtime::finish;

/// The edges' addresses: `edges`; if empty, those in `MEZ_EDGE`, then those in `app.toml`,
/// then the edge of this host, then the one that answers on the local network.
pub(crate) fn addresses(
    py: Python<'_>,
    background: &'static Background,
    edges: &[String],
    (keys, patience): (Option<&Path>, Duration),
) -> PyResult<Vec<Address>> {
    let parse = |edge: &str| Address::parse(edge, Which::Edge);
    if !edges.is_empty() {
        let addresses = edges.iter().map(|edge| parse(edge));
        return addresses.collect::<Result<_, _>>().map_err(|failure| error::argument(py, "edge", failure));
    }
    let named = env::var("MEZ_EDGE").unwrap_or_default();
    let named = named.split(',').map(str::trim).filter(|edge| !edge.is_empty()).map(parse);
    let named = named.collect::<Result<Vec<_>, _>>();
    let named = named.map_err(|failure| error::argument(py, "edge", format!("MEZ_EDGE: {failure}")))?;
    if !named.is_empty() {
        return Ok(named);
    }
    let file = mez_cli::application().map_err(|failure| error::argument(py, "edge", failure))?;
    let in_file = file.edges.iter().map(|edge| parse(edge)).collect::<Result<Vec<_>, _>>();
    let in_file = in_file.map_err(|failure| error::argument(py, "edge", failure))?;
    if !in_file.is_empty() {
        return Ok(in_file);
    }
    let socket = mez_cli::edge_socket().map_err(|failure| error::argument(py, "edge", failure))?;
    let local = socket.map_or_else(|| Address::local(Which::Edge), Address::Unix);
    let keys = keys.or(file.keys.as_deref());
    let found = finish(py, background, || edge_for_application(local, keys, patience))?;
    Ok(vec![found.map_err(|failure| error::raise(py, "ConnectError", failure))?])
}

/// The edge of a publisher for which none was named.
pub(crate) fn of_publisher(
    py: Python<'_>,
    background: &'static Background,
    credentials: &Credentials,
    keys: Option<&Path>,
) -> PyResult<EdgeAddress> {
    let found = finish(py, background, || mez_cli::edge_of_publisher(credentials, keys))?;
    found.map_err(|failure| error::raise(py, "ConnectError", failure))
}
