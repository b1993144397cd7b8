//! Models the codecs of chains without any pixels: which frame refers to which, and what can be decoded.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::Transform;
use mez_core::broker::edge::Decoded;
use mez_core::frame::{ChainLink, Encoding, Epoch, Frame, Reference, Sequence};
use mez_core::name::CameraName;
use mez_core::setting::{Form, Setting};
use mez_core::units::Timestamp;

use super::Bug;
use super::edge::EdgeHost;
use super::events::Event;
use super::stage::Stage;
use crate::footage::{Footage, Order, Scene};
use crate::time::{Moment, ms};
use crate::trace::What;

/// How long a decoder takes for a frame.
const DECODING_MS: std::ops::RangeInclusive<u64> = 1..=8;
/// How long a decoder that hangs takes until it is given up.
const HANG_MS: u64 = 250;
/// One frame in this many makes a decoder fail.
const DECODER_FAILS_ONCE_IN: u64 = 500;
/// One frame in this many makes a decoder hang.
const DECODER_HANGS_ONCE_IN: u64 = 1_000;

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

    /// Encodes a frame as the plan asks, and returns how long that takes. The error is the smallest size that it reached.
    pub(super) fn encode(
        &mut self,
        transform: &Transform,
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
            published: transform.frame.payload.len() as u64,
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

/// An edge's decoder of one camera's chains.
#[derive(Default)]
pub(super) struct Decoder {
    queue: VecDeque<(LinkId, Frame)>,
    /// When it finishes what it has begun.
    busy_until: Moment,
    of: Option<(LinkId, Epoch)>,
    /// The chain, the index of its last decoded frame, and all decoded frames.
    held: Option<(Sequence, u32, BTreeSet<Sequence>)>,
}

impl Decoder {
    /// Decodes a frame if it can, and then holds it. Returns whether it could.
    fn take(&mut self, link: LinkId, frame: &Frame) -> bool {
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
pub(super) type Decoders = BTreeMap<CameraName, Decoder>;

impl EdgeHost {
    /// Gives a frame to its camera's decoder.
    pub(super) fn decode(&mut self, camera: CameraName, link: LinkId, frame: Frame, stage: &mut Stage<'_>) {
        let fails = stage.codecs_fail && stage.random.one_in(DECODER_FAILS_ONCE_IN);
        let hangs = stage.codecs_fail && stage.random.one_in(DECODER_HANGS_ONCE_IN);
        let takes = if hangs { HANG_MS } else { stage.random.within(DECODING_MS) };
        let Some(process) = &mut self.process else { return };
        let (edge, run) = (self.index, process.run);
        let decoder = process.decoders.entry(camera.clone()).or_default();
        decoder.queue.push_back((link, frame));
        decoder.busy_until = decoder.busy_until.max(stage.now) + ms(takes);
        let done = decoder.busy_until;
        stage.events.push(done, Event::Decoded { edge, run, camera, fails: fails || hangs });
    }

    /// Ends a decoder's work on the oldest frame that it was given. Returns whether the process that gave it still runs.
    pub(super) fn handle_decoded(
        &mut self,
        run: u64,
        camera: &CameraName,
        fails: bool,
        stage: &mut Stage<'_>,
    ) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        let Some(decoder) = process.decoders.get_mut(camera) else { return false };
        let Some((link, frame)) = decoder.queue.pop_front() else { return false };
        let id = frame.meta.id;
        let decoded = if fails {
            decoder.held = None;
            stage.checks.decoder_failed(run, camera);
            Decoded::Failed
        } else if decoder.take(link, &frame) || stage.bug == Some(Bug::UndecodableShown) {
            stage.checks.decoded(run, camera, (link, id));
            if decoder.queue.is_empty() { still(frame) } else { Decoded::Passed }
        } else {
            Decoded::NotHeld
        };
        let shown = matches!(decoded, Decoded::Still { .. });
        stage.trace.record(stage.now, What::Decoded { edge: self.index, frame: id, shown });
        process.broker.handle_decoded(self.clock.monotonic(stage.now), camera, link, id, decoded);
        true
    }
}

/// Makes a still of a decoded frame: the same bytes, because there are no pixels.
fn still(frame: Frame) -> Decoded {
    let (payload, encoding): (Bytes, _) = (frame.payload, Encoding::Jpeg);
    Decoded::Still { payload, encoding, width: frame.meta.width, height: frame.meta.height }
}
