//! Models a camera's encoder without any pixels: the references between frames, and the frames' sizes.

use std::time::Duration;

use mez_core::broker::camera::Transform;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::setting::{Form, Setting};
use mez_core::units::Timestamp;

use crate::footage::{Footage, Order, Scene};
use crate::world::bug::Bug;

/// An encoded frame.
pub(super) struct Coded {
    pub(super) link: ChainLink,
    /// The frame that this one refers to.
    pub(super) refers: Option<Sequence>,
    /// The rung used. It is coarser than the requested one if the byte budget forced it.
    pub(super) setting: Setting,
    /// The size. The payload is as many bytes of the published frame.
    pub(super) bytes: u64,
}

/// A camera's encoder.
#[derive(Default)]
pub(super) struct Encoder {
    /// The first frame of the chain, the index of the last, and the rung requested for it.
    chain: Option<(Sequence, u32, Setting)>,
    /// The last frame, if it was not lost.
    last: Option<Sequence>,
    /// The capture time of the last encoded frame.
    captured: Option<Timestamp>,
    /// The newest frame of the chain that has arrived.
    arrived: Option<Sequence>,
}

impl Encoder {
    /// Takes into account which earlier frames have arrived or were lost.
    pub(super) fn heed(&mut self, transform: &Transform, bug: Option<Bug>) {
        self.arrived = self.arrived.max(transform.news.arrived.iter().copied().max());
        if bug == Some(Bug::LossForgotten) {
            return;
        }
        for lost in &transform.news.lost {
            // All later frames of the chain refer to the lost one.
            self.last.take_if(|last| *last >= *lost);
            self.chain.take_if(|(first, ..)| first == lost);
        }
    }

    /// Encodes a frame as requested and returns how long this takes. `picture_bytes` is the size of the frame's picture as JPEG. The error is the
    /// smallest size that was reached.
    pub(super) fn encode(
        &mut self,
        (transform, picture_bytes): (&Transform, u64),
        footage: &Footage,
        scene: &mut Scene,
    ) -> (Duration, Result<Coded, u32>) {
        let (meta, setting) = (&transform.frame.meta, transform.setting);
        let sequence = meta.id.sequence;
        let chain = self.chain.filter(|(.., before)| {
            transform.reference != Reference::Independent && same_chain(before, &setting)
        });
        let arrived = self.arrived.filter(|arrived| chain.is_some_and(|(first, ..)| *arrived >= first));
        let (reference, refers) = match (chain, self.last, arrived) {
            (Some(_), Some(last), _) => (Reference::Previous, Some(last)),
            (Some(_), None, Some(arrived)) => (Reference::Acknowledged(arrived), Some(arrived)),
            _ => (Reference::Independent, None),
        };
        let gap = self.captured.map(|before| meta.captured.saturating_since(before));
        let order = Order {
            setting,
            pixels: (meta.width, meta.height),
            published: picture_bytes,
            bytes_max: transform.bytes_max.into(),
            gap: gap.filter(|_| refers.is_some()),
        };
        let takes = footage.making_time(&order, scene);
        let cooked = match footage.make(&order, scene) {
            Ok(cooked) => cooked,
            Err(bytes) => return (takes, Err(u32::try_from(bytes).unwrap_or(u32::MAX))),
        };
        let link = match chain.filter(|_| refers.is_some()) {
            Some((first, index, _)) => ChainLink { chain: first, index: index + 1, reference },
            None => ChainLink::still(sequence),
        };
        if setting.is_chained() {
            // A new chain ends all knowledge of the old one. In a later epoch, the numbers name other frames.
            self.arrived.take_if(|_| refers.is_none());
            (self.chain, self.last) = (Some((link.chain, link.index, setting)), Some(sequence));
            self.captured = Some(meta.captured);
        }
        (takes, Ok(Coded { link, refers, setting: cooked.setting, bytes: cooked.bytes }))
    }

    /// The encoding of a setting.
    pub(super) fn encoding(setting: &Setting) -> Encoding {
        match setting.form {
            Form::H264(_) => Encoding::H264,
            Form::Tiles(_) => Encoding::Tiles,
            _ => Encoding::Jpeg,
        }
    }
}

fn same_chain(before: &Setting, next: &Setting) -> bool {
    match (before.form, next.form) {
        (Form::H264(before), Form::H264(next)) => before.width == next.width,
        (Form::Tiles(before), Form::Tiles(next)) => before == next,
        _ => false,
    }
}
