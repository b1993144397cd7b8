//! Asks cameras what they hold of a span of their past, and checks their answers.

use std::collections::BTreeMap;

use super::roster::Roster;
use super::types::{EdgeOutput, NotSurveyed};
use crate::broker::LinkId;
use crate::history::{Survey, Unanswered};
use crate::name::CameraName;
use crate::units::Timestamp;
use crate::wire::{Message, NoSurvey, SurveyAnswer, SurveyRequest};

/// The most questions that may be open. A further one is answered with [`Unanswered::Busy`].
const QUESTIONS_MAX: usize = 64;

/// The questions that cameras have not answered yet. The callers give up by themselves.
#[derive(Default)]
pub(super) struct Surveys {
    /// The open questions by number, each with the connection on which it was asked.
    asked: BTreeMap<u64, (LinkId, SurveyRequest)>,
    last: u64,
}

impl Surveys {
    /// A caller wants to know what a camera holds of a span. Returns the number that the answer will have.
    pub(super) fn handle_query(
        &mut self,
        roster: &Roster,
        camera: &CameraName,
        (begin, end): (Timestamp, Timestamp),
    ) -> (u64, EdgeOutput) {
        self.last += 1;
        let question = self.last;
        let link = match self.may_ask(roster, camera) {
            Ok(link) => link,
            Err(why) => return (question, told(question, Err(NotSurveyed::Unanswered(why)))),
        };
        let request = SurveyRequest { request: question, begin, length: end.saturating_since(begin) };
        self.asked.insert(question, (link, request));
        (question, EdgeOutput::Send { link, message: Message::SurveyRequest(request) })
    }

    /// The connection on which a camera can be asked, or why it cannot be asked.
    fn may_ask(&self, roster: &Roster, camera: &CameraName) -> Result<LinkId, Unanswered> {
        if roster.derived_from(camera).is_some() {
            // The edge has the whole log of a derived stream.
            return Err(Unanswered::Unable);
        }
        let link = roster.reached(camera).ok_or(Unanswered::CameraAbsent)?;
        // A camera of an earlier version ignores the question.
        if !link.abilities.is_some_and(|abilities| abilities.surveys) {
            return Err(Unanswered::Unable);
        }
        if self.asked.len() >= QUESTIONS_MAX { Err(Unanswered::Busy) } else { Ok(link.id) }
    }

    /// No caller waits for the answer any more.
    pub(super) fn handle_dropped(&mut self, question: u64) {
        self.asked.remove(&question);
    }

    /// A camera has answered. Answers to questions that are no longer open are ignored.
    pub(super) fn handle_answer(&mut self, link: LinkId, answer: SurveyAnswer) -> Option<EdgeOutput> {
        let SurveyAnswer { request: question, begin, survey } = answer;
        let (of, request) = self.asked.get(&question)?;
        if *of != link || request.begin != begin {
            return None;
        }
        let end = request.end();
        self.asked.remove(&question);
        let survey = match survey {
            Ok(survey) => survey.check(begin, end).map(|()| survey).map_err(NotSurveyed::Absurd),
            Err(NoSurvey::Busy) => Err(NotSurveyed::Unanswered(Unanswered::Busy)),
            Err(NoSurvey::Unreadable) => Err(NotSurveyed::Unreadable),
        };
        Some(told(question, survey))
    }

    /// A connection is gone, so its questions will not be answered.
    pub(super) fn handle_closed(&mut self, link: LinkId) -> Vec<EdgeOutput> {
        let lost = self.asked.extract_if(.., |_, (of, _)| *of == link);
        let absent = || Err(NotSurveyed::Unanswered(Unanswered::CameraAbsent));
        lost.map(|(question, _)| told(question, absent())).collect()
    }
}

fn told(question: u64, survey: Result<Survey, NotSurveyed>) -> EdgeOutput {
    EdgeOutput::Surveyed { question, survey }
}
