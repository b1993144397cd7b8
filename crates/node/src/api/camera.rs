//! Answers requests to a camera broker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mez_core::name::CameraName;
use mez_core::rights::Bearer;
use mez_core::setting::Setting;
use mez_core::units::Instant;
use tokio::sync::{Notify, watch};
use tonic::Code;

use super::answers::{AnswerFeed, Taker};
use super::connect::answer_connect;
use super::feed::Feed;
use super::pb::publish_event::Event;
use super::principal::Principal;
use super::request::{Subscribe, parse_camera, published};
use super::source::{CameraLog, Source};
use super::subscriptions::Subscriptions;
use super::{ApiError, ApiLimits, pb};
use crate::camera::{CameraHandle, SourceNews};
use crate::clock::{monotonic_now, wall_now};
use crate::stills::{Helpers, Stills};

/// The most unread answers for a publisher. Beyond that, the oldest is dropped.
const PUBLISH_EVENTS_MAX: usize = 1024;

/// The interface of a camera broker, for gRPC and the local protocol. Cheap to clone.
#[derive(Clone)]
pub struct CameraApi {
    pub(super) camera: CameraHandle,
    /// Makes stills of the camera's frames, for readers that do not decode chains.
    stills: Arc<Stills>,
    subscriptions: Arc<Subscriptions>,
    taker: Taker,
    pub(super) stopping: watch::Receiver<bool>,
}

impl CameraApi {
    pub(super) fn new(camera: CameraHandle, limits: ApiLimits, stopping: watch::Receiver<bool>) -> Self {
        // A source's next keyframe comes by itself, so nothing requests it.
        let stills =
            Stills::new(camera.name().clone(), camera.log(), Helpers::only(camera.decoders()), || {});
        let (subscriptions, taker) = (Subscriptions::new(limits), Taker::default());
        Self { camera, stills, subscriptions, taker, stopping }
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
        let cameras = vec![self.camera.name().to_string()];
        answer_connect(request, received, cameras, self.camera.frame_bytes_max())
    }

    /// Subscribes to the camera's own log.
    pub fn subscribe(&self, principal: &Principal, request: pb::SubscribeRequest) -> Result<Feed, ApiError> {
        let subscribe = Subscribe::parse(request, wall_now())?;
        if subscribe.group.is_some() {
            let message = "a camera broker has no groups; connect to the edge broker";
            return Err(ApiError::invalid("group", "NOT_HERE", message));
        }
        let name = self.camera.name();
        may_read(principal, name)?;
        if subscribe.spec.past.quality.is_some_and(|quality| quality != Setting::ORIGINAL) {
            let message = "a camera broker gives frames only as they were published; ask the edge broker for other qualities";
            return Err(ApiError::invalid("quality", "INVALID_QUALITY", message));
        }
        let place = self.subscriptions.enter(principal)?;
        let matches = subscribe.spec.cameras.matches(name);
        let log = matches.then(|| (name.clone(), self.camera.log()));
        let cameras = matches.then(|| name.to_string()).into_iter().collect();
        let (places, appended) = (self.camera.past(), self.camera.appended());
        let source = CameraLog::new(&subscribe.spec, (log, Arc::clone(&self.stills)), places, appended);
        // A principal that was admitted here may read the whole log: a camera has no grants.
        let source = (Source::Camera(Box::new(source)), None);
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

    /// Begins to take the camera's answers. Whoever may publish may do that: the socket's permissions decide, as for [`CameraApi::publish`].
    pub(crate) fn take_answers(
        &self,
        principal: &Principal,
        request: &pb::TakeAnswersRequest,
    ) -> Result<AnswerFeed, ApiError> {
        self.check_camera(&request.camera)?;
        if request.bound_ns == 0 {
            let message = "the maximum age of an answer is 0; give nanoseconds above 0";
            return Err(ApiError::invalid("bound_ns", "INVALID_BOUND", message));
        }
        let bound = Duration::from_nanos(request.bound_ns);
        let (who, lending) = ((&self.taker, principal), self.subscriptions.lending());
        AnswerFeed::begin(&self.camera, bound, who, lending, self.stopping.clone())
    }

    /// Takes in frames until `next` has no more, and puts the answers into `answers`. Continues
    /// to read even if the answers are not taken, so it also serves a publisher that only writes.
    pub async fn publish<N>(&self, mut next: N, answers: &PublishAnswers)
    where
        N: PublishRequests,
    {
        let mut stopping = self.stopping.clone();
        let mut is_open = false;
        let work = async {
            let Some(first) = next.next().await else { return Ok(()) };
            let first = first?;
            self.check_camera(&first.camera)?;
            answers.push(Event::Started(pb::PublishStarted { camera: self.camera.name().to_string() }));
            is_open = true;
            let mut over = first.last;
            if first.payload.is_empty() {
                self.hear_loss(first.source_lost);
            } else {
                answers.push(self.take_in(first));
            }
            let frames = async {
                while !over && let Some(request) = next.next().await {
                    let request = request?;
                    self.check_camera(&request.camera)?;
                    over = request.last;
                    if !request.source_lost.is_empty() {
                        self.hear_loss(request.source_lost);
                    } else if !request.last {
                        answers.push(self.take_in(request));
                    }
                }
                Ok(())
            };
            tokio::select! {
                ended = frames => ended,
                never = self.pass_on_replies(answers) => match never {},
            }
        };
        let result = tokio::select! {
            result = work => Some(result),
            _ = stopping.wait_for(|stop| *stop) => None,
        };
        if let Some(result) = result.as_ref().filter(|_| is_open) {
            match loss_after(result, next.has_ended()) {
                Some(reason) => self.camera.tell_source(SourceNews::Lost { reason, retry: None }),
                None => self.camera.end_source(),
            }
        }
        answers.finish(result.unwrap_or_else(|| Err(ApiError::stopping())));
    }

    /// The publisher reports why its source gives no frames. Ignored if `reason` is empty.
    fn hear_loss(&self, reason: String) {
        if !reason.is_empty() {
            self.camera.tell_source(SourceNews::Lost { reason, retry: None });
        }
    }

    fn take_in(&self, request: pb::PublishRequest) -> Event {
        let (number, arrived) = (request.number, monotonic_now());
        if request.await_on_disk.is_some() {
            let message = "a camera broker confirms no frames on disk; only an edge confirms records of derived streams";
            let error = ApiError::invalid("await_on_disk", "NOT_HERE", message);
            return Event::OnDisk(pb::OnDisk { number, error: Some(error.into()) });
        }
        let accepted = published(request)
            .and_then(|(frame, had)| Ok(self.camera.publish_at(had.unwrap_or(arrived), frame)?));
        match accepted {
            Ok(id) => Event::Accepted(pb::Accepted { number, epoch: id.epoch.0, sequence: id.sequence.0 }),
            Err(error) => Event::Refused(pb::Refused { number, error: Some(error.into()) }),
        }
    }

    fn check_camera(&self, camera: &str) -> Result<(), ApiError> {
        let ours = self.camera.name();
        if camera.is_empty() || camera == ours.as_str() {
            return Ok(());
        }
        let camera: CameraName = parse_camera(camera)?;
        Err(ApiError::new(
            Code::NotFound,
            "UNKNOWN_CAMERA",
            format!("this broker publishes camera {ours}, not {camera}; use that name, or leave it out"),
        )
        .at("camera"))
    }

    /// Forwards replies to the publisher. If two programs publish at once, each reply goes to only one of them.
    async fn pass_on_replies(&self, answers: &PublishAnswers) -> std::convert::Infallible {
        loop {
            let reply = self.camera.next_reply().await;
            answers.push(Event::Reply(pb::Reply {
                epoch: reply.frame.epoch.0,
                sequence: reply.frame.sequence.0,
                application: reply.application,
                content: Some(reply.content.into_reply()),
            }));
        }
    }
}

/// Checks whether a principal may read a camera's own log. The permissions of the socket control who may publish.
/// Only the user that the broker runs as, and root, may read frames here. All others need a grant at the edge.
fn may_read(principal: &Principal, camera: &CameraName) -> Result<(), ApiError> {
    let who = principal.bearer();
    if who == Bearer::Owner {
        return Ok(());
    }
    let message = format!(
        "{who} may publish at the camera broker of {camera}, but not read: only root and the user that the broker runs as may read there; \
         subscribe at the edge, which checks grants"
    );
    Err(ApiError::new(Code::PermissionDenied, "PERMISSION_DENIED", message))
}

/// The requests of a publisher.
pub trait PublishRequests: Send {
    /// The next request. `None` after the last.
    fn next(&mut self) -> impl Future<Output = Option<Result<pb::PublishRequest, ApiError>>> + Send;

    /// Whether the publisher said that nothing follows. Called after the last request.
    fn has_ended(&self) -> bool;
}

/// Why the source of a publisher is lost when its stream ends. `None`: the publisher ended normally.
pub(super) fn loss_after(result: &Result<(), ApiError>, has_ended: bool) -> Option<String> {
    match result {
        Ok(()) if has_ended => None,
        Ok(()) => Some("the publisher disconnected without closing its stream".to_owned()),
        Err(error) => Some(format!("the publisher's stream failed: {}", error.message)),
    }
}

/// The answers that a publisher has not read yet. The newest are kept.
#[derive(Debug, Default)]
pub struct PublishAnswers {
    state: Mutex<Answers>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Answers {
    events: VecDeque<Event>,
    /// How the stream ended. Set after the last event.
    result: Option<Result<(), ApiError>>,
}

impl PublishAnswers {
    pub(super) fn push(&self, event: Event) {
        let mut state = self.lock();
        if state.events.len() == PUBLISH_EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(event);
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn finish(&self, result: Result<(), ApiError>) {
        self.lock().result = Some(result);
        self.changed.notify_one();
    }

    /// The next answer. After the last one comes the error or `None`. Cancel safe.
    pub async fn next(&self) -> Option<Result<Event, ApiError>> {
        loop {
            {
                let mut state = self.lock();
                if let Some(event) = state.events.pop_front() {
                    return Some(Ok(event));
                }
                if let Some(result) = &mut state.result {
                    // An error is returned only once.
                    return std::mem::replace(result, Ok(())).err().map(Err);
                }
            }
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        // Each statement leaves the answers consistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users of the socket's group may publish, but not read frames.
    #[test]
    fn other_users_publish_at_a_cameras_socket_and_read_nothing() {
        let own = rustix::process::geteuid().as_raw();
        let camera = "dock/cam1".parse().unwrap();
        for uid in [0, own] {
            assert_eq!(may_read(&Principal::User { uid }, &camera), Ok(()));
        }
        let refused = may_read(&Principal::User { uid: own.wrapping_add(4_711) }, &camera).unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (Code::PermissionDenied, "PERMISSION_DENIED"));
        assert!(refused.message.contains("subscribe at the edge"), "{refused}");
    }
}
