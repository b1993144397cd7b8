//! Steps on the way to a port: name, connection, TLS. Each has a time limit.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::failure::{Obstacle, ProbeFailure};
use super::{CONNECT_TIME_MAX, NAME_TIME_MAX};
use crate::identity::EDGE_SERVER_NAME;

/// The addresses of a host.
pub(crate) async fn addresses_of(host: &str, port: u16) -> Result<Vec<SocketAddr>, ProbeFailure> {
    let none = |why: String| ProbeFailure::new(Obstacle::Name, why);
    let looked_up = timeout(NAME_TIME_MAX, tokio::net::lookup_host((host, port))).await;
    let found = match looked_up {
        Ok(Ok(found)) => found.collect::<Vec<_>>(),
        Ok(Err(error)) => return Err(none(format!("the name {host} is not resolved: {error}"))),
        Err(_) => return Err(none(format!("the name {host} is not resolved within {NAME_TIME_MAX:?}"))),
    };
    if found.is_empty() { Err(none(format!("the name {host} has no address"))) } else { Ok(found) }
}

/// Connects to the first address that accepts a connection.
pub(crate) async fn connect_tcp(addresses: &[SocketAddr]) -> Result<TcpStream, ProbeFailure> {
    let connected = timeout(CONNECT_TIME_MAX, TcpStream::connect(addresses)).await;
    match connected {
        Ok(connected) => connected.map_err(|error| ProbeFailure::connecting(&error)),
        Err(_) => Err(ProbeFailure::new(
            Obstacle::Silent,
            format!("no TCP connection within {CONNECT_TIME_MAX:?}: there is no response"),
        )),
    }
}

/// Does a TLS handshake in which both sides show certificates of the same site.
pub(crate) async fn secure(
    stream: TcpStream,
    config: ClientConfig,
) -> Result<TlsStream<TcpStream>, ProbeFailure> {
    let protocol = config.alpn_protocols.first().cloned();
    let name = ServerName::try_from(EDGE_SERVER_NAME).expect("a constant that is a DNS name");
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let silent = || {
        let text = format!(
            "something accepts connections there, but does not answer a TLS handshake within {CONNECT_TIME_MAX:?}"
        );
        ProbeFailure::new(Obstacle::Stranger, text)
    };
    let secured = timeout(CONNECT_TIME_MAX, handshake).await.map_err(|_| silent())?;
    let secured = secured.map_err(|error| ProbeFailure::securing(&error))?;
    if secured.get_ref().1.alpn_protocol().map(<[u8]>::to_vec) != protocol {
        let text = "the other side has a certificate of this site, but uses another protocol";
        return Err(ProbeFailure::new(Obstacle::Version, text));
    }
    Ok(secured)
}

/// Does one step with a time limit.
pub(crate) async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, ProbeFailure>>,
) -> Result<T, ProbeFailure> {
    match timeout(limit, step).await {
        Ok(done) => done,
        Err(_) => Err(ProbeFailure::new(Obstacle::Silent, format!("no answer within {limit:?}"))),
    }
}
