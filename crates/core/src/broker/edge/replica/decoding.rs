//! Holds the frames of one camera that are with the decoder, and those that wait for them.
//!
//! A frame that needs others is decoded before it enters the replica log. The log holds only frames that
//! decode by themselves (`docs/decisions/0009-chains-end-at-the-edge.md`).

use std::collections::VecDeque;

use bytes::Bytes;

use super::record::Times;
use crate::broker::LinkId;
use crate::frame::{Encoding, FrameId, Sequence};
use crate::units::Instant;
use crate::wire::FrameHeader;

/// The most frames of one camera that may be with the decoder, or wait for those before them. Further frames
/// wait on their connection, for up to [`HELD_MAX`](super::super::HELD_MAX). A frame that has waited so long
/// is not decoded, and ends its chain.
pub const DECODING_FRAMES_MAX: usize = 8;
/// The most bytes of the frames of one camera that are with the decoder or wait for it, unless there is only
/// one.
pub const DECODING_BYTES_MAX: u64 = 16 << 20;

/// What came of [`EdgeOutput::Decode`](super::super::EdgeOutput::Decode).
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// The frame, in a form that decodes by itself.
    Still {
        /// Its bytes.
        payload: Bytes,
        /// The encoding of the decoded frame. It is never one that [`Encoding::is_chained`].
        encoding: Encoding,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// It was decoded, but no frame was made of it, because a newer one waited.
    Passed,
    /// It needs frames that the decoder does not hold. The decoder's state is unchanged.
    NotHeld,
    /// It is damaged, or the decoder failed or took too long. The decoder's state is lost.
    Failed,
}

/// A frame that waits for the decoder, or for frames before it.
pub(super) struct Pending {
    pub(super) link: LinkId,
    pub(super) header: FrameHeader,
    pub(super) bytes: u32,
    pub(super) times: Times,
    /// The outcome. `None` while the decoder has the frame.
    pub(super) outcome: Option<Decoded>,
}

/// What the decoder could not do.
pub(super) struct Lost {
    pub(super) chain: Sequence,
    pub(super) frame: FrameId,
}

/// The frames of one camera that are being decoded.
#[derive(Default)]
pub(super) struct Decoding {
    /// In the order in which they arrived.
    queue: VecDeque<Pending>,
}

impl Decoding {
    /// Whether no frame has to wait for others.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether there is room for another frame of `bytes` bytes.
    pub(super) fn has_room_for(&self, bytes: u32) -> bool {
        let waiting: u64 = self.queue.iter().map(|pending| u64::from(pending.bytes)).sum();
        self.queue.len() < DECODING_FRAMES_MAX
            && (self.queue.is_empty() || waiting + u64::from(bytes) <= DECODING_BYTES_MAX)
    }

    /// One more waits.
    pub(super) fn push(&mut self, pending: Pending) {
        debug_assert!(self.has_room_for(pending.bytes), "more frames wait for the decoder than may");
        self.queue.push_back(pending);
    }

    /// Takes in the outcome of a frame. `None` if the decoder does not have it. Otherwise returns what it
    /// could not decode, if anything.
    pub(super) fn handle_decoded(
        &mut self,
        now: Instant,
        link: LinkId,
        frame: FrameId,
        decoded: Decoded,
    ) -> Option<Option<Lost>> {
        let is_it = |pending: &&mut Pending| {
            pending.outcome.is_none() && pending.link == link && pending.header.meta.id == frame
        };
        let pending = self.queue.iter_mut().find(is_it)?;
        let lost = matches!(decoded, Decoded::NotHeld | Decoded::Failed);
        pending.outcome = Some(decoded);
        pending.times.decoded = Some(now);
        Some(lost.then_some(Lost { chain: pending.header.meta.chain.chain, frame }))
    }

    /// The oldest frame, if the decoder has finished it.
    pub(super) fn pop_done(&mut self) -> Option<Pending> {
        self.queue.pop_front_if(|pending| pending.outcome.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::edge::tests::header;

    /// Whoever pushes asks for room first.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "more frames wait for the decoder than may")]
    fn a_frame_too_many_is_noticed() {
        let mut decoding = Decoding::default();
        let times =
            Times { arriving: Instant::ZERO, arrived: Instant::ZERO, decoded: None, stale_until: None };
        for sequence in 0..=DECODING_FRAMES_MAX as u64 {
            let header = header(1, sequence, 10, Vec::new());
            decoding.push(Pending { link: LinkId(1), header, bytes: 10, times, outcome: None });
        }
    }
}
