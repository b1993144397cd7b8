//! The server of enrolment, on the host of the site's authority.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mez_core::admission::Limits;
use mez_core::audit::{Event, Kind};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{Answer, RefusalCode, Request, read_message, write_message};
use crate::audit::Audit;
use crate::clock::wall_now;
use crate::descriptors;
use crate::identity::accept::{accept, secure};
use crate::identity::authority::{AuthorityError, EDGE_HOSTS_MAX, IssueError, LiveAuthority, PublicKey};
use crate::identity::certificate::{CertificateFacts, Validity};
use crate::identity::credentials::Credentials;
use crate::identity::door::{Door, Pass};
use crate::identity::explain::explain_io;
use crate::identity::folder::{KeyFolder, host_name, own_host_names};
use crate::identity::gate::Gate;
use crate::identity::name::{Identity, Name, Role};
use crate::identity::refusals::Refusals;
use crate::identity::tls::{ALPN_ENROL, enrolment_server_config};
use crate::identity::token::{Secret, TokenRefusal, TokenStore};

/// How long a connection may take from its arrival to the end of its request. Until then the client counts as a stranger.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the client may take to receive the answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Requests that are processed at the same time. If there are more, addresses take turns.
const ANSWERS_AT_ONCE_MAX: usize = 2;
/// The age at which the server's certificate is replaced: 12 h. It is valid for twice as long.
const CERTIFICATE_RENEWED_AFTER: Duration = Duration::from_secs(12 * 3600);

/// How many connections may wait at the port, and for how long.
fn limits() -> Limits {
    let limits = Limits { handshake_time_max: REQUEST_TIME_MAX, ..Limits::default() };
    limits.within(descriptors::max())
}

/// Enrols devices with tokens. Runs inside the edge broker, or alone with `mez keys serve`.
#[derive(Debug)]
pub struct EnrolmentServer {
    signer: Arc<Signer>,
    limits: Limits,
    audit: Audit,
}

impl EnrolmentServer {
    /// A server for the site whose authority's key is in `keys`.
    pub fn new(keys: &KeyFolder) -> Result<Self, AuthorityError> {
        let signer = Signer {
            authority: LiveAuthority::load(keys.path())?,
            tokens: TokenStore::of(keys),
            tls: Mutex::default(),
            answers: Gate::new(ANSWERS_AT_ONCE_MAX),
        };
        Ok(Self { signer: Arc::new(signer), limits: limits(), audit: Audit::off() })
    }

    /// Returns the server with other limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Returns the server with an audit log of enrolments and refusals.
    #[must_use]
    pub fn recorded(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// Serves until `shutdown` completes, then finishes running exchanges, within the time limit of a connection. No client can stop the server.
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let door = Door::with(self.limits, Arc::new(Refusals::recorded("enrolment", self.audit.clone())));
        let mut serving = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(ended) = serving.join_next() => note(ended),
                (connection, peer) = accept(&listener, &door) => {
                    let (signer, mut pass) = (Arc::clone(&self.signer), door.enter(peer.ip()));
                    let audit = self.audit.clone();
                    serving.spawn(async move {
                        if let Err(error) = serve_one(signer, connection, (peer, audit), &mut pass).await {
                            let why = explain_io(&error).unwrap_or_else(|| error.to_string());
                            pass.refused(&format!("its enrolment was interrupted: {why}"));
                        }
                    });
                }
            }
        }
        drop(listener);
        while let Some(ended) = serving.join_next().await {
            note(ended);
        }
    }
}

fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an enrolment failed; other enrolments continue");
    }
}

/// Serves one connection. A connection that must make room is closed only before its request is decided. After that its token may be used.
async fn serve_one(
    signer: Arc<Signer>,
    connection: TcpStream,
    (peer, audit): (SocketAddr, Audit),
    pass: &mut Pass,
) -> io::Result<()> {
    let acceptor = signer.acceptor()?;
    let Some(mut stream) = secure(connection, &acceptor, pass).await else { return Ok(()) };
    // TLS admits a client that names no protocol.
    if stream.get_ref().1.alpn_protocol() != Some(ALPN_ENROL) {
        return Err(io::Error::other("the client does not speak the enrolment protocol"));
    }
    let Ok(request) = pass.during(read_message::<Request>(&mut stream)).await else { return Ok(()) };
    let (request, address) = (request?, pass.address());
    let Ok(turn) = pass.during(signer.answers.turn(address)).await else { return Ok(()) };
    // Files and signatures block on disk and processor, so they do not run on the threads that carry frames.
    let deciding = Arc::clone(&signer);
    let answer =
        spawn_blocking(move || deciding.answer(&request, peer, &audit)).await.map_err(io::Error::other)?;
    drop(turn);
    if let Answer::Refused { message, .. } = &answer {
        pass.refused(&format!("its enrolment was refused: {message}"));
    }
    let told = async {
        write_message(&mut stream, &answer).await?;
        stream.shutdown().await
    };
    timeout(ANSWER_TIME_MAX, told).await.map_err(|_| io::Error::other("it did not read the answer"))?
}

/// Decides about requests.
#[derive(Debug)]
struct Signer {
    authority: LiveAuthority,
    tokens: TokenStore,
    /// The TLS configuration, the time when its certificate was made, and the authority that issued the certificate.
    tls: Mutex<Option<(SystemTime, CertificateDer<'static>, Arc<ServerConfig>)>>,
    answers: Gate,
}

impl Signer {
    /// TLS with a certificate that is replaced twice a day. So a server that runs for years never shows
    /// an expired certificate, and strangers cannot cause a new certificate with each connection.
    fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let mut known = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        // If the clock was set back, the certificate is not valid yet.
        let is_fresh =
            |made: &SystemTime| now.duration_since(*made).is_ok_and(|age| age < CERTIFICATE_RENEWED_AFTER);
        let authority = self.authority.now().map_err(io::Error::other)?;
        if let Some((made, by, config)) = known.as_ref()
            && is_fresh(made)
            && by == authority.certificate()
        {
            return Ok(TlsAcceptor::from(Arc::clone(config)));
        }
        let identity = Identity {
            site: authority.site().clone(),
            role: Role::Edge,
            name: Name::from_host_name(&host_name()),
        };
        let validity = Validity::from(now, CERTIFICATE_RENEWED_AFTER * 2);
        let credentials =
            Credentials::issue(&authority, &identity, &[], validity).map_err(io::Error::other)?;
        let config = Arc::new(enrolment_server_config(&credentials).map_err(io::Error::other)?);
        *known = Some((now, authority.certificate().clone(), Arc::clone(&config)));
        Ok(TlsAcceptor::from(config))
    }

    fn answer(&self, request: &Request, peer: SocketAddr, audit: &Audit) -> Answer {
        match self.enrol(request) {
            Ok((identity, chain)) => {
                let facts = CertificateFacts::read(&chain[0]);
                let serial = facts.map(|facts| facts.serial).unwrap_or_default();
                tracing::info!(%identity, %peer, serial, "enrolled");
                let enrolled = Event::new(wall_now(), Kind::Enrolled, identity.short());
                let from = peer.ip().to_canonical().to_string();
                audit.note(enrolled.what(format!("certificate {serial}")).from(from));
                Answer::Issued { chain: chain.iter().map(|der| URL_SAFE_NO_PAD.encode(der)).collect() }
            }
            Err((code, message)) => Answer::Refused { code, message },
        }
    }

    fn enrol(
        &self,
        request: &Request,
    ) -> Result<(Identity, Vec<CertificateDer<'static>>), (RefusalCode, String)> {
        let bad = |why: &str| (RefusalCode::BadRequest, why.to_owned());
        let secret = Secret::decode(&request.secret).ok_or_else(|| bad("the secret is invalid"))?;
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
        let validity = Validity::from(SystemTime::now(), grant.lifetime);
        let authority = self.authority.now().map_err(|error| (RefusalCode::Internal, error.to_string()))?;
        // Signed before the token is used up, so that a failure does not cost the token. If several devices
        // use one token at once, all get here, and only the device whose claim succeeds gets its certificate.
        let chain = authority.issue(&identity, &key, &hosts, validity).map_err(|error| match error {
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
