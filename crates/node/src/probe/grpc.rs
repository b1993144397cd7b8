//! Tests an edge's port for applications.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::CONNECT_TIME_MAX;
use super::failure::{Obstacle, ProbeFailure};
use super::way::{addresses_of, connect_tcp, in_time, secure};
use crate::identity::Credentials;
use crate::identity::tls::grpc_client_config;

/// The first bytes of an HTTP/2 client (RFC 9113, section 3.4), with settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

/// How long to wait for a refusal of this host's certificate before anything is sent.
const VERDICT_TIME: Duration = Duration::from_millis(300);

/// Tests what answers at the port for applications, and whether it accepts these credentials. Without
/// credentials, only tests whether the port accepts connections. Returns the addresses of the name.
///
/// # Errors
/// The obstacle.
pub async fn grpc(
    host: &str,
    port: u16,
    credentials: Option<&Credentials>,
) -> Result<Vec<SocketAddr>, ProbeFailure> {
    let addresses = addresses_of(host, port).await?;
    let connection = connect_tcp(&addresses).await?;
    let Some(credentials) = credentials else { return Ok(addresses) };
    let config = grpc_client_config(credentials).map_err(ProbeFailure::own)?;
    let mut stream = secure(connection, config).await?;
    let failed = |error: std::io::Error| ProbeFailure::securing(&error);
    let mut heard = [0; 64];
    // A server judges the client's certificate after the client's part of the
    // handshake. If the client sends data meanwhile, the server's alert may be lost.
    if let Ok(Err(error)) = timeout(VERDICT_TIME, stream.read(&mut heard)).await {
        return Err(failed(error));
    }
    let conversation = async {
        stream.write_all(PREFACE).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        match stream.read(&mut heard).await.map_err(failed)? {
            0 => Err(ProbeFailure::new(Obstacle::Stranger, "it closed the connection without an answer")),
            _ => Ok(()),
        }
    };
    in_time(CONNECT_TIME_MAX, conversation).await?;
    let _ = stream.shutdown().await;
    Ok(addresses)
}
