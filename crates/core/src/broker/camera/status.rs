//! Decides when the camera reports its status to the edge, and what it reports.

use std::time::Duration;

use super::types::CameraOutput;
use crate::broker::LinkId;
use crate::frame::{Epoch, FrameMeta};
use crate::units::Instant;
use crate::wire::{DiskStatus, Message, Status};

/// The time between two status reports.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The status that the camera reports.
pub(super) struct StatusReport {
    status: Status,
    /// The epoch whose frames are counted.
    epoch: Epoch,
    /// The state of the log on disk, if there is one.
    disk: Option<DiskStatus>,
    due: Instant,
}

impl StatusReport {
    pub(super) fn new(now: Instant) -> Self {
        Self { status: Status::default(), epoch: Epoch::default(), disk: None, due: now }
    }

    /// A frame of `bytes` bytes was published.
    pub(super) fn handle_published(&mut self, meta: &FrameMeta, bytes: usize) {
        self.status.published = meta.id.sequence.0 + 1;
        if meta.id.epoch != self.epoch {
            (self.epoch, self.status.published_bytes) = (meta.id.epoch, 0);
        }
        self.status.published_bytes += bytes as u64;
        if meta.encoding.is_picture() {
            (self.status.width, self.status.height) = (meta.width, meta.height);
        }
    }

    /// Numbers that only the intake knows.
    pub(super) fn handle_intake(&mut self, refused: u64, log_bytes: u64) {
        (self.status.refused, self.status.log_bytes) = (refused, log_bytes);
    }

    /// The state of the log on disk; `None` if there is none.
    pub(super) fn handle_disk(&mut self, disk: Option<DiskStatus>) {
        self.disk = disk;
    }

    /// An edge has welcomed the camera, and knows nothing of it: a report is due at once.
    pub(super) fn handle_welcomed(&mut self, now: Instant) {
        self.due = now;
    }

    /// When the next report is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns whether a report is due. If so, the next one is due an interval later.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + STATUS_INTERVAL;
        }
        is_due
    }

    /// The messages of a report.
    pub(super) fn tell(&mut self, link: LinkId, frames_per_second: f64) -> Vec<CameraOutput> {
        self.status.frames_per_second = frames_per_second;
        let messages =
            [Some(Message::Status(self.status)), self.disk.clone().map(Message::DiskStatus)].into_iter();
        messages.flatten().map(|message| CameraOutput::Send { link, message }).collect()
    }
}
