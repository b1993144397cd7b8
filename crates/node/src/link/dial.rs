//! The camera's side of the link: dials the edge over QUIC or TCP, and serves connections over QUIC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::{DIAL_TIME_MAX, EdgeIndex, LinkId};
use mez_core::revocation::Certificate;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint, SendStream};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::warn;

use super::quic::{
    CLOSE_DONE, CONTROL_PRIORITY, MessageReader, any_address_for, endpoint, route_datagram_bytes_max,
    transport_config, write_message,
};
use super::receive::receive_frames;
use super::send::FrameSender;
use super::sent::SentBytes;
use super::{CLOSE_TIME_MAX, CameraEvent, Command, CommandSender, tcp};
use crate::identity::explain::{explain_io, explain_quic};
use crate::identity::tls::{TlsConfigError, link_client_config, quic_client_config};
use crate::identity::{Credentials, EDGE_SERVER_NAME, SiteName, peer_identity};
use crate::ports::EdgeAddress;
use crate::revocation::{LiveRevocations, shown};

/// How long QUIC is tried alone. After that, TCP is tried beside it.
const QUIC_ALONE_TIME: Duration = Duration::from_secs(1);
/// How long a second QUIC attempt may take once TCP has connected. An edge that has just started never saw the packets of the first attempt,
/// and QUIC repeats them only after seconds. Without the second attempt, a restart of the edge would leave cameras on TCP.
const QUIC_AGAIN_TIME: Duration = Duration::from_millis(400);

/// The transport of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// QUIC, or TCP if UDP does not get through. The default.
    #[default]
    Auto,
    /// QUIC over UDP. It can cancel a stale frame even after part of the frame has left this host's memory.
    Quic,
    /// TLS over TCP. It takes half the processor time on a fast network, but cannot cancel bytes that the kernel has taken.
    Tcp,
}

/// Connects to the edges of a site.
#[derive(Clone)]
pub(crate) struct Dialler {
    transport: Transport,
    crypto: Arc<QuicClientConfig>,
    tls: Arc<rustls::ClientConfig>,
    site: SiteName,
    revoked: LiveRevocations,
    events: mpsc::Sender<CameraEvent>,
}

/// A connection that was made.
enum Connected {
    Quic(Endpoint, Connection, SentBytes),
    Tcp(Box<TlsStream<TcpStream>>),
}

impl Connected {
    /// The edge's certificate.
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

/// Tells when a connected edge is revoked.
pub(super) struct EdgeRevoked {
    revoked: LiveRevocations,
    certificate: Certificate,
}

impl EdgeRevoked {
    /// Waits until the edge is revoked, and returns the reason for ending the connection.
    pub(super) async fn reason(mut self) -> String {
        self.revoked.denied(&self.certificate).await.to_string()
    }
}

impl Dialler {
    /// A dialler for the camera that the credentials name. It does not connect to revoked edges.
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

    /// Connects to `edge` at `place`, and serves the connection until it ends. Everything is reported as events.
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
                            "UDP packets do not reach {place}, so the link uses TCP, which cancels stale frames later; open UDP in the firewall"
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

    /// Connects to an edge, and refuses it if it is revoked.
    async fn connect_unrevoked(&self, place: &EdgeAddress) -> Result<(Connected, EdgeRevoked), String> {
        let connected = self.connect(place).await?;
        let certificate = connected.certificate(&self.site);
        let certificate = certificate.map_err(|why| format!("cannot use the edge at {place}: {why}"))?;
        match self.revoked.denies(&certificate) {
            Some(denial) => Err(format!("the edge at {place} is not used: {denial}")),
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
                // A failure of QUIC, such as a refused certificate, would also occur over TCP.
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
            // Each connection gets its own socket, which also avoids a path that has gone bad.
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
            let mut frames = FrameSender::new(link, connection.clone(), events.clone(), sent);
            let mut reader = MessageReader::new(messages);
            let mut answers = JoinSet::new();
            answers.spawn(receive_frames(link, connection.clone(), events.clone()));
            tokio::select! {
                reason = write(&mut frames, &mut receiver, &mut control) => reason,
                reason = read(link, &mut reader, &window, &events) => reason,
                reason = revoked.reason() => reason,
            }
        }
        Err(error) => error.to_string(),
    };
    // An edge checks the camera's certificate when the camera's handshake is already done. Its reason for closing says more than a lost connection.
    let refused = connection.close_reason().and_then(|closed| explain_quic(&closed));
    let reason = refused.unwrap_or(reason);
    connection.close(CLOSE_DONE, reason.as_bytes());
    let _ = events.send(CameraEvent::Closed(link, reason)).await;
    // Lets the close reach the edge.
    let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
}

async fn read(
    link: LinkId,
    reader: &mut MessageReader,
    sent: &SentBytes,
    events: &mpsc::Sender<CameraEvent>,
) -> String {
    let (mut told, mut packet) = (None, None);
    loop {
        match reader.next().await {
            Ok(message) => {
                let window = sent.opening();
                let changed = std::mem::replace(&mut told, window) != window;
                if changed && events.send(CameraEvent::Window(link, window)).await.is_err() {
                    return "the camera broker has stopped".into();
                }
                let bytes = sent.packet_bytes();
                if std::mem::replace(&mut packet, bytes) != bytes
                    && events.send(CameraEvent::PacketBytes(link, bytes)).await.is_err()
                {
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

/// Carries out commands until the connection is to end, and returns why.
async fn write(
    frames: &mut FrameSender<CameraEvent>,
    commands: &mut mpsc::Receiver<Command>,
    control: &mut SendStream,
) -> String {
    let _ = control.set_priority(CONTROL_PRIORITY);
    while let Some(command) = commands.recv().await {
        match command {
            Command::Send(message) => {
                if let Err(error) = write_message(control, &message).await {
                    return error.to_string();
                }
            }
            Command::SendFrame(header, payload) => frames.send(*header, payload),
            Command::Reset(frame) => frames.reset(frame),
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
