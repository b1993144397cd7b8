//! Models a camera's publisher, as far as it takes answers.

use std::collections::BTreeMap;

use mez_core::answers::{AnswerBox, Answered};
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::wire::AnswerSkips;

/// The publisher of a process, as far as it takes answers.
#[derive(Default)]
pub(in crate::world) struct Publisher {
    pub(super) waiting: AnswerBox,
    /// Whether the publisher works on an answer, or is about to take one.
    pub(super) busy: bool,
    /// The connection on which the answer to each frame arrived.
    pub(super) came_on: BTreeMap<FrameId, LinkId>,
    /// The answer that was given last, for a planted bug.
    pub(super) given: Option<Answered>,
}

impl Publisher {
    /// How many answers were not delivered, as far as the publisher can know.
    pub(in crate::world) fn skipped(&self) -> AnswerSkips {
        self.waiting.skipped()
    }
}
