//! Remembers what a feed knows of originals, for a subscription that wants only originals.

use std::ops::Range;

use crate::units::Timestamp;

/// What a feed knows of originals.
pub(super) struct Originals {
    /// One past the last index that was checked for originals.
    pub(super) looked: u64,
    /// The index of the newest original in memory that was not read.
    pub(super) held: Option<u64>,
    /// The end of the log when the camera had no newer frame, if that was its last answer.
    pub(super) asked_in_vain: Option<u64>,
    /// Whether the last question found an original. If so, there may be a newer one by now, whether frames cross the link or not.
    pub(super) goes_on: bool,
    /// When the last question was asked, or reading began.
    pub(super) asked: Option<Timestamp>,
    /// The indices of the records that came while the application was busy with the last original.
    pub(super) busy: Range<u64>,
    /// Whether the application is still busy with the last original.
    is_busy: bool,
}

impl Originals {
    /// Nothing is known yet. `present`: the index of the first frame of the present.
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
