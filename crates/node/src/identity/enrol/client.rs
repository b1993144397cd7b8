//! The client of enrolment, on the device that joins a site.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mez_core::rights::Stance;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Answer, RefusalCode, Request, read_message, write_message};
use crate::identity::authority::EDGE_SERVER_NAME;
use crate::identity::certificate::{Fingerprint, Validity};
use crate::identity::credentials::{Credentials, MismatchError};
use crate::identity::explain::explain_io;
use crate::identity::files::{self, FileError, Present, Readers};
use crate::identity::folder::{
    AUTHORITY_CERTIFICATE, AUTHORITY_KEY, KeyFolder, KeyFolderError, PrepareError, host_name,
    identity_file_name, prepare,
};
use crate::identity::name::{Identity, Role, SiteName};
use crate::identity::tls::{ALPN_ENROL, TLS13, hardened_client, provider, refused};
use crate::identity::token::Token;
use crate::identity::trust::Trust;
use crate::ports;
use crate::rights::{RightsError, RightsFile};

/// How long to wait for the answer of one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum duration of the exchange. It is longer than the server's own limit of 10 s, so that the server's answer comes first.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Attempts to connect to a server that closes connections because it has too many.
const ATTEMPTS_MAX: u32 = 5;
/// The pause after the first attempt. Each later pause is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// The result of an enrolment.
#[derive(Clone, Debug)]
pub struct Enrolled {
    /// This host's new identity.
    pub identity: Identity,
    /// The file with the key and the certificate.
    pub file: PathBuf,
    /// The time during which the certificate is valid.
    pub validity: Validity,
}

/// Enrols this host with `token` at `edge` (`HOST` or `HOST:PORT`, default port [`ports::ENROL`]),
/// and writes the result into `folder`, which is created with mode 0700 if it does not exist.
///
/// The key is made here and never leaves this host. A file of an earlier enrolment with the same
/// identity is replaced as a whole. Nothing is written before everything has been verified.
pub async fn enrol(token: &Token, edge: &str, folder: &Path) -> Result<Enrolled, EnrolError> {
    let (host, port) =
        ports::host_and_port(edge, ports::ENROL).ok_or_else(|| EnrolError::Address { text: edge.into() })?;
    let place = ready(folder, token)?;
    let key = KeyPair::generate()?;

    let mut stream = connect_to_busy(token, edge, host, port).await?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let authority =
        certificates.iter().position(|certificate| Fingerprint::of(certificate) == token.authority());
    let authority = authority.expect("the handshake verified that the authority is in the chain");
    // The authority is followed by its link certificates if it has replaced another authority recently.
    let trust = certificates[authority..].iter().cloned().map(CertificateDer::into_owned).collect();
    let trust = Trust::of(trust).map_err(|why| EnrolError::Tls {
        edge: edge.into(),
        why: format!("its authority cannot be used: {why}"),
    })?;
    // Checked before the token is used up.
    place.may_take(&trust, token)?;
    let chain = timeout(EXCHANGE_TIMEOUT, exchange(&mut stream, token, &key, edge))
        .await
        .map_err(|_| EnrolError::TimedOut { edge: edge.into() })??;

    let file = folder.join(identity_file_name(token.identity()));
    let private = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
    let credentials = Credentials::assemble(chain, private, trust, Some(file.clone()))
        .map_err(|source| EnrolError::Answer { edge: edge.into(), source })?;
    if credentials.identity() != token.identity() {
        let (got, wanted) = (credentials.identity().clone(), token.identity().clone());
        return Err(EnrolError::WrongIdentity { got: Box::new(got), wanted: Box::new(wanted) });
    }
    // The authority is written first. A folder with only an authority is a valid key folder without identities; without an authority it is not valid.
    let authority = |present| {
        let path = folder.join(AUTHORITY_CERTIFICATE);
        files::write(&path, credentials.authority_pem().as_bytes(), Readers::Everybody, present)
    };
    match place {
        Place::Known => {}
        Place::Follows(_) => authority(Present::Replace)?,
        Place::Empty => match authority(Present::Keep) {
            // Another enrolment into the same folder got here first; `ready` decides whether it is the same site.
            Err(error) if error.exists_already() => {
                ready(folder, token)?.may_take(&credentials.trust(), token)?;
            }
            other => other?,
        },
    }
    if credentials.identity().role == Role::Edge && !has_been_edge(folder)? {
        RightsFile::of(folder).create(Stance::Deny)?;
    }
    files::write(&file, credentials.held().pem().as_bytes(), Readers::Owner, Present::Replace)?;
    Ok(Enrolled { identity: credentials.identity().clone(), file, validity: credentials.validity() })
}

/// Whether an edge may have run with these keys before, without a rights file. Such a site stays open until an operator changes that.
fn has_been_edge(folder: &Path) -> Result<bool, FileError> {
    let names = files::names(folder)?;
    Ok(names.iter().any(|name| name == AUTHORITY_KEY || name.starts_with("edge+")))
}

/// The state of the folder into which a host is enrolled.
enum Place {
    /// The folder has no keys yet.
    Empty,
    /// The folder has the token's authority.
    Known,
    /// The folder has another authority with the same site name: one that has been replaced, or one of a site that was made anew.
    Follows(Box<KeyFolder>),
}

impl Place {
    /// Checks whether the folder can take the keys of this enrolment, whose authorities are `trust`.
    fn may_take(&self, trust: &Trust, token: &Token) -> Result<(), EnrolError> {
        let Self::Follows(keys) = self else { return Ok(()) };
        let now = SystemTime::now();
        if keys.trust().follow(trust.certificates().to_vec(), now).is_ok() {
            return Ok(());
        }
        // The token vouches for its authority. But keys here that still work must not be lost.
        let others = keys.identity_files()?;
        let mut others = others.iter().filter(|file| file.identity.as_ref() != Some(token.identity()));
        if !keys.holds_authority_key() && !others.any(|file| file.is_usable_at(now)) {
            return Ok(());
        }
        let (folder, site) = (keys.path().into(), keys.site().clone());
        Err(EnrolError::OtherSite { folder, site, token_site: token.identity().site.clone() })
    }
}

/// Checks that the folder can store the result, before the token is used up.
fn ready(folder: &Path, token: &Token) -> Result<Place, EnrolError> {
    prepare(folder)?;
    let place = match KeyFolder::open(folder) {
        Ok(keys) if keys.fingerprint() == token.authority() => Place::Known,
        Ok(keys) if *keys.site() == token.identity().site => Place::Follows(Box::new(keys)),
        Ok(keys) => {
            let (folder, site) = (folder.into(), keys.site().clone());
            let token_site = token.identity().site.clone();
            return Err(EnrolError::OtherSite { folder, site, token_site });
        }
        Err(KeyFolderError::File(error)) if error.is_absent() => Place::Empty,
        Err(error) => return Err(error.into()),
    };
    tempfile::tempfile_in(folder).map_err(FileError::on("write into", folder))?;
    Ok(place)
}

/// Calls [`connect`], and retries if the server closed the connection before the token was sent: a retry then does not use up the token.
async fn connect_to_busy(
    token: &Token,
    edge: &str,
    host: &str,
    port: u16,
) -> Result<TlsStream<TcpStream>, EnrolError> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match connect(token, edge, host, port).await {
            Err(EnrolError::Busy { .. }) => sleep(pause).await,
            decided => return decided,
        }
        pause *= 2;
    }
    connect(token, edge, host, port).await
}

async fn connect(
    token: &Token,
    edge: &str,
    host: &str,
    port: u16,
) -> Result<TlsStream<TcpStream>, EnrolError> {
    let unreachable = |source| EnrolError::Unreachable { edge: format!("{host}:{port}"), source };
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(unreachable)?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut connected = None;
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    let stream = connected.ok_or(last).map_err(unreachable)?;
    let pinned = PinnedAuthority { fingerprint: token.authority(), provider: provider() };
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS13)
        .map_err(|error| EnrolError::Tls { edge: edge.into(), why: error.to_string() })?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(hardened_client(config, ALPN_ENROL)));
    let name = ServerName::try_from(EDGE_SERVER_NAME).expect("a constant that is a valid name");
    match timeout(EXCHANGE_TIMEOUT, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(match explain_io(&error) {
            Some(why) if error.kind() != io::ErrorKind::UnexpectedEof => {
                EnrolError::Tls { edge: edge.into(), why }
            }
            // As far as the client knows, the server is fine but busy.
            _ => EnrolError::Busy { edge: edge.into() },
        }),
        Err(_) => Err(EnrolError::Silent { edge: edge.into() }),
    }
}

async fn exchange(
    stream: &mut TlsStream<TcpStream>,
    token: &Token,
    key: &KeyPair,
    edge: &str,
) -> Result<Vec<CertificateDer<'static>>, EnrolError> {
    // The authority takes only the key from the request, so the request contains nothing else.
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = Request {
        secret: token.secret.encode(),
        identity: token.identity().to_string(),
        signing_request: URL_SAFE_NO_PAD.encode(params.serialize_request(key)?.der()),
        host: host_name(),
    };
    let closed = |_| EnrolError::Closed { edge: edge.into() };
    write_message(stream, &request).await.map_err(closed)?;
    let chain = match read_message(stream).await.map_err(closed)? {
        Answer::Issued { chain } => chain,
        Answer::Refused { code, message } => return Err(EnrolError::Refused { code, message }),
    };
    let decode = |text: &String| URL_SAFE_NO_PAD.decode(text).map(CertificateDer::from);
    chain.iter().map(decode).collect::<Result<_, _>>().map_err(|_| EnrolError::Closed { edge: edge.into() })
}

/// Accepts a server if its chain contains the authority that the token names, and this authority made the server
/// an edge. Used only for enrolment. Everywhere else the authority is known, and rustls' own verifier is used.
#[derive(Debug)]
struct PinnedAuthority {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority =
            intermediates.iter().find(|certificate| Fingerprint::of(certificate) == self.fingerprint);
        let authority = authority.ok_or_else(|| {
            refused(
                "it is not run by the authority that made the token; check the address, and that the site was not created again since"
                    .into(),
            )
        })?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a host was not enrolled. The token is still valid unless the text says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The text is not an address.
    #[error(
        "{text:?} is not an address; write HOST or HOST:PORT, such as edge.local or 10.0.0.7:{}",
        ports::ENROL
    )]
    Address {
        /// The given text.
        text: String,
    },
    /// The folder belongs to another site.
    #[error(
        "{} holds the keys of {}, but the token is for {token_site}; choose another folder with --keys",
        folder.display(),
        if site == token_site { "another site of the same name, which is still in use".into() } else { format!("site {site}") }
    )]
    OtherSite {
        /// The folder.
        folder: PathBuf,
        /// The folder's site.
        site: SiteName,
        /// The site of the token.
        token_site: SiteName,
    },
    /// The rights file of this edge could not be written.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The folder cannot take keys.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The keys in the folder cannot be used.
    #[error(transparent)]
    Folder(#[from] KeyFolderError),
    /// The edge cannot be reached.
    #[error(
        "cannot reach {edge}: {source}; enrolment is served by `mez edge` on the host where the site was made, or by \
         `mez keys serve` there"
    )]
    Unreachable {
        /// The edge's address.
        edge: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server is not the right one, or TLS failed otherwise.
    #[error("{edge} is not trusted, so the token was not sent: {why}")]
    Tls {
        /// The edge's address.
        edge: String,
        /// What is wrong.
        why: String,
    },
    /// The server closed the connection before the token was sent, several times.
    #[error(
        "{edge} closed the connection {ATTEMPTS_MAX} times before the token was sent; the token is still valid. Either the server has too many \
         connections (its log names their addresses), or it does not serve enrolment. Try again in a minute, or from another address"
    )]
    Busy {
        /// The edge's address.
        edge: String,
    },
    /// The server did not complete the handshake in time. The token was not sent.
    #[error(
        "{edge} accepted the connection, but did not answer within {} s; the token was not sent and is still valid. The host may be overloaded, or \
         another service listens there: check the address, and try again",
        EXCHANGE_TIMEOUT.as_secs()
    )]
    Silent {
        /// The edge's address.
        edge: String,
    },
    /// The server did not answer the request in time.
    #[error(
        "{edge} did not answer in time; try again, and make another token if this token then counts as used"
    )]
    TimedOut {
        /// The edge's address.
        edge: String,
    },
    /// The connection ended before the answer.
    #[error(
        "{edge} closed the connection after the token was sent and before it gave a certificate; try again in a few seconds, and make another \
         token if this token then counts as used"
    )]
    Closed {
        /// The edge's address.
        edge: String,
    },
    /// The authority refused the request.
    #[error("not enrolled: {message}")]
    Refused {
        /// The reason, for programs.
        code: RefusalCode,
        /// The reason, in the authority's words.
        message: String,
    },
    /// The received certificate does not fit.
    #[error("the answer of {edge} cannot be used: {source}")]
    Answer {
        /// The edge's address.
        edge: String,
        /// What does not fit.
        source: MismatchError,
    },
    /// The certificate has another identity.
    #[error("the certificate in the answer is for {got}, not for {wanted}; nothing was written")]
    WrongIdentity {
        /// The identity in the certificate.
        got: Box<Identity>,
        /// The expected identity.
        wanted: Box<Identity>,
    },
    /// A file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The key could not be made.
    #[error("cannot make a key: {0}")]
    Crypto(#[from] rcgen::Error),
}
