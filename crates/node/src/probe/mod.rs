//! Looks at the way to an edge, for a checkup: who answers at its ports, over what, and how that edge would take this
//! host in. Nothing at the edge changes.
//!
//! `link/probe.rs` asks the link itself. What an application asks is in [`crate::client::checkup`].

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

/// How long a name may take to be resolved.
pub(crate) const NAME_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a connection may take to be made, and how long a handshake.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);

/// What was found at an edge's link, where camera brokers connect.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// The addresses of its name.
    pub addresses: Vec<SocketAddr>,
    /// What it answers over TCP; without an answer if there was nobody to ask as.
    pub tcp: Result<Option<LinkAnswer>, ProbeFailure>,
    /// The same over QUIC.
    pub quic: Result<Option<LinkAnswer>, ProbeFailure>,
}

/// Asks the link at `place` how it would take in `camera`, over TCP and over QUIC. Without credentials it is only
/// looked whether anybody takes connections over TCP.
///
/// # Errors
/// The name has no address, or the credentials are not of a camera.
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
