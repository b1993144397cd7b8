//! The authority's side of enrolment.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::{Answer, RefusalCode, Request, read_message, write_message};
use crate::identity::accept::accept;
use crate::identity::authority::{AuthorityError, EDGE_HOSTS_MAX, IssueError, PublicKey, SiteAuthority};
use crate::identity::certificate::{CertificateFacts, Validity};
use crate::identity::credentials::Credentials;
use crate::identity::explain::explain_io;
use crate::identity::folder::{KeyFolder, host_name, own_host_names};
use crate::identity::name::{Identity, Name, Role};
use crate::identity::tls::{ALPN_ENROL, enrolment_server_config};
use crate::identity::token::{Secret, TokenRefusal, TokenStore};

/// How much enrolment may take of the machine that the edge runs on.
#[derive(Clone, Copy, Debug)]
pub struct EnrolmentLimits {
    /// Connections served at once. Default 8; further ones wait in the kernel's queue.
    pub connections_max: usize,
    /// Of these, from one address. Default 4; further ones are closed, so that one host cannot hold every place.
    pub connections_per_address_max: usize,
    /// New connections per second, on average and as a burst. Default 20; further ones wait.
    pub connections_per_second_max: u32,
    /// How long one connection may last, from its first byte to its last. Default 10 s.
    pub timeout: Duration,
}

impl Default for EnrolmentLimits {
    fn default() -> Self {
        Self {
            connections_max: 8,
            connections_per_address_max: 4,
            connections_per_second_max: 20,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Enrols devices that come with a token. Runs inside the edge broker, or alone with `mez keys serve`.
#[derive(Debug)]
pub struct EnrolmentServer {
    signer: Arc<Signer>,
    limits: EnrolmentLimits,
}

impl EnrolmentServer {
    /// A server for the site whose authority's key is in `keys`.
    pub fn new(keys: &KeyFolder) -> Result<Self, AuthorityError> {
        let signer = Signer { authority: keys.load_authority()?, tokens: TokenStore::of(keys) };
        Ok(Self { signer: Arc::new(signer), limits: EnrolmentLimits::default() })
    }

    /// The same with other limits.
    pub fn with_limits(self, limits: EnrolmentLimits) -> Self {
        Self { limits, ..self }
    }

    /// Serves until `shutdown` is ready, then finishes what has begun, which takes no longer than the time limit
    /// of a connection. Nothing that a client does ends it.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut pace = Pace::new(self.limits.connections_per_second_max);
        let mut active = Active::default();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                () = active.one_ends() => {}
                (connection, peer) = paced(&listener, &mut pace), if active.count() < self.limits.connections_max => {
                    if active.from(peer.ip()) >= self.limits.connections_per_address_max {
                        tracing::warn!(%peer, "too many enrolments at once from one address; one was closed");
                        continue;
                    }
                    let (signer, limit) = (self.signer.clone(), self.limits.timeout);
                    active.spawn(peer.ip(), async move {
                        match timeout(limit, serve_one(signer, connection, peer)).await {
                            Ok(Ok(())) => {}
                            Ok(Err(error)) => {
                                let why = explain_io(&error).unwrap_or_else(|| error.to_string());
                                tracing::warn!(%peer, why, "an enrolment broke off");
                            }
                            Err(_) => tracing::warn!(%peer, "an enrolment took too long and was closed"),
                        }
                    });
                }
            }
        }
        drop(listener);
        while active.count() > 0 {
            active.one_ends().await;
        }
    }
}

async fn serve_one(signer: Arc<Signer>, connection: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let mut stream = signer.acceptor()?.accept(connection).await?;
    // A client that names no protocol would be let through by TLS.
    if stream.get_ref().1.alpn_protocol() != Some(ALPN_ENROL) {
        return Err(io::Error::other("the client does not speak the enrolment protocol"));
    }
    let request: Request = read_message(&mut stream).await?;
    // Files and signatures wait for the disk and the processor: not on the threads that carry frames.
    let answer = spawn_blocking(move || signer.answer(&request, peer)).await.map_err(io::Error::other)?;
    write_message(&mut stream, &answer).await?;
    stream.shutdown().await
}

/// Decides about requests.
#[derive(Debug)]
struct Signer {
    authority: SiteAuthority,
    tokens: TokenStore,
}

impl Signer {
    /// TLS with a certificate made for this one connection, so that a server that runs for years never shows an
    /// expired one.
    fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let identity = Identity {
            site: self.authority.site().clone(),
            role: Role::Edge,
            name: Name::from_host_name(&host_name()),
        };
        let validity = Validity::from(SystemTime::now(), Duration::from_secs(24 * 3600));
        let credentials =
            Credentials::issue(&self.authority, &identity, &[], validity).map_err(io::Error::other)?;
        let config = enrolment_server_config(&credentials).map_err(io::Error::other)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn answer(&self, request: &Request, peer: SocketAddr) -> Answer {
        match self.enrol(request) {
            Ok((identity, chain)) => {
                let facts = CertificateFacts::read(&chain[0]);
                let serial = facts.map(|facts| facts.serial).unwrap_or_default();
                tracing::info!(%identity, %peer, serial, "enrolled");
                Answer::Issued { chain: chain.iter().map(|der| URL_SAFE_NO_PAD.encode(der)).collect() }
            }
            Err((code, message)) => {
                tracing::warn!(%peer, ?code, message, "an enrolment was refused");
                Answer::Refused { code, message }
            }
        }
    }

    fn enrol(
        &self,
        request: &Request,
    ) -> Result<(Identity, Vec<CertificateDer<'static>>), (RefusalCode, String)> {
        let bad = |why: &str| (RefusalCode::BadRequest, why.to_owned());
        let secret = Secret::decode(&request.secret).ok_or_else(|| bad("the secret is not one"))?;
        let signing_request = URL_SAFE_NO_PAD
            .decode(&request.signing_request)
            .map_err(|_| bad("the signing request is not base64url"))?;
        let key = PublicKey::from_request(&signing_request).map_err(|e| bad(&e.to_string()))?;
        let grant = self.tokens.look_up(&secret, SystemTime::now()).map_err(refusal)?;
        if request.identity != grant.identity.to_string() {
            let message = "the token was made for another identity; somebody has changed it".into();
            return Err((RefusalCode::WrongIdentity, message));
        }
        let mut hosts = grant.hosts.clone();
        if grant.identity.role == Role::Edge {
            hosts.extend(own_host_names(&request.host));
            hosts.truncate(EDGE_HOSTS_MAX);
        }
        let identity = grant.identity.clone();
        let validity = Validity::from(SystemTime::now(), Validity::MEMBER);
        // Signed before the token is used up: a token is not spent on what then fails. Of several bearers at once
        // all get so far, and only the one whose claim succeeds gets its certificate.
        let chain = self.authority.issue(&identity, &key, &hosts, validity).map_err(|error| match error {
            IssueError::Crypto(_) => (RefusalCode::Internal, error.to_string()),
            _ => (RefusalCode::BadRequest, error.to_string()),
        })?;
        grant.claim().map_err(refusal)?;
        Ok((identity, chain))
    }
}

fn refusal(refusal: TokenRefusal) -> (RefusalCode, String) {
    let code = match refusal {
        TokenRefusal::Unknown => RefusalCode::UnknownToken,
        TokenRefusal::Used => RefusalCode::UsedToken,
        TokenRefusal::Expired { .. } => RefusalCode::ExpiredToken,
        TokenRefusal::Store(_) => RefusalCode::Internal,
    };
    (code, refusal.to_string())
}

/// The connections that are being served, and from where.
#[derive(Default)]
struct Active {
    tasks: JoinSet<()>,
    addresses: HashMap<tokio::task::Id, IpAddr>,
}

impl Active {
    fn count(&self) -> usize {
        self.tasks.len()
    }

    fn from(&self, address: IpAddr) -> usize {
        self.addresses.values().filter(|&&other| other == address).count()
    }

    fn spawn(&mut self, address: IpAddr, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.addresses.insert(id, address);
    }

    /// Waits for the end of one; for ever where there is none.
    async fn one_ends(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "an enrolment failed; the others go on");
                error.id()
            }
            None => return std::future::pending().await,
        };
        self.addresses.remove(&id);
    }
}

/// Keeps an average rate, with bursts of one second's worth.
struct Pace {
    per_second: f64,
    allowance: f64,
    counted: Instant,
}

impl Pace {
    fn new(per_second_max: u32) -> Self {
        let per_second = f64::from(per_second_max.max(1));
        Self { per_second, allowance: per_second, counted: Instant::now() }
    }

    async fn wait(&mut self) {
        loop {
            let now = Instant::now();
            let earned = now.duration_since(self.counted).as_secs_f64() * self.per_second;
            self.allowance = (self.allowance + earned).min(self.per_second);
            self.counted = now;
            if self.allowance >= 1.0 {
                return;
            }
            sleep(Duration::from_secs_f64((1.0 - self.allowance) / self.per_second)).await;
        }
    }

    fn spend(&mut self) {
        self.allowance -= 1.0;
    }
}

/// Accepts a connection when the pace allows one. Loses nothing when it is dropped half-way.
async fn paced(listener: &TcpListener, pace: &mut Pace) -> (TcpStream, SocketAddr) {
    pace.wait().await;
    let accepted = accept(listener).await;
    pace.spend();
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pace_allows_a_burst_and_then_the_rate() {
        let mut pace = Pace::new(10);
        let began = Instant::now();
        for _ in 0..30 {
            pace.wait().await;
            pace.spend();
        }
        // Virtual time: 10 at once, then 20 at 10 per second.
        let took = began.elapsed().as_secs_f64();
        assert!((1.9..2.2).contains(&took), "{took}");
    }
}
