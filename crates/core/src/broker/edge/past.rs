//! Passes questions about the past to the parts that ask cameras, and passes to these parts what arrives.

use bytes::Bytes;

use super::EdgeBroker;
use crate::broker::LinkId;
use crate::history::PastQuery;
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};

impl EdgeBroker {
    /// A reader lacks a frame that its camera may have. The answer comes as [`EdgeOutput::History`](super::EdgeOutput::History) with
    /// the returned number. It comes at once if the frame was fetched before, or if the camera is neither connected nor expected soon.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        let (question, outputs) = self.history.handle_query(now, &self.roster, camera, query);
        self.outputs.extend(outputs);
        question
    }

    /// No reader waits for the answer any more.
    pub fn handle_history_dropped(&mut self, question: u64) {
        self.outputs.extend(self.history.handle_dropped(question));
    }

    /// The payload of a frame of the past has arrived completely.
    pub fn handle_history_complete(&mut self, now: Instant, id: LinkId, number: u64, payload: Bytes) {
        let _ = self.roster.handle_heard(now, id);
        let (bytes, outputs) = self.history.handle_complete(now, &self.roster, (id, number), payload);
        self.roster.handle_past_frame(id, bytes);
        self.outputs.extend(outputs);
    }

    /// The rest of a frame of the past will not come.
    pub fn handle_history_cancelled(&mut self, now: Instant, link: LinkId, number: u64) {
        self.outputs.extend(self.history.handle_cancelled(now, &self.roster, (link, number)));
    }

    /// A caller wants to know what a camera holds of a span of capture times. The answer comes as
    /// [`EdgeOutput::Surveyed`](super::EdgeOutput::Surveyed) with the returned number, at the latest when the
    /// camera's connection is gone. A caller that gives up before calls [`EdgeBroker::handle_survey_dropped`].
    pub fn handle_survey_query(&mut self, camera: &CameraName, span: (Timestamp, Timestamp)) -> u64 {
        let (question, output) = self.surveys.handle_query(&self.roster, camera, span);
        self.outputs.push_back(output);
        question
    }

    /// No caller waits for the answer any more.
    pub fn handle_survey_dropped(&mut self, question: u64) {
        self.surveys.handle_dropped(question);
    }
}
