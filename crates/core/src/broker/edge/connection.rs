//! Decides which connections of cameras may stay, and holds what is known of each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::types::{CaptureClock, EdgeOutput, Peer};
use crate::broker::{LinkId, PING_INTERVAL};
use crate::clock::{ClockEstimator, Exchange};
use crate::frame::{Epoch, FrameId};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Abilities, FrameHeader, Message};

/// How long a connection may take to send its [`Message::Hello`].
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// After this long without a message, a connection is given up.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How many pings are answered before it is said how long the path takes: those of two seconds in which no frame is on its way.
/// Behind a frame an answer would wait for it.
const ANSWERS_MIN: u32 = 8;
/// A connection on which nothing of any frame came for longer than this was silent. While a link carries next to nothing,
/// pings come between the bytes of a frame.
const SILENCE_MIN: Duration = Duration::from_millis(300);
/// After a silence, a shorter one than that counts as its continuation: a link that carries next to nothing brings something
/// now and then.
const SILENCE_AGAIN_MIN: Duration = Duration::from_millis(100);
/// How long after a silence that is so.
const SILENCE_AGAIN_WITHIN: Duration = Duration::from_secs(1);
/// A frame whose first byte comes within this time and two round trips after the camera gave it to the link has not waited in the network.
const CROSSING_MAX: Duration = Duration::from_millis(100);
/// How long, beside two round trips, a stale frame waits for a newer one at least: time to make one and to send
/// it over a slow link.
const STALE_WAIT_MIN: Duration = Duration::from_millis(250);
/// How long after a silence stale frames wait at most. Up to this they wait for as long as the silence lasted:
/// after a long one the camera has to learn that the link is back, and its first frame is a whole picture that
/// goes through a window which opens anew.
const STALE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The time between frames that is assumed while the camera has not said how often it publishes.
const INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// The most connections that have not said which camera they are; one more is closed. Connections that have
/// said so are at most as many as the cameras.
pub const NAMELESS_LINKS_MAX: usize = 256;
/// The most of [`NAMELESS_LINKS_MAX`] from one identity. A camera broker dials at most eight times at once.
pub const NAMELESS_LINKS_OF_IDENTITY_MAX: usize = 16;

/// A start of a camera, on one connection.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) camera: CameraName,
    pub(super) epoch: Epoch,
    pub(super) attempt: u64,
    pub(super) anchor: ClockAnchor,
}

/// The last silence of a connection.
#[derive(Clone, Copy)]
struct Silence {
    /// When it ended.
    end: Instant,
    /// When the last one ended that continued no other, and how long that one lasted.
    first_end: Instant,
    lasted: Duration,
}

/// A connection.
pub(super) struct Connection {
    pub(super) id: LinkId,
    pub(super) peer: Peer,
    /// Whom it has been taken in as.
    pub(super) session: Option<Session>,
    /// What it can do, once it has said so.
    pub(super) abilities: Option<Abilities>,
    opened: Instant,
    pub(super) heard: Instant,
    /// When something of a frame last came; before the first, when the connection was made.
    carried: Instant,
    silence: Option<Silence>,
    ping_due: Instant,
    pub(super) clock: ClockEstimator,
    /// How many pings it has answered while no frame was on its way.
    answers: u32,
    pub(super) arrivals: Arrivals,
}

/// A connection on which something can still be said to a camera.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) link: LinkId,
    /// The first frame of the chain that is being taken.
    pub(super) chain: Option<FrameId>,
}

impl Connection {
    /// Its camera has been taken in.
    pub(super) fn handle_taken_in(&mut self, now: Instant, session: Session) {
        debug_assert!(self.session.is_none(), "a connection is taken in twice");
        self.session = Some(session);
        self.ping_due = now;
    }

    /// A ping or a pong arrived. Returns the answer to a ping.
    pub(super) fn handle_ping(&mut self, now: Instant, message: Message) -> Option<EdgeOutput> {
        match message {
            Message::Ping { t1 } => {
                let message = Message::Pong { t1, t2: now, t3: now };
                return Some(EdgeOutput::Send { link: self.id, message });
            }
            Message::Pong { t1, t2, t3 } => self.handle_answer(Exchange { t1, t2, t3, t4: now }),
            _ => {}
        }
        None
    }

    /// Something came on it.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Something of a frame came on it.
    pub(super) fn hear_frame(&mut self, now: Instant) {
        let lasted = now.saturating_since(self.carried);
        if lasted > SILENCE_MIN {
            self.silence = Some(Silence { end: now, first_end: now, lasted });
        } else if let Some(silence) = &mut self.silence
            && lasted > SILENCE_AGAIN_MIN
            && now.saturating_since(silence.first_end) < SILENCE_AGAIN_WITHIN
        {
            silence.end = now;
        }
        (self.heard, self.carried) = (now, now);
    }

    /// Until when a newer frame may come right behind this one: it was captured before the last silence ended,
    /// and the camera has captured others since, whose `interval` this is. They come in a burst with those that
    /// were in the network, oldest first. `None`: it is not stale.
    pub(super) fn stale_until(
        &self,
        now: Instant,
        header: &FrameHeader,
        interval: Option<Duration>,
    ) -> Option<Instant> {
        let (clock, meta) = (self.clock.estimate(now)?, &header.meta);
        let Silence { end, lasted, .. } = self.silence?;
        // It did not lie in the network meanwhile: it was the camera that had nothing to send.
        if clock.to_ours(header.sent) + clock.round_trip_time * 2 + clock.error + CROSSING_MAX >= end {
            return None;
        }
        let soon = now + clock.round_trip_time * 2 + STALE_WAIT_MIN;
        let until = soon.max(end + lasted).min(end + STALE_WAIT_MAX);
        let (captured, error) = self.capture_clock(now)?.captured_at(meta.id, meta.captured)?;
        // The newest frame may be as old as this when the link is back.
        let newest = interval.unwrap_or(INTERVAL_DEFAULT).mul_f64(1.5) + clock.round_trip_time + error;
        (now < until && captured + newest < end).then_some(until)
    }

    /// The camera whose frames come on this connection.
    pub(super) fn camera(&self) -> Option<&CameraName> {
        self.session.as_ref().map(|session| &session.camera)
    }

    /// The way to the camera. `None` if the connection is over.
    pub(super) fn way(&self) -> Option<Way> {
        let first = self.session.as_ref().zip(self.arrivals.chain());
        let chain = first.map(|(session, chain)| FrameId { epoch: session.epoch, sequence: chain });
        (!self.arrivals.is_over()).then_some(Way { link: self.id, chain })
    }

    /// How its camera's capture times map to instants of our clock.
    pub(super) fn capture_clock(&self, now: Instant) -> Option<CaptureClock> {
        let Session { epoch, anchor, .. } = self.session.as_ref()?;
        Some(CaptureClock::new(now, *epoch, *anchor, self.clock.estimate(now)?))
    }

    /// What a camera's path takes at least, one way. `None` before it is measured well: the first answers may
    /// have waited behind the first frames, or behind the start of a codec.
    pub(super) fn one_way_delay(&self, now: Instant) -> Option<Duration> {
        let clock = self.clock.estimate(now).filter(|_| self.answers >= ANSWERS_MIN)?;
        Some(clock.round_trip_time / 2)
    }

    /// The camera has answered a ping.
    pub(super) fn handle_answer(&mut self, exchange: Exchange) {
        self.clock.record(exchange);
        if self.carried <= exchange.t1 && self.arrivals.is_empty() {
            self.answers = self.answers.saturating_add(1);
        }
    }

    /// Why it is given up, if it is.
    fn is_given_up(&self, now: Instant) -> Option<&'static str> {
        if self.session.is_none() && now.saturating_since(self.opened) >= HELLO_TIME_MAX {
            Some("it did not say which camera it is")
        } else if now.saturating_since(self.heard) >= LINK_SILENCE_MAX {
            Some("nothing was heard of it")
        } else {
            None
        }
    }

    /// When the connection must be pinged, or closed because it has not said which camera it is.
    fn due(&self) -> Instant {
        if self.session.is_some() { self.ping_due } else { self.opened + HELLO_TIME_MAX }
    }
}

/// What is due of connections.
pub(super) struct Due {
    /// Pings.
    pub(super) outputs: Vec<EdgeOutput>,
    /// Connections that are given up, and why.
    pub(super) given_up: Vec<(LinkId, &'static str)>,
}

/// All connections.
#[derive(Default)]
pub(super) struct Connections {
    links: BTreeMap<LinkId, Connection>,
}

impl Connections {
    pub(super) fn get(&self, link: LinkId) -> Option<&Connection> {
        self.links.get(&link)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Connection> {
        self.links.get_mut(&link)
    }

    /// Those on which a frame that is whole has waited long enough.
    pub(super) fn held(&self, now: Instant) -> Vec<LinkId> {
        let due = |link: &&Connection| link.arrivals.held_until().is_some_and(|until| now >= until);
        self.links.values().filter(due).map(|link| link.id).collect()
    }

    /// When something is due on one of them.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.links.values().filter_map(|link| link.arrivals.held_until());
        self.links.values().map(Connection::due).chain(held).min()
    }

    /// A connection was made. One that would be more than may be is closed.
    pub(super) fn handle_connected(&mut self, now: Instant, id: LinkId, peer: Peer) -> Option<EdgeOutput> {
        let nameless = || self.links.values().filter(|link| link.session.is_none());
        let of_identity = nameless().filter(|link| link.peer.identity == peer.identity).count();
        if of_identity >= NAMELESS_LINKS_OF_IDENTITY_MAX || nameless().count() >= NAMELESS_LINKS_MAX {
            return Some(EdgeOutput::Close { link: id });
        }
        let link = Connection {
            id,
            peer,
            session: None,
            abilities: None,
            opened: now,
            heard: now,
            carried: now,
            silence: None,
            ping_due: now,
            clock: ClockEstimator::default(),
            answers: 0,
            arrivals: Arrivals::default(),
        };
        let before = self.links.insert(id, link);
        // Whoever makes connections numbers them anew.
        debug_assert!(before.is_none(), "two connections have the number {}", id.0);
        None
    }

    /// Looks after all of them.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Due {
        let (mut outputs, mut given_up) = (Vec::new(), Vec::new());
        for (&id, link) in &mut self.links {
            given_up.extend(link.is_given_up(now).map(|reason| (id, reason)));
            if link.session.is_some() && now >= link.ping_due {
                link.ping_due = now + PING_INTERVAL;
                outputs.push(EdgeOutput::Send { link: id, message: Message::Ping { t1: now } });
            }
        }
        Due { outputs, given_up }
    }

    /// A connection is gone.
    pub(super) fn remove(&mut self, link: LinkId) -> Option<Connection> {
        self.links.remove(&link)
    }
}
