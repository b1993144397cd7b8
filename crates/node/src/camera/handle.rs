//! The handle of a running camera broker: publishes frames, reads its log, takes replies.

use std::sync::Arc;
use std::time::Duration;

use mez_core::answers::Answered;
use mez_core::broker::camera::SourceNews;
use mez_core::broker::{PublishError, PublishPartError, Published, StreamPart};
use mez_core::frame::FrameId;
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::store::StoreStatus;
use mez_core::units::Instant;
use mez_core::wire::AnswerSkips;
use tokio::sync::watch;

use super::shared::{Reply, Shared, lock};
use crate::clock::{monotonic_now, plausible};
use crate::decoders::Decoders;
use crate::ports::EdgeAddress;
use crate::reading::PastSources;
use crate::source::KeyFrameNeed;

/// How long a broker may take to stop in good order.
const LEAVING_TIME_MAX: Duration = Duration::from_secs(1);

/// A running camera broker. Cheap to clone; the broker stops with the last clone.
#[derive(Clone)]
pub struct CameraHandle {
    shared: Arc<Shared>,
    _stop: Arc<watch::Sender<()>>,
}

impl CameraHandle {
    /// A handle to the broker that stops once `stop` is dropped.
    pub(super) fn new(shared: Arc<Shared>, stop: watch::Sender<()>) -> Self {
        Self { shared, _stop: Arc::new(stop) }
    }

    /// The decoders for H.264.
    pub(crate) fn decoders(&self) -> Decoders {
        self.shared.decoders.clone()
    }

    /// The camera's name.
    pub fn name(&self) -> &CameraName {
        &self.shared.camera
    }

    /// The largest payload that a publisher may send, in bytes.
    pub fn frame_bytes_max(&self) -> u32 {
        self.shared.frame_bytes_max
    }

    /// Stamps a frame and appends it to the log. Can be called on any thread. Waits at most until another publisher has copied a few words.
    pub fn publish(&self, frame: Published) -> Result<FrameId, PublishError> {
        self.publish_at(monotonic_now(), frame)
    }

    /// Like [`CameraHandle::publish`], for a frame that another process on this machine has stamped. So the frame's age
    /// includes the transfer from that process. A stamp in the future, or more than a minute old, is replaced by the present.
    pub fn publish_at(&self, captured: Instant, frame: Published) -> Result<FrameId, PublishError> {
        let id = lock(&self.shared.intake).publish(plausible(captured), frame)?;
        self.tell_appended();
        Ok(id)
    }

    /// Like [`CameraHandle::publish_at`], for a picture of a source's own video stream. Pictures must come in the order of the stream.
    pub fn publish_part_at(
        &self,
        captured: Instant,
        frame: Published,
        part: StreamPart,
    ) -> Result<FrameId, PublishPartError> {
        let id = lock(&self.shared.intake).publish_part(plausible(captured), frame, part)?;
        self.tell_appended();
        Ok(id)
    }

    fn tell_appended(&self) {
        self.shared.appended.send_modify(|count| *count += 1);
        if let Some(keeper) = &self.shared.keeper {
            keeper.wake();
        }
    }

    /// Reports news of the source of the frames: it is lost, or has ended. The next frame makes it live again.
    pub fn tell_source(&self, news: SourceNews) {
        let published = *self.shared.appended.borrow();
        self.shared.source.send_replace(Some((news, published)));
    }

    /// Reports that the source of the frames has ended in good order. A source that was lost for good, and has given no frame since, stays lost.
    pub fn end_source(&self) {
        let published = *self.shared.appended.borrow();
        self.shared.source.send_if_modified(|heard| {
            let stays_lost =
                matches!(heard, Some((SourceNews::Lost { retry: None, .. }, at)) if *at == published);
            if !stays_lost {
                *heard = Some((SourceNews::Ended, published));
            }
            !stays_lost
        });
    }

    /// Sets the share of the link's time for frames of the past, 0.01 to 1.
    pub fn set_history_share(&self, share: f64) {
        self.shared.history_share.send_replace(share);
    }

    /// Stops the broker in good order: the last news of the source reaches the edge, if one is connected. Frames that are published later go nowhere.
    pub async fn leave(&self) {
        self.shared.leaving.notify_one();
        let mut over = self.shared.over.subscribe();
        // The broker waits no longer than its connections may take to close.
        let _ = tokio::time::timeout(LEAVING_TIME_MAX, over.wait_for(|over| *over)).await;
    }

    /// The camera's log.
    pub fn log(&self) -> LogReader {
        self.shared.reader.clone()
    }

    /// The sources of past frames besides the log in memory. `None`: there is no log on disk.
    pub(crate) fn past(&self) -> Option<Arc<PastSources>> {
        self.shared.places.clone()
    }

    /// Changes when the source should be asked for a key frame, from which frames of its video could go to
    /// the edge unchanged. The value says how urgently.
    pub fn key_frames_asked(&self) -> watch::Receiver<KeyFrameNeed> {
        self.shared.key_frames.subscribe()
    }

    /// The number of appended frames, for waiting.
    pub fn appended(&self) -> watch::Receiver<u64> {
        self.shared.appended.subscribe()
    }

    /// Whether the camera is connected to an edge.
    pub fn is_up(&self) -> bool {
        self.shared.edge.borrow().is_some()
    }

    /// The edge that the camera is connected to. Notifies of changes.
    pub fn edge(&self) -> watch::Receiver<Option<EdgeAddress>> {
        self.shared.edge.subscribe()
    }

    /// The number of frames refused so far.
    pub fn refused(&self) -> u64 {
        lock(&self.shared.intake).refused()
    }

    /// The bytes in the log and in use by its readers.
    pub fn log_bytes(&self) -> u64 {
        lock(&self.shared.intake).log_bytes()
    }

    /// The state of the log on disk. `None`: there is none.
    pub fn log_on_disk(&self) -> Option<StoreStatus> {
        self.shared.keeper.as_ref()?.status(&self.shared.camera)
    }

    /// Writes the rest of the log to disk and stops the writer, at the end of the process. Blocks for at most two seconds.
    pub fn finish_log(&self) {
        if let Some(keeper) = &self.shared.keeper {
            keeper.stop();
        }
    }

    /// Waits for the next reply of an application. At most 64 replies wait; beyond that, the oldest is dropped.
    pub async fn next_reply(&self) -> Reply {
        loop {
            let replied = self.shared.replied.notified();
            if let Some(reply) = lock(&self.shared.replies).pop_front() {
                return reply;
            }
            replied.await;
        }
    }

    /// Sets whether the publisher takes answers of applications to its frames. `bound`: the longest time from a frame's
    /// capture until its whole answer has left the edge; later answers are given up and counted. `None`, the default: no answers.
    pub fn set_answers(&self, bound: Option<Duration>) {
        self.shared.answer_bound.send_replace(bound);
        if bound.is_none() {
            lock(&self.shared.answers).clear();
        }
    }

    /// Waits for an answer that is newer than the last one, and returns the newest, with the counts of answers skipped since the last one.
    /// There is no queue: an answer that is not taken before the next one comes counts as `unread`. `None`: the publisher takes no answers.
    pub async fn next_answer(&self) -> Option<(Answered, AnswerSkips)> {
        let mut bound = self.shared.answer_bound.subscribe();
        loop {
            let answered = self.shared.answered.notified();
            if bound.borrow_and_update().is_none() {
                return None;
            }
            if let Some(answer) = lock(&self.shared.answers).take() {
                return Some(answer);
            }
            tokio::select! {
                () = answered => {}
                _ = bound.changed() => {}
            }
        }
    }

    /// All answers so far that did not reach the publisher, by reason.
    pub fn answers_skipped(&self) -> AnswerSkips {
        lock(&self.shared.answers).skipped()
    }

    /// Changes when an edge has told how many answers were skipped, for waiting.
    pub(crate) fn answers_accounted(&self) -> watch::Receiver<()> {
        self.shared.accounted.subscribe()
    }
}
