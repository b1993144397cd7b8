//! The common part of all gRPC calls: limits, and errors with details.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;

use super::principal::Principal;
use super::{ApiError, Limit};

/// The other end of a connection, and the number of its calls in progress.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) principal: Principal,
    calls: Arc<AtomicUsize>,
}

impl Peer {
    pub(super) fn new(principal: Principal) -> Self {
        Self { principal, calls: Arc::default() }
    }

    /// Counts one more call, if the limit allows it.
    fn enter(&self, calls_max: usize) -> Result<Underway, ApiError> {
        // Made first, so that the call is uncounted in every case.
        let underway = Underway(Arc::clone(&self.calls));
        if underway.0.fetch_add(1, Ordering::Relaxed) < calls_max {
            return Ok(underway);
        }
        Err(ApiError::exhausted(
            "TOO_MANY_CALLS",
            Limit::of_connection("calls_per_connection_max", calls_max),
            format!(
                "{calls_max} calls are open on this connection of {}, which is the limit; end some subscriptions, let one subscription follow \
                 several cameras with a pattern such as dock/*, or open another connection",
                self.principal
            ),
        ))
    }
}

/// A counted call. It is uncounted when all of its answer was sent.
struct Underway(Arc<AtomicUsize>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of the response that carries this value, such as the events of a subscription.
#[derive(Clone)]
pub(super) struct StreamBody(Arc<Mutex<Option<Body>>>);

impl StreamBody {
    pub(super) fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A service that counts its calls, and adds our details to errors of the layers below.
#[derive(Clone)]
pub(super) struct Calls<S> {
    pub(super) service: S,
    pub(super) calls_max: usize,
    /// The largest message that the service reads.
    pub(super) message_bytes_max: usize,
    /// The paths of calls with larger messages, the same service for these calls, and their limit in bytes.
    pub(super) larger: Option<(&'static [&'static str], S, usize)>,
}

impl<S: NamedService> NamedService for Calls<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Calls<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let underway = match request.extensions().get::<Peer>().map(|peer| peer.enter(self.calls_max)) {
            Some(Err(refused)) => return Box::pin(async { Ok(Status::from(refused).into_http()) }),
            Some(Ok(underway)) => Some(underway),
            None => None,
        };
        let (service, message_bytes_max) = match &mut self.larger {
            Some((paths, service, bytes_max)) if paths.contains(&request.uri().path()) => {
                (service, *bytes_max)
            }
            _ => (&mut self.service, self.message_bytes_max),
        };
        let answer = service.call(request);
        Box::pin(async move {
            let response = answer.await?;
            // Errors of calls are in the headers, errors of streams in the trailers.
            if let Some(status) = Status::from_header_map(response.headers()) {
                return Ok(ApiError::refine(status, message_bytes_max).into_http());
            }
            let stream = response.extensions().get::<StreamBody>().and_then(StreamBody::take);
            Ok(response.map(|body| {
                let body = stream.unwrap_or(body);
                Body::new(Counted { body, _underway: underway })
            }))
        })
    }
}

/// The body of a response to a counted call.
struct Counted {
    body: Body,
    _underway: Option<Underway>,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
