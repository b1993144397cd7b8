//! What both ends of a QUIC link share: settings, the control stream, and writing a frame to its stream.
//!
//! Figures without a source come from `docs/decisions/0001-delivery-path.md`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::ARRIVING_FRAMES_MAX;
use mez_core::wire::{FrameHeader, Message, MessageBuffer, WireError};
use quinn::{
    EndpointConfig, IdleTimeout, MtuDiscoveryConfig, RecvStream, Runtime, SendStream, TransportConfig, VarInt,
};
use rustix::net::sockopt;
use tokio::sync::watch;
use tracing::warn;

use super::datagrams::{DATAGRAM_BYTES_MAX, RECEIVED_BYTES_MAX, Socket};
use super::sent::{CountingCubic, FrameSent, SentBytes};

/// The code of a reset stream: its frame is stale.
pub(super) const RESET_STALE: VarInt = VarInt::from_u32(1);
/// The code of a stopped stream: its frame was refused.
pub(super) const STOP_REFUSED: VarInt = VarInt::from_u32(2);
/// The code of a closed connection: its broker no longer needs it.
pub(super) const CLOSE_DONE: VarInt = VarInt::from_u32(0);
/// The code of a closed connection: the other side violated the protocol.
pub(super) const CLOSE_PROTOCOL: VarInt = VarInt::from_u32(1);

/// Bytes that one stream may have in flight: several frames of usual size. So flow control never limits what the congestion window allows.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Bytes that a connection may have in flight: as many as two streams.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// The buffer size that Mez asks the kernel for, for the UDP socket. The kernel may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// Bytes that may be buffered or unacknowledged. It bounds memory, not the rate.
const SEND_WINDOW_BYTES: u64 = 8 << 20;
/// The datagram size that QUIC requires of every path (RFC 9000, section 14).
const DATAGRAM_BYTES_MIN: u16 = 1200;
/// The datagram size that fits into a usual Ethernet frame, over IPv6.
pub(super) const DATAGRAM_BYTES_ETHERNET: u16 = 1452;
const IPV4_UDP_HEADER_BYTES: u32 = 20 + 8;
const IPV6_UDP_HEADER_BYTES: u32 = 40 + 8;
/// Bytes of a frame of the past that are handed to QUIC at once.
const WRITE_BYTES: usize = 64 << 10;

/// The transport settings of both sides. `datagram_bytes_max` is the largest datagram that is tried on the path.
pub(super) fn transport_config(sent: SentBytes, datagram_bytes_max: u16) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(datagram_bytes_max);
    let idle = IdleTimeout::try_from(Duration::from_secs(10)).expect("10 s is within QUIC's limit");
    config
        .mtu_discovery_config(Some(discovery))
        .congestion_controller_factory(Arc::new(CountingCubic::new(sent)))
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_concurrent_uni_streams((ARRIVING_FRAMES_MAX as u32).into())
        .max_concurrent_bidi_streams(1u32.into())
        // A newer frame's stream has a higher priority and goes first entirely, instead of sharing with older ones.
        .send_fairness(false)
        .initial_rtt(Duration::from_millis(50))
        .keep_alive_interval(Some(Duration::from_secs(2)))
        .max_idle_timeout(Some(idle))
        .datagram_receive_buffer_size(None);
    Arc::new(config)
}

static SMALL_BUFFER: Once = Once::new();

/// A UDP socket with large buffers: a 1 MB frame leaves as one burst.
pub(super) fn udp_socket(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    for set in [sockopt::set_socket_recv_buffer_size_force, sockopt::set_socket_recv_buffer_size] {
        if set(&socket, SOCKET_BUFFER_BYTES).is_ok() {
            break;
        }
    }
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    if sockopt::socket_recv_buffer_size(&socket).is_ok_and(|bytes| bytes < SOCKET_BUFFER_BYTES) {
        SMALL_BUFFER.call_once(|| {
            warn!(
                "the system grants UDP sockets less than {SOCKET_BUFFER_BYTES} bytes of buffer, so large frames may \
                 lose packets; raise the limit: sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES}"
            );
        });
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// An endpoint on `address`, a server if there is a configuration for one. It sends datagrams of at most `datagram_bytes_max`.
pub(super) fn endpoint(
    address: SocketAddr,
    server: Option<quinn::ServerConfig>,
    datagram_bytes_max: u16,
) -> io::Result<quinn::Endpoint> {
    let runtime = Arc::new(quinn::TokioRuntime);
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(RECEIVED_BYTES_MAX).expect("is at least 1,200");
    let socket = Socket::new(runtime.wrap_udp_socket(udp_socket(address)?)?, datagram_bytes_max);
    quinn::Endpoint::new_with_abstract_socket(config, server, Arc::new(socket), runtime)
}

/// The largest datagram that the route to `destination` takes in one piece, as far as this host knows. The path may take less, which path
/// discovery finds out, but never more.
pub(super) fn route_datagram_bytes_max(destination: SocketAddr) -> u16 {
    let known = || -> io::Result<u32> {
        let socket = std::net::UdpSocket::bind(any_address_for(&destination))?;
        socket.connect(destination)?;
        Ok(match destination {
            SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?.saturating_sub(IPV4_UDP_HEADER_BYTES),
            SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?.saturating_sub(IPV6_UDP_HEADER_BYTES),
        })
    };
    let bytes = known().unwrap_or(u32::from(DATAGRAM_BYTES_ETHERNET));
    u16::try_from(bytes).unwrap_or(u16::MAX).clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX)
}

/// The address that an outgoing socket binds for a destination.
pub(super) fn any_address_for(destination: &SocketAddr) -> SocketAddr {
    let ip = match destination {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    };
    SocketAddr::new(ip, 0)
}

/// Writes messages to the control stream.
pub(super) async fn write_message(
    stream: &mut SendStream,
    message: &Message,
) -> Result<(), quinn::WriteError> {
    let mut bytes = Vec::with_capacity(64);
    message.encode(&mut bytes);
    stream.write_all(&bytes).await
}

/// Cuts the control stream into messages.
pub(super) struct MessageReader {
    stream: RecvStream,
    buffer: MessageBuffer,
}

/// Why no further message came.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadMessageError {
    /// The other side broke the protocol.
    #[error("the control stream cannot be read: {0}")]
    Wire(#[from] WireError),
    /// The stream or the connection is gone.
    #[error(transparent)]
    Read(#[from] quinn::ReadError),
    /// The other side ended the control stream.
    #[error("the control stream ended")]
    Ended,
}

impl MessageReader {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self { stream, buffer: MessageBuffer::default() }
    }

    /// The next message. Cancelling this loses nothing.
    pub(super) async fn next(&mut self) -> Result<Message, ReadMessageError> {
        loop {
            if let Some(message) = self.buffer.next()? {
                return Ok(message);
            }
            let chunk = self.stream.read_chunk(64 << 10, true).await?.ok_or(ReadMessageError::Ended)?;
            self.buffer.push(&chunk.bytes);
        }
    }
}

/// Writes a frame piece by piece, just ahead of its sending, and returns once its last byte has left.
pub(super) async fn write_frame(
    mut sent: FrameSent,
    stream: &mut SendStream,
    header: &FrameHeader,
    payload: Bytes,
) -> Result<(), quinn::WriteError> {
    let mut head = Vec::with_capacity(256);
    header.encode(&mut head);
    let (mut head, mut rest) = (Bytes::from(head), payload);
    while !rest.is_empty() {
        let room = sent.ready().await;
        let piece = rest.split_to(rest.len().min(room));
        sent.wrote(head.len() + piece.len());
        // Together: the header by itself would be a datagram of its own, and a wake-up on either side.
        stream.write_all_chunks(&mut [std::mem::take(&mut head), piece]).await?;
    }
    let _ = stream.finish();
    sent.all_sent().await;
    Ok(())
}

/// Writes a frame of the past, a little at a time and only while no live frame is being sent.
pub(super) async fn write_history(
    sent: &SentBytes,
    mut live: watch::Receiver<usize>,
    stream: &mut SendStream,
    header: &FrameHeader,
    payload: Bytes,
) -> Result<(), quinn::WriteError> {
    let mut head = Vec::with_capacity(256);
    header.encode(&mut head);
    stream.write_chunk(head.into()).await?;
    let mut rest = payload;
    while !rest.is_empty() {
        // The connection ends with whoever counts.
        let _ = live.wait_for(|frames| *frames == 0).await;
        let mut counter = sent.frame();
        let piece = rest.split_to(rest.len().min(WRITE_BYTES));
        counter.wrote(piece.len());
        stream.write_chunk(piece).await?;
        counter.all_sent().await;
    }
    let _ = stream.finish();
    Ok(())
}
