//! One HTTP request to a camera, and its answer. Both are bounded in size and time; redirects are not followed.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_auth::{PasswordClient, PasswordParams};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::address::ServiceAddress;
use crate::identity::tls::public_client_config;
use crate::source::credentials::SourceCredentials;

/// The largest answer, in bytes. Cameras with many profiles send some ten thousand bytes.
const BODY_BYTES_MAX: usize = 256 << 10;
/// The largest header of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long a request may take, from dialling to the last byte of the answer.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(5);
/// How often an envelope is sent: again if the camera asks for the password.
const ATTEMPTS_MAX: u32 = 2;

/// The media type of SOAP 1.2.
const SOAP: HeaderValue = HeaderValue::from_static("application/soap+xml; charset=utf-8");

/// Why a camera gave no usable answer.
#[derive(Debug, Error)]
pub(super) enum HttpError {
    #[error("it cannot be reached ({0})")]
    Unreachable(io::Error),
    #[error("it did not answer within {} s", EXCHANGE_TIME_MAX.as_secs())]
    TimedOut,
    #[error("its answer is not HTTP ({0})")]
    Broken(hyper::Error),
    #[error("its answer has more than {BODY_BYTES_MAX} bytes, or ends early")]
    Body,
    #[error("it redirects to another address (status {0}), and redirects are not followed")]
    Redirect(StatusCode),
    #[error("it rejects this user name and password, or this user has no permission")]
    Refused,
    #[error("it asks for a user name and a password, and the source has none")]
    NoCredentials,
    #[error("it asks for the password in a way that would reveal it ({0})")]
    Challenge(String),
    #[error("no certificate of an authority is installed on this host")]
    NoRoots,
}

/// An answer that is neither a redirect nor a challenge. SOAP faults come with error statuses.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Requests to the services of one camera.
pub(super) struct HttpClient {
    credentials: Option<SourceCredentials>,
    /// Answers the camera's challenges. `None`: the camera has not sent one.
    digest: Option<PasswordClient>,
}

impl HttpClient {
    pub(super) fn new(credentials: Option<SourceCredentials>) -> Self {
        Self { credentials, digest: None }
    }

    pub(super) fn credentials(&self) -> Option<&SourceCredentials> {
        self.credentials.as_ref()
    }

    /// Whether the camera takes the password by HTTP digest, and not in the envelope.
    pub(super) fn asks_by_http(&self) -> bool {
        self.digest.is_some()
    }

    /// Sends an envelope. If the camera answers with a challenge, or the last digest is stale, sends it once more.
    pub(super) async fn post(
        &mut self,
        service: &ServiceAddress,
        envelope: impl Fn(&Self) -> String,
    ) -> Result<Answer, HttpError> {
        for _ in 0..ATTEMPTS_MAX {
            let body = envelope(self);
            let authorization = self.authorization(service, &body)?;
            let exchange = exchange(service, body, authorization);
            let timed = tokio::time::timeout(EXCHANGE_TIME_MAX, exchange).await;
            let (answer, headers) = timed.map_err(|_| HttpError::TimedOut)??;
            match answer.status {
                StatusCode::UNAUTHORIZED => self.take_challenge(&headers)?,
                status if status.is_redirection() => return Err(HttpError::Redirect(status)),
                _ => return Ok(answer),
            }
        }
        self.digest = None;
        Err(HttpError::Refused)
    }

    fn authorization(
        &mut self,
        service: &ServiceAddress,
        body: &str,
    ) -> Result<Option<HeaderValue>, HttpError> {
        let (Some(digest), Some(credentials)) = (&mut self.digest, &self.credentials) else {
            return Ok(None);
        };
        let params = PasswordParams {
            username: credentials.user(),
            password: credentials.password(),
            uri: service.path(),
            method: Method::POST.as_str(),
            body: Some(body.as_bytes()),
        };
        let answer = digest.respond(&params).map_err(HttpError::Challenge)?;
        let mut value =
            HeaderValue::try_from(answer).map_err(|error| HttpError::Challenge(error.to_string()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Takes a challenge. Only digests are accepted: `Basic` would show the password to an eavesdropper.
    fn take_challenge(&mut self, headers: &HeaderMap) -> Result<(), HttpError> {
        if self.credentials.is_none() {
            return Err(HttpError::NoCredentials);
        }
        let questions = headers.get_all(WWW_AUTHENTICATE);
        if questions.iter().next().is_none() {
            return Err(HttpError::Refused);
        }
        let mut builder = PasswordClient::builder();
        for question in questions {
            let text = question.to_str().map_err(|error| HttpError::Challenge(error.to_string()))?;
            builder = builder.challenges(text);
        }
        self.digest = Some(builder.build().map_err(HttpError::Challenge)?);
        Ok(())
    }
}

/// Sends one request over its own connection, and reads the answer.
async fn exchange(
    service: &ServiceAddress,
    body: String,
    authorization: Option<HeaderValue>,
) -> Result<(Answer, HeaderMap), HttpError> {
    let stream =
        TcpStream::connect((service.host(), service.port())).await.map_err(HttpError::Unreachable)?;
    if !service.is_tls() {
        return talk(stream, service, body, authorization).await;
    }
    let invalid = |error| HttpError::Unreachable(io::Error::new(io::ErrorKind::InvalidInput, error));
    let name = ServerName::try_from(service.host().to_owned()).map_err(invalid)?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await.map_err(HttpError::Unreachable)?;
    talk(stream, service, body, authorization).await
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: &ServiceAddress,
    body: String,
    authorization: Option<HeaderValue>,
) -> Result<(Answer, HeaderMap), HttpError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(HttpError::Broken)?;
    let mut request = Request::post(service.path())
        .header(HOST, service.authority())
        .header(CONTENT_TYPE, SOAP)
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .expect("a path, a host and fixed fields are a request");
    if let Some(authorization) = authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization);
    }
    let answered = async {
        let response = sender.send_request(request).await.map_err(HttpError::Broken)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| HttpError::Body)?;
        Ok((Answer { status: head.status, body: body.to_bytes() }, head.headers))
    };
    // The connection lives until the answer is complete: dropping this future ends both.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answered => answer,
        never = driven => match never {},
    }
}

/// The TLS configuration for cameras. The host's root certificates are read once.
fn tls() -> Result<Arc<ClientConfig>, HttpError> {
    static CONFIG: OnceLock<Option<Arc<ClientConfig>>> = OnceLock::new();
    CONFIG.get_or_init(|| public_client_config().map(Arc::new)).clone().ok_or(HttpError::NoRoots)
}
