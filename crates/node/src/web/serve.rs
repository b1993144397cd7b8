//! The port: which connections are accepted, how many, and how long one may stall.

use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mez_core::admission::{Address, Limits};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_stream::StreamExt;
use tracing::{debug, info, warn};

use super::caller::Peer;
use super::events::Events;
use super::fill::utc_ms;
use super::patience::{PIECE_BYTES_MAX, Patient, Taking};
use super::places::Places;
use super::proxy::Proxy;
use super::route::{Begin, Site};
use super::sessions::Sessions;
use super::watcher::{Edge, Watcher};
use super::{WebError, WebOptions};
use crate::api::principal::Member;
use crate::api::{ApiServer, Principal};
use crate::descriptors;
use crate::identity::accept::Accepted;
use crate::identity::door::Door;
use crate::identity::refusals::Refusals;
use crate::identity::tls::{ALPN_HTTP, web_server_config};
use crate::identity::{Credentials, EDGE_SERVER_NAME, TlsIncoming, peer_identity};
use crate::revocation::{LiveRevocations, shown};

/// The most connections.
const CONNECTIONS_MAX: usize = 256;
/// The most connections from one address (an IPv6 network of 64 bits counts as one).
const CONNECTIONS_OF_ADDRESS_MAX: usize = 64;
/// The most requests in progress on one HTTP/2 connection. A page may ask for this many pictures at once.
/// Each takes two seconds if its camera is absent. What requests hold in memory has its own bounds.
const REQUESTS_OF_CONNECTION_MAX: u32 = 64;
/// The HTTP/2 receive windows of a request and of a connection, in bytes. Requests are small.
const WINDOW_BYTES_MAX: [u32; 2] = [8 << 10, 64 << 10];
/// The most bytes of a request's headers.
const HEADER_BYTES_MAX: u32 = 16 << 10;
/// The most encrypted bytes that are buffered for a connection: one TLS record.
const TLS_BUFFER_BYTES_MAX: usize = 16 << 10;
/// How long the headers of a request may take to arrive, and how long an HTTP/1.1 connection may be idle.
const HEADERS_TIME_MAX: Duration = Duration::from_secs(30);
/// How often a keepalive is sent over HTTP/2, and how long its answer may take.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The most connections that no known caller has used yet. Until then they hold a place at the door,
/// and a new connection replaces the oldest. So the other half of all connections is for known callers.
const STRANGERS_MAX: usize = CONNECTIONS_MAX / 2;
/// The most of these connections from one address.
const STRANGERS_OF_ADDRESS_MAX: usize = CONNECTIONS_OF_ADDRESS_MAX / 2;
/// How long a connection may be open without a request of a known caller. Then it is closed.
const STRANGER_TIME_MAX: Duration = Duration::from_secs(30);
/// When a connection without a known caller stops taking requests. It ends once its answers are sent.
const STRANGER_TIME: Duration = Duration::from_secs(25);
/// How long open connections may take to end when the edge stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves the page, its data, health and metrics of an edge. Dropping it closes all connections.
pub struct WebServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl WebServer {
    /// Listens on the current tokio runtime, and looks at the edge once a second from then on. Links that
    /// `mez edge open` asks of `server` lead to this port.
    ///
    /// # Errors
    /// See [`WebError`].
    pub async fn start(
        server: &ApiServer,
        credentials: &Credentials,
        options: WebOptions,
    ) -> Result<Self, WebError> {
        let api = server.edge_api().ok_or(WebError::NotAnEdge)?.clone();
        let revoked = api.revoked();
        let config = Arc::new(web_server_config(credentials, &revoked)?);
        let bind = |source| WebError::Bind { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        info!(%address, "the page, health and metrics are served");
        let edge = Edge::new(credentials.clone(), server.listens().clone());
        let events = Arc::new(Events::new(utc_ms(edge.started_utc), options.events));
        let begun = Watcher::begin(api.handle().clone(), credentials.clone(), Arc::clone(&events)).await;
        let (stop, _) = watch::channel(false);
        let mut tasks = JoinSet::new();
        // If the edge has already stopped, there is nothing to serve.
        let Some((watcher, first)) = begun else { return Ok(Self { address, stop, tasks }) };
        let (looks, looked) = watch::channel(first);
        let sessions = Arc::<Sessions>::default();
        let certificates = credentials.clone();
        let certificate = move || certificates.chain().first().map(|der| der.to_vec()).unwrap_or_default();
        api.page.set(origin(address, credentials), Arc::clone(&sessions), certificate);
        let site = Arc::new(Site::new(Begin {
            edge,
            looks: looked,
            events,
            sessions,
            scrape_token: options.scrape_token,
            proxy: options.proxy.map(|header| Proxy::new(header, credentials.identity().site.clone())),
            assets: options.assets,
            port: address.port(),
            api: api.clone(),
        }));
        let refusals = Arc::new(Refusals::recorded("web", api.handle().audit().clone()));
        let port = Port {
            site,
            credentials: credentials.clone(),
            revoked,
            patience: options.patience,
            connections: Places::new(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX),
        };
        tasks.spawn(watcher.run(looks));
        let limits = Limits {
            prefaces_max: STRANGERS_MAX,
            prefaces_of_address_max: STRANGERS_OF_ADDRESS_MAX,
            preface_time_max: STRANGER_TIME_MAX,
            ..Limits::default()
        };
        let incoming =
            TlsIncoming::at(listener, config, Door::with(limits.within(descriptors::max()), refusals));
        tasks.spawn(accept_all(incoming, port, stop.subscribe()));
        Ok(Self { address, stop, tasks })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the port and all connections. Answers in progress get a moment to end.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        // The watcher ends with the edge, so it is not waited for.
        let _ = tokio::time::timeout(STOP_TIMEOUT, async {
            while self.tasks.len() > 1 && self.tasks.join_next().await.is_some() {}
        })
        .await;
    }
}

/// The page's origin: the host's name if the port listens on all addresses, `localhost` if only on loopback.
fn origin(address: SocketAddr, credentials: &Credentials) -> String {
    let ip = address.ip().to_canonical();
    let host = match ip {
        ip if ip.is_loopback() => "localhost".to_owned(),
        ip if ip.is_unspecified() => name_of_host(credentials),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("https://{host}:{}", address.port())
}

/// The first name of this host in the edge's certificate (`mez edge --dns`), or else the system's host name.
fn name_of_host(credentials: &Credentials) -> String {
    let facts = credentials.facts();
    let is_name =
        |host: &&String| *host != EDGE_SERVER_NAME && *host != "localhost" && host.parse::<IpAddr>().is_err();
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    facts.hosts.iter().find(is_name).cloned().unwrap_or_else(own)
}

/// What each connection is served with.
struct Port {
    site: Arc<Site>,
    credentials: Credentials,
    revoked: LiveRevocations,
    patience: Duration,
    connections: Places<Address>,
}

async fn accept_all(mut incoming: TlsIncoming, port: Port, mut stopping: watch::Receiver<bool>) {
    let mut serving = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stopping.wait_for(|stop| *stop) => break,
            Some(_) = serving.join_next() => continue,
            accepted = incoming.next() => accepted,
        };
        let Some(Ok(accepted)) = accepted else { break };
        let Ok(from) = accepted.stream.get_ref().0.peer_addr().map(|from| from.ip()) else { continue };
        let place = match port.connections.enter(from.into()) {
            Ok(place) => place,
            Err(full) => {
                warn!(%from, ?full, "the page has reached its limit of connections; a new connection was closed");
                continue;
            }
        };
        let Some((member, cut)) = member(&accepted.stream, &port) else { continue };
        let (site, patience, stopping) = (Arc::clone(&port.site), port.patience, stopping.clone());
        serving.spawn(async move {
            serve(accepted, (from, member, cut), site, patience, stopping).await;
            drop(place);
        });
    }
    // Waits for open connections, which end when `stopping` turns true.
    while serving.join_next().await.is_some() {}
}

/// Completes when a connection must be closed because its certificate was revoked.
type Cut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The member at the other end, if it has shown a certificate. `None`: the certificate is invalid, which the handshake rules out.
fn member(stream: &TlsStream<TcpStream>, port: &Port) -> Option<(Option<Principal>, Cut)> {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let Some(first) = certificates.first() else {
        return Some((None, Box::pin(std::future::pending())));
    };
    let identity = peer_identity(certificates, &port.credentials.identity().site).ok()?;
    let certificate = shown(first, &identity).ok()?;
    let (mut revoked, denied) = (port.revoked.clone(), certificate.clone());
    let cut = async move {
        revoked.denied(&denied).await;
    };
    Some((Some(Principal::Member(Member { identity, certificate })), Box::pin(cut)))
}

/// Serves one connection until it ends or stalls, or the edge stops.
async fn serve(
    accepted: Accepted,
    (from, member, cut): (IpAddr, Option<Principal>, Cut),
    site: Arc<Site>,
    patience: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    let Accepted { mut stream, pass } = accepted;
    stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER_BYTES_MAX));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP[0]);
    let (said, dropped) = pass.until_said();
    let peer = Peer::new(from, member, said);
    let (taking, asks) = (Taking::default(), peer.clone());
    let answers = taking.clone();
    let service = service_fn(move |request| {
        let (answer, answers) = (Arc::clone(&site).answer(peer.clone(), request), answers.clone());
        async move { answer.await.map(|answer| answer.map(|body| answers.watched(body))) }
    });
    let io = TokioIo::new(Patient::new(stream, patience));
    let served = async move {
        if is_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(REQUESTS_OF_CONNECTION_MAX)
                .max_header_list_size(HEADER_BYTES_MAX)
                .initial_stream_window_size(WINDOW_BYTES_MAX[0])
                .initial_connection_window_size(WINDOW_BYTES_MAX[1])
                .max_send_buf_size(PIECE_BYTES_MAX)
                .keep_alive_interval(Some(KEEPALIVE))
                .keep_alive_timeout(KEEPALIVE);
            let connection = builder.serve_connection(io, service);
            until_over(connection, &asks, http2::Connection::graceful_shutdown).await
        } else {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .max_header_size(HEADER_BYTES_MAX as usize)
                .header_read_timeout(Some(HEADERS_TIME_MAX));
            let connection = builder.serve_connection(io, service);
            until_over(connection, &asks, http1::Connection::graceful_shutdown).await
        }
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            debug!(%from, %error, "a connection for the page ended");
        },
        dropped = dropped => debug!(%from, "a connection for the page was closed: {dropped}"),
        () = cut => debug!(%from, "a connection for the page was closed: its certificate was revoked"),
        () = taking.given_up(patience) => debug!(%from, "a connection for the page was closed: the client reads an answer too slowly"),
        // Event streams end by themselves; everything else is cut off a moment later.
        () = async {
            let _ = stopping.wait_for(|stop| *stop).await;
            tokio::time::sleep(STOP_TIMEOUT / 2).await;
        } => {}
    }
}

/// Serves a connection until it ends. If no known caller has used it for [`STRANGER_TIME`], calls `leave`, which ends it after its answers.
async fn until_over<C: Future>(connection: C, peer: &Peer, leave: fn(Pin<&mut C>)) -> C::Output {
    let mut connection = pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return served,
        () = tokio::time::sleep(STRANGER_TIME) => {}
    }
    if !peer.is_known() {
        leave(connection.as_mut());
    }
    connection.await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::Ipv4Addr;

    use http::{Request, Response};
    use hyper::body::Incoming;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::identity::door::Said;

    /// Answers each request after 20 s.
    async fn answer(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(Response::new("late".into()))
    }

    /// Sends two requests at once. Returns everything that was received until the connection ended or a minute passed, and whether it ended.
    async fn ask_twice(is_known: bool) -> (String, bool) {
        let (server, mut client) = tokio::io::duplex(4096);
        let peer = Peer::new(Ipv4Addr::LOCALHOST.into(), None, Said::default());
        if is_known {
            peer.known();
        }
        let serving = tokio::spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service_fn(answer));
            until_over(connection, &peer, http1::Connection::graceful_shutdown).await
        });
        let request = b"GET / HTTP/1.1\r\nhost: edge\r\n\r\n";
        client.write_all(&request.repeat(2)).await.unwrap();
        let mut all = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut all)).await.is_ok();
        serving.abort();
        (String::from_utf8(all).unwrap(), ended)
    }

    /// The second request is in progress when the connection's time is over.
    #[tokio::test(start_paused = true)]
    async fn a_stranger_gets_the_answer_in_progress_and_then_the_connection_ends() {
        let (all, ended) = ask_twice(false).await;
        assert_eq!(all.matches("late").count(), 2, "{all}");
        assert!(ended && all.contains("connection: close"), "{all}");
        let (all, ended) = ask_twice(true).await;
        assert_eq!((all.matches("late").count(), ended), (2, false), "{all}");
    }
}
