//! Frames that are not sent because the rung of the one before leaves them out ([`Setting::skip`](crate::setting::Setting::skip)).
//!
//! As many follow every frame that is given to the link. They are counted under a reason of their own ([`SkipReason::LeftOut`]), and no policy is
//! asked about them. The newest of them waits all the same: should the frame before it be lost, it goes in its place. None is left out once
//! something else is asked for, over another connection, or while the link is out, when any frame will do.

use crate::broker::LinkId;
use crate::broker::camera::{CameraBroker, Making};
use crate::frame::{FrameId, SkipReason};

/// The frames that the rung of the last one leaves out.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
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

impl CameraBroker {
    /// A frame is given to the link.
    pub(in crate::broker::camera) fn leave_out_after(&mut self, frame: FrameId, making: Option<&Making>) {
        let Some((link, revision)) = self.active_link().map(|link| (link.id, link.demand.revision)) else {
            return;
        };
        let skip = making.map_or(0, |making| making.setting.skip);
        self.left_out.after = (skip > 0).then_some(After { frame, skip, link, revision });
        if let (Some(after), Some(waiting)) = (self.left_out.after, &mut self.waiting)
            && after.leaves_out(waiting.record.frame.meta.id)
        {
            // It was published while that one was being made.
            waiting.reason = SkipReason::LeftOut;
        }
    }

    /// A frame will not arrive: what would have been left out after it is not.
    pub(crate) fn leave_none_out_after(&mut self, frame: FrameId) {
        if self.left_out.after.take_if(|after| after.frame == frame).is_some()
            && let Some(waiting) = &mut self.waiting
            && waiting.reason == SkipReason::LeftOut
        {
            waiting.reason = SkipReason::LinkBusy;
        }
    }

    /// Whether a frame is left out.
    pub(crate) fn is_left_out(&self, frame: FrameId) -> bool {
        let Some(link) = self.active_link().filter(|link| !link.is_out()) else { return false };
        let same = |after: &After| (after.link, after.revision) == (link.id, link.demand.revision);
        self.left_out.after.is_some_and(|after| same(&after) && after.leaves_out(frame))
    }
}
