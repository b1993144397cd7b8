//! Changes the membership of a world's site: revokes and enrols members, and lets edges, cameras and applications notice.

use mez_core::broker::LinkId;
use mez_core::revocation::Certificate;

use super::action::{Counter, Member, SiteAction};
use super::events::Event;
use super::site::SignedList;
use super::spec::{CameraId, EdgeId};
use super::stage::stage;
use super::{Node, World};
use crate::check::LIST_READ_MAX;
use crate::link::Side;
use crate::time::ms;

impl World {
    /// Makes a thief lie about deny lists whenever an edge accepts its connection.
    pub fn forger(&mut self, thief: CameraId) -> &mut Self {
        self.cameras[thief.0].become_forger();
        self
    }

    /// The version of the deny list that an edge holds.
    pub fn list_version(&self, edge: EdgeId) -> u64 {
        self.edges[edge.0].lists.version()
    }

    /// Carries out an action of the site's operator.
    pub(super) fn operate_site(&mut self, action: SiteAction) {
        match action {
            SiteAction::Revoke(member, by) => {
                let certificate = self.certificate_of(member).clone();
                self.site.revoke(self.now, &certificate, by);
                self.write_list(0, self.site.newest().clone());
            }
            SiteAction::Unrevoke(member, by) => {
                let certificate = self.certificate_of(member).clone();
                if self.site.unrevoke(&certificate, by) {
                    self.write_list(0, self.site.newest().clone());
                }
            }
            SiteAction::Enrol(member) => self.enrol(member),
            SiteAction::Copy(edge, changes) => self.write_list(edge.0, self.site.before(changes).clone()),
        }
    }

    fn certificate_of(&mut self, member: Member) -> &mut Certificate {
        match member {
            Member::Camera(camera) => &mut self.cameras[camera.0].certificate,
            Member::Application(application) => &mut self.applications[application.0].access.certificate,
            Member::Edge(edge) => &mut self.edges[edge.0].certificate,
        }
    }

    fn enrol(&mut self, member: Member) {
        let before = self.certificate_of(member).member.clone();
        *self.certificate_of(member) = self.site.issue(self.now, &before);
        match member {
            Member::Camera(camera) => self.start_camera(camera.0, Counter::Kept),
            Member::Application(application) => {
                if self.applications[application.0].wants {
                    self.subscribe(application.0);
                }
            }
            Member::Edge(edge) => self.start_edge(edge.0),
        }
        self.look_at_members();
    }

    /// Puts a list into an edge's key folder. The edge reads it within a second.
    fn write_list(&mut self, edge: usize, signed: SignedList) {
        if self.edges[edge].write_list(&signed) {
            self.checks.list_comes(edge, &signed.list, LIST_READ_MAX);
            let looks = self.now + self.random.duration(ms(0)..=LIST_READ_MAX - ms(1));
            self.events.push(looks, Event::ListWritten { edge });
        }
    }

    /// An edge reads the list in its key folder.
    pub(super) fn read_list(&mut self, edge: usize) {
        let (host, mut stage) = self.edge_at(edge);
        if host.read_list(&mut stage) {
            self.list_changed(edge);
        }
    }

    /// Another list is in force at an edge: revoked members lose their connections and streams.
    pub(super) fn list_changed(&mut self, edge: usize) {
        self.edges[edge].disturb(self.now);
        self.look_at_members();
        for application in 0..self.applications.len() {
            if self.applications[application].spec.edge.0 == edge {
                self.look_at_rights(application);
            }
        }
    }

    /// A camera holds another list. The camera leaves its edge if the edge is revoked.
    pub(super) fn camera_holds_list(&mut self, index: usize) {
        if self.turns_away_from_edge(index) {
            let (camera, link, mut stage) = self.camera_at(index);
            camera.leave_edge(link, &mut stage);
            self.touch(Node::Link(self.cameras[index].link));
            self.touch(Node::Camera(index));
        }
        self.look_at_members();
    }

    /// Whether a camera refuses the edge that it reaches.
    pub(super) fn turns_away_from_edge(&self, camera: usize) -> bool {
        let host = &self.cameras[camera];
        host.turns_away_from(&self.edges[host.spec.edge.0].certificate)
    }

    /// A camera closes a new connection, because the edge's certificate is revoked.
    pub(super) fn hang_up(&mut self, camera: usize, connection: LinkId) {
        let now = self.now;
        self.with_camera(camera, |camera, stage| {
            camera.handle_dial_failed(stage);
            true
        });
        self.network.change(self.cameras[camera].link, &mut stage!(self), |link| {
            link.close(now, Side::Camera, connection);
        });
    }

    /// Notes which cameras and edges newly refuse each other. Pairs that accept each other again begin to recover.
    pub(super) fn look_at_members(&mut self) {
        for index in 0..self.cameras.len() {
            let is_shut_out = self.view().0.is_shut_out(index);
            if self.cameras[index].is_shut_out == is_shut_out {
                continue;
            }
            self.cameras[index].is_shut_out = is_shut_out;
            self.disturb(index);
            if is_shut_out {
                self.thieves.handle_left(index, self.now);
            }
        }
    }

    /// Whether the site's newest list denies a camera's certificate.
    pub(super) fn is_shut_out_of_site(&self, camera: usize) -> bool {
        self.site.newest().list.denies(&self.cameras[camera].certificate).is_some()
    }
}
