//! The result of a survey of what a camera holds, as the camera reports it to an edge, and its validation.

use super::held::{HeldSpan, Hole};
use crate::units::Timestamp;

/// The most holes of a survey that crosses a link. The message is sent before frames, so it must be small: with this many holes it has about 7 kB.
pub const SURVEY_HOLES_MAX: u32 = 200;
/// The most spans of a survey that crosses a link: one more than the holes.
pub const SURVEY_SPANS_MAX: u32 = SURVEY_HOLES_MAX + 1;

/// Which frames are held within a span of capture times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The capture time of the oldest frame held, even outside of the requested span. `None`: no frame is held.
    pub held_from: Option<Timestamp>,
    /// Up to when the span was surveyed, if it has more holes than one survey may have.
    pub cut_at: Option<Timestamp>,
    /// The time spans in which frames are held.
    pub spans: Vec<HeldSpan>,
    /// The time spans in which nothing is held, and why.
    pub holes: Vec<Hole>,
}

/// Why a survey cannot be the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyFault {
    /// The survey has too many spans or holes.
    #[error("more than {SURVEY_SPANS_MAX} spans or {SURVEY_HOLES_MAX} holes")]
    TooMany,
    /// A span or hole ends before it begins.
    #[error("a span or hole ends before it begins")]
    Backwards,
    /// A span or hole begins before the previous one.
    #[error("spans or holes are out of order")]
    Disordered,
    /// A span or hole lies outside of the requested span.
    #[error("a span or hole lies outside of the requested time")]
    Outside,
}

impl Survey {
    /// This survey limited to `begin..=end`, with spans and holes sorted by their
    /// beginning. They are unsorted if the camera's clock was set back between two starts.
    #[must_use]
    pub fn in_order(mut self, begin: Timestamp, end: Timestamp) -> Self {
        for stretch in self.stretches_mut() {
            *stretch.0 = (*stretch.0).clamp(begin, end);
            *stretch.1 = (*stretch.1).clamp(*stretch.0, end);
        }
        self.spans.sort_by_key(|span| span.begin);
        self.holes.sort_by_key(|hole| hole.begin);
        self.cut_at = self.cut_at.map(|at| at.clamp(begin, end));
        self
    }

    /// Validates a peer's survey against the requested span.
    pub fn check(&self, begin: Timestamp, end: Timestamp) -> Result<(), SurveyFault> {
        if self.spans.len() > SURVEY_SPANS_MAX as usize || self.holes.len() > SURVEY_HOLES_MAX as usize {
            return Err(SurveyFault::TooMany);
        }
        let spans: Vec<_> = self.spans.iter().map(|span| (span.begin, span.end)).collect();
        let holes: Vec<_> = self.holes.iter().map(|hole| (hole.begin, hole.end)).collect();
        if spans.iter().chain(&holes).any(|(from, to)| from > to) {
            return Err(SurveyFault::Backwards);
        }
        let is_outside = |at: Timestamp| at < begin || at > end;
        let ends = spans.iter().chain(&holes).flat_map(|(from, to)| [*from, *to]);
        if ends.chain(self.cut_at).any(is_outside) {
            return Err(SurveyFault::Outside);
        }
        let in_order = |list: &[(Timestamp, Timestamp)]| list.is_sorted_by_key(|(from, _)| *from);
        if in_order(&spans) && in_order(&holes) { Ok(()) } else { Err(SurveyFault::Disordered) }
    }

    fn stretches_mut(&mut self) -> impl Iterator<Item = (&mut Timestamp, &mut Timestamp)> {
        let spans = self.spans.iter_mut().map(|span| (&mut span.begin, &mut span.end));
        spans.chain(self.holes.iter_mut().map(|hole| (&mut hole.begin, &mut hole.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Epoch, FrameId, Sequence, SkipCounts, SkipReason};
    use crate::history::{HeldSummary, HoleReason};

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_nanos(milliseconds * 1_000_000)
    }

    fn span(begin: u64, end: u64) -> HeldSpan {
        HeldSpan { begin: at(begin), end: at(end), frames: 2, skipped: SkipCounts::default() }
    }

    fn hole(begin: u64, end: u64) -> Hole {
        let reason = HoleReason::CameraRestarted;
        Hole { begin: at(begin), end: at(end), reason, skipped: SkipCounts::default() }
    }

    fn survey(spans: Vec<HeldSpan>, holes: Vec<Hole>) -> Survey {
        Survey { held_from: Some(at(5)), cut_at: None, spans, holes }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let asked = |survey: &Survey| survey.check(at(10), at(90));
        let honest = survey(vec![span(10, 30), span(60, 90)], vec![hole(30, 60)]);
        assert_eq!(asked(&honest), Ok(()));
        assert_eq!(asked(&Survey::default()), Ok(()), "it need not tell anything");
        let cut = Survey { cut_at: Some(at(90)), ..honest.clone() };
        assert_eq!(asked(&cut), Ok(()));
        for (lie, fault) in [
            (survey(vec![span(30, 20)], vec![]), SurveyFault::Backwards),
            (survey(vec![], vec![hole(30, 20)]), SurveyFault::Backwards),
            (survey(vec![span(60, 70), span(20, 30)], vec![]), SurveyFault::Disordered),
            (survey(vec![], vec![hole(60, 70), hole(20, 30)]), SurveyFault::Disordered),
            (survey(vec![span(9, 30)], vec![]), SurveyFault::Outside),
            (survey(vec![], vec![hole(60, 91)]), SurveyFault::Outside),
            (Survey { cut_at: Some(at(91)), ..honest.clone() }, SurveyFault::Outside),
            (survey(vec![span(20, 30); SURVEY_SPANS_MAX as usize + 1], vec![]), SurveyFault::TooMany),
            (survey(vec![], vec![hole(20, 30); SURVEY_HOLES_MAX as usize + 1]), SurveyFault::TooMany),
        ] {
            assert_eq!(asked(&lie), Err(fault), "{lie:?}");
        }
    }

    /// An honest camera is accepted, even if its clock was set back between its starts.
    #[test]
    fn a_clock_that_was_set_back_makes_no_liar() {
        let mut held = HeldSummary::new(at(0), at(600_000), SURVEY_HOLES_MAX);
        let mut missing = SkipCounts::default();
        missing.add(SkipReason::Damaged, 1);
        for epoch in 1..300 {
            for (sequence, captured) in [(0, 100_000), (1, 400_000), (2, 20_000), (3, 300_000)] {
                held.add(
                    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) },
                    at(captured),
                    &missing,
                );
            }
        }
        let (spans, holes) = held.finish(Some(at(20_000)), at(600_000), HoleReason::NotPublished);
        let told = survey(spans, holes);
        assert_ne!(told.check(at(0), at(600_000)), Ok(()), "its frames are out of order");
        assert_eq!(told.in_order(at(0), at(600_000)).check(at(0), at(600_000)), Ok(()));
    }
}
