//! Estimates how often a camera publishes, from the frames that arrive: their capture times, and how many were published between them.
//!
//! The rate that a camera reports is its average over some seconds. It is too low for a while after the host or the source stood still.

use std::collections::VecDeque;
use std::time::Duration;

use crate::frame::{FrameId, FrameMeta};
use crate::units::Timestamp;

/// How many of the last steps from one arrived frame to the next count. Their median is used.
const STEPS_MAX: usize = 5;

/// The times between a camera's frames.
#[derive(Default)]
pub(super) struct Pace {
    last: Option<(FrameId, Timestamp)>,
    /// For each of the last steps: the mean time between two published frames.
    steps: VecDeque<Duration>,
}

impl Pace {
    /// A frame has arrived.
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

    /// The usual time between frames: the smaller of the measured median and the reported
    /// time. A pause makes the reported time longer, and nothing makes it shorter.
    pub(super) fn interval(&self, told: Option<Duration>) -> Option<Duration> {
        let mut steps: Vec<Duration> = self.steps.iter().copied().collect();
        steps.sort_unstable();
        let usual = steps.get(steps.len().saturating_sub(1) / 2).copied();
        told.into_iter().chain(usual).min()
    }
}
