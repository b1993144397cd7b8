//! Responses with their headers. All responses set the same security headers.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::answers::Problem;
use super::assets::Asset;
use crate::api::ApiError;

/// The body of a response.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
/// A response.
pub(super) type Answer = Response<Body>;

/// The content security policy: only files of the page's own origin, no inline script or style, and no embedding in other pages.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every response.
const ALWAYS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// A refusal: a status, a stable name, and a sentence that says what to do.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) reason: Cow<'static, str>,
    pub(super) detail: String,
}

impl Refused {
    pub(super) fn new(
        status: StatusCode,
        reason: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        Self { status, reason: reason.into(), detail: detail.into() }
    }

    pub(super) fn not_found() -> Self {
        let detail = "this path does not exist; /openapi.json lists all paths";
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail)
    }
}

/// The error keeps its name, which is the same over gRPC.
impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        let status = match error.code {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.reason, error.message)
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Self {
        let Refused { status, reason, detail } = refused;
        let problem = Problem { status: status.as_u16(), reason, detail };
        let mut answer = json_as("application/problem+json", &problem);
        *answer.status_mut() = status;
        answer
    }
}

/// A response without a body.
pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = bytes("text/plain; charset=utf-8", Bytes::new());
    *answer.status_mut() = status;
    answer
}

/// A response in JSON, which is not cached.
pub(super) fn json(value: &impl Serialize) -> Answer {
    json_as("application/json", value)
}

fn json_as(content_type: &'static str, value: &impl Serialize) -> Answer {
    // Only a map with keys that are not strings could fail here. Our types have no such maps.
    bytes(content_type, serde_json::to_vec(value).unwrap_or_default().into())
}

/// A response with these bytes, which is not cached.
pub(super) fn bytes(content_type: &'static str, bytes: Bytes) -> Answer {
    answer(content_type, "no-store", Full::new(bytes).boxed_unsync())
}

/// A file of the page.
pub(super) fn file(asset: &'static Asset) -> Answer {
    let keeps = if asset.is_immutable() { "public, max-age=31536000, immutable" } else { "no-cache" };
    answer(asset.content_type, keeps, Full::new(Bytes::from_static(asset.bytes)).boxed_unsync())
}

/// A response that streams pieces as they come.
pub(super) fn stream(content_type: &'static str, pieces: mpsc::Receiver<Bytes>) -> Answer {
    let pieces = ReceiverStream::new(pieces).map(|piece| Ok(Frame::data(piece)));
    answer(content_type, "no-store", StreamBody::new(pieces).boxed_unsync())
}

fn answer(content_type: &'static str, cache: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    answer
}
