//! A connection that waits, and why one goes.

use std::fmt;
use std::time::Duration;

use super::address::Address;

/// Names a connection of a port. Later ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Not a byte has come.
    Silent,
    /// It has begun to prove who it is.
    Handshake,
    /// It has proved it, and its first message is not whole.
    Preface,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its stage has taken longer than it may.
    TooSlow(Duration),
    /// It made room: of all addresses its own held the most places, and it was the oldest there.
    Crowded,
    /// It made room: the process has no file descriptor left.
    NoDescriptor,
}

/// A connection that is to be closed. It holds no place any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub ticket: Ticket,
    /// Where it came from.
    pub address: Address,
    /// How far it had come.
    pub stage: Stage,
    /// Why.
    pub reason: DropReason,
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacking = match self.stage {
            Stage::Silent => "it said nothing",
            Stage::Handshake => "it did not finish its handshake",
            Stage::Preface => "it proved who it is, but did not say a whole first message",
        };
        match self.reason {
            DropReason::TooSlow(limit) => write!(f, "{lacking} within {limit:?}"),
            DropReason::Crowded => write!(
                f,
                "{lacking} and was closed to make room: of the connections that wait, its address held the most, and it was the oldest"
            ),
            DropReason::NoDescriptor => write!(
                f,
                "{lacking} and was closed because this process can open no more files; raise the limit (`ulimit -n`)"
            ),
        }
    }
}
