//! Accepts TLS connections over TCP, each with a pass from the door (`door.rs`).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;

use super::door::{Door, Pass};
use super::explain::explain_io;
use super::gate::HANDSHAKES;
use super::refusals::Refusals;

/// Authenticated connections that wait to be served. The server takes them at once, so the queue is short.
const ACCEPTED_MAX: usize = 32;
/// The pause after a failed accept. Without it the loop would spin on one core.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause after another connection was closed to make room. Its task needs a moment to end.
const PAUSE_FOR_ROOM: Duration = Duration::from_millis(2);

/// A connection whose client the configuration admits.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: TlsStream<TcpStream>,
    /// The connection's place at the door. It is held until the first whole message, or, at the web port, until the first request of a known client.
    pub(crate) pass: Pass,
}

/// Incoming TLS connections.
///
/// Yields only connections whose client the configuration admits. Refused connections are logged with the reason, with a limit per
/// client, and do not disturb the others. Dropping this value closes the listener and all connections whose handshake is not complete.
#[derive(Debug)]
pub struct TlsIncoming {
    accepted: mpsc::Receiver<Accepted>,
}

impl TlsIncoming {
    /// Starts to accept, on the current tokio runtime. `refusals` counts the refused clients.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, refusals: Arc<Refusals>) -> Self {
        Self::at(listener, config, Door::new(refusals))
    }

    /// Like [`TlsIncoming::new`], with a door that has other limits.
    pub(crate) fn at(listener: TcpListener, config: Arc<ServerConfig>, door: Door) -> Self {
        let (sender, accepted) = mpsc::channel(ACCEPTED_MAX);
        tokio::spawn(accept_all(listener, TlsAcceptor::from(config), sender, door));
        Self { accepted }
    }
}

impl Stream for TlsIncoming {
    type Item = io::Result<Accepted>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(context).map(|connection| connection.map(Ok))
    }
}

async fn accept_all(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<Accepted>,
    door: Door,
) {
    loop {
        // This loop only accepts. Each wait for a client is in a task of its own.
        let (connection, peer) = tokio::select! {
            connection = accept(&listener, &door) => connection,
            () = sender.closed() => return,
        };
        let (acceptor, sender, mut pass) = (acceptor.clone(), sender.clone(), door.enter(peer.ip()));
        tokio::spawn(async move {
            let stream = tokio::select! {
                stream = secure(connection, &acceptor, &mut pass) => stream,
                () = sender.closed() => return,
            };
            if let Some(stream) = stream {
                pass.authenticated();
                // The receiver is gone only while everything shuts down.
                let _ = sender.send(Accepted { stream, pass }).await;
            }
        });
    }
}

/// Does the handshake of one connection. `None` if it was refused, ended or must be closed; the reason is logged.
pub(super) async fn secure(
    connection: TcpStream,
    acceptor: &TlsAcceptor,
    pass: &mut Pass,
) -> Option<TlsStream<TcpStream>> {
    // A client that sends nothing costs no more than a socket.
    let _ = pass.during(connection.readable()).await.ok()?;
    pass.heard();
    let handshake = HANDSHAKES.in_turn(pass.address(), acceptor.accept(connection));
    match pass.during(handshake).await.ok()? {
        Ok(stream) => Some(stream),
        Err(error) => {
            pass.refused(&explain_io(&error).unwrap_or_else(|| error.to_string()));
            None
        }
    }
}

/// Accepts one connection. Retries after temporary errors of the system.
pub(super) async fn accept(listener: &TcpListener, door: &Door) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((connection, peer)) => {
                // Small messages are sent at once. If the option cannot be set, the connection is dead already.
                let _ = connection.set_nodelay(true);
                return (connection, peer);
            }
            Err(error) => {
                let made_room = is_out_of_descriptors(&error) && door.make_room();
                if !made_room {
                    door.cannot_accept(&error);
                }
                tokio::time::sleep(if made_room { PAUSE_FOR_ROOM } else { PAUSE }).await;
            }
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|out| error.raw_os_error() == Some(out.raw_os_error()))
}
