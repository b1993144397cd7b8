//! When to dial.

use crate::broker::{DIAL_TIME_MAX, REDIAL_INTERVAL};
use crate::units::Instant;

/// The most connections that are being made at once: enough to begin one at every interval until the first is given
/// up. With fewer there would be pauses, and a dial that began while the path was dead repeats its first message so
/// seldom that it does not see the path come back.
const DIALS_MAX: u32 = (DIAL_TIME_MAX.as_millis() / REDIAL_INTERVAL.as_millis()) as u32;

/// Decides when the next connection is tried: at once, and then at regular intervals until one works.
#[derive(Debug)]
pub(super) struct Dialler {
    due: Instant,
    /// Connections being made.
    dialling: u32,
    /// Connections made so far; numbers them for the edge.
    attempts: u64,
}

impl Dialler {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now, dialling: 0, attempts: 0 }
    }

    /// Whether to dial now; if so, the next dial is due an interval later.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + REDIAL_INTERVAL;
        if self.dialling >= DIALS_MAX {
            return false;
        }
        self.dialling += 1;
        true
    }

    /// When [`Dialler::is_due`] is to be asked.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// A connection was made. Returns its number, from 1.
    pub(super) fn dialled(&mut self) -> u64 {
        self.failed();
        self.attempts += 1;
        self.attempts
    }

    /// A connection could not be made.
    pub(super) fn failed(&mut self) {
        self.dialling = self.dialling.saturating_sub(1);
    }

    /// The edge has taken the camera in.
    pub(super) fn welcomed(&mut self, now: Instant) {
        self.due = now;
    }

    /// Dial no earlier and, if that time has come, no later than `until`.
    pub(super) fn hold_until(&mut self, until: Instant) {
        self.due = until;
    }
}
