//! Makes a better rung that needs a new chain wait after a fall, by binary exponential backoff, as for
//! Ethernet's collisions (R. Metcalfe, D. Boggs 1976). Without it, a link between two rungs would cost a
//! keyframe at every change.

use std::time::Duration;

use super::config::{Config, Mechanism};
use crate::controller::Offer;
use crate::units::Instant;

/// How long a better rung that needs a new chain waits after a fall. The wait doubles after every rise that
/// did not last.
pub(super) const RISE_WAIT_MIN: Duration = Duration::from_secs(2);
/// The longest wait after a fall.
const RISE_WAIT_MAX: Duration = Duration::from_secs(16);
/// A rise has lasted if no fall follows within this time.
const RISE_KEPT_MIN: Duration = Duration::from_secs(10);

/// Rises and falls of the rung.
#[derive(Debug)]
pub(super) struct Steadiness {
    /// The rung of the last frame.
    rung: Option<usize>,
    /// When the rung last rose, if it has not fallen since.
    rose: Option<Instant>,
    /// How long a better rung waits after a fall.
    wait: Duration,
    /// When the present wait ends.
    due: Instant,
}

impl Steadiness {
    pub(super) fn new() -> Self {
        Self { rung: None, rose: None, wait: RISE_WAIT_MIN, due: Instant::ZERO }
    }

    /// Notes the rung of a frame, and whether it is a rise or a fall.
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

    /// Ends any wait, because the link is several times as fast as before.
    pub(super) fn forget(&mut self, now: Instant) {
        self.due = now;
    }

    /// Whether a better rung must wait, because it needs a new chain and the policy has fallen back from one.
    pub(super) fn holds(&self, config: &Config, offer: &Offer<'_>, rung: usize) -> bool {
        let Some(coding) = offer.coding.filter(|coding| coding.stretches) else { return false };
        let begins = !coding.goes_on.get(rung).copied().unwrap_or(false);
        config.has(Mechanism::Steadiness)
            && begins
            && coding.continues.is_some_and(|place| rung > place)
            && offer.now < self.due
    }
}
