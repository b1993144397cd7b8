//! Makes records of frames that an application has processed, and sends them to its edge.

use std::time::Duration;

use mez_core::data::Origin;
use mez_core::name::CameraName;
use mez_core::subscription::Delivery;

use super::Application;
use crate::payload::payload;
use crate::time::ms;
use crate::world::edge::EdgeHost;
use crate::world::events::{Event, MadeRecord};
use crate::world::spec::DeriveSpec;
use crate::world::stage::Stage;

/// How long the edge's permission to publish takes to arrive.
const OPENING: Duration = ms(1);
/// Payloads of applications are numbered from here on, to differ from those of cameras' frames.
const PAYLOADS: u64 = 1 << 40;

impl Application {
    /// The derived stream that the application publishes, if it publishes one.
    pub(in crate::world) fn stream(&self) -> Option<&CameraName> {
        self.publishing.as_ref().map(|publishing| &publishing.stream)
    }

    /// How many records of the application the edge has accepted.
    pub(in crate::world) fn records_published(&self) -> u64 {
        self.publishing.as_ref().map_or(0, |publishing| publishing.accepted)
    }

    /// Makes a record of a processed frame, and sends it to the edge.
    pub(super) fn make_record(&mut self, done: &Delivery, stage: &mut Stage<'_>) {
        let Some(publishing) = &self.publishing else { return };
        if done.camera == publishing.stream {
            return;
        }
        let DeriveSpec { workers, record_bytes, way, .. } = &publishing.spec;
        let bytes = self.random.within(u64::from(*record_bytes.start())..=u64::from(*record_bytes.end()));
        let number = PAYLOADS + (self.index as u64) * 1_000_000 + self.frames;
        let meta = &done.record.frame.meta;
        let made = MadeRecord {
            worker: self.frames as usize % workers,
            of: Origin { camera: done.camera.clone(), frame: meta.id, captured: meta.captured },
            body: payload(number, bytes as u32),
        };
        let arrives = stage.now + self.random.duration(way.clone());
        stage.events.push(arrives, Event::Derived { application: self.index, made: Box::new(made) });
    }

    /// A record reaches the edge. If its program is not admitted yet, it first asks whether it may publish.
    /// A record that finds no running edge is lost; it was never accepted.
    pub(in crate::world) fn handle_made(
        &mut self,
        made: MadeRecord,
        is_camera: bool,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let Some(publishing) = &mut self.publishing else { return };
        if edge.process.is_none() || edge.is_frozen() {
            return;
        }
        publishing.look(&self.access, edge, stage);
        let open = publishing.workers[made.worker];
        if let Some(id) = open {
            publishing.publish(id, &made, edge, stage);
        } else if publishing.open(made.worker, &self.access, is_camera, edge, stage) {
            let event = Event::Derived { application: self.index, made: Box::new(made) };
            stage.events.push(stage.now + OPENING, event);
        }
    }

    /// Checks whether the application may still publish, if rights or the deny list have changed.
    pub(super) fn look_at_publishing(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) {
        if let Some(publishing) = &mut self.publishing {
            publishing.look(&self.access, edge, stage);
        }
    }
}
