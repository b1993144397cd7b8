//! Decides which frames are not sent because the rung of the one before leaves them out ([`Setting::skip`](crate::setting::Setting::skip)).
//!
//! As many follow every frame that is given to the link. They are counted under a reason of their own
//! ([`SkipReason::LeftOut`](crate::frame::SkipReason::LeftOut)), and no policy is asked about them. The newest of them waits all the same:
//! should the frame before it be lost, it goes in its place. None is left out once something else is asked for, over another connection, or
//! while the link is out, when any frame will do.

use crate::broker::LinkId;
use crate::broker::camera::connection::Link;
use crate::frame::FrameId;

/// The frames that the rung of the last one leaves out.
#[derive(Debug, Default)]
pub(super) struct FrameSkip {
    after: Option<After>,
}

/// A frame whose rung leaves out others.
#[derive(Clone, Copy, Debug)]
struct After {
    frame: FrameId,
    /// How many.
    skip: u8,
    link: LinkId,
    /// Of the demand that it was made for.
    revision: u64,
}

impl After {
    fn leaves_out(&self, frame: FrameId) -> bool {
        let (after, sequence) = (self.frame.sequence.0, frame.sequence.0);
        frame.epoch == self.frame.epoch && sequence > after && sequence - after <= u64::from(self.skip)
    }
}

impl FrameSkip {
    /// A frame is given to a link, after which so many are left out.
    pub(super) fn begin(&mut self, frame: FrameId, skip: u8, link: &Link) {
        let revision = link.demand.revision;
        self.after = (skip > 0).then_some(After { frame, skip, link: link.id, revision });
    }

    /// A frame will not arrive: what would have been left out after it is not. Says whether anything would.
    pub(super) fn end_after(&mut self, frame: FrameId) -> bool {
        self.after.take_if(|after| after.frame == frame).is_some()
    }

    /// Whether a frame is among those that the rung of the last one leaves out.
    pub(super) fn covers(&self, frame: FrameId) -> bool {
        self.after.is_some_and(|after| after.leaves_out(frame))
    }

    /// Whether a frame is left out on a link.
    pub(super) fn leaves_out(&self, frame: FrameId, link: &Link) -> bool {
        let same = |after: &After| (after.link, after.revision) == (link.id, link.demand.revision);
        !link.is_out() && self.after.as_ref().is_some_and(same) && self.covers(frame)
    }
}
