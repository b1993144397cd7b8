//! Lets an application notice what it may do, and whether it was revoked: its stream may have to end, and it may be refused.

use mez_core::name::CameraName;
use mez_core::rights::{Lost, Verb};

use super::Application;
use super::access::Ending;
use crate::world::edge::EdgeHost;
use crate::world::stage::Stage;

impl Application {
    /// Looks at the rights of its edge, if they have changed: its stream may have to end. Returns whether it subscribes again, because it may have
    /// something else than before. One that stands still looks when it goes on, but the connection of one that was revoked is closed.
    pub(in crate::world) fn look_at_rights(&mut self, edge: &mut EdgeHost, stage: &mut Stage<'_>) -> bool {
        self.look_at_publishing(edge, stage);
        if edge.process.is_none() || !self.access.have_changed(edge, stage) {
            return false;
        }
        let Some(id) = self.subscription() else {
            // It was refused, and asks again.
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

    /// Whether it may send a result back to a camera.
    pub(super) fn may_reply(&self, camera: &CameraName, edge: &EdgeHost, stage: &mut Stage<'_>) -> bool {
        if self.access.is_turned_away(edge, stage) {
            return false;
        }
        let may = edge.rights.now.check(&self.access.who, Verb::Reply, camera).is_ok();
        stage.checks.may_do((edge.index, &self.access.who), Verb::Reply, camera, may);
        may
    }

    /// Lists the cameras of its pattern, as its edge answers that.
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
