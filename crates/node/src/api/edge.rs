//! What an edge broker answers.

use std::sync::Arc;

use mez_core::broker::edge::ReplyError;
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::CameraPattern;
use mez_core::units::Instant;
use tokio::sync::watch;
use tonic::Code;

use super::connect::answer_connect;
use super::feed::{Feed, Source, Subscriptions};
use super::principal::Principal;
use super::request::{Subscribe, application, parse_camera, parse_pattern};
use super::{ApiError, ApiLimits, convert, pb};
use crate::clock::wall_now;
use crate::edge::{EdgeHandle, ReplyFailure, Stopped};

/// The interface of an edge broker, for every way in. Cheap to clone.
#[derive(Clone)]
pub struct EdgeApi {
    pub(super) edge: EdgeHandle,
    subscriptions: Arc<Subscriptions>,
    pub(super) stopping: watch::Receiver<bool>,
}

impl EdgeApi {
    pub(super) fn new(edge: EdgeHandle, limits: ApiLimits, stopping: watch::Receiver<bool>) -> Self {
        Self { edge, subscriptions: Subscriptions::new(limits.subscriptions_max), stopping }
    }

    /// Agrees on a version. `received` is when the request came.
    pub fn connect(
        &self,
        request: &pb::ConnectRequest,
        received: Instant,
    ) -> Result<pb::ConnectResponse, ApiError> {
        answer_connect(request, received, Vec::new(), self.edge.frame_bytes_max())
    }

    /// What is known of the cameras.
    pub async fn camera_info(
        &self,
        request: pb::GetCameraInfoRequest,
    ) -> Result<pb::GetCameraInfoResponse, ApiError> {
        let all = request.pattern.is_empty();
        let pattern = parse_pattern(if all { "**" } else { &request.pattern })?;
        let cameras = self.edge.cameras().await?.into_iter().filter(|info| pattern.matches(&info.camera));
        let cameras = cameras.map(|info| {
            let disk = self.edge.log_on_disk(&info.camera);
            convert::camera_info(info, disk)
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
        let place = self.subscriptions.enter(principal)?;
        let Subscribe { pattern, contract, span, .. } = &subscribe;
        let cameras = self.matching(pattern).await?;
        let subscription = self.edge.subscribe(pattern.clone(), contract.clone(), *span).await?;
        tracing::info!(%principal, application = subscribe.application, %pattern, "subscribed");
        Ok(Feed::new(Source::Edge(subscription), place, &subscribe, cameras, self.stopping.clone()))
    }

    /// Ends a subscription of the same principal.
    pub fn unsubscribe(
        &self,
        principal: &Principal,
        request: &pb::UnsubscribeRequest,
    ) -> Result<pb::UnsubscribeResponse, ApiError> {
        self.subscriptions.unsubscribe(principal, request.subscription_id)?;
        Ok(pb::UnsubscribeResponse {})
    }

    /// Passes a result on to the camera.
    pub async fn reply(
        &self,
        principal: &Principal,
        request: pb::ReplyRequest,
    ) -> Result<pb::ReplyResponse, ApiError> {
        let camera = parse_camera(&request.camera)?;
        let frame = FrameId { epoch: Epoch(request.epoch), sequence: Sequence(request.sequence) };
        let mut application = application(request.application)?;
        if application.is_empty() {
            application = principal.name();
        }
        self.edge.reply(camera, frame, application, request.payload).await?;
        Ok(pb::ReplyResponse {})
    }

    async fn matching(&self, pattern: &CameraPattern) -> Result<Vec<String>, ApiError> {
        let cameras = self.edge.cameras().await?.into_iter().map(|info| info.camera);
        Ok(cameras.filter(|camera| pattern.matches(camera)).map(|camera| camera.to_string()).collect())
    }
}

impl From<Stopped> for ApiError {
    fn from(_: Stopped) -> Self {
        Self::stopping()
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
            ReplyFailure::Refused(ReplyError::TooLarge { .. }) => {
                Self::invalid("payload", "REPLY_TOO_LARGE", message)
            }
        }
    }
}
