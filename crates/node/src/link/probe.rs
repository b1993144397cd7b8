//! Asks an edge's link how it would accept a camera, over either transport. No camera connects.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mez_core::name::CameraName;
use mez_core::wire::{Inquiry, Message, Standing};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use super::quic::{
    CLOSE_DONE, DATAGRAM_BYTES_ETHERNET, MessageReader, any_address_for, endpoint, route_datagram_bytes_max,
    transport_config, write_message,
};
use super::sent::SentBytes;
use super::tcp;
use crate::api::SOFTWARE;
use crate::client::WallDifference;
use crate::clock::{monotonic_now, wall_now};
use crate::identity::EDGE_SERVER_NAME;
use crate::probe::{CONNECT_TIME_MAX, Obstacle, ProbeFailure, connect_tcp, in_time, secure};

/// How long an edge may take to answer once it is connected.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// How long path MTU discovery may take.
const DISCOVERY_TIME_MAX: Duration = Duration::from_secs(2);
/// Discovery ends when the size has not changed for this long.
const DISCOVERY_QUIET_TIME: Duration = Duration::from_millis(600);
/// How often a message is sent meanwhile, so that losses are noticed.
const DISCOVERY_PAUSE: Duration = Duration::from_millis(40);

/// The answer of an edge's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAnswer {
    /// The time from the first packet to the answer.
    pub took: Duration,
    /// How the camera would stand there.
    pub standing: Standing,
    /// How the edge's wall clock differs from this host's.
    pub clock: WallDifference,
    /// The datagram sizes. `None` over TCP.
    pub datagrams: Option<DatagramSizes>,
}

/// The sizes of datagrams, in bytes of UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSizes {
    /// The largest that got through.
    pub path: u16,
    /// The largest that this host's route to the edge takes.
    pub route: u16,
}

impl DatagramSizes {
    /// Whether the path takes as much as this host's route or ordinary Ethernet, whichever is smaller.
    pub fn is_usual(&self) -> bool {
        // Discovery ends within a few bytes of the real size.
        const TOLERANCE: u16 = 32;
        self.path + TOLERANCE >= self.route.min(DATAGRAM_BYTES_ETHERNET)
    }
}

/// Asks over TCP.
pub(crate) async fn over_tcp(
    config: rustls::ClientConfig,
    addresses: &[SocketAddr],
    camera: &CameraName,
) -> Result<LinkAnswer, ProbeFailure> {
    let begun = Instant::now();
    let connection = connect_tcp(addresses).await?;
    let mut stream = secure(connection, config).await?;
    let asked = monotonic_now();
    let answered = async {
        let answered = tcp::ask(&mut stream, &inquiry(camera), standing).await;
        answered.map_err(|error| ProbeFailure::securing(&error))
    };
    let standing = in_time(ANSWER_TIME_MAX, answered).await?;
    let clock = WallDifference::new(standing.wall, wall_now(), monotonic_now().saturating_since(asked));
    let _ = timeout(ANSWER_TIME_MAX, tokio::io::AsyncWriteExt::shutdown(&mut stream)).await;
    Ok(LinkAnswer { took: begun.elapsed(), standing, clock, datagrams: None })
}

/// Asks over QUIC, and measures the largest datagram.
pub(crate) async fn over_quic(
    crypto: QuicClientConfig,
    addresses: &[SocketAddr],
    camera: &CameraName,
) -> Result<LinkAnswer, ProbeFailure> {
    let crypto = Arc::new(crypto);
    let mut failure = ProbeFailure::new(Obstacle::Name, "there is no address");
    for &address in addresses {
        match ask_quic(&crypto, address, camera).await {
            Ok(answer) => return Ok(answer),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn ask_quic(
    crypto: &Arc<QuicClientConfig>,
    address: SocketAddr,
    camera: &CameraName,
) -> Result<LinkAnswer, ProbeFailure> {
    let (begun, route) = (Instant::now(), route_datagram_bytes_max(address));
    let mut config = quinn::ClientConfig::new(crypto.clone());
    config.transport_config(transport_config(SentBytes::default(), route));
    let endpoint = endpoint(any_address_for(&address), None, route).map_err(ProbeFailure::own)?;
    let connecting = endpoint.connect_with(config, address, EDGE_SERVER_NAME).map_err(ProbeFailure::own)?;
    let connecting = async { connecting.await.map_err(|error| ProbeFailure::quic(&error)) };
    let connection = in_time(CONNECT_TIME_MAX, connecting).await?;
    let answer = converse(&connection, camera, begun, route).await;
    close(&endpoint, &connection).await;
    answer
}

async fn converse(
    connection: &Connection,
    camera: &CameraName,
    begun: Instant,
    route: u16,
) -> Result<LinkAnswer, ProbeFailure> {
    let asked = monotonic_now();
    let failed = |error: &str| {
        // The edge's reason for closing the connection says more than the end of a stream.
        match connection.close_reason() {
            Some(reason) => ProbeFailure::quic(&reason),
            None => ProbeFailure::new(Obstacle::Stranger, error),
        }
    };
    let conversation = async {
        let (mut control, messages) =
            connection.open_bi().await.map_err(|error| ProbeFailure::quic(&error))?;
        write_message(&mut control, &inquiry(camera)).await.map_err(|error| failed(&error.to_string()))?;
        let mut reader = MessageReader::new(messages);
        loop {
            let message = reader.next().await.map_err(|error| failed(&error.to_string()))?;
            if let Some(standing) = standing(message) {
                return Ok((control, standing));
            }
        }
    };
    let (mut control, standing) = in_time(ANSWER_TIME_MAX, conversation).await?;
    let (now, took) = (monotonic_now(), begun.elapsed());
    let clock = WallDifference::new(standing.wall, wall_now(), now.saturating_since(asked));
    let path = discover(connection, &mut control, route).await;
    Ok(LinkAnswer { took, standing, clock, datagrams: Some(DatagramSizes { path, route }) })
}

/// Lets QUIC try larger datagrams until it has found the largest, or for [`DISCOVERY_TIME_MAX`]. Returns the largest size.
async fn discover(connection: &Connection, control: &mut quinn::SendStream, route: u16) -> u16 {
    let size = || connection.stats().path.current_mtu;
    let (begun, mut largest, mut changed) = (Instant::now(), size(), Instant::now());
    while largest < route && changed.elapsed() < DISCOVERY_QUIET_TIME && begun.elapsed() < DISCOVERY_TIME_MAX
    {
        if write_message(control, &Message::Ping { t1: monotonic_now() }).await.is_err() {
            break;
        }
        sleep(DISCOVERY_PAUSE).await;
        let now = size();
        if now != largest {
            (largest, changed) = (now, Instant::now());
        }
    }
    largest
}

async fn close(endpoint: &Endpoint, connection: &Connection) {
    connection.close(CLOSE_DONE, b"it only asked");
    let _ = timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
}

fn inquiry(camera: &CameraName) -> Message {
    Message::Inquiry(Inquiry { camera: camera.clone(), software: format!("{SOFTWARE} doctor") })
}

fn standing(message: Message) -> Option<Standing> {
    match message {
        Message::Standing(standing) => Some(standing),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_usual_if_it_takes_what_the_route_or_ethernet_does() {
        let is_usual = |path, route| DatagramSizes { path, route }.is_usual();
        assert!(is_usual(1452, 1452) && is_usual(1440, 1452) && is_usual(8_000, 65_000));
        assert!(is_usual(1200, 1200));
        assert!(!is_usual(1200, 1452) && !is_usual(1300, 9_000));
    }
}
