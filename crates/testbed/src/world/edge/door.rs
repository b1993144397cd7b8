//! Models an edge's door, which limits connections that are not authenticated. It drives [`Admission`] as the real driver does.
//!
//! Cameras arrive over their links. Applications that connect over TLS, and attackers, are visitors ([`Visitors`](crate::world::visitors::Visitors)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mez_core::admission::{Address, Admission, DropReason, Limits, Ticket};
use mez_core::broker::LinkId;
use mez_core::units::Instant;

use crate::check::DoorHolds;
use crate::world::bug::Bug;
use crate::world::spec::{AttackSpec, Conduct};

/// The client of a connection.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// The camera on this link, with this connection.
    Camera(usize, LinkId),
    Visitor(usize),
    Attacker,
}

/// The client whose connection the door has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnedAway {
    Visitor(usize),
    /// A camera. If its connection authenticates later, it is closed then.
    Camera {
        link: usize,
        connection: LinkId,
        /// Whether the connection was too slow. If not, it had to make room.
        too_slow: bool,
    },
}

/// The door of one run of an edge.
pub(in crate::world) struct Door {
    admission: Admission,
    limits: Limits,
    who: BTreeMap<Ticket, Who>,
    links: BTreeMap<LinkId, Ticket>,
    /// Connections of cameras that had to make room during their handshake.
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

    /// The present clients.
    pub(super) fn holds(&self) -> DoorHolds {
        DoorHolds {
            strangers: (self.admission.strangers(), self.limits.strangers_max),
            prefaces: (self.admission.prefaces(), self.limits.prefaces_max),
            held: self.who.len(),
        }
    }

    /// Registers a new connection. `None` if the door refuses it, which only a planted bug causes.
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

    /// An attacker opens a connection, which continues as `spec` says.
    pub(in crate::world) fn handle_attack(&mut self, now: Instant, spec: &AttackSpec) {
        let Some(ticket) = self.enter(now, spec.address, Who::Attacker) else { return };
        match spec.conduct {
            Conduct::Idle => {}
            Conduct::Dribble => self.admission.handle_heard(ticket),
            Conduct::HalfPreface => self.admission.handle_authenticated(now, ticket),
        }
    }

    /// A visitor opens a connection from this address. `None` if the door refuses it.
    pub(in crate::world) fn handle_visitor(
        &mut self,
        now: Instant,
        address: u8,
        visitor: usize,
    ) -> Option<Ticket> {
        self.enter(now, address, Who::Visitor(visitor))
    }

    /// A visitor has sent something.
    pub(in crate::world) fn handle_heard(&mut self, ticket: Ticket) {
        self.admission.handle_heard(ticket);
    }

    /// A visitor has authenticated.
    pub(in crate::world) fn handle_authenticated(&mut self, now: Instant, ticket: Ticket) {
        self.admission.handle_authenticated(now, ticket);
    }

    /// The holder of this ticket has sent its request, or has gone.
    pub(in crate::world) fn handle_left(&mut self, ticket: Ticket) {
        self.admission.handle_left(ticket);
        self.who.remove(&ticket);
    }

    // ---- cameras ------------------------------------------------------------------------------------------

    /// The first packet of a camera's connection has arrived. It may be repeated.
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

    /// A camera's connection has authenticated. Returns whether it may stay: not if it had to make room before.
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
        // On a modelled link, the last packet of a handshake may arrive after the door's time limit.
        let known = self.links.get(&connection).copied();
        let Some(ticket) = known.or_else(|| self.knock(now, link, address, connection)) else {
            return false;
        };
        self.admission.handle_authenticated(now, ticket);
        true
    }

    /// A camera's connection has sent its first message, or has ended.
    pub(super) fn handle_said(&mut self, connection: LinkId) {
        self.turned_away.remove(&connection);
        if let Some(ticket) = self.links.remove(&connection) {
            self.handle_left(ticket);
        }
    }

    /// Remembers a camera's connection that had to make room before it authenticated.
    pub(super) fn shut_out(&mut self, connection: LinkId) {
        self.turned_away.insert(connection);
    }

    // ---- dropped connections ------------------------------------------------------------------------------

    /// The next dropped connection. Those of attackers are left out.
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
