//! Enrolment for programs without an async runtime.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::{EnrolError, Enrolled, EnrolmentServer, enrol};
use crate::identity::token::Token;

/// [`enrol`] on the calling thread. Panics inside a tokio runtime: call [`enrol`] itself there.
pub fn enrol_blocking(token: &Token, edge: &str, folder: &Path) -> Result<Enrolled, EnrolError> {
    let runtime = runtime().map_err(|source| EnrolError::Unreachable { edge: edge.into(), source })?;
    runtime.block_on(enrol(token, edge, folder))
}

/// An [`EnrolmentServer`] on its own thread. Dropping this value stops the server after running exchanges are finished.
#[derive(Debug)]
pub struct RunningEnrolment {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl EnrolmentServer {
    /// Starts to serve on `listen`. `[::]` means all addresses, also on hosts without IPv6.
    pub fn start(self, listen: SocketAddr) -> Result<RunningEnrolment, ServeError> {
        let cannot = |source| ServeError { listen, source };
        let runtime = runtime().map_err(cannot)?;
        let listener = runtime.block_on(bind(listen)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            // A dropped sender stops the server like a message.
            runtime.block_on(self.serve(listener, async move { drop(stopped.await) }));
        };
        let thread = thread::Builder::new().name("mez-enrol".into()).spawn(serve).map_err(cannot)?;
        Ok(RunningEnrolment { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl RunningEnrolment {
    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for `SIGINT` (Ctrl-C) or `SIGTERM`, then stops.
    pub fn run_until_interrupted(self) -> io::Result<()> {
        runtime()?.block_on(async {
            let (mut interrupt, mut terminate) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            Ok(())
        })
    }
}

impl Drop for RunningEnrolment {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was reported already, and there is nothing to undo.
            let _ = thread.join();
        }
    }
}

/// The port of enrolment could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {listen}: {source}{}", if source.kind() == io::ErrorKind::AddrInUse {
    "; a running `mez edge` or `mez keys serve` may serve enrolment there already; choose another port with --listen"
} else {
    ""
})]
pub struct ServeError {
    /// The requested address.
    pub listen: SocketAddr,
    /// The error of the operating system.
    pub source: io::Error,
}

async fn bind(listen: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(listen).await {
        Err(error) if listen.is_ipv6() && listen.ip().is_unspecified() && has_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, listen.port())).await
        }
        other => other,
    }
}

fn has_no_ipv6(error: &io::Error) -> bool {
    let unsupported = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(unsupported)
}

/// A runtime with one thread for sockets. Enrolments are rare and small.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(4).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Identity, TemporarySite, TokenStore};

    #[test]
    fn a_server_on_its_own_thread_enrols_until_it_is_dropped() {
        let site = TemporarySite::create(&"harbour".parse().unwrap()).unwrap();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = EnrolmentServer::new(site.keys()).unwrap().start(here).unwrap();
        let address = server.address();
        let taken = EnrolmentServer::new(site.keys()).unwrap().start(address).unwrap_err();
        assert!(taken.to_string().contains("--listen"), "{taken}");

        let identity = Identity::parse_within(site.keys().site(), "app/counter").unwrap();
        let valid = crate::identity::token::TOKEN_VALID;
        let token = TokenStore::create(site.keys(), &identity, &[], valid).unwrap();
        let device = site.keys().path().join("device");
        let enrolled = enrol_blocking(&token, &address.to_string(), &device).unwrap();
        assert_eq!(enrolled.identity, identity);

        drop(server);
        let gone = enrol_blocking(&token, &address.to_string(), &device).unwrap_err();
        assert!(matches!(gone, EnrolError::Unreachable { .. }), "{gone}");
    }
}
