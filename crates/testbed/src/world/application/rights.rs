//! Lets an application notice changes of its rights and its revocation: its stream may have to end, and requests may be refused.

use mez_core::name::CameraName;
use mez_core::rights::{Lost, Verb};

use super::Application;
use super::access::Ending;
use crate::world::edge::EdgeHost;
use crate::world::stage::Stage;

impl Application {
    /// Checks the edge's rights, if they have changed: the stream may have to end. Returns whether the application subscribes again, because other
    /// cameras may be granted. A stalled application checks when it continues, but the connection of a revoked one is closed.
    pub(in crate::world) fn look_at_rights(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        self.look_at_publishing(edge, stage);
        if edge.process.is_none() || !self.access.have_changed(edge, stage) {
            return false;
        }
        let Some(id) = self.subscription() else {
            // The application was refused, and asks again.
            return self.wants;
        };
        let revoked = edge.lists.denies(&self.access.certificate).is_some();
        if self.stalled && !revoked {
            return false;
        }
        let Some(ending) = self.access.look(edge, stage) else { return false };
        if let Ending::Lost(_) = ending {
            stage.checks.loses(id, &self.pattern);
        }
        self.unsubscribe(edge, stage);
        self.wants = true;
        matches!(ending, Ending::Lost(Lost::Changed { .. }))
    }

    /// Whether the application may send a reply to a camera.
    pub(super) fn may_reply(&self, camera: &CameraName, edge: &EdgeHost, stage: &mut Stage<'_>) -> bool {
        if self.access.is_turned_away(edge, stage) {
            return false;
        }
        let may = edge.rights.now.check(&self.access.who, Verb::Reply, camera).is_ok();
        stage.checks.may_do((edge.index, &self.access.who), Verb::Reply, camera, may);
        may
    }

    /// Lists the cameras of the application's pattern, as its edge answers.
    pub(super) fn list_cameras(&self, edge: &EdgeHost, stage: &mut Stage<'_>) {
        let Some(process) = &edge.process else { return };
        if self.access.is_turned_away(edge, stage) {
            return;
        }
        let Ok(granted) = edge.rights.now.select(&self.access.who, &[Verb::Observe], &self.pattern) else {
            return stage.checks.denied((edge.index, &self.access.who), &[Verb::Observe], &self.pattern);
        };
        let known = process.broker.cameras(edge.clock.monotonic(stage.now));
        let asked = known.iter().map(|known| &known.camera).filter(|camera| self.pattern.matches(camera));
        for camera in asked {
            let listed = granted.allows(camera);
            stage.checks.may_do((edge.index, &self.access.who), Verb::Observe, camera, listed);
        }
    }
}
