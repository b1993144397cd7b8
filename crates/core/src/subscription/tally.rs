//! The account of one camera's frames: each frame between two deliveries is counted once, with the reason why it was not delivered.

use super::holes::{Holes, NotHeld, NotHeldReason};
use super::types::LastFrame;
use crate::frame::{FrameId, FrameMeta, Sequence, SkipCounts, SkipReason};
use crate::history::PastAnswer;
use crate::log::Record;
use crate::units::Timestamp;

/// What is known of the frames since the last delivery, and what is to be told of them with the next.
pub(super) struct Tally {
    /// The last frame that was delivered or skipped, or that the application had before.
    last: Option<FrameId>,
    /// Its capture time, if that is known.
    last_captured: Option<Timestamp>,
    /// `last` is one that the application had before, and none has come since.
    resumes: bool,
    /// Records that were evicted before they were read, since `last`.
    evicted: u64,
    /// Frames since `last` were held once and cannot be read.
    broken: bool,
    /// Counted since the last delivery.
    skipped: SkipCounts,
    /// Stretches that counts do not tell.
    holes: Holes,
}

impl Tally {
    /// The account goes on behind a frame that the application had before, or begins with the first that comes.
    pub(super) fn new(after: Option<LastFrame>) -> Self {
        Self {
            last: after.map(|after| after.id),
            last_captured: after.and_then(|after| after.captured),
            resumes: after.is_some(),
            evicted: 0,
            broken: false,
            skipped: SkipCounts::default(),
            holes: Holes::new(None, None),
        }
    }

    /// A reading of the past begins at `begin`; see [`Holes::new`].
    pub(super) fn begin_at(&mut self, begin: Timestamp, held_from: Option<Timestamp>) {
        self.holes = Holes::new(Some(begin), held_from);
    }

    /// The last frame that was delivered or skipped, or that the application had before.
    pub(super) fn last(&self) -> Option<FrameId> {
        self.last
    }

    /// Whether the camera has said from when on it holds its frames, or could not be asked.
    pub(super) fn knows_camera(&self) -> bool {
        self.holes.knows_camera()
    }

    /// So many records were evicted before they were read.
    pub(super) fn note_evicted(&mut self, records: u64) {
        self.evicted += records;
    }

    /// At least one was; how many is not known.
    pub(super) fn note_evicted_some(&mut self) {
        self.evicted = self.evicted.max(1);
    }

    /// A frame that was accounted for is not delivered.
    pub(super) fn skip(&mut self, reason: SkipReason) {
        self.skipped.add(reason, 1);
    }

    /// A frame that was accounted for is delivered or skipped.
    pub(super) fn read(&mut self, meta: &FrameMeta) {
        // A feed never goes back. The newest frame may have been passed over for the present while it was kept back for a newer one.
        debug_assert!(
            self.last.is_none_or(|last| last <= meta.id),
            "frame {} is read behind {:?}",
            meta.id,
            self.last
        );
        (self.last, self.last_captured, self.resumes) = (Some(meta.id), Some(meta.captured), false);
    }

    /// A question for the past is answered. `covers`: it was for all that lies behind the last frame.
    pub(super) fn handle_answer(&mut self, answer: &PastAnswer, covers: bool) {
        self.broken |= answer.broken;
        self.holes.handle_answer(answer.held_from, answer.camera_holds_from, answer.unanswered, covers);
    }

    /// Accounts for the frames between the last one and `record`, which is delivered or skipped next. `live`: nothing was asked of the past.
    /// `follows`: before the first frame, whether it is known that nothing was published between the beginning and this one.
    pub(super) fn before(&mut self, record: &Record, live: bool, follows: bool) {
        let evicted = std::mem::take(&mut self.evicted);
        let broken = std::mem::take(&mut self.broken);
        let mut skipped = skipped_between(self.last, record, (evicted, broken));
        if self.resumes && live {
            // They passed while the application was not there.
            skipped = skipped.relabelled(SkipReason::LateOrLost, SkipReason::LinkDown);
        }
        self.skipped.merge(&skipped);
        self.holes.before(self.last_known(), &record.frame.meta, broken, follows);
    }

    /// Reading goes on behind a frame that lies outside of the span, so that nothing before it is skipped. `restarted`: the camera was
    /// started again since the last frame.
    pub(super) fn pass_over(&mut self, before: &FrameMeta, restarted: bool) {
        debug_assert!(self.last < Some(before.id), "an account never goes back");
        if restarted {
            self.holes.before(self.last_known(), before, false, false);
        }
        (self.last, self.last_captured) = (Some(before.id), Some(before.captured));
    }

    /// Whether a frame of the present counts from the beginning again, although the application had a later one before: the camera has
    /// lost its counter. Then the account begins anew with it.
    pub(super) fn numbered_anew(&mut self, meta: &FrameMeta) -> bool {
        let Some(last) = self.last.filter(|_| self.resumes) else { return false };
        let is_anew = meta.id < last
            && self.last_captured.map_or(meta.id.epoch < last.epoch, |captured| captured < meta.captured);
        if is_anew {
            let begin = self.last_captured.unwrap_or(Timestamp::MIN);
            let reason = NotHeldReason::CameraRestarted;
            self.holes.add(NotHeld { begin, end: meta.captured.max(begin), reason });
            (self.last, self.last_captured, self.resumes) = (None, None, false);
            self.holes.begin_now();
        }
        is_anew
    }

    /// What is to be told with a delivery.
    pub(super) fn take(&mut self) -> (SkipCounts, Option<NotHeld>) {
        (std::mem::take(&mut self.skipped), self.holes.take())
    }

    /// What is left to tell at the end, if there is one that was asked for.
    pub(super) fn rest(mut self, end: Option<Timestamp>) -> (SkipCounts, Option<NotHeld>) {
        let not_held = self.holes.rest(self.last_known(), end);
        (self.skipped, not_held)
    }

    fn last_known(&self) -> Option<(FrameId, Option<Timestamp>)> {
        self.last.map(|last| (last, self.last_captured))
    }
}

/// Frames between `last` and `record`, the one that was read next, by why they were not. Of those that nobody explains, `evicted`
/// were once held here, and others if `broken`. Without a `last` there is nothing in between.
pub fn skipped_between(last: Option<FrameId>, record: &Record, (evicted, broken): (u64, bool)) -> SkipCounts {
    let mut skipped = SkipCounts::default();
    let Some(last) = last else { return skipped };
    let id = record.frame.meta.id;
    let from = if last.epoch == id.epoch { Sequence(last.sequence.0 + 1) } else { Sequence(0) };
    let mut unexplained = id.sequence.0.saturating_sub(from.0);
    for range in record.skipped.iter().filter_map(|range| range.clipped(from, id.sequence)) {
        let count = range.count.min(unexplained);
        unexplained -= count;
        skipped.add(range.reason, count);
    }
    if unexplained > 0 {
        let reason = match (evicted > 0, broken) {
            (true, _) => SkipReason::Evicted,
            (false, true) => SkipReason::NotHeld,
            (false, false) => SkipReason::LateOrLost,
        };
        skipped.add(reason, unexplained);
    }
    if last.epoch != id.epoch {
        // Evicted records of this epoch are among the unexplained; the others ended the one before.
        skipped.add(SkipReason::Evicted, evicted.saturating_sub(unexplained));
    }
    skipped
}
