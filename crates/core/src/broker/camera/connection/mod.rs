//! Decides which connection the camera uses: when it dials an edge, which connection is active, and which are
//! given up.

mod dialler;
mod link;
mod own_epochs;
mod welcome;

use std::time::Duration;

use self::dialler::Dialler;
pub(super) use self::link::{DemandChange, EdgeLink};
use self::own_epochs::OwnEpochs;
use self::welcome::{Judgement, judge};
use super::types::CameraOutput;
use crate::broker::{EdgeIndex, LinkId, REDIAL_INTERVAL, REFUSED_INTERVAL};
use crate::frame::{Epoch, FrameId, Sequence};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Abilities, Demand, Hello, Message, RefuseCode, VERSION, Welcome};

/// How long the edge may take to answer a connection's first message. It answers at once, so 3 s are many
/// round trips, and time to repeat lost packets.
const WELCOME_TIME_MAX: Duration = Duration::from_secs(3);

/// What the camera tells every edge about itself.
pub(super) struct Identity {
    pub(super) camera: CameraName,
    /// Relates capture times to the monotonic clock.
    pub(super) anchor: ClockAnchor,
    /// The name and version of the software, for people.
    pub(super) software: String,
}

/// A connection that was removed.
pub(super) struct Removed {
    /// The frames that were on their way on it, oldest first.
    pub(super) in_flight: Vec<FrameId>,
    /// Whether it was the active connection.
    pub(super) was_active: bool,
}

/// The connections of one camera.
pub(super) struct Connections {
    identity: Identity,
    dialler: Dialler,
    /// Oldest first. While the edge accepts a new connection, the old one may still work.
    links: Vec<EdgeLink>,
    /// The active connection: the one that frames are sent on.
    active: Option<LinkId>,
    epochs: OwnEpochs,
}

impl Connections {
    pub(super) fn new(identity: Identity, edges: usize, now: Instant) -> Self {
        let (dialler, epochs) = (Dialler::new(edges, now), OwnEpochs::default());
        Self { identity, dialler, links: Vec::new(), active: None, epochs }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// The active connection: the edge has welcomed the camera on it, and frames are sent on it.
    pub(super) fn active(&self) -> Option<&EdgeLink> {
        let link = self.active.and_then(|id| self.get(id));
        // Only `remove` takes a link off the list, and it also clears `active`.
        debug_assert_eq!(link.is_some(), self.active.is_some(), "the active link is among the links");
        link
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut EdgeLink> {
        self.active.and_then(|id| self.get_mut(id))
    }

    pub(super) fn get(&self, link: LinkId) -> Option<&EdgeLink> {
        self.links.iter().find(|known| known.id == link)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut EdgeLink> {
        self.links.iter_mut().find(|known| known.id == link)
    }

    /// All connections, oldest first.
    pub(super) fn all(&self) -> Vec<LinkId> {
        self.links.iter().map(|link| link.id).collect()
    }

    /// Whether the edge at the other end of a connection may have a frame of another start of this camera with
    /// the same identity as one of this epoch. `present` is the epoch in use.
    pub(super) fn is_doubtful(&self, link: LinkId, epoch: Epoch, present: Epoch) -> bool {
        self.epochs.is_doubtful(epoch, present, self.get(link).map(|link| link.edge))
    }

    /// Connections that were made before this one.
    pub(super) fn older_than(&self, link: LinkId) -> Vec<LinkId> {
        self.links.iter().map(|known| known.id).take_while(|known| *known != link).collect()
    }

    /// Connections on which the edge has not answered the first message within [`WELCOME_TIME_MAX`].
    pub(super) fn unanswered(&self, now: Instant) -> Vec<LinkId> {
        let silent = |link: &&EdgeLink| !link.welcomed && now.saturating_since(link.heard) > WELCOME_TIME_MAX;
        self.links.iter().filter(silent).map(|link| link.id).collect()
    }

    /// The demand of the applications; `None` without one, or without an active connection.
    pub(super) fn demand(&self) -> Option<&Demand> {
        self.active().map(|link| &link.demand).filter(|demand| !demand.contracts.is_empty())
    }

    /// When the edge counts as silent, unless another byte comes from it.
    fn silent_from(&self) -> Instant {
        // Plus one nanosecond, because silence must exceed its limit.
        let from = |link: &EdgeLink| link.heard + link.silence_max() + Duration::from_nanos(1);
        self.links.iter().map(from).max().unwrap_or(Instant::ZERO)
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A connection to `edge` was made: greets the edge, or closes the connection if it is not needed.
    pub(super) fn handle_dialled(
        &mut self,
        now: Instant,
        link: LinkId,
        edge: EdgeIndex,
        epoch: Epoch,
    ) -> CameraOutput {
        let attempt = self.dialler.dialled(edge);
        let better = self.active().is_some_and(|active| edge < active.edge);
        if !self.links.is_empty() && now < self.silent_from() && !better {
            // Another connection works again, or was made meanwhile. Switching would lose the frames on their
            // way there.
            return CameraOutput::Close { link };
        }
        self.links.push(EdgeLink::new(link, edge, now));
        let Identity { camera, anchor, software } = &self.identity;
        let hello = Hello {
            version: VERSION,
            camera: camera.clone(),
            epoch,
            attempt,
            anchor: *anchor,
            software: software.clone(),
        };
        CameraOutput::Send { link, message: Message::Hello(hello) }
    }

    /// A connection could not be made.
    pub(super) fn handle_dial_failed(&mut self, edge: EdgeIndex) {
        self.dialler.failed(edge);
    }

    /// The edge has refused the camera on a connection: decides how long to stay away.
    pub(super) fn handle_refuse(&mut self, now: Instant, link: LinkId, code: RefuseCode) {
        // If there is a newer connection, it has replaced this one.
        let Some(newest) = self.links.last().filter(|newest| newest.id == link) else { return };
        if code == RefuseCode::Replaced {
            // Another start of this camera is connected there. Meeting it again at another edge would not
            // help.
            self.dialler.hold_until(now + REFUSED_INTERVAL);
        } else if code.is_lasting() {
            self.dialler.hold_edge_until(newest.edge, now + REFUSED_INTERVAL);
        }
    }

    /// The edge has welcomed the camera on a connection: decides whether the camera stays there, and if not,
    /// when it dials again. If it stays, returns the newest frame of this epoch that the edge knows of.
    /// Otherwise returns what is to be done before the connection is closed.
    pub(super) fn handle_welcome(
        &mut self,
        now: Instant,
        link: LinkId,
        welcome: &Welcome,
        next: FrameId,
    ) -> Result<Option<Sequence>, Box<CameraOutput>> {
        let edge = self.get(link).map(|link| link.edge);
        match judge(&self.identity.camera, welcome, next) {
            Judgement::Accepted { newest } => Ok(newest),
            Judgement::Refused { code, text } => {
                if let Some(edge) = edge {
                    self.dialler.hold_edge_until(edge, now + REFUSED_INTERVAL);
                }
                Err(Box::new(CameraOutput::Refused { code, text }))
            }
            // The edge's newest frame is not one of ours: a lost epoch counter, or a replaced device.
            Judgement::Foreign { above } => {
                if let Some(edge) = edge {
                    self.epochs.handle_taken(edge, above);
                }
                // Until the new epoch begins, dialling is useless.
                self.dialler.hold_until(now + REDIAL_INTERVAL);
                Err(Box::new(CameraOutput::RaiseEpoch { above }))
            }
        }
    }

    /// A later epoch has begun in place of `used`: every edge may be dialled at once.
    pub(super) fn handle_epoch(&mut self, now: Instant, used: Epoch) {
        self.epochs.handle_raised(used);
        self.dialler.hold_until(now);
    }

    /// The camera stays with an edge that has welcomed it in this epoch: from now on, frames are sent on this
    /// connection.
    pub(super) fn handle_accepted(
        &mut self,
        now: Instant,
        link: LinkId,
        welcome: &Welcome,
        epoch: Epoch,
    ) -> Vec<CameraOutput> {
        let Some(known) = self.get_mut(link) else { return Vec::new() };
        (known.welcomed, known.frame_bytes_max) = (true, welcome.frame_bytes_max);
        let edge = known.edge;
        self.active = Some(link);
        // Older connections are closed first: two edges must not both have the camera.
        debug_assert_eq!(self.all().first(), Some(&link), "an older connection is still there");
        self.dialler.welcomed(now, edge);
        self.epochs.handle_accepted(edge, epoch);
        let abilities = CameraOutput::Send { link, message: Message::Abilities(Abilities::ALL) };
        vec![abilities, CameraOutput::LinkChanged { up: true }]
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, link: LinkId) -> Option<Removed> {
        let position = self.links.iter().position(|known| known.id == link)?;
        let in_flight = self.links.remove(position).in_flight().collect();
        let was_active = self.active.take_if(|active| *active == link).is_some();
        Some(Removed { in_flight, was_active })
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// The edges to dial now.
    pub(super) fn dial(&mut self, now: Instant) -> Vec<CameraOutput> {
        let mut edges = Vec::new();
        if now >= self.silent_from() {
            while let Some(edge) = self.dialler.next(now) {
                edges.push(edge);
            }
        }
        if self.active.is_some() {
            edges.extend(self.dialler.better(now));
        }
        edges.into_iter().map(|edge| CameraOutput::Dial { edge }).collect()
    }

    /// The pings that are due.
    pub(super) fn ping(&mut self, now: Instant) -> Vec<CameraOutput> {
        self.links.iter_mut().filter_map(|link| link.ping(now)).collect()
    }

    /// When the next dial or ping is due, or a transfer counts as stalled.
    pub(super) fn due(&self) -> Instant {
        let mut due = self.silent_from().max(self.dialler.due());
        if let Some(link) = self.active() {
            due = due.min(self.dialler.return_due().unwrap_or(due));
            due = due.min(link.stall_due().unwrap_or(due));
        }
        self.links.iter().map(EdgeLink::ping_due).fold(due, Instant::min)
    }
}
