//! The edge asks what the camera holds of a span of its past.

use super::*;
use crate::broker::camera::SURVEY_REQUESTS_MAX;
use crate::frame::SkipCounts;
use crate::history::{HeldSpan, Survey};
use crate::wire::{NoSurvey, SurveyAnswer, SurveyRequest};

const BEGIN: Timestamp = Timestamp::from_nanos(5_000_000_000);

fn asks(rig: &mut Rig, link: u64, request: u64) {
    let length = Duration::from_secs(60);
    rig.message(link, Message::SurveyRequest(SurveyRequest { request, begin: BEGIN, length }));
}

/// The requested surveys, and the requests that were answered, with the answers.
type Said = (Vec<(Timestamp, Timestamp)>, Vec<(u64, Result<Survey, NoSurvey>)>);

fn said(rig: &mut Rig) -> Said {
    let (mut surveys, mut answers) = (Vec::new(), Vec::new());
    for output in rig.take() {
        match output {
            CameraOutput::Survey { begin, end } => surveys.push((begin, end)),
            CameraOutput::Send { message: Message::SurveyAnswer(answer), .. } => {
                let SurveyAnswer { request, begin, survey } = answer;
                assert_eq!(begin, BEGIN);
                answers.push((request, survey));
            }
            _ => {}
        }
    }
    (surveys, answers)
}

fn survey(begin: Timestamp) -> Survey {
    let span = HeldSpan { begin, end: begin + MS, frames: 2, skipped: SkipCounts::default() };
    Survey { held_from: Some(begin), spans: vec![span], ..Survey::default() }
}

/// However fast an edge asks, one survey runs at a time, followed by a pause of at least a second. A request that has waited too long is dropped.
#[test]
fn surveys_take_turns_and_half_of_the_time() {
    let mut rig = Rig::connected(Contract::default());
    for request in 1..=SURVEY_REQUESTS_MAX as u64 + 2 {
        asks(&mut rig, 1, request);
    }
    let span = (BEGIN, BEGIN + Duration::from_secs(60));
    let busy = SURVEY_REQUESTS_MAX as u64 + 2;
    assert_eq!(said(&mut rig), (vec![span], vec![(busy, Err(NoSurvey::Busy))]), "one runs, the others wait");
    rig.pass(300 * MS, &[1]);
    assert_eq!(said(&mut rig), (vec![], vec![]));
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN)));
    assert_eq!(said(&mut rig), (vec![], vec![(1, Ok(survey(BEGIN)))]));
    rig.pass(999 * MS, &[1]);
    assert_eq!(said(&mut rig).0, [], "it rests");
    rig.pass(MS, &[1]);
    assert_eq!(said(&mut rig).0, [span]);
    // An unreadable log is reported, and spans that were not asked for are cut off.
    rig.broker.handle_surveyed(rig.now, None);
    assert_eq!(said(&mut rig), (vec![], vec![(2, Err(NoSurvey::Unreadable))]));
    rig.pass(1_000 * MS, &[1]);
    assert_eq!(said(&mut rig).0, [span]);
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN - MS)));
    let (_, answers) = said(&mut rig);
    assert_eq!(answers[0].1.as_ref().map(|survey| survey.spans[0].begin), Ok(BEGIN));
    // The next survey takes so long that the edge no longer waits for the requests after it.
    rig.pass(1_000 * MS, &[1]);
    assert_eq!(said(&mut rig).0, [span]);
    rig.pass(3_000 * MS, &[1]);
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN)));
    rig.pass(3_000 * MS, &[1]);
    assert_eq!(said(&mut rig).0, [], "it was forgotten");
}

/// An edge that is gone gets no answer, and its requests do not delay the next edge. A survey that runs is completed.
#[test]
fn requests_go_with_their_connection() {
    let mut rig = Rig::connected(Contract::default());
    for request in 1..=3 {
        asks(&mut rig, 1, request);
    }
    assert_eq!(said(&mut rig).0.len(), 1);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.welcome(2, None);
    asks(&mut rig, 2, 1);
    assert_eq!(said(&mut rig), (vec![], vec![]), "the other one still runs");
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN)));
    rig.pass(1_000 * MS, &[2]);
    let (surveys, answers) = said(&mut rig);
    assert_eq!((surveys.len(), answers), (1, vec![]));
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN)));
    assert_eq!(said(&mut rig), (vec![], vec![(1, Ok(survey(BEGIN)))]));
    // A second report is ignored.
    rig.broker.handle_surveyed(rig.now, Some(survey(BEGIN)));
    assert_eq!(said(&mut rig), (vec![], vec![]));
}

#[test]
fn nobody_is_surveyed_for_before_the_welcome() {
    let mut rig = Rig::new();
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    asks(&mut rig, 1, 1);
    let outputs = rig.take();
    assert!(outputs.iter().any(|output| matches!(output, CameraOutput::Close { .. })), "{outputs:?}");
}
