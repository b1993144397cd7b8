//! Listens for applications, and serves their connections.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use mez_core::admission::{Dropped, Limits};
use mez_core::revocation::Certificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tracing::{debug, info, warn};

use super::calls::Peer;
use super::camera::CameraApi;
use super::edge::EdgeApi;
use super::places::{Places, PrincipalsPlace};
use super::principal::{Member, Principal};
use super::socket::{Socket, SocketError};
use super::{ApiLimits, Broker, grpc};
use crate::camera::CameraHandle;
use crate::edge::EdgeHandle;
use crate::identity::accept::Accepted;
use crate::identity::door::{Door, Pass, Said};
use crate::identity::refusals::Refusals;
use crate::identity::tls::{TlsConfigError, grpc_server_config};
use crate::identity::{Credentials, Role, TlsIncoming, peer_identity};
use crate::local::{self, MAGIC};
use crate::ports::bind_remedy;
use crate::revocation::{LiveRevocations, shown};
use crate::rights::LiveRights;

/// The number of bytes that every HTTP/2 client sends first (RFC 9113, section 3.4). After that, the keepalive notices a client that has gone.
const HTTP2_PREFACE_BYTES: usize = 24;
/// How long open streams may take to tell their clients that the broker stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// The flow control window of one stream, for publishers. The same as on the link.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The flow control window of one connection, for publishers. The same as on the link.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// How long a connection continues after its certificate was revoked, so that its streams can tell the client why they end.
const REVOKED_TIME_MAX: Duration = Duration::from_secs(2);
/// The most encrypted bytes that may wait for a connection: one TLS record.
const TLS_BUFFER_BYTES_MAX: usize = 16 << 10;
/// The largest HTTP/2 frame. Large frames cost less than many small ones.
const HTTP2_FRAME_BYTES_MAX: u32 = 1 << 20;
/// Extra streams of one connection beyond its calls ([`ApiLimits::calls_per_connection_max`]).
/// A client at its stream limit waits silently, but a call beyond the limit must be refused.
const STREAMS_ABOVE_CALLS: u32 = 1024;
/// How often a keepalive is sent. A client that has gone is noticed after two of these intervals.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Why a broker does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The Unix socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The TCP port cannot be opened.
    #[error("cannot listen on {address}: {source}; {}", bind_remedy(source, "--grpc"))]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate cannot be used to serve.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
}

/// Serves a broker's interface to applications, on any number of listeners. Dropping it closes them. [`ApiServer::stop`] also informs the clients.
pub struct ApiServer {
    broker: Broker,
    limits: ApiLimits,
    stop: watch::Sender<bool>,
    connections: Arc<Semaphore>,
    /// The number of connections of each principal.
    places: Arc<Places>,
    listeners: JoinSet<()>,
    /// Where it listens for gRPC over TLS, and on which Unix socket.
    listens: Listens,
}

/// Where an [`ApiServer`] listens.
#[derive(Clone, Debug, Default)]
pub struct Listens {
    /// For gRPC over TLS.
    pub tls: Option<SocketAddr>,
    /// For programs of its own host.
    pub socket: Option<PathBuf>,
}

impl ApiServer {
    /// A server for an edge broker, without listeners yet.
    pub fn edge(edge: EdgeHandle, rights: LiveRights, limits: ApiLimits) -> Self {
        Self::new(limits, |stopping| Broker::Edge(Box::new(EdgeApi::new(edge, rights, limits, stopping))))
    }

    /// A server for a camera broker, without listeners yet.
    pub fn camera(camera: CameraHandle, limits: ApiLimits) -> Self {
        Self::new(limits, |stopping| Broker::Camera(CameraApi::new(camera, limits, stopping)))
    }

    fn new(limits: ApiLimits, broker: impl FnOnce(watch::Receiver<bool>) -> Broker) -> Self {
        let (stop, stopping) = watch::channel(false);
        Self {
            broker: broker(stopping),
            limits,
            stop,
            connections: Arc::new(Semaphore::new(limits.connections_max)),
            places: Places::new(limits.connections_per_principal_max),
            listeners: JoinSet::new(),
            listens: Listens::default(),
        }
    }

    /// Sets new limits. Open connections and subscriptions stay, even beyond the limits.
    /// The limits of all connections, and of calls per connection, cannot be changed.
    pub fn set_limits(&self, limits: ApiLimits) {
        self.places.set_max(limits.connections_per_principal_max);
        match &self.broker {
            Broker::Edge(api) => api.set_limits(limits),
            Broker::Camera(api) => api.set_limits(limits),
        }
    }

    /// The interface of an edge broker. `None` at a camera broker.
    pub(crate) fn edge_api(&self) -> Option<&EdgeApi> {
        match &self.broker {
            Broker::Edge(api) => Some(api),
            Broker::Camera(_) => None,
        }
    }

    /// Listens on a Unix socket, for gRPC and the local protocol. Must run on a tokio runtime.
    pub fn listen_unix(&mut self, path: &Path) -> Result<(), ServeError> {
        let socket = Socket::open(path)?;
        info!(path = %path.display(), "applications on this host may connect");
        let (grpc, connections) = mpsc::channel(1);
        let incoming = Incoming { connections };
        let broker = self.broker.clone();
        let server = self.serve_grpc(incoming);
        let (places, of_principals) = (Arc::clone(&self.connections), Arc::clone(&self.places));
        let stopping = self.stop.subscribe();
        self.listeners.spawn(async move {
            tokio::join!(server, accept_unix(socket, broker, (places, of_principals), grpc, stopping));
        });
        self.listens.socket = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(())
    }

    /// Listens on a TCP port for gRPC over TLS, for members of the site with a role in
    /// `accepts`. Returns the bound address, with the chosen port if `address` has port 0.
    pub async fn listen_tls(
        &mut self,
        address: SocketAddr,
        credentials: &Credentials,
        accepts: &[Role],
    ) -> Result<SocketAddr, ServeError> {
        let revoked = match &self.broker {
            Broker::Edge(api) => api.edge.revoked().clone(),
            // The interface of a camera broker uses no deny list.
            Broker::Camera(_) => LiveRevocations::in_memory(credentials),
        };
        let config = Arc::new(grpc_server_config(credentials, accepts, &revoked)?);
        let bind = |source| ServeError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        info!(%address, "applications may connect with a certificate of the site");
        let site = credentials.identity().site.clone();
        let (places, of_principals) = (Arc::clone(&self.connections), Arc::clone(&self.places));
        let audit = self.broker.audit();
        let refusals = Arc::new(Refusals::recorded("grpc", audit.clone()));
        let incoming = TlsIncoming::new(listener, config, refusals).filter_map(move |accepted| {
            let Accepted { mut stream, pass } = accepted.ok()?;
            stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER_BYTES_MAX));
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            // The handshake has verified the certificate: one without an identity does not get here.
            let identity = peer_identity(certificates, &site).ok()?;
            let certificate = shown(certificates.first()?, &identity).ok()?;
            let place = enter(&places)?;
            let cut = cut(revoked.clone(), certificate.clone());
            let from = stream.get_ref().0.peer_addr().map(|from| from.ip().to_canonical().to_string());
            audit.connected(identity.short(), "grpc", from.unwrap_or_default());
            let principal = Principal::Member(Member { identity, certificate });
            let of_principal = of_principals.enter(&principal).ok()?;
            let mut connection = Connection::new(stream, principal, (place, of_principal), pass);
            connection.cut = Some(Cut::Later(Box::pin(cut)));
            Some(Ok(connection))
        });
        let server = self.serve_grpc(incoming);
        self.listeners.spawn(server);
        self.listens.tls = Some(address);
        Ok(address)
    }

    /// Where it listens.
    pub fn listens(&self) -> &Listens {
        &self.listens
    }

    /// Ends all streams, tells their clients that the broker stops, and closes the listeners.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            debug!("some clients did not read the end of their streams in time");
        }
    }

    fn serve_grpc<C>(
        &self,
        incoming: impl Stream<Item = io::Result<Connection<C>>> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broker = self.broker.clone();
        let mut stopping = self.stop.subscribe();
        let calls_max = self.limits.calls_per_connection_max;
        let streams_max = u32::try_from(calls_max).unwrap_or(u32::MAX).saturating_add(STREAMS_ABOVE_CALLS);
        async move {
            let served = Server::builder()
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_frame_size(HTTP2_FRAME_BYTES_MAX)
                .max_concurrent_streams(streams_max)
                .http2_keepalive_interval(Some(KEEPALIVE))
                .http2_keepalive_timeout(Some(KEEPALIVE))
                .add_routes(grpc::routes(&broker, calls_max).await)
                .serve_with_incoming_shutdown(incoming, async move {
                    let _ = stopping.wait_for(|stop| *stop).await;
                })
                .await;
            if let Err(error) = served {
                warn!(%error, "a listener for applications failed");
            }
        }
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Completes when a connection must be closed because its certificate was revoked. Its streams end before that, with a reason.
async fn cut(mut revoked: LiveRevocations, certificate: Certificate) {
    revoked.denied(&certificate).await;
    tokio::time::sleep(REVOKED_TIME_MAX).await;
}

/// A place for one more connection, if there is one.
fn enter(places: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let place = Arc::clone(places).try_acquire_owned().ok();
    if place.is_none() {
        warn!("the broker has reached its limit of connections; a new connection was closed");
    }
    place
}

async fn accept_unix(
    socket: Socket,
    broker: Broker,
    (places, of_principals): (Arc<Semaphore>, Arc<Places>),
    grpc: mpsc::Sender<Connection<UnixStream>>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut local = JoinSet::new();
    // This door limits only the time until the first bytes. The clients are users of this host, and `places` limits their number.
    let all = places.available_permits();
    let limits = Limits { prefaces_max: all, prefaces_of_address_max: all, ..Limits::default() };
    let door = Door::with(limits, Arc::default());
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            Some(_) = local.join_next() => continue,
            accepted = socket.listener().accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            // Without a pause, an error such as exhausted file descriptors would make this loop spin.
            Err(error) => {
                warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(place) = enter(&places) else { continue };
        let (broker, grpc, of_principals) = (broker.clone(), grpc.clone(), Arc::clone(&of_principals));
        // A client that can open the socket needs no further authentication.
        let mut pass = door.enter(Ipv6Addr::LOCALHOST.into());
        pass.authenticated();
        local.spawn(async move {
            let Ok(user) = stream.peer_cred() else { return };
            let principal = Principal::User { uid: user.uid() };
            broker.audit().connected(principal.short(), "socket", "");
            let of_principal = match of_principals.enter(&principal) {
                Ok(of_principal) => of_principal,
                Err(refused) => return local::server::refuse(stream, refused).await,
            };
            match pass.during(peek(&stream)).await {
                Ok(Ok(First::Local)) => {
                    drop(pass);
                    local::server::serve(stream, broker, principal).await;
                    drop(place);
                }
                Ok(Ok(First::Other)) => {
                    // The receiver is gone only while everything shuts down.
                    let _ = grpc.send(Connection::new(stream, principal, (place, of_principal), pass)).await;
                }
                // A client that only checks whether somebody listens.
                Ok(Ok(First::Nothing) | Err(_)) => {}
                Err(_) => debug!(%principal, "a client connected and said nothing"),
            }
        });
    }
    // Streams tell their clients first.
    while local.join_next().await.is_some() {}
}

/// The protocol that a connection begins with.
enum First {
    /// The local protocol.
    Local,
    /// Anything else. It is treated as gRPC, which reports errors itself.
    Other,
    /// The connection has ended.
    Nothing,
}

/// Reads the first bytes without consuming them.
async fn peek(stream: &UnixStream) -> io::Result<First> {
    use rustix::net::{RecvFlags, recv};
    loop {
        stream.readable().await?;
        let mut first = [0; MAGIC.len()];
        let peeked = stream
            .try_io(tokio::io::Interest::READABLE, || Ok(recv(stream, &mut first[..], RecvFlags::PEEK)?.0));
        match peeked {
            Ok(0) => return Ok(First::Nothing),
            // Compared without the version digit, so that another version is not taken for gRPC.
            Ok(bytes) if bytes >= MAGIC.len() => {
                let local = first[..MAGIC.len() - 1] == MAGIC[..MAGIC.len() - 1];
                return Ok(if local { First::Local } else { First::Other });
            }
            // Both protocols send more than eight bytes at once, so somebody types by hand.
            Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// A connection with the identity of its other end.
struct Connection<C> {
    stream: C,
    peer: Peer,
    /// Set until the HTTP/2 preface is complete.
    preface: Option<Preface>,
    /// Closes the connection after a revocation. Only for members with a certificate.
    cut: Option<Cut>,
    _place: OwnedSemaphorePermit,
    _of_principal: PrincipalsPlace,
}

impl<C> Connection<C> {
    fn new(
        stream: C,
        principal: Principal,
        (place, of_principal): (OwnedSemaphorePermit, PrincipalsPlace),
        pass: Pass,
    ) -> Self {
        let (_said, dropped) = pass.until_said();
        let preface = Preface { missing: HTTP2_PREFACE_BYTES, _said, dropped: Box::pin(dropped) };
        let peer = Peer::new(principal);
        Self { stream, peer, preface: Some(preface), cut: None, _place: place, _of_principal: of_principal }
    }
}

/// Whether a connection must be closed because its certificate was revoked.
enum Cut {
    /// Not yet. The future completes when the connection must be closed.
    Later(Pin<Box<dyn Future<Output = ()> + Send>>),
    /// Now. Every further read fails too.
    Now,
}

impl Cut {
    /// Whether the connection must be closed. If not, the task is woken when it must.
    fn is_ready(&mut self, context: &mut Context<'_>) -> bool {
        if let Self::Later(comes) = self
            && comes.as_mut().poll(context).is_pending()
        {
            return false;
        }
        *self = Self::Now;
        true
    }
}

/// An incomplete preface.
struct Preface {
    missing: usize,
    _said: Said,
    dropped: Pin<Box<dyn Future<Output = Dropped> + Send>>,
}

impl<C> Connected for Connection<C> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Connection<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, preface, cut, .. } = &mut *self;
        if cut.as_mut().is_some_and(|cut| cut.is_ready(context)) {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "its certificate was revoked",
            )));
        }
        if let Some(waits) = preface
            && let Poll::Ready(dropped) = waits.dropped.as_mut().poll(context)
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, dropped.to_string())));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(stream).poll_read(context, buffer);
        if let Some(waits) = preface {
            waits.missing = waits.missing.saturating_sub(buffer.filled().len() - before);
            if waits.missing == 0 {
                *preface = None;
            }
        }
        polled
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Connection<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// gRPC connections of the Unix socket.
struct Incoming {
    connections: mpsc::Receiver<Connection<UnixStream>>,
}

impl Stream for Incoming {
    type Item = io::Result<Connection<UnixStream>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.connections.poll_recv(context).map(|connection| connection.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A server may read again after an error. The future must not be polled after its end, which would panic.
    #[test]
    fn a_connection_that_is_cut_stays_cut() {
        let mut polled = 0;
        let once = std::future::poll_fn(move |_| {
            polled += 1;
            assert!(polled <= 2, "polled behind its end");
            if polled == 2 { Poll::Ready(()) } else { Poll::Pending }
        });
        let (mut cut, mut context) = (Cut::Later(Box::pin(once)), Context::from_waker(Waker::noop()));
        assert!(!cut.is_ready(&mut context));
        assert!(cut.is_ready(&mut context) && cut.is_ready(&mut context));
    }
}
