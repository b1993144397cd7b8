//! Decides which frames are skipped because the rung of the last sent frame says so
//! ([`Setting::skip`](crate::setting::Setting::skip)).
//!
//! That many frames are skipped after every frame that is given to the link. They have a skip reason of their
//! own ([`SkipReason::LeftOut`](crate::frame::SkipReason::LeftOut)), and the policy is not asked about them.
//! The newest of them still waits: if the sent frame is lost, it goes in its place. Frames are no longer
//! skipped once the demand changes, over another connection, or during an outage, when any frame helps.

use crate::broker::LinkId;
use crate::broker::camera::connection::EdgeLink;
use crate::frame::FrameId;

/// The skipped frames after the last one that was sent.
#[derive(Debug, Default)]
pub(super) struct FrameSkip {
    after: Option<After>,
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
    /// A frame is given to a link; `skip` frames after it are skipped.
    pub(super) fn begin(&mut self, frame: FrameId, skip: u8, link: &EdgeLink) {
        let revision = link.demand.revision;
        self.after = (skip > 0).then_some(After { frame, skip, link: link.id, revision });
    }

    /// A frame will not arrive: the frames after it are no longer skipped. Returns whether any were.
    pub(super) fn end_after(&mut self, frame: FrameId) -> bool {
        self.after.take_if(|after| after.frame == frame).is_some()
    }

    /// Whether a frame is among those that the rung of the last one skips.
    pub(super) fn covers(&self, frame: FrameId) -> bool {
        self.after.is_some_and(|after| after.leaves_out(frame))
    }

    /// Whether a frame is skipped on a link.
    pub(super) fn leaves_out(&self, frame: FrameId, link: &EdgeLink) -> bool {
        let same = |after: &After| (after.link, after.revision) == (link.id, link.demand.revision);
        !link.is_out() && self.after.as_ref().is_some_and(same) && self.covers(frame)
    }
}
