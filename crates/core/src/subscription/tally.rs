//! Accounts for one camera's frames: each frame between two deliveries is counted once, with the reason why
//! it was not delivered.

use std::time::Duration;

use super::holes::{Holes, NotHeld, NotHeldReason};
use super::types::LastFrame;
use crate::frame::{FrameId, FrameMeta, Sequence, SkipCounts, SkipReason};
use crate::history::{PastAnswer, Unanswered};
use crate::log::Record;
use crate::units::Timestamp;

/// The longest time from a frame's capture to its entry in a log: links, decoders and hosts that stand still may hold it up. A frame of an earlier
/// start that was captured longer than this before the last frame was not held up: the camera has lost its counter, and its clock was set back. If
/// the clock was set back by less, a reader that resumes gets nothing until the camera's time stamps have passed the stamp of its last frame.
const HELD_UP_MAX: Duration = Duration::from_secs(60);

/// The account since the last delivery, which is reported with the next one.
pub(super) struct Tally {
    /// The last frame that was delivered or skipped, or that the application already had.
    last: Option<FrameId>,
    /// The capture time of the last frame, if it is known.
    last_captured: Option<Timestamp>,
    /// Whether `last` is a frame that the application already had, and none has come since.
    resumes: bool,
    /// Records that were evicted before they were read, since `last`.
    evicted: u64,
    /// Whether frames since `last` were once held and cannot be read.
    broken: bool,
    /// Frames counted since the last delivery.
    skipped: SkipCounts,
    /// Stretches of time, where counts are not enough.
    holes: Holes,
}

impl Tally {
    /// An account that continues after a frame that the application already had, or begins with the first
    /// frame.
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

    /// Lets the account begin at `begin`, for a reader of the past. [`Holes::new`] explains `held_from`.
    pub(super) fn begin_at(&mut self, begin: Timestamp, held_from: Option<Timestamp>) {
        self.holes = Holes::new(Some(begin), held_from);
    }

    /// The last frame that was delivered or skipped, or that the application already had.
    pub(super) fn last(&self) -> Option<FrameId> {
        self.last
    }

    /// Whether the camera has said from which time on it holds its frames, or could not be asked.
    pub(super) fn knows_camera(&self) -> bool {
        self.holes.knows_camera()
    }

    /// Notes that `records` records were evicted before they were read.
    pub(super) fn note_evicted(&mut self, records: u64) {
        self.evicted += records;
    }

    /// Notes that at least one record was evicted before it was read. The number is not known.
    pub(super) fn note_evicted_some(&mut self) {
        self.evicted = self.evicted.max(1);
    }

    /// Counts a frame as skipped, after [`Self::before`] has accounted for the frames before it.
    pub(super) fn skip(&mut self, reason: SkipReason) {
        self.skipped.add(reason, 1);
    }

    /// Counts the last frame, which is not delivered although others were asked for it too. If a
    /// possible holder of the frame could not be asked, the frame's time is reported as not held.
    pub(super) fn skip_unheld(&mut self, reason: SkipReason, unanswered: Option<Unanswered>) {
        self.skip(reason);
        if let (Some(why), Some(begin)) = (unanswered, self.last_captured) {
            self.holes.add(NotHeld { begin, end: begin + Duration::from_nanos(1), reason: why.into() });
        }
    }

    /// Makes a frame the last one, after [`Self::before`] has accounted for the frames before it.
    pub(super) fn read(&mut self, meta: &FrameMeta) {
        // A feed never goes back, except that the newest frame may have been passed over while it was kept
        // back for a newer one.
        debug_assert!(
            self.last.is_none_or(|last| last <= meta.id),
            "frame {} is read behind {:?}",
            meta.id,
            self.last
        );
        (self.last, self.last_captured, self.resumes) = (Some(meta.id), Some(meta.captured), false);
    }

    /// Takes in an answer about the past. `covers`: the question was about everything after the last frame.
    pub(super) fn handle_answer(&mut self, answer: &PastAnswer, covers: bool) {
        self.broken |= answer.broken;
        self.holes.handle_answer(answer.held_from, answer.camera_holds_from, answer.unanswered, covers);
    }

    /// Accounts for the frames between the last one and `record`, which is delivered or skipped next. `live`:
    /// the past was not asked about. `follows`: before the first frame, whether it is known that nothing was
    /// published between the beginning and this one.
    pub(super) fn before(&mut self, record: &Record, live: bool, follows: bool) {
        let evicted = std::mem::take(&mut self.evicted);
        let broken = std::mem::take(&mut self.broken);
        let mut skipped = skipped_between(self.last, record, (evicted, broken));
        if self.resumes && live {
            // These frames passed while the application was not connected.
            skipped = skipped.relabelled(SkipReason::LateOrLost, SkipReason::LinkDown);
        }
        self.skipped.merge(&skipped);
        self.holes.before(self.last_known(), &record.frame.meta, broken, follows);
    }

    /// Continues after a frame that lies outside the span, so that nothing before it counts as skipped.
    /// `restarted`: the camera was restarted since the last frame.
    pub(super) fn pass_over(&mut self, before: &FrameMeta, restarted: bool) {
        debug_assert!(self.last < Some(before.id), "an account never goes back");
        if restarted {
            self.holes.before(self.last_known(), before, false, false);
        } else {
            self.holes.pass_over(self.last_captured);
        }
        (self.last, self.last_captured) = (Some(before.id), Some(before.captured));
    }

    /// Whether a present frame is numbered from the beginning again although the application already had a
    /// later one, because the camera has lost its counter. If so, the account begins anew with this frame.
    pub(super) fn numbered_anew(&mut self, meta: &FrameMeta) -> bool {
        let Some(last) = self.last.filter(|_| self.resumes) else { return false };
        let is_earlier_start = meta.id.epoch < last.epoch;
        let is_anew = meta.id < last
            && self.last_captured.map_or(is_earlier_start, |captured| {
                // A frame that was only held up is not this old, so the camera's clock was set back as well.
                captured < meta.captured || is_earlier_start && meta.captured + HELD_UP_MAX < captured
            });
        if is_anew {
            let begin = self.last_captured.unwrap_or(Timestamp::MIN);
            let reason = NotHeldReason::CameraRestarted;
            self.holes.add(NotHeld { begin, end: meta.captured.max(begin), reason });
            (self.last, self.last_captured, self.resumes) = (None, None, false);
            self.holes.begin_now();
        }
        is_anew
    }

    /// Notes that nothing more is delivered: from the last frame, or else from `begin`, to `end`, or else to the `newest` record.
    pub(super) fn give_up_from(
        &mut self,
        begin: Option<Timestamp>,
        end: Option<Timestamp>,
        newest: Option<&Record>,
    ) {
        let Some(begin) = self.last_captured.or(begin) else { return };
        let end = end.or(newest.map(|newest| newest.frame.meta.captured)).unwrap_or(begin).max(begin);
        self.holes.add(NotHeld { begin, end, reason: NotHeldReason::Gone });
    }

    /// Counts frames that were skipped for a reason outside of `reasons` as skipped for `other`.
    pub(super) fn keep_only(&mut self, reasons: &[SkipReason], other: SkipReason) {
        let others =
            SkipReason::ALL.into_iter().filter(|reason| *reason != other && !reasons.contains(reason));
        self.skipped = others.fold(self.skipped, |skipped, reason| skipped.relabelled(reason, other));
    }

    /// The account to report with a delivery.
    pub(super) fn take(&mut self) -> (SkipCounts, Option<NotHeld>) {
        (std::mem::take(&mut self.skipped), self.holes.take())
    }

    /// The account to report at the requested end, if there is one.
    pub(super) fn rest(mut self, end: Option<Timestamp>) -> (SkipCounts, Option<NotHeld>) {
        let not_held = self.holes.rest(self.last_known(), end);
        (self.skipped, not_held)
    }

    /// The last frame that was delivered or skipped, or that the application already had, and its capture time.
    pub(super) fn last_known(&self) -> Option<(FrameId, Option<Timestamp>)> {
        self.last.map(|last| (last, self.last_captured))
    }
}

/// Counts the frames between `last` and `record`, the next one that was read, by the reason why they are missing. Frames without a stated reason
/// count as evicted if records were `evicted`, else as not held if `broken`, else as late or lost. Without a `last`, no frames are counted.
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
        // Evicted records of this epoch are among the unexplained frames. The others were at the end of the previous epoch.
        skipped.add(SkipReason::Evicted, evicted.saturating_sub(unexplained));
    }
    skipped
}
