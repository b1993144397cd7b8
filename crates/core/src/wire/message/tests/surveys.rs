//! Survey requests and answers on the wire.

use super::*;
use crate::frame::SkipCounts;
use crate::history::{HeldSpan, Hole, HoleReason, SURVEY_HOLES_MAX, SURVEY_SPANS_MAX, Survey};
use crate::wire::NoSurvey;

/// A span or hole: its beginning and end in milliseconds since the beginning of the survey, its frames, and the skipped frames.
type Told = (u32, u32, u32, SkipCounts);

fn any_skips() -> impl Strategy<Value = SkipCounts> {
    prop::collection::vec((0..SkipReason::ALL.len(), 1..u32::MAX / 16), 0..4).prop_map(|counts| {
        let mut skipped = SkipCounts::default();
        counts.into_iter().for_each(|(place, count)| skipped.add(SkipReason::ALL[place], count.into()));
        skipped
    })
}

/// Spans, holes with the indices of their reasons, `held_from` and `cut_at`; or why there is no survey.
type AnySurvey = Result<(Vec<Told>, Vec<(Told, usize)>, Option<u64>, Option<u32>), NoSurvey>;

fn any_survey() -> impl Strategy<Value = AnySurvey> {
    let told = || (any::<u32>(), any::<u32>(), any::<u32>(), any_skips());
    let reasons = 0..SkipReason::ALL.len() + 4;
    prop_oneof![
        1 => (0..NoSurvey::ALL.len()).prop_map(|place| Err(NoSurvey::ALL[place])),
        4 => (
            prop::collection::vec(told(), 0..9),
            prop::collection::vec((told(), reasons), 0..9),
            any::<Option<u64>>(),
            any::<Option<u32>>(),
        )
            .prop_map(Ok),
    ]
}

pub(super) fn any_question() -> impl Strategy<Value = Message> {
    any::<(u64, u64, u32)>().prop_map(|(request, begin, millis)| {
        let (begin, length) = (Timestamp::from_nanos(begin), Duration::from_millis(millis.into()));
        Message::SurveyRequest(SurveyRequest { request, begin, length })
    })
}

pub(super) fn any_answer() -> impl Strategy<Value = Message> {
    (any::<u64>(), 0..1u64 << 62, any_survey())
        .prop_map(|(request, begin, survey)| survey_answer(request, Timestamp::from_nanos(begin), survey))
}

fn survey_answer(request: u64, begin: Timestamp, survey: AnySurvey) -> Message {
    let after = |millis: u32| begin + Duration::from_millis(millis.into());
    let reason = |place: usize| match SkipReason::ALL.get(place) {
        Some(reason) => HoleReason::Skipped(*reason),
        None => [
            HoleReason::Gone,
            HoleReason::CameraRestarted,
            HoleReason::NotPublished,
            HoleReason::CameraAbsent,
        ][place - SkipReason::ALL.len()],
    };
    let span = |(from, to, frames, skipped): Told| HeldSpan {
        begin: after(from),
        end: after(to),
        frames: frames.into(),
        skipped,
    };
    let hole = |((from, to, _, skipped), place): (Told, usize)| Hole {
        begin: after(from),
        end: after(to),
        reason: reason(place),
        skipped,
    };
    let survey = survey.map(|(spans, holes, held_from, cut_at)| Survey {
        held_from: held_from.map(Timestamp::from_nanos),
        cut_at: cut_at.map(after),
        spans: spans.into_iter().map(span).collect(),
        holes: holes.into_iter().map(hole).collect(),
    });
    Message::SurveyAnswer(SurveyAnswer { request, begin, survey })
}

/// The largest survey is sent in full and stays below the limit of a message. Of a larger one, the first spans and holes are sent.
#[test]
fn the_largest_survey_stays_within_its_limit() {
    let mut skipped = SkipCounts::default();
    SkipReason::ALL.into_iter().for_each(|reason| skipped.add(reason, u64::MAX));
    let (begin, end) = (Timestamp::from_nanos(1_000_000), Timestamp::MAX);
    let span = HeldSpan { begin, end, frames: u64::MAX, skipped };
    let hole = Hole { begin, end, reason: HoleReason::Gone, skipped };
    let encoded = |spans: u32, holes: u32| {
        let (spans, holes) = (vec![span.clone(); spans as usize], vec![hole.clone(); holes as usize]);
        let survey = Survey { held_from: Some(begin), cut_at: Some(end), spans, holes };
        let mut bytes = Vec::new();
        Message::SurveyAnswer(SurveyAnswer { request: 1, begin, survey: Ok(survey) }).encode(&mut bytes);
        bytes
    };
    let largest = encoded(SURVEY_SPANS_MAX, SURVEY_HOLES_MAX);
    assert!(largest.len() <= MESSAGE_BYTES_MAX / 2, "{}", largest.len());
    assert_eq!(encoded(SURVEY_SPANS_MAX + 1, SURVEY_HOLES_MAX + 1), largest);
    let Ok(Some(Message::SurveyAnswer(answer))) = Message::decode(&largest[4..]) else {
        panic!("it is read")
    };
    let survey = answer.survey.unwrap();
    let sizes = (survey.spans.len() as u32, survey.holes.len() as u32);
    assert_eq!(sizes, (SURVEY_SPANS_MAX, SURVEY_HOLES_MAX));
    // Numbers that do not fit into a field become the largest that does.
    assert_eq!(survey.spans[0].frames, u64::from(u32::MAX));
    assert_eq!(survey.spans[0].skipped.of(SkipReason::Damaged), u64::from(u32::MAX));
    assert_eq!(survey.spans[0].end, begin + Duration::from_millis(u32::MAX.into()));
}

/// More spans or holes than there can be are refused before memory is allocated for them. Unknown codes are read as the nearest known meaning.
#[test]
fn surveys_that_make_no_sense_are_refused() {
    let answer = |rest: &[u8]| Message::decode(&[&[0x9d], &[0; 16][..], rest].concat());
    // The number of spans is followed by the spans, and without spans by the number of holes.
    let surveyed =
        |spans: u16, rest: &[u8]| answer(&[&[1, 0], &[0; 12][..], &spans.to_le_bytes(), rest].concat());
    assert!(matches!(surveyed(202, &[]), Err(WireError::TooLong { field: "spans", length: 202, .. })));
    assert!(matches!(surveyed(0, &[201, 0]), Err(WireError::TooLong { field: "holes", length: 201, .. })));
    assert_eq!(surveyed(1, &[0; 12]), Err(WireError::Truncated { field: "skip reasons" }));
    let why = |code: u8| match answer(&[code]) {
        Ok(Some(Message::SurveyAnswer(answer))) => answer.survey.unwrap_err(),
        other => panic!("{other:?}"),
    };
    assert_eq!((why(2), why(3), why(200)), (NoSurvey::Busy, NoSurvey::Unreadable, NoSurvey::Unreadable));
    // One hole with a reason of a later version, and with a skip count of such a reason.
    let hole = [&[1, 0], &[0; 8][..], &[0x70, 1, 0x71, 5, 0, 0, 0]].concat();
    let Ok(Some(Message::SurveyAnswer(answer))) = surveyed(0, &hole) else { panic!("it is read") };
    let hole = answer.survey.unwrap().holes.remove(0);
    assert_eq!(hole.reason, HoleReason::Skipped(SkipReason::NotHeld));
    assert_eq!(hole.skipped.of(SkipReason::NotHeld), 5);
}

/// A length in nanoseconds is sent in whole milliseconds, rounded up, so that nothing at the end is left out.
#[test]
fn the_end_of_a_survey_is_rounded_up() {
    let request = |nanos| SurveyRequest {
        request: 1,
        begin: Timestamp::from_nanos(5),
        length: Duration::from_nanos(nanos),
    };
    assert_eq!(request(0).end(), Timestamp::from_nanos(5));
    assert_eq!(request(1_000_001).end(), Timestamp::from_nanos(2_000_005));
    assert_eq!(request(u64::MAX).end(), Timestamp::from_nanos(u64::from(u32::MAX) * 1_000_000 + 5));
}
