//! Remembers what a feed knows of originals, for whoever wants these and nothing else.

use std::ops::Range;

use crate::units::Timestamp;

/// What a feed knows of originals.
pub(super) struct Originals {
    /// One past the last index that was looked at.
    pub(super) looked: u64,
    /// The index of the newest original in memory that was not read.
    pub(super) held: Option<u64>,
    /// The end of the log when the camera had no newer frame, if that was its last answer.
    pub(super) asked_in_vain: Option<u64>,
    /// Whether the last question found an original: there may be a newer one by now, whether it crosses or not.
    pub(super) goes_on: bool,
    /// When the last question was put, or reading began.
    pub(super) asked: Option<Timestamp>,
    /// The indices of what came while the application was busy with the last original.
    pub(super) busy: Range<u64>,
    /// Whether it is still busy with that one.
    is_busy: bool,
}

impl Originals {
    /// Nothing is known. The first frame of the present is at `present`.
    pub(super) fn new(present: u64) -> Self {
        let busy = present..present;
        Self {
            looked: present,
            held: None,
            asked_in_vain: None,
            goes_on: false,
            asked: None,
            busy,
            is_busy: false,
        }
    }

    /// The application can take an original. The log ends at `end`.
    pub(super) fn handle_ready(&mut self, end: u64) {
        if std::mem::take(&mut self.is_busy) {
            self.busy.end = end;
        }
    }

    /// The application is given an original. The log ends at `end`.
    pub(super) fn handle_delivered(&mut self, end: u64) {
        (self.busy, self.is_busy) = (end..end, true);
    }
}
