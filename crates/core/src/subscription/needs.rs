//! Says which grants a request for frames needs.

use std::time::Duration;

use super::spec::SubscriptionSpec;
use crate::history::Tier;
use crate::rights::Verb;
use crate::units::Timestamp;

/// An end at most this far in the future counts as the present. The clock of an application that asks for everything until now may be ahead of ours.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

impl SubscriptionSpec {
    /// The verbs that an application needs for the cameras of this request at `now`.
    ///
    /// Any beginning counts as a beginning in the past, whatever time it names. The clock of a camera
    /// may be ahead, and an application that names its last frame gets every frame since then.
    pub fn needs(&self, now: Timestamp) -> Vec<Verb> {
        let reads = self.span.begin.is_some() || self.past.fill;
        let goes_on = self.span.end.is_none_or(|end| end > now + CLOCK_TOLERANCE);
        // Without a quality, frames that the edge does not hold are fetched as they were published.
        let is_original = self.past.quality.is_none() || self.past.wants_originals();
        let fetches = reads && self.past.tier_max == Tier::Camera && is_original;
        [
            (Verb::Watch, goes_on || !reads),
            (Verb::Read, reads),
            (Verb::Originals, fetches || self.wants_originals()),
        ]
        .into_iter()
        .filter_map(|(verb, needed)| needed.then_some(verb))
        .collect()
    }
}
