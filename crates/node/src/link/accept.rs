//! The edge's side of the link: accepts connections, and serves the QUIC connections.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mez_core::broker::LinkId;
use mez_core::broker::edge::Peer;
use mez_core::rights::own_cameras;
use quinn::{Connection, Endpoint, Incoming, SendStream, ServerConfig};
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::StreamExt;
use tracing::debug;

use super::quic::{
    CLOSE_DONE, CLOSE_PROTOCOL, CONTROL_PRIORITY, DATAGRAM_BYTES_ETHERNET, MessageReader, ReadMessageError,
    endpoint, transport_config, write_message,
};
use super::receive::receive_frames;
use super::send::FrameSender;
use super::sent::SentBytes;
use super::{Command, CommandSender, EdgeEvent, Shown, tcp};
use crate::audit::Audit;
use crate::identity::accept::{Accepted, TlsIncoming};
use crate::identity::certificate::CertificateFacts;
use crate::identity::door::{Door, Pass, Said};
use crate::identity::explain::explain_quic;
use crate::identity::gate::HANDSHAKES;
use crate::identity::name::{Identity, SiteName};
use crate::identity::refusals::Refusals;
use crate::identity::tls::{TlsConfigError, link_server_config, quic_server_config};
use crate::identity::{Credentials, Fingerprint, peer_identity};
use crate::ports::bind_remedy;
use crate::revocation::{self, LiveRevocations};

/// The number of UDP clients in their handshake above which a new client must prove its address (QUIC Retry). Until a client
/// has proved it, the client may claim any address, which costs memory here and counts against the real owner of the address.
const UNPROVED_ADDRESSES_MAX: usize = 16;
/// The most new connections whose first packet waits to be handled. QUIC itself refuses more.
const FIRST_PACKETS_MAX: usize = 1024;
/// The most bytes that such connections may send before they are handled. This bounds memory.
const FIRST_BYTES_MAX: u64 = 4 << 20;
/// The number of attempts to find a port that is free for both UDP and TCP.
const FREE_PORT_ATTEMPTS: u32 = 16;
/// How long to read a camera's last messages after it has closed its connection. They have all arrived; the broker may be busy.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(500);

/// An open port for camera brokers, over UDP and over TCP. Dropping it closes all connections.
pub(crate) struct Listener {
    endpoint: Endpoint,
    tcp: JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tcp.abort();
    }
}

impl Listener {
    /// The address of the port.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Closes all connections and waits up to a second until the cameras know.
    pub(crate) async fn close(&self) {
        self.tcp.abort();
        self.endpoint.close(CLOSE_DONE, b"the edge broker is stopping");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The certificate cannot be used for TLS.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The port is in use, or the address does not belong to this machine.
    #[error("cannot listen on {protocol} {address}: {source}; {}", bind_remedy(source, "--listen"))]
    Bind {
        /// `UDP` or `TCP`: the link needs the same port of both.
        protocol: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Opens a port for camera brokers and serves their connections.
pub(crate) fn listen(
    address: SocketAddr,
    credentials: &Credentials,
    (revoked, audit): (&LiveRevocations, Audit),
    events: mpsc::Sender<EdgeEvent>,
) -> Result<Listener, ListenError> {
    let mut config = ServerConfig::with_crypto(Arc::new(quic_server_config(credentials, revoked)?));
    config
        .transport_config(transport_config(SentBytes::default(), DATAGRAM_BYTES_ETHERNET))
        .max_incoming(FIRST_PACKETS_MAX)
        .incoming_buffer_size_total(FIRST_BYTES_MAX);
    let (endpoint, tcp) = bind(address, &config)?;
    revoked.record(audit.clone());
    // Shared by both transports: a camera that is refused over UDP tries TCP.
    let refusals = Arc::new(Refusals::recorded("link", audit));
    let tls = Arc::new(link_server_config(credentials, revoked)?);
    let incoming = TlsIncoming::new(tcp, tls, Arc::clone(&refusals));
    let site = credentials.identity().site.clone();
    let links = Arc::new(AtomicU64::new(0));
    let tcp = tokio::spawn(accept_tcp(incoming, site.clone(), Arc::clone(&links), events.clone()));
    tokio::spawn(accept_quic((endpoint.clone(), config), Door::new(refusals), site, links, events));
    Ok(Listener { endpoint, tcp })
}

/// Accepts QUIC connections. Waits only for new connections, never for a client.
async fn accept_quic(
    (endpoint, config): (Endpoint, ServerConfig),
    door: Door,
    site: SiteName,
    links: Arc<AtomicU64>,
    events: mpsc::Sender<EdgeEvent>,
) {
    while let Some(incoming) = endpoint.accept().await {
        if !incoming.remote_address_validated() && door.strangers() >= UNPROVED_ADDRESSES_MAX {
            // Costs a real client one more round trip, and stores nothing about a false one.
            let _ = incoming.retry();
            continue;
        }
        let pass = door.enter(incoming.remote_address().ip());
        // The first packet is the first part of the handshake.
        pass.heard();
        let (site, events, links) = (site.clone(), events.clone(), Arc::clone(&links));
        // The bytes that have left are counted for each connection.
        let (sent, mut config) = (SentBytes::default(), config.clone());
        config.transport_config(transport_config(sent.clone(), DATAGRAM_BYTES_ETHERNET));
        tokio::spawn(async move {
            if let Some((connection, shown, pass)) = handshake((incoming, config), pass, &site).await {
                let link = LinkId(links.fetch_add(1, Ordering::Relaxed));
                serve(link, (connection, sent), shown, events, pass).await;
            }
        });
    }
}

/// Does the handshake of one connection. `None`: the connection was refused, closed or given up; the reason is logged.
async fn handshake(
    (incoming, config): (Incoming, ServerConfig),
    mut pass: Pass,
    site: &SiteName,
) -> Option<(Connection, Shown, Pass)> {
    let address = pass.address();
    let turn = pass.during(HANDSHAKES.turn(address)).await.ok()?;
    let connecting = incoming.accept_with(Arc::new(config));
    drop(turn);
    let connected = match connecting {
        Ok(connecting) => pass.during(connecting).await.ok()?,
        Err(error) => Err(error),
    };
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) if gave_up(&error) => {
            debug!(from = %address, "a camera gave up one of several connection attempts");
            return None;
        }
        Err(error) => {
            pass.refused(&explain_quic(&error).unwrap_or_else(|| error.to_string()));
            return None;
        }
    };
    match shown_on(&connection, site) {
        Ok(shown) => {
            pass.authenticated();
            Some((connection, shown, pass))
        }
        Err(reason) => {
            pass.refused(&reason);
            connection.close(CLOSE_PROTOCOL, reason.as_bytes());
            None
        }
    }
}

/// Whether a client ended its attempt before the connection was made, because another of its attempts was first. This is not a refusal.
fn gave_up(error: &quinn::ConnectionError) -> bool {
    use quinn::{ConnectionError::ConnectionClosed, TransportErrorCode};
    matches!(error, ConnectionClosed(close) if close.error_code == TransportErrorCode::APPLICATION_ERROR)
}

/// Binds the same port for UDP and TCP. Port 0: any port that is free for both.
fn bind(address: SocketAddr, config: &ServerConfig) -> Result<(Endpoint, TcpListener), ListenError> {
    let mut attempts = if address.port() == 0 { FREE_PORT_ATTEMPTS } else { 1 };
    loop {
        attempts -= 1;
        let failed = |protocol| move |source| ListenError::Bind { protocol, address, source };
        let endpoint =
            endpoint(address, Some(config.clone()), DATAGRAM_BYTES_ETHERNET).map_err(failed("UDP"))?;
        let bound = endpoint.local_addr().map_err(failed("UDP"))?;
        let tcp = std::net::TcpListener::bind(bound).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        match tcp {
            Ok(tcp) => return Ok((endpoint, tcp)),
            Err(_) if attempts > 0 => {}
            Err(source) => return Err(ListenError::Bind { protocol: "TCP", address: bound, source }),
        }
    }
}

async fn accept_tcp(
    mut incoming: TlsIncoming,
    site: SiteName,
    links: Arc<AtomicU64>,
    events: mpsc::Sender<EdgeEvent>,
) {
    // Aborting this task ends the connections too.
    let mut connections = JoinSet::new();
    loop {
        let Accepted { stream, pass } = tokio::select! {
            Some(Ok(accepted)) = incoming.next() => accepted,
            Some(_) = connections.join_next() => continue,
            else => return,
        };
        let chain = stream.get_ref().1.peer_certificates();
        match shown(chain.unwrap_or_default(), &site) {
            Ok(shown) if tcp::prepare(stream.get_ref().0).is_ok() => {
                let link = LinkId(links.fetch_add(1, Ordering::Relaxed));
                connections.spawn(tcp::serve_edge(link, stream, shown, events.clone(), pass));
            }
            Ok(_) => {}
            Err(reason) => pass.refused(&reason),
        }
    }
}

fn shown_on(connection: &Connection, site: &SiteName) -> Result<Shown, String> {
    let chain =
        connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    shown(&chain.unwrap_or_default(), site)
}

/// The member that a certificate chain identifies. The member's own certificate is first.
fn shown(chain: &[CertificateDer<'_>], site: &SiteName) -> Result<Shown, String> {
    let own = chain.first().ok_or("no certificate was shown")?;
    let identity = peer_identity(chain, site).map_err(|error| error.to_string())?;
    let facts = CertificateFacts::read(own).map_err(|error| error.to_string())?;
    let certificate = revocation::of_facts(&facts, &identity).map_err(|error| error.to_string())?;
    let (peer, ends) = (peer_of(&identity), facts.validity.not_after);
    Ok(Shown { peer, certificate, ends, fingerprint: Fingerprint::of(own) })
}

/// The cameras that a host may publish follow from its name.
fn peer_of(identity: &Identity) -> Peer {
    let cameras = own_cameras(identity.name.as_camera());
    Peer { identity: identity.to_string(), cameras }
}

/// Serves a connection until it ends.
async fn serve(
    link: LinkId,
    (connection, sent): (Connection, SentBytes),
    shown: Shown,
    events: mpsc::Sender<EdgeEvent>,
    mut pass: Pass,
) {
    let (commands, mut receiver) = CommandSender::channel();
    let (mut control, messages) = match pass.during(connection.accept_bi()).await {
        Ok(Ok(control)) => control,
        Ok(Err(error)) => return debug!(?link, %error, "a connection ended"),
        Err(dropped) => return connection.close(CLOSE_PROTOCOL, dropped.to_string().as_bytes()),
    };
    let from = connection.remote_address().ip();
    if events.send(EdgeEvent::Connected(link, shown, from, commands)).await.is_err() {
        return;
    }
    let (said, dropped) = pass.until_said();
    let mut reader = MessageReader::new(messages);
    let reading = read(link, &mut reader, &events, said);
    let mut frames = JoinSet::new();
    frames.spawn(receive_frames(link, connection.clone(), events.clone()));
    let mut answers = FrameSender::new(link, connection.clone(), events.clone(), sent);
    let rest = async {
        tokio::select! {
            dropped = dropped => dropped.to_string(),
            reason = write(&mut receiver, &mut control, &mut answers) => reason,
            error = connection.closed() => error.to_string(),
        }
    };
    let reason = until_over(reading, rest, || connection.close_reason().is_some()).await;
    debug!(?link, reason, "a connection ended");
    connection.close(CLOSE_DONE, reason.as_bytes());
    // Frames that have arrived are taken first.
    frames.join_next().await;
    let _ = events.send(EdgeEvent::Closed(link, reason)).await;
}

/// Waits until a connection ends, and returns why. If the camera has closed the connection, its last
/// messages have arrived, and are still read: they say why the camera went.
async fn until_over(
    reading: impl Future<Output = String>,
    rest: impl Future<Output = String>,
    is_closed: impl Fn() -> bool,
) -> String {
    let mut reading = pin!(reading);
    tokio::select! {
        reason = &mut reading => reason,
        reason = rest => {
            if is_closed() {
                let _ = tokio::time::timeout(LAST_WORDS_TIME_MAX, reading).await;
            }
            reason
        }
    }
}

async fn write(
    commands: &mut mpsc::Receiver<Command>,
    control: &mut SendStream,
    answers: &mut FrameSender<EdgeEvent>,
) -> String {
    let _ = control.set_priority(CONTROL_PRIORITY);
    while let Some(command) = commands.recv().await {
        match command {
            Command::Send(message) => {
                if let Err(error) = write_message(control, &message).await {
                    return error.to_string();
                }
            }
            Command::Close => {
                let _ = control.finish();
                // The last messages, such as a refusal, should arrive before the connection closes.
                let _ = tokio::time::timeout(Duration::from_millis(500), control.stopped()).await;
                return "the edge broker closed the connection".into();
            }
            Command::SendFrame(header, payload) => answers.send(*header, payload),
            Command::Reset(frame) => answers.reset(frame),
            Command::Farewell => {}
        }
    }
    "the edge broker has stopped".into()
}

async fn read(
    link: LinkId,
    reader: &mut MessageReader,
    events: &mpsc::Sender<EdgeEvent>,
    mut said: Said,
) -> String {
    loop {
        let event = match reader.next().await {
            Ok(message) => {
                said.tell();
                EdgeEvent::Message(link, message)
            }
            Err(error @ ReadMessageError::Wire(_)) => {
                let _ = events.send(EdgeEvent::ProtocolError(link, error.to_string())).await;
                // The broker answers with a refusal and closes the connection.
                std::future::pending::<()>().await;
                unreachable!("pending is never ready")
            }
            Err(error) => return error.to_string(),
        };
        if events.send(event).await.is_err() {
            return "the edge broker has stopped".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use quinn::{ConnectionClose, ConnectionError, TransportErrorCode};

    use super::{gave_up, until_over};

    /// A program that ends says why and closes the connection. The edge may see the close before it has read everything.
    #[tokio::test]
    async fn what_was_said_before_a_connection_was_closed_is_read() {
        for closed in [true, false] {
            let mut heard = Vec::new();
            let reading = async {
                for message in ["the cable is out", "good-bye"] {
                    // The broker is busy.
                    tokio::task::yield_now().await;
                    heard.push(message);
                }
                "the stream has ended".to_owned()
            };
            let reason = until_over(reading, async { "closed".to_owned() }, || closed).await;
            assert_eq!(reason, "closed");
            // An edge that closes a connection itself does not wait for the camera.
            let all = ["the cable is out", "good-bye"];
            assert_eq!(heard, if closed { &all[..] } else { &[] });
        }
    }

    #[test]
    fn who_gives_up_an_attempt_is_not_refused() {
        let closed = |error_code| {
            let reason = bytes::Bytes::new();
            ConnectionError::ConnectionClosed(ConnectionClose { error_code, frame_type: None, reason })
        };
        assert!(gave_up(&closed(TransportErrorCode::APPLICATION_ERROR)));
        // 48: the client does not know our authority, and says so.
        assert!(!gave_up(&closed(TransportErrorCode::crypto(48))));
        assert!(!gave_up(&ConnectionError::TimedOut));
    }
}
