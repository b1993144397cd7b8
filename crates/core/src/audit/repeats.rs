//! Counts repeated events, so that a flood of them cannot evict important records from a bounded log.
//!
//! The first event of a sort is recorded at once. Equal events after it are counted, and reported in one record after a
//! minute, then after two, four and so on, at most an hour. After an hour without any, the sort is forgotten. Only a
//! bounded number of principals is told apart, and a bounded number of sorts for each kind and principal; the rest of a
//! kind counts as one sort. Kinds do not share these bounds: refusals do not displace readings. The rest of readings and
//! exports names its cameras, in several records if one has no room for them, and reaches from the first frame to the last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::event::{Event, Kind, TEXT_BYTES_MAX};
use super::span::Span;
use crate::units::{Instant, Timestamp};

/// How long the first repeats of an event are counted before they are reported.
pub const INTERVAL_MIN: Duration = Duration::from_secs(60);
/// The longest time for which repeats are counted before they are reported.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3_600);
/// The most members of the site and users of the host that are told apart.
pub const MEMBERS_MAX: usize = 256;
/// The most sorts of events that are told apart for each kind and member.
pub const MEMBERS_THINGS_MAX: usize = 8;
/// The most addresses of strangers that are told apart. Few, because anybody can have many addresses.
pub const STRANGERS_MAX: usize = 8;
/// The most sorts of events that are told apart for each kind and stranger.
pub const STRANGERS_THINGS_MAX: usize = 3;

/// The most cameras that are named for the rest of one principal's readings or exports.
pub const CAMERAS_MAX: usize = 1_024;

/// The most different texts of `what` that one record names.
const WHATS_MAX: usize = 4;

/// The principal that repeats an event, as far as principals are told apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Member(String),
    Stranger(String),
    OtherMembers,
    OtherStrangers,
}

/// The sort of a repeated event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    kind: Kind,
    /// `None`: one of the sorts that are not told apart.
    which: Option<[String; 4]>,
}

#[derive(Debug)]
struct Seen {
    due: Instant,
    interval: Duration,
    /// Repeats that are not reported yet.
    untold: Option<Untold>,
}

#[derive(Debug)]
struct Untold {
    last: Event,
    first: Timestamp,
    count: u64,
    /// The frames of all readings together.
    span: Option<Span>,
    named: Named,
}

/// The cameras of the rest of readings or exports.
#[derive(Debug, Default)]
struct Named {
    /// How often each camera was read, for at most [`CAMERAS_MAX`] cameras.
    cameras: BTreeMap<String, u64>,
    whats: BTreeSet<String>,
    /// How often further cameras were read.
    left_out: u64,
    /// How often a reading was of no existing camera.
    of_none: u64,
}

/// The recent events, and their repeats.
#[derive(Debug, Default)]
pub struct Repeats(BTreeMap<Who, BTreeMap<Thing, Seen>>);

impl Repeats {
    /// Handles an event. Returns what to record of it now, if anything.
    pub fn handle(&mut self, now: Instant, event: Event) -> Option<Event> {
        if !event.kind.is_repeatable() {
            return Some(event);
        }
        let who = self.who(&event);
        let things_max = match who {
            Who::Member(_) => MEMBERS_THINGS_MAX,
            _ => STRANGERS_THINGS_MAX,
        };
        let things = self.0.entry(who).or_default();
        let mut thing = Thing { kind: event.kind, which: Some(which(&event)) };
        let alike = things.keys().filter(|known| known.kind == event.kind && known.which.is_some()).count();
        if !things.contains_key(&thing) && alike >= things_max {
            thing.which = None;
        }
        match things.get_mut(&thing) {
            None => {
                let seen = Seen { due: now + INTERVAL_MIN, interval: INTERVAL_MIN, untold: None };
                things.insert(thing, seen);
                Some(event)
            }
            Some(seen) => {
                seen.untold = Some(Untold::with(seen.untold.take(), event));
                None
            }
        }
    }

    /// The repeats that are due, as records.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Event> {
        self.tell(|seen| seen.due <= now, now)
    }

    /// All repeats that are not reported yet, because the log ends.
    pub fn finish(&mut self) -> Vec<Event> {
        let told = self.tell(|_| true, Instant::from_nanos(0));
        self.0.clear();
        told
    }

    /// When [`Repeats::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.0.values().flat_map(BTreeMap::values).map(|seen| seen.due).min()
    }

    fn tell(&mut self, is_due: impl Fn(&Seen) -> bool, now: Instant) -> Vec<Event> {
        let mut told = Vec::new();
        for (who, things) in &mut self.0 {
            things.retain(|thing, seen| {
                if !is_due(seen) {
                    return true;
                }
                let untold = seen.untold.take();
                let is_over = untold.is_none() && seen.interval >= INTERVAL_MAX;
                seen.interval = (seen.interval * 2).min(INTERVAL_MAX);
                seen.due = now + seen.interval;
                told.extend(untold.into_iter().flat_map(|untold| untold.into_events(who, thing)));
                !is_over
            });
        }
        self.0.retain(|_, things| !things.is_empty());
        told
    }

    /// The principal that an event counts for.
    fn who(&self, event: &Event) -> Who {
        // A client that proved its identity has a role: app/counter. An address has none.
        let is_member = event.who.contains('/');
        let known = if is_member { Who::Member(event.who.clone()) } else { Who::Stranger(event.who.clone()) };
        let is_alike = |who: &&Who| {
            matches!(who, Who::Member(_)) == is_member && matches!(who, Who::Member(_) | Who::Stranger(_))
        };
        let max = if is_member { MEMBERS_MAX } else { STRANGERS_MAX };
        if self.0.contains_key(&known) || self.0.keys().filter(is_alike).count() < max {
            known
        } else if is_member {
            Who::OtherMembers
        } else {
            Who::OtherStrangers
        }
    }
}

/// What tells events of one principal and kind apart.
fn which(event: &Event) -> [String; 4] {
    // The reason of a reading names the frames, which always differ. The reason of a refusal tells attempts apart.
    let why = if event.kind == Kind::Refused { event.why.clone() } else { String::new() };
    [event.what.clone(), event.cameras.clone(), event.from.clone(), why]
}

impl Untold {
    /// Adds an event.
    fn with(before: Option<Self>, event: Event) -> Self {
        let Some(before) = before else {
            let mut named = Named::default();
            named.add(&event);
            return Self { first: event.at, count: event.count, span: event.span, named, last: event };
        };
        let span = match (before.span, event.span) {
            (Some(one), Some(two)) => Some(one.with(two)),
            (one, two) => one.or(two),
        };
        let mut named = before.named;
        named.add(&event);
        Self { first: before.first, count: before.count + event.count, span, named, last: event }
    }

    fn into_events(self, who: &Who, thing: &Thing) -> Vec<Event> {
        let Self { last, first, count, span, named } = self;
        let others = match who {
            Who::Member(_) | Who::Stranger(_) => None,
            Who::OtherMembers => Some("other members"),
            Who::OtherStrangers => Some("other addresses"),
        };
        let why = span.map_or_else(|| last.why.clone(), |span| span.to_string());
        let is_of_cameras = last.kind.is_of_cameras();
        let event = match (others, &thing.which) {
            (None, Some(_)) => last.why(why),
            (Some(others), _) => {
                let why = format!("several records together; the last was {}: {why}", last.who);
                Event { who: others.into(), ..Event::new(last.at, last.kind, "") }.why(why)
            }
            (None, None) if is_of_cameras => {
                Event::new(last.at, last.kind, last.who).why(format!("several records together: {why}"))
            }
            (None, None) => {
                let last_was = [last.what.as_str(), &last.cameras, &last.from];
                let last_was: Vec<&str> = last_was.into_iter().filter(|text| !text.is_empty()).collect();
                let why = format!("several records together; the last was {}: {why}", last_was.join(" "));
                Event::new(last.at, last.kind, last.who).what("other").why(why)
            }
        };
        let event = Event { count, since: Some(first), ..event };
        let is_alone = others.is_none() && thing.which.is_some();
        if is_alone || !is_of_cameras { vec![event] } else { named.put(&event) }
    }
}

impl Named {
    fn add(&mut self, event: &Event) {
        if !event.kind.is_of_cameras() {
            return;
        }
        if self.whats.len() < WHATS_MAX {
            self.whats.insert(event.what.clone());
        }
        let has_room = self.cameras.len() < CAMERAS_MAX || self.cameras.contains_key(&event.cameras);
        let counted = if event.cameras.is_empty() {
            &mut self.of_none
        } else if has_room {
            self.cameras.entry(event.cameras.clone()).or_default()
        } else {
            &mut self.left_out
        };
        *counted += event.count;
    }

    /// The event as records that name all cameras, each record as many as it has room for.
    fn put(self, event: &Event) -> Vec<Event> {
        let Self { cameras, whats, left_out, of_none } = self;
        let what = format!("other: {}", whats.into_iter().collect::<Vec<String>>().join(", "));
        let mut parts: Vec<(String, u64)> = Vec::new();
        for (camera, count) in cameras {
            match parts.last_mut() {
                Some((names, counted)) if names.len() + 2 + camera.len() <= TEXT_BYTES_MAX => {
                    *names = format!("{names}, {camera}");
                    *counted += count;
                }
                _ => parts.push((camera, count)),
            }
        }
        let mut told: Vec<Event> = parts
            .into_iter()
            .map(|(names, count)| Event { count, ..event.clone().what(&*what).cameras(names) })
            .collect();
        if left_out > 0 {
            let why = format!("cameras beyond the first {CAMERAS_MAX}; {}", event.why);
            told.push(Event { count: left_out, ..event.clone().what(&*what).why(why) });
        }
        if of_none > 0 {
            let why = "cameras that do not exist";
            told.push(Event { count: of_none, ..event.clone().what(&*what).why(why) });
        }
        told
    }
}
