//! Models an edge's decoders without any pixels: what can be decoded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mez_core::broker::LinkId;
use mez_core::frame::{Epoch, Frame, Reference, Sequence};
use mez_core::name::CameraName;

use crate::time::Moment;

/// An edge's decoder of one camera's chains.
#[derive(Default)]
pub(in crate::world) struct Decoder {
    pub(super) queue: VecDeque<(LinkId, Frame)>,
    /// When it finishes what it has begun.
    pub(super) busy_until: Moment,
    of: Option<(LinkId, Epoch)>,
    /// The chain, the index of its last decoded frame, and all decoded frames.
    held: Option<(Sequence, u32, BTreeSet<Sequence>)>,
}

impl Decoder {
    /// Loses what it holds.
    pub(super) fn fail(&mut self) {
        self.held = None;
    }

    /// Decodes a frame if it can, and then holds it. Returns whether it could.
    pub(super) fn take(&mut self, link: LinkId, frame: &Frame) -> bool {
        let meta = &frame.meta;
        if self.of.replace((link, meta.id.epoch)) != Some((link, meta.id.epoch)) {
            self.held = None;
        }
        if meta.chain.reference == Reference::Independent {
            self.held = Some((meta.chain.chain, 0, BTreeSet::from([meta.id.sequence])));
            return true;
        }
        let Some((chain, index, decoded)) = &mut self.held else { return false };
        let decodable = *chain == meta.chain.chain
            && match meta.chain.reference {
                Reference::Previous => meta.chain.index == *index + 1,
                Reference::Acknowledged(refers) => meta.chain.index > *index && decoded.contains(&refers),
                Reference::Independent => true,
            };
        if decodable {
            *index = meta.chain.index;
            decoded.insert(meta.id.sequence);
        }
        decodable
    }
}

/// The decoders of an edge's process.
pub(in crate::world) type Decoders = BTreeMap<CameraName, Decoder>;
