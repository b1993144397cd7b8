//! A frame that has not been sent.

use crate::frame::{FrameId, FrameMeta, SkipReason};
use crate::log::Record;
use crate::units::Instant;

/// A frame that has not been sent.
pub(super) struct Waiting {
    pub(super) record: Record,
    /// Why it was not sent at once. If a newer frame takes its place, this is its skip reason.
    pub(super) reason: SkipReason,
    /// When the broker found it in the log.
    pub(super) published: Instant,
    /// Set after the frame exceeded its byte budget: it is not encoded again before this.
    pub(super) rests_until: Option<Instant>,
    /// Whether this is a data record whose knobs have failed: it goes as it was published, or not at all.
    pub(super) is_plain: bool,
}

impl Waiting {
    pub(super) fn id(&self) -> FrameId {
        self.record.frame.meta.id
    }

    pub(super) fn meta(&self) -> &FrameMeta {
        &self.record.frame.meta
    }

    pub(super) fn bytes(&self) -> u64 {
        self.record.frame.payload.len() as u64
    }
}
