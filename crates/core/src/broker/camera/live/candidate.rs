//! Builds what the policy is offered for the waiting frame.

use super::Live;
use super::lent::{Considered, Present};
use crate::broker::camera::adapt::Candidate;
use crate::broker::camera::connection::EdgeLink;
use crate::contract::Joint;

impl Live {
    /// Builds what the policy is offered for the waiting frame. No other function builds it.
    pub(super) fn candidate<'a>(
        &'a self,
        considered: Considered,
        present: Present<'a>,
        link: &EdgeLink,
        joint: &'a Joint,
    ) -> Option<Candidate<'a>> {
        let Present { now, interval, profiles, knobs } = present;
        let waiting = self.waiting.as_ref()?;
        let frame = &waiting.record.frame;
        let is_plain = waiting.is_plain && !matches!(considered, Considered::OneOfMany);
        let captured = frame.meta.captured;
        let captured_at = self.anchor.instant_at(captured);
        let own = if let Considered::Next(own) = considered { own } else { None };
        let (before, captured, unsent_bytes, window) = match considered {
            Considered::Next(_) => (self.chain.goes_on(link.id, captured), captured_at, 0, link.window),
            Considered::InPlaceOf { frame, unsent_bytes } => {
                let before = self.chain.goes_on_without(link.id, captured, frame);
                (before, captured_at, unsent_bytes, link.window)
            }
            Considered::OneOfMany => (None, now, 0, None),
        };
        Some(Candidate {
            now,
            joint,
            profiles,
            frame,
            before,
            own,
            knobs,
            is_plain,
            captured,
            interval,
            unsent_bytes,
            window,
        })
    }
}
