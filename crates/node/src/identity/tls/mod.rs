//! Configures TLS for every port of Mez: version 1.3 only, ring's ciphers, and the site's authority as the only root.
//!
//! A configuration holds as long as its port: it asks the credentials in each handshake (`live.rs`), so a renewed certificate is shown by the
//! next one, and nothing that stands is touched.
//!
//! Both sides present a certificate. Only two ports are different: enrolment, whose client has none yet (see
//! [`mod@super::enrol`]), and HTTP, where browsers sign in by a link (`web/`). Clients verify the server name
//! [`EDGE_SERVER_NAME`], whatever address they dialled. Servers
//! check the role inside the handshake, so that nothing is read from somebody who has no business there.
//! Sessions are never resumed: a resumed session skips the check of the certificate, which may have expired meanwhile. Early data is
//! refused, because it can be replayed.

mod live;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::NoServerSessionStorage;
use rustls::{
    CertificateError, CipherSuite, ClientConfig, DistinguishedName, OtherError, RootCertStore, ServerConfig,
};

use self::live::{EdgeVerifier, MemberVerifier, Own};
use super::authority::{EDGE_SERVER_NAME, pem};
use super::credentials::Credentials;
use super::name::{Identity, Role};
use crate::revocation::LiveRevocations;

/// The protocol name of the link between camera and edge, over QUIC or TCP. The number is its version.
pub const ALPN_LINK: &[u8] = b"mez/1";
/// The protocol name of gRPC.
pub const ALPN_GRPC: &[u8] = b"h2";
/// The protocol names of HTTP, in order of preference.
pub const ALPN_HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// The protocol name of enrolment. The number is its version.
pub const ALPN_ENROL: &[u8] = b"mez-enrol/1";

/// TLS for an edge that accepts the link: only cameras of the site get in, and nobody who was revoked.
pub fn link_server_config(
    credentials: &Credentials,
    revoked: &LiveRevocations,
) -> Result<ServerConfig, TlsConfigError> {
    server_config(credentials, &[Role::Camera], revoked, None, &[ALPN_LINK])
}

/// TLS for a camera that dials the link. Connect with the server name [`EDGE_SERVER_NAME`].
pub fn link_client_config(credentials: &Credentials) -> Result<ClientConfig, TlsConfigError> {
    require(credentials, &[Role::Camera], "dial the link")?;
    client_config(credentials, ALPN_LINK)
}

/// [`link_server_config`] in quinn's terms.
pub fn quic_server_config(
    credentials: &Credentials,
    revoked: &LiveRevocations,
) -> Result<quinn::crypto::rustls::QuicServerConfig, TlsConfigError> {
    Ok(link_server_config(credentials, revoked)?.try_into()?)
}

/// [`link_client_config`] in quinn's terms.
pub fn quic_client_config(
    credentials: &Credentials,
) -> Result<quinn::crypto::rustls::QuicClientConfig, TlsConfigError> {
    Ok(link_client_config(credentials)?.try_into()?)
}

/// TLS for an edge that serves gRPC to members with one of the roles in `accepts` who were not revoked.
///
/// Serve with [`super::accept::TlsIncoming`]: tonic's own `ServerTlsConfig` cannot check roles, resumes sessions,
/// and bounds neither how many handshakes run at once nor how long they take.
pub fn grpc_server_config(
    credentials: &Credentials,
    accepts: &[Role],
    revoked: &LiveRevocations,
) -> Result<ServerConfig, TlsConfigError> {
    server_config(credentials, accepts, revoked, None, &[ALPN_GRPC])
}

/// TLS for an edge that serves HTTP. A client need not show a certificate. If it shows one, it must be that of an application of the site that
/// was not revoked: whoever shows another one is refused, so that nobody is taken for somebody else by mistake.
pub fn web_server_config(
    credentials: &Credentials,
    revoked: &LiveRevocations,
) -> Result<ServerConfig, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    roots.add(credentials.authority())?;
    server_config(credentials, &[Role::App], revoked, Some(roots.subjects()), &ALPN_HTTP)
}

/// TLS for a client of an edge's gRPC services. Connect with the server name [`EDGE_SERVER_NAME`].
pub fn grpc_client_config(credentials: &Credentials) -> Result<ClientConfig, TlsConfigError> {
    client_config(credentials, ALPN_GRPC)
}

/// [`grpc_client_config`] in tonic's terms, with the server name set.
///
/// It is that of this moment: make another one once the certificate has been renewed ([`Credentials::renewals`]), or the authority before is
/// not trusted any more ([`Trust::overlaps_until`](super::trust::Trust::overlaps_until)).
pub fn tonic_client_config(credentials: &Credentials) -> tonic::transport::ClientTlsConfig {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    // tonic offers every version of TLS for which the process's provider has ciphers, and takes no other word for it. Ours has some for 1.3
    // alone. It fails where one is installed already, which is ours from an earlier call.
    let _ = algorithms().install_default();
    // One state of them, though they may be renewed this moment.
    let held = credentials.held();
    // Without a verifier of its own, tonic takes what links the authority before to the root as a root too.
    let roots: String = held
        .trust
        .standing_at(SystemTime::now())
        .map(|certificate| pem("CERTIFICATE", certificate))
        .collect();
    ClientTlsConfig::new()
        .domain_name(EDGE_SERVER_NAME)
        .ca_certificate(Certificate::from_pem(roots))
        .identity(Identity::from_pem(held.chain_pem(), held.key_pem()))
}

/// TLS for enrolment: the server shows who it is, with the authority's certificate in its chain so that the
/// client can recognise it; the client has nothing to show yet.
pub(super) fn enrolment_server_config(credentials: &Credentials) -> Result<ServerConfig, TlsConfigError> {
    let mut chain = credentials.chain().to_vec();
    chain.extend_from_slice(credentials.trust().certificates());
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(TLS13)?;
    let config = builder.with_no_client_auth().with_single_cert(chain, credentials.key())?;
    Ok(hardened_server(config, &[ALPN_ENROL]))
}

/// TLS towards services that are none of the site's, such as those of network cameras: verified by the authorities that this host trusts. `None`: it
/// trusts none.
pub(crate) fn public_client_config() -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).ok()?;
    (added > 0).then(|| builder.with_root_certificates(roots).with_no_client_auth())
}

pub(super) const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// ring's algorithms, the fastest cipher of this processor first: whoever dials chooses, cameras and applications that is.
///
/// AES-128 takes ten rounds where AES-256 takes fourteen, and is no weaker against anything known (it is the order of Go's and Chrome's
/// TLS as well). Without instructions for AES, as on a Raspberry Pi 4, ChaCha20 takes a fraction of the time of either.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(algorithms())
}

fn algorithms() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.sort_by_key(|suite| preference(suite.suite(), has_aes_instructions()));
    provider
}

/// The place of a cipher in the order of preference, the best first.
fn preference(suite: CipherSuite, has_aes_instructions: bool) -> u8 {
    match suite {
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 if !has_aes_instructions => 0,
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 1,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => 2,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => 3,
        _ => 4,
    }
}

fn has_aes_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

pub(super) fn hardened_client(mut config: ClientConfig, alpn: &[u8]) -> ClientConfig {
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config
}

fn hardened_server(mut config: ServerConfig, alpn: &[&[u8]]) -> ServerConfig {
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config
}

fn client_config(credentials: &Credentials, alpn: &[u8]) -> Result<ClientConfig, TlsConfigError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13)?;
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(EdgeVerifier(credentials.clone())))
        .with_client_cert_resolver(Arc::new(Own(credentials.clone())));
    Ok(hardened_client(config, alpn))
}

/// `optional`: see [`MemberVerifier`].
fn server_config(
    credentials: &Credentials,
    accepts: &[Role],
    revoked: &LiveRevocations,
    optional: Option<Vec<DistinguishedName>>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, TlsConfigError> {
    require(credentials, &[Role::Edge], "serve")?;
    let (own, accepts, revoked) = (credentials.clone(), accepts.to_vec(), revoked.clone());
    let verifier = MemberVerifier { own, accepts, revoked, optional };
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(TLS13)?;
    let config = builder
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(Own(credentials.clone())));
    Ok(hardened_server(config, alpn))
}

fn require(credentials: &Credentials, roles: &[Role], to: &'static str) -> Result<(), TlsConfigError> {
    match roles.contains(&credentials.identity().role) {
        true => Ok(()),
        false => Err(TlsConfigError::Role { identity: Box::new(credentials.identity().clone()), to }),
    }
}

/// The error for a genuine certificate that is not admitted, with the reason in words.
pub(super) fn refused(why: String) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(Refused(why)))).into()
}

#[derive(thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// rustls prints such an error with `{:?}`, also in the reason that QUIC sends to the other side.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// The credentials are for something else.
    #[error("{identity} cannot {to}: its role does not allow it")]
    Role {
        /// Whose credentials.
        identity: Box<Identity>,
        /// What was to be done.
        to: &'static str,
    },
    /// rustls does not take the key or the certificate.
    #[error("TLS does not take these keys: {0}")]
    Tls(#[from] rustls::Error),
    /// The cipher that QUIC begins with is missing.
    #[error("QUIC cannot be used: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

#[cfg(test)]
mod tests;
