//! The camera's side of the link: dials the edge over QUIC or TCP, and sends frames over QUIC.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{DIAL_TIME_MAX, EdgeIndex, LinkId};
use mez_core::frame::FrameId;
use mez_core::revocation::Certificate;
use mez_core::trace::Stage;
use mez_core::wire::FrameHeader;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint, SendStream};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::warn;

use super::quic::{
    CLOSE_DONE, CONTROL_PRIORITY, MessageReader, RESET_STALE, any_address_for, endpoint, history_priority,
    live_priority, route_datagram_bytes_max, transport_config, write_frame, write_history, write_message,
};
use super::sent::SentBytes;
use super::{CLOSE_TIME_MAX, CameraEvent, Command, CommandSender, UNSENT_INTERVAL, sent_event, tcp};
use crate::clock::monotonic_now;
use crate::identity::explain::{explain_io, explain_quic};
use crate::identity::tls::{TlsConfigError, link_client_config, quic_client_config};
use crate::identity::{Credentials, EDGE_SERVER_NAME, SiteName, peer_identity};
use crate::ports::EdgeAddress;
use crate::revocation::{LiveRevocations, shown};

/// How long QUIC is tried alone. After that TCP is tried beside it.
const QUIC_ALONE_TIME: Duration = Duration::from_secs(1);
/// How long a second QUIC attempt may take once TCP has connected. An edge that has just started never saw the packets of the first attempt,
/// and QUIC repeats them only after seconds. Without the second attempt, a restart of the edge would leave cameras on TCP.
const QUIC_AGAIN_TIME: Duration = Duration::from_millis(400);

/// What carries the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// QUIC, and TCP where UDP does not get through. The default.
    #[default]
    Auto,
    /// QUIC over UDP. It can call back a stale frame even if part of it has left this host's memory.
    Quic,
    /// TLS over TCP: half the processor time on a fast network, and what the kernel has taken cannot be called back.
    Tcp,
}

/// Makes connections to the edges of a site.
#[derive(Clone)]
pub(crate) struct Dialler {
    transport: Transport,
    crypto: Arc<QuicClientConfig>,
    tls: Arc<rustls::ClientConfig>,
    site: SiteName,
    revoked: LiveRevocations,
    events: mpsc::Sender<CameraEvent>,
}

/// A connection that stands.
enum Connected {
    Quic(Endpoint, Connection, SentBytes),
    Tcp(Box<TlsStream<TcpStream>>),
}

impl Connected {
    /// What the edge showed.
    fn certificate(&self, site: &SiteName) -> Result<Certificate, String> {
        let quic;
        let chain = match self {
            Self::Quic(_, connection, _) => {
                let shown = connection.peer_identity();
                quic = shown.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
                quic.as_ref().map_or(&[][..], |chain| chain)
            }
            Self::Tcp(stream) => stream.get_ref().1.peer_certificates().unwrap_or_default(),
        };
        let identity = peer_identity(chain, site).map_err(|error| error.to_string())?;
        shown(&chain[0], &identity).map_err(|error| error.to_string())
    }
}

/// Tells when the edge of a connection is revoked.
pub(super) struct EdgeRevoked {
    revoked: LiveRevocations,
    certificate: Certificate,
}

impl EdgeRevoked {
    /// The reason why the connection ends.
    pub(super) async fn reason(mut self) -> String {
        self.revoked.denied(&self.certificate).await.to_string()
    }
}

impl Dialler {
    /// A dialler for the camera that the credentials name. It leaves edges that were revoked.
    pub(crate) fn new(
        transport: Transport,
        credentials: &Credentials,
        revoked: LiveRevocations,
        events: mpsc::Sender<CameraEvent>,
    ) -> Result<Self, TlsConfigError> {
        let crypto = Arc::new(quic_client_config(credentials)?);
        let tls = Arc::new(link_client_config(credentials)?);
        let site = credentials.identity().site.clone();
        Ok(Self { transport, crypto, tls, site, revoked, events })
    }

    /// Connects to `edge` at `place`, and serves the connection while it lives. Events report everything.
    pub(crate) fn dial(&self, link: LinkId, edge: EdgeIndex, place: EdgeAddress) {
        let dialler = self.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(DIAL_TIME_MAX, dialler.connect_unrevoked(&place)).await {
                Ok(Ok((Connected::Quic(endpoint, connection, sent), revoked))) => {
                    serve((link, edge), &endpoint, connection, sent, (dialler.events, revoked)).await
                }
                Ok(Ok((Connected::Tcp(stream), revoked))) => {
                    if dialler.transport == Transport::Auto {
                        warn!(
                            "UDP does not get through to {place}, so the link uses TCP, which gives up stale frames \
                             later; open UDP in the firewall"
                        );
                    }
                    tcp::serve_camera((link, edge), *stream, (dialler.events, revoked)).await;
                }
                Ok(Err(error)) => dialler.failed(edge, error).await,
                Err(_) => {
                    dialler.failed(edge, format!("no answer from {place} within {DIAL_TIME_MAX:?}")).await
                }
            }
        });
    }

    async fn failed(&self, edge: EdgeIndex, text: String) {
        let _ = self.events.send(CameraEvent::DialFailed(edge, text)).await;
    }

    /// Connects to an edge that was not revoked.
    async fn connect_unrevoked(&self, place: &EdgeAddress) -> Result<(Connected, EdgeRevoked), String> {
        let connected = self.connect(place).await?;
        let certificate = connected.certificate(&self.site);
        let certificate = certificate.map_err(|why| format!("cannot use the edge at {place}: {why}"))?;
        match self.revoked.denies(&certificate) {
            Some(denial) => Err(format!("the edge at {place} is turned away from: {denial}")),
            None => Ok((connected, EdgeRevoked { revoked: self.revoked.clone(), certificate })),
        }
    }

    async fn connect(&self, place: &EdgeAddress) -> Result<Connected, String> {
        let EdgeAddress { host, port } = place;
        let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), *port))
            .await
            .map_err(|error| format!("cannot find the address of {host}: {error}"))?
            .collect();
        if addresses.is_empty() {
            return Err(format!("the name {host} has no address"));
        }
        match self.transport {
            Transport::Quic => self.connect_quic(place, &addresses).await,
            Transport::Tcp => self.connect_tcp(place, &addresses).await,
            Transport::Auto => {
                let quic = self.connect_quic(place, &addresses);
                tokio::pin!(quic);
                // What QUIC fails with, such as a certificate that is refused, TCP would fail with too.
                if let Ok(decided) = tokio::time::timeout(QUIC_ALONE_TIME, &mut quic).await {
                    return decided;
                }
                let tcp = self.connect_tcp(place, &addresses);
                tokio::pin!(tcp);
                let over_tcp = tokio::select! {
                    Ok(connected) = &mut tcp => connected,
                    decided = &mut quic => return decided,
                };
                let again = self.connect_quic(place, &addresses);
                let over_quic = async {
                    tokio::select! {
                        Ok(connected) = again => Some(connected),
                        Ok(connected) = &mut quic => Some(connected),
                        else => None,
                    }
                };
                let over_quic = tokio::time::timeout(QUIC_AGAIN_TIME, over_quic).await.ok().flatten();
                Ok(over_quic.unwrap_or(over_tcp))
            }
        }
    }

    async fn connect_tcp(&self, place: &EdgeAddress, addresses: &[SocketAddr]) -> Result<Connected, String> {
        let failed = |error: std::io::Error| {
            let why = explain_io(&error).unwrap_or_else(|| error.to_string());
            format!("cannot connect to the edge at {place} over TCP: {why}")
        };
        let socket = TcpStream::connect(addresses).await.map_err(failed)?;
        tcp::prepare(&socket).map_err(failed)?;
        let name = ServerName::try_from(EDGE_SERVER_NAME).expect("a constant that is a DNS name");
        let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, socket).await.map_err(failed)?;
        Ok(Connected::Tcp(Box::new(stream)))
    }

    async fn connect_quic(&self, place: &EdgeAddress, addresses: &[SocketAddr]) -> Result<Connected, String> {
        let mut failure = String::new();
        for &address in addresses {
            // A socket for each connection: a new one also gets past a path that has gone bad.
            let attempt = async {
                let (sent, datagram_bytes_max) = (SentBytes::default(), route_datagram_bytes_max(address));
                let mut config = quinn::ClientConfig::new(self.crypto.clone());
                config.transport_config(transport_config(sent.clone(), datagram_bytes_max));
                let endpoint = endpoint(any_address_for(&address), None, datagram_bytes_max)
                    .map_err(|error| error.to_string())?;
                let connecting = endpoint
                    .connect_with(config, address, EDGE_SERVER_NAME)
                    .map_err(|error| error.to_string())?;
                match connecting.await {
                    Ok(connection) => Ok(Connected::Quic(endpoint, connection, sent)),
                    Err(error) => Err(explain_quic(&error).unwrap_or_else(|| error.to_string())),
                }
            };
            match attempt.await {
                Ok(connected) => return Ok(connected),
                Err(error) => failure = format!("cannot connect to the edge at {place}: {error}"),
            }
        }
        Err(failure)
    }
}

/// Serves a connection until it ends.
async fn serve(
    (link, edge): (LinkId, EdgeIndex),
    endpoint: &Endpoint,
    connection: Connection,
    sent: SentBytes,
    (events, revoked): (mpsc::Sender<CameraEvent>, EdgeRevoked),
) {
    let (commands, mut receiver) = CommandSender::channel();
    if events.send(CameraEvent::Dialled(link, edge, commands)).await.is_err() {
        return;
    }
    let window = sent.clone();
    let reason = match connection.open_bi().await {
        Ok((mut control, messages)) => {
            let mut connected = Serving {
                link,
                connection: &connection,
                events: &events,
                sent,
                resets: HashMap::new(),
                live: Arc::new(watch::Sender::new(0)),
                history: 0,
            };
            let mut reader = MessageReader::new(messages);
            tokio::select! {
                reason = connected.write(&mut receiver, &mut control) => reason,
                reason = read(link, &mut reader, &window, &events) => reason,
                reason = revoked.reason() => reason,
            }
        }
        Err(error) => error.to_string(),
    };
    // An edge judges the camera's certificate when the camera takes the handshake for done. What it says of it tells more than that the
    // connection is lost.
    let refused = connection.close_reason().and_then(|closed| explain_quic(&closed));
    let reason = refused.unwrap_or(reason);
    connection.close(CLOSE_DONE, reason.as_bytes());
    let _ = events.send(CameraEvent::Closed(link, reason)).await;
    // Lets the closing reach the edge.
    let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
}

async fn read(
    link: LinkId,
    reader: &mut MessageReader,
    sent: &SentBytes,
    events: &mpsc::Sender<CameraEvent>,
) -> String {
    let mut told = None;
    loop {
        match reader.next().await {
            Ok(message) => {
                let window = sent.opening();
                let changed = std::mem::replace(&mut told, window) != window;
                if changed && events.send(CameraEvent::Window(link, window)).await.is_err() {
                    return "the camera broker has stopped".into();
                }
                if events.send(CameraEvent::Message(link, message)).await.is_err() {
                    return "the camera broker has stopped".into();
                }
            }
            Err(error) => return error.to_string(),
        }
    }
}

struct Serving<'a> {
    link: LinkId,
    connection: &'a Connection,
    events: &'a mpsc::Sender<CameraEvent>,
    /// Counts what has left.
    sent: SentBytes,
    /// How to cancel the frames that are on their way.
    resets: HashMap<FrameId, oneshot::Sender<()>>,
    /// Live frames that have bytes not yet sent.
    live: Arc<watch::Sender<usize>>,
    /// How many frames of the past were sent.
    history: u32,
}

impl Serving<'_> {
    /// Carries out commands until there is nothing more to do.
    async fn write(&mut self, commands: &mut mpsc::Receiver<Command>, control: &mut SendStream) -> String {
        let _ = control.set_priority(CONTROL_PRIORITY);
        while let Some(command) = commands.recv().await {
            match command {
                Command::Send(message) => {
                    if let Err(error) = write_message(control, &message).await {
                        return error.to_string();
                    }
                }
                Command::SendFrame(header, payload) if header.history > 0 => {
                    self.send_history(*header, payload);
                }
                Command::SendFrame(header, payload) => self.send_frame(*header, payload),
                Command::Reset(frame) => {
                    if let Some(reset) = self.resets.remove(&frame) {
                        let _ = reset.send(());
                    }
                }
                Command::Close => return "the camera broker closed the connection".into(),
                Command::Farewell => {
                    let _ = control.finish();
                    let _ = tokio::time::timeout(CLOSE_TIME_MAX, control.stopped()).await;
                    return "the camera broker has stopped".into();
                }
            }
        }
        "the camera broker has stopped".into()
    }

    fn send_frame(&mut self, mut header: FrameHeader, payload: Bytes) {
        self.resets.retain(|_, reset| !reset.is_closed());
        let (reset, cancelled) = oneshot::channel();
        self.resets.insert(header.meta.id, reset);
        let (link, connection, events) = (self.link, self.connection.clone(), self.events.clone());
        let sent = self.sent.clone();
        let sending = Sending::begin(&self.live);
        tokio::spawn(async move {
            let (frame, payload_bytes) = (header.meta.id, payload.len() as u64);
            let Ok(mut stream) = connection.open_uni().await else { return };
            let _ = stream.set_priority(live_priority(frame.sequence));
            tokio::pin!(cancelled);
            let stopped = stream.stopped();
            header.trace.stamp(Stage::Sent, monotonic_now());
            let sent = sent.frame();
            let watched = sent.clone();
            let tell = |bytes| {
                let told = events.send(CameraEvent::Unsent(link, frame, bytes));
                async { drop(told.await) }
            };
            tokio::select! {
                written = write_frame(sent, &mut stream, &header, payload) => {
                    if written.is_err() {
                        return;
                    }
                }
                Ok(()) = &mut cancelled => {
                    let _ = stream.reset(RESET_STALE);
                    return;
                }
                () = watched.tell_unsent(payload_bytes, UNSENT_INTERVAL, tell) => return,
                // Looked at beside the writing, which waits for bytes to leave: those of a stopped stream never do. That
                // the frame was refused, and so is over, the edge says on the control stream.
                Ok(Some(_)) = stopped => return,
            }
            drop(sending);
            let _ = events.send(sent_event(link, frame, 0)).await;
            tokio::select! {
                // Until everything is acknowledged, what was lost is sent again, unless the frame is cancelled.
                _ = stream.stopped() => {}
                Ok(()) = &mut cancelled => {
                    let _ = stream.reset(RESET_STALE);
                }
            }
        });
    }

    /// Sends a frame of the past: behind everything else, and in pieces that wait while a live frame is being sent.
    fn send_history(&mut self, header: FrameHeader, payload: Bytes) {
        let (link, connection, events) = (self.link, self.connection.clone(), self.events.clone());
        let (sent, live) = (self.sent.clone(), self.live.subscribe());
        let priority = history_priority(self.history);
        self.history = self.history.wrapping_add(1);
        tokio::spawn(async move {
            let Ok(mut stream) = connection.open_uni().await else { return };
            let _ = stream.set_priority(priority);
            let stopped = stream.stopped();
            tokio::select! {
                written = write_history(&sent, live, &mut stream, &header, payload) => {
                    if written.is_err() {
                        return;
                    }
                }
                // The edge does not want it; it is over.
                _ = stopped => {}
            }
            let _ = events.send(sent_event(link, header.meta.id, header.history)).await;
            let _ = stream.stopped().await;
        });
    }
}

/// Counts a live frame for as long as it has bytes not yet sent.
struct Sending(Arc<watch::Sender<usize>>);

impl Sending {
    fn begin(live: &Arc<watch::Sender<usize>>) -> Self {
        live.send_modify(|frames| *frames += 1);
        Self(Arc::clone(live))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.send_modify(|frames| *frames -= 1);
    }
}
