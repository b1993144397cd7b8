//! Finds frames of the past at a camera, encodes them, and sends them.

use std::ops::RangeInclusive;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::{Transform, Transformed};
use mez_core::frame::{ChainLink, Encoding};
use mez_core::history::PastQuery;
use mez_core::wire::FrameHeader;

use super::CameraHost;
use crate::link::{Link, Side, past_stream};
use crate::payload::{received, reduced};
use crate::time::ms;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::stage::Stage;

/// How long a camera searches for a frame of the past, and how long encoding it takes, in milliseconds.
const LOOKS_MS: RangeInclusive<u64> = 0..=20;

impl CameraHost {
    /// Begins to search for a frame of the past.
    pub(super) fn look_for(&mut self, ticket: u64, query: PastQuery, stage: &mut Stage<'_>) {
        let Some(process) = &self.process else { return };
        let (camera, run) = (self.index, process.run);
        let done = stage.now + ms(self.random.within(LOOKS_MS));
        stage.events.push(done, Event::Found { camera, run, ticket, query });
    }

    /// Ends a search. Returns whether the process that asked for it still runs.
    pub(in crate::world) fn handle_found(
        &mut self,
        run: u64,
        ticket: u64,
        query: PastQuery,
        stage: &Stage<'_>,
    ) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        let mut answer = process.whole_past(self.kept.as_mut(), query);
        if stage.bug == Some(Bug::PastWithHoles)
            && let Some(found) =
                answer.record.as_ref().filter(|record| record.frame.meta.id.sequence.0 % 5 == 4)
        {
            let after = Some(found.frame.meta.id);
            answer = process.whole_past(self.kept.as_mut(), PastQuery { after, ..query });
        }
        process.broker.handle_history(self.clock.monotonic(stage.now), ticket, answer);
        true
    }

    /// Begins to encode a frame of the past at a smaller size.
    pub(super) fn make_past(&mut self, ticket: u64, transform: &Transform, stage: &mut Stage<'_>) {
        let Some(process) = &self.process else { return };
        let Transform { frame, setting, .. } = transform;
        let payload = reduced(&received(&frame.payload));
        let (width, height) = setting.size((frame.meta.width, frame.meta.height));
        let (rung, chain) = (setting.rung(), ChainLink::still(frame.meta.id.sequence));
        let encoding = Encoding::Jpeg;
        let made = Box::new(Transformed::Made { payload, encoding, width, height, rung, chain });
        let (camera, run) = (self.index, process.run);
        let done = stage.now + ms(self.random.within(LOOKS_MS));
        stage.events.push(done, Event::PastMade { camera, run, ticket, made });
    }

    /// Ends the encoding of a frame of the past. Returns whether the process that asked for it still runs.
    pub(in crate::world) fn handle_past_made(
        &mut self,
        run: u64,
        ticket: u64,
        made: Transformed,
        stage: &Stage<'_>,
    ) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        process.broker.handle_past_transformed(self.clock.monotonic(stage.now), ticket, made);
        true
    }

    /// Begins to send a frame of the past.
    pub(super) fn send_past(
        &mut self,
        connection: LinkId,
        header: &FrameHeader,
        payload: Bytes,
        link: &mut Link,
        stage: &mut Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        let (now, request, frame) = (stage.now, header.history, header.meta.id);
        let unsent = (link.unsent_frames(Side::Camera, connection), link.unsent_past(connection));
        stage.checks.sends_past(&self.name, process.run, &header.meta, &payload, unsent);
        let camera = self.index;
        stage.trace.record(now, What::SendsPast { camera, link: connection, frame, request });
        let mut bytes = Vec::with_capacity(256);
        header.encode(&mut bytes);
        link.send_frame(now, (Side::Camera, connection), past_stream(request), (bytes.into(), payload));
        if stage.bug == Some(Bug::PastHurries) {
            process.broker.handle_history_sent(self.clock.monotonic(now), connection, request);
        }
    }

    /// The last byte of a frame of the past has left, or the edge has stopped the frame.
    pub(in crate::world) fn handle_past_left(
        &mut self,
        connection: LinkId,
        request: u64,
        stage: &mut Stage<'_>,
    ) {
        let Some(process) = &mut self.process else { return };
        stage.checks.past_left(&self.name, process.run, process.broker.demand().is_some());
        process.broker.handle_history_sent(self.clock.monotonic(stage.now), connection, request);
    }
}
