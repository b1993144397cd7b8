//! Sends pictures that a program makes of frames to the edge, the newest of each camera first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{ANSWER_BYTES_MAX, Room};
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::edges::Edges;
use super::error::ClientError;
use crate::api::{ApiError, pb};

/// The most answers to one camera that are on their way to a remote broker at once. At a round trip of 50 ms this allows 80 in a second.
const IN_FLIGHT_MAX: usize = 4;
/// Cameras of which something is kept. A program that answers more loses what it knows of those that it answered first.
const CAMERAS_MAX: usize = 256;

/// A picture has more bytes than an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the answer has {bytes} bytes, more than the limit of {ANSWER_BYTES_MAX}; send a smaller picture, or one of lower quality"
)]
pub struct AnswerError {
    /// Its size.
    pub bytes: usize,
}

/// What became of answers on their way to the edge. What became of them there is told to the camera's publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Handed in.
    pub queued: u64,
    /// Taken by the edge broker.
    pub sent: u64,
    /// Given up for newer ones before they were on their way.
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

/// What is known of the answers to one camera.
#[derive(Default)]
struct Camera {
    waiting: Option<pb::AnswerRequest>,
    /// Given up since the last request.
    replaced: u32,
    in_flight: usize,
    /// What the edge said last.
    room: Option<Room>,
    /// Why the edge takes no answers, if nobody asked for it yet.
    refused: Option<ApiError>,
}

impl Answers {
    /// Hands over a picture: a whole JPEG. One to the same camera that waits is given up for it.
    pub(super) fn put(&self, camera: &CameraName, frame: FrameId, payload: Bytes) -> Result<(), AnswerError> {
        if payload.len() > ANSWER_BYTES_MAX as usize {
            return Err(AnswerError { bytes: payload.len() });
        }
        self.queued.fetch_add(1, Ordering::Relaxed);
        let request = pb::AnswerRequest {
            camera: camera.as_str().into(),
            epoch: frame.epoch.0,
            sequence: frame.sequence.0,
            payload,
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

    /// What an answer to a camera may have, as the edge said last.
    pub(super) fn room(&self, camera: &CameraName) -> Option<Room> {
        self.lock().get(camera.as_str())?.room
    }

    /// Why the edge takes no answers to a camera, if it said so since this was asked last.
    pub(super) fn take_refusal(&self, camera: &CameraName) -> Option<ApiError> {
        self.lock().get_mut(camera.as_str())?.refused.take()
    }

    pub(super) fn counts(&self) -> AnswerCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Read last, so that the parts never exceed the sum.
        let (sent, replaced, failed) = (count(&self.sent), count(&self.replaced), count(&self.failed));
        AnswerCounts { queued: count(&self.queued), sent, replaced, failed }
    }

    /// The next answer that may be sent, once there is one.
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

    /// `replaced`: those given up that the request spoke of.
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
        // Every statement leaves it whole.
        self.cameras.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the next answer will be refused, too.
fn is_lasting(error: &ApiError) -> bool {
    error.code == tonic::Code::PermissionDenied || error.reason == "IS_DERIVED"
}

/// Sends answers until the program ends.
pub(super) async fn send_answers(edges: Edges, answers: Arc<Answers>) {
    // A local broker answers within microseconds, and one at a time keeps them in order.
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
