//! Models the client library between an edge and an application's hands.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::monitor::TakenReport;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::units::Instant;

use super::events::Event;
use super::{Bug, World};
use crate::time::Moment;

/// A client library that reports when its application has taken a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// How long a frame takes from the edge into the library.
    pub way: Duration,
    /// How long after that the application takes it.
    pub takes_after: Duration,
}

/// A frame that an application has taken.
#[derive(Clone, Debug)]
pub(super) struct Took {
    subscription: SubscriptionId,
    camera: CameraName,
    handed: Moment,
    report: TakenReport,
}

impl World {
    /// Lets an application's client library have a frame that is handed over now, captured at `captured` by the edge's clock.
    pub(super) fn give_to_library(
        &mut self,
        index: usize,
        subscription: SubscriptionId,
        camera: CameraName,
        (frame, captured): (FrameId, Option<Instant>),
    ) {
        let application = &self.applications[index];
        let (Some(Library { way, takes_after }), Some(captured)) = (application.spec.library, captured)
        else {
            return;
        };
        let now = self.edges[application.spec.edge.0].clock.monotonic(self.now);
        let received = now.saturating_since(captured) + way;
        let report = TakenReport {
            frame,
            received: Some(received),
            taken: Some(received + takes_after),
            error: Duration::ZERO,
        };
        let took = Box::new(Took { subscription, camera, handed: self.now, report });
        self.events.push(self.now + way + takes_after, Event::Took { application: index, took });
    }

    /// An application has taken a frame, and its library says so.
    pub(super) fn took(&mut self, index: usize, took: &Took) {
        let Took { subscription, camera, handed, report } = took;
        let application = &mut self.applications[index];
        let edge = application.spec.edge.0;
        let now = self.edges[edge].clock.monotonic(self.now);
        let Some((id, session)) = application.reading.as_mut().filter(|(id, _)| id == subscription) else {
            return;
        };
        let id = *id;
        if self.bug != Some(Bug::TakenForgotten) {
            session.handle_taken(now, camera, report);
        }
        let way = session.poll_way(now);
        self.checks.took_in_hand(id, camera, *handed, report.taken.unwrap_or_default());
        let Some(way) = way else { return };
        self.with_edge(edge, |process, _| process.broker.handle_way(id, way));
        // Cameras choose their rungs again.
        for camera in 0..self.cameras.len() {
            if self.applications[index].reads(edge, &self.cameras[camera].name) {
                self.disturb(camera);
            }
        }
    }
}
