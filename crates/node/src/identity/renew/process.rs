//! A signer in its own process, behind a Unix socket. So the edge, which reads the input of strangers, never has the authority's key.
//!
//! Each connection has one request and one answer. Each is a length of four bytes (big-endian)
//! followed by that many bytes: a `RenewCertificateRequest` and a `RenewCertificateResponse` of
//! `mez.proto`. Requests contain their own proof, so it does not matter who may open the socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use mez_core::wire::RENEWAL_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tracing::debug;

use super::signer::{Answer, Signs};
use super::{Signer, encode, refusal};
use crate::api::pb::RenewalRefusal;
use crate::api::socket::{Socket, SocketError};
use crate::identity::authority::AuthorityError;
use crate::identity::folder::KeyFolder;

/// The maximum duration of one exchange, on either side.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(5);
/// Connections that are served at once. Others wait in the kernel.
const CONNECTIONS_MAX: usize = 16;

/// A signer behind a socket.
#[derive(Debug)]
struct Elsewhere {
    path: PathBuf,
}

impl Signer {
    /// The signer that listens on `path` ([`SignerServer`]).
    pub fn behind(path: &Path) -> Self {
        Self::from(Elsewhere { path: path.into() })
    }
}

impl Signs for Elsewhere {
    fn sign(&self, request: Bytes) -> Answer<'_> {
        Box::pin(async move {
            let exchange = async {
                let mut stream = UnixStream::connect(&self.path).await?;
                write(&mut stream, &request).await?;
                read(&mut stream).await
            };
            let answered = match timeout(EXCHANGE_TIME_MAX, exchange).await {
                Ok(answered) => answered,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            answered.unwrap_or_else(|error| {
                let path = self.path.display();
                let message = format!(
                    "the edge's signer at {path} does not answer ({error}); run `mez keys serve --signer {path}` beside the edge, as the \
                     user who has the authority's key"
                );
                encode(&refusal(RenewalRefusal::NoSigner, message))
            })
        })
    }
}

/// A signer that serves on its own thread. Dropping this value stops it.
#[derive(Debug)]
pub struct SignerServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SignerServer {
    /// Starts to serve on `path`, for the site whose authority's key is in `keys`.
    pub fn start(keys: &KeyFolder, path: &Path) -> Result<Self, SignerError> {
        let signer = Signer::of(keys)?;
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
        let socket = {
            let _inside = runtime.enter();
            Socket::open(path)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(&socket, signer) => {}
                    // A dropped sender stops the server like a message.
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new().name("mez-signer".into()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SignerServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was reported already, and there is nothing to undo.
            let _ = thread.join();
        }
    }
}

/// Why a signer does not run.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The authority's key cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The thread or its runtime cannot be started.
    #[error("cannot start the signer's thread: {0}")]
    Thread(#[from] io::Error),
}

async fn serve(socket: &Socket, signer: Signer) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let (mut stream, _) = match socket.listener().accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                debug!(%error, "cannot accept a connection to the signer");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let signer = signer.clone();
        tokio::spawn(async move {
            let exchange = async {
                let request = read(&mut stream).await?;
                write(&mut stream, &signer.answer(request).await).await
            };
            if let Ok(Err(error)) = timeout(EXCHANGE_TIME_MAX, exchange).await {
                debug!(%error, "a connection to the signer ended");
            }
            drop(place);
        });
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|&length| length as usize <= RENEWAL_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
    stream.write_all(&[&length.to_be_bytes(), message].concat()).await
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    let length = stream.read_u32().await? as usize;
    // Checked before anything is allocated.
    if length > RENEWAL_BYTES_MAX {
        let why = format!("a message of {length} bytes is announced, and {RENEWAL_BYTES_MAX} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body.into())
}
