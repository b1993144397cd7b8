//! Tracks which frames a receiver holds, as far as the sender knows.

use super::slice::{Place, SLOTS};

/// Tracks which frames were sent, arrived or were lost.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    /// The frames that the receiver keeps, by slot.
    slots: [Option<u64>; SLOTS],
    /// The frame sent last, unless it is known to be lost.
    last: Option<u64>,
    /// From this frame to the last, each frame needs the one before. Earlier losses no longer matter.
    unbroken_from: u64,
    /// The frame_num of the frame sent last.
    frame_num: u32,
    /// Whether the receiver was sent an independent frame.
    started: bool,
}

impl Receiver {
    /// Whether the receiver was sent an independent frame.
    pub(super) fn started(&self) -> bool {
        self.started
    }

    /// The frame sent last, unless it is known to be lost.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }

    /// The frames that the receiver keeps, by slot.
    pub(super) fn slots(&self) -> &[Option<u64>; SLOTS] {
        &self.slots
    }

    /// The slot in which the receiver keeps a frame.
    pub(super) fn place_of(&self, number: u64) -> Option<usize> {
        self.slots.iter().position(|slot| *slot == Some(number))
    }

    /// The frame_num of the next frame, if it is predicted.
    pub(super) fn next_frame_num(&self, frame_num_bits: u32) -> u32 {
        (self.frame_num + 1) & ((1 << frame_num_bits) - 1)
    }

    /// Records that frame `number` is sent as an independent one.
    pub(super) fn begin(&mut self, number: u64) {
        *self = Self { last: Some(number), unbroken_from: number, started: true, ..Self::default() };
        self.slots[0] = Some(number);
    }

    /// Records that frame `number` is sent, predicted from frame `refers`, into this slot.
    pub(super) fn follow(&mut self, number: u64, refers: u64, place: Place) {
        if self.last != Some(refers) {
            self.unbroken_from = number;
        }
        self.frame_num = place.frame_num;
        self.slots[place.own as usize] = Some(number);
        self.last = Some(number);
    }

    /// Records that frame `number` was not sent, was cancelled, or did not arrive.
    pub(super) fn lost(&mut self, number: u64) {
        self.slots.iter_mut().filter(|slot| **slot == Some(number)).for_each(|slot| *slot = None);
        // Frames sent after it need it, unless one of them has recovered already.
        if number >= self.unbroken_from {
            self.last = None;
        }
    }
}
