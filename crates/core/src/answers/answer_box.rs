//! Holds the newest answer until the publisher takes it.

use super::types::Answered;
use crate::frame::FrameId;
use crate::wire::{AnswerSkip, AnswerSkips};

/// The newest answer, and the counts of answers that were not delivered to the publisher.
#[derive(Debug, Default)]
pub struct AnswerBox {
    waiting: Option<Answered>,
    /// The frame of the last answer that the publisher took.
    given: Option<FrameId>,
    /// The answers that were not delivered, by the edges' accounts.
    skipped: AnswerSkips,
    /// Answers that arrived here and that the publisher did not take in time.
    unread: u64,
    /// The skipped answers of both kinds that were reported to the publisher.
    told: AnswerSkips,
}

impl AnswerBox {
    /// An answer has arrived. It replaces an answer that waits.
    pub fn put(&mut self, answer: Answered) {
        let newest = self.waiting.as_ref().map(|waiting| waiting.frame).max(self.given);
        debug_assert!(newest < Some(answer.frame), "an answer comes after a newer one");
        self.unread += u64::from(self.waiting.replace(answer).is_some());
    }

    /// Frames count from the beginning again. An answer that waits is dropped, because it is older.
    pub fn begin_again(&mut self) {
        self.clear();
        self.given = None;
    }

    /// The publisher takes no answers any more. An answer that waits is dropped, because it would be too old later.
    pub fn clear(&mut self) {
        self.unread += u64::from(self.waiting.take().is_some());
    }

    /// Sets how many answers were not delivered, by the edges' accounts.
    pub fn set_skipped(&mut self, skipped: AnswerSkips) {
        self.skipped = skipped;
    }

    /// Takes the newest answer, and the counts of answers skipped since the one before.
    pub fn take(&mut self) -> Option<(Answered, AnswerSkips)> {
        let answer = self.waiting.take()?;
        self.given = Some(answer.frame);
        let skipped = self.skipped();
        let news = skipped.since(&self.told);
        // A count that fell was already reported, and is not reported again when it rises.
        self.told.add_all(&news);
        Some((answer, news))
    }

    /// All answers that were not delivered to the publisher so far.
    pub fn skipped(&self) -> AnswerSkips {
        let mut all = self.skipped;
        all.add(AnswerSkip::Unread, self.unread);
        all
    }
}
