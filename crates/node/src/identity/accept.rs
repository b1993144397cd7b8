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

/// Authenticated connections that wait to be served. They are taken at once, so few ever wait.
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
    /// Its place, until it has said its first whole message, or, at the web port, until somebody known asks.
    pub(crate) pass: Pass,
}

/// TLS connections as they come in.
///
/// Yields only connections whose client the configuration admits. Refused ones are logged with the reason, each client now and then, and
/// do not disturb the others. Dropping it closes the listener, and connections that are not through their handshake.
#[derive(Debug)]
pub struct TlsIncoming {
    accepted: mpsc::Receiver<Accepted>,
}

impl TlsIncoming {
    /// Begins to accept, on the current tokio runtime. `refusals` keeps count of who was refused.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, refusals: Arc<Refusals>) -> Self {
        Self::at(listener, config, Door::new(refusals))
    }

    /// The same with a door that has other limits.
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
        // Nothing but accepting is waited for here: whoever waits for a client waits in a task of its own.
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
    // Until something comes there is no more than a socket.
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

/// Accepts one connection, whatever passing trouble the system has.
pub(super) async fn accept(listener: &TcpListener, door: &Door) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((connection, peer)) => {
                // Small messages leave at once. Where that cannot be set the connection is dead already.
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
