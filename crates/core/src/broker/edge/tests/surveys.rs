//! Questions about what a camera holds of a span of its past.

use super::*;
use crate::frame::SkipCounts;
use crate::history::{HeldSpan, Survey, SurveyFault, Unanswered};
use crate::wire::{Abilities, NoSurvey, SurveyAnswer, SurveyRequest};

const BEGIN: Timestamp = Timestamp::from_nanos(5_000_000_000);
const LENGTH: Duration = Duration::from_secs(60);

fn able(rig: &mut Rig, link: u64) {
    rig.hello(link, "a", 3, link, 0);
    rig.broker.handle_message(rig.now, LinkId(link), Message::Abilities(Abilities::ALL));
}

fn ask(rig: &mut Rig) -> u64 {
    rig.broker.handle_survey_query(&"dock/cam1".parse().unwrap(), (BEGIN, BEGIN + LENGTH))
}

/// The answers, and what the camera was asked.
type Said = (Vec<(u64, Result<Survey, NotSurveyed>)>, Vec<SurveyRequest>);

fn said(rig: &mut Rig) -> Said {
    let (mut answers, mut asked) = (Vec::new(), Vec::new());
    for output in rig.take() {
        match output {
            EdgeOutput::Surveyed { question, survey } => answers.push((question, survey)),
            EdgeOutput::Send { message: Message::SurveyRequest(request), .. } => asked.push(request),
            EdgeOutput::Close { .. } => panic!("a camera is refused for what it answers"),
            _ => {}
        }
    }
    (answers, asked)
}

fn tells(rig: &mut Rig, link: u64, request: u64, survey: Result<Survey, NoSurvey>) {
    let answer = SurveyAnswer { request, begin: BEGIN, survey };
    rig.broker.handle_message(rig.now, LinkId(link), Message::SurveyAnswer(answer));
}

fn survey(end: Timestamp) -> Survey {
    let span = HeldSpan { begin: BEGIN, end, frames: 2, skipped: SkipCounts::default() };
    Survey { held_from: Some(BEGIN), spans: vec![span], ..Survey::default() }
}

fn not(why: Unanswered) -> Result<Survey, NotSurveyed> {
    Err(NotSurveyed::Unanswered(why))
}

#[test]
fn what_a_camera_tells_is_handed_on_once() {
    let mut rig = Rig::new();
    able(&mut rig, 1);
    let question = ask(&mut rig);
    let (answers, asked) = said(&mut rig);
    assert_eq!(answers, []);
    assert_eq!(asked, [SurveyRequest { request: question, begin: BEGIN, length: LENGTH }]);
    tells(&mut rig, 1, question + 1, Ok(survey(BEGIN)));
    assert_eq!(said(&mut rig).0, [], "nobody has asked that");
    for _ in 0..2 {
        tells(&mut rig, 1, question, Ok(survey(BEGIN + LENGTH)));
    }
    assert_eq!(said(&mut rig).0, [(question, Ok(survey(BEGIN + LENGTH)))]);
    for (refused, why) in
        [(NoSurvey::Busy, not(Unanswered::Busy)), (NoSurvey::Unreadable, Err(NotSurveyed::Unreadable))]
    {
        let question = ask(&mut rig);
        tells(&mut rig, 1, question, Err(refused));
        assert_eq!(said(&mut rig).0, [(question, why)]);
    }
    // A caller that has given up gets nothing.
    let question = ask(&mut rig);
    rig.broker.handle_survey_dropped(question);
    tells(&mut rig, 1, question, Ok(survey(BEGIN)));
    assert_eq!(said(&mut rig).0, []);
}

/// An absurd answer is not believed, but the camera stays connected: its frames are as good as before.
#[test]
fn a_lie_is_told_as_one() {
    let mut rig = Rig::new();
    able(&mut rig, 1);
    let question = ask(&mut rig);
    tells(&mut rig, 1, question, Ok(survey(BEGIN + LENGTH + Duration::from_millis(1))));
    assert_eq!(said(&mut rig).0, [(question, Err(NotSurveyed::Absurd(SurveyFault::Outside)))]);
    // An answer about another span, or on another connection, does not answer this question.
    let question = ask(&mut rig);
    let other = SurveyAnswer { request: question, begin: BEGIN + LENGTH, survey: Ok(survey(BEGIN + LENGTH)) };
    rig.broker.handle_message(rig.now, LinkId(1), Message::SurveyAnswer(other));
    rig.connect(2, "b");
    tells(&mut rig, 2, question, Ok(survey(BEGIN)));
    assert_eq!(said(&mut rig).0, []);
}

#[test]
fn a_camera_that_cannot_answer_is_not_asked() {
    let mut rig = Rig::new();
    let question = ask(&mut rig);
    assert_eq!(said(&mut rig), (vec![(question, not(Unanswered::CameraAbsent))], vec![]));
    // A camera of an earlier version has said nothing of surveys, or nothing yet.
    rig.hello(1, "a", 3, 1, 0);
    for abilities in [None, Some(Abilities { past: true, surveys: false })] {
        if let Some(abilities) = abilities {
            rig.broker.handle_message(rig.now, LinkId(1), Message::Abilities(abilities));
        }
        let question = ask(&mut rig);
        assert_eq!(said(&mut rig), (vec![(question, not(Unanswered::Unable))], vec![]));
    }
}

#[test]
fn questions_end_with_their_connection_and_are_bounded() {
    let mut rig = Rig::new();
    able(&mut rig, 1);
    let questions: Vec<u64> = (0..65).map(|_| ask(&mut rig)).collect();
    let (answers, asked) = said(&mut rig);
    assert_eq!((answers, asked.len()), (vec![(questions[64], not(Unanswered::Busy))], 64));
    rig.broker.handle_closed(rig.now, LinkId(1));
    let lost = questions[..64].iter().map(|question| (*question, not(Unanswered::CameraAbsent)));
    assert_eq!(said(&mut rig).0, lost.collect::<Vec<_>>());
}
