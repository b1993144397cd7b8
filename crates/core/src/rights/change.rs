//! Describes what a client may no longer do, and what it may do from now on.

use std::collections::BTreeSet;

use super::bearer::Bearer;
use super::grant::quoted;
use super::refusal::SHOWN_MAX;
use super::verb::Verb;
use crate::name::CameraPattern;

/// What changed for one verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The verb that changed.
    pub verb: Verb,
    /// Cameras for which the verb is no longer allowed.
    pub taken: BTreeSet<CameraPattern>,
    /// Cameras for which the verb is allowed from now on.
    pub given: BTreeSet<CameraPattern>,
    /// All cameras for which the verb is allowed now. `None`: every camera.
    pub has: Option<BTreeSet<CameraPattern>>,
}

impl Change {
    /// The change for a request of `asked`, from the granted cameras `had` to `has`;
    /// `None` in either: no grant is needed. Returns `None` if nothing changed.
    pub(super) fn between(
        verb: Verb,
        asked: &CameraPattern,
        had: Option<BTreeSet<CameraPattern>>,
        has: Option<BTreeSet<CameraPattern>>,
    ) -> Option<Self> {
        let all = || BTreeSet::from([asked.clone()]);
        let (before, after) = (had.unwrap_or_else(all), has.clone().unwrap_or_else(all));
        // A camera that another pattern allows too is neither taken nor given.
        let lacks = |these: &BTreeSet<CameraPattern>, those: &BTreeSet<CameraPattern>| -> BTreeSet<_> {
            let is_in =
                |one: &CameraPattern| those.iter().any(|that| that.includes(one) || that.includes(asked));
            these.iter().filter(|one| !is_in(one)).cloned().collect()
        };
        let (taken, given) = (lacks(&before, &after), lacks(&after, &before));
        let is_none = taken.is_empty() && given.is_empty();
        (!is_none).then_some(Self { verb, taken, given, has })
    }

    /// All changes as a sentence, which ends with the command that gives back what was taken.
    pub(super) fn sentence(who: &Bearer, changes: &[Self]) -> String {
        let told: Vec<String> = changes.iter().map(|change| change.told(who)).collect();
        told.join("; ")
    }

    fn told(&self, who: &Bearer) -> String {
        let Self { verb, taken, given, has } = self;
        let phrase = verb.phrase();
        if taken.is_empty() {
            return format!("{who} may now also {phrase} {}", list(given));
        }
        let now = has.as_ref().map_or_else(|| "everything".into(), list);
        let back: Vec<String> =
            taken.iter().take(SHOWN_MAX).map(|cameras| quoted(cameras.as_str())).collect();
        format!(
            "{who} may no longer {phrase} {}: its grants of {verb} are now for {now}; to restore the grant, run `mez keys grant {} {verb} {}` on \
             the edge's host",
            list(taken),
            quoted(&who.to_string()),
            back.join(" "),
        )
    }
}

/// The first patterns of a set, as text.
fn list(patterns: &BTreeSet<CameraPattern>) -> String {
    let names: Vec<&str> = patterns.iter().take(SHOWN_MAX).map(CameraPattern::as_str).collect();
    let more = if patterns.len() > SHOWN_MAX { " and more" } else { "" };
    format!("{}{more}", names.join(", "))
}
