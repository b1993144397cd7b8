//! Holds the waiting frames of one camera with the records that have come, and records whose frames have not come.

use std::collections::VecDeque;

use super::types::Stray;
use crate::frame::FrameId;
use crate::units::{Instant, Timestamp};

/// The most frames that are remembered after they came out, to tell a late record from a duplicate.
const GIVEN_MAX: usize = 1024;

/// A frame that waits for records.
#[derive(Debug)]
pub(super) struct Waiting<F, R> {
    pub(super) id: FrameId,
    pub(super) captured: Timestamp,
    pub(super) came: Instant,
    pub(super) frame: F,
    pub(super) records: Vec<R>,
    /// The bytes of the frame and of its records.
    pub(super) bytes: u64,
}

/// A record that waits for its frame.
#[derive(Debug)]
struct Early<R> {
    of: FrameId,
    came: Instant,
    record: R,
    bytes: u64,
}

/// Where a record belongs.
pub(super) enum Place<R> {
    WithFrame,
    Early,
    Nowhere(R, Stray),
}

/// The waiting frames and records of one camera.
#[derive(Debug)]
pub(super) struct Lane<F, R> {
    /// In the camera's order.
    frames: VecDeque<Waiting<F, R>>,
    /// In the order of arrival.
    early: VecDeque<Early<R>>,
    /// The newest frame that came.
    newest: Option<FrameId>,
    /// The newest frame of which a record came.
    newest_of: Option<FrameId>,
    /// The last frames that came out, in order, and whether they had all their records.
    given: VecDeque<(FrameId, bool)>,
}

impl<F, R> Default for Lane<F, R> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            early: VecDeque::new(),
            newest: None,
            newest_of: None,
            given: VecDeque::new(),
        }
    }
}

impl<F, R> Lane<F, R> {
    /// The oldest waiting frame.
    pub(super) fn head(&self) -> Option<&Waiting<F, R>> {
        self.frames.front()
    }

    /// When the record came that waits longest for its frame.
    pub(super) fn early_since(&self) -> Option<Instant> {
        self.early.front().map(|early| early.came)
    }

    /// Whether a record of a later frame has come.
    pub(super) fn has_passed(&self, id: FrameId) -> bool {
        self.newest_of.is_some_and(|newest| newest > id)
    }

    /// A frame has come. Returns how many records waited for it.
    pub(super) fn handle_frame(
        &mut self,
        now: Instant,
        (id, captured): (FrameId, Timestamp),
        frame: F,
        bytes: u64,
    ) -> usize {
        // Not the maximum: after a reset, a camera numbers its frames from the start again.
        self.newest = Some(id);
        let mut waiting = Waiting { id, captured, came: now, frame, records: Vec::new(), bytes };
        let mut rest = VecDeque::with_capacity(self.early.len());
        for early in self.early.drain(..) {
            if early.of == id {
                waiting.bytes += early.bytes;
                waiting.records.push(early.record);
            } else {
                rest.push_back(early);
            }
        }
        self.early = rest;
        let taken = waiting.records.len();
        self.frames.push_back(waiting);
        taken
    }

    /// A record of frame `of` has come. `expected`: how many records the frame is expected to have.
    pub(super) fn handle_record(
        &mut self,
        now: Instant,
        of: FrameId,
        record: R,
        bytes: u64,
        (expected, frames_come): (usize, bool),
    ) -> Place<R> {
        self.newest_of = self.newest_of.max(Some(of));
        if let Some(waiting) = self.frames.iter_mut().rfind(|waiting| waiting.id == of) {
            if waiting.records.len() >= expected {
                return Place::Nowhere(record, Stray::Twice);
            }
            waiting.records.push(record);
            waiting.bytes += bytes;
            return Place::WithFrame;
        }
        if self.newest < Some(of) && frames_come {
            self.early.push_back(Early { of, came: now, record, bytes });
            return Place::Early;
        }
        let given = self.given.iter().rfind(|(id, _)| *id == of).map(|(_, is_whole)| *is_whole);
        let reason = match given {
            Some(true) => Stray::Twice,
            Some(false) => Stray::Late,
            None if self.newest < Some(of) => Stray::NoFrame,
            None if self.given.front().is_some_and(|(oldest, _)| of < *oldest) => Stray::Late,
            None => Stray::FrameSkipped,
        };
        Place::Nowhere(record, reason)
    }

    /// Takes out the oldest frame. `is_whole`: the frame has all its records.
    pub(super) fn take_head(&mut self, is_whole: bool) -> Option<Waiting<F, R>> {
        let head = self.frames.pop_front()?;
        if self.given.len() == GIVEN_MAX {
            self.given.pop_front();
        }
        self.given.push_back((head.id, is_whole));
        Some(head)
    }

    /// Takes out the record that waits longest for its frame.
    pub(super) fn take_oldest_early(&mut self) -> Option<(R, u64)> {
        self.early.pop_front().map(|early| (early.record, early.bytes))
    }

    /// Takes out a record whose frame was skipped: a later frame has come.
    pub(super) fn take_skipped(&mut self) -> Option<(R, u64)> {
        let newest = self.newest?;
        let at = self.early.iter().position(|early| early.of < newest)?;
        self.early.remove(at).map(|early| (early.record, early.bytes))
    }
}
