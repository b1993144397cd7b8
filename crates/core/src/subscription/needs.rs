//! Says which grants a request for frames needs.

use std::time::Duration;

use super::spec::SubscriptionSpec;
use crate::history::Tier;
use crate::rights::Verb;
use crate::units::Timestamp;

/// How far in the future the end of a reading may lie and count as the present: the clock of an application that
/// asks for everything until now may be ahead of ours.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

impl SubscriptionSpec {
    /// The verbs that whoever asks for this at `now` needs for its cameras.
    ///
    /// A beginning is always one in the past, whatever time it names: the clock of a camera may be ahead, and an
    /// application that says what it already has is given everything since then.
    pub fn needs(&self, now: Timestamp) -> Vec<Verb> {
        let reads = self.span.begin.is_some() || self.past.fill;
        let goes_on = self.span.end.is_none_or(|end| end > now + CLOCK_TOLERANCE);
        // Without a quality, what the edge does not hold is fetched as it was published.
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
