//! Receives answers of applications to the camera's frames. An inlet decides which of them are accepted ([`crate::answers`]).

use std::time::Duration;

use bytes::Bytes;

use super::types::CameraOutput;
use crate::answers::{AnswerRefused, Inlet};
use crate::broker::LinkId;
use crate::clock::ClockEstimate;
use crate::frame::{Epoch, FrameId};
use crate::units::{ClockAnchor, Instant};
use crate::wire::{AnswerAccount, AnswerRequest, FrameHeader, Message, Report};

/// The answers of one camera.
pub(super) struct Answers {
    inlet: Inlet,
    anchor: ClockAnchor,
    /// The highest age of an answer that leaves the edge. `None`: the publisher takes no answers.
    bound: Option<Duration>,
    /// Whether the publisher has taken answers at any time. If so, edges are also told that it takes none.
    is_known: bool,
}

impl Answers {
    pub(super) fn new(anchor: ClockAnchor) -> Self {
        Self { inlet: Inlet::default(), anchor, bound: None, is_known: false }
    }

    /// The message that tells an edge whether answers are taken, once the edge has welcomed the camera.
    pub(super) fn request(&self, link: LinkId) -> Option<CameraOutput> {
        let message = Message::AnswerRequest(AnswerRequest { bound: self.bound });
        self.is_known.then_some(CameraOutput::Send { link, message })
    }

    /// An edge sends its account of answers.
    pub(super) fn handle_account(&mut self, account: AnswerAccount) -> CameraOutput {
        CameraOutput::AnswersSkipped(self.inlet.handle_account(account))
    }

    /// Sets the highest age of an answer that leaves the edge. `None`: the publisher takes no answers. Returns whether this is a change.
    pub(super) fn set_bound(&mut self, bound: Option<Duration>) -> bool {
        let is_news = self.bound != bound;
        self.bound = bound;
        self.is_known |= is_news;
        is_news
    }

    /// The header of an answer has arrived. `epoch` is `None` if this is not the connection on which the edge has welcomed the camera.
    pub(super) fn handle_header(
        &mut self,
        now: Instant,
        (link, epoch): (LinkId, Option<Epoch>),
        header: Box<FrameHeader>,
    ) -> (Result<(), AnswerRefused>, Option<CameraOutput>) {
        let frame = header.meta.id;
        let taken = match epoch.filter(|_| self.bound.is_some()) {
            Some(epoch) => self.inlet.handle_header(now, (link.0, epoch), header),
            None => Err(AnswerRefused::NotWanted),
        };
        let refused = taken.is_err().then(|| report(link, Report::Refused { frame }));
        (taken, refused)
    }

    /// The payload of an answer has arrived completely.
    pub(super) fn handle_complete(
        &mut self,
        now: Instant,
        (link, frame): (LinkId, FrameId),
        payload: Bytes,
        clock: Option<ClockEstimate>,
    ) -> Vec<CameraOutput> {
        if self.bound.is_none() {
            self.inlet.handle_cancelled(link.0, frame);
            return vec![report(link, Report::Refused { frame })];
        }
        let clocks = (self.anchor, clock);
        let Some((told, answered)) = self.inlet.handle_complete(now, (link.0, frame), payload, clocks) else {
            return Vec::new();
        };
        let answered = answered.map(|answered| CameraOutput::Answer(Box::new(answered)));
        std::iter::once(report(link, told)).chain(answered).collect()
    }

    /// The rest of an answer will not come.
    pub(super) fn handle_cancelled(&mut self, link: LinkId, frame: FrameId) {
        self.inlet.handle_cancelled(link.0, frame);
    }

    /// A connection is gone.
    pub(super) fn handle_closed(&mut self, link: LinkId) {
        self.inlet.handle_closed(link.0);
    }
}

/// The message that tells an edge how an answer arrived.
fn report(link: LinkId, report: Report) -> CameraOutput {
    CameraOutput::Send { link, message: Message::Report(report) }
}
