//! Messages about surveys, as initial inputs of the fuzzers.

use std::time::Duration;

use mez_core::frame::{SkipCounts, SkipReason};
use mez_core::history::{HeldSpan, Hole, HoleReason, Survey};
use mez_core::units::Timestamp;
use mez_core::wire::{Message, NoSurvey, SurveyAnswer, SurveyRequest};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos((1_700_000_000 + seconds) * 1_000_000_000)
}

/// A request, and answers to it.
pub fn messages() -> Vec<(&'static str, Message)> {
    let request = SurveyRequest { request: 4, begin: at(0), length: Duration::from_secs(600) };
    let answer = |survey| Message::SurveyAnswer(SurveyAnswer { request: 4, begin: at(0), survey });
    vec![
        ("survey-request", Message::SurveyRequest(request)),
        ("survey-answer", answer(Ok(survey()))),
        ("survey-refused", answer(Err(NoSurvey::Busy))),
    ]
}

/// Two spans and the hole between them.
fn survey() -> Survey {
    let mut skipped = SkipCounts::default();
    skipped.add(SkipReason::Damaged, 3);
    let span = |begin, end| HeldSpan { begin: at(begin), end: at(end), frames: 400, skipped };
    let reason = HoleReason::Skipped(SkipReason::Damaged);
    Survey {
        held_from: Some(at(0)),
        cut_at: Some(at(500)),
        spans: vec![span(0, 40), span(100, 500)],
        holes: vec![Hole { begin: at(40), end: at(100), reason, skipped }],
    }
}
