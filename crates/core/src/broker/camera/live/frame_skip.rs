//! Decides which frames are skipped because the rung of the last sent frame says so
//! ([`Setting::skip`](crate::setting::Setting::skip)).
//!
//! After every frame that is given to the link, as many frames as its rung says are skipped. They have a skip reason of their own
//! ([`SkipReason::LeftOut`](crate::frame::SkipReason::LeftOut)), and the policy is not asked about them. The newest skipped frame still
//! waits: if the sent frame is lost, the skipped one goes in its place. Frames are no longer skipped once the demand changes, over
//! another connection, or during an outage, when any frame helps. A picture skips only pictures, and a data record only data records.

use crate::broker::LinkId;
use crate::broker::camera::connection::EdgeLink;
use crate::frame::{FrameId, FrameMeta};

/// The last sent frames after which others are skipped.
#[derive(Debug, Default)]
pub(super) struct FrameSkip {
    pictures: Option<After>,
    records: Option<After>,
}

/// A sent frame after which others are skipped.
#[derive(Clone, Copy, Debug)]
struct After {
    frame: FrameId,
    /// How many frames are skipped.
    skip: u8,
    link: LinkId,
    /// The revision of the demand that it was sent for.
    revision: u64,
}

impl After {
    fn leaves_out(&self, frame: FrameId) -> bool {
        let (after, sequence) = (self.frame.sequence.0, frame.sequence.0);
        frame.epoch == self.frame.epoch && sequence > after && sequence - after <= u64::from(self.skip)
    }
}

impl FrameSkip {
    /// A frame is given to a link; `skip` frames of its kind after it are skipped.
    pub(super) fn begin(&mut self, frame: &FrameMeta, skip: u8, link: &EdgeLink) {
        let revision = link.demand.revision;
        let after = (skip > 0).then_some(After { frame: frame.id, skip, link: link.id, revision });
        if frame.encoding.is_picture() {
            self.pictures = after;
        } else {
            self.records = after;
        }
    }

    /// A frame will not arrive: the frames after it are no longer skipped. Returns whether any were.
    pub(super) fn end_after(&mut self, frame: FrameId) -> bool {
        let mut ended = false;
        for after in [&mut self.pictures, &mut self.records] {
            ended |= after.take_if(|after| after.frame == frame).is_some();
        }
        ended
    }

    /// Whether a frame is among those that the rung of the last one of its kind skips.
    pub(super) fn covers(&self, frame: &FrameMeta) -> bool {
        self.last(frame).is_some_and(|after| after.leaves_out(frame.id))
    }

    /// Whether a frame is skipped on a link.
    pub(super) fn leaves_out(&self, frame: &FrameMeta, link: &EdgeLink) -> bool {
        let same = |after: &After| (after.link, after.revision) == (link.id, link.demand.revision);
        !link.is_out() && self.last(frame).is_some_and(same) && self.covers(frame)
    }

    /// The last frame of the same kind.
    fn last(&self, frame: &FrameMeta) -> Option<&After> {
        if frame.encoding.is_picture() { self.pictures.as_ref() } else { self.records.as_ref() }
    }
}
