//! After a fall, a better rung that needs a new chain waits: binary exponential backoff, as for Ethernet's collisions (R. Metcalfe,
//! D. Boggs 1976). Otherwise a link between two rungs would cost a keyframe at every change.

use std::time::Duration;

use super::config::{Config, Mechanism};
use crate::controller::Offer;
use crate::units::Instant;

/// After a fall a better rung that a chain begins anew for waits for so long; twice as long after every rise that did not last,
pub(super) const RISE_WAIT_MIN: Duration = Duration::from_secs(2);
/// and no longer than this.
const RISE_WAIT_MAX: Duration = Duration::from_secs(16);
/// A rise has lasted that was not followed by a fall within this.
const RISE_KEPT_MIN: Duration = Duration::from_secs(10);

/// Rises and falls of the rung.
#[derive(Debug)]
pub(super) struct Steadiness {
    /// The rung of the last frame.
    rung: Option<usize>,
    /// When it last rose, if it did not fall since.
    rose: Option<Instant>,
    /// After a fall, how long a better rung waits,
    wait: Duration,
    /// and until when.
    due: Instant,
}

impl Steadiness {
    pub(super) fn new() -> Self {
        Self { rung: None, rose: None, wait: RISE_WAIT_MIN, due: Instant::ZERO }
    }

    /// A frame goes at a rung: notes rises and falls.
    pub(super) fn note(&mut self, now: Instant, rung: usize) {
        match self.rung.replace(rung) {
            Some(before) if rung > before => self.rose = Some(now),
            Some(before) if rung < before => {
                let soon = self.rose.take().is_some_and(|rose| now.saturating_since(rose) < RISE_KEPT_MIN);
                self.wait = if soon { (self.wait * 2).min(RISE_WAIT_MAX) } else { RISE_WAIT_MIN };
                self.due = now + self.wait;
            }
            _ => {}
        }
    }

    /// The link is several times as fast as it was: nothing is waited for.
    pub(super) fn forget(&mut self, now: Instant) {
        self.due = now;
    }

    /// Whether a better rung that a chain would have to begin anew for is not to be tried yet, because one was fallen back from.
    pub(super) fn holds(&self, config: &Config, offer: &Offer<'_>, rung: usize) -> bool {
        let Some(coding) = offer.coding.filter(|coding| coding.stretches) else { return false };
        let begins = !coding.goes_on.get(rung).copied().unwrap_or(false);
        config.has(Mechanism::Steadiness)
            && begins
            && coding.continues.is_some_and(|place| rung > place)
            && offer.now < self.due
    }
}
