//! Knows which camera is on which connection, and what that means for its frames.

use bytes::Bytes;

use super::arrivals::{Completed, FrameRefused, Whole};
use super::camera::{Camera, Cameras};
use super::connection::{Connection, Connections, Due, Session, Way};
use super::replica::{Decoded, Replica};
use super::types::EdgeOutput;
use crate::broker::LinkId;
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::units::Instant;
use crate::wire::{FrameHeader, Message, Report};

/// A connection of a camera that is gone.
pub(super) struct Gone {
    pub(super) camera: CameraName,
    /// Its last frames, which were here and had not been taken.
    pub(super) outputs: Vec<EdgeOutput>,
}

/// The known cameras and the connections on which they come. A connection has a session as long as it belongs
/// to its camera.
pub(super) struct Roster {
    pub(super) cameras: Cameras,
    pub(super) connections: Connections,
}

impl Roster {
    pub(super) fn new(cameras: Cameras) -> Self {
        Self { cameras, connections: Connections::default() }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// A camera's connection.
    pub(super) fn link_of(&self, camera: &Camera) -> Option<&Connection> {
        self.connections.get(camera.link?)
    }

    /// The connection of a camera that was heard of lately.
    pub(super) fn reached(&self, name: &CameraName) -> Option<&Connection> {
        self.link_of(self.cameras.get(name).filter(|camera| camera.is_heard())?)
    }

    /// When a camera was last heard of that is or was connected.
    pub(super) fn last_heard(&self, name: &CameraName) -> Option<Instant> {
        let camera = self.cameras.get(name)?;
        // One that is silent has a connection that nothing was heard of.
        camera.gone.max(self.link_of(camera).map(|link| link.heard))
    }

    /// The camera that a connection is of.
    pub(super) fn camera_of(&mut self, link: LinkId) -> Option<&mut Camera> {
        Some(self.both(link)?.1)
    }

    /// A camera, and its connection.
    pub(super) fn camera_and_way(&mut self, name: &CameraName) -> Option<(&mut Camera, Option<Way>)> {
        let camera = self.cameras.get_mut(name)?;
        let link = camera.link.and_then(|link| self.connections.get(link));
        Some((camera, link.and_then(Connection::way)))
    }

    /// When something is due of connections, or of cameras that are waited for.
    pub(super) fn due(&self) -> Option<Instant> {
        let replicas = || self.cameras.iter().map(|(_, camera)| &camera.replica);
        let joins = replicas().filter_map(Replica::join_due);
        let stale = replicas().filter_map(Replica::stale_due);
        joins.chain(stale).chain(self.connections.due()).min()
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A connection becomes that of a camera which is known, and has none.
    pub(super) fn handle_taken_in(&mut self, now: Instant, id: LinkId, session: Session) {
        let Some(link) = self.connections.get_mut(id) else { return };
        let Some(camera) = self.cameras.get_mut(&session.camera) else { return };
        camera.handle_taken_in(id, link.peer.identity.clone(), (session.epoch, session.anchor));
        link.handle_taken_in(now, session);
    }

    /// A connection is over. Takes its whole frames, and forgets it. `None` if it belonged to no camera.
    pub(super) fn handle_closed(&mut self, id: LinkId) -> Option<Gone> {
        let link = self.connections.get_mut(id)?;
        let (heard, cancelled) = (link.heard, link.arrivals.handle_over());
        let outputs = self.take_ready(heard, id);
        let name = self.connections.remove(id)?.session?.camera;
        let camera = self.cameras.get_mut(&name)?;
        camera.replica.counters.cancelled += cancelled;
        camera.handle_gone(heard);
        Some(Gone { camera: name, outputs })
    }

    /// Looks after connections.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Due {
        self.connections.handle_timeout(now)
    }

    /// Notes which cameras are silent, takes frames that have waited long enough for others, and asks for chains that
    /// somebody waits for.
    pub(super) fn handle_waits(&mut self, now: Instant) -> Vec<EdgeOutput> {
        let mut outputs = self.cameras.handle_timeout(now, &self.connections);
        for link in self.connections.held(now) {
            outputs.extend(self.take_ready(now, link));
        }
        for (_, camera) in self.cameras.iter_mut() {
            outputs.extend(camera.replica.take_stale(now));
        }
        let is_due = |camera: &Camera| camera.replica.join_due().is_some_and(|due| now >= due);
        for name in self.cameras.names(|_, camera| is_due(camera)) {
            if let Some((camera, way)) = self.camera_and_way(&name) {
                outputs.extend(camera.replica.ask_to_join(now, way));
            }
        }
        outputs
    }

    // ---- frames -------------------------------------------------------------------------------------------

    /// A camera says something on its connection. Fails if it has not been taken in there.
    pub(super) fn handle_heard(&mut self, now: Instant, id: LinkId) -> Result<(), FrameRefused> {
        let Some((link, _)) = self.both(id) else { return Err(FrameRefused::NotWelcome) };
        link.hear(now);
        Ok(())
    }

    /// A frame's header is here.
    pub(super) fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> (Result<(), FrameRefused>, Option<EdgeOutput>) {
        let (frame, bytes_max) = (header.meta.id, self.cameras.frame_bytes_max());
        let Some((link, camera)) = self.both(id) else { return (Err(FrameRefused::NotWelcome), None) };
        link.hear(now);
        let epoch = camera.newest_start.0;
        let taken = link.arrivals.handle_header(now, header, epoch, bytes_max);
        let refused = taken.is_err().then(|| report(id, Report::Refused { frame }));
        camera.replica.counters.refused += u64::from(taken.is_err());
        (taken, refused)
    }

    /// Part of a frame's payload is here.
    pub(super) fn handle_frame_progress(
        &mut self,
        now: Instant,
        id: LinkId,
        frame: FrameId,
        bytes: u32,
    ) -> Option<EdgeOutput> {
        let link = self.connections.get_mut(id)?;
        link.hear(now);
        link.arrivals.handle_progress(now, frame, bytes).map(|progress| report(id, progress))
    }

    /// All of a frame's payload is here. Returns the frame if it is what its header said.
    pub(super) fn handle_frame_complete(
        &mut self,
        now: Instant,
        id: LinkId,
        frame: FrameId,
        payload: Bytes,
    ) -> (Option<Whole>, Vec<EdgeOutput>) {
        let Some((link, camera)) = self.both(id) else { return (None, Vec::new()) };
        let completed = link.arrivals.handle_complete(now, frame, payload);
        let Some(Completed { report: complete, bytes, whole }) = completed else { return (None, Vec::new()) };
        link.hear(now);
        camera.replica.counters.bytes += u64::from(bytes);
        camera.replica.counters.refused += u64::from(whole.is_none());
        let mut outputs = vec![report(id, complete)];
        outputs.extend(self.take_ready(now, id));
        (whole, outputs)
    }

    /// The rest of a frame's payload will not come.
    pub(super) fn handle_frame_cancelled(
        &mut self,
        now: Instant,
        id: LinkId,
        frame: FrameId,
    ) -> Vec<EdgeOutput> {
        let Some(link) = self.connections.get_mut(id) else { return Vec::new() };
        link.hear(now);
        if !link.arrivals.handle_cancelled(frame) {
            return Vec::new();
        }
        if let Some(camera) = self.camera_of(id) {
            camera.replica.counters.cancelled += 1;
        }
        self.take_ready(now, id)
    }

    /// The decoder is done with a frame that came on that connection.
    pub(super) fn handle_decoded(
        &mut self,
        now: Instant,
        name: &CameraName,
        (link, frame): (LinkId, FrameId),
        decoded: Decoded,
    ) -> Vec<EdgeOutput> {
        let Some((camera, way)) = self.camera_and_way(name) else { return Vec::new() };
        let present = camera.link;
        let outputs = camera.replica.handle_decoded(now, link, frame, decoded, way);
        let Some(mut outputs) = outputs else { return Vec::new() };
        // There is room now for frames that waited for it.
        outputs.extend(present.into_iter().flat_map(|present| self.take_ready(now, present)));
        outputs
    }

    /// Takes the frames of a connection that are whole and whose turn it is, oldest first.
    fn take_ready(&mut self, now: Instant, id: LinkId) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        let Some((link, camera)) = self.both(id) else { return outputs };
        loop {
            let has_room = |bytes| camera.replica.has_room_for(bytes);
            let Some(ready) = link.arrivals.next(now, has_room) else { return outputs };
            let stale_until = link.stale_until(now, &ready.header.meta, camera.report.interval());
            outputs.extend(camera.replica.handle_ready(now, id, ready, (link.way(), stale_until)));
        }
    }

    /// A connection, and the camera that it is of.
    fn both(&mut self, id: LinkId) -> Option<(&mut Connection, &mut Camera)> {
        let link = self.connections.get_mut(id)?;
        let camera = self.cameras.get_mut(link.camera()?)?;
        // A connection that another one takes the place of is removed first.
        debug_assert_eq!(camera.link, Some(id), "a connection has a session, and is not its camera's");
        Some((link, camera))
    }
}

/// Tells a camera how a frame arrives.
fn report(link: LinkId, report: Report) -> EdgeOutput {
    EdgeOutput::Send { link, message: Message::Report(report) }
}
