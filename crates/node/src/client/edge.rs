//! A program's connection to an edge broker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::Room;
use mez_core::frame::FrameId;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::units::Timestamp;
use mez_core::wire::REPLY_BYTES_MAX;
use prost::Message as _;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::address::Address;
use super::answers::{AnswerContent, AnswerCounts, AnswerError, Answers, send_answers};
use super::dial::Dialler;
use super::edges::Edges;
use super::error::ClientError;
use super::frame::CameraSummary;
use super::groups::GroupSummary;
use super::renewals::Calls;
use super::starts::{CameraStarts, ForgottenCamera, ResetCamera};
use super::subscription::{SubscribeOptions, Subscription};
use super::{OwnedTask, persist};
use crate::api::pb::reply_request::Content;
use crate::api::{ApiError, pb};
use crate::identity::Credentials;
use crate::identity::renew::keep;
use crate::notes::{Note, NoteId};
use crate::reply::Detections;

/// The most replies that wait to be sent. Beyond that, the oldest is dropped.
const REPLIES_MAX: usize = 64;
/// The most replies that are in flight to a remote broker. At a round trip of 140 ms, this allows 228 per second.
const REPLIES_IN_FLIGHT_MAX: usize = 32;
/// The most cameras for which a refused reply is remembered.
const REFUSALS_MAX: usize = 256;
/// How many times the clocks are compared in quick succession, after connecting and after the comparison was forgotten.
const COMPARISONS_AT_FIRST: usize = 5;
/// The pause between two comparisons of the first burst.
const COMPARISON_PAUSE: Duration = Duration::from_millis(20);
/// How often the clocks are compared after the first burst. Clocks drift by up to 0.1 ms per second.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(5);

/// Options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The program's name, for people, at most 128 bytes. Default: none, and the broker uses the program's identity.
    pub application: String,
    /// How long to retry the first connection. Default 5 s. A permanent failure,
    /// such as a certificate that one side does not accept, is an error at once.
    pub patience: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { application: String::new(), patience: Duration::from_secs(5) }
    }
}

/// A link that signs in to an edge's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLink {
    /// The link. The first browser that opens it is signed in.
    pub link: String,
    /// When the link expires, by the edge's clock.
    pub link_ends: Timestamp,
    /// The latest time at which the browser's session ends.
    pub session_ends: Timestamp,
    /// The identity of the session, in the form of grants.
    pub identity: String,
    /// SHA-256 of the edge's certificate.
    pub certificate_sha256: Vec<u8>,
}

/// A program's connection to an edge broker. Cheap to clone. Dropping the last clone closes it.
#[derive(Clone)]
pub struct EdgeClient(Arc<Inner>);

struct Inner {
    edges: Edges,
    application: String,
    broker: String,
    replies: Arc<Replies>,
    answers: Arc<Answers>,
    /// Requests a new comparison of the clocks.
    compare: Arc<Notify>,
    _tasks: Vec<OwnedTask>,
}

impl EdgeClient {
    /// Connects to the first edge broker of `addresses` that answers. The addresses are in order of preference, and
    /// all belong to one site. Subscriptions move to another edge if this one is gone. They also move if none of
    /// their cameras is connected here and one is connected there. `credentials` are needed except for a Unix socket.
    ///
    /// # Panics
    ///
    /// If `addresses` is empty.
    pub async fn connect(
        addresses: Vec<Address>,
        credentials: Option<&Credentials>,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let edges = Edges::new(addresses, credentials)?;
        let answer = persist(options.patience, async || edges.connect().await).await?;
        let (replies, answers) = (Arc::<Replies>::default(), Arc::<Answers>::default());
        let compare = Arc::new(Notify::new());
        let reachable = watch::Sender::new(true);
        let calls = Calls::new(edges.clone(), reachable.subscribe());
        let mut tasks = vec![
            OwnedTask::spawn(send_replies(edges.clone(), Arc::clone(&replies))),
            OwnedTask::spawn(send_answers(edges.clone(), Arc::clone(&answers))),
            OwnedTask::spawn(compare_clocks(edges.clone(), Arc::clone(&compare), reachable)),
        ];
        if let Some(credentials) = credentials.filter(|_| edges.any_remote()) {
            tasks.push(OwnedTask::spawn(keep(credentials.clone(), calls)));
        }
        Ok(Self(Arc::new(Inner {
            edges,
            application: options.application,
            broker: answer.software,
            replies,
            answers,
            compare,
            _tasks: tasks,
        })))
    }

    /// The address of the broker in use.
    pub fn address(&self) -> &Address {
        self.0.edges.current().address()
    }

    /// The broker's software, for people.
    pub fn broker(&self) -> &str {
        &self.0.broker
    }

    /// What the edge knows about the matching cameras, sorted by name.
    pub async fn cameras(&self, pattern: Option<&CameraPattern>) -> Result<Vec<CameraSummary>, ClientError> {
        let pattern = pattern.map(ToString::to_string).unwrap_or_default();
        let edge = self.0.edges.current();
        summaries(edge, edge.camera_info(pattern).await?)
    }

    /// Like [`Self::cameras`], or `None` if this program may observe none of them. For lists that no user has requested: the edge logs no refusal.
    pub async fn observable(
        &self,
        pattern: Option<&CameraPattern>,
    ) -> Result<Option<Vec<CameraSummary>>, ClientError> {
        let pattern = pattern.map(ToString::to_string).unwrap_or_default();
        let edge = self.0.edges.current();
        edge.observable(pattern).await?.map(|answer| summaries(edge, answer)).transpose()
    }

    /// Notes of a camera that its edge took in within `begin..=end`, oldest first, after `after`: results of applications,
    /// and changes of contracts. The second value says whether there may be more: ask again, after the last note.
    pub async fn notes(
        &self,
        camera: &CameraName,
        (begin, end): (Option<Timestamp>, Option<Timestamp>),
        after: Option<NoteId>,
    ) -> Result<(Vec<Note>, bool), ClientError> {
        let request = pb::GetNotesRequest {
            camera: camera.to_string(),
            begin_utc_ns: begin.map(Timestamp::as_nanos),
            end_utc_ns: end.map(Timestamp::as_nanos),
            after: after.map(|id| pb::NoteId { series: id.epoch.0, number: id.sequence.0 }),
        };
        let edge = self.0.edges.current();
        let answer = edge.notes(request).await?;
        let notes = answer.notes.into_iter().map(Note::from_message).collect::<Result<_, _>>();
        Ok((notes.map_err(|error| edge.protocol(&error.to_string()))?, answer.more))
    }

    /// The starts of a camera, with their certificates, and its resets.
    pub async fn camera_starts(&self, camera: &CameraName) -> Result<CameraStarts, ClientError> {
        let answer = self.0.edges.current().camera_starts(camera.to_string()).await?;
        Ok(CameraStarts::from_message(answer))
    }

    /// Makes the edge forget a camera's starts and put its log aside, so that the edge
    /// accepts the camera's next start with any epoch. Works only on the edge's own host.
    pub async fn reset_camera(&self, camera: &CameraName) -> Result<ResetCamera, ClientError> {
        let answer = self.0.edges.current().reset_camera(camera.to_string()).await?;
        Ok(ResetCamera::from_message(answer))
    }

    /// Makes the edge forget an absent camera, and put its log aside. Works only on the edge's own host.
    pub async fn forget_camera(&self, camera: &CameraName) -> Result<ForgottenCamera, ClientError> {
        let answer = self.0.edges.current().forget_camera(camera.to_string()).await?;
        Ok(ForgottenCamera::from_message(answer))
    }

    /// A link that signs in to the edge's page once: as this user of the edge's host, or as an application such as `app/wall`.
    ///
    /// # Errors
    /// The edge has no page, or this program does not run as a user of the edge's host. Also all errors of a call.
    pub async fn open_page(&self, identity: Option<&str>) -> Result<PageLink, ClientError> {
        let request = pb::OpenPageRequest { identity: identity.unwrap_or_default().into() };
        let answer = self.0.edges.current().open_page(request).await?;
        Ok(PageLink {
            link: answer.link,
            link_ends: Timestamp::from_nanos(answer.link_ends_utc_ns),
            session_ends: Timestamp::from_nanos(answer.session_ends_utc_ns),
            identity: answer.identity,
            certificate_sha256: answer.certificate_sha256.to_vec(),
        })
    }

    /// The groups of this program's principal. The user that the edge runs as gets the groups of all principals.
    pub async fn groups(&self) -> Result<Vec<GroupSummary>, ClientError> {
        let edge = self.0.edges.current();
        let groups = edge.groups().await?.groups.into_iter().map(GroupSummary::from_message);
        groups.collect::<Result<_, _>>().map_err(|what| edge.protocol(what))
    }

    /// Makes the edge forget a group without members, and its place. `owner`: the owner as in [`GroupSummary::owner`], if it is not this program.
    pub async fn forget_group(&self, name: &str, owner: Option<&str>) -> Result<(), ClientError> {
        let request = pb::ForgetGroupRequest { name: name.into(), owner: owner.unwrap_or_default().into() };
        self.0.edges.current().forget_group(request).await.map(|_| ())
    }

    /// Subscribes. A refusal by the broker is an error of this call. Later events come from [`Subscription::next`].
    pub async fn subscribe(&self, options: SubscribeOptions) -> Result<Subscription, ClientError> {
        let Inner { edges, application, compare, .. } = &*self.0;
        Subscription::open(edges.clone(), options, application, Arc::clone(compare)).await
    }

    /// Sends a result for a frame to its camera, at most once. Works on any thread and does not
    /// wait. If replies cannot be sent fast enough, the oldest beyond 64 are dropped and counted.
    pub fn reply(&self, camera: &CameraName, frame: FrameId, payload: Bytes) -> Result<(), ReplyError> {
        if payload.len() > REPLY_BYTES_MAX {
            return Err(ReplyError { bytes: payload.len() });
        }
        let content = Some(Content::Payload(payload));
        self.put_reply(camera, frame, pb::ReplyRequest { content, ..Default::default() });
        Ok(())
    }

    /// Like [`EdgeClient::reply`], for detections in an image of the frame. The edge converts
    /// them to published pixels. `published`: width and height of the frame as it was published.
    pub fn reply_detections(
        &self,
        camera: &CameraName,
        frame: FrameId,
        published: (u32, u32),
        detections: Detections,
    ) -> Result<(), ReplyError> {
        let detections = detections.into_message();
        // The size after the conversion matters. The conversion changes only the encoded picture size.
        let (width, height) = published;
        let converted = pb::Detections { width, height, ..Default::default() }.encoded_len()
            + pb::Detections { width: 0, height: 0, ..detections.clone() }.encoded_len();
        if converted > REPLY_BYTES_MAX {
            return Err(ReplyError { bytes: converted });
        }
        let (published_width, published_height) = published;
        let content = Some(Content::Detections(detections));
        let request = pb::ReplyRequest { content, published_width, published_height, ..Default::default() };
        self.put_reply(camera, frame, request);
        Ok(())
    }

    fn put_reply(&self, camera: &CameraName, frame: FrameId, request: pb::ReplyRequest) {
        self.0.replies.put(pb::ReplyRequest {
            camera: camera.as_str().into(),
            epoch: frame.epoch.0,
            sequence: frame.sequence.0,
            application: self.0.application.clone(),
            ..request
        });
    }

    /// Why a reply to a camera was refused, if one lacked a grant since the last call. A refusal comes only after [`EdgeClient::reply`] has returned.
    pub fn refused_reply(&self, camera: &CameraName) -> Option<ApiError> {
        self.0.replies.refusals().remove(camera.as_str())
    }

    /// Sends a picture that was made of a frame, or what is to be drawn over the frame, to its camera. Works on any thread and does not wait.
    /// The newest answer wins: it replaces an answer to the same camera that has not been sent yet, which is counted.
    pub fn answer(
        &self,
        camera: &CameraName,
        frame: FrameId,
        answer: AnswerContent,
    ) -> Result<(), AnswerError> {
        self.0.answers.put(camera, frame, answer)
    }

    /// The limits for the next answer to a camera, as the edge last reported them. `None`: the edge has not reported them yet.
    pub fn answer_room(&self, camera: &CameraName) -> Option<Room> {
        self.0.answers.room(camera)
    }

    /// Why the edge takes no answers to a camera from this program, if it has refused one
    /// since the last call. A refusal comes only after [`EdgeClient::answer`] has returned.
    pub fn refused_answer(&self, camera: &CameraName) -> Option<ApiError> {
        self.0.answers.take_refusal(camera)
    }

    /// The counts of answers so far.
    pub fn answer_counts(&self) -> AnswerCounts {
        self.0.answers.counts()
    }

    /// The counts of replies so far.
    pub fn reply_counts(&self) -> ReplyCounts {
        self.0.replies.counts()
    }

    /// Waits until every reply so far was sent, was dropped or has failed.
    pub async fn flush_replies(&self) {
        self.0.replies.flushed().await;
    }
}

/// A reply is larger than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the reply has {bytes} bytes, more than the limit of {REPLY_BYTES_MAX}; send less, or send the data another way"
)]
pub struct ReplyError {
    /// The size of the reply.
    pub bytes: usize,
}

/// What happened to replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyCounts {
    /// Passed to [`EdgeClient::reply`].
    pub queued: u64,
    /// Accepted by the edge broker and forwarded to the camera's connection.
    pub sent: u64,
    /// Dropped because newer ones were waiting.
    pub dropped: u64,
    /// Refused, or lost with the connection.
    pub failed: u64,
}

#[derive(Default)]
struct Replies {
    waiting: Mutex<VecDeque<pb::ReplyRequest>>,
    changed: Notify,
    settled: Notify,
    queued: AtomicU64,
    sent: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    /// Refusals for lack of a grant that the program has not read yet, by camera.
    refused: Mutex<BTreeMap<String, ApiError>>,
}

impl Replies {
    /// Records why a reply did not reach its camera.
    fn note_failed(&self, camera: String, error: ClientError) {
        tracing::debug!(%error, "a reply did not reach its camera");
        if let ClientError::Refused(error) = error
            && error.code == tonic::Code::PermissionDenied
        {
            let mut refused = self.refusals();
            if refused.len() < REFUSALS_MAX || refused.contains_key(&camera) {
                refused.insert(camera, error);
            }
        }
    }

    fn refusals(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, ApiError>> {
        // Each statement leaves the map consistent, so a poisoned lock is safe to use.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, reply: pb::ReplyRequest) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.lock();
        if waiting.len() == REPLIES_MAX {
            waiting.pop_front();
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        waiting.push_back(reply);
        drop(waiting);
        self.changed.notify_one();
    }

    async fn take(&self) -> pb::ReplyRequest {
        loop {
            if let Some(reply) = self.lock().pop_front() {
                return reply;
            }
            self.changed.notified().await;
        }
    }

    fn counts(&self) -> ReplyCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read last, so that the parts never exceed the sum.
        let (sent, dropped, failed) = (count(&self.sent), count(&self.dropped), count(&self.failed));
        ReplyCounts { queued: count(&self.queued), sent, dropped, failed }
    }

    async fn flushed(&self) {
        loop {
            let settled = self.settled.notified();
            let counts = self.counts();
            if counts.sent + counts.dropped + counts.failed >= counts.queued {
                return;
            }
            // A reply that settles between the count and this line still wakes this task, because `settled` was created before.
            settled.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<pb::ReplyRequest>> {
        // Each statement leaves the queue consistent, so a poisoned lock is safe to use.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send_replies(edges: Edges, replies: Arc<Replies>) {
    // A local broker answers within microseconds, and one request at a time keeps the order.
    let in_flight_max = if edges.any_remote() { REPLIES_IN_FLIGHT_MAX } else { 1 };
    let mut in_flight = JoinSet::new();
    loop {
        let reply = replies.take().await;
        while in_flight.len() >= in_flight_max {
            in_flight.join_next().await;
        }
        while in_flight.try_join_next().is_some() {}
        let (dialler, replies) = (edges.current().clone(), Arc::clone(&replies));
        in_flight.spawn(async move {
            let camera = reply.camera.clone();
            let counter = match dialler.reply(reply).await {
                Ok(_) => &replies.sent,
                Err(error) => {
                    replies.note_failed(camera, error);
                    &replies.failed
                }
            };
            counter.fetch_add(1, Ordering::Relaxed);
            replies.settled.notify_waiters();
        });
    }
}

fn summaries(edge: &Dialler, answer: pb::GetCameraInfoResponse) -> Result<Vec<CameraSummary>, ClientError> {
    let cameras = answer.cameras.into_iter().map(CameraSummary::from_message);
    cameras.collect::<Result<_, _>>().map_err(|what| edge.protocol(what))
}

async fn compare_clocks(edges: Edges, compare: Arc<Notify>, reachable: watch::Sender<bool>) {
    if !edges.any_remote() {
        return;
    }
    loop {
        for _ in 0..COMPARISONS_AT_FIRST {
            // Failures are reported by the calls and subscriptions of the program.
            let _ = edges.current().connect().await;
            tokio::time::sleep(COMPARISON_PAUSE).await;
        }
        loop {
            tokio::select! {
                () = compare.notified() => {
                    edges.current().forget_clock();
                    break;
                }
                () = tokio::time::sleep(COMPARISON_INTERVAL) => {
                    let answered = edges.current().connect().await.is_ok();
                    reachable.send_if_modified(|was| std::mem::replace(was, answered) != answered);
                }
            }
        }
    }
}
