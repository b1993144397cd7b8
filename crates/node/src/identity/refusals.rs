//! Logs refused clients, with a limit for repeated reasons.
//!
//! A refused client tries again a few times a second, which would fill any log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mez_core::audit::{Event, Kind};
use mez_core::units::Instant;

use crate::audit::Audit;
use crate::clock::wall_now;

/// How often the same refusal of a client is logged: at most once in 60 s.
pub const REPEATED_AFTER: Duration = Duration::from_secs(60);
/// Clients that are distinguished. All others count as one client, so that strangers cannot fill the memory.
pub const CLIENTS_MAX: usize = 256;
/// Different reasons that are logged for one client within [`REPEATED_AFTER`]. Some reasons contain the time, so they are never equal.
pub const REASONS_MAX: usize = 4;

/// Which refusals were logged, and when. Small, so each port can have its own.
#[derive(Debug, Default)]
pub struct Refusals {
    clients: Mutex<BTreeMap<Option<String>, Refused>>,
    audit: Audit,
    /// The port that the clients tried to use, for the audit log.
    port: &'static str,
}

#[derive(Debug)]
struct Refused {
    since: Instant,
    reasons: Vec<String>,
    unsaid: u64,
}

impl Refused {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.since) >= REPEATED_AFTER
    }
}

/// What to log about a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Refusals of this client since its last log line, which were not logged.
    pub unsaid: u64,
    /// Too many clients were refused to distinguish them, and this is one of them.
    pub one_of_many: bool,
}

impl Refusals {
    /// Refusals at a port that are also recorded in the audit log.
    pub(crate) fn recorded(port: &'static str, audit: Audit) -> Self {
        Self { clients: Mutex::default(), audit, port }
    }

    /// Notes that a client, identified by its address or identity, was refused. Returns what to log, if anything.
    pub fn note(&self, now: Instant, peer: &str, why: &str) -> Option<Line> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = Some(peer.to_owned());
        if !clients.contains_key(&client) && clients.len() >= CLIENTS_MAX {
            clients.retain(|_, refused| !refused.is_over(now));
            client = client.filter(|_| clients.len() < CLIENTS_MAX);
        }
        let one_of_many = client.is_none();
        let refused =
            clients.entry(client).or_insert_with(|| Refused { since: now, reasons: Vec::new(), unsaid: 0 });
        if refused.is_over(now) {
            (refused.since, refused.reasons) = (now, Vec::new());
        }
        if refused.reasons.len() >= REASONS_MAX || refused.reasons.iter().any(|known| known == why) {
            refused.unsaid += 1;
            return None;
        }
        refused.reasons.push(why.to_owned());
        Some(Line { unsaid: std::mem::take(&mut refused.unsaid), one_of_many })
    }

    /// Logs that a client was refused, unless enough refusals of the client were logged recently.
    pub(crate) fn log(&self, now: Instant, peer: &str, why: &str) {
        self.audit.note(Event::new(wall_now(), Kind::Refused, peer).what(self.port).why(why));
        let Some(Line { unsaid, one_of_many }) = self.note(now, peer, why) else { return };
        if one_of_many {
            tracing::warn!(
                peer,
                "more than {CLIENTS_MAX} clients were refused; the reason for this client: {why}"
            );
        } else {
            tracing::warn!(peer, unsaid, "a client was refused: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn host(number: u16) -> String {
        format!("10.0.{}.{}", number >> 8, number & 0xff)
    }

    fn line(unsaid: u64) -> Option<Line> {
        Some(Line { unsaid, one_of_many: false })
    }

    #[test]
    fn a_client_that_tries_again_and_again_is_told_of_once_a_minute() {
        let refusals = Refusals::default();
        assert_eq!(refusals.note(at(1), &host(1), "unknown authority"), line(0));
        for second in 1..60 {
            assert_eq!(refusals.note(at(second), &host(1), "unknown authority"), None);
        }
        // Other clients, and other reasons, are logged at once.
        assert_eq!(refusals.note(at(60), &host(2), "unknown authority"), line(0));
        assert_eq!(refusals.note(at(61), &host(1), "unknown authority"), line(59));
        assert_eq!(refusals.note(at(61), &host(1), "expired"), line(0));
        assert_eq!(refusals.note(at(62), &host(1), "unknown authority"), None);
    }

    #[test]
    fn a_reason_that_is_never_the_same_does_not_fill_the_log() {
        let refusals = Refusals::default();
        let told =
            (0..600).filter(|second| refusals.note(at(*second), &host(1), &format!("at {second}")).is_some());
        assert_eq!(told.count(), 10 * REASONS_MAX);
    }

    #[test]
    fn more_clients_than_can_be_told_apart_are_told_of_as_one() {
        let refusals = Refusals::default();
        let told: Vec<Line> = (0..1000).filter_map(|n| refusals.note(at(1), &host(n), "expired")).collect();
        assert_eq!(told.len(), CLIENTS_MAX + 1);
        assert!(told[CLIENTS_MAX].one_of_many);
        // A minute later there is room again.
        assert_eq!(refusals.note(at(61), &host(999), "expired"), line(0));
        assert_eq!(refusals.clients.lock().unwrap().len(), 1);
    }
}
