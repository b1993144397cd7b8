//! Knows which camera is on which connection, and passes events between connections, cameras and channels.

use bytes::Bytes;

use super::arrivals::{Completed, FrameRefused};
use super::camera::{Camera, Cameras};
use super::connection::{Connection, Connections, Session, Way};
use super::replica::Replica;
use super::report::Bears;
use super::shares::Shares;
use super::types::{EdgeConfig, EdgeOutput, ReplyError, SubscriptionId};
use crate::broker::LinkId;
use crate::contract::Contract;
use crate::controller::share::Channels;
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::source::SourceStanding;
use crate::units::{Instant, Timestamp};
use crate::wire::{FrameHeader, Message, REPLY_BYTES_MAX, ReplyResult, Report, ShareRequest};

/// The known cameras and their connections. As long as a connection belongs to
/// a camera, the connection has a session and the camera is on its channel.
pub(super) struct Roster {
    pub(super) cameras: Cameras,
    pub(super) connections: Connections,
    pub(super) shares: Shares,
}

impl Roster {
    pub(super) fn new(config: &EdgeConfig) -> Self {
        Self {
            cameras: Cameras::new(config),
            connections: Connections::default(),
            shares: Shares::new(config.channels.clone()),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// A camera's connection.
    pub(super) fn link_of(&self, camera: &Camera) -> Option<&Connection> {
        self.connections.get(camera.link?)
    }

    /// The connection of a camera that is not silent.
    pub(super) fn reached(&self, name: &CameraName) -> Option<&Connection> {
        self.link_of(self.cameras.get(name).filter(|camera| camera.is_heard())?)
    }

    /// The capture time of the oldest record of a derived stream in memory. Older records
    /// are only on the edge's disk. `None`: the stream is a camera, or is not known.
    pub(super) fn derived_from(&self, name: &CameraName) -> Option<Timestamp> {
        let stream = self.cameras.get(name).filter(|camera| camera.derived.is_some())?;
        Some(stream.replica.oldest().unwrap_or(Timestamp::MAX))
    }

    /// When a camera was last heard. `None`: it was never connected.
    pub(super) fn last_heard(&self, name: &CameraName) -> Option<Instant> {
        let camera = self.cameras.get(name)?;
        // A silent camera still has its connection.
        camera.gone.max(self.link_of(camera).map(|link| link.heard))
    }

    /// A camera, and its connection.
    pub(super) fn camera_and_way(&mut self, name: &CameraName) -> Option<(&mut Camera, Option<Way>)> {
        let camera = self.cameras.get_mut(name)?;
        let link = camera.link.and_then(|link| self.connections.get(link));
        Some((camera, link.and_then(Connection::way)))
    }

    /// When something is due for connections, silent cameras, channels, stale frames, or chains that readers wait for.
    pub(super) fn due(&self) -> Option<Instant> {
        let replicas = || self.cameras.iter().map(|(_, camera)| &camera.replica);
        let joins = replicas().filter_map(Replica::join_due);
        let stale = replicas().filter_map(Replica::stale_due);
        let silence = self.cameras.silence_due(&self.connections);
        joins.chain(stale).chain(silence).chain(self.connections.due()).chain(self.shares.due()).min()
    }

    /// The message that carries an application's result to a camera.
    pub(super) fn reply(
        &self,
        camera: &CameraName,
        frame: FrameId,
        application: &str,
        result: ReplyResult,
    ) -> Result<EdgeOutput, ReplyError> {
        let bytes = result.bytes().len();
        if bytes > REPLY_BYTES_MAX {
            return Err(ReplyError::TooLarge { bytes });
        }
        let Some(known) = self.cameras.get(camera) else {
            return Err(ReplyError::UnknownCamera { camera: camera.clone() });
        };
        if let Some(derived) = &known.derived {
            let owner = derived.deriving.owner.clone();
            return Err(ReplyError::IsDerived { stream: camera.clone(), owner });
        }
        // A silent camera sends nothing, so nobody would know whether the result arrives.
        let reached = self.reached(camera).map(|link| link.id);
        let link = reached.ok_or_else(|| ReplyError::NotConnected { camera: camera.clone() })?;
        let message = Message::Reply { frame, application: application.into(), result };
        Ok(EdgeOutput::Send { link, message })
    }

    // ---- settings that may change ---------------------------------------------------------------------------

    /// Replaces the declared channels.
    pub(super) fn set_channels(&mut self, channels: Channels) -> Vec<EdgeOutput> {
        let connected = self
            .cameras
            .iter()
            .filter_map(|(name, camera)| Some((name.clone(), camera.link?, camera.report.is_wanted())));
        let connected: Vec<_> = connected.collect();
        self.shares.set(channels, &connected)
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// Lets a subscription read a camera's log.
    pub(super) fn attach(&self, subscription: SubscriptionId, name: &CameraName) -> Option<EdgeOutput> {
        self.cameras.get(name).map(|camera| camera.replica.attach(subscription))
    }

    /// A connection becomes that of a known camera without a connection.
    pub(super) fn handle_taken_in(&mut self, now: Instant, id: LinkId, session: Session) {
        let Some(link) = self.connections.get_mut(id) else { return };
        let Some(camera) = self.cameras.get_mut(&session.camera) else { return };
        let Session { epoch, attempt, anchor, .. } = session;
        camera.handle_taken_in((id, attempt), link.peer.identity.clone(), (epoch, anchor));
        self.shares.join(&session.camera);
        link.handle_taken_in(now, session);
    }

    /// A connection is over. Takes its complete frames, then forgets it.
    pub(super) fn handle_closed(&mut self, id: LinkId, reason: &str) -> Vec<EdgeOutput> {
        let Some(link) = self.connections.get_mut(id) else { return Vec::new() };
        let (heard, cancelled) = (link.heard, link.arrivals.handle_over());
        let mut outputs = self.take_ready(heard, id);
        let session = self.connections.remove(id).and_then(|link| link.session);
        let Some(name) = session.map(|session| session.camera) else { return outputs };
        let Some(camera) = self.cameras.get_mut(&name) else { return outputs };
        camera.replica.counters.cancelled += cancelled;
        camera.handle_gone(heard);
        // The camera's last report about its source says more than the end of its connection.
        let told = camera.report.source.as_ref().and_then(SourceStanding::sentence);
        let reason = told.unwrap_or_else(|| reason.into());
        self.shares.leave(&name);
        outputs.push(EdgeOutput::ViewChanged { camera: name.clone() });
        outputs.push(EdgeOutput::CameraChanged { camera: name, up: false, reason: Some(reason) });
        outputs
    }

    /// A camera reports about itself. Returns [`EdgeOutput::ViewChanged`] if this affects the contracts on it.
    pub(super) fn handle_report(&mut self, now: Instant, id: LinkId, message: Message) -> Vec<EdgeOutput> {
        let Some((link, camera)) = self.both(id) else { return Vec::new() };
        if let Message::Status(status) = &message {
            camera.traffic.handle_status(now, status.published_bytes, camera.replica.counters.bytes);
        }
        let said = |camera: &Camera| {
            camera.report.source.as_ref().map(|source| (source.state, source.reason.clone()))
        };
        let before = said(camera);
        let bears = camera.report.handle_message(now, message);
        let Some(name) = link.camera().filter(|_| bears == Bears::OnContracts) else { return Vec::new() };
        // An attempt to reopen a lost source changes the view, but does not wake the readers that wait for frames.
        let changed = camera.report.source.clone().filter(|_| said(camera) != before);
        let told = changed.map(|source| EdgeOutput::SourceChanged { camera: name.clone(), source });
        std::iter::once(EdgeOutput::ViewChanged { camera: name.clone() }).chain(told).collect()
    }

    /// Sends a camera the combined demand of applications, if it has changed.
    pub(super) fn ask(&mut self, name: &CameraName, contracts: Vec<Contract>) -> Vec<EdgeOutput> {
        let Some(camera) = self.cameras.get_mut(name) else { return Vec::new() };
        // Even if the demand is unchanged: there may be more contracts than a demand holds.
        let mut outputs = vec![EdgeOutput::ViewChanged { camera: name.clone() }];
        if let Some(demand) = camera.report.ask(contracts)
            && let Some(link) = camera.link
        {
            let is_wanted = !demand.contracts.is_empty();
            outputs.push(EdgeOutput::Send { link, message: Message::Demand(demand.clone()) });
            outputs.extend(self.connections.handle_wanted(link, is_wanted));
            outputs.extend(self.shares.handle_demand(name, link, is_wanted));
        }
        outputs
    }

    /// A camera has just connected. If nobody wants frames, it may rest.
    pub(super) fn let_rest(&mut self, name: &CameraName) -> Option<EdgeOutput> {
        let camera = self.cameras.get(name).filter(|camera| !camera.report.is_wanted())?;
        self.connections.handle_wanted(camera.link?, false)
    }

    /// A subscription has lost its chain of a camera.
    pub(super) fn handle_chain_lost(&mut self, now: Instant, name: &CameraName) -> Option<EdgeOutput> {
        let (camera, way) = self.camera_and_way(name)?;
        camera.replica.handle_chain_lost(now, way)
    }

    /// A message takes part of its camera's channel.
    pub(super) fn handle_control(&mut self, now: Instant, id: LinkId, message: &Message) {
        if let Some(camera) = self.connections.get(id).and_then(|link| link.camera()) {
            self.shares.handle_message(now, camera, message);
        }
    }

    /// A camera sends its share request.
    pub(super) fn handle_share_request(&mut self, now: Instant, id: LinkId, claim: ShareRequest) {
        if let Some(camera) = self.connections.get(id).and_then(|link| link.camera()) {
            self.shares.handle_share_request(now, camera, claim);
        }
    }

    /// Divides the channels between their cameras, if that is due.
    pub(super) fn handle_channels(&mut self, now: Instant) -> Vec<EdgeOutput> {
        self.shares.handle_timeout(now, &self.cameras)
    }

    /// Notes which cameras are silent, takes frames that have waited long enough for others, and asks for chains that readers wait for.
    pub(super) fn handle_waits(&mut self, now: Instant) -> Vec<EdgeOutput> {
        let mut outputs = self.cameras.handle_timeout(now, &self.connections);
        for link in self.connections.held(now) {
            outputs.extend(self.take_ready(now, link));
        }
        let is_stale = |camera: &Camera| camera.replica.stale_due().is_some_and(|due| now >= due);
        for name in self.cameras.names(|_, camera| is_stale(camera)) {
            if let Some((camera, way)) = self.camera_and_way(&name) {
                outputs.extend(camera.replica.take_stale(now, way));
            }
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

    /// Something arrived from a camera. Fails if its connection was not accepted as a camera.
    pub(super) fn handle_heard(&mut self, now: Instant, id: LinkId) -> Result<(), FrameRefused> {
        let Some((link, _)) = self.both(id) else { return Err(FrameRefused::NotWelcome) };
        link.hear(now);
        Ok(())
    }

    /// A frame's header has arrived.
    pub(super) fn handle_frame_header(
        &mut self,
        now: Instant,
        id: LinkId,
        header: FrameHeader,
    ) -> (Result<(), FrameRefused>, Vec<EdgeOutput>) {
        let (frame, bytes_max) = (header.meta.id, self.cameras.frame_bytes_max());
        let Some((link, camera)) = self.both(id) else { return (Err(FrameRefused::NotWelcome), Vec::new()) };
        link.hear_frame(now);
        let (epoch, meta) = (camera.newest_start.0, header.meta.clone());
        let taken = link.arrivals.handle_header(now, header, epoch, bytes_max);
        if taken.is_ok() {
            camera.pace.note(&meta);
        }
        let refused = taken.is_err().then(|| report(id, Report::Refused { frame }));
        camera.replica.counters.refused += u64::from(taken.is_err());
        (taken, Vec::from_iter(refused))
    }

    /// Part of a frame's payload has arrived.
    pub(super) fn handle_frame_progress(
        &mut self,
        now: Instant,
        id: LinkId,
        frame: FrameId,
        bytes: u32,
    ) -> Option<EdgeOutput> {
        let link = self.connections.get_mut(id)?;
        link.hear_frame(now);
        link.arrivals.handle_progress(now, frame, bytes).map(|progress| report(id, progress))
    }

    /// A frame's payload has arrived completely.
    pub(super) fn handle_frame_complete(
        &mut self,
        now: Instant,
        id: LinkId,
        frame: FrameId,
        payload: Bytes,
    ) -> Vec<EdgeOutput> {
        let Some((link, camera)) = self.both(id) else { return Vec::new() };
        let completed = link.arrivals.handle_complete(now, frame, payload);
        let Some(Completed { report: complete, bytes, whole }) = completed else { return Vec::new() };
        link.hear_frame(now);
        camera.replica.counters.bytes += u64::from(bytes);
        camera.replica.counters.refused += u64::from(whole.is_none());
        let name = link.camera().cloned();
        if let Some((name, whole)) = name.zip(whole) {
            self.shares.handle_whole(&name, &whole);
        }
        let mut outputs = vec![report(id, complete)];
        outputs.extend(self.take_ready(now, id));
        outputs
    }

    /// A frame of the past is complete. Counts its useful bytes.
    pub(super) fn handle_past_frame(&mut self, id: LinkId, bytes: u64) {
        if let Some((_, camera)) = self.both(id) {
            camera.replica.counters.bytes += bytes;
        }
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
        if let Some((_, camera)) = self.both(id) {
            camera.replica.counters.cancelled += 1;
        }
        self.take_ready(now, id)
    }

    /// Takes the complete frames of a connection whose turn it is, oldest first.
    fn take_ready(&mut self, now: Instant, id: LinkId) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        let Some((link, camera)) = self.both(id) else { return outputs };
        loop {
            let Some(ready) = link.arrivals.next(now) else { return outputs };
            let interval = camera.pace.interval(camera.report.interval());
            let stale_until = link.stale_until(now, &ready.header, interval);
            outputs.extend(camera.replica.handle_ready(now, id, ready, (link.way(), stale_until)));
        }
    }

    /// A connection and its camera.
    fn both(&mut self, id: LinkId) -> Option<(&mut Connection, &mut Camera)> {
        let link = self.connections.get_mut(id)?;
        let camera = self.cameras.get_mut(link.camera()?)?;
        // A replaced connection is removed before the new one takes its place.
        debug_assert_eq!(camera.link, Some(id), "a connection has a session, and is not its camera's");
        Some((link, camera))
    }
}

/// The message that tells a camera how a frame arrived.
fn report(link: LinkId, report: Report) -> EdgeOutput {
    EdgeOutput::Send { link, message: Message::Report(report) }
}
