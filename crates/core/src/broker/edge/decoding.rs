//! Frames that need others: each is decoded before it enters the replica log, which holds nothing but frames that decode by themselves
//! (`docs/decisions/0009-chains-end-at-the-edge.md`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::account::Account;
use super::session::Camera;
use super::{EdgeBroker, EdgeOutput};
use crate::broker::LinkId;
use crate::frame::{
    ChainLink, Encoding, Frame, FrameId, FrameMeta, Quality, Sequence, SkipRange, SkipReason,
};
use crate::log::{AppendError, Record};
use crate::name::CameraName;
use crate::trace::FrameTrace;
use crate::units::Instant;
use crate::wire::{FrameHeader, Message};

/// Frames of one camera that may be with the decoder, or wait for those before them. More wait on their connection, for up to
/// [`HELD_MAX`](super::HELD_MAX); one that has waited so long is not decoded, and ends its chain.
pub const DECODING_FRAMES_MAX: usize = 8;
/// Bytes that they may have together, unless there is only one.
pub const DECODING_BYTES_MAX: u64 = 16 << 20;
/// A camera is asked for a frame that stands alone once for each chain that cannot be decoded any further, and again after this time: it
/// begins a new chain as soon as it may, so nothing is gained by asking for it more often.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// What came of [`EdgeOutput::Decode`].
#[derive(Clone, Debug, PartialEq)]
pub enum Decoded {
    /// The frame, in a form that decodes by itself.
    Still {
        /// Its bytes.
        payload: Bytes,
        /// How they are coded; not one that [`Encoding::is_chained`].
        encoding: Encoding,
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// It was decoded, and nothing was made of it, because a newer one waited.
    Passed,
    /// It needs frames that the decoder does not hold. The decoder holds what it held.
    NotHeld,
    /// It is damaged, or the decoder failed or took too long; the decoder holds nothing any more.
    Failed,
}

/// A frame that waits for the decoder, or for frames before it.
struct Pending {
    link: LinkId,
    header: FrameHeader,
    bytes: u32,
    times: Times,
    /// `None` while the decoder has it.
    outcome: Option<Decoded>,
}

/// When a frame was at the stages of its way here.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Its header.
    pub(super) arriving: Instant,
    /// All of it.
    pub(super) arrived: Instant,
    /// When it had been decoded, if it had to be.
    pub(super) decoded: Option<Instant>,
}

/// The frames of one camera that are being decoded, and the account of those that were not shown.
#[derive(Default)]
pub(super) struct Decoding {
    /// In the order in which they arrived.
    queue: VecDeque<Pending>,
    /// Of frames that were not shown.
    pub(super) account: Account,
    /// Over which connection, in place of which chain and when the camera was last asked for a frame that stands alone.
    pub(super) refreshed: Option<(LinkId, Sequence, Instant)>,
}

impl Decoding {
    /// Whether a frame has to wait for others.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn has_room_for(&self, bytes: u32) -> bool {
        let waiting: u64 = self.queue.iter().map(|pending| u64::from(pending.bytes)).sum();
        self.queue.len() < DECODING_FRAMES_MAX
            && (self.queue.is_empty() || waiting + u64::from(bytes) <= DECODING_BYTES_MAX)
    }
}

impl EdgeBroker {
    /// The decoder has done what [`EdgeOutput::Decode`] asked, or has not. In any order, but for the sake of time best in that of
    /// the asking.
    pub fn handle_decoded(
        &mut self,
        now: Instant,
        camera: &CameraName,
        link: LinkId,
        frame: FrameId,
        decoded: Decoded,
    ) {
        let Some(known) = self.cameras.get_mut(camera) else { return };
        let is_it = |pending: &&mut Pending| {
            pending.outcome.is_none() && pending.link == link && pending.header.meta.id == frame
        };
        let Some(pending) = known.decoding.queue.iter_mut().find(is_it) else { return };
        let lost = matches!(decoded, Decoded::NotHeld | Decoded::Failed);
        pending.outcome = Some(decoded);
        pending.times.decoded = Some(now);
        let chain = pending.header.meta.chain.chain;
        let present = known.link;
        if lost {
            self.ask_for_refresh(now, camera, link, (chain, frame));
        }
        self.settle(now, camera);
        // There is room for those that waited for it.
        if let Some(present) = present {
            self.take_ready(now, present);
        }
    }

    /// All of a frame is here, whose header was at `arriving`.
    pub(super) fn take_whole(
        &mut self,
        now: Instant,
        link: LinkId,
        header: FrameHeader,
        payload: Bytes,
        arriving: Instant,
    ) {
        let Some(name) = self.session(link).map(|session| session.camera.clone()) else { return };
        let Some(camera) = self.cameras.get_mut(&name) else { return };
        let (id, chain, bytes) = (header.meta.id, header.meta.chain.chain, payload.len() as u32);
        let times = Times { arriving, arrived: now, decoded: None };
        if let Some(chains) = camera.chains.as_mut().filter(|chains| chains.is_wanted())
            && chains.append(&header, &payload, times)
        {
            self.outputs.push_back(EdgeOutput::Came { camera: name.clone() });
        }
        if !header.meta.encoding.is_chained() {
            if camera.decoding.is_empty() {
                return self.append(now, &name, header, payload, times);
            }
            // Frames before it are being decoded; it waits for its turn.
            let FrameMeta { encoding, width, height, .. } = header.meta;
            let outcome = Some(Decoded::Still { payload, encoding, width, height });
            if camera.decoding.has_room_for(bytes) {
                camera.decoding.queue.push_back(Pending { link, header, bytes, times, outcome });
            } else {
                camera.decoding.account.not_shown(&header, SkipReason::EdgeBusy);
                camera.counters.not_decoded += 1;
            }
            return;
        }
        if camera.decoding.has_room_for(bytes) {
            let frame = Frame { meta: header.meta.clone(), payload };
            camera.decoding.queue.push_back(Pending { link, header, bytes, times, outcome: None });
            let camera = name.clone();
            self.outputs.push_back(EdgeOutput::Decode { camera, link, frame: Box::new(frame) });
        } else {
            // What comes after it in its chain cannot be decoded now.
            camera.decoding.account.not_shown(&header, SkipReason::EdgeBusy);
            camera.counters.not_decoded += 1;
            self.ask_for_refresh(now, &name, link, (chain, id));
        }
    }

    /// Frames whose turn it is enter the log, or the account of those that do not.
    fn settle(&mut self, now: Instant, name: &CameraName) {
        loop {
            let Some(camera) = self.cameras.get_mut(name) else { return };
            let Some(pending) = camera.decoding.queue.pop_front_if(|pending| pending.outcome.is_some())
            else {
                return;
            };
            let Pending { mut header, times, outcome, .. } = pending;
            let reason = match outcome {
                Some(Decoded::Still { payload, encoding, width, height }) if !encoding.is_chained() => {
                    let chain = ChainLink::still(header.meta.id.sequence);
                    header.meta = FrameMeta { encoding, width, height, chain, ..header.meta };
                    self.append(now, name, header, payload, times);
                    continue;
                }
                Some(Decoded::Passed) => SkipReason::EdgeBusy,
                _ => SkipReason::NotDecoded,
            };
            camera.decoding.account.not_shown(&header, reason);
            camera.counters.not_decoded += 1;
        }
    }

    /// Appends a frame that decodes by itself to its camera's replica log.
    fn append(&mut self, now: Instant, name: &CameraName, header: FrameHeader, payload: Bytes, times: Times) {
        let Some(camera) = self.cameras.get_mut(name) else { return };
        let FrameHeader { meta, skipped, expected_accuracy, infeasible, trace: stamps, .. } = header;
        let newest = camera.log.last().map(|(id, _)| id);
        if newest.is_some_and(|newest| newest >= meta.id) {
            camera.counters.late += 1;
            return;
        }
        let quality = Quality { expected_accuracy, infeasible };
        let skipped = skipped_since(newest, meta.id, &camera.decoding.account.shown(meta.id, &skipped));
        let Times { arriving, arrived, decoded } = times;
        let trace = Some(Arc::new(FrameTrace { camera: stamps, arriving, arrived, decoded, logged: now }));
        let frame = Frame { meta, payload };
        match camera.log.append_record(Record { frame, skipped, quality, trace, arrived }) {
            Ok(_) => {
                camera.counters.received += 1;
                self.outputs.push_back(EdgeOutput::Appended { camera: name.clone() });
            }
            Err(AppendError::OutOfOrder { .. } | AppendError::CaptureTime { .. }) => {
                camera.counters.late += 1;
            }
            Err(AppendError::LargerThanLog { .. } | AppendError::Held { .. }) => {
                camera.counters.refused += 1;
            }
        }
    }

    /// Asks for a frame that stands alone in place of a chain, if that was not done already.
    fn ask_for_refresh(
        &mut self,
        now: Instant,
        name: &CameraName,
        link: LinkId,
        (chain, frame): (Sequence, FrameId),
    ) {
        let Some(camera) = self.cameras.get_mut(name) else { return };
        let Camera { link: present, decoding, .. } = camera;
        let due = decoding.refreshed.is_none_or(|(of, asked, last)| {
            (of, asked) != (link, chain) || now.saturating_since(last) >= REFRESH_INTERVAL
        });
        // Another connection begins with a frame that stands alone anyway.
        let is_over = self.links.get(&link).is_none_or(|known| known.over);
        if due && *present == Some(link) && !is_over {
            decoding.refreshed = Some((link, chain, now));
            self.send(link, Message::Refresh { frame });
        }
    }
}

/// The part of what is known to be skipped that lies between the newest frame held and the one that comes.
pub(super) fn skipped_since(
    newest: Option<FrameId>,
    frame: FrameId,
    skipped: &[SkipRange],
) -> Arc<[SkipRange]> {
    let from = match newest {
        Some(newest) if newest.epoch == frame.epoch => newest.sequence.next(),
        _ => Sequence(0),
    };
    skipped.iter().filter_map(|range| range.clipped(from, frame.sequence)).collect()
}
