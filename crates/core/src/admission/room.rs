//! Holds the connections that wait in one room, and decides which one loses its place when the room is full.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::address::Address;
use super::types::{DropReason, Dropped, Phase, Ticket};
use crate::units::Instant;

/// A connection in a room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) address: Address,
    pub(super) phase: Phase,
    /// When the time limit of the phase ends.
    pub(super) due: Instant,
    /// When the handshake must be complete.
    pub(super) handshake_due: Instant,
}

#[derive(Debug)]
pub(super) struct Room {
    places_max: usize,
    places_of_address_max: usize,
    places: BTreeMap<Ticket, Waiting>,
    /// The tickets in `places`, by address. Tickets are in the order of arrival.
    addresses: BTreeMap<Address, BTreeSet<Ticket>>,
    /// The tickets in `places`, by the end of their phase.
    dues: BTreeSet<(Instant, Ticket)>,
}

impl Room {
    pub(super) fn new(places_max: usize, places_of_address_max: usize) -> Self {
        Self {
            places_max: places_max.max(1),
            places_of_address_max: places_of_address_max.max(1),
            places: BTreeMap::new(),
            addresses: BTreeMap::new(),
            dues: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.places.get(&ticket)
    }

    /// The first byte of a connection came.
    pub(super) fn hear(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.places.get_mut(&ticket) {
            self.dues.remove(&(waiting.due, ticket));
            (waiting.phase, waiting.due) = (Phase::Handshake, waiting.handshake_due);
            self.dues.insert((waiting.due, ticket));
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.dues.first().map(|(due, _)| *due)
    }

    /// Gives a connection a place. Returns the connection that lost its place to it, if any.
    pub(super) fn enter(&mut self, ticket: Ticket, waiting: Waiting) -> Option<Dropped> {
        let of_address = self.addresses.get(&waiting.address).map_or(0, BTreeSet::len);
        let dropped = if of_address >= self.places_of_address_max {
            self.drop_oldest(waiting.address, DropReason::Crowded)
        } else if self.places.len() >= self.places_max {
            self.make_room(Some(waiting.address), DropReason::Crowded)
        } else {
            None
        };
        let before = self.places.insert(ticket, waiting);
        self.dues.insert((waiting.due, ticket));
        let of_address = self.addresses.entry(waiting.address).or_default();
        of_address.insert(ticket);
        debug_assert!(before.is_none(), "a connection has two places");
        // If there was no room, one connection was dropped for the new one.
        debug_assert!(of_address.len() <= self.places_of_address_max, "an address has more than its share");
        debug_assert!(self.places.len() <= self.places_max, "more connections wait than there are places");
        dropped
    }

    /// Drops the oldest connection of the address that holds the most places. `comes`, the address of the new connection,
    /// counts as one more. If several addresses hold the most, the one whose oldest connection arrived first loses it.
    pub(super) fn make_room(&mut self, comes: Option<Address>, reason: DropReason) -> Option<Dropped> {
        let held = |(address, tickets): &(&Address, &BTreeSet<Ticket>)| {
            (tickets.len() + usize::from(comes == Some(**address)), Reverse(tickets.first().copied()))
        };
        let address = *self.addresses.iter().max_by_key(held)?.0;
        self.drop_oldest(address, reason)
    }

    fn drop_oldest(&mut self, address: Address, reason: DropReason) -> Option<Dropped> {
        let ticket = *self.addresses.get(&address)?.first()?;
        let Waiting { address, phase, .. } = self.leave(ticket)?;
        Some(Dropped { ticket, address, phase, reason })
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.places.remove(&ticket)?;
        self.dues.remove(&(waiting.due, ticket));
        if let Some(tickets) = self.addresses.get_mut(&waiting.address) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.addresses.remove(&waiting.address);
            }
        }
        debug_assert_eq!(self.places.len(), self.dues.len(), "a connection waits without an end");
        Some(waiting)
    }

    /// Drops every connection whose phase has ended. `limit` gives the time limit of a phase, for the reason.
    pub(super) fn expire(&mut self, now: Instant, limit: impl Fn(Phase) -> Duration) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        while let Some((due, ticket)) = self.dues.first().copied()
            && due <= now
            && let Some(Waiting { address, phase, .. }) = self.leave(ticket)
        {
            dropped.push(Dropped { ticket, address, phase, reason: DropReason::TooSlow(limit(phase)) });
        }
        dropped
    }
}
