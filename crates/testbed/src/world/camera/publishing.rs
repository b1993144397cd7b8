//! Appends frames of the publisher to the log, and tells the broker of them.

use std::time::Duration;

use bytes::Bytes;
use mez_core::ancestors::parent;
use mez_core::broker::camera::SourceNews;
use mez_core::broker::{PublishPartError, Published, StreamPart};
use mez_core::data::DataRecord;
use mez_core::frame::{Encoding, Epoch, FrameId};
use mez_core::units::Timestamp;

use super::CameraHost;
use crate::footage::Footage;
use crate::payload::payload;
use crate::time::ms;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::Event;
use crate::world::node::Owner;
use crate::world::spec::CaptureTimes;
use crate::world::stage::Stage;

/// The longest time until the broker's thread learns that the log has grown, in nanoseconds.
const TELL_NANOS_MAX: u64 = 100_000;
/// How long before publishing a frame was exposed, according to publishers that give capture times.
const EXPOSED_BEFORE: Duration = ms(7);
/// A picture has this many times the bytes of a data record that replaces it.
const RECORD_SHARE: usize = 8;

impl CameraHost {
    /// Plans the next frame. Returns whether this one is published.
    pub(in crate::world) fn plan_next(&mut self, run: u64, stage: &mut Stage<'_>) -> bool {
        if self.process.as_ref().is_none_or(|process| process.run != run) {
            return false;
        }
        let jitter = self.spec.jitter.min(self.spec.interval);
        let pause = self.spec.interval + self.random.duration(ms(0)..=2 * jitter);
        stage.events.push(stage.now + pause - jitter, Event::Publish { camera: self.index, run });
        self.publishing
    }

    /// The source of the frames is lost, and the broker is told.
    pub(in crate::world) fn lose_source(&mut self, stage: &Stage<'_>) {
        self.publishing = false;
        if let Some(process) = &mut self.process {
            let news = SourceNews::Lost { reason: "somebody pulled the cable".into(), retry: None };
            process.broker.handle_source(self.clock.monotonic(stage.now), news);
        }
    }

    /// Publishes a frame with the payload of this number.
    pub(in crate::world) fn publish(&mut self, number: u64, stage: &mut Stage<'_>) {
        if let Some((id, payload)) = self.append(number, stage)
            && let (Some(process), Some(kept)) = (&self.process, &mut self.kept)
        {
            let of = (Owner::Camera(self.index), process.run);
            kept.handle_entered((id, &payload), self.clock, of, stage);
        }
    }

    /// Appends a frame to the log. Returns the frame, unless it is refused.
    fn append(&mut self, number: u64, stage: &mut Stage<'_>) -> Option<(FrameId, Bytes)> {
        self.scene.pass(self.spec.interval);
        let within = (*self.spec.frame_bytes.start(), *self.spec.frame_bytes.end());
        let bytes = Footage::published_bytes(within, &mut self.scene);
        let (captured, wrong) = self.capture_time(stage);
        let (width, height) = self.spec.pixels;
        let (now, camera) = (stage.now, self.index);
        let process = self.process.as_mut()?;
        let is_record = self.spec.record_once_in > 0 && self.random.one_in(self.spec.record_once_in);
        let (part, bytes) = match self.spec.video.filter(|_| !is_record) {
            Some(video) => match process.video.next_part(&video, &mut self.random) {
                Some(part) => (Some(part), video.bytes(part == StreamPart::Key, bytes)),
                None => {
                    self.useless = now;
                    return None;
                }
            },
            None => (None, bytes),
        };
        let payload = payload(number, bytes);
        let frame = match part {
            _ if is_record => Published::data(&record_of(&payload), captured),
            Some(_) => Published { payload, encoding: Encoding::H264, width, height, captured },
            None => Published { payload, encoding: Encoding::Jpeg, width, height, captured },
        };
        let (payload, bytes) = (frame.payload.clone(), frame.payload.len() as u32);
        let local = self.clock.monotonic(now);
        let result = match part {
            Some(part) => process.intake.publish_part(local, frame, part),
            None => process.intake.publish(local, frame).map_err(PublishPartError::from),
        };
        match result {
            Ok(id) => {
                let record = process.reader.newest().expect("a frame was just appended");
                let captured = record.frame.meta.captured;
                process.captured = Some(captured);
                self.counts.published += 1;
                let entered = (payload.clone(), if is_record { (0, 0) } else { self.spec.pixels });
                stage.checks.published(&self.name, process.run, id, entered, captured);
                if part.is_some() {
                    let refers = parent(&record.frame.meta).map(|parent| parent.sequence);
                    stage.checks.published_video(&self.name, process.run, id, refers);
                }
                stage.checks.took(id, wrong);
                stage.trace.record(now, What::Published { camera, frame: id, bytes });
                let told = now + Duration::from_nanos(self.random.within(0..=TELL_NANOS_MAX));
                stage.events.push(told, Event::Told { camera, run: process.run });
                Some((id, payload))
            }
            Err(error) => {
                self.counts.refused += 1;
                if wrong || error == PublishPartError::NoKeyFrame {
                    self.useless = now;
                }
                // A picture that needs a refused one is refused too (`NoKeyFrame`), and is not checked.
                if let PublishPartError::Publish(error) = &error {
                    stage.checks.refused(error, wrong);
                }
                stage.trace.record(now, What::Refused { camera });
                None
            }
        }
    }

    /// The capture time that the publisher gives, and whether it is wrong: the time of the last frame.
    fn capture_time(&mut self, stage: &Stage<'_>) -> (Option<Timestamp>, bool) {
        let Some(process) = &self.process else { return (None, false) };
        match self.spec.capture_times {
            CaptureTimes::Broker => (None, false),
            CaptureTimes::Publisher { wrong_once_in } => {
                let wrong = process.captured.is_some() && self.random.one_in(wrong_once_in);
                // A driver that stamps frames knows when they were exposed, a little before they are published.
                let time = process.anchor.wall_at(self.clock.monotonic(stage.now)) - EXPOSED_BEFORE;
                (if wrong { process.captured } else { Some(time) }, wrong)
            }
        }
    }

    /// The broker's thread learns that the log has grown. Returns whether the broker was told.
    pub(in crate::world) fn tell(&mut self, run: u64, frame_bytes_max: usize, stage: &Stage<'_>) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        // A frame that is too large for the edge need not be sent.
        let epoch = process.broker.epoch();
        let newest = process.reader.newest().filter(|record| {
            record.frame.meta.id.epoch == epoch && record.frame.payload.len() <= frame_bytes_max
        });
        process.told = newest.map(|record| record.frame.meta.id).or(process.told);
        if stage.bug == Some(Bug::FramesKeptBack) && process.told.is_some_and(|id| id.sequence.0 % 50 > 40) {
            return false;
        }
        process.broker.handle_intake(process.intake.refused(), process.intake.log_bytes());
        let now = self.clock.monotonic(stage.now);
        process.broker.handle_published(now);
        if process.broker.holds_back(now) {
            // The broker may have left the frame out, because the channel had no room for it.
            process.sent = process.sent.max(process.told);
        }
        true
    }

    /// A counter above `above` is on the disk: the process begins another epoch. Returns whether the process still runs.
    pub(in crate::world) fn raise_epoch(&mut self, run: u64, above: Epoch, stage: &mut Stage<'_>) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        let before = process.broker.epoch();
        if !std::mem::take(&mut process.accepted) {
            // No edge has accepted this epoch, so another start may have used its numbers.
            process.doubted.insert(before);
            stage.checks.gives_up_epoch(&self.name, run, before);
        }
        let epoch = Epoch(before.max(above).0 + 1);
        self.persisted = epoch.0;
        process.intake.raise_epoch(epoch);
        process.captured = None;
        if let Some(kept) = &mut self.kept {
            kept.set_start(epoch, process.anchor);
        }
        process.broker.handle_epoch(self.clock.monotonic(stage.now), epoch);
        stage.trace.record(stage.now, What::EpochRaised { camera: self.index, epoch: epoch.0 });
        true
    }
}

/// A data record with a fraction of these bytes, because data is small beside pictures.
fn record_of(bytes: &Bytes) -> DataRecord {
    let content_type = "application/octet-stream".parse().expect("a content type");
    DataRecord { content_type, of: None, body: bytes.slice(..bytes.len() / RECORD_SHARE + 1) }
}
