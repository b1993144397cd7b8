//! Sums up which times of a camera's past are held, and why nothing is held between them.

use std::time::Duration;

use crate::frame::{FrameId, SkipCounts, SkipReason};
use crate::units::Timestamp;

/// The shortest reported hole in which frames are missing.
pub const HOLE_MIN: Duration = Duration::from_secs(1);
/// The shortest reported hole in which no frame is missing: the camera published none.
pub const PAUSE_MIN: Duration = Duration::from_secs(10);
/// The most holes that are reported of a broker's own logs. Holes shorter than this part of the span (1/500) are not reported.
pub const HOLES_MAX: u32 = 500;

/// Why nothing is held in a time span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleReason {
    /// Frames so old are not held any more, or no frame is held at all.
    Gone,
    /// The camera was restarted in between. It is unknown how many frames there were.
    CameraRestarted,
    /// No frame is missing: the camera published none.
    NotPublished,
    /// The camera is not connected.
    CameraAbsent,
    /// Frames are missing, most of them for this reason.
    Skipped(SkipReason),
}

impl HoleReason {
    /// The name that programs see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::CameraRestarted => "camera_restarted",
            Self::NotPublished => "not_published",
            Self::CameraAbsent => "camera_absent",
            Self::Skipped(reason) => reason.name(),
        }
    }
}

/// A time span in which frames are held, without a hole that is long enough to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSpan {
    /// The capture time of the first frame held.
    pub begin: Timestamp,
    /// The capture time of the last frame held.
    pub end: Timestamp,
    /// How many frames are held.
    pub frames: u64,
    /// How many frames are missing between the held ones, by reason.
    pub skipped: SkipCounts,
}

/// A time span in which nothing is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The capture time of the frame before the hole, or the beginning of the requested span.
    pub begin: Timestamp,
    /// The capture time of the frame after the hole, or the end of the requested span.
    pub end: Timestamp,
    /// Why nothing is held.
    pub reason: HoleReason,
    /// How many frames are missing in the hole, by reason, as far as known.
    pub skipped: SkipCounts,
}

/// Collects what is held within a span of capture times, given the held frames in order.
#[derive(Clone, Debug)]
pub struct HeldSummary {
    begin: Timestamp,
    end: Timestamp,
    holes_max: u32,
    hole_min: Duration,
    last: Option<(FrameId, Timestamp)>,
    /// The frames missing before the first held frame.
    before: SkipCounts,
    /// Why nothing is held between the last frame and the first one after the span, and which frames are missing there.
    behind: Option<(HoleReason, SkipCounts)>,
    spans: Vec<HeldSpan>,
    holes: Vec<Hole>,
}

impl HeldSummary {
    /// An empty summary of the capture times `begin..=end`. `holes_max`, at least 3, is the most holes
    /// reported, usually [`HOLES_MAX`]. Holes shorter than the span divided by `holes_max` are not reported.
    pub fn new(begin: Timestamp, end: Timestamp, holes_max: u32) -> Self {
        let holes_max = holes_max.max(3);
        Self {
            begin,
            end,
            holes_max,
            hole_min: HOLE_MIN.max(end.saturating_since(begin) / holes_max),
            last: None,
            before: SkipCounts::default(),
            behind: None,
            spans: Vec::new(),
            holes: Vec::new(),
        }
    }

    /// The last frame added.
    pub fn last(&self) -> Option<FrameId> {
        self.last.map(|(id, _)| id)
    }

    /// Adds the next held frame. `missing`: frames of its epoch between the previous held frame and this one, by reason.
    pub fn add(&mut self, id: FrameId, captured: Timestamp, missing: &SkipCounts) {
        let last = self.last.replace((id, captured));
        if last.is_none() {
            self.before = *missing;
        }
        // Leaves room for one hole before the first frame and one after the last.
        let is_full = self.holes.len() + 2 >= self.holes_max as usize;
        let hole = last.filter(|_| !is_full).and_then(|(last, at)| {
            let restarted = last.epoch != id.epoch;
            let reason = if restarted { HoleReason::CameraRestarted } else { reason_of(missing) };
            let hole = Hole { begin: at, end: captured, reason, skipped: *missing };
            self.is_told(&hole).then_some(hole)
        });
        match (hole, self.spans.last_mut()) {
            (None, Some(span)) => {
                // The wall clock of a later epoch may have been set back.
                (span.begin, span.end) = (span.begin.min(captured), span.end.max(captured));
                span.frames += 1;
                span.skipped.merge(missing);
            }
            (hole, _) => {
                self.holes.extend(hole);
                let skipped = SkipCounts::default();
                self.spans.push(HeldSpan { begin: captured, end: captured, frames: 1, skipped });
            }
        }
    }

    /// Adds the first frame after the span, once all frames of the span were added. `missing`: as in [`HeldSummary::add`].
    pub fn add_behind(&mut self, id: FrameId, missing: &SkipCounts) {
        let restarted = self.last.is_some_and(|(last, _)| last.epoch != id.epoch);
        let reason = if restarted { HoleReason::CameraRestarted } else { reason_of(missing) };
        self.behind = Some((reason, *missing));
    }

    /// The spans held, and the holes between, before and after them. `held_from`: the capture time of the oldest frame held. `until`: the
    /// time up to which all frames were added. `rest`: why nothing is held after the last frame, if no frame after the span was added.
    pub fn finish(
        mut self,
        held_from: Option<Timestamp>,
        until: Timestamp,
        rest: HoleReason,
    ) -> (Vec<HeldSpan>, Vec<Hole>) {
        let end = self.end.min(until);
        let (rest, skipped) = self.behind.unwrap_or((rest, SkipCounts::default()));
        let Some((first, last)) = self.spans.first().zip(self.spans.last()) else {
            let is_older = held_from.is_none_or(|from| end < from);
            let reason = if is_older { HoleReason::Gone } else { rest };
            let hole = Hole { begin: self.begin, end, reason, skipped };
            return (self.spans, vec![hole]);
        };
        let (first, last) = (first.begin, last.end);
        let is_oldest = held_from.is_none_or(|from| first <= from);
        let reason = if is_oldest { HoleReason::Gone } else { reason_of(&self.before) };
        let before = Hole { begin: self.begin, end: first, reason, skipped: self.before };
        let behind = Hole { begin: last, end, reason: rest, skipped };
        if self.is_told(&before) {
            self.holes.insert(0, before);
        }
        if self.is_told(&behind) {
            self.holes.push(behind);
        }
        (self.spans, self.holes)
    }

    fn is_told(&self, hole: &Hole) -> bool {
        let is_pause = hole.reason == HoleReason::NotPublished;
        let least = if is_pause { self.hole_min.max(PAUSE_MIN) } else { self.hole_min };
        hole.end.saturating_since(hole.begin) >= least
    }
}

/// The reason for most of the missing frames.
fn reason_of(missing: &SkipCounts) -> HoleReason {
    let most = missing.iter().filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count);
    most.map_or(HoleReason::NotPublished, |(reason, _)| HoleReason::Skipped(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Epoch, Sequence};

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_nanos(milliseconds * 1_000_000)
    }

    fn id(epoch: u64, sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn missing(reason: SkipReason, count: u64) -> SkipCounts {
        let mut counts = SkipCounts::default();
        counts.add(reason, count);
        counts
    }

    /// Begin and end of each hole in milliseconds, with the reason.
    fn told(holes: &[Hole]) -> Vec<(u64, u64, &'static str)> {
        let ms = |time: Timestamp| time.as_nanos() / 1_000_000;
        holes.iter().map(|hole| (ms(hole.begin), ms(hole.end), hole.reason.name())).collect()
    }

    #[test]
    fn frames_that_a_contract_leaves_out_are_no_hole_and_an_outage_is_one() {
        let mut held = HeldSummary::new(at(0), at(60_000), HOLES_MAX);
        for frame in 0..20_u64 {
            held.add(id(1, frame * 3), at(5_000 + frame * 200), &missing(SkipReason::LinkBusy, 2));
        }
        held.add(id(1, 200), at(20_000), &missing(SkipReason::LinkDown, 142));
        held.add(id(1, 201), at(29_000), &SkipCounts::default());
        held.add(id(1, 202), at(41_000), &SkipCounts::default());
        held.add(id(2, 0), at(43_000), &SkipCounts::default());
        assert_eq!(held.last(), Some(id(2, 0)));
        let (spans, holes) = held.finish(Some(at(5_000)), at(60_000), HoleReason::CameraAbsent);
        assert_eq!(
            told(&holes),
            [
                (0, 5_000, "gone"),
                (8_800, 20_000, "link_down"),
                (29_000, 41_000, "not_published"),
                (41_000, 43_000, "camera_restarted"),
                (43_000, 60_000, "camera_absent"),
            ],
            "a pause of nine seconds is none to be told"
        );
        assert_eq!(spans.iter().map(|span| span.frames).collect::<Vec<_>>(), [20, 2, 1, 1]);
        assert_eq!((spans[0].skipped.total(), holes[1].skipped.total()), (38, 142));
    }

    #[test]
    fn nothing_at_all_is_one_hole() {
        for (held_from, reason) in
            [(None, "gone"), (Some(at(9_000)), "gone"), (Some(at(1_000)), "not_published")]
        {
            let held = HeldSummary::new(at(2_000), at(8_000), HOLES_MAX);
            let (spans, holes) = held.finish(held_from, at(8_000), HoleReason::NotPublished);
            assert_eq!((spans.len(), told(&holes)), (0, vec![(2_000, 8_000, reason)]));
        }
    }

    /// For a span of yesterday, the camera's present state explains nothing.
    #[test]
    fn a_hole_at_the_end_is_explained_by_the_frame_behind_the_span() {
        let none = SkipCounts::default();
        for (next, skips, reason, skipped) in [
            (id(1, 90), missing(SkipReason::LinkDown, 80), "link_down", 80),
            (id(1, 1), none, "not_published", 0),
            (id(2, 0), none, "camera_restarted", 0),
        ] {
            let mut held = HeldSummary::new(at(0), at(60_000), HOLES_MAX);
            held.add(id(1, 0), at(0), &none);
            held.add_behind(next, &skips);
            let (_, holes) = held.finish(Some(at(0)), at(60_000), HoleReason::CameraAbsent);
            assert_eq!(told(&holes), [(0, 60_000, reason)]);
            assert_eq!(holes[0].skipped.total(), skipped);
        }
        // Nothing is held in the span itself.
        let mut held = HeldSummary::new(at(2_000), at(8_000), HOLES_MAX);
        held.add_behind(id(1, 9), &missing(SkipReason::LinkDown, 8));
        let (_, holes) = held.finish(Some(at(1_000)), at(8_000), HoleReason::CameraAbsent);
        assert_eq!(told(&holes), [(2_000, 8_000, "link_down")]);
    }

    /// A camera whose clock is set back at each of its starts cannot make more holes.
    #[test]
    fn holes_are_bounded() {
        let mut held = HeldSummary::new(at(0), at(500_000), HOLES_MAX);
        for epoch in 1..2_000 {
            held.add(id(epoch, 0), at(0), &SkipCounts::default());
            held.add(id(epoch, 1), at(400_000), &missing(SkipReason::LinkDown, 1));
        }
        let (spans, holes) = held.finish(Some(at(0)), at(500_000), HoleReason::CameraAbsent);
        assert_eq!((spans.len(), holes.len()), (HOLES_MAX as usize - 1, HOLES_MAX as usize - 1));
        assert_eq!(spans.iter().map(|span| span.frames).sum::<u64>(), 2 * 1_999);
    }
}
