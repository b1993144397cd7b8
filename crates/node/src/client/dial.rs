//! Calls and event streams to a broker, over a Unix socket or gRPC.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::clock::{ClockEstimator, Exchange};
use mez_core::frame::FRAME_BYTES_CEILING;
use mez_core::rights::Verb;
use mez_core::units::Instant;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::address::Address;
use super::error::ClientError;
use super::frame::BrokerClock;
use super::remote::Remote;
use super::streams::{
    AnswerSource, AnswerStream, EventSource, EventStream, FrameSink, TakenAnswers, TakenSource, Upstream,
};
use crate::api::pb::answer_request;
use crate::api::pb::camera_broker_client::CameraBrokerClient;
use crate::api::pb::edge_broker_client::EdgeBrokerClient;
use crate::api::pb::publish_event::Event as PublishEvent;
use crate::api::pb::reply_request::Content;
use crate::api::pb::subscribe_event::Event as SubscribeEvent;
use crate::api::socket::Which;
use crate::api::{MESSAGE_BYTES_MAX, SOFTWARE, VERSION, pb};
use crate::clock::monotonic_now;
use crate::identity::Credentials;
use crate::local::shared::PictureTaker;
use crate::local::{Kind, LocalConnection, PacketError};

/// The time limit for reaching a broker, and for the answer to a call.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most idle connections to a local broker that are kept for later calls.
const IDLE_MAX: usize = 4;
/// The most bytes of one gRPC message.
const GRPC_MESSAGE_BYTES_MAX: usize = FRAME_BYTES_CEILING as usize + MESSAGE_BYTES_MAX;

/// A connection factory for one broker. Cheap to clone.
#[derive(Clone)]
pub(super) struct Dialler(Arc<Inner>);

struct Inner {
    address: Address,
    which: Which,
    way: Way,
    /// The offset of the broker's clock to ours, if the clocks differ.
    clock: Mutex<ClockEstimator>,
}

enum Way {
    Local {
        /// Idle connections between two calls.
        idle: Mutex<Vec<LocalConnection>>,
    },
    Grpc(Box<Remote>),
}

impl std::fmt::Debug for Dialler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Dialler").field(self.address()).finish()
    }
}

impl Dialler {
    pub(super) fn new(
        address: Address,
        which: Which,
        credentials: Option<&Credentials>,
    ) -> Result<Self, ClientError> {
        let way = match &address {
            Address::Unix(_) => Way::Local { idle: Mutex::default() },
            Address::Tcp { host, port } => {
                let credentials =
                    credentials.ok_or_else(|| ClientError::NoCredentials { address: address.clone() })?;
                let fault = |error: tonic::transport::Error| ClientError::from_transport(&error, &address);
                Way::Grpc(Box::new(Remote::new(host, *port, credentials).map_err(fault)?))
            }
        };
        Ok(Self(Arc::new(Inner { address, which, way, clock: Mutex::default() })))
    }

    pub(super) fn address(&self) -> &Address {
        &self.0.address
    }

    /// Whether the broker may run on another host, so that clocks must be compared.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.0.way, Way::Grpc(_))
    }

    /// Agrees on a version, and compares the clocks.
    pub(super) async fn connect(&self) -> Result<pb::ConnectResponse, ClientError> {
        let t1 = monotonic_now();
        let request = pb::ConnectRequest {
            version_min: VERSION,
            version_max: VERSION,
            software: SOFTWARE.into(),
            client_sent_monotonic_ns: t1.as_nanos(),
        };
        let answer: pb::ConnectResponse =
            self.call(Kind::Connect, "Connect", request, |_| Bytes::new()).await?;
        let exchange = Exchange {
            t1,
            t2: Instant::from_nanos(answer.broker_received_monotonic_ns),
            t3: Instant::from_nanos(answer.broker_sent_monotonic_ns),
            t4: monotonic_now(),
        };
        self.estimator().record(exchange);
        Ok(answer)
    }

    /// Forgets the clock comparison, because another broker on another host may answer now.
    pub(super) fn forget_clock(&self) {
        *self.estimator() = ClockEstimator::default();
    }

    pub(super) fn clock(&self) -> BrokerClock {
        match self.0.way {
            Way::Local { .. } => BrokerClock::Same,
            Way::Grpc(_) => BrokerClock::Compared(self.estimator().estimate(monotonic_now())),
        }
    }

    /// Converts an instant of our clock to the broker's. `None` if the clocks have not been compared.
    pub(super) fn to_theirs(&self, ours_ns: u64) -> Option<u64> {
        match self.clock() {
            BrokerClock::Same => Some(ours_ns),
            BrokerClock::Compared(estimate) => {
                Some(estimate?.to_theirs(Instant::from_nanos(ours_ns)).as_nanos())
            }
        }
    }

    fn estimator(&self) -> std::sync::MutexGuard<'_, ClockEstimator> {
        // Each statement leaves the estimator consistent, so a poisoned lock is safe to use.
        self.0.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the edge knows about the matching cameras.
    pub(super) async fn camera_info(
        &self,
        pattern: String,
    ) -> Result<pb::GetCameraInfoResponse, ClientError> {
        self.call(Kind::GetCameraInfo, "GetCameraInfo", pb::GetCameraInfoRequest { pattern }, |_| {
            Bytes::new()
        })
        .await
    }

    /// A link that signs in to the edge's page.
    pub(super) async fn open_page(
        &self,
        request: pb::OpenPageRequest,
    ) -> Result<pb::OpenPageResponse, ClientError> {
        self.call(Kind::OpenPage, "OpenPage", request, |_| Bytes::new()).await
    }

    /// Like [`Self::camera_info`], or `None` if this program may observe none of
    /// the cameras. Asks for the right first, because the edge does not log that.
    pub(super) async fn observable(
        &self,
        pattern: String,
    ) -> Result<Option<pb::GetCameraInfoResponse>, ClientError> {
        let asked = if pattern.is_empty() { "**".into() } else { pattern.clone() };
        let wanted = pb::WantedRight { verb: Verb::Observe.to_string(), pattern: asked };
        let answer = self.check_rights(pb::CheckRightsRequest { wanted: vec![wanted] }).await?;
        if answer.refusals.iter().any(|why| !why.is_empty()) {
            return Ok(None);
        }
        self.camera_info(pattern).await.map(Some)
    }

    /// The notes of a camera.
    pub(super) async fn notes(
        &self,
        request: pb::GetNotesRequest,
    ) -> Result<pb::GetNotesResponse, ClientError> {
        self.call(Kind::GetNotes, "GetNotes", request, |_| Bytes::new()).await
    }

    /// The starts of a camera, with their certificates.
    pub(super) async fn camera_starts(
        &self,
        camera: String,
    ) -> Result<pb::GetCameraStartsResponse, ClientError> {
        let request = pb::GetCameraStartsRequest { camera };
        self.call(Kind::GetCameraStarts, "GetCameraStarts", request, |_| Bytes::new()).await
    }

    /// Makes the edge forget a camera's starts.
    pub(super) async fn reset_camera(&self, camera: String) -> Result<pb::ResetCameraResponse, ClientError> {
        let request = pb::ResetCameraRequest { camera };
        self.call(Kind::ResetCamera, "ResetCamera", request, |_| Bytes::new()).await
    }

    /// Makes the edge forget an absent camera.
    pub(super) async fn forget_camera(
        &self,
        camera: String,
    ) -> Result<pb::ForgetCameraResponse, ClientError> {
        let request = pb::ForgetCameraRequest { camera };
        self.call(Kind::ForgetCamera, "ForgetCamera", request, |_| Bytes::new()).await
    }

    /// Asks whether this program has certain rights.
    pub(super) async fn check_rights(
        &self,
        request: pb::CheckRightsRequest,
    ) -> Result<pb::CheckRightsResponse, ClientError> {
        self.call(Kind::CheckRights, "CheckRights", request, |_| Bytes::new()).await
    }

    /// Changes the contract of a subscription.
    pub(super) async fn update_contract(
        &self,
        request: pb::UpdateContractRequest,
    ) -> Result<pb::UpdateContractResponse, ClientError> {
        self.call(Kind::UpdateContract, "UpdateContract", request, |_| Bytes::new()).await
    }

    /// Ends a subscription.
    pub(super) async fn unsubscribe(
        &self,
        request: pb::UnsubscribeRequest,
    ) -> Result<pb::UnsubscribeResponse, ClientError> {
        self.call(Kind::Unsubscribe, "Unsubscribe", request, |_| Bytes::new()).await
    }

    /// Reports which records of a group are done or failed.
    pub(super) async fn settle_records(
        &self,
        request: pb::SettleRecordsRequest,
    ) -> Result<pb::SettleRecordsResponse, ClientError> {
        self.call(Kind::SettleRecords, "SettleRecords", request, |_| Bytes::new()).await
    }

    /// The groups with their state.
    pub(super) async fn groups(&self) -> Result<pb::GetGroupsResponse, ClientError> {
        self.call(Kind::GetGroups, "GetGroups", pb::GetGroupsRequest {}, |_| Bytes::new()).await
    }

    /// Makes the edge forget a group.
    pub(super) async fn forget_group(
        &self,
        request: pb::ForgetGroupRequest,
    ) -> Result<pb::ForgetGroupResponse, ClientError> {
        self.call(Kind::ForgetGroup, "ForgetGroup", request, |_| Bytes::new()).await
    }

    /// Reports how accurate a result was.
    pub(super) async fn report_accuracy(
        &self,
        request: pb::ReportAccuracyRequest,
    ) -> Result<pb::ReportAccuracyResponse, ClientError> {
        self.call(Kind::ReportAccuracy, "ReportAccuracy", request, |_| Bytes::new()).await
    }

    /// Reports when the program took frames.
    pub(super) async fn report_taken(
        &self,
        request: pb::ReportTakenRequest,
    ) -> Result<pb::ReportTakenResponse, ClientError> {
        self.call(Kind::ReportTaken, "ReportTaken", request, |_| Bytes::new()).await
    }

    /// Reports that a chain cannot be decoded any further.
    pub(super) async fn restart_chain(
        &self,
        request: pb::RestartChainRequest,
    ) -> Result<pb::RestartChainResponse, ClientError> {
        self.call(Kind::RestartChain, "RestartChain", request, |_| Bytes::new()).await
    }

    /// Sends a reply.
    pub(super) async fn reply(&self, request: pb::ReplyRequest) -> Result<pb::ReplyResponse, ClientError> {
        let opaque = |request: &mut pb::ReplyRequest| match &mut request.content {
            Some(Content::Payload(payload)) => std::mem::take(payload),
            Some(Content::Detections(_)) | None => Bytes::new(),
        };
        self.call(Kind::Reply, "Reply", request, opaque).await
    }

    /// Sends an answer.
    pub(super) async fn answer(&self, request: pb::AnswerRequest) -> Result<pb::AnswerResponse, ClientError> {
        let coded = |request: &mut pb::AnswerRequest| match &mut request.content {
            Some(answer_request::Content::Payload(payload)) => std::mem::take(payload),
            Some(answer_request::Content::Detections(_)) | None => Bytes::new(),
        };
        self.call(Kind::Answer, "Answer", request, coded).await
    }

    /// Asks for the next certificate. `None`: this broker is reached without a certificate.
    pub(super) async fn renew(
        &self,
        request: pb::RenewCertificateRequest,
    ) -> Result<Option<pb::RenewCertificateResponse>, ClientError> {
        let Way::Grpc(remote) = &self.0.way else { return Ok(None) };
        let answered = self.call_grpc(remote.calls(), "RenewCertificate", request);
        timeout(ANSWER_TIMEOUT, answered).await.unwrap_or_else(|_| Err(self.timed_out())).map(Some)
    }

    /// Reports the version of this edge's deny list, optionally with the list. The answer may contain a newer list.
    pub(super) async fn exchange_revocations(
        &self,
        request: pb::ExchangeRevocationsRequest,
    ) -> Result<pb::ExchangeRevocationsResponse, ClientError> {
        let Way::Grpc(remote) = &self.0.way else {
            return Err(self.protocol("a Unix socket, where deny lists are not exchanged"));
        };
        let answered = self.call_grpc(remote.calls(), "ExchangeRevocations", request);
        timeout(ANSWER_TIMEOUT, answered).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Sends a request, and waits up to 5 s for the answer. `payload` takes the payload out of the request: locally it is sent beside the message.
    async fn call<Q, A>(
        &self,
        kind: Kind,
        method: &'static str,
        request: Q,
        payload: fn(&mut Q) -> Bytes,
    ) -> Result<A, ClientError>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let answered = async {
            match &self.0.way {
                Way::Local { idle } => self.call_local(idle, kind, request, payload).await,
                Way::Grpc(remote) => self.call_grpc(remote.calls(), method, request).await,
            }
        };
        let answered = timeout(ANSWER_TIMEOUT, answered).await.unwrap_or_else(|_| Err(self.timed_out()));
        answered.map_err(|error| self.with_own_certificate(error))
    }

    /// Adds to the error that our own certificate has expired, if it has.
    fn with_own_certificate(&self, error: ClientError) -> ClientError {
        let Way::Grpc(remote) = &self.0.way else { return error };
        match (error, remote.expired()) {
            (
                ClientError::Unreachable { address, reason } | ClientError::Untrusted { address, reason },
                Some(expired),
            ) => {
                let told = reason.contains("expired");
                let reason = if told { reason } else { format!("{reason}; {expired}") };
                ClientError::Untrusted { address, reason }
            }
            (error, _) => error,
        }
    }

    async fn call_local<Q: Message, A: Message + Default>(
        &self,
        idle: &Mutex<Vec<LocalConnection>>,
        kind: Kind,
        mut request: Q,
        payload: fn(&mut Q) -> Bytes,
    ) -> Result<A, ClientError> {
        let payload = payload(&mut request);
        let idle = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let reused = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.open_local().await?,
        };
        let mut result = connection.call(kind, &request, payload.clone()).await;
        let lost = matches!(result, Err(PacketError::Io(_) | PacketError::Cut));
        let is_once = matches!(
            kind,
            Kind::Reply
                | Kind::Answer
                | Kind::ResetCamera
                | Kind::ForgetCamera
                | Kind::ForgetGroup
                | Kind::SettleRecords
        );
        if reused && lost && !is_once {
            // The broker was restarted since the last call. These requests may safely be repeated, the others not.
            connection = self.open_local().await?;
            result = connection.call(kind, &request, payload).await;
        }
        let usable = matches!(&result, Ok(_) | Err(PacketError::Refused(_)));
        let mut idle = idle();
        if usable && idle.len() < IDLE_MAX {
            idle.push(connection);
        } else if !usable {
            // The other idle connections are to the same lost broker.
            idle.clear();
        }
        result.map_err(|error| ClientError::from_packet(error, &self.0.address))
    }

    async fn call_grpc<Q, A>(&self, channel: Channel, method: &str, request: Q) -> Result<A, ClientError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let service = match self.0.which {
            Which::Edge => "EdgeBroker",
            Which::Camera => "CameraBroker",
        };
        let path = format!("/mez.v1.{service}/{method}");
        let path = path.try_into().expect("the names of our services are valid in a path");
        let mut grpc = tonic::client::Grpc::new(channel);
        let ready = grpc.ready().await;
        ready.map_err(|error| ClientError::from_transport(&error, &self.0.address))?;
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
        let answer = answer.map_err(|status| ClientError::from_status(&status, &self.0.address))?;
        Ok(answer.into_inner())
    }

    async fn open_local(&self) -> Result<LocalConnection, ClientError> {
        let path = self.0.address.as_unix().expect("a local way has the address of a socket");
        LocalConnection::open(path).await.map_err(|error| ClientError::from_io(&error, &self.0.address))
    }

    /// Subscribes on a separate connection, and waits for the broker's confirmation.
    pub(super) async fn subscribe(
        &self,
        request: pb::SubscribeRequest,
    ) -> Result<(EventStream, pb::Started), ClientError> {
        let opened = async {
            let mut stream = match &self.0.way {
                Way::Local { .. } => {
                    let mut connection = self.open_local().await?;
                    let sent = connection.ask(Kind::Subscribe, &request, Bytes::new()).await;
                    sent.map_err(|error| ClientError::from_packet(error, &self.0.address))?;
                    let LocalConnection { reader, mut writer } = connection;
                    let said = writer.write(Kind::TakesPictures, &(), Bytes::new()).await;
                    // If the broker has refused the subscription, its error comes as the next message.
                    let _ =
                        said.inspect_err(|error| tracing::debug!(%error, "the broker closed the connection"));
                    let (memory, pictures) = (None, PictureTaker::default());
                    let upstream = Arc::new(Upstream::new(writer));
                    let from = EventSource::Local { reader, upstream, memory, pictures };
                    EventStream::new(&self.0.address, from)
                }
                Way::Grpc(remote) => {
                    let channel = self.open_grpc(&remote.endpoint()).await?;
                    let fault = |status| ClientError::from_status(&status, &self.0.address);
                    let bytes_max = GRPC_MESSAGE_BYTES_MAX;
                    let response = match self.0.which {
                        Which::Edge => {
                            let client = EdgeBrokerClient::new(channel);
                            client.max_decoding_message_size(bytes_max).subscribe(request).await
                        }
                        Which::Camera => {
                            let client = CameraBrokerClient::new(channel);
                            client.max_decoding_message_size(bytes_max).subscribe(request).await
                        }
                    };
                    let events = response.map_err(fault)?.into_inner();
                    EventStream::new(&self.0.address, EventSource::Grpc(events))
                }
            };
            match stream.next().await? {
                Some(SubscribeEvent::Started(started)) => Ok((stream, started)),
                _ => Err(self.protocol("a subscription that does not begin with its start")),
            }
        };
        timeout(ANSWER_TIMEOUT, opened).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Opens a stream of frames, and waits for the broker's confirmation. `first` names the camera, or none if the broker has only one.
    pub(super) async fn publish(
        &self,
        first: pb::PublishRequest,
    ) -> Result<(FrameSink, AnswerStream, pb::PublishStarted), ClientError> {
        let opened = async {
            let (sink, mut answers) = match &self.0.way {
                Way::Local { .. } => {
                    let mut connection = self.open_local().await?;
                    let sent = connection.ask(Kind::Publish, &first, Bytes::new()).await;
                    sent.map_err(|error| ClientError::from_packet(error, &self.0.address))?;
                    let LocalConnection { reader, writer } = connection;
                    let memory = Arc::default();
                    let sink = FrameSink::Local { writer, memory: Arc::clone(&memory) };
                    let from = AnswerSource::Local { reader, memory };
                    (sink, AnswerStream { address: self.0.address.clone(), from })
                }
                Way::Grpc(remote) => {
                    let channel = self.open_grpc(&remote.endpoint()).await?;
                    let (sender, frames) = mpsc::channel(1);
                    let mut sink = FrameSink::Grpc(sender);
                    sink.send(first).await.map_err(|lost| lost.explain(&self.0.address))?;
                    let (bytes_max, frames) = (GRPC_MESSAGE_BYTES_MAX, ReceiverStream::new(frames));
                    let response = match self.0.which {
                        Which::Edge => {
                            let client = EdgeBrokerClient::new(channel);
                            client.max_encoding_message_size(bytes_max).publish(frames).await
                        }
                        Which::Camera => {
                            let client = CameraBrokerClient::new(channel);
                            client.max_encoding_message_size(bytes_max).publish(frames).await
                        }
                    };
                    let answers = response
                        .map_err(|status| ClientError::from_status(&status, &self.0.address))?
                        .into_inner();
                    (
                        sink,
                        AnswerStream { address: self.0.address.clone(), from: AnswerSource::Grpc(answers) },
                    )
                }
            };
            match answers.next().await? {
                Some(PublishEvent::Started(started)) => Ok((sink, answers, started)),
                _ => Err(self.protocol("a stream of frames that does not begin with its start")),
            }
        };
        timeout(ANSWER_TIMEOUT, opened).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Takes the answers of a camera on a separate connection, and waits for the broker's confirmation.
    pub(super) async fn take_answers(
        &self,
        request: pb::TakeAnswersRequest,
    ) -> Result<TakenAnswers, ClientError> {
        let opened = async {
            let from = match &self.0.way {
                Way::Local { .. } => {
                    let mut connection = self.open_local().await?;
                    let sent = connection.ask(Kind::TakeAnswers, &request, Bytes::new()).await;
                    sent.map_err(|error| ClientError::from_packet(error, &self.0.address))?;
                    let LocalConnection { reader, writer } = connection;
                    TakenSource::Local { reader, _writer: writer }
                }
                Way::Grpc(remote) => {
                    let client = CameraBrokerClient::new(self.open_grpc(&remote.endpoint()).await?);
                    let mut client = client.max_decoding_message_size(GRPC_MESSAGE_BYTES_MAX);
                    let answers = client.take_answers(request).await;
                    let fault = |status| ClientError::from_status(&status, &self.0.address);
                    TakenSource::Grpc(answers.map_err(fault)?.into_inner())
                }
            };
            let mut answers = TakenAnswers { address: self.0.address.clone(), from };
            match answers.next().await {
                Ok(Some(first)) if first.answer.is_none() => Ok(answers),
                Ok(_) => Err(self.protocol("a stream of answers that does not begin with its start")),
                // A local broker that does not know this call.
                Err(ClientError::Refused(error)) if error.reason == "MALFORMED" => {
                    Err(self.protocol("a request for answers"))
                }
                Err(error) => Err(error),
            }
        };
        timeout(ANSWER_TIMEOUT, opened).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    async fn open_grpc(&self, endpoint: &Endpoint) -> Result<Channel, ClientError> {
        let channel = endpoint.connect().await;
        channel.map_err(|error| ClientError::from_transport(&error, &self.0.address))
    }

    fn timed_out(&self) -> ClientError {
        ClientError::TimedOut { address: self.0.address.clone(), seconds: ANSWER_TIMEOUT.as_secs() }
    }

    pub(super) fn protocol(&self, what: &str) -> ClientError {
        ClientError::Protocol { address: self.0.address.clone(), what: what.into() }
    }
}
