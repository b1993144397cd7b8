//! Moves cameras to another of their edges.

use super::World;
use super::spec::EdgeId;

impl World {
    /// Moves a camera, with all others on its link, from its edge to this one.
    pub(super) fn move_camera(&mut self, camera: usize, edge: usize) {
        let (link, before) = (self.cameras[camera].link, self.cameras[camera].spec.edge.0);
        let stands_still = |edge: usize| self.edges[edge].is_frozen();
        if before == edge || stands_still(before) || stands_still(edge) || self.network.is_frozen(link) {
            return;
        }
        let now = self.now;
        self.checks.moves(&self.cameras[camera].name);
        self.change_link(camera, |link| link.break_all(now));
        // The edge that the camera leaves learns of the end of its connections.
        self.drain_link(link);
        let hosts: Vec<usize> =
            (0..self.cameras.len()).filter(|index| self.cameras[*index].link == link).collect();
        for index in hosts {
            let mut made_by = None;
            self.with_camera(index, |camera, stage| {
                made_by = camera.fail_dials(stage);
                camera.spec.edge = EdgeId(edge);
                true
            });
            let listens = self.edges[edge].process.is_some();
            self.change_link(index, |link| {
                made_by.into_iter().for_each(|run| link.give_up_dials(run));
                if listens { link.edge_listens() } else { link.lose_edge() }
            });
        }
        self.edges[before].disturb(now);
        self.edges[edge].disturb(now);
        self.look_at_members();
    }
}
