//! What both ends of a QUIC link share: settings, the control stream, and writing a frame to its stream.
//!
//! Figures without a source come from `docs/decisions/0001-delivery-path.md`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::ARRIVING_FRAMES_MAX;
use mez_core::frame::Sequence;
use mez_core::wire::{FrameHeader, Message, MessageBuffer, WireError};
use quinn::{
    EndpointConfig, IdleTimeout, MtuDiscoveryConfig, RecvStream, Runtime, SendStream, TransportConfig, VarInt,
};
use rustix::net::sockopt;
use tokio::sync::watch;
use tracing::warn;

use super::datagrams::{DATAGRAM_BYTES_MAX, RECEIVED_BYTES_MAX, Socket};
use super::sent::{CountingCubic, FrameSent, SentBytes};

/// The error code of a reset stream: its frame is stale.
pub(super) const RESET_STALE: VarInt = VarInt::from_u32(1);
/// The error code of a stopped stream: its frame was refused.
pub(super) const STOP_REFUSED: VarInt = VarInt::from_u32(2);
/// The error code of a closed connection: its broker no longer needs it.
pub(super) const CLOSE_DONE: VarInt = VarInt::from_u32(0);
/// The error code of a closed connection: the other side violated the protocol.
pub(super) const CLOSE_PROTOCOL: VarInt = VarInt::from_u32(1);

/// The most bytes in flight on one stream: several frames of usual size. So flow control never limits more than the congestion window does.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The most bytes in flight on a connection: as many as on two streams.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// The buffer size that Mez asks the kernel for, for the UDP socket. The kernel may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The most bytes that are buffered or unacknowledged. This bounds memory, not the rate.
const SEND_WINDOW_BYTES: u64 = 8 << 20;
/// The datagram size that QUIC requires of every path (RFC 9000, section 14).
const DATAGRAM_BYTES_MIN: u16 = 1200;
/// The datagram size that fits into a usual Ethernet frame, over IPv6.
pub(super) const DATAGRAM_BYTES_ETHERNET: u16 = 1452;
const IPV4_UDP_HEADER_BYTES: u32 = 20 + 8;
const IPV6_UDP_HEADER_BYTES: u32 = 40 + 8;
/// The most bytes of a frame of the past that are handed to QUIC at once.
const WRITE_BYTES: usize = 64 << 10;

/// The transport settings of both sides. `datagram_bytes_max`: the largest datagram that is tried on the path.
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
        // Streams follow their priorities, which all differ. Without fairness QUIC would finish a stream that it has begun before it
        // looks at priorities again: control messages and live frames would wait behind all written bytes of a frame of the past.
        .send_fairness(true)
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

/// An endpoint on `address`; with `server`, a server. It sends datagrams of at most `datagram_bytes_max` bytes.
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

/// The largest datagram, in bytes, that the route to `destination` takes in one piece, as far as this
/// host knows. The path may take less, which MTU discovery finds out, but never more.
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

/// The priority of the control stream. Messages go before frames, because reports and pings time everything else.
pub(super) const CONTROL_PRIORITY: i32 = i32::MAX;

/// The priority of a live frame's stream: oldest first. A frame begins when the previous frame has left, so an older frame has only its last and its
/// lost bytes to send. If these waited for newer frames, they would never leave on a link that is always full. The number wraps after 2^31 frames,
/// which is four years at 15 frames per second.
pub(super) fn live_priority(frame: Sequence) -> i32 {
    CONTROL_PRIORITY - 1 - (frame.0 % (CONTROL_PRIORITY as u64)) as i32
}

/// The priority of the stream of a connection's nth frame of the past: behind all live frames, and in order.
pub(super) fn history_priority(frame: u32) -> i32 {
    -1 - (frame % (i32::MAX as u32)) as i32
}

/// Writes a message to the control stream.
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

/// Why there is no further message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadMessageError {
    /// The other side violated the protocol.
    #[error("the control stream cannot be read: {0}")]
    Wire(#[from] WireError),
    /// The stream or the connection has ended.
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

    /// Waits for the next message. Cancel-safe.
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

/// Writes a frame piece by piece, just ahead of sending, and returns once its last byte has left.
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
        let bytes = head.len() + piece.len();
        // Header and first piece go together: the header alone would cost a datagram of its own, and a wake-up on either side.
        stream.write_all_chunks(&mut [std::mem::take(&mut head), piece]).await?;
        sent.wrote(bytes);
    }
    let _ = stream.finish();
    sent.all_sent().await;
    Ok(())
}

/// Writes a frame of the past in small pieces, and only while no live frame is being sent.
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
        // An error means that the connection is ending, and the write fails next.
        let _ = live.wait_for(|frames| *frames == 0).await;
        let mut counter = sent.past_piece();
        let piece = rest.split_to(rest.len().min(WRITE_BYTES));
        let bytes = piece.len();
        stream.write_chunk(piece).await?;
        counter.wrote(bytes);
        counter.all_sent().await;
    }
    let _ = stream.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    use tokio::net::UdpSocket;
    use tokio::sync::mpsc;

    use super::*;
    use crate::identity::authority::SiteAuthority;
    use crate::identity::tls::{quic_client_config, quic_server_config};
    use crate::identity::{Credentials, EDGE_SERVER_NAME, Identity, Validity};
    use crate::revocation::LiveRevocations;

    const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
    /// Far more than a congestion window.
    const LARGE_BYTES: usize = 2 << 20;
    const PATH_BYTES_MAX: usize = DATAGRAM_BYTES_ETHERNET as usize;

    /// A path to `edge` that takes packets of Ethernet size. While `held` is set, nothing comes back, so the sender fills its window and waits.
    async fn path(edge: SocketAddr, mut held: watch::Receiver<bool>) -> SocketAddr {
        let outside = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
        let inside = Arc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
        inside.connect(edge).await.unwrap();
        let address = outside.local_addr().unwrap();
        let (from, to) = watch::channel(None);
        let (near, far) = (Arc::clone(&outside), Arc::clone(&inside));
        tokio::spawn(async move {
            let mut packet = vec![0; 1 << 16];
            while let Ok((bytes, sender)) = near.recv_from(&mut packet).await {
                from.send_replace(Some(sender));
                if bytes <= PATH_BYTES_MAX {
                    let _ = far.send(&packet[..bytes]).await;
                }
            }
        });
        tokio::spawn(async move {
            let mut packet = vec![0; 1 << 16];
            while let Ok(bytes) = inside.recv(&mut packet).await {
                let _ = held.wait_for(|held| !held).await;
                let sender = *to.borrow();
                if let Some(sender) = sender.filter(|_| bytes <= PATH_BYTES_MAX) {
                    let _ = outside.send_to(&packet[..bytes], sender).await;
                }
            }
        });
        address
    }

    fn member(authority: &SiteAuthority, name: &str) -> Credentials {
        let identity = Identity::parse_within(authority.site(), name).unwrap();
        let validity = Validity::from(SystemTime::now(), Validity::MEMBER);
        Credentials::issue(authority, &identity, &[], validity).unwrap()
    }

    /// An original of a megabyte takes seconds on a slow link. Messages and live frames do not wait for it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_frame_of_the_past_that_has_begun_waits_for_a_live_one_and_for_messages() {
        let authority = SiteAuthority::generate(&"harbour".parse().unwrap(), SystemTime::now()).unwrap();
        let (edge, camera) = (member(&authority, "edge/quay"), member(&authority, "camera/dock/cam1"));
        let crypto: QuicServerConfig = quic_server_config(&edge, &LiveRevocations::in_memory(&edge)).unwrap();
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(transport_config(SentBytes::default(), DATAGRAM_BYTES_ETHERNET));
        let server = endpoint(LOOPBACK.into(), Some(server), DATAGRAM_BYTES_ETHERNET).unwrap();
        let (hold, held) = watch::channel(false);
        let address = path(server.local_addr().unwrap(), held).await;

        // The edge tells which stream has begun and which is complete, and counts the bytes of the large one that have arrived, in any order.
        let (tell, mut told) = mpsc::channel(16);
        let come = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&come);
        tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            while let Ok(mut stream) = connection.accept_uni().await {
                let (tell, counter) = (tell.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    let mut name = None;
                    while let Some(chunk) = stream.read_chunk(usize::MAX, false).await.unwrap() {
                        if name.is_none() {
                            tell.try_send((chunk.bytes[0], "began")).unwrap();
                        }
                        let name = *name.get_or_insert(chunk.bytes[0]);
                        if name == b'p' {
                            counter.fetch_add(chunk.bytes.len(), Ordering::SeqCst);
                        }
                    }
                    tell.try_send((name.unwrap(), "is whole")).unwrap();
                });
            }
            drop(server);
        });

        let crypto: QuicClientConfig = quic_client_config(&camera).unwrap();
        let mut client = quinn::ClientConfig::new(Arc::new(crypto));
        client.transport_config(transport_config(SentBytes::default(), DATAGRAM_BYTES_ETHERNET));
        let sender = endpoint(LOOPBACK.into(), None, DATAGRAM_BYTES_ETHERNET).unwrap();
        let connection = sender.connect_with(client, address, EDGE_SERVER_NAME).unwrap().await.unwrap();
        let begin = async |priority: i32, name: u8, bytes: usize| {
            let mut stream = connection.open_uni().await.unwrap();
            stream.set_priority(priority).unwrap();
            stream.write_all(&vec![name; bytes]).await.unwrap();
            stream.finish().unwrap();
            stream
        };
        hold.send_replace(true);
        let first = begin(history_priority(0), b'p', LARGE_BYTES).await;
        assert_eq!(told.recv().await, Some((b'p', "began")));
        let second = begin(history_priority(1), b'q', 1).await;
        let live = begin(live_priority(Sequence(7)), b'7', 4 << 10).await;
        let message = begin(CONTROL_PRIORITY, b'm', 100).await;
        hold.send_replace(false);
        let mut come_before = BTreeMap::new();
        while come_before.len() < 4 {
            let (stream, what) = told.recv().await.unwrap();
            if what == "is whole" {
                come_before.insert(stream, come.load(Ordering::SeqCst));
            }
        }
        for urgent in [b'm', b'7'] {
            assert!(come_before[&urgent] < LARGE_BYTES / 2, "{come_before:?}");
        }
        assert!(come_before[&b'q'] > LARGE_BYTES / 2, "the second waits for the first: {come_before:?}");
        drop((first, second, live, message));
    }
}
