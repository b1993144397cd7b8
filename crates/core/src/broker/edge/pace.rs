//! Tells how often a camera publishes from the frames that come: their capture times, and how many were published between them.
//!
//! What a camera says itself is its average over some seconds. That is too low for a while after its host or its source stood still.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::{FrameId, FrameMeta};
use crate::units::Timestamp;

/// The steps from one frame to the next that came whose middle counts.
const STEPS_MAX: usize = 5;

/// The times between a camera's frames.
#[derive(Default)]
pub(super) struct Pace {
    last: Option<(FrameId, Timestamp)>,
    /// From each of the last frames that came to the next one: the time between two that were published.
    steps: VecDeque<Duration>,
}

impl Pace {
    /// A frame comes.
    pub(super) fn note(&mut self, meta: &FrameMeta) {
        let before = self.last.filter(|(last, _)| last.epoch == meta.id.epoch && *last < meta.id);
        if let Some((last, captured)) = before {
            let published = u32::try_from(meta.id.sequence.0 - last.sequence.0).unwrap_or(u32::MAX);
            if self.steps.len() == STEPS_MAX {
                self.steps.pop_front();
            }
            self.steps.push_back(meta.captured.saturating_since(captured) / published);
        }
        self.last = Some((meta.id, meta.captured));
    }

    /// The usual time between frames, given what the camera says. A pause makes that longer, and nothing makes it shorter.
    pub(super) fn interval(&self, told: Option<Duration>) -> Option<Duration> {
        let mut steps: Vec<Duration> = self.steps.iter().copied().collect();
        steps.sort_unstable();
        let usual = steps.get(steps.len().saturating_sub(1) / 2).copied();
        told.into_iter().chain(usual).min()
    }
}
