//! Builds what is told of a camera, to the contracts that it affects and to people.

use super::camera::Camera;
use super::connection::Connection;
use super::shares::Shares;
use super::subscriptions::Subscriptions;
use super::types::{CameraInfo, CameraView};
use crate::name::CameraName;
use crate::units::Instant;

/// What a camera is seen by.
pub(super) struct Seen<'a> {
    pub(super) name: &'a CameraName,
    pub(super) camera: &'a Camera,
    /// Its present connection.
    pub(super) link: Option<&'a Connection>,
    pub(super) subscriptions: &'a Subscriptions,
    pub(super) shares: &'a Shares,
}

impl Seen<'_> {
    /// What bears on its contracts.
    pub(super) fn view(&self, now: Instant) -> CameraView {
        let Self { name, camera, link, subscriptions, shares } = self;
        let report = &camera.report;
        report.assert_consistent();
        CameraView {
            connected: camera.is_heard(),
            feasibility: report.feasibility,
            infeasible_since: report.infeasible_since,
            frames_per_second: report.status.frames_per_second,
            size: (report.status.width, report.status.height),
            one_way_delay: link.and_then(|link| link.one_way_delay(now)),
            demands: subscriptions.demands(name),
            negotiated: report.negotiated.clone(),
            shed: shares.shed(name),
        }
    }

    /// What is known of it.
    pub(super) fn info(&self, now: Instant) -> CameraInfo {
        let Self { name, camera, link, subscriptions, shares } = self;
        let Camera { replica, report, .. } = camera;
        CameraInfo {
            camera: (*name).clone(),
            connected: camera.is_heard(),
            identity: camera.identity.clone(),
            status: report.status,
            disk: report.disk.clone(),
            feasibility: report.feasibility,
            counters: replica.counters,
            newest: replica.newest(),
            oldest: replica.oldest(),
            traffic: camera.traffic.traffic(),
            log_bytes: replica.log_bytes(),
            clock: link.and_then(|link| link.clock.estimate(now)),
            subscriptions: subscriptions.wanting(name),
            share: shares.share_of(name),
        }
    }
}
