//! Decodes frames of chains to stills, as the edge's driver has it done.

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::Decoded;
use mez_core::frame::{Encoding, Frame};
use mez_core::name::CameraName;

use super::EdgeHost;
use crate::time::ms;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::stage::Stage;

/// How long a decoder takes for a frame.
const DECODING_MS: std::ops::RangeInclusive<u64> = 1..=8;
/// How long a decoder that hangs takes until it is given up.
const HANG_MS: u64 = 250;
/// One frame in this many makes a decoder fail.
const DECODER_FAILS_ONCE_IN: u64 = 500;
/// One frame in this many makes a decoder hang.
const DECODER_HANGS_ONCE_IN: u64 = 1_000;

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
    pub(in crate::world) fn handle_decoded(
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
            decoder.fail();
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
