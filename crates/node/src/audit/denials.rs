//! Records changes of the deny list.

use mez_core::audit::{Event, Kind};
use mez_core::revocation::Revocations;
use tokio::sync::watch;

use super::Audit;
use crate::clock::wall_now;
use crate::revocation::LiveRevocations;

/// The most subjects that get a record of their own at one change. The others are counted in one record.
const CHANGES_MAX: usize = 64;
/// The author of changes. The authority signs the list, and another edge may have delivered it.
const BY: &str = "revoked.list";

/// Records every change of the deny list, until the edge stops.
pub(crate) async fn follow(mut revoked: LiveRevocations, audit: Audit, mut stopped: watch::Receiver<bool>) {
    let mut known = revoked.notice();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            () = revoked.changed() => {}
        }
        let now = revoked.notice();
        changes(&known.list, &now.list).into_iter().for_each(|event| audit.note(event));
        known = now;
    }
}

fn changes(before: &Revocations, after: &Revocations) -> Vec<Event> {
    let event = || Event::new(wall_now(), Kind::Revoked, BY);
    let denied = after
        .entries()
        .filter(|(subject, entry)| before.get(subject) != Some(*entry))
        .map(|(subject, entry)| event().what(subject.to_string()).why(&*entry.because));
    let again = before
        .entries()
        .filter(|(subject, _)| after.get(subject).is_none())
        .map(|(subject, _)| event().what(subject.to_string()).why("accepted again"));
    let mut events: Vec<Event> = denied.chain(again).collect();
    if let Some(more) = events.len().checked_sub(CHANGES_MAX).filter(|more| *more > 0) {
        events.truncate(CHANGES_MAX);
        let why = format!("more entries at once; version {} of the deny list", after.version());
        events.push(Event { count: more as u64, ..event().what("more").why(why) });
    }
    events
}

#[cfg(test)]
mod tests {
    use mez_core::revocation::{Entry, Subject};
    use mez_core::units::Timestamp;

    use super::*;

    fn with(list: &Revocations, who: &str, because: &str) -> Revocations {
        let entry = Entry {
            since: Timestamp::from_nanos(1),
            until: Timestamp::from_nanos(u64::MAX),
            because: because.into(),
        };
        let subject: Subject = who.parse().unwrap();
        list.with(Timestamp::from_nanos(1), subject, entry).unwrap()
    }

    #[test]
    fn a_new_list_says_who_was_revoked_and_who_is_accepted_again() {
        let before = with(&Revocations::none("harbour"), "app/lent", "back on Monday");
        let after = with(&before, "camera/dock/cam1", "stolen");
        let after = after.without(&"app/lent".parse().unwrap()).unwrap();
        let told: Vec<(String, String)> =
            changes(&before, &after).into_iter().map(|event| (event.what, event.why)).collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(what, why)| (what.as_str(), why.as_str())).collect();
        assert_eq!(told, [("camera/dock/cam1", "stolen"), ("app/lent", "accepted again")]);
        assert_eq!(changes(&after, &after), []);
    }
}
