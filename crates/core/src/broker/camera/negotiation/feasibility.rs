//! What the edge is told of what the camera can do for the contracts that lead.

use std::time::Duration;

use crate::broker::camera::{CameraBroker, CameraOutput};
use crate::units::Instant;
use crate::wire::{Message, Outlook, Settled};

/// The least time between two of them, but for those that go with a status.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// What was seen when a frame last waited says nothing after this.
const SEEN_MAX: Duration = Duration::from_secs(2);

/// What the edge was told last, and when.
#[derive(Default)]
pub(crate) struct Told {
    last: Option<(Instant, Outlook)>,
    settled: Settled,
}

impl CameraBroker {
    /// What the camera can do now.
    fn outlook(&self, now: Instant) -> Outlook {
        let link_rate = self.adapter.link_rate();
        let Some((joint, seen)) = self.joint().zip(self.adapter.seen()) else {
            return Outlook { link_rate, ..Outlook::default() };
        };
        let fresh = now.saturating_since(seen.at) <= SEEN_MAX;
        Outlook {
            link_rate,
            floor_bytes: seen.floor_bytes,
            best_accuracy: seen.best_accuracy,
            infeasible: seen.infeasible && fresh,
            profile_use: seen.profile_use,
            profile: joint.profile,
        }
    }

    /// Tells the edge what it does not know and should soon.
    pub(crate) fn tell_outlook(&mut self, now: Instant) {
        if self.outlook_due().is_some_and(|due| now >= due) {
            self.send_outlook(now);
        }
    }

    /// Tells the edge, news or not.
    pub(crate) fn send_outlook(&mut self, now: Instant) {
        let Some(link) = self.active_link().map(|link| link.id) else { return };
        let outlook = self.outlook(now);
        self.told.last = Some((now, outlook));
        self.outputs.push_back(CameraOutput::Send { link, message: Message::Outlook(outlook) });
        let settled = self.settled();
        if !settled.verdicts.is_empty() {
            let message = Message::Settled(settled.clone());
            self.outputs.push_back(CameraOutput::Send { link, message });
        }
        self.told.settled = settled;
    }

    /// When the edge has to be told before the next status is due.
    pub(crate) fn outlook_due(&self) -> Option<Instant> {
        self.active_link()?;
        let (at, last) = self.told.last?;
        let Some((joint, seen)) = self.joint().zip(self.adapter.seen()) else {
            // That nothing is asked any more matters to nobody.
            return None;
        };
        let settled = self.settled();
        if !settled.verdicts.is_empty() && settled != self.told.settled {
            return Some(at + INTERVAL_MIN);
        }
        let known = (last.infeasible, last.profile_use, last.profile);
        (known != (seen.infeasible, seen.profile_use, joint.profile) && at.max(seen.at) == seen.at)
            .then_some(at + INTERVAL_MIN)
    }
}
