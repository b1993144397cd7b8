//! Decides which connection to which edge is used: when one is dialled, which is active, and which are given up.

mod dialler;
mod link;
mod welcome;

use std::time::Duration;

use self::dialler::Dialler;
pub(super) use self::link::Link;
pub(super) use self::welcome::Judgement;
use self::welcome::judge;
use super::types::CameraOutput;
use crate::broker::{EdgeIndex, LinkId, PING_INTERVAL, REDIAL_INTERVAL, REFUSED_INTERVAL, SILENCE_MAX};
use crate::frame::{Epoch, FrameId};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Demand, Hello, Message, RefuseCode, VERSION, Welcome};

/// How long the edge may take to answer a connection's first message.
const WELCOME_TIME_MAX: Duration = Duration::from_secs(3);

/// Who the camera is, as it tells every edge.
pub(super) struct Identity {
    pub(super) camera: CameraName,
    /// Relates capture times to the monotonic clock.
    pub(super) anchor: ClockAnchor,
    /// The software, for people.
    pub(super) software: String,
}

/// A connection that was removed.
pub(super) struct Removed {
    /// What was on its way there, oldest first.
    pub(super) in_flight: Vec<FrameId>,
    /// Frames were sent on it.
    pub(super) was_active: bool,
}

/// The connections of one camera.
pub(super) struct Connections {
    identity: Identity,
    dialler: Dialler,
    /// The newest last: while a new one is being taken in, the old one may still work.
    links: Vec<Link>,
    /// The connection that frames are sent on.
    active: Option<LinkId>,
}

impl Connections {
    pub(super) fn new(identity: Identity, edges: usize, now: Instant) -> Self {
        Self { identity, dialler: Dialler::new(edges, now), links: Vec::new(), active: None }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// The connection that frames are sent on: the edge has welcomed the camera there.
    pub(super) fn active(&self) -> Option<&Link> {
        let link = self.active.and_then(|id| self.get(id));
        // A link leaves the list through `remove` alone, which looks whether it was the active one.
        debug_assert_eq!(link.is_some(), self.active.is_some(), "the active link is among the links");
        link
    }

    pub(super) fn active_mut(&mut self) -> Option<&mut Link> {
        self.active.and_then(|id| self.get_mut(id))
    }

    pub(super) fn get(&self, link: LinkId) -> Option<&Link> {
        self.links.iter().find(|known| known.id == link)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Link> {
        self.links.iter_mut().find(|known| known.id == link)
    }

    /// The connection that was made first.
    pub(super) fn oldest(&self) -> Option<LinkId> {
        self.links.first().map(|link| link.id)
    }

    /// Connections that were made before this one.
    pub(super) fn older_than(&self, link: LinkId) -> Vec<LinkId> {
        self.links.iter().map(|known| known.id).take_while(|known| *known != link).collect()
    }

    /// Connections on which the edge has not answered for too long.
    pub(super) fn unanswered(&self, now: Instant) -> Vec<LinkId> {
        let silent = |link: &&Link| !link.welcomed && now.saturating_since(link.heard) > WELCOME_TIME_MAX;
        self.links.iter().filter(silent).map(|link| link.id).collect()
    }

    /// What the applications want; without an active connection, nothing.
    pub(super) fn demand(&self) -> Option<&Demand> {
        self.active().map(|link| &link.demand).filter(|demand| !demand.contracts.is_empty())
    }

    /// When the last sign of life of the edge will be too old, if none comes.
    fn silent_from(&self) -> Instant {
        // One nanosecond more, since silence must exceed its limit.
        let limit = SILENCE_MAX + Duration::from_nanos(1);
        self.links.iter().map(|link| link.heard + limit).max().unwrap_or(Instant::ZERO)
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A connection to `edge` was made: it is greeted, or closed where there is no need for it.
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
            // Another connection has come back to life or was made meanwhile: taking this one would cost what is on
            // its way there.
            return CameraOutput::Close { link };
        }
        self.links.push(Link::new(link, edge, now));
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
        // If there is a newer connection, it is that one which has replaced this one.
        let Some(newest) = self.links.last().filter(|newest| newest.id == link) else { return };
        if code == RefuseCode::Replaced {
            // Another start of this camera is there. It would not help to meet it at another edge.
            self.dialler.hold_until(now + REFUSED_INTERVAL);
        } else if code.is_lasting() {
            self.dialler.hold_edge_until(newest.edge, now + REFUSED_INTERVAL);
        }
    }

    /// The edge has welcomed the camera on a connection: decides whether it stays there, and when it dials again if not.
    pub(super) fn handle_welcome(
        &mut self,
        now: Instant,
        link: LinkId,
        welcome: &Welcome,
        next: FrameId,
    ) -> Judgement {
        let judgement = judge(&self.identity.camera, welcome, next);
        match (&judgement, self.get(link).map(|link| link.edge)) {
            (Judgement::Refused { .. }, Some(edge)) => {
                self.dialler.hold_edge_until(edge, now + REFUSED_INTERVAL);
            }
            // Until the new epoch has begun there is no use in dialling.
            (Judgement::Foreign { .. }, _) => self.dialler.hold_until(now + REDIAL_INTERVAL),
            _ => {}
        }
        judgement
    }

    /// A later epoch has begun: every edge may be dialled.
    pub(super) fn handle_epoch(&mut self, now: Instant) {
        self.dialler.hold_until(now);
    }

    /// The edge has welcomed the camera on a connection, which frames are sent on from now on.
    pub(super) fn handle_accepted(&mut self, now: Instant, link: LinkId, frame_bytes_max: u32) {
        let Some(known) = self.get_mut(link) else { return };
        (known.welcomed, known.frame_bytes_max) = (true, frame_bytes_max);
        let edge = known.edge;
        self.active = Some(link);
        // Those that were made before it are closed first: two edges must not both have the camera.
        debug_assert_eq!(self.oldest(), Some(link), "an older connection is still there");
        self.dialler.welcomed(now, edge);
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, link: LinkId) -> Option<Removed> {
        let position = self.links.iter().position(|known| known.id == link)?;
        let in_flight = self.links.remove(position).in_flight().collect();
        let was_active = self.active.take_if(|active| *active == link).is_some();
        Some(Removed { in_flight, was_active })
    }

    /// Gives up what is on its way on the active connection, if nothing has got through for too long: which frames those are.
    pub(super) fn give_up_stalled(&mut self, now: Instant) -> Option<(LinkId, Vec<FrameId>)> {
        let link = self.active_mut().filter(|link| link.stall_due().is_some_and(|due| now >= due))?;
        Some((link.id, link.give_up_stalled(now)))
    }

    // ---- what is to be done -------------------------------------------------------------------------------

    /// The edges that are dialled now.
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
        let mut pings = Vec::new();
        for link in &mut self.links {
            link.note_pause(now);
            if now >= link.ping_due {
                link.ping_due = now + PING_INTERVAL;
                pings.push(CameraOutput::Send { link: link.id, message: Message::Ping { t1: now } });
            }
        }
        pings
    }

    /// When something is due: a dial, a ping, or the end of a transfer that has stalled.
    pub(super) fn due(&self) -> Instant {
        let mut due = self.silent_from().max(self.dialler.due());
        if let Some(link) = self.active() {
            due = due.min(self.dialler.return_due().unwrap_or(due));
            due = due.min(link.stall_due().unwrap_or(due));
        }
        self.links.iter().map(|link| link.ping_due).fold(due, Instant::min)
    }
}
