//! Frames of the past that only a camera has: asked for one at a time, and kept apart from the replica logs.

use std::time::Duration;

use bytes::Bytes;

use super::{EdgeBroker, EdgeOutput, FrameRefused};
use crate::broker::LinkId;
use crate::frame::{Frame, Quality, Rung};
use crate::history::{PastAnswer, PastQuery};
use crate::log::Record;
use crate::name::CameraName;
use crate::units::Instant;
use crate::wire::{FrameHeader, HistoryEnd, HistoryRequest, Message};

/// Questions for the past that may be open at one camera; one more is answered as if the camera held nothing.
pub const HISTORY_QUESTIONS_MAX: usize = 16;
/// How long a camera may take for a frame of the past. One that is busy with live frames sends none meanwhile; one of an earlier
/// version never answers.
pub const HISTORY_TIME_MAX: Duration = Duration::from_secs(20);

/// A question that a camera has not answered yet.
pub(super) struct Question {
    link: LinkId,
    camera: CameraName,
    query: PastQuery,
    /// Set once the frame is on its way.
    header: Option<Box<FrameHeader>>,
    pub(super) due: Instant,
}

impl EdgeBroker {
    /// A reading lacks a frame that its camera may have. The answer comes as [`EdgeOutput::History`] with the number that
    /// this returns: at once if the frame has been fetched before, or if the camera is not connected.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        self.last_question += 1;
        let request = self.last_question;
        // What was fetched tells of its neighbours only where it follows directly.
        let next = query.after.map(|after| after.next());
        let held = self.fetched.find(camera, &query).filter(|record| Some(record.frame.meta.id) == next);
        let link = self.cameras.get(camera).and_then(|known| known.link.filter(|_| !known.silent));
        let open = self.questions.values().filter(|question| question.camera == *camera).count();
        match (held.cloned(), link) {
            (None, Some(link)) if open < HISTORY_QUESTIONS_MAX => {
                let question = Question {
                    link,
                    camera: camera.clone(),
                    query,
                    header: None,
                    due: now + HISTORY_TIME_MAX,
                };
                self.questions.insert(request, question);
                let message = HistoryRequest { request, query, rung: Rung::original() };
                self.send(link, Message::HistoryRequest(message));
            }
            (record, _) => {
                let answer = PastAnswer { record, ..PastAnswer::default() };
                self.outputs.push_back(EdgeOutput::History { request, answer });
            }
        }
        request
    }

    /// Nobody waits for the answer any more.
    pub fn handle_history_dropped(&mut self, request: u64) {
        self.questions.remove(&request);
    }

    pub(super) fn history_header(&mut self, link: LinkId, header: FrameHeader) -> Result<(), FrameRefused> {
        let (bytes_max, frame) = (self.frame_bytes_max(), header.meta.id);
        let question = self.questions.get_mut(&header.history);
        let Some(question) = question.filter(|question| question.link == link && question.header.is_none())
        else {
            return Err(FrameRefused::NotAsked { frame });
        };
        let refused = if header.payload_bytes > bytes_max {
            Some(FrameRefused::TooLarge { bytes: header.payload_bytes, bytes_max })
        } else if header.payload_bytes == 0 || header.meta.width == 0 || header.meta.height == 0 {
            Some(FrameRefused::Empty)
        } else if !question.query.spans(frame) || header.meta.captured > question.query.end {
            Some(FrameRefused::NotAsked { frame })
        } else {
            None
        };
        let request = header.history;
        match refused {
            Some(refused) => {
                self.answer_history(request, PastAnswer::default());
                Err(refused)
            }
            None => {
                question.header = Some(Box::new(header));
                Ok(())
            }
        }
    }

    /// All of the payload of a frame of the past is here.
    pub fn handle_history_complete(&mut self, now: Instant, link: LinkId, request: u64, payload: Bytes) {
        if let Some(link) = self.links.get_mut(&link) {
            link.heard = now;
        }
        let question = self.questions.get_mut(&request).filter(|question| question.link == link);
        let Some(question) = question else { return };
        let header = question.header.take().filter(|header| header.payload_bytes as usize == payload.len());
        let record = header.map(|header| Record {
            frame: Frame { meta: header.meta, payload },
            skipped: [].into(),
            quality: Quality::default(),
            arrived: now,
        });
        if let Some(record) = &record {
            let camera = question.camera.clone();
            self.fetched.insert(&camera, record.clone());
            if let Some(known) = self.cameras.get_mut(&camera) {
                known.counters.bytes += record.frame.payload.len() as u64;
            }
        }
        self.answer_history(request, PastAnswer { record, ..PastAnswer::default() });
    }

    /// The rest of a frame of the past will not come.
    pub fn handle_history_cancelled(&mut self, link: LinkId, request: u64) {
        if self.questions.get(&request).is_some_and(|question| question.link == link) {
            self.answer_history(request, PastAnswer { broken: true, ..PastAnswer::default() });
        }
    }

    pub(super) fn history_end(&mut self, link: LinkId, end: HistoryEnd) {
        if self.questions.get(&end.request).is_some_and(|question| question.link == link) {
            let answer = PastAnswer { record: None, broken: false, held_from: end.held_from };
            self.answer_history(end.request, answer);
        }
    }

    pub(super) fn forget_history(&mut self, link: LinkId) {
        self.give_up_questions(|question| question.link == link);
    }

    pub(super) fn expire_history(&mut self, now: Instant) {
        self.give_up_questions(|question| now >= question.due);
    }

    fn give_up_questions(&mut self, which: impl Fn(&Question) -> bool) {
        let given_up = self.questions.iter().filter(|(_, question)| which(question));
        let given_up: Vec<u64> = given_up.map(|(request, _)| *request).collect();
        for request in given_up {
            self.answer_history(request, PastAnswer { broken: true, ..PastAnswer::default() });
        }
    }

    fn answer_history(&mut self, request: u64, answer: PastAnswer) {
        if self.questions.remove(&request).is_some() {
            self.outputs.push_back(EdgeOutput::History { request, answer });
        }
    }
}
