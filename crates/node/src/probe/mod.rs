//! Tests the way to an edge for `mez doctor`: what answers at the edge's ports, over which
//! protocols, and whether the edge would accept this host. Nothing changes at the edge.
//!
//! `link/probe.rs` tests the link. [`crate::client::checkup`] tests an application's requests.

pub mod codec;
pub mod decoder;
mod failure;
mod grpc;
mod way;

use std::net::SocketAddr;
use std::time::Duration;

use mez_core::name::CameraName;

pub use self::failure::{Obstacle, ProbeFailure};
pub use self::grpc::grpc;
pub(crate) use self::way::{addresses_of, connect_tcp, in_time, secure};
use crate::identity::Credentials;
use crate::identity::tls::{link_client_config, quic_client_config};
pub use crate::link::probe::{DatagramSizes, LinkAnswer};
use crate::link::probe::{over_quic, over_tcp};
use crate::ports::EdgeAddress;
pub use crate::source::{FfmpegFound, probe_ffmpeg, probe_source, takes_key_frame_requests};

/// The longest time to resolve a name.
pub(crate) const NAME_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest time for a connection, and for a handshake.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// The result of testing an edge's link, to which camera brokers connect.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The addresses of the edge's name.
    pub addresses: Vec<SocketAddr>,
    /// The answer over TCP. `None` if there were no credentials to ask with.
    pub tcp: Result<Option<LinkAnswer>, ProbeFailure>,
    /// The answer over QUIC. `None` if there were no credentials to ask with.
    pub quic: Result<Option<LinkAnswer>, ProbeFailure>,
}

/// Asks the link at `place` whether it would accept `camera`, over TCP and over
/// QUIC. Without credentials, only tests whether the port accepts TCP connections.
///
/// # Errors
/// The name has no address, or the credentials do not belong to a camera.
pub async fn link(
    place: &EdgeAddress,
    asking: Option<(&Credentials, &CameraName)>,
) -> Result<LinkReport, ProbeFailure> {
    let addresses = addresses_of(&place.host, place.port).await?;
    let Some((credentials, camera)) = asking else {
        let tcp = connect_tcp(&addresses).await.map(|_| None);
        return Ok(LinkReport { addresses, tcp, quic: Ok(None) });
    };
    let tls = link_client_config(credentials).map_err(ProbeFailure::own)?;
    let quic = quic_client_config(credentials).map_err(ProbeFailure::own)?;
    let (tcp, quic) = tokio::join!(over_tcp(tls, &addresses, camera), over_quic(quic, &addresses, camera));
    Ok(LinkReport { addresses, tcp: tcp.map(Some), quic: quic.map(Some) })
}
