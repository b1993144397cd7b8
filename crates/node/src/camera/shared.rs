//! Holds what the handles of a camera broker share with its loop: the log's intake, replies, and the state of the link.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mez_core::answers::AnswerBox;
use mez_core::broker::Intake;
use mez_core::broker::camera::SourceNews;
use mez_core::frame::FrameId;
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use tokio::sync::{Notify, watch};

use crate::decoders::Decoders;
use crate::persist::{LogFiles, LogKeeper};
use crate::ports::EdgeAddress;
use crate::reading::PastSources;
use crate::reply::ReplyContent;
use crate::source::KeyFrameNeed;

/// The most replies that wait for the publisher. Beyond that, the oldest is dropped.
const REPLIES_MAX: usize = 64;

/// An application's result for a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The frame.
    pub frame: FrameId,
    /// The application.
    pub application: String,
    /// The result. Detections are in pixels of the frame as it was published.
    pub content: ReplyContent,
}

/// What the handles and the driver share.
pub(super) struct Shared {
    pub(super) camera: CameraName,
    pub(super) frame_bytes_max: u32,
    pub(super) intake: Mutex<Intake>,
    pub(super) reader: LogReader,
    /// The decoders for H.264.
    pub(super) decoders: Decoders,
    /// The number of appended frames.
    pub(super) appended: watch::Sender<u64>,
    /// The last news of the source of the frames, and the number of frames appended before.
    pub(super) source: watch::Sender<Option<(SourceNews, u64)>>,
    /// Changes when the source should be asked for a key frame.
    pub(super) key_frames: watch::Sender<KeyFrameNeed>,
    /// The share of the link's time that frames of the past may take.
    pub(super) history_share: watch::Sender<f64>,
    /// Set when the broker should say farewell and stop.
    pub(super) leaving: Notify,
    /// Set when the broker has stopped.
    pub(super) over: watch::Sender<bool>,
    /// The edge that the camera is connected to.
    pub(super) edge: watch::Sender<Option<EdgeAddress>>,
    pub(super) replies: Mutex<VecDeque<Reply>>,
    pub(super) replied: Notify,
    /// The age bound of answers. `None`: the publisher takes none.
    pub(super) answer_bound: watch::Sender<Option<Duration>>,
    pub(super) answers: Mutex<AnswerBox>,
    pub(super) answered: Notify,
    /// Changes when an edge has told how many answers were skipped.
    pub(super) accounted: watch::Sender<()>,
    /// Writes the log to disk. `None` if the log is in memory only.
    pub(super) keeper: Option<LogKeeper<LogFiles>>,
    /// The sources of past frames besides memory. `None`: there is no log on disk.
    pub(super) places: Option<Arc<PastSources>>,
}

impl Shared {
    /// Queues a reply for the publisher.
    pub(super) fn add_reply(&self, reply: Reply) {
        let mut replies = lock(&self.replies);
        if replies.len() == REPLIES_MAX {
            replies.pop_front();
        }
        replies.push_back(reply);
        self.replied.notify_one();
    }
}

/// Locks a mutex even if a publisher panicked: the intake is then in its state before or after that publisher's frame.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
