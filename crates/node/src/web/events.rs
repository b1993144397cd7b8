//! Tells what has changed between two looks at the edge, to as many readers as want it.
//!
//! The newest events are kept in one ring for all. Each reader has a place in it and takes what comes next when its connection can take it, so a
//! reader that stands still costs nothing. If it is overtaken, it is told how many events it missed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::ContractState;
use mez_core::name::CameraName;
use mez_core::source::SourceState;
use tokio::sync::watch;

use super::answers::Event;
use super::fill::utc_ms;
use super::watcher::{Look, Looked};
use crate::edge::{AccountNow, GivenNow};

/// The most events that are kept.
pub(super) const EVENTS_MAX: usize = 1000;
/// The most of them that a reader gets at first.
const REPLAYED_MAX: u64 = 200;

/// The newest events of an edge.
pub(super) struct Events {
    /// Names this start of the edge: its time in milliseconds.
    start: u64,
    ring: Mutex<VecDeque<Happened>>,
    /// How many events there were.
    count: watch::Sender<u64>,
}

/// An event, without the place that it got.
#[derive(Clone, Debug)]
struct Happened {
    utc_ms: u64,
    kind: &'static str,
    severity: &'static str,
    camera: CameraName,
    of: Option<(SubscriptionId, String)>,
    state: &'static str,
    before: Option<&'static str>,
    sentence: String,
}

/// The place of a reader: the number of the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor(u64);

/// What a reader gets next.
pub(super) struct Next {
    /// Events of cameras that it may observe.
    pub(super) events: Vec<Event>,
    /// Where it goes on.
    pub(super) cursor: Cursor,
}

impl Events {
    pub(super) fn new(start: u64) -> Self {
        Self { start, ring: Mutex::default(), count: watch::Sender::new(0) }
    }

    /// Changes whenever there are new ones.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Where a reader begins that has had the event with this id, and what it is told first if it has missed some.
    pub(super) fn resume(&self, last: Option<&str>, now_utc_ms: u64) -> (Cursor, Option<Event>) {
        let count = *self.count.borrow();
        let Some(last) = last else { return (Cursor(count.saturating_sub(REPLAYED_MAX)), None) };
        let number = last.split_once('-').and_then(|(start, number)| {
            (start.parse() == Ok(self.start)).then(|| number.parse::<u64>().ok()).flatten()
        });
        match number.filter(|number| *number <= count) {
            Some(number) => (Cursor(number), None),
            None => {
                let cursor = Cursor(count.saturating_sub(REPLAYED_MAX));
                let sentence = "the edge was restarted since the last event, or the event is unknown: what happened before its start is not known";
                let missed = self.missed(cursor, now_utc_ms, "unknown", sentence.into());
                (cursor, Some(missed))
            }
        }
    }

    /// The next events of cameras that may be told, at most `max`.
    pub(super) fn next(
        &self,
        cursor: Cursor,
        now_utc_ms: u64,
        (may, max): (impl Fn(&CameraName) -> bool, usize),
    ) -> Next {
        let ring = self.lock();
        let count = *self.count.borrow();
        let first = count - ring.len() as u64;
        let mut events = Vec::new();
        let mut place = cursor.0;
        if place < first {
            let sentence = format!("{} events were dropped before they were read", first - place);
            events.push(self.missed(Cursor(first), now_utc_ms, "dropped", sentence));
            place = first;
        }
        while place < count && events.len() < max {
            let happened = &ring[(place - first) as usize];
            if may(&happened.camera) {
                events.push(self.event(place, happened));
            }
            place += 1;
        }
        Next { events, cursor: Cursor(place) }
    }

    /// What is already so at the first look and should be known: what is not as it should be.
    pub(super) fn begin(&self, look: &Look) {
        let mut found = Vec::new();
        look.cameras.iter().for_each(|looked| compare_camera(look, None, looked, &mut found));
        self.push(found);
    }

    /// Tells what has changed between two looks.
    pub(super) fn compare(&self, before: &Look, after: &Look) {
        let mut found = Vec::new();
        for looked in &after.cameras {
            compare_camera(after, before.camera(looked.name()), looked, &mut found);
        }
        for looked in before.cameras.iter().filter(|looked| after.camera(looked.name()).is_none()) {
            let connected = connection(looked);
            let sentence = "the edge has forgotten the camera".to_owned();
            found.push(Happened::of(after, looked, "camera", ("forgotten", Some(connected), sentence)));
        }
        compare_contracts(before, after, &mut found);
        self.push(found);
    }

    fn push(&self, found: Vec<Happened>) {
        let mut ring = self.lock();
        let many = found.len() as u64;
        for happened in found {
            if ring.len() == EVENTS_MAX {
                ring.pop_front();
            }
            ring.push_back(happened);
        }
        if many > 0 {
            self.count.send_modify(|count| *count += many);
        }
    }

    /// The event at this place.
    fn event(&self, place: u64, happened: &Happened) -> Event {
        let Happened { utc_ms, kind, severity, camera, of, state, before, sentence } = happened.clone();
        let (subscription, application) = of.unzip();
        Event {
            id: self.id(Cursor(place + 1)),
            utc_ms,
            kind,
            severity,
            camera: Some(camera.to_string()),
            application,
            subscription: subscription.map(|id| id.0),
            state,
            before,
            sentence,
        }
    }

    /// Whoever has read this goes on at `cursor`.
    fn missed(&self, cursor: Cursor, utc_ms: u64, state: &'static str, sentence: String) -> Event {
        let (id, kind, severity) = (self.id(cursor), "missed", "warning");
        let (camera, application, subscription, before) = (None, None, None, None);
        Event { id, utc_ms, kind, severity, camera, application, subscription, state, before, sentence }
    }

    /// The id of whatever comes before a place: whoever names it has had everything up to there.
    fn id(&self, Cursor(next): Cursor) -> String {
        format!("{}-{next}", self.start)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Happened>> {
        // Every statement leaves it whole.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Happened {
    fn of(
        look: &Look,
        looked: &Looked,
        kind: &'static str,
        (state, before, sentence): (&'static str, Option<&'static str>, String),
    ) -> Self {
        let severity = match state {
            "connected" | "live" | "ok" | "ended" | "forgotten" => "info",
            "degraded" => "error",
            _ => "warning",
        };
        let (utc_ms, camera) = (utc_ms(look.at_utc), looked.name().clone());
        Self { utc_ms, kind, severity, camera, of: None, state, before, sentence }
    }
}

fn connection(looked: &Looked) -> &'static str {
    if looked.camera.info.connected { "connected" } else { "absent" }
}

/// What has changed of a camera. Without a look before: what it is like, as far as it is not as usual.
fn compare_camera(look: &Look, before: Option<&Looked>, after: &Looked, found: &mut Vec<Happened>) {
    let (was, is) = (before.map(connection), connection(after));
    if was != Some(is) {
        let sentence = match is {
            "connected" => format!("camera {} is connected", after.name()),
            _ => format!("camera {} is not connected", after.name()),
        };
        found.push(Happened::of(look, after, "camera", (is, was, sentence)));
    }
    let source = |looked: &Looked| looked.camera.info.source.as_ref().map(|source| source.state);
    let (was, is) = (before.and_then(source), source(after));
    if let (true, Some(standing)) = (was != is, &after.camera.info.source)
        && (was.is_some() || standing.state != SourceState::Live)
    {
        let sentence = standing.sentence().unwrap_or_else(|| "the source gives frames".into());
        let state = (standing.state.name(), was.map(SourceState::name), sentence);
        found.push(Happened::of(look, after, "source", state));
    }
    let degraded = |looked: &Looked| {
        looked.store.as_ref().and_then(|store| store.degraded.as_ref()).map(ToString::to_string)
    };
    let (was, is) = (before.and_then(degraded), degraded(after));
    if was.is_some() != is.is_some() {
        let name = |is_degraded: bool| if is_degraded { "degraded" } else { "ok" };
        let state = (name(is.is_some()), before.map(|_| name(was.is_some())));
        let sentence = is.unwrap_or_else(|| "frames are written to disk again".into());
        found.push(Happened::of(look, after, "store", (state.0, state.1, sentence)));
    }
}

/// What has changed of the contracts of applications.
fn compare_contracts(before: &Look, after: &Look, found: &mut Vec<Happened>) {
    let known: BTreeMap<SubscriptionId, &AccountNow> =
        before.subscriptions.iter().map(|account| (account.id, account)).collect();
    for account in after.subscriptions.iter().filter(|account| !account.asked.looks_on) {
        for (camera, given) in &account.cameras {
            let state = |given: &GivenNow| given.state.as_ref().map(|(state, ..)| *state);
            // Accounts are newer than cameras. Of one that was not there nothing was told.
            let told = before.camera(camera).and_then(|_| known.get(&account.id));
            let was = told.and_then(|before| before.cameras.get(camera)).and_then(state);
            let (Some((is, reason, _)), Some(looked)) = (&given.state, after.camera(camera)) else {
                continue;
            };
            if was == Some(*is) || (was.is_none() && *is == ContractState::Unverified) {
                continue;
            }
            let event = Happened::of(
                after,
                looked,
                "contract",
                (is.name(), was.map(ContractState::name), reason.clone()),
            );
            let severity = match is {
                ContractState::Ok => "info",
                ContractState::Unverified | ContractState::Drifted => "warning",
                _ => "error",
            };
            let of = Some((account.id, account.asked.application.clone()));
            found.push(Happened { severity, of, ..event });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happened(camera: &str) -> Happened {
        Happened {
            utc_ms: 5,
            kind: "camera",
            severity: "info",
            camera: camera.parse().unwrap(),
            of: None,
            state: "connected",
            before: None,
            sentence: String::new(),
        }
    }

    fn ids(next: &Next) -> Vec<&str> {
        next.events.iter().map(|event| event.id.as_str()).collect()
    }

    #[test]
    fn a_reader_goes_on_behind_its_last_event_and_learns_what_it_missed() {
        let events = Events::new(9);
        let all = |_: &CameraName| true;
        events.push(vec![happened("dock/a"), happened("yard/b"), happened("dock/c")]);
        let (cursor, missed) = events.resume(None, 0);
        assert!(missed.is_none());
        let next = events.next(cursor, 0, (|camera: &CameraName| camera.as_str().starts_with("dock"), 10));
        assert_eq!(ids(&next), ["9-1", "9-3"], "what is told of others takes a number, and no more");
        assert_eq!(events.resume(Some("9-3"), 0).0, next.cursor);
        let (cursor, _) = events.resume(Some("9-1"), 0);
        assert_eq!(ids(&events.next(cursor, 0, (all, 1))), ["9-2"]);
        for other_start in ["8-0", "9-77", "", "9-x"] {
            let (begins, missed) = events.resume(Some(other_start), 0);
            let missed = missed.expect("something was missed");
            assert_eq!(missed.state, "unknown", "{other_start}");
            // A reader that is lost just then misses nothing.
            assert_eq!(events.resume(Some(&missed.id), 0).0, begins);
        }
        (0..EVENTS_MAX).for_each(|_| events.push(vec![happened("dock/a")]));
        let next = events.next(cursor, 0, (all, 2));
        assert_eq!(next.events[0].state, "dropped");
        assert!(next.events[0].sentence.starts_with("2 events"), "{}", next.events[0].sentence);
        assert_eq!((&*next.events[0].id, &*next.events[1].id), ("9-3", "9-4"));
        // The same for a reader that has heard of the loss, and is lost before the first event that is left.
        assert_eq!(ids(&events.next(events.resume(Some("9-3"), 0).0, 0, (all, 1))), ["9-4"]);
        assert_eq!(events.lock().len(), EVENTS_MAX);
    }
}
