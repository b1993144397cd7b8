//! Restores order: among messages, and among the bytes of each frame. Frames have no order among themselves.

use std::collections::BTreeMap;

use bytes::Bytes;
use mez_core::frame::FrameId;

use super::direction::Kind;

/// What an end has received and cannot pass on yet.
#[derive(Default)]
pub(super) struct Incoming {
    /// The number of the next message.
    next: u64,
    early: BTreeMap<u64, Kind>,
    frames: BTreeMap<FrameId, FrameIn>,
}

#[derive(Default)]
struct FrameIn {
    /// How many bytes have arrived without a hole, from the frame's beginning.
    bytes: u32,
    /// Pieces beyond the first hole: begin to end.
    early: BTreeMap<u32, u32>,
}

/// What the arrival of a piece of a frame changes.
pub(super) struct Grown {
    /// The header, if it was in this piece.
    pub(super) header: Option<Bytes>,
    /// How many bytes are here without a hole, if this number has grown.
    pub(super) bytes: Option<u32>,
}

impl Incoming {
    /// Returns the messages that can be passed on now that this one has arrived. A message without a number needs no order.
    pub(super) fn message(&mut self, number: Option<u64>, kind: Kind) -> Vec<Kind> {
        let Some(number) = number else { return vec![kind] };
        self.early.insert(number, kind);
        let mut ready = Vec::new();
        while let Some(kind) = self.early.remove(&self.next) {
            self.next += 1;
            ready.push(kind);
        }
        ready
    }

    /// Adds a piece of a frame: the bytes from `start` to `end` of `total`.
    pub(super) fn piece(
        &mut self,
        frame: FrameId,
        header: Option<Bytes>,
        start: u32,
        end: u32,
        total: u32,
    ) -> Grown {
        let known = self.frames.entry(frame).or_default();
        known.early.insert(start, end);
        let before = known.bytes;
        while let Some(piece) = known.early.first_entry().filter(|piece| *piece.key() <= known.bytes) {
            known.bytes = piece.remove();
        }
        let bytes = known.bytes;
        if bytes == total {
            self.frames.remove(&frame);
        }
        Grown { header, bytes: (bytes > before).then_some(bytes) }
    }

    /// Forgets a frame. Nothing more of the frame is passed on.
    pub(super) fn drop_frame(&mut self, frame: FrameId) {
        self.frames.remove(&frame);
    }
}
