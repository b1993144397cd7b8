//! Says what somebody may no longer do, and what they may do from now on.

use std::collections::BTreeSet;

use super::bearer::Bearer;
use super::grant::quoted;
use super::refusal::SHOWN_MAX;
use super::verb::Verb;
use crate::name::CameraPattern;

/// What changed for one verb.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What may or may not be done.
    pub verb: Verb,
    /// Cameras with which it was allowed.
    pub taken: BTreeSet<CameraPattern>,
    /// Cameras with which it is allowed from now on.
    pub given: BTreeSet<CameraPattern>,
    /// Cameras with which it is allowed now. `None`: with all.
    pub has: Option<BTreeSet<CameraPattern>>,
}

impl Change {
    /// What changed for whoever asked for `asked`: from what it had to what it has. `None` there: it needs no grant.
    pub(super) fn between(
        verb: Verb,
        asked: &CameraPattern,
        had: Option<BTreeSet<CameraPattern>>,
        has: Option<BTreeSet<CameraPattern>>,
    ) -> Option<Self> {
        let all = || BTreeSet::from([asked.clone()]);
        let (before, after) = (had.unwrap_or_else(all), has.clone().unwrap_or_else(all));
        // What another pattern allows as well is neither lost nor won.
        let lacks = |these: &BTreeSet<CameraPattern>, those: &BTreeSet<CameraPattern>| -> BTreeSet<_> {
            let is_in =
                |one: &CameraPattern| those.iter().any(|that| that.includes(one) || that.includes(asked));
            these.iter().filter(|one| !is_in(one)).cloned().collect()
        };
        let (taken, given) = (lacks(&before, &after), lacks(&after, &before));
        let is_none = taken.is_empty() && given.is_empty();
        (!is_none).then_some(Self { verb, taken, given, has })
    }

    /// All changes as a sentence, which ends with the command that takes them back.
    pub(super) fn sentence(who: &Bearer, changes: &[Self]) -> String {
        let told: Vec<String> = changes.iter().map(|change| change.told(who)).collect();
        told.join("; ")
    }

    fn told(&self, who: &Bearer) -> String {
        let Self { verb, taken, given, has } = self;
        let phrase = verb.phrase();
        if taken.is_empty() {
            return format!("{who} may {phrase} {} as well from now on", list(given));
        }
        let now = has.as_ref().map_or_else(|| "everything".into(), list);
        let back: Vec<String> =
            taken.iter().take(SHOWN_MAX).map(|cameras| quoted(cameras.as_str())).collect();
        format!(
            "{who} may no longer {phrase} {}: its grants of {verb} are now for {now}; to give it back, run `mez keys grant {} {verb} {}` on the edge's host",
            list(taken),
            quoted(&who.to_string()),
            back.join(" "),
        )
    }
}

/// The first of them.
fn list(patterns: &BTreeSet<CameraPattern>) -> String {
    let names: Vec<&str> = patterns.iter().take(SHOWN_MAX).map(CameraPattern::as_str).collect();
    let more = if patterns.len() > SHOWN_MAX { " and more" } else { "" };
    format!("{}{more}", names.join(", "))
}
