//! Implements the generated gRPC services with [`EdgeApi`] and [`CameraApi`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mez_core::broker::edge::DERIVED_BYTES_MAX;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::{Empty, Stream};
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::calls::{Calls, Peer, StreamBody};
use super::camera::{CameraApi, PublishAnswers, PublishRequests};
use super::edge::EdgeApi;
use super::events::{Events, Messages};
use super::pb::camera_broker_server::{CameraBroker, CameraBrokerServer};
use super::pb::edge_broker_server::{EdgeBroker, EdgeBrokerServer};
use super::principal::Principal;
use super::{ApiError, Broker, MESSAGE_BYTES_MAX, pb};
use crate::audit::AuditState;
use crate::clock::monotonic_now;

/// The most bytes of one message to a service that is not ours: the library's default.
const FOREIGN_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// The calls with which applications send results to an edge. Their messages are larger.
const LARGER: &[&str] = &["/mez.v1.EdgeBroker/Publish", "/mez.v1.EdgeBroker/Answer"];

/// The health service reports under this name whether the audit log is written.
const AUDIT_SERVICE: &str = "mez.audit";

/// The gRPC services of a broker, with health and reflection.
pub(super) async fn routes(broker: &Broker, calls_max: usize) -> Routes {
    let (health, health_service) = tonic_health::server::health_reporter();
    let mut routes = Routes::builder();
    let message_bytes_max = FOREIGN_MESSAGE_BYTES_MAX;
    routes.add_service(Calls { service: health_service, calls_max, message_bytes_max, larger: None });
    match broker {
        Broker::Edge(api) => {
            let service = EdgeBrokerServer::new(EdgeService(EdgeApi::clone(api)));
            let record_bytes_max = broker.payload_bytes_max() as usize + MESSAGE_BYTES_MAX;
            // All other calls have small messages.
            let publishing = service.clone().max_decoding_message_size(record_bytes_max);
            let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
            let larger = Some((LARGER, publishing, record_bytes_max));
            routes.add_service(Calls { service, calls_max, message_bytes_max: MESSAGE_BYTES_MAX, larger });
            health.set_serving::<EdgeBrokerServer<EdgeService>>().await;
            if let Some(states) = api.edge.audit().states() {
                tokio::spawn(tell_audit(health, states, api.stopping.clone()));
            }
        }
        Broker::Camera(api) => {
            let service = CameraBrokerServer::new(CameraService(api.clone()));
            let message_bytes_max = broker.payload_bytes_max() as usize + MESSAGE_BYTES_MAX;
            let service = service.max_decoding_message_size(message_bytes_max);
            routes.add_service(Calls { service, calls_max, message_bytes_max, larger: None });
            health.set_serving::<CameraBrokerServer<CameraService>>().await;
        }
    }
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let own = "the descriptors are those that the services were generated from";
    let service = reflection().build_v1().expect(own);
    routes.add_service(Calls { service, calls_max, message_bytes_max, larger: None });
    // For command-line tools from before 2023.
    let service = reflection().build_v1alpha().expect(own);
    routes.add_service(Calls { service, calls_max, message_bytes_max, larger: None });
    routes.routes()
}

/// Reports whether the audit log is written, until the server stops.
async fn tell_audit(
    health: HealthReporter,
    mut states: watch::Receiver<AuditState>,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        let status = match *states.borrow_and_update() {
            AuditState::Written => ServingStatus::Serving,
            AuditState::Off | AuditState::Failing { .. } => ServingStatus::NotServing,
        };
        health.set_service_status(AUDIT_SERVICE, status).await;
        tokio::select! {
            changed = states.changed() => if changed.is_err() { return },
            _ = stopping.wait_for(|stop| *stop) => return,
        }
    }
}

/// The principal of a request, as its connection knows it (`serve`).
fn principal<T>(request: &Request<T>) -> Result<Principal, Status> {
    let principal = request.extensions().get::<Peer>().map(|peer| peer.principal.clone());
    principal.ok_or_else(|| Status::unauthenticated("the connection has no identity"))
}

struct EdgeService(EdgeApi);

#[tonic::async_trait]
impl EdgeBroker for EdgeService {
    async fn connect(
        &self,
        request: Request<pb::ConnectRequest>,
    ) -> Result<Response<pb::ConnectResponse>, Status> {
        let received = monotonic_now();
        Ok(Response::new(self.0.connect(request.get_ref(), received)?))
    }

    async fn get_camera_info(
        &self,
        request: Request<pb::GetCameraInfoRequest>,
    ) -> Result<Response<pb::GetCameraInfoResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.camera_info(&principal, request.into_inner()).await?))
    }

    type PublishStream = Pull<pb::PublishEvent>;

    async fn publish(
        &self,
        request: Request<Streaming<pb::PublishRequest>>,
    ) -> Result<Response<Self::PublishStream>, Status> {
        let (api, principal) = (self.0.clone(), principal(&request)?);
        let message_bytes_max = DERIVED_BYTES_MAX as usize + MESSAGE_BYTES_MAX;
        let requests = GrpcRequests { requests: request.into_inner(), message_bytes_max };
        Ok(publishing(|answers| async move { api.publish(&principal, requests, &answers).await }))
    }

    type SubscribeStream = Empty<Result<pb::SubscribeEvent, Status>>;

    async fn subscribe(
        &self,
        request: Request<pb::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let principal = principal(&request)?;
        let feed = self.0.subscribe(&principal, request.into_inner()).await?;
        Ok(streamed(feed))
    }

    async fn unsubscribe(
        &self,
        request: Request<pb::UnsubscribeRequest>,
    ) -> Result<Response<pb::UnsubscribeResponse>, Status> {
        Ok(Response::new(self.0.unsubscribe(&principal(&request)?, request.get_ref())?))
    }

    async fn update_contract(
        &self,
        request: Request<pb::UpdateContractRequest>,
    ) -> Result<Response<pb::UpdateContractResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.update_contract(&principal, request.into_inner()).await?))
    }

    async fn report_accuracy(
        &self,
        request: Request<pb::ReportAccuracyRequest>,
    ) -> Result<Response<pb::ReportAccuracyResponse>, Status> {
        Ok(Response::new(self.0.report_accuracy(&principal(&request)?, request.get_ref())?))
    }

    async fn report_taken(
        &self,
        request: Request<pb::ReportTakenRequest>,
    ) -> Result<Response<pb::ReportTakenResponse>, Status> {
        Ok(Response::new(self.0.report_taken(&principal(&request)?, request.get_ref())?))
    }

    async fn restart_chain(
        &self,
        request: Request<pb::RestartChainRequest>,
    ) -> Result<Response<pb::RestartChainResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.restart_chain(&principal, request.get_ref())?))
    }

    async fn reply(&self, request: Request<pb::ReplyRequest>) -> Result<Response<pb::ReplyResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.reply(&principal, request.into_inner()).await?))
    }

    async fn answer(
        &self,
        request: Request<pb::AnswerRequest>,
    ) -> Result<Response<pb::AnswerResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.answer(&principal, request.into_inner()).await?))
    }

    async fn get_notes(
        &self,
        request: Request<pb::GetNotesRequest>,
    ) -> Result<Response<pb::GetNotesResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.notes(&principal, request.into_inner()).await?))
    }

    async fn open_page(
        &self,
        request: Request<pb::OpenPageRequest>,
    ) -> Result<Response<pb::OpenPageResponse>, Status> {
        Ok(Response::new(self.0.open_page(&principal(&request)?, request.get_ref())?))
    }

    async fn check_rights(
        &self,
        request: Request<pb::CheckRightsRequest>,
    ) -> Result<Response<pb::CheckRightsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.check_rights(&principal, request.into_inner())?))
    }

    async fn settle_records(
        &self,
        request: Request<pb::SettleRecordsRequest>,
    ) -> Result<Response<pb::SettleRecordsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.settle_records(&principal, request.into_inner()).await?))
    }

    async fn get_groups(
        &self,
        request: Request<pb::GetGroupsRequest>,
    ) -> Result<Response<pb::GetGroupsResponse>, Status> {
        Ok(Response::new(self.0.groups(&principal(&request)?).await?))
    }

    async fn forget_group(
        &self,
        request: Request<pb::ForgetGroupRequest>,
    ) -> Result<Response<pb::ForgetGroupResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.forget_group(&principal, request.get_ref()).await?))
    }

    async fn get_camera_starts(
        &self,
        request: Request<pb::GetCameraStartsRequest>,
    ) -> Result<Response<pb::GetCameraStartsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.camera_starts(&principal, request.into_inner()).await?))
    }

    async fn reset_camera(
        &self,
        request: Request<pb::ResetCameraRequest>,
    ) -> Result<Response<pb::ResetCameraResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.reset_camera(&principal, request.into_inner()).await?))
    }

    async fn renew_certificate(
        &self,
        request: Request<pb::RenewCertificateRequest>,
    ) -> Result<Response<pb::RenewCertificateResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.renew_certificate(&principal, request.get_ref()).await?))
    }

    async fn exchange_revocations(
        &self,
        request: Request<pb::ExchangeRevocationsRequest>,
    ) -> Result<Response<pb::ExchangeRevocationsResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.exchange_revocations(&principal, request.into_inner())?))
    }

    async fn forget_camera(
        &self,
        request: Request<pb::ForgetCameraRequest>,
    ) -> Result<Response<pb::ForgetCameraResponse>, Status> {
        let principal = principal(&request)?;
        Ok(Response::new(self.0.forget_camera(&principal, request.into_inner()).await?))
    }
}

struct CameraService(CameraApi);

#[tonic::async_trait]
impl CameraBroker for CameraService {
    async fn connect(
        &self,
        request: Request<pb::ConnectRequest>,
    ) -> Result<Response<pb::ConnectResponse>, Status> {
        let received = monotonic_now();
        Ok(Response::new(self.0.connect(request.get_ref(), received)?))
    }

    type PublishStream = Pull<pb::PublishEvent>;

    async fn publish(
        &self,
        request: Request<Streaming<pb::PublishRequest>>,
    ) -> Result<Response<Self::PublishStream>, Status> {
        let (api, requests) = (self.0.clone(), request.into_inner());
        let message_bytes_max = self.0.camera.frame_bytes_max() as usize + MESSAGE_BYTES_MAX;
        let requests = GrpcRequests { requests, message_bytes_max };
        Ok(publishing(|answers| async move { api.publish(requests, &answers).await }))
    }

    type SubscribeStream = Empty<Result<pb::SubscribeEvent, Status>>;

    async fn subscribe(
        &self,
        request: Request<pb::SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let principal = principal(&request)?;
        Ok(streamed(self.0.subscribe(&principal, request.into_inner())?))
    }

    async fn unsubscribe(
        &self,
        request: Request<pb::UnsubscribeRequest>,
    ) -> Result<Response<pb::UnsubscribeResponse>, Status> {
        Ok(Response::new(self.0.unsubscribe(&principal(&request)?, request.get_ref())?))
    }

    type TakeAnswersStream = Empty<Result<pb::TakeAnswersResponse, Status>>;

    async fn take_answers(
        &self,
        request: Request<pb::TakeAnswersRequest>,
    ) -> Result<Response<Self::TakeAnswersStream>, Status> {
        Ok(streamed(self.0.take_answers(&principal(&request)?, request.get_ref())?))
    }
}

/// The stream of answers to frames. `take_in` reads the frames in a separate task, which ends with the stream.
fn publishing<F>(take_in: impl FnOnce(Arc<PublishAnswers>) -> F) -> Response<Pull<pb::PublishEvent>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let answers = Arc::new(PublishAnswers::default());
    let mut reading = JoinSet::new();
    reading.spawn(take_in(Arc::clone(&answers)));
    Response::new(Pull::new((answers, reading), |state| {
        Box::pin(async move {
            let event = state.0.next().await?;
            let event = event.map(|event| pb::PublishEvent { event: Some(event) });
            Some((event.map_err(Status::from), state))
        })
    }))
}

struct GrpcRequests {
    requests: Streaming<pb::PublishRequest>,
    message_bytes_max: usize,
}

impl PublishRequests for GrpcRequests {
    async fn next(&mut self) -> Option<Result<pb::PublishRequest, ApiError>> {
        // A client that has gone needs no answer. Others get the fault of their message.
        let refused = |status| ApiError::from_status(&ApiError::refine(status, self.message_bytes_max));
        self.requests.message().await.map_err(refused).transpose()
    }

    /// A lost client resets its stream, which is an error. So a stream that ends without an error has ended normally.
    fn has_ended(&self) -> bool {
        true
    }
}

/// A response with an empty stream. [`Calls`] replaces the stream with these messages.
fn streamed<T>(messages: impl Messages) -> Response<Empty<Result<T, Status>>> {
    let mut response = Response::new(tokio_stream::empty());
    response.extensions_mut().insert(StreamBody::new(Body::new(Events::new(messages))));
    response
}

type Turn<T, S> = Pin<Box<dyn Future<Output = Option<(Result<T, Status>, S)>> + Send>>;

/// A stream that makes each item when the connection can take it, so a frame is the newest at the moment when it leaves.
pub struct Pull<T>(Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>);

struct Pulling<T, S> {
    turn: fn(S) -> Turn<T, S>,
    state: Option<S>,
    running: Option<Turn<T, S>>,
}

impl<T: Send + 'static> Pull<T> {
    fn new<S: Send + Unpin + 'static>(state: S, turn: fn(S) -> Turn<T, S>) -> Self {
        Self(Box::pin(Pulling { turn, state: Some(state), running: None }))
    }
}

impl<T> Stream for Pull<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl<T, S: Unpin> Stream for Pulling<T, S> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(state) = self.state.take() {
            self.running = Some((self.turn)(state));
        }
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        let next = std::task::ready!(running.as_mut().poll(context));
        self.running = None;
        Poll::Ready(next.map(|(item, state)| {
            self.state = Some(state);
            item
        }))
    }
}
