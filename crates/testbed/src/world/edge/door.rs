//! Models an edge's door, which decides who may wait without having proved who it is. It drives [`Admission`] as the real driver does.
//!
//! Cameras come over their links. Applications that come over TLS, and attackers, are visitors ([`Visitors`](crate::world::visitors::Visitors)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mez_core::admission::{Address, Admission, DropReason, Limits, Ticket};
use mez_core::broker::LinkId;
use mez_core::units::Instant;

use crate::check::DoorHolds;
use crate::world::bug::Bug;
use crate::world::spec::{AttackSpec, Conduct};

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// A camera's, on this link.
    Camera(usize, LinkId),
    Visitor(usize),
    Attacker,
}

/// Whose connection had to make room, or was too slow.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnedAway {
    Visitor(usize),
    /// A camera's connection that proves itself later will be closed then.
    Camera {
        link: usize,
        connection: LinkId,
        /// Whether it was too slow, and not in the way.
        too_slow: bool,
    },
}

/// The door of one start of an edge.
pub(in crate::world) struct Door {
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
    pub(super) fn holds(&self) -> DoorHolds {
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

    // ---- attackers and visitors ---------------------------------------------------------------------------

    /// An attacker opens a connection, and holds it as `spec` says.
    pub(in crate::world) fn handle_attack(&mut self, now: Instant, spec: &AttackSpec) {
        let Some(ticket) = self.enter(now, spec.address, Who::Attacker) else { return };
        match spec.conduct {
            Conduct::Idle => {}
            Conduct::Dribble => self.admission.handle_heard(ticket),
            Conduct::HalfPreface => self.admission.handle_authenticated(now, ticket),
        }
    }

    /// A visitor opens a connection from this address. `None` if nobody lets it in.
    pub(in crate::world) fn handle_visitor(
        &mut self,
        now: Instant,
        address: u8,
        visitor: usize,
    ) -> Option<Ticket> {
        self.enter(now, address, Who::Visitor(visitor))
    }

    /// A visitor says something.
    pub(in crate::world) fn handle_heard(&mut self, ticket: Ticket) {
        self.admission.handle_heard(ticket);
    }

    /// A visitor has proved who it is.
    pub(in crate::world) fn handle_authenticated(&mut self, now: Instant, ticket: Ticket) {
        self.admission.handle_authenticated(now, ticket);
    }

    /// Whoever has this ticket has said what it wants, or is gone.
    pub(in crate::world) fn handle_left(&mut self, ticket: Ticket) {
        self.admission.handle_left(ticket);
        self.who.remove(&ticket);
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// The first packet of a camera's connection is there. It may come again.
    pub(super) fn handle_knocked(&mut self, now: Instant, link: usize, address: u8, connection: LinkId) {
        if !self.links.contains_key(&connection) {
            self.knock(now, link, address, connection);
        }
    }

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

    /// A camera's connection has proved whose it is. Returns whether it may stay: it may not if it had to make room before.
    pub(super) fn handle_proved(
        &mut self,
        now: Instant,
        link: usize,
        address: u8,
        connection: LinkId,
    ) -> bool {
        if self.turned_away.remove(&connection) {
            return false;
        }
        // The model of the link may take longer for its last packet than a handshake may take.
        let known = self.links.get(&connection).copied();
        let Some(ticket) = known.or_else(|| self.knock(now, link, address, connection)) else {
            return false;
        };
        self.admission.handle_authenticated(now, ticket);
        true
    }

    /// A camera's connection has said its first message, or is gone.
    pub(super) fn handle_said(&mut self, connection: LinkId) {
        self.turned_away.remove(&connection);
        if let Some(ticket) = self.links.remove(&connection) {
            self.handle_left(ticket);
        }
    }

    /// Remembers a camera's connection that was closed before it proved itself.
    pub(super) fn shut_out(&mut self, connection: LinkId) {
        self.turned_away.insert(connection);
    }

    // ---- who has to go ------------------------------------------------------------------------------------

    /// The next connection that has to go. Nobody need be told of an attacker's.
    pub(super) fn poll_turned_away(&mut self) -> Option<TurnedAway> {
        while let Some(dropped) = self.admission.poll_output() {
            if self.bug == Some(Bug::DroppedKept) {
                continue;
            }
            match self.who.remove(&dropped.ticket) {
                None | Some(Who::Attacker) => {}
                Some(Who::Visitor(visitor)) => return Some(TurnedAway::Visitor(visitor)),
                Some(Who::Camera(link, connection)) => {
                    self.links.remove(&connection);
                    let too_slow = matches!(dropped.reason, DropReason::TooSlow(_));
                    return Some(TurnedAway::Camera { link, connection, too_slow });
                }
            }
        }
        None
    }
}
