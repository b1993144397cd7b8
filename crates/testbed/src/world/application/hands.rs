//! Models the client library between an edge and an application.

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

/// A library's report about a frame that the library received and the application took at these instants.
fn report(frame: FrameId, captured: Instant, (received, taken): (Instant, Instant)) -> TakenReport {
    let age = |at: Instant| Some(at.saturating_since(captured));
    TakenReport { frame, received: age(received), taken: age(taken), error: Duration::ZERO }
}

impl Application {
    /// Passes a frame to the client library. The frame was captured at `captured` by the edge's clock.
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
        let received = edge.clock.monotonic(stage.now) + way;
        let report = report(frame, captured, (received, received + takes_after));
        let took = Box::new(Took { subscription, camera, handed: stage.now, report });
        stage.events.push(stage.now + way + takes_after, Event::Took { application: self.index, took });
    }

    /// The application has taken a frame, and its library reports it. Returns whether the cameras may choose their rungs again.
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

#[cfg(test)]
mod tests {
    use mez_core::frame::{Epoch, Sequence};

    use super::*;

    /// Badly compared clocks can make a frame's capture later than its arrival. The age when it is taken counts from the capture.
    #[test]
    fn ages_count_from_the_capture_also_if_that_lies_ahead() {
        let frame = FrameId { epoch: Epoch(1), sequence: Sequence(0) };
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let said = report(frame, at(140), (at(100), at(160)));
        assert_eq!((said.received, said.taken), (Some(Duration::ZERO), Some(Duration::from_millis(20))));
        let said = report(frame, at(40), (at(100), at(160)));
        assert_eq!(said.taken, Some(Duration::from_millis(120)));
    }
}
