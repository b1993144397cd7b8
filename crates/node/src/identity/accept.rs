//! Accepts TLS connections over TCP, a bounded number at a time, each within a bounded time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;

use super::explain::explain_io;
use super::refusals::Refusals;
use crate::clock::monotonic_now;

/// The most handshakes at once. A further client waits in the kernel's queue.
pub const HANDSHAKES_MAX: usize = 32;
/// How long a client may take for its handshake. 5 s.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// What is said of a client that took longer.
pub(crate) const SLOW_HANDSHAKE: &str = "it did not finish its TLS handshake within five seconds";

/// TLS connections as they come in: a [`Stream`] as tonic's `serve_with_incoming` takes it.
///
/// Yields only connections whose client the configuration admits. Refused ones are logged with the reason, each client now and then, and
/// do not disturb the others. Dropping it closes the listener.
#[derive(Debug)]
pub struct TlsIncoming {
    accepted: mpsc::Receiver<TlsStream<TcpStream>>,
}

impl TlsIncoming {
    /// Begins to accept, on the current tokio runtime. `refusals` keeps count of who was refused.
    pub fn new(listener: TcpListener, config: Arc<ServerConfig>, refusals: Arc<Refusals>) -> Self {
        let (sender, accepted) = mpsc::channel(HANDSHAKES_MAX);
        tokio::spawn(accept_all(listener, TlsAcceptor::from(config), sender, refusals));
        Self { accepted }
    }
}

impl Stream for TlsIncoming {
    type Item = io::Result<TlsStream<TcpStream>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.accepted.poll_recv(context).map(|connection| connection.map(Ok))
    }
}

async fn accept_all(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<TlsStream<TcpStream>>,
    refusals: Arc<Refusals>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (connection, peer) = tokio::select! {
            connection = accept(&listener) => connection,
            () = sender.closed() => return,
        };
        let (acceptor, sender, refusals) = (acceptor.clone(), sender.clone(), Arc::clone(&refusals));
        tokio::spawn(async move {
            match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(connection)).await {
                // The receiver is gone only while everything shuts down.
                Ok(Ok(stream)) => drop(sender.send(stream).await),
                Ok(Err(error)) => {
                    let why = explain_io(&error).unwrap_or_else(|| error.to_string());
                    refusals.log(monotonic_now(), &peer.ip().to_string(), &why);
                }
                Err(_) => refusals.log(monotonic_now(), &peer.ip().to_string(), SLOW_HANDSHAKE),
            }
            drop(place);
        });
    }
}

/// Accepts one connection, whatever passing trouble the system has.
pub(super) async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((connection, peer)) => {
                // Small messages leave at once. Where that cannot be set the connection is dead already.
                let _ = connection.set_nodelay(true);
                return (connection, peer);
            }
            // Out of file descriptors or the like: without a pause this would spin on one core.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
