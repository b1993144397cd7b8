//! Reads the published frames, and measures how often they are published.

use std::time::Duration;

use super::rate::PublishingRate;
use crate::frame::{Epoch, FrameId, Sequence};
use crate::log::{Cursor, LogReader, Read, Record};
use crate::units::Instant;

/// Reads the frames that are published.
pub(super) struct Published {
    /// The place in the log after the last frame that was looked at.
    cursor: Cursor,
    rate: PublishingRate,
}

impl Published {
    /// The frames that are appended to `log` from now on.
    pub(super) fn new(log: &LogReader) -> Self {
        Self { cursor: log.cursor_at_end(), rate: PublishingRate::default() }
    }

    /// The next frame of the log. Passes over frames that were published just before the epoch was raised: the edge would refuse them.
    pub(super) fn next(&mut self, now: Instant, epoch: Epoch) -> Option<Record> {
        loop {
            match self.cursor.next() {
                Read::Record(record) if record.frame.meta.id.epoch < epoch => {}
                Read::Record(record) => {
                    self.rate.note(now);
                    return Some(record);
                }
                // The log dropped frames before the broker read them. The numbers of the next frames show the gap.
                Read::Evicted { .. } => {}
                Read::Pending => return None,
            }
        }
    }

    /// The usual time between frames.
    pub(super) fn interval(&self, now: Instant) -> Duration {
        self.rate.interval(now)
    }

    /// The recent number of frames per second.
    pub(super) fn frames_per_second(&self, now: Instant) -> f64 {
        self.rate.frames_per_second(now)
    }

    /// The frame of this epoch that is published next.
    pub(super) fn next_frame(&self, epoch: Epoch) -> FrameId {
        let newest = self.cursor.reader().newest().map(|record| record.frame.meta.id);
        let newest = newest.filter(|newest| newest.epoch == epoch);
        FrameId { epoch, sequence: Sequence(newest.map_or(0, |newest| newest.sequence.0 + 1)) }
    }

    /// The newest frame of the log.
    #[cfg(test)]
    pub(super) fn newest(&self) -> Option<Record> {
        self.cursor.reader().newest()
    }
}
