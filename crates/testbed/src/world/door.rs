//! Models an edge's door, which decides who may wait without having proved who it is. The edge's host drives [`Admission`] as the real
//! driver does.
//!
//! Cameras come over their links. Applications that come over TLS, and attackers, are visitors. A visitor has an address and goes through
//! the phases of a connection. What it would say afterwards does not matter here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use mez_core::admission::{Address, Admission, DropReason, Dropped, Limits, Ticket};
use mez_core::broker::LinkId;
use mez_core::units::Instant;

use super::events::Event;
use super::{Bug, EdgeId, Node, World};
use crate::check::DoorHolds;
use crate::link::Side;
use crate::time::{Moment, ms};
use crate::trace::What;

/// How long a visitor that was turned away waits before it comes again.
const AGAIN_AFTER: Duration = ms(100);
/// How long a frozen host leaves what comes to it before it is looked at again.
const FROZEN_AGAIN_AFTER: Duration = ms(50);

/// How an attacker's connections go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// They say nothing.
    Idle,
    /// They begin their handshake and never end it.
    Dribble,
    /// They prove who they are with a stolen key, and say half a first message.
    HalfPreface,
}

/// An attacker that opens connections as fast as it can, and holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackSpec {
    /// Whose door.
    pub edge: EdgeId,
    /// The last byte of its address. Cameras have 1, 2, 3 in the order in which they were made.
    pub address: u8,
    /// How its connections go on.
    pub conduct: Conduct,
    /// The time between two connections.
    pub interval: Duration,
    /// Connections in all.
    pub connections: u32,
}

/// An honest client that comes again and again and leaves at once, such as a program that lists cameras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitorSpec {
    /// Whose door.
    pub edge: EdgeId,
    /// The last byte of its address.
    pub address: u8,
    /// The round trip to the edge.
    pub round_trip_time: Duration,
    /// The pause between two visits.
    pub interval: Duration,
}

/// Names a visitor of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisitorId(pub(crate) usize);

/// A visitor, and what became of its visits.
#[derive(Debug)]
pub(super) struct Visitor {
    spec: VisitorSpec,
    /// Counts its attempts, so that what was planned for an earlier one does nothing.
    attempt: u64,
    ticket: Option<Ticket>,
    /// Since when it has tried to get in while the edge could let it in.
    pub(super) since: Option<Moment>,
    admitted: u64,
    turned_away: u64,
}

/// How far a visit has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Arrives,
    Speaks,
    Proves,
    IsIn,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
enum Who {
    Camera(usize, LinkId),
    Visitor(usize),
    Attacker,
}

/// The door of one start of an edge.
pub(super) struct Door {
    admission: Admission,
    limits: Limits,
    who: BTreeMap<Ticket, Who>,
    links: BTreeMap<LinkId, Ticket>,
    /// Connections of cameras that had to make room in their handshake.
    turned_away: BTreeSet<LinkId>,
    bug: Option<Bug>,
}

impl Door {
    pub(super) fn new(bug: Option<Bug>) -> Self {
        let limits = Limits::default();
        Self {
            admission: Admission::new(limits),
            limits,
            who: BTreeMap::new(),
            links: BTreeMap::new(),
            turned_away: BTreeSet::new(),
            bug,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.admission.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.admission.handle_timeout(now);
    }

    /// Who is there now.
    fn holds(&self) -> DoorHolds {
        DoorHolds {
            strangers: (self.admission.strangers(), self.limits.strangers_max),
            prefaces: (self.admission.prefaces(), self.limits.prefaces_max),
            held: self.who.len(),
        }
    }

    /// Lets somebody come to the door. `None` if the door stays shut, which only a planted bug causes.
    fn enter(&mut self, now: Instant, address: u8, who: Who) -> Option<Ticket> {
        let full = self.admission.strangers() >= self.limits.strangers_max;
        if self.bug == Some(Bug::NobodyMakesRoom) && full {
            return None;
        }
        let counted = if self.bug == Some(Bug::AddressesMixedUp) { 0 } else { address };
        let ticket = self.admission.handle_arrived(now, Address::from(IpAddr::from([10, 0, 0, counted])));
        self.who.insert(ticket, who);
        Some(ticket)
    }

    fn leave(&mut self, ticket: Ticket) {
        self.admission.handle_left(ticket);
        self.who.remove(&ticket);
    }

    /// A connection of a camera that is there, or comes now.
    fn knock(&mut self, now: Instant, link: usize, address: u8, connection: LinkId) -> Option<Ticket> {
        let ticket = self.enter(now, address, Who::Camera(link, connection));
        match ticket {
            Some(ticket) => {
                self.admission.handle_heard(ticket);
                self.links.insert(connection, ticket);
            }
            None => {
                self.turned_away.insert(connection);
            }
        }
        ticket
    }
}

impl World {
    /// Plans an attack on an edge's door, from `from` on.
    pub fn attack(&mut self, from: Moment, spec: AttackSpec) -> &mut Self {
        self.events.push(from, Event::Attack(spec));
        self
    }

    /// Plans a visitor that comes to an edge again and again.
    pub fn visitor(&mut self, spec: VisitorSpec) -> VisitorId {
        let visitor = self.visitors.len();
        self.visitors.push(Visitor {
            spec,
            attempt: 0,
            ticket: None,
            since: None,
            admitted: 0,
            turned_away: 0,
        });
        self.events.push(self.now + spec.interval, Event::Visit { visitor, attempt: 0, step: Step::Arrives });
        VisitorId(visitor)
    }

    /// How often a visitor got in, and how often it was turned away.
    pub fn visits(&self, visitor: VisitorId) -> (u64, u64) {
        let Visitor { admitted, turned_away, .. } = self.visitors[visitor.0];
        (admitted, turned_away)
    }

    pub(super) fn attacked(&mut self, spec: AttackSpec) {
        let edge = spec.edge.0;
        if self.is_frozen(Node::Edge(edge)) {
            return self.events.push(self.now + FROZEN_AGAIN_AFTER, Event::Attack(spec));
        }
        self.with_edge(edge, |process, now| {
            let Some(ticket) = process.door.enter(now, spec.address, Who::Attacker) else { return };
            match spec.conduct {
                Conduct::Idle => {}
                Conduct::Dribble => process.door.admission.handle_heard(ticket),
                Conduct::HalfPreface => process.door.admission.handle_authenticated(now, ticket),
            }
        });
        if let Some(connections) = spec.connections.checked_sub(1).filter(|left| *left > 0) {
            self.events.push(self.now + spec.interval, Event::Attack(AttackSpec { connections, ..spec }));
        }
    }

    pub(super) fn visited(&mut self, index: usize, attempt: u64, step: Step) {
        let Visitor { spec, attempt: newest, ticket, .. } = self.visitors[index];
        if attempt != newest {
            return;
        }
        let edge = spec.edge.0;
        if self.is_frozen(Node::Edge(edge)) {
            let later = self.now + FROZEN_AGAIN_AFTER;
            return self.events.push(later, Event::Visit { visitor: index, attempt, step });
        }
        let next = match (step, ticket) {
            (Step::Arrives, _) => {
                let ticket = self.with_edge(edge, |process, now| {
                    process.door.enter(now, spec.address, Who::Visitor(index))
                });
                let visitor = &mut self.visitors[index];
                match ticket {
                    // Nobody listens: it is not turned away either.
                    None => visitor.since = None,
                    Some(_) => {
                        visitor.since.get_or_insert(self.now);
                    }
                }
                visitor.ticket = ticket.flatten();
                if visitor.ticket.is_none() {
                    return self.visit_again(index, AGAIN_AFTER);
                }
                Step::Speaks
            }
            (_, None) => return,
            (Step::Speaks, Some(ticket)) => {
                self.with_edge(edge, |process, _| process.door.admission.handle_heard(ticket));
                Step::Proves
            }
            (Step::Proves, Some(ticket)) => {
                self.with_edge(edge, |process, now| process.door.admission.handle_authenticated(now, ticket));
                Step::IsIn
            }
            (Step::IsIn, Some(ticket)) => {
                self.with_edge(edge, |process, _| process.door.leave(ticket));
                let visitor = &mut self.visitors[index];
                (visitor.ticket, visitor.since) = (None, None);
                visitor.admitted += 1;
                return self.visit_again(index, spec.interval);
            }
        };
        self.events
            .push(self.now + spec.round_trip_time, Event::Visit { visitor: index, attempt, step: next });
    }

    fn visit_again(&mut self, index: usize, after: Duration) {
        let visitor = &mut self.visitors[index];
        visitor.attempt += 1;
        let event = Event::Visit { visitor: index, attempt: visitor.attempt, step: Step::Arrives };
        self.events.push(self.now + after, event);
    }

    /// Lets visitors come again whose visit was cut short when the edge's process ended.
    pub(super) fn lose_visitors(&mut self, edge: usize) {
        for index in 0..self.visitors.len() {
            let visitor = &mut self.visitors[index];
            if visitor.spec.edge.0 == edge {
                visitor.since = None;
                if visitor.ticket.take().is_some() {
                    self.visit_again(index, AGAIN_AFTER);
                }
            }
        }
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// The first packet of a camera's connection is at the edge.
    pub(super) fn knocked(&mut self, edge: usize, link: usize, camera: usize, connection: LinkId) {
        let address = camera_address(camera);
        self.with_edge(edge, |process, now| {
            // Its first packet may come again.
            if !process.door.links.contains_key(&connection) {
                process.door.knock(now, link, address, connection);
            }
        });
    }

    /// Notes that a camera's connection has proved whose it is. False if it had to make room before, and is closed.
    pub(super) fn proved(&mut self, edge: usize, link: usize, camera: usize, connection: LinkId) -> bool {
        let address = camera_address(camera);
        let taken = self.with_edge(edge, |process, now| {
            let door = &mut process.door;
            if door.turned_away.remove(&connection) {
                return false;
            }
            // The model of the link may take longer for its last packet than a handshake may take.
            let known = door.links.get(&connection).copied();
            let Some(ticket) = known.or_else(|| door.knock(now, link, address, connection)) else {
                return false;
            };
            door.admission.handle_authenticated(now, ticket);
            true
        });
        if taken == Some(false) {
            self.links[link].link.close(self.now, Side::Edge, connection);
            self.touch(Node::Link(link));
        }
        taken != Some(false)
    }

    /// A camera's connection has said its first message, or is gone.
    pub(super) fn said(&mut self, edge: usize, connection: LinkId) {
        self.with_edge(edge, |process, _| {
            process.door.turned_away.remove(&connection);
            if let Some(ticket) = process.door.links.remove(&connection) {
                process.door.leave(ticket);
            }
        });
    }

    /// Closes the connections that have to make room.
    pub(super) fn drain_door(&mut self, edge: usize) {
        while let Some(process) = &mut self.edges[edge].process
            && let Some(dropped) = process.door.admission.poll_output()
        {
            if self.bug == Some(Bug::DroppedKept) {
                continue;
            }
            let Some(who) = process.door.who.remove(&dropped.ticket) else { continue };
            self.turn_away(edge, who, dropped);
        }
    }

    fn turn_away(&mut self, edge: usize, who: Who, dropped: Dropped) {
        match who {
            Who::Attacker => {}
            Who::Visitor(visitor) => {
                self.trace.record(self.now, What::TurnedAway { edge, visitor });
                self.visitors[visitor].ticket = None;
                self.visitors[visitor].turned_away += 1;
                self.visit_again(visitor, AGAIN_AFTER);
            }
            Who::Camera(link, connection) => {
                let Some(process) = &mut self.edges[edge].process else { return };
                process.door.links.remove(&connection);
                if process.knows(connection) {
                    self.trace.record(self.now, What::EdgeClosed { edge, link: connection });
                    self.with_edge(edge, |process, now| process.close(now, connection));
                    self.links[link].link.close(self.now, Side::Edge, connection);
                    self.touch(Node::Link(link));
                } else if !matches!(dropped.reason, DropReason::TooSlow(_)) {
                    process.door.turned_away.insert(connection);
                }
            }
        }
    }

    // ---- what rules are shown --------------------------------------------------------------------------------------------

    /// What waits at the door, and which visitors try to get in.
    pub(super) fn watch_door(&mut self, edge: usize) {
        if let Some(process) = &self.edges[edge].process {
            self.checks.watch_door(edge, &process.door.holds());
        }
        let shut = self.edges[edge].process.is_none() || self.is_frozen(Node::Edge(edge));
        for index in 0..self.visitors.len() {
            let visitor = &mut self.visitors[index];
            if visitor.spec.edge.0 != edge {
                continue;
            }
            if shut {
                visitor.since = visitor.since.map(|_| self.now);
            }
            let Some(since) = visitor.since else { continue };
            self.checks.watch_visitor(index, since, visitor.turned_away);
        }
    }
}

/// Gives cameras addresses in the order in which they were made.
fn camera_address(camera: usize) -> u8 {
    u8::try_from(camera + 1).unwrap_or(u8::MAX)
}
