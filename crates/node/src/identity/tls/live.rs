//! Callbacks of TLS handshakes. They use the current credentials, which may have been renewed since the port was opened.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::refused;
use crate::identity::certificate::{is_signed_by, peer_identity};
use crate::identity::credentials::Credentials;
use crate::identity::name::Role;
use crate::revocation::{LiveRevocations, shown};

/// Presents the certificate in use.
#[derive(Debug)]
pub(super) struct Own(pub(super) Credentials);

impl ResolvesClientCert for Own {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.held().certified))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Own {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.held().certified))
    }
}

/// Verifies the chain of a server against the authorities that are trusted now.
#[derive(Debug)]
pub(super) struct EdgeVerifier(pub(super) Credentials);

impl ServerCertVerifier for EdgeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let trust = self.0.trust();
        let chain = trust.with_links(intermediates);
        trust.servers().verify_server_cert(end_entity, &chain, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.trust().servers().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.trust().servers().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.trust().servers().supported_verify_schemes()
    }
}

/// Verifies the chain of a client against the authorities that are trusted now, then
/// the member: it must be of this site, with an accepted role, and not revoked.
#[derive(Debug)]
pub(super) struct MemberVerifier {
    pub(super) own: Credentials,
    pub(super) accepts: Vec<Role>,
    pub(super) revoked: LiveRevocations,
    /// If set, clients need not show a certificate. The names are the authorities that they are told
    /// of: a browser asks its user for a certificate only if it has one from these authorities.
    pub(super) optional: Option<Vec<DistinguishedName>>,
}

impl ClientCertVerifier for MemberVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.optional.is_none()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let trust = self.own.trust();
        let chain = trust.with_links(intermediates);
        let verified = trust.clients().verify_client_cert(end_entity, &chain, now);
        let verified = verified.map_err(|error| unless_signed_by_itself(end_entity, error))?;
        let identity = peer_identity(std::slice::from_ref(end_entity), &self.own.identity().site);
        let identity = identity.map_err(|error| refused(error.to_string()))?;
        if !self.accepts.contains(&identity.role) {
            let accepts = self.accepts.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(" or ");
            return Err(refused(format!(
                "{identity} has no access here: only the role {accepts} has access"
            )));
        }
        let certificate = shown(end_entity, &identity).map_err(|error| refused(error.to_string()))?;
        if self.revoked.refuses(&certificate).is_some() {
            // Over TCP the other side learns only the alert. The log tells operators more.
            return Err(CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    /// No names if a certificate is required: a client has only one certificate, and may know other authorities than these.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.optional.as_deref().unwrap_or_default()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.own.trust().clients().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.own.trust().clients().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.own.trust().clients().supported_verify_schemes()
    }
}

/// A clearer error if the unknown issuer of a certificate is the certificate itself.
fn unless_signed_by_itself(certificate: &CertificateDer<'_>, error: rustls::Error) -> rustls::Error {
    let is_unknown = error == rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
    if is_unknown && is_signed_by(certificate, certificate) {
        return refused(
            "the certificate of the other side is self-signed, not signed by an authority; it must join the site with `mez keys enrol`".into(),
        );
    }
    error
}
