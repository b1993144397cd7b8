//! Configures TLS for every port of Mez: only version 1.3, ring's ciphers, and the site's authority as the only root.
//!
//! A configuration is used as long as its port is open. It reads the credentials in each handshake (`live.rs`),
//! so the next handshake after a renewal shows the new certificate, and existing connections are not affected.
//!
//! Both sides present a certificate. Only two ports are different: enrolment, whose client has no certificate yet (see [`mod@super::enrol`]),
//! and HTTP, where browsers sign in with a link (`web/`). Clients verify the server name [`EDGE_SERVER_NAME`], whatever address they dialled.
//! Servers check the role inside the handshake, so that nothing is read from a client without access. Sessions are never resumed: a resumed
//! session skips the check of the certificate, which may have expired meanwhile. Early data is refused, because it can be replayed.

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

/// TLS for an edge that accepts the link: admits only cameras of the site that are not revoked.
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

/// TLS for an edge that serves gRPC to members with a role in `accepts` that are not revoked.
///
/// Serve with [`super::accept::TlsIncoming`]: tonic's own `ServerTlsConfig` cannot check roles,
/// resumes sessions, and limits neither the number of concurrent handshakes nor their duration.
pub fn grpc_server_config(
    credentials: &Credentials,
    accepts: &[Role],
    revoked: &LiveRevocations,
) -> Result<ServerConfig, TlsConfigError> {
    server_config(credentials, accepts, revoked, None, &[ALPN_GRPC])
}

/// TLS for an edge that serves HTTP. A client need not show a certificate. If it shows one, it must belong to an application
/// of the site that is not revoked. Any other certificate is refused, so that no client is mistaken for another.
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
/// It is a snapshot of the credentials. Make a new one after a renewal ([`Credentials::renewals`]), or when the
/// previous authority is no longer trusted ([`Trust::overlaps_until`](super::trust::Trust::overlaps_until)).
pub fn tonic_client_config(credentials: &Credentials) -> tonic::transport::ClientTlsConfig {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    // tonic offers every TLS version for which the process's default provider has ciphers, and has no other setting for it.
    // Our provider has ciphers only for 1.3. The call fails if a provider is installed already: ours, from an earlier call.
    let _ = algorithms().install_default();
    // Read once, so that key and certificate match even during a renewal.
    let held = credentials.held();
    // tonic has no custom verifier here, so the certificates that link the previous authority to the root are passed as roots too.
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

/// TLS for enrolment. The server's chain contains the authority's certificate,
/// so that the client can recognise it. The client has no certificate yet.
pub(super) fn enrolment_server_config(credentials: &Credentials) -> Result<ServerConfig, TlsConfigError> {
    let mut chain = credentials.chain().to_vec();
    chain.extend_from_slice(credentials.trust().certificates());
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(TLS13)?;
    let config = builder.with_no_client_auth().with_single_cert(chain, credentials.key())?;
    Ok(hardened_server(config, &[ALPN_ENROL]))
}

/// TLS to services outside of the site, such as network cameras: verified against the authorities that this host trusts. `None`: it trusts none.
pub(crate) fn public_client_config() -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(TLS13).ok()?;
    (added > 0).then(|| builder.with_root_certificates(roots).with_no_client_auth())
}

pub(super) const TLS13: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// ring's algorithms, the fastest cipher of this processor first. The client's order decides, which means cameras and applications.
///
/// AES-128 takes ten rounds, AES-256 fourteen, and no known attack makes AES-128 weaker (Go's and Chrome's TLS have
/// the same order). Without AES instructions, as on a Raspberry Pi 4, ChaCha20 takes a fraction of the time of either.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(algorithms())
}

fn algorithms() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.sort_by_key(|suite| preference(suite.suite(), has_aes_instructions()));
    provider
}

/// The rank of a cipher. The best is 0.
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

/// `optional`: as in [`MemberVerifier`].
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

/// The error for a genuine certificate that is not admitted, with the reason as text.
pub(super) fn refused(why: String) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(Refused(why)))).into()
}

#[derive(thiserror::Error)]
#[error("{0}")]
struct Refused(String);

/// rustls prints this error with `{:?}`, also in the reason that QUIC sends to the other side.
impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// The credentials have the wrong role.
    #[error("{identity} cannot {to}: its role does not allow it")]
    Role {
        /// The identity of the credentials.
        identity: Box<Identity>,
        /// The intended action.
        to: &'static str,
    },
    /// rustls refuses the key or the certificate.
    #[error("TLS cannot use these keys: {0}")]
    Tls(#[from] rustls::Error),
    /// The initial cipher suite of QUIC is missing.
    #[error("QUIC cannot be used: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

#[cfg(test)]
mod tests;
