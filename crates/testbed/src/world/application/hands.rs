//! Models the client library between an edge and an application's hands.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::monitor::TakenReport;
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::units::Instant;

use super::Application;
use crate::world::bug::Bug;
use crate::world::edge::EdgeHost;
use crate::world::events::{Event, Took};
use crate::world::spec::Library;
use crate::world::stage::Stage;

impl Application {
    /// Lets its client library have a frame that is handed over now, captured at `captured` by the edge's clock.
    pub(super) fn give_to_library(
        &self,
        subscription: SubscriptionId,
        camera: CameraName,
        (frame, captured): (FrameId, Option<Instant>),
        edge: &EdgeHost,
        stage: &mut Stage<'_>,
    ) {
        let (Some(Library { way, takes_after }), Some(captured)) = (self.spec.library, captured) else {
            return;
        };
        let received = edge.clock.monotonic(stage.now).saturating_since(captured) + way;
        let report = TakenReport {
            frame,
            received: Some(received),
            taken: Some(received + takes_after),
            error: Duration::ZERO,
        };
        let took = Box::new(Took { subscription, camera, handed: stage.now, report });
        stage.events.push(stage.now + way + takes_after, Event::Took { application: self.index, took });
    }

    /// It has taken a frame, and its library says so. Returns whether its cameras may choose their rungs again.
    pub(in crate::world) fn handle_took(
        &mut self,
        took: &Took,
        edge: &mut EdgeHost,
        stage: &mut Stage<'_>,
    ) -> bool {
        let Took { subscription, camera, handed, report } = took;
        let now = edge.clock.monotonic(stage.now);
        let Some((id, session)) = self.reading.as_mut().filter(|(id, _)| id == subscription) else {
            return false;
        };
        let id = *id;
        if stage.bug != Some(Bug::TakenForgotten) {
            session.handle_taken(now, camera, report);
        }
        let way = session.poll_way(now);
        stage.checks.took_in_hand(id, camera, *handed, report.taken.unwrap_or_default());
        let Some(way) = way else { return false };
        edge.with_process(stage, |process, _| process.broker.handle_way(id, way));
        true
    }
}
