//! Defines the phases of a waiting connection, and why one is dropped.

use std::fmt;
use std::time::Duration;

use super::address::Address;

/// Identifies a connection of a port. Tickets grow in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// How far a waiting connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No byte has come.
    Silent,
    /// The handshake has begun.
    Handshake,
    /// The handshake is over, but the first message is not complete. At the web port: no known user has made a request yet.
    Preface,
}

/// Why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The connection's phase exceeded this time limit.
    TooSlow(Duration),
    /// All places were taken. The connection's address held the most places, and it was the oldest connection of this address.
    Crowded,
    /// The process has no file descriptor left.
    NoDescriptor,
}

/// A connection that the caller must close. It no longer holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The connection.
    pub ticket: Ticket,
    /// The address that the connection came from.
    pub address: Address,
    /// The phase that the connection had reached.
    pub phase: Phase,
    /// Why it must be closed.
    pub reason: DropReason,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacking = match self.phase {
            Phase::Silent => "it sent nothing",
            Phase::Handshake => "it did not finish its handshake",
            Phase::Preface => "it finished its handshake, but was not admitted",
        };
        match self.reason {
            DropReason::TooSlow(limit) => write!(f, "{lacking} within {limit:?}"),
            DropReason::Crowded => write!(
                f,
                "{lacking} and was closed to make room: its address had the most waiting connections, and this was the oldest of them"
            ),
            DropReason::NoDescriptor => write!(
                f,
                "{lacking} and was closed because this process has no file descriptor left; raise the limit (`ulimit -n`)"
            ),
        }
    }
}
