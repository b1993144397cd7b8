//! Reports the changes between two looks at the edge, to any number of readers.
//!
//! The newest events are in one ring for all readers. Each reader has a position in the ring and takes the next events when its
//! connection can take them. So a stalled reader costs nothing. A reader that is overtaken is told how many events it missed.

mod compare;
mod happened;

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use self::happened::{About, Happened};
pub(super) use self::happened::{Reader, sees_groups_of};
use super::answers::Event;
use super::watcher::Look;

/// The length of the ring, in events.
pub(super) const EVENTS_MAX: usize = 1000;
/// The most past events that a new reader gets.
const REPLAYED_MAX: u64 = 200;

/// From when on the edge warns of something that approaches its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBounds {
    /// How long before its expiry a certificate is reported. Default: 7 days.
    pub certificate_ends_within: Duration,
    /// How many records of a camera a group may be behind. Default: 1000. It has caught up at half of this number.
    pub lag_records_max: u64,
}

impl Default for EventBounds {
    fn default() -> Self {
        Self { certificate_ends_within: Duration::from_secs(7 * 86_400), lag_records_max: 1000 }
    }
}

/// The newest events of an edge.
pub(super) struct Events {
    bounds: EventBounds,
    /// Names this start of the edge: its time in milliseconds since 1970.
    start: u64,
    ring: Mutex<VecDeque<Happened>>,
    /// The number of events so far.
    count: watch::Sender<u64>,
}

/// A reader's position: the number of the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor(u64);

/// What a reader gets next.
pub(super) struct Next {
    /// The events that the reader may see.
    pub(super) events: Vec<Event>,
    /// The position after these events.
    pub(super) cursor: Cursor,
}

impl Events {
    pub(super) fn new(start: u64, bounds: EventBounds) -> Self {
        Self { bounds, start, ring: Mutex::default(), count: watch::Sender::new(0) }
    }

    pub(super) fn bounds(&self) -> EventBounds {
        self.bounds
    }

    /// Changes whenever there are new events.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// The position at which a reader resumes that has read the event with the id `last`. Also a `missed` event, if the reader may have missed some.
    pub(super) fn resume(&self, last: Option<&str>, now_utc_ms: u64) -> (Cursor, Option<Event>) {
        let count = *self.count.borrow();
        let Some(last) = last else { return (Cursor(count.saturating_sub(REPLAYED_MAX)), None) };
        let number = last.split_once('-').and_then(|(start, number)| {
            (start.parse() == Ok(self.start)).then(|| number.parse::<u64>().ok()).flatten()
        });
        match number.filter(|number| *number <= count) {
            Some(number) => (Cursor(number), None),
            None => {
                // Everything that is known of this start of the edge.
                let cursor = Cursor(count.saturating_sub(EVENTS_MAX as u64));
                let sentence = "the edge was restarted since the last event, or the event is unknown: events before the edge's start are not available";
                let missed = self.missed(cursor, now_utc_ms, "unknown", sentence.into());
                (cursor, Some(missed))
            }
        }
    }

    /// The next events that this reader may see, at most `max`.
    pub(super) fn next(&self, cursor: Cursor, now_utc_ms: u64, (reader, max): (Reader<'_>, usize)) -> Next {
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
            if reader.may_know(&happened.about) {
                events.push(self.event(place, happened));
            }
            place += 1;
        }
        Next { events, cursor: Cursor(place) }
    }

    /// Adds the events of the first look: the cameras that are there, and everything that is not normal.
    pub(super) fn begin(&self, look: &Look) {
        self.push(compare::begin(look, self.bounds.certificate_ends_within));
    }

    /// Adds the changes between two looks.
    pub(super) fn compare(&self, before: &Look, after: &Look) {
        self.push(compare::changed(before, after, self.bounds.certificate_ends_within));
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

    /// The event at this position.
    fn event(&self, place: u64, happened: &Happened) -> Event {
        let Happened { utc_ms, kind, severity, about, of, state, before, sentence } = happened.clone();
        let (subscription, application) = of.unzip();
        let camera = if let About::Camera(camera) = about { Some(camera.to_string()) } else { None };
        Event {
            id: self.id(Cursor(place + 1)),
            utc_ms,
            kind,
            severity,
            camera,
            application,
            subscription: subscription.map(|id| id.0),
            state,
            before,
            sentence,
        }
    }

    /// An event that reports missed events. A reader that has read it resumes at `cursor`.
    fn missed(&self, cursor: Cursor, utc_ms: u64, state: &'static str, sentence: String) -> Event {
        let (id, kind, severity) = (self.id(cursor), "missed", "warning");
        let (camera, application, subscription, before) = (None, None, None, None);
        Event { id, utc_ms, kind, severity, camera, application, subscription, state, before, sentence }
    }

    /// The id of the event before a position. A reader that names this id has read everything before the position.
    fn id(&self, Cursor(next): Cursor) -> String {
        format!("{}-{next}", self.start)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Happened>> {
        // Each statement leaves the ring consistent, so a poisoned lock is safe to use.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use mez_core::rights::{Bearer, Grant, Granted, Rights, Stance, Verb};

    use super::*;

    fn happened(about: About) -> Happened {
        let (kind, severity, state) = ("camera", "info", "connected");
        Happened { utc_ms: 5, kind, severity, about, of: None, state, before: None, sentence: String::new() }
    }

    fn camera(name: &str) -> Happened {
        happened(About::Camera(name.parse().unwrap()))
    }

    /// What `app/x` may observe with a grant of this pattern.
    fn granted(pattern: &str) -> Granted {
        let grant = Grant {
            grantee: "app/x".parse().unwrap(),
            verb: Verb::Observe,
            cameras: pattern.parse().unwrap(),
        };
        let who = Bearer::App("x".parse().unwrap());
        Rights::new(Stance::Deny, [grant]).select(&who, &[Verb::Observe], &"**".parse().unwrap()).unwrap()
    }

    fn ids(next: &Next) -> Vec<&str> {
        next.events.iter().map(|event| event.id.as_str()).collect()
    }

    #[test]
    fn a_reader_goes_on_behind_its_last_event_and_learns_what_it_missed() {
        let events = Events::new(9, EventBounds::default());
        let (everything, dock) = (granted("**"), granted("dock/**"));
        let all = Reader { granted: &everything, who: &Bearer::Owner };
        events.push(vec![camera("dock/a"), camera("yard/b"), camera("dock/c")]);
        let (cursor, missed) = events.resume(None, 0);
        assert!(missed.is_none());
        let next = events.next(cursor, 0, (Reader { granted: &dock, who: &Bearer::Owner }, 10));
        assert_eq!(ids(&next), ["9-1", "9-3"], "what is told of others takes a number, and no more");
        assert_eq!(events.resume(Some("9-3"), 0).0, next.cursor);
        let (cursor, _) = events.resume(Some("9-1"), 0);
        assert_eq!(ids(&events.next(cursor, 0, (all, 1))), ["9-2"]);
        for other_start in ["8-0", "9-77", "", "9-x"] {
            let (begins, missed) = events.resume(Some(other_start), 0);
            let missed = missed.expect("something was missed");
            assert_eq!(missed.state, "unknown", "{other_start}");
            // A reader that loses its connection at this moment misses nothing.
            assert_eq!(events.resume(Some(&missed.id), 0).0, begins);
        }
        (0..EVENTS_MAX).for_each(|_| events.push(vec![camera("dock/a")]));
        let next = events.next(cursor, 0, (all, 2));
        assert_eq!(next.events[0].state, "dropped");
        assert!(next.events[0].sentence.starts_with("2 events"), "{}", next.events[0].sentence);
        assert_eq!((&*next.events[0].id, &*next.events[1].id), ("9-3", "9-4"));
        // The same for a reader that has read of the loss, and loses its connection before the first event that is left.
        assert_eq!(ids(&events.next(events.resume(Some("9-3"), 0).0, 0, (all, 1))), ["9-4"]);
        assert_eq!(events.lock().len(), EVENTS_MAX);
    }

    #[test]
    fn an_event_is_told_to_whoever_may_know_what_it_is_about() {
        let dock = granted("dock/**");
        let [counter, other] = ["counter", "other"].map(|name| Bearer::App(name.parse().unwrap()));
        let host = |names: &[&str]| About::Host(names.iter().map(|name| name.parse().unwrap()).collect());
        let knows = |who: &Bearer, about: &About| Reader { granted: &dock, who }.may_know(about);
        assert!(knows(&counter, &About::Edge));
        assert!(knows(&counter, &host(&["yard/a", "dock/b"])), "one of its cameras is enough");
        assert!(!knows(&counter, &host(&["yard/a"])));
        let group = About::Group(counter.clone());
        assert!(knows(&counter, &group) && knows(&Bearer::Owner, &group));
        assert!(!knows(&other, &group), "a group belongs to its owner");
    }
}
