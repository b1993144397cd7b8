//! Holds the newest answer until the publisher takes it.

use super::types::Answered;
use crate::frame::FrameId;
use crate::wire::{AnswerSkip, AnswerSkips};

/// The newest answer, and how many others the publisher was not given.
#[derive(Debug, Default)]
pub struct AnswerBox {
    waiting: Option<Answered>,
    /// The frame of the last answer that was given.
    given: Option<FrameId>,
    /// By the edges' accounts.
    skipped: AnswerSkips,
    /// Those that were here and that nobody took in time.
    unread: u64,
    /// What the publisher was told of both.
    told: AnswerSkips,
}

impl AnswerBox {
    /// An answer is here. One that waits is given up for it.
    pub fn put(&mut self, answer: Answered) {
        let newest = self.waiting.as_ref().map(|waiting| waiting.frame).max(self.given);
        debug_assert!(newest < Some(answer.frame), "an answer comes after a newer one");
        self.unread += u64::from(self.waiting.replace(answer).is_some());
    }

    /// Nobody takes answers any more: one that waits would be old when somebody does again.
    pub fn clear(&mut self) {
        self.unread += u64::from(self.waiting.take().is_some());
    }

    /// So many answers were not delivered, by the edges' accounts.
    pub fn set_skipped(&mut self, skipped: AnswerSkips) {
        self.skipped = skipped;
    }

    /// Gives the newest answer, and what was not given since the one before.
    pub fn take(&mut self) -> Option<(Answered, AnswerSkips)> {
        let answer = self.waiting.take()?;
        self.given = Some(answer.frame);
        let skipped = self.skipped();
        let news = skipped.since(&self.told);
        // A count that fell has been told, and is no news when it rises again.
        self.told.add_all(&news);
        Some((answer, news))
    }

    /// All answers that the publisher was not given so far.
    pub fn skipped(&self) -> AnswerSkips {
        let mut all = self.skipped;
        all.add(AnswerSkip::Unread, self.unread);
        all
    }
}
