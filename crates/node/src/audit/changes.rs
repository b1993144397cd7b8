//! Records changes of the rights.

use std::collections::BTreeSet;
use std::sync::Arc;

use mez_core::audit::{Event, Kind};
use mez_core::rights::{Grant, Rights, Stance};
use tokio::sync::watch;

use super::Audit;
use crate::clock::wall_now;
use crate::rights::{BEFORE, LiveRights};

/// The most grants that get a record of their own at one change. The others are counted in one record.
const CHANGES_MAX: usize = 64;
/// The author of changes. Only the edge's own user and root can write the file, and each can pass for the other.
const BY: &str = "rights.toml";

/// Records every change of the rights, until the edge stops.
pub(crate) async fn follow(mut rights: LiveRights, audit: Audit, mut stopped: watch::Receiver<bool>) {
    let mut known = rights.notice();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = rights.changed() => {}
        }
        let now = rights.notice();
        changes(&known, &now).into_iter().for_each(|event| audit.note(event));
        known = now;
    }
}

/// The rights at the start of the edge, as a sentence.
pub(crate) fn summary(rights: &Rights) -> String {
    let stance = match rights.stance() {
        Stance::Deny => "only what is granted is allowed",
        Stance::Open => "everything that was allowed before grants existed",
    };
    let grants: Vec<&Grant> = rights.grants().collect();
    let text: String = grants.iter().map(|grant| format!("{grant}\n")).collect();
    let hash = mez_core::audit::RecordHash::of(text.as_bytes()).to_string();
    let count = grants.len();
    format!("{stance}; {count} {} (SHA-256 {})", if count == 1 { "grant" } else { "grants" }, &hash[..16])
}

fn changes(before: &Arc<Rights>, after: &Arc<Rights>) -> Vec<Event> {
    let event = || Event::new(wall_now(), Kind::Rights, BY);
    let mut events = Vec::new();
    if before.stance() != after.stance() {
        let (what, why) = match after.stance() {
            Stance::Deny => ("strict", "from now on, everything that no grant allows is refused"),
            Stance::Open => {
                ("open", "from now on, everything that was allowed before grants existed is allowed")
            }
        };
        events.push(event().what(what).why(why));
    }
    let (old, new): (BTreeSet<&Grant>, BTreeSet<&Grant>) =
        (before.grants().collect(), after.grants().collect());
    if new.is_empty() && !old.is_empty() {
        let count = old.len();
        let why = format!(
            "all {count} grants were removed at once; the previous grants are in {BEFORE}, in the same folder"
        );
        events.push(Event { count: count as u64, ..event().what("all grants removed").why(why) });
    }
    let given = new.difference(&old).map(|grant| ("granted", *grant));
    let changed: Vec<(&str, &Grant)> =
        old.difference(&new).map(|grant| ("taken back", *grant)).chain(given).collect();
    for (what, grant) in changed.iter().take(CHANGES_MAX) {
        events.push(event().what(*what).cameras(grant.cameras.as_str()).why(grant.to_string()));
    }
    if let Some(more) = changed.len().checked_sub(CHANGES_MAX).filter(|more| *more > 0) {
        let why = format!("more grants were added or removed at once; {}", summary(after));
        events.push(Event { count: more as u64, ..event().what("more").why(why) });
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(stance: Stance, grants: &[&str]) -> Arc<Rights> {
        let grant = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            Grant {
                grantee: words[0].parse().unwrap(),
                verb: words[1].parse().unwrap(),
                cameras: words[2].parse().unwrap(),
            }
        };
        Arc::new(Rights::new(stance, grants.iter().map(grant)))
    }

    #[test]
    fn a_change_says_what_was_given_and_what_was_taken() {
        let before = rights(Stance::Open, &["app/counter watch dock/*", "app/counter read dock/*"]);
        let after = rights(Stance::Deny, &["app/counter watch dock/*", "app/** observe **"]);
        let told: Vec<(String, String)> =
            changes(&before, &after).into_iter().map(|event| (event.what, event.why)).collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(what, why)| (what.as_str(), why.as_str())).collect();
        assert_eq!(
            told,
            [
                ("strict", "from now on, everything that no grant allows is refused"),
                ("taken back", "app/counter read 'dock/*'"),
                ("granted", "'app/**' observe '**'"),
            ]
        );
        assert_eq!(changes(&after, &after), []);
        assert_ne!(summary(&before), summary(&after));
    }

    /// This happens if the file was truncated. A summary comes first, then a record for each grant.
    #[test]
    fn that_all_grants_were_taken_back_is_said_first() {
        let before = rights(Stance::Deny, &["app/counter watch dock/*", "app/counter read dock/*"]);
        let told = changes(&before, &rights(Stance::Deny, &[]));
        assert_eq!((told.len(), &*told[0].what, told[0].count), (3, "all grants removed", 2), "{told:?}");
        assert!(
            told[0].why.contains("all 2 grants") && told[0].why.contains("rights.toml.before"),
            "{told:?}"
        );
    }

    #[test]
    fn a_thousand_grants_at_once_do_not_fill_the_log() {
        let many: Vec<String> = (0..1_000).map(|number| format!("app/a{number} watch **")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let told = changes(&rights(Stance::Deny, &[]), &rights(Stance::Deny, &many));
        assert_eq!((told.len(), told[CHANGES_MAX].count), (CHANGES_MAX + 1, 936));
    }
}
