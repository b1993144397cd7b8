//! Puts what readers want of the past to the part that asks cameras for it, and tells that part how the frames come.

use bytes::Bytes;

use super::EdgeBroker;
use crate::broker::LinkId;
use crate::history::PastQuery;
use crate::name::CameraName;
use crate::units::Instant;

impl EdgeBroker {
    /// A reader lacks a frame that its camera may have. The answer comes as
    /// [`EdgeOutput::History`](super::EdgeOutput::History) with the number that this returns. It comes at once
    /// if the frame was fetched before, or if the camera is neither connected nor expected soon.
    pub fn handle_history_query(&mut self, now: Instant, camera: &CameraName, query: PastQuery) -> u64 {
        let (question, outputs) = self.history.handle_query(now, &self.roster, camera, query);
        self.outputs.extend(outputs);
        question
    }

    /// Nobody waits for the answer any more.
    pub fn handle_history_dropped(&mut self, question: u64) {
        self.outputs.extend(self.history.handle_dropped(question));
    }

    /// All of the payload of a frame of the past is here.
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
}
