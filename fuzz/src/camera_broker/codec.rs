//! Simulates a chained codec without pixels.

use mez_core::broker::camera::{Transform, Transformed};
use mez_core::frame::{ChainLink, Encoding, Reference, Rung, Sequence};

use super::World;

/// The state of the codec.
#[derive(Default)]
pub(super) struct Codec {
    /// The first frame of the current chain, and the index of its last frame.
    chain: Option<(Sequence, u32)>,
    last: Option<Sequence>,
    arrived: Option<Sequence>,
}

impl Codec {
    fn told(&mut self, transform: &Transform) {
        self.arrived = self.arrived.max(transform.news.arrived.iter().copied().max());
        for lost in &transform.news.lost {
            self.last.take_if(|last| *last >= *lost);
            self.chain.take_if(|(first, _)| first == lost);
        }
    }

    fn link(&mut self, transform: &Transform) -> ChainLink {
        let sequence = transform.frame.meta.id.sequence;
        let chain = self.chain.filter(|_| transform.reference != Reference::Independent);
        let arrived = self.arrived.filter(|arrived| chain.is_some_and(|(first, _)| *arrived >= first));
        let reference = match (self.last, arrived) {
            (Some(_), _) => Reference::Previous,
            (None, Some(arrived)) => Reference::Acknowledged(arrived),
            (None, None) => Reference::Independent,
        };
        let link = match chain.filter(|_| reference != Reference::Independent) {
            Some((first, index)) => ChainLink { chain: first, index: index + 1, reference },
            None => ChainLink::still(sequence),
        };
        (self.chain, self.last) = (Some((link.chain, link.index)), Some(sequence));
        link
    }
}

impl World {
    /// Encodes a frame. b selects the outcome, c gives the bytes of the payload.
    pub(super) fn transformed(&mut self, transform: &Transform, b: u8, c: u8) {
        let meta = &transform.frame.meta;
        let (id, chained) = (meta.id, transform.setting.is_chained());
        self.codec.told(transform);
        let transformed = match b % 8 {
            0 => {
                // The codec has lost its state.
                self.codec = Codec::default();
                Transformed::Failed
            }
            1 => Transformed::TooLarge { bytes: u32::from(c) },
            2 if transform.frame.meta.encoding.is_chained() => Transformed::NotYet,
            3 if transform.frame.meta.encoding.is_chained() => Transformed::Lacking,
            _ => Transformed::Made {
                // A few frames are large enough to measure the link's rate.
                payload: vec![1; if c < 0xe0 { usize::from(c) << 3 } else { usize::from(c & 0x1f) << 12 }]
                    .into(),
                encoding: match (chained, b & 0x40) {
                    (false, _) => Encoding::Jpeg,
                    (true, 0) => Encoding::H264,
                    (true, _) => Encoding::Tiles,
                },
                width: 2,
                height: 2,
                rung: if b & 0x80 == 0 { transform.setting.rung() } else { Rung::original() },
                chain: if chained { self.codec.link(transform) } else { ChainLink::still(id.sequence) },
            },
        };
        self.broker.handle_transformed(self.now, id, transformed);
    }
}
