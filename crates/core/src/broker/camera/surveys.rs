//! Decides when the camera surveys its own log for an edge. One survey runs at a time. Then the camera rests for as long as the
//! survey took, at least a second. So an edge that asks without end takes half a thread, and one answer per second of the link.

use std::collections::VecDeque;
use std::time::Duration;

use super::types::CameraOutput;
use crate::broker::LinkId;
use crate::history::Survey;
use crate::units::Instant;
use crate::wire::{Message, NoSurvey, SurveyAnswer, SurveyRequest};

/// The most requests for surveys that may wait at a camera. A further one is answered with [`NoSurvey::Busy`].
pub const SURVEY_REQUESTS_MAX: usize = 4;

/// The shortest rest after a survey. An answer may have several kilobytes, and goes before frames.
const REST_MIN: Duration = Duration::from_secs(1);
/// The longest rest after a survey. A survey that waits for a stalled disk takes no processor meanwhile.
const REST_MAX: Duration = Duration::from_secs(10);
/// A request that has waited longer than this is dropped: the edge no longer waits for its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A survey that is being made.
struct Running {
    /// The connection of the request. `None`: it is gone.
    link: Option<LinkId>,
    request: SurveyRequest,
    begun: Instant,
}

/// The edge's requests for surveys.
pub(super) struct Surveys {
    running: Option<Running>,
    /// The requests that wait, oldest first, with the time at which each came.
    waiting: VecDeque<(LinkId, SurveyRequest, Instant)>,
    rests_until: Instant,
}

impl Surveys {
    pub(super) fn new(now: Instant) -> Self {
        Self { running: None, waiting: VecDeque::new(), rests_until: now }
    }

    /// The edge asks for a survey. [`Surveys::pump`] begins it.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        link: LinkId,
        request: SurveyRequest,
    ) -> Option<CameraOutput> {
        self.waiting.retain(|(.., came)| now.saturating_since(*came) < PATIENCE);
        if self.waiting.len() >= SURVEY_REQUESTS_MAX {
            return Some(answer(link, &request, Err(NoSurvey::Busy)));
        }
        self.waiting.push_back((link, request, now));
        None
    }

    /// The survey that [`CameraOutput::Survey`] asked for is complete; `None` if the log cannot be read.
    pub(super) fn handle_surveyed(&mut self, now: Instant, survey: Option<Survey>) -> Option<CameraOutput> {
        let Running { link, request, begun } = self.running.take()?;
        self.rests_until = now + now.saturating_since(begun).clamp(REST_MIN, REST_MAX);
        let survey = survey.map(|survey| survey.in_order(request.begin, request.end()));
        link.map(|link| answer(link, &request, survey.ok_or(NoSurvey::Unreadable)))
    }

    /// A connection is gone.
    pub(super) fn handle_closed(&mut self, link: LinkId) {
        self.waiting.retain(|(of, ..)| *of != link);
        if let Some(running) = &mut self.running {
            running.link.take_if(|of| *of == link);
        }
    }

    /// When to call [`Surveys::pump`], if nothing happens before.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.running.is_none() && !self.waiting.is_empty()).then_some(self.rests_until)
    }

    /// Begins the next survey, if it is time.
    pub(super) fn pump(&mut self, now: Instant) -> Option<CameraOutput> {
        if self.running.is_some() || now < self.rests_until {
            return None;
        }
        self.waiting.retain(|(.., came)| now.saturating_since(*came) < PATIENCE);
        let (link, request, _) = self.waiting.pop_front()?;
        self.running = Some(Running { link: Some(link), request, begun: now });
        Some(CameraOutput::Survey { begin: request.begin, end: request.end() })
    }
}

fn answer(link: LinkId, request: &SurveyRequest, survey: Result<Survey, NoSurvey>) -> CameraOutput {
    let SurveyRequest { request, begin, .. } = *request;
    CameraOutput::Send { link, message: Message::SurveyAnswer(SurveyAnswer { request, begin, survey }) }
}
