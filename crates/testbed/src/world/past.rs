//! Reads the past: passes applications' questions to the camera's log, and the answers back.
//!
//! What an edge's memory lacks is looked for on its disk, if it keeps a log there. The camera is asked for the rest, as in `mez-node`.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{Epoch, FrameId};
use mez_core::history::{PastAnswer, Unanswered};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::events::Event;
use super::{Bug, Node, World};
use crate::time::ms;
use crate::trace::What;

/// How long it takes until an application's reading has its answer.
const ANSWER_TIME_MAX: Duration = ms(5);

/// A question that a reading has put.
pub(super) struct Asked {
    pub(super) subscription: SubscriptionId,
    pub(super) camera: CameraName,
    /// What the edge's disk had.
    on_disk: PastAnswer,
}

impl World {
    // ---- the application ----------------------------------------------------------------------------------

    /// Puts the questions of an application's reading.
    pub(super) fn ask_past(&mut self, index: usize) {
        loop {
            let application = &mut self.applications[index];
            let edge = application.spec.edge.0;
            let Some((id, reading)) = &mut application.reading else { return };
            let Some((camera, query)) = reading.poll_past() else { return };
            let id = *id;
            application.questions += 1;
            let lost = self.bug == Some(Bug::PastNotAsked) && application.questions % 3 == 2;
            let ahead = application.ahead.remove(&camera).filter(|record| query.admits(&record.frame.meta));
            let on_disk = match ahead {
                Some(record) => PastAnswer { record: Some(record), ..PastAnswer::default() },
                None => {
                    let kept = self.edges[edge].kept.get_mut(&camera);
                    kept.map(|kept| kept.find(&query)).unwrap_or_default()
                }
            };
            let Some(asks) = on_disk.left_to_ask(&query).filter(|_| !lost) else {
                let answer = if lost { PastAnswer::default() } else { on_disk };
                reading.handle_past(&camera, answer);
                self.touch(Node::Application(index));
                continue;
            };
            let request =
                self.with_edge(edge, |process, now| process.broker.handle_history_query(now, &camera, asks));
            let Some(request) = request else { return };
            self.trace.record(self.now, What::Asked { application: index, request });
            self.applications[index].asked.insert(request, Asked { subscription: id, camera, on_disk });
        }
    }

    /// An edge has the answer to a question.
    pub(super) fn past_answered(&mut self, edge: usize, request: u64, answer: PastAnswer) {
        let asks =
            |known: &super::Application| known.spec.edge.0 == edge && known.asked.contains_key(&request);
        let Some(index) = self.applications.iter().position(asks) else { return };
        let known = self.applications[index].asked.get(&request);
        let robbed =
            known.map(|asked| asked.camera.clone()).filter(|camera| self.is_with_thief(edge, camera));
        let application = &mut self.applications[index];
        application.misled.extend(robbed.filter(|_| answer.unanswered.is_none()));
        let later = self.now + application.random.duration(Duration::ZERO..=ANSWER_TIME_MAX);
        let answer = Box::new(answer);
        self.events.push(later, Event::Answered { application: index, request, answer });
    }

    /// An application's reading has its answer.
    pub(super) fn take_answer(&mut self, index: usize, request: u64, mut answer: PastAnswer) {
        let application = &mut self.applications[index];
        let Some(asked) = application.asked.remove(&request) else { return };
        application.past_until = self.now;
        let Some((id, reading)) = &mut application.reading else { return };
        if *id != asked.subscription {
            return;
        }
        match self.bug {
            // As if the camera had said that it holds nothing there.
            Some(Bug::AbsenceTakenForNothing) if answer.unanswered.is_some() => {
                answer = PastAnswer { camera_holds_from: Some(Timestamp::MIN), ..PastAnswer::default() };
            }
            _ => application.excused |= answer.unanswered == Some(Unanswered::TimedOut),
        }
        let (mut answer, ahead) = asked.on_disk.with_camera(answer);
        application.excused |= answer.broken;
        application.ahead.extend(ahead.map(|record| (asked.camera.clone(), record)));
        if let Some(record) = answer.record.as_mut().filter(|_| self.bug == Some(Bug::PastMixedUp)) {
            record.frame.payload = Bytes::from_static(b"another frame");
        }
        self.trace.record(self.now, What::Answered { application: index, found: answer.record.is_some() });
        reading.handle_past(&asked.camera, answer);
        self.touch(Node::Application(index));
    }

    /// Drops an application's questions. Nobody waits for the answers any more.
    pub(super) fn drop_questions(&mut self, index: usize) {
        let edge = self.applications[index].spec.edge.0;
        let asked = std::mem::take(&mut self.applications[index].asked);
        self.applications[index].excused = false;
        self.applications[index].misled.clear();
        self.with_edge(edge, |process, _| {
            asked.keys().for_each(|request| process.broker.handle_history_dropped(*request));
        });
    }
}

/// The request that a stream of the link belongs to, if it carries a frame of the past.
pub(super) fn request_of(stream: FrameId) -> Option<u64> {
    (stream.epoch == Epoch(u64::MAX)).then_some(stream.sequence.0)
}
