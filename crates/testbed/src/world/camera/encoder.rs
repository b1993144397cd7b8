//! Models a camera's encoder without any pixels: which frame refers to which, and how large each is.

use std::time::Duration;

use mez_core::broker::camera::Transform;
use mez_core::frame::{ChainLink, Encoding, Reference, Sequence};
use mez_core::setting::{Form, Setting};
use mez_core::units::Timestamp;

use crate::footage::{Footage, Order, Scene};
use crate::world::bug::Bug;

/// A frame that an encoder made.
pub(super) struct Coded {
    pub(super) link: ChainLink,
    /// The frame that it refers to.
    pub(super) refers: Option<Sequence>,
    /// The rung. It is coarser than the requested one if the budget forced it.
    pub(super) setting: Setting,
    /// Its size. So many bytes of the published frame stand for its payload.
    pub(super) bytes: u64,
}

/// A camera's encoder.
#[derive(Default)]
pub(super) struct Encoder {
    /// The first frame of the chain, the index of the last, and what was asked for it.
    chain: Option<(Sequence, u32, Setting)>,
    /// The last frame, if it was not lost.
    last: Option<Sequence>,
    /// When the frame that was made last was captured.
    captured: Option<Timestamp>,
    /// The newest frame of the chain that has arrived.
    arrived: Option<Sequence>,
}

impl Encoder {
    /// Takes into account what is known of earlier frames.
    pub(super) fn heed(&mut self, transform: &Transform, bug: Option<Bug>) {
        self.arrived = self.arrived.max(transform.news.arrived.iter().copied().max());
        if bug == Some(Bug::LossForgotten) {
            return;
        }
        for lost in &transform.news.lost {
            // All later frames of the chain refer to it.
            self.last.take_if(|last| *last >= *lost);
            self.chain.take_if(|(first, ..)| first == lost);
        }
    }

    /// Encodes a frame as the plan asks, whose picture has so many bytes as JPEG, and returns how long that takes. The error is the smallest size that
    /// it reached.
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
            // With a chain ends what is known of the one before. Where a later epoch has begun, its numbers are those of other frames.
            self.arrived.take_if(|_| refers.is_none());
            (self.chain, self.last) = (Some((link.chain, link.index, setting)), Some(sequence));
            self.captured = Some(meta.captured);
        }
        (takes, Ok(Coded { link, refers, setting: cooked.setting, bytes: cooked.bytes }))
    }

    /// How its frames are coded.
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
