//! Handles requests to an edge broker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mez_core::broker::edge::{AnswerError, CameraInfo, ForgetError, ReplyError};
use mez_core::contract::Contract;
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::rights::Verb;
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::Instant;
use tokio::sync::watch;
use tonic::Code;

use super::access::Access;
use super::connect::answer_connect;
use super::contract::Profile;
use super::feed::Feed;
use super::page::Page;
use super::principal::Principal;
use super::request::{Subscribe, application, given_answer, measured, parse_camera, parse_pattern, taken};
use super::source::Source;
use super::subscriptions::Subscriptions;
use super::{ApiError, ApiLimits, contract, convert, pb};
use crate::clock::wall_now;
use crate::edge::{
    AnswerFailure, EdgeHandle, ForgetFailure, ForgetReport, ReplyFailure, ResetFailure, Stopped,
};
use crate::profile::ReadProfileError;
use crate::profiles::{HeldProfile, ProfileStoreError};
use crate::reply::ReplyContent;
use crate::rights::LiveRights;

/// The interface of an edge broker, for gRPC and the local protocol. Cheap to clone.
#[derive(Clone)]
pub struct EdgeApi {
    pub(super) edge: EdgeHandle,
    pub(super) access: Access,
    subscriptions: Arc<Subscriptions>,
    pub(super) stopping: watch::Receiver<bool>,
    /// The page, once it is served.
    pub(crate) page: Page,
}

impl EdgeApi {
    pub(super) fn new(
        edge: EdgeHandle,
        rights: LiveRights,
        limits: ApiLimits,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let access = Access::new(rights, edge.revoked().clone(), edge.audit().clone());
        Self { edge, access, subscriptions: Subscriptions::new(limits), stopping, page: Page::default() }
    }

    pub(super) fn set_limits(&self, limits: ApiLimits) {
        self.subscriptions.set_limits(limits);
    }

    /// Agrees on a version. `received`: when the request arrived.
    pub fn connect(
        &self,
        request: &pb::ConnectRequest,
        received: Instant,
    ) -> Result<pb::ConnectResponse, ApiError> {
        answer_connect(request, received, Vec::new(), self.edge.frame_bytes_max())
    }

    /// What the edge knows about the cameras that the principal may observe.
    pub async fn camera_info(
        &self,
        principal: &Principal,
        request: pb::GetCameraInfoRequest,
    ) -> Result<pb::GetCameraInfoResponse, ApiError> {
        let all = request.pattern.is_empty();
        let pattern = parse_pattern(if all { "**" } else { &request.pattern })?;
        let mut cameras = self.edge.cameras().await?;
        // Checked after the broker has answered, because rights may have changed meanwhile.
        let granted = self.access.select(principal, Verb::Observe, &pattern)?;
        cameras.retain(|info| pattern.matches(&info.camera) && granted.allows(&info.camera));
        let cameras = cameras.into_iter().map(|info| {
            let disk = self.edge.log_on_disk(&info.camera);
            let standings = self.edge.standings(&info.camera);
            convert::camera_info(info, disk, standings)
        });
        Ok(pb::GetCameraInfoResponse { cameras: cameras.collect() })
    }

    /// Subscribes.
    pub async fn subscribe(
        &self,
        principal: &Principal,
        request: pb::SubscribeRequest,
    ) -> Result<Feed, ApiError> {
        let subscribe = Subscribe::parse(request, wall_now())?;
        self.open(principal, subscribe, None).await
    }

    /// Opens a subscription. `own`: the profile to use if the request names none.
    pub(super) async fn open(
        &self,
        principal: &Principal,
        mut subscribe: Subscribe,
        own: Option<Arc<HeldProfile>>,
    ) -> Result<Feed, ApiError> {
        let mut access = self.access.subscribe(principal, &subscribe, wall_now())?;
        subscribe.spec.granted = access.granted().clone();
        let place = self.subscriptions.enter(principal)?;
        place.control.originals.store(subscribe.spec.wants_originals(), Ordering::Relaxed);
        let profile = self.profile(subscribe.profile.clone()).await?.or(own);
        let cameras = self.matching(&subscribe.spec, profile.as_deref()).await?;
        let mut spec = subscribe.spec.clone();
        spec.contract.profile = profile.as_ref().map(|held| held.sha256);
        if spec.application.is_empty() {
            spec.application = principal.name();
        }
        let source = match &subscribe.group {
            Some(group) => {
                place.control.is_of_group.store(true, Ordering::Relaxed);
                let (key, asks) = group.of(principal.bearer(), &spec)?;
                Source::group(&self.edge, group, (key, asks), (spec, profile)).await?
            }
            None => Source::Edge(Box::new(self.edge.subscribe_as(spec, profile).await?)),
        };
        access.begins(&cameras);
        let SubscriptionSpec { application, cameras: pattern, .. } = &subscribe.spec;
        tracing::info!(%principal, application, %pattern, "subscribed");
        let source = (source, Some(access));
        let cameras = cameras.iter().map(ToString::to_string).collect();
        Ok(Feed::new(source, place, &subscribe, cameras, self.stopping.clone()))
    }

    /// Ends a subscription that belongs to the same principal.
    pub fn unsubscribe(
        &self,
        principal: &Principal,
        request: &pb::UnsubscribeRequest,
    ) -> Result<pb::UnsubscribeResponse, ApiError> {
        self.subscriptions.unsubscribe(principal, request.subscription_id)?;
        Ok(pb::UnsubscribeResponse {})
    }

    /// Changes the contract of a live subscription that belongs to the same principal.
    pub async fn update_contract(
        &self,
        principal: &Principal,
        request: pb::UpdateContractRequest,
    ) -> Result<pb::UpdateContractResponse, ApiError> {
        let id = request.subscription_id;
        let (contract, profile) = contract::parse(request.contract)?;
        let brings = matches!(profile, Some(Profile::Inline(_)));
        let profile = self.profile(profile).await?;
        let contract = Contract { profile: profile.as_ref().map(|held| held.sha256), ..contract };
        self.subscriptions.update(principal, id, (contract, profile), brings)?;
        Ok(pb::UpdateContractResponse {})
    }

    /// Takes in a report of how accurate an application's own result on a frame was.
    pub fn report_accuracy(
        &self,
        principal: &Principal,
        request: &pb::ReportAccuracyRequest,
    ) -> Result<pb::ReportAccuracyResponse, ApiError> {
        let measured = measured(request)?;
        self.subscriptions.measured(principal, request.subscription_id, measured)?;
        Ok(pb::ReportAccuracyResponse {})
    }

    /// Takes in a report of when an application took frames.
    pub fn report_taken(
        &self,
        principal: &Principal,
        request: &pb::ReportTakenRequest,
    ) -> Result<pb::ReportTakenResponse, ApiError> {
        self.subscriptions.taken(principal, request.subscription_id, taken(request)?)?;
        Ok(pb::ReportTakenResponse {})
    }

    /// Notes that a subscription of the same principal cannot decode its chain any further.
    pub fn restart_chain(
        &self,
        principal: &Principal,
        request: &pb::RestartChainRequest,
    ) -> Result<pb::RestartChainResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        self.subscriptions.restart_chain(principal, request.subscription_id, camera)?;
        Ok(pb::RestartChainResponse {})
    }

    /// Loads the requested profile.
    pub(super) async fn profile(&self, asked: Option<Profile>) -> Result<Option<Arc<HeldProfile>>, ApiError> {
        let Some(asked) = asked else { return Ok(None) };
        let (field, store) = (asked.field(), Arc::clone(self.edge.profiles()));
        // Parsing a megabyte of JSON takes a while, and so may a disk.
        let read = tokio::task::spawn_blocking(move || match asked {
            Profile::Inline(bytes) => store.take_in(bytes),
            Profile::Name(name) => store.named(&name),
        });
        let read = read.await.map_err(|_| ApiError::stopping())?;
        read.map(Some).map_err(|error| {
            let (code, reason) = match &error {
                ProfileStoreError::Unknown { .. } | ProfileStoreError::Name { .. } => {
                    (Code::InvalidArgument, "UNKNOWN_PROFILE")
                }
                ProfileStoreError::Read(ReadProfileError::TooLarge { .. }) => {
                    (Code::InvalidArgument, "PROFILE_TOO_LARGE")
                }
                ProfileStoreError::Full => (Code::ResourceExhausted, "TOO_MANY_PROFILES"),
                ProfileStoreError::System { .. } => (Code::Internal, "PROFILE_UNREADABLE"),
                _ => (Code::InvalidArgument, "INVALID_PROFILE"),
            };
            ApiError::new(code, reason, error.to_string()).at(field)
        })
    }

    /// Forwards a reply to the camera.
    pub async fn reply(
        &self,
        principal: &Principal,
        mut request: pb::ReplyRequest,
    ) -> Result<pb::ReplyResponse, ApiError> {
        let content = ReplyContent::parse(&mut request)?;
        let camera = parse_camera(&request.camera)?;
        self.access.check(principal, Verb::Reply, &camera)?;
        let frame = FrameId { epoch: Epoch(request.epoch), sequence: Sequence(request.sequence) };
        let mut application = application(request.application)?;
        if application.is_empty() {
            application = principal.name();
        }
        self.edge.reply(camera, frame, application, content).await?;
        Ok(pb::ReplyResponse {})
    }

    /// Forwards an answer, a picture made of a frame or what is to be drawn over it, to the frame's camera.
    pub async fn answer(
        &self,
        principal: &Principal,
        request: pb::AnswerRequest,
    ) -> Result<pb::AnswerResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        self.access.check(principal, Verb::Reply, &camera)?;
        let frame = FrameId { epoch: Epoch(request.epoch), sequence: Sequence(request.sequence) };
        let room = self.edge.answer(camera, frame, given_answer(request)?).await?;
        let bound_ns = room.bound.map_or(0, |bound| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX));
        Ok(pb::AnswerResponse { bound_ns, bytes_max: room.bytes })
    }

    /// The starts of a camera, with their certificates.
    pub async fn camera_starts(
        &self,
        principal: &Principal,
        request: pb::GetCameraStartsRequest,
    ) -> Result<pb::GetCameraStartsResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        self.access.check(principal, Verb::Observe, &camera)?;
        Ok(convert::camera_starts(self.edge.record(&camera).await))
    }

    /// Forgets a camera's starts, and puts its log aside. Only users of the edge's host may do this, with the right `operate` for the camera.
    pub async fn reset_camera(
        &self,
        principal: &Principal,
        request: pb::ResetCameraRequest,
    ) -> Result<pb::ResetCameraResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        let uid = self.access.check_user(principal, (Verb::Operate, "reset"), &camera)?;
        let done = self.edge.reset(camera.clone(), uid).await;
        self.access.operated(principal, "reset", &camera, done.as_ref().err().map(ToString::to_string));
        let report = done?;
        let put_aside = report.put_aside.map(|folder| folder.display().to_string()).unwrap_or_default();
        let forgotten = report.forgotten;
        Ok(pb::ResetCameraResponse {
            epoch: forgotten.as_ref().map(|forgotten| forgotten.epoch.0),
            connected: forgotten.as_ref().is_some_and(|forgotten| forgotten.connected),
            identity: forgotten.map(|forgotten| forgotten.identity).unwrap_or_default(),
            put_aside,
        })
    }

    /// Forgets an absent camera. Only users of the edge's host may do this, with the right `operate` for the camera.
    pub async fn forget_camera(
        &self,
        principal: &Principal,
        request: pb::ForgetCameraRequest,
    ) -> Result<pb::ForgetCameraResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        self.access.check_user(principal, (Verb::Operate, "forgotten"), &camera)?;
        let done = self.edge.forget(camera.clone()).await;
        self.access.operated(principal, "forget", &camera, done.as_ref().err().map(ToString::to_string));
        let ForgetReport { forgotten, put_aside } = done?;
        Ok(pb::ForgetCameraResponse {
            epoch: forgotten.epoch.0,
            identity: forgotten.identity,
            put_aside: put_aside.map(|folder| folder.display().to_string()).unwrap_or_default(),
        })
    }

    /// The matching cameras. Refuses a profile whose frame size fits none of them, as far as their sizes are known.
    async fn matching(
        &self,
        spec: &SubscriptionSpec,
        profile: Option<&HeldProfile>,
    ) -> Result<Vec<CameraName>, ApiError> {
        let mut cameras = self.edge.cameras().await?;
        cameras.retain(|info| spec.selects(&info.camera));
        if let Some(held) = profile {
            let size = |info: &CameraInfo| (info.status.width, info.status.height);
            let unknown = |info: &CameraInfo| size(info) == (0, 0);
            let serves = cameras.iter().any(|info| unknown(info) || size(info) == held.profile.size);
            if let (false, Some(first)) = (serves, cameras.first()) {
                let ((width, height), (is_width, is_height)) = (held.profile.size, size(first));
                return Err(ApiError::new(
                    Code::FailedPrecondition,
                    "PROFILE_SIZE",
                    format!(
                        "the profile was made with frames of {width}x{height}, and those of camera {} have \
                         {is_width}x{is_height}; profile this camera",
                        first.camera
                    ),
                )
                .at("profile"));
            }
        }
        Ok(cameras.into_iter().map(|info| info.camera).collect())
    }
}

impl From<Stopped> for ApiError {
    fn from(_: Stopped) -> Self {
        Self::stopping()
    }
}

impl From<ResetFailure> for ApiError {
    fn from(failure: ResetFailure) -> Self {
        match failure {
            ResetFailure::Stopped(stopped) => stopped.into(),
            ResetFailure::PutAside(_) => {
                Self::new(Code::FailedPrecondition, "LOG_NOT_PUT_ASIDE", failure.to_string())
            }
            ResetFailure::Record(_) => {
                Self::new(Code::FailedPrecondition, "RESET_NOT_RECORDED", failure.to_string())
            }
        }
    }
}

impl From<ForgetFailure> for ApiError {
    fn from(failure: ForgetFailure) -> Self {
        let message = failure.to_string();
        match failure {
            ForgetFailure::Stopped(stopped) => stopped.into(),
            ForgetFailure::Refused(ForgetError::Unknown { .. }) => {
                Self::new(Code::NotFound, "UNKNOWN_CAMERA", message).at("camera")
            }
            ForgetFailure::Refused(ForgetError::Connected { .. }) => {
                Self::new(Code::FailedPrecondition, "CAMERA_CONNECTED", message).at("camera")
            }
            ForgetFailure::PutAside(_) => Self::new(Code::FailedPrecondition, "LOG_NOT_PUT_ASIDE", message),
        }
    }
}

impl From<AnswerFailure> for ApiError {
    fn from(failure: AnswerFailure) -> Self {
        let message = failure.to_string();
        match failure {
            AnswerFailure::Stopped(stopped) => stopped.into(),
            AnswerFailure::Refused(AnswerError::UnknownCamera { .. }) => {
                Self::new(Code::NotFound, "UNKNOWN_CAMERA", message).at("camera")
            }
            AnswerFailure::Refused(AnswerError::UnknownFrame { .. }) => {
                Self::new(Code::NotFound, "UNKNOWN_FRAME", message).at("sequence")
            }
            AnswerFailure::Refused(AnswerError::NotConnected { .. }) => {
                Self::new(Code::FailedPrecondition, "CAMERA_NOT_CONNECTED", message).at("camera")
            }
            AnswerFailure::Refused(AnswerError::IsDerived { .. }) => {
                Self::new(Code::FailedPrecondition, "IS_DERIVED", message).at("camera")
            }
            AnswerFailure::Refused(AnswerError::TooLarge { .. }) => {
                Self::invalid("payload", "ANSWER_TOO_LARGE", message)
            }
        }
    }
}

impl From<ReplyFailure> for ApiError {
    fn from(failure: ReplyFailure) -> Self {
        let message = failure.to_string();
        match failure {
            ReplyFailure::Stopped(stopped) => stopped.into(),
            ReplyFailure::Refused(ReplyError::UnknownCamera { .. }) => {
                Self::new(Code::NotFound, "UNKNOWN_CAMERA", message).at("camera")
            }
            ReplyFailure::Refused(ReplyError::NotConnected { .. }) => {
                Self::new(Code::FailedPrecondition, "CAMERA_NOT_CONNECTED", message).at("camera")
            }
            ReplyFailure::Refused(ReplyError::IsDerived { .. }) => {
                Self::new(Code::FailedPrecondition, "IS_DERIVED", message).at("camera")
            }
            ReplyFailure::Refused(ReplyError::TooLarge { .. }) => {
                Self::invalid("content", "REPLY_TOO_LARGE", message)
            }
        }
    }
}
