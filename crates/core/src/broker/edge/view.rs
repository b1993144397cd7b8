//! Builds the views of a camera: for the contracts on it, and for people.

use super::camera::Camera;
use super::roster::Roster;
use super::subscriptions::Subscriptions;
use super::types::{CameraInfo, CameraView};
use crate::name::CameraName;
use crate::source::{SourceStanding, SourceState};
use crate::units::Instant;

/// The parts from which a camera's view is built.
pub(super) struct Views<'a> {
    pub(super) roster: &'a Roster,
    pub(super) subscriptions: &'a Subscriptions,
}

impl Views<'_> {
    /// What affects a camera's contracts. `None` if the camera is not known.
    pub(super) fn view(&self, now: Instant, name: &CameraName) -> Option<CameraView> {
        let Self { roster, subscriptions } = self;
        let camera = roster.cameras.get(name)?;
        let report = &camera.report;
        report.assert_consistent();
        Some(CameraView {
            connected: camera.is_heard(),
            source: report.source.clone(),
            feasibility: report.feasibility,
            infeasible_since: report.infeasible_since,
            frames_per_second: report.status.frames_per_second,
            size: (report.status.width, report.status.height),
            one_way_delay: roster.link_of(camera).and_then(|link| link.one_way_delay(now)),
            demands: subscriptions.demands(name),
            negotiated: report.negotiated.clone(),
            shed: roster.shares.shed(name),
        })
    }

    /// What is known of all cameras, sorted by name.
    pub(super) fn infos(&self, now: Instant) -> Vec<CameraInfo> {
        self.roster.cameras.iter().map(|(name, camera)| self.info(now, name, camera)).collect()
    }

    fn info(&self, now: Instant, name: &CameraName, camera: &Camera) -> CameraInfo {
        let Self { roster, subscriptions } = self;
        let Camera { replica, report, .. } = camera;
        CameraInfo {
            camera: name.clone(),
            connected: camera.is_heard(),
            identity: camera.identity.clone(),
            status: report.status,
            disk: report.disk.clone(),
            feasibility: report.feasibility,
            counters: replica.counters,
            source: source(camera),
            newest: replica.newest(),
            oldest: replica.oldest(),
            traffic: camera.traffic.traffic(),
            log_bytes: replica.log_bytes(),
            clock: roster.link_of(camera).and_then(|link| link.clock.estimate(now)),
            subscriptions: subscriptions.wanting(name),
            share: roster.shares.share_of(name),
            derived: camera.derived.as_ref().map(|derived| (derived.deriving.clone(), derived.publishers)),
        }
    }
}

/// The state of a camera's source. A camera that does not report it has a live source once it has published a frame.
fn source(camera: &Camera) -> Option<SourceStanding> {
    let gives = camera.is_heard() && camera.report.status.published > 0;
    let live = SourceStanding { state: SourceState::Live, reason: String::new(), since: None, retry: None };
    camera.report.source.clone().or_else(|| gives.then_some(live))
}
