//! Sends answers, which are pictures that a program makes of frames, to the edge. Of each camera's answers, the newest wins.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{ANSWER_BYTES_MAX, Room};
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::edges::Edges;
use super::error::ClientError;
use crate::api::{ApiError, pb};
use crate::reply::Detections;

/// The most answers to one camera that are in flight to a remote broker. At a round trip of 50 ms this allows 80 per second.
const IN_FLIGHT_MAX: usize = 4;
/// The most cameras whose state is kept. Beyond that, the state of another camera is dropped, an idle one if there is one.
const CAMERAS_MAX: usize = 256;

/// An answer has more bytes than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the answer has {bytes} bytes, more than the limit of {ANSWER_BYTES_MAX}; send a smaller picture, or a picture of lower quality"
)]
pub struct AnswerError {
    /// The size of the answer.
    pub bytes: usize,
}

/// What a program answers.
#[derive(Clone, Debug)]
pub enum AnswerContent {
    /// A whole JPEG: a picture. Or a whole PNG with alpha: an overlay.
    Coded(Bytes),
    /// A whole JPEG of a picture that was made smaller for the way to the camera, and the width and height in which it is shown.
    Smaller(Bytes, (u32, u32)),
    /// Boxes to draw over the frame.
    Boxes {
        /// The boxes.
        detections: Detections,
        /// The size of the frame as it was published, in pixels.
        published: (u32, u32),
    },
}

impl AnswerContent {
    /// The form for the edge. With the size of the frame as it was published, if boxes need it; or with that in which a picture is shown.
    fn into_message(self) -> Result<(pb::answer_request::Content, (u32, u32)), AnswerError> {
        use pb::answer_request::Content;
        let (content, published, bytes) = match self {
            Self::Coded(bytes) => {
                let size = bytes.len();
                (Content::Payload(bytes), (0, 0), size)
            }
            Self::Smaller(bytes, shown) => {
                let size = bytes.len();
                (Content::Payload(bytes), shown, size)
            }
            Self::Boxes { detections, published } => {
                let message = detections.into_message();
                let size = message.encoded_len();
                (Content::Detections(message), published, size)
            }
        };
        if bytes > ANSWER_BYTES_MAX as usize { Err(AnswerError { bytes }) } else { Ok((content, published)) }
    }
}

/// What happened to answers on their way to the edge. The camera's publisher gets the counts of what happened after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Passed to [`EdgeClient::answer`](super::EdgeClient::answer).
    pub queued: u64,
    /// Accepted by the edge broker.
    pub sent: u64,
    /// Replaced by newer answers before they were sent.
    pub replaced: u64,
    /// Refused, or lost with the connection.
    pub failed: u64,
}

/// The answers of a program.
#[derive(Default)]
pub(super) struct Answers {
    cameras: Mutex<BTreeMap<String, Camera>>,
    changed: Notify,
    queued: AtomicU64,
    sent: AtomicU64,
    replaced: AtomicU64,
    failed: AtomicU64,
}

/// The state of the answers to one camera.
#[derive(Default)]
struct Camera {
    waiting: Option<pb::AnswerRequest>,
    /// Answers replaced since the last request.
    replaced: u32,
    in_flight: usize,
    /// The room that the edge reported last.
    room: Option<Room>,
    /// Why the edge takes no answers, until the program has read it.
    refused: Option<ApiError>,
}

impl Answers {
    /// Queues an answer. It replaces a waiting answer to the same camera.
    pub(super) fn put(
        &self,
        camera: &CameraName,
        frame: FrameId,
        answer: AnswerContent,
    ) -> Result<(), AnswerError> {
        let (content, (published_width, published_height)) = answer.into_message()?;
        self.queued.fetch_add(1, Ordering::Relaxed);
        let request = pb::AnswerRequest {
            camera: camera.as_str().into(),
            epoch: frame.epoch.0,
            sequence: frame.sequence.0,
            content: Some(content),
            published_width,
            published_height,
            replaced: 0,
        };
        let mut cameras = self.lock();
        let is_known = cameras.contains_key(camera.as_str());
        if !is_known && cameras.len() == CAMERAS_MAX {
            let idle = cameras.iter().find(|(_, known)| known.waiting.is_none() && known.in_flight == 0);
            let gone = idle.or_else(|| cameras.iter().next()).map(|(name, _)| name.clone());
            let gone = gone.and_then(|name| cameras.remove(&name));
            let lost = gone.is_some_and(|known| known.waiting.is_some());
            self.failed.fetch_add(u64::from(lost), Ordering::Relaxed);
        }
        let known = cameras.entry(camera.as_str().into()).or_default();
        if known.waiting.replace(request).is_some() {
            known.replaced = known.replaced.saturating_add(1);
            self.replaced.fetch_add(1, Ordering::Relaxed);
        }
        drop(cameras);
        self.changed.notify_one();
        Ok(())
    }

    /// The limits for an answer to a camera, as the edge last reported them.
    pub(super) fn room(&self, camera: &CameraName) -> Option<Room> {
        self.lock().get(camera.as_str())?.room
    }

    /// Why the edge takes no answers to a camera, if it has refused one since the last call.
    pub(super) fn take_refusal(&self, camera: &CameraName) -> Option<ApiError> {
        self.lock().get_mut(camera.as_str())?.refused.take()
    }

    pub(super) fn counts(&self) -> AnswerCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read last, so that the parts never exceed the sum.
        let (sent, replaced, failed) = (count(&self.sent), count(&self.replaced), count(&self.failed));
        AnswerCounts { queued: count(&self.queued), sent, replaced, failed }
    }

    /// Waits for the next answer that may be sent.
    async fn next(&self, in_flight_max: usize) -> pb::AnswerRequest {
        loop {
            let changed = self.changed.notified();
            if let Some(request) = self.begin(in_flight_max) {
                return request;
            }
            changed.await;
        }
    }

    fn begin(&self, in_flight_max: usize) -> Option<pb::AnswerRequest> {
        let mut cameras = self.lock();
        let is_next = |known: &&mut Camera| known.waiting.is_some() && known.in_flight < in_flight_max;
        let known = cameras.values_mut().find(is_next)?;
        known.in_flight += 1;
        let replaced = std::mem::take(&mut known.replaced);
        known.waiting.take().map(|request| pb::AnswerRequest { replaced, ..request })
    }

    /// `replaced`: the number of replaced answers that the request contained.
    fn end(&self, camera: &str, replaced: u32, answered: Result<pb::AnswerResponse, ClientError>) {
        let counter = if answered.is_ok() { &self.sent } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(known) = self.lock().get_mut(camera) {
            known.in_flight = known.in_flight.saturating_sub(1);
            if answered.is_err() {
                known.replaced = known.replaced.saturating_add(replaced);
            }
            match answered {
                Ok(pb::AnswerResponse { bound_ns, bytes_max: bytes }) => {
                    let bound = (bound_ns > 0).then(|| Duration::from_nanos(bound_ns));
                    known.room = Some(Room { bound, bytes });
                }
                Err(ClientError::Refused(error)) if is_lasting(&error) => known.refused = Some(error),
                Err(error) => tracing::debug!(%error, "an answer did not reach the edge"),
            }
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Camera>> {
        // Each statement leaves the map consistent, so a poisoned lock is safe to use.
        self.cameras.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the next answer will be refused too.
fn is_lasting(error: &ApiError) -> bool {
    error.code == tonic::Code::PermissionDenied || error.reason == "IS_DERIVED"
}

/// Sends answers until the program ends.
pub(super) async fn send_answers(edges: Edges, answers: Arc<Answers>) {
    // A local broker answers within microseconds, and one request at a time keeps the order.
    let in_flight_max = if edges.any_remote() { IN_FLIGHT_MAX } else { 1 };
    let mut in_flight = JoinSet::new();
    loop {
        let request = answers.next(in_flight_max).await;
        while in_flight.try_join_next().is_some() {}
        let (dialler, answers) = (edges.current().clone(), Arc::clone(&answers));
        in_flight.spawn(async move {
            let (camera, replaced) = (request.camera.clone(), request.replaced);
            let answered = dialler.answer(request).await;
            answers.end(&camera, replaced, answered);
        });
    }
}
