//! Decides who may wait at a port before authentication, for how long, and which connection closes when too
//! many wait.
//!
//! A connection passes three phases: silent (no byte has come), handshake, and preface (the handshake is over, but
//! its first message is not complete). Each phase has a time limit. Unauthenticated connections wait in one
//! room, authenticated ones in another. A room has a bounded number of places, and each address a bounded
//! share of them. When a room or a share is full, the oldest connection of the address that holds the most
//! places is closed. So a flood from one address closes its own connections. Another client at that address
//! still gets in, as long as it finishes before [`Limits::strangers_of_address_max`] others arrive. An
//! admitted connection leaves the rooms and never counts again.
//!
//! Drive it like a broker: call `handle_*`, then [`Admission::poll_output`] until it returns `None`, then
//! [`Admission::handle_timeout`] when [`Admission::poll_timeout`] is due. `docs/admission.md` lists the limits in a table.

mod address;
mod room;
mod turns;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::address::Address;
use self::room::Room;
pub use self::turns::Turns;
pub use self::types::{DropReason, Dropped, Phase, Ticket};
use crate::units::Instant;

/// The most unauthenticated connections that may wait at one port. It bounds the memory and the file
/// descriptors that a flood can take.
pub const STRANGERS_MAX: usize = 256;
/// The most of [`STRANGERS_MAX`] from one address. Half: a whole site behind one router can dial at once, and
/// one address never takes all places.
pub const STRANGERS_OF_ADDRESS_MAX: usize = 128;
/// The most authenticated connections of one port whose first message is not complete. Half of
/// [`STRANGERS_MAX`]: a real client sends that message at once.
pub const PREFACES_MAX: usize = 128;
/// The most of [`PREFACES_MAX`] from one address. Half, so that one address never takes all places.
pub const PREFACES_OF_ADDRESS_MAX: usize = 64;
/// How long a connection may stay silent. Every real client sends its first byte within one round trip; 2 s
/// leave time to repeat a lost packet.
pub const SILENCE_TIME_MAX: Duration = Duration::from_secs(2);
/// The longest time from arrival to the end of the handshake, including the silent phase. A handshake takes
/// one or two round trips; 5 s leave time for lost packets.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest time from authentication to the end of the first message. That message is small; 5 s leave
/// time for lost packets.
pub const PREFACE_TIME_MAX: Duration = Duration::from_secs(5);
/// The rooms of one port get at most one in ten of the process's file descriptors. So unauthenticated peers
/// at three ports never take a third of them.
const DESCRIPTORS_PART: u64 = 10;

/// How many connections may wait at a port, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most unauthenticated connections. Default [`STRANGERS_MAX`].
    pub strangers_max: usize,
    /// The most unauthenticated connections from one address. Default [`STRANGERS_OF_ADDRESS_MAX`].
    pub strangers_of_address_max: usize,
    /// The most authenticated connections whose first message is not complete. Default [`PREFACES_MAX`].
    pub prefaces_max: usize,
    /// The most authenticated connections of that kind from one address. Default [`PREFACES_OF_ADDRESS_MAX`].
    pub prefaces_of_address_max: usize,
    /// The longest time until the first byte. Default [`SILENCE_TIME_MAX`].
    pub silence_time_max: Duration,
    /// The longest time from arrival to the end of the handshake. Default [`HANDSHAKE_TIME_MAX`].
    pub handshake_time_max: Duration,
    /// The longest time from the end of the handshake to the end of the first message. Default
    /// [`PREFACE_TIME_MAX`].
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
    /// These limits, lowered for a process that may open only `descriptors` files. Logs on disk and admitted
    /// clients then always find a free descriptor.
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

    /// How many unauthenticated connections wait.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// How many authenticated connections wait with their first message incomplete.
    pub fn prefaces(&self) -> usize {
        self.prefaces.len()
    }

    /// Whether a connection holds a place.
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.strangers.get(ticket).or_else(|| self.prefaces.get(ticket)).is_some()
    }

    /// When the time limit of a connection's phase ends, if it holds a place.
    pub fn due(&self, ticket: Ticket) -> Option<Instant> {
        Some(self.strangers.get(ticket).or_else(|| self.prefaces.get(ticket))?.due)
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// A connection arrived. It always gets a place; another connection may lose its own.
    pub fn handle_arrived(&mut self, now: Instant, address: Address) -> Ticket {
        self.arrived += 1;
        let ticket = Ticket(self.arrived);
        let due = now + self.limits.silence_time_max;
        let handshake_due = now + self.limits.handshake_time_max;
        let waiting =
            room::Waiting { address, phase: Phase::Silent, due: due.min(handshake_due), handshake_due };
        self.outputs.extend(self.strangers.enter(ticket, waiting));
        self.assert_bounds();
        ticket
    }

    /// The first byte of a connection came.
    pub fn handle_heard(&mut self, ticket: Ticket) {
        self.strangers.hear(ticket);
    }

    /// A connection is authenticated: it moves from the strangers' room to that of the prefaces.
    pub fn handle_authenticated(&mut self, now: Instant, ticket: Ticket) {
        let Some(waiting) = self.strangers.leave(ticket) else { return };
        let due = now + self.limits.preface_time_max;
        self.outputs
            .extend(self.prefaces.enter(ticket, room::Waiting { phase: Phase::Preface, due, ..waiting }));
        self.assert_bounds();
    }

    /// A connection was admitted or has ended. Its place is free.
    pub fn handle_left(&mut self, ticket: Ticket) {
        let _ = self.strangers.leave(ticket).or_else(|| self.prefaces.leave(ticket));
    }

    /// The process has no file descriptor left: drops the connection that a full room would drop next.
    /// Returns false if none waits.
    pub fn handle_no_descriptor(&mut self) -> bool {
        let room = if self.strangers.len() > 0 { &mut self.strangers } else { &mut self.prefaces };
        let dropped = room.make_room(None, DropReason::NoDescriptor);
        self.outputs.extend(dropped);
        dropped.is_some()
    }

    /// Drops every connection whose phase has exceeded its time limit.
    pub fn handle_timeout(&mut self, now: Instant) {
        for (room, limit) in [
            (&mut self.strangers, [self.limits.silence_time_max, self.limits.handshake_time_max]),
            (&mut self.prefaces, [self.limits.preface_time_max; 2]),
        ] {
            self.outputs.extend(room.expire(now, |phase| limit[usize::from(phase != Phase::Silent)]));
        }
    }

    /// When [`Admission::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.strangers.due().into_iter().chain(self.prefaces.due()).min()
    }

    /// The next connection that the caller must close.
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
