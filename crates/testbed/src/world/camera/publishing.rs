//! Frames on their way from the publisher into the log, and to the broker.

use std::time::Duration;

use mez_core::broker::Published;
use mez_core::frame::{Encoding, Epoch};

use super::PERSIST_MS_MAX;
use crate::footage::Footage;
use crate::payload::payload;
use crate::time::ms;
use crate::trace::What;
use crate::world::events::Event;
use crate::world::storage::Owner;
use crate::world::{Bug, CaptureTimes, Node, World};

/// How long it takes until the broker's thread learns that the log has grown, in nanoseconds.
const TELL_NANOS_MAX: u64 = 100_000;
/// How long before its publishing a frame was exposed, as publishers say who give capture times.
const EXPOSED_BEFORE: Duration = ms(7);

impl World {
    pub(in crate::world) fn publish(&mut self, index: usize, run: u64) {
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        let jitter = host.spec.jitter.min(host.spec.interval);
        let pause = host.spec.interval
            + host.random.duration(ms(0)..=2 * jitter)
            + process.turn(self.now, &host.spec);
        self.events.push(self.now + pause - jitter, Event::Publish { camera: index, run });
        if !host.publishing || self.links[host.link].frozen.is_some() {
            return;
        }
        host.scene.pass(host.spec.interval);
        let within = (*host.spec.frame_bytes.start(), *host.spec.frame_bytes.end());
        let bytes = Footage::published_bytes(within, &mut host.scene);
        let (captured, wrong) = match host.spec.capture_times {
            CaptureTimes::Broker => (None, false),
            CaptureTimes::Publisher { wrong_once_in } => {
                let wrong = process.captured.is_some() && host.random.one_in(wrong_once_in);
                // A driver that stamps frames knows when they were exposed, a little before they are published.
                let time = process.anchor.wall_at(host.clock.monotonic(self.now)) - EXPOSED_BEFORE;
                (if wrong { process.captured } else { Some(time) }, wrong)
            }
        };
        self.payloads += 1;
        let payload = payload(self.payloads, bytes);
        let (width, height) = host.spec.pixels;
        let frame = Published { payload: payload.clone(), encoding: Encoding::Jpeg, width, height, captured };
        match process.intake.publish(host.clock.monotonic(self.now), frame) {
            Ok(id) => {
                let record = process.reader.newest().expect("a frame was just appended");
                let captured = record.frame.meta.captured;
                process.captured = Some(captured);
                host.counts.published += 1;
                let entered = payload.clone();
                self.checks.published(&host.name, run, id, (payload, host.spec.pixels), captured);
                self.checks.took(id, wrong);
                self.trace.record(self.now, What::Published { camera: index, frame: id, bytes });
                let told = self.now + Duration::from_nanos(host.random.within(0..=TELL_NANOS_MAX));
                self.events.push(told, Event::Told { camera: index, run });
                self.enter_log(&Owner::Camera(index), id, &entered);
            }
            Err(error) => {
                host.counts.refused += 1;
                if wrong {
                    host.misstamped = self.now;
                }
                self.checks.refused(&error, wrong);
                self.trace.record(self.now, What::Refused { camera: index });
            }
        }
    }

    pub(in crate::world) fn tell(&mut self, index: usize, run: u64) {
        if self.is_frozen(Node::Camera(index)) {
            // It will be told when it goes on.
            return;
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        // A frame that is too large for the edge need not be sent.
        let bytes_max = self.edges[host.spec.edge.0].spec.frame_bytes_max as usize;
        let epoch = process.broker.epoch();
        let newest = process
            .reader
            .newest()
            .filter(|record| record.frame.meta.id.epoch == epoch && record.frame.payload.len() <= bytes_max);
        process.told = newest.map(|record| record.frame.meta.id).or(process.told);
        if self.bug == Some(Bug::FramesKeptBack) && process.told.is_some_and(|id| id.sequence.0 % 50 > 40) {
            return;
        }
        process.broker.handle_intake(process.intake.refused(), process.intake.log_bytes());
        let now = host.clock.monotonic(self.now);
        process.broker.handle_published(now);
        if process.broker.holds_back(now) {
            // It may have left the frame out, for which there was no room then.
            process.sent = process.sent.max(process.told);
        }
        self.touch(Node::Camera(index));
    }

    pub(in crate::world) fn raise_epoch(&mut self, index: usize, run: u64, above: Epoch) {
        if self.is_frozen(Node::Camera(index)) {
            let later = self.now + ms(PERSIST_MS_MAX);
            return self.events.push(later, Event::EpochPersisted { camera: index, run, above });
        }
        let host = &mut self.cameras[index];
        let Some(process) = host.process.as_mut().filter(|process| process.run == run) else { return };
        let before = process.broker.epoch();
        if !std::mem::take(&mut process.accepted) {
            // No edge has taken it in with this epoch: somebody else may have used its numbers.
            process.doubted.insert(before);
            self.checks.gives_up_epoch(&host.name, run, before);
        }
        let epoch = Epoch(before.max(above).0 + 1);
        host.persisted = epoch.0;
        process.intake.raise_epoch(epoch);
        process.captured = None;
        if let Some(kept) = &mut host.kept {
            kept.set_start(epoch, process.anchor);
        }
        process.broker.handle_epoch(host.clock.monotonic(self.now), epoch);
        self.trace.record(self.now, What::EpochRaised { camera: index, epoch: epoch.0 });
        self.disturb(index);
        self.touch(Node::Camera(index));
    }
}
