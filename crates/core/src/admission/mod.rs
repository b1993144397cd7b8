//! Who may wait at a port without having proved who they are, for how long, and who goes when there are too many.
//!
//! A connection comes from an address and goes through stages: it has said nothing, it is in its handshake, it has proved who it is
//! but has not said a whole first message. Each stage ends after a time, and each room has so many places. When a room is
//! full, or one address has its share of it, the oldest connection of the address that holds the most goes. So a flood from one address
//! closes its own connections, and another client of that address still gets in, as long as it is done before
//! [`Limits::strangers_of_address_max`] others have come after it. Whoever is admitted leaves the rooms and never counts again.
//!
//! Driven like a broker: `handle_*`, then [`Admission::poll_output`] until there is nothing, then [`Admission::handle_timeout`] when
//! [`Admission::poll_timeout`] is due. `docs/admission.md` has the limits in a table.

mod address;
mod room;
mod turns;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::address::Address;
use self::room::Room;
pub use self::turns::Turns;
pub use self::types::{DropReason, Dropped, Stage, Ticket};
use crate::units::Instant;

/// Connections of one port that may wait without having proved who they are.
pub const STRANGERS_MAX: usize = 256;
/// The part of [`STRANGERS_MAX`] that one address may have: all cameras of a site behind one router can dial at once.
pub const STRANGERS_OF_ADDRESS_MAX: usize = 128;
/// Connections of one port that may have proved who they are without having said a whole first message.
pub const PREFACES_MAX: usize = 128;
/// The part of [`PREFACES_MAX`] that one address may have.
pub const PREFACES_OF_ADDRESS_MAX: usize = 64;
/// How long a connection may say nothing. Every real client speaks one round trip after it has connected; 2 s leave time for a lost packet.
pub const SILENCE_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a connection may take for its handshake, its silence included.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a client that has proved who it is may take for its first whole message.
pub const PREFACE_TIME_MAX: Duration = Duration::from_secs(5);
/// A port's rooms have at most this part of the file descriptors of the process: with three ports, strangers never take a third.
const DESCRIPTORS_PART: u64 = 10;

/// How many may wait at a port, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that have not proved who they are. Default [`STRANGERS_MAX`].
    pub strangers_max: usize,
    /// Of these, from one address. Default [`STRANGERS_OF_ADDRESS_MAX`].
    pub strangers_of_address_max: usize,
    /// Connections that have, and have not said a whole first message. Default [`PREFACES_MAX`].
    pub prefaces_max: usize,
    /// Of these, from one address. Default [`PREFACES_OF_ADDRESS_MAX`].
    pub prefaces_of_address_max: usize,
    /// The time without a byte. Default [`SILENCE_TIME_MAX`].
    pub silence_time_max: Duration,
    /// The time from arrival to the end of the handshake. Default [`HANDSHAKE_TIME_MAX`].
    pub handshake_time_max: Duration,
    /// The time from there to the end of the first message. Default [`PREFACE_TIME_MAX`].
    pub preface_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            strangers_max: STRANGERS_MAX,
            strangers_of_address_max: STRANGERS_OF_ADDRESS_MAX,
            prefaces_max: PREFACES_MAX,
            prefaces_of_address_max: PREFACES_OF_ADDRESS_MAX,
            silence_time_max: SILENCE_TIME_MAX,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            preface_time_max: PREFACE_TIME_MAX,
        }
    }
}

impl Limits {
    /// The same for a process that may open so many files: fewer places where it may open few, so that logs on disk and clients
    /// that are admitted always find one.
    #[must_use]
    pub fn within(self, descriptors: u64) -> Self {
        let places = usize::try_from(descriptors / DESCRIPTORS_PART).unwrap_or(usize::MAX);
        let strangers_max = self.strangers_max.min(places / 3 * 2).max(2);
        let prefaces_max = self.prefaces_max.min(places / 3).max(2);
        Self {
            strangers_max,
            strangers_of_address_max: self.strangers_of_address_max.min(strangers_max / 2),
            prefaces_max,
            prefaces_of_address_max: self.prefaces_of_address_max.min(prefaces_max / 2),
            ..self
        }
    }
}

/// The rooms of one port. See the [module](self).
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    arrived: u64,
    strangers: Room,
    prefaces: Room,
    outputs: VecDeque<Dropped>,
}

impl Admission {
    /// Empty rooms.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            arrived: 0,
            strangers: Room::new(limits.strangers_max, limits.strangers_of_address_max),
            prefaces: Room::new(limits.prefaces_max, limits.prefaces_of_address_max),
            outputs: VecDeque::new(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Connections that have not proved who they are.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// Connections that have, and have not said a whole first message.
    pub fn prefaces(&self) -> usize {
        self.prefaces.len()
    }

    /// Whether a connection holds a place.
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.strangers.get(ticket).or_else(|| self.prefaces.get(ticket)).is_some()
    }

    /// When a connection's stage is over, if it holds a place.
    pub fn due(&self, ticket: Ticket) -> Option<Instant> {
        Some(self.strangers.get(ticket).or_else(|| self.prefaces.get(ticket))?.due)
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// A connection came. It always gets a place; another may lose its own.
    pub fn handle_arrived(&mut self, now: Instant, address: Address) -> Ticket {
        self.arrived += 1;
        let ticket = Ticket(self.arrived);
        let due = now + self.limits.silence_time_max;
        let handshake_due = now + self.limits.handshake_time_max;
        let waiting =
            room::Waiting { address, stage: Stage::Silent, due: due.min(handshake_due), handshake_due };
        self.outputs.extend(self.strangers.enter(ticket, waiting));
        self.assert_bounds();
        ticket
    }

    /// The first byte of a connection came.
    pub fn handle_heard(&mut self, ticket: Ticket) {
        self.strangers.hear(ticket);
    }

    /// A connection has proved who it is: it leaves the strangers' room.
    pub fn handle_authenticated(&mut self, now: Instant, ticket: Ticket) {
        let Some(waiting) = self.strangers.leave(ticket) else { return };
        let due = now + self.limits.preface_time_max;
        self.outputs
            .extend(self.prefaces.enter(ticket, room::Waiting { stage: Stage::Preface, due, ..waiting }));
        self.assert_bounds();
    }

    /// A connection is admitted, or gone.
    pub fn handle_left(&mut self, ticket: Ticket) {
        let _ = self.strangers.leave(ticket).or_else(|| self.prefaces.leave(ticket));
    }

    /// The process can open no more files: the connection that would go next if there were no room goes now. False if none waits.
    pub fn handle_no_descriptor(&mut self) -> bool {
        let room = if self.strangers.len() > 0 { &mut self.strangers } else { &mut self.prefaces };
        let dropped = room.make_room(None, DropReason::NoDescriptor);
        self.outputs.extend(dropped);
        dropped.is_some()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (room, limit) in [
            (&mut self.strangers, [self.limits.silence_time_max, self.limits.handshake_time_max]),
            (&mut self.prefaces, [self.limits.preface_time_max; 2]),
        ] {
            self.outputs.extend(room.expire(now, |stage| limit[usize::from(stage != Stage::Silent)]));
        }
    }

    /// When [`Admission::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.strangers.due().into_iter().chain(self.prefaces.due()).min()
    }

    /// The next connection that is to be closed.
    pub fn poll_output(&mut self) -> Option<Dropped> {
        self.outputs.pop_front()
    }

    fn assert_bounds(&self) {
        debug_assert!(self.strangers.len() <= self.limits.strangers_max);
        debug_assert!(self.prefaces.len() <= self.limits.prefaces_max);
    }
}

#[cfg(test)]
mod tests;
