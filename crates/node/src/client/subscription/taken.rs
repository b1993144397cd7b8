//! Collects the times when the program took frames, for reports to the edge.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use mez_core::trace::Stage;
use tokio::sync::Notify;

use crate::api::duration::nanos;
use crate::api::pb;
use crate::api::request::TAKEN_MAX;
use crate::client::frame::ReceivedFrame;

/// Frames that the program took, or that newer frames replaced, until they are reported.
#[derive(Debug, Default)]
pub(super) struct TakenFrames {
    frames: Mutex<VecDeque<pb::TakenFrame>>,
    /// Signals that a frame was noted.
    pub(super) noted: Notify,
}

impl TakenFrames {
    /// Notes that the program took a frame, or never will. A frame without a known
    /// capture time is not reported. Beyond [`TAKEN_MAX`], the oldest are dropped.
    pub(super) fn note(&self, frame: &ReceivedFrame) {
        let (Some(received), Some((_, error))) = (frame.trace.get(Stage::Received), frame.captured_at) else {
            return;
        };
        let mut frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        if frames.len() == TAKEN_MAX {
            frames.pop_front();
        }
        frames.push_back(pb::TakenFrame {
            camera: frame.camera.as_str().into(),
            epoch: frame.meta.id.epoch.0,
            sequence: frame.meta.id.sequence.0,
            received_since_capture_ns: (!frame.held_back).then(|| nanos(received)),
            taken_since_capture_ns: frame.trace.get(Stage::Taken).map(nanos),
            error_ns: nanos(error),
        });
        drop(frames);
        self.noted.notify_one();
    }

    /// All frames noted since the last call.
    pub(super) fn take(&self) -> Vec<pb::TakenFrame> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
