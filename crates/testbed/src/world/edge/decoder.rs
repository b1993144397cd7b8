//! Models an edge's decoders without any pixels: which frames can be decoded.

use std::collections::{BTreeMap, BTreeSet};

use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{Epoch, Frame, FrameId, FrameMeta, Reference, Sequence};
use mez_core::log::LogReader;
use mez_core::stills::{DECODERS_MAX, PastStills, StillMaker};
use mez_core::units::Instant;

use crate::world::node::Reader;

/// A decoder of one camera's chains.
#[derive(Default)]
pub(super) struct Decoder {
    /// The present task.
    pub(super) work: Option<Work>,
    /// The epoch, the chain, the index of the last decoded frame, and all decoded frames.
    held: Option<(Epoch, Sequence, u32, BTreeSet<Sequence>)>,
}

/// A decoder's task.
pub(super) enum Work {
    /// To decode a frame.
    Decode { frame: Frame, wanted: bool },
    /// To make a still of the frame that was decoded last.
    Show(FrameId),
}

impl Work {
    /// The frame of the task.
    pub(super) fn frame(&self) -> FrameId {
        match self {
            Self::Decode { frame, .. } => frame.meta.id,
            Self::Show(frame) => *frame,
        }
    }
}

impl Decoder {
    /// Loses all decoded frames.
    pub(super) fn fail(&mut self) {
        self.held = None;
    }

    /// Decodes a frame, if the frames that it needs are decoded. Returns whether it was decoded.
    pub(super) fn take(&mut self, meta: &FrameMeta) -> bool {
        if meta.chain.reference == Reference::Independent {
            let frames = BTreeSet::from([meta.id.sequence]);
            self.held = Some((meta.id.epoch, meta.chain.chain, 0, frames));
            return true;
        }
        let Some((epoch, chain, index, decoded)) = &mut self.held else { return false };
        let decodable = (*epoch, *chain) == (meta.id.epoch, meta.chain.chain)
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

/// The maker of stills of one camera, and the requests that wait for it.
pub(super) struct Stills {
    pub(super) maker: StillMaker,
    /// The log of the frames.
    pub(super) log: LogReader,
    pub(super) decoders: [Decoder; DECODERS_MAX],
    /// The open requests, by their number.
    pub(super) asked: BTreeMap<u64, Asked>,
    pub(super) questions: u64,
    /// When the timer is due.
    pub(super) armed: Option<Instant>,
}

/// A request for a still.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) reader: Reader,
    pub(super) subscription: SubscriptionId,
    pub(super) frame: FrameId,
}

impl Stills {
    pub(super) fn new(log: LogReader) -> Self {
        let (maker, decoders, asked) = (StillMaker::new(log.clone()), Default::default(), BTreeMap::new());
        Self { maker, log, decoders, asked, questions: 0, armed: None }
    }
}

/// The decoder of a reading of the past.
#[derive(Default)]
pub(in crate::world) struct DiskStills {
    pub(super) place: PastStills,
    pub(super) decoder: Decoder,
}
