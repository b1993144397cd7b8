//! Decides which connections of cameras may stay, and holds what is known of each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::arrivals::Arrivals;
use super::types::{CaptureClock, EdgeOutput, Peer};
use crate::broker::{LinkId, PEER_SILENCE_MAX, PING_INTERVAL, REST_PING_INTERVAL, REST_SILENCE_MAX};
use crate::clock::{ClockEstimator, Exchange};
use crate::frame::{Epoch, FrameId};
use crate::name::CameraName;
use crate::units::{ClockAnchor, Instant};
use crate::wire::{Abilities, FrameHeader, Message};

/// How long a connection may take to send its [`Message::Hello`].
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);
/// After this long without a message, a connection is given up.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How many pongs are needed before the one-way delay counts as measured: the pings of two
/// seconds. Only pongs while no frame is arriving count, because a pong would wait behind a frame.
const ANSWERS_MIN: u32 = 8;
/// After this long without bytes of any frame, a connection was silent. Pings do not
/// count: while a link carries next to nothing, they arrive between the bytes of a frame.
const SILENCE_MIN: Duration = Duration::from_millis(300);
/// Soon after a silence, a pause longer than this continues it: a link that carries next to nothing still delivers a few bytes now and then.
const SILENCE_AGAIN_MIN: Duration = Duration::from_millis(100);
/// How soon after a silence a pause longer than [`SILENCE_AGAIN_MIN`] continues it.
const SILENCE_AGAIN_WITHIN: Duration = Duration::from_secs(1);
/// A frame that was sent less than this time and two round trips before a silence ended has not waited in the network.
const CROSSING_MAX: Duration = Duration::from_millis(100);
/// The minimum time that a stale frame waits for a newer one, beside two round trips: enough to encode a frame and to send it over a slow link.
const STALE_WAIT_MIN: Duration = Duration::from_millis(250);
/// The maximum time after a silence that stale frames wait. Up to this maximum they wait as long as the silence lasted. After a long silence
/// the camera must first notice that the link is back. Its first frame is then a keyframe, sent while the congestion window opens again.
const STALE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The assumed time between frames while the camera's frame rate is not known.
const INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// The most connections that have not said which camera they are; each further one is closed. The number of cameras limits the other connections.
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
    /// When the last silence ended that continued no earlier one.
    first_end: Instant,
    /// How long the silence lasted that ended at `first_end`.
    lasted: Duration,
}

/// A connection.
pub(super) struct Connection {
    pub(super) id: LinkId,
    pub(super) peer: Peer,
    /// The camera's start, once the connection was accepted.
    pub(super) session: Option<Session>,
    /// What the camera can do, once it has said so.
    pub(super) abilities: Option<Abilities>,
    opened: Instant,
    pub(super) heard: Instant,
    /// When bytes of a frame last arrived. Before the first frame: when the connection was made.
    carried: Instant,
    silence: Option<Silence>,
    /// When the last ping went.
    pinged: Instant,
    /// When the next ping goes, unless the connection rests.
    ping_due: Instant,
    wanted: Wanted,
    pub(super) clock: ClockEstimator,
    /// How many pongs arrived while no frame was arriving.
    answers: u32,
    pub(super) arrivals: Arrivals,
}

/// Whether somebody wants frames of a connection's camera.
#[derive(Clone, Copy)]
enum Wanted {
    /// Nobody. The camera was told so, and may ping less often.
    No,
    /// Somebody. No ping has followed the demand yet.
    Demanded,
    /// Somebody. This was the first ping behind the demand.
    Asked(Instant),
    /// Somebody. The camera has the demand, because it has answered a later ping.
    Yes,
}

/// A connection on which messages can still be sent to a camera.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) link: LinkId,
    /// The first frame of the chain that is being taken.
    pub(super) chain: Option<FrameId>,
}

impl Connection {
    /// The connection was accepted as that of a camera.
    pub(super) fn handle_taken_in(&mut self, now: Instant, session: Session) {
        debug_assert!(self.session.is_none(), "a connection is taken in twice");
        self.session = Some(session);
        self.ping_due = now;
    }

    /// Somebody wants frames of the camera now, or nobody does any more. Returns the message that lets the camera rest.
    fn handle_wanted(&mut self, is_wanted: bool) -> Option<EdgeOutput> {
        match (is_wanted, self.wanted) {
            (true, Wanted::No) => self.wanted = Wanted::Demanded,
            (true, _) => {}
            (false, _) => self.wanted = Wanted::No,
        }
        (!is_wanted).then_some(EdgeOutput::Send { link: self.id, message: Message::Rest })
    }

    /// When the camera counts as silent, if nothing more is heard. A camera that nobody wants pings less often.
    pub(super) fn silent_from(&self) -> Instant {
        let from = match self.wanted {
            Wanted::Yes => self.heard + PEER_SILENCE_MAX,
            Wanted::No | Wanted::Demanded => self.heard + REST_SILENCE_MAX,
            // Its answer has to come back.
            Wanted::Asked(asked) => {
                let way = self.clock.round_trip_time_min().unwrap_or_default();
                self.heard.max(asked + way) + PEER_SILENCE_MAX
            }
        };
        // Silence must exceed its limit.
        from + Duration::from_nanos(1)
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

    /// A message or part of a frame arrived.
    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Bytes of a frame arrived. Notes the silence that they end, if there was one.
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

    /// Until when a newer frame may come right behind this one. `None`: the frame is not stale. A stale frame
    /// was captured before the last silence ended and waited in the network, and the camera has captured
    /// newer frames since, one per `interval`. After the silence these arrive in a burst, oldest first.
    pub(super) fn stale_until(
        &self,
        now: Instant,
        header: &FrameHeader,
        interval: Option<Duration>,
    ) -> Option<Instant> {
        let (clock, meta) = (self.clock.estimate(now)?, &header.meta);
        let Silence { end, lasted, .. } = self.silence?;
        // The frame did not wait in the network: the camera had nothing to send during the silence.
        if clock.to_ours(header.sent) + clock.round_trip_time * 2 + clock.error + CROSSING_MAX >= end {
            return None;
        }
        let soon = now + clock.round_trip_time * 2 + STALE_WAIT_MIN;
        let until = soon.max(end + lasted).min(end + STALE_WAIT_MAX);
        let (captured, error) = self.capture_clock(now)?.captured_at(meta.id, meta.captured)?;
        // The camera's newest frame may be this old when the link is back.
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

    /// Maps its camera's capture times to the edge's clock.
    pub(super) fn capture_clock(&self, now: Instant) -> Option<CaptureClock> {
        let Session { epoch, anchor, .. } = self.session.as_ref()?;
        Some(CaptureClock::new(now, *epoch, *anchor, self.clock.estimate(now)?))
    }

    /// The minimum one-way delay of the camera's path. `None` before it is measured well: the
    /// first pongs may have waited behind the first frames, or behind the start of a codec.
    pub(super) fn one_way_delay(&self, now: Instant) -> Option<Duration> {
        let clock = self.clock.estimate(now).filter(|_| self.answers >= ANSWERS_MIN)?;
        Some(clock.round_trip_time / 2)
    }

    /// The camera has answered a ping.
    pub(super) fn handle_answer(&mut self, exchange: Exchange) {
        self.clock.record(exchange);
        if matches!(self.wanted, Wanted::Asked(asked) if exchange.t1 >= asked) {
            self.wanted = Wanted::Yes;
        }
        if self.carried <= exchange.t1 && self.arrivals.is_empty() {
            self.answers = self.answers.saturating_add(1);
        }
    }

    /// Why the connection is given up, if it is.
    fn is_given_up(&self, now: Instant) -> Option<&'static str> {
        if self.session.is_none() && now.saturating_since(self.opened) >= HELLO_TIME_MAX {
            Some("the camera did not say its name in time")
        } else if now.saturating_since(self.heard) >= LINK_SILENCE_MAX {
            Some("no message from the camera for too long")
        } else {
            None
        }
    }

    /// When the connection must be pinged, or closed because it has not said which camera it is.
    fn due(&self) -> Instant {
        if self.session.is_some() { self.ping_due() } else { self.opened + HELLO_TIME_MAX }
    }

    /// When the next ping goes. If nobody wants frames, it goes later, if the camera was heard since the last one.
    fn ping_due(&self) -> Instant {
        let is_measured = self.answers >= ANSWERS_MIN && self.arrivals.is_empty();
        match matches!(self.wanted, Wanted::No) && is_measured && self.heard >= self.pinged {
            true => self.ping_due + (REST_PING_INTERVAL - PING_INTERVAL),
            false => self.ping_due,
        }
    }
}

/// What is due on connections.
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

    /// The connections on which a complete frame has waited long enough.
    pub(super) fn held(&self, now: Instant) -> Vec<LinkId> {
        let due = |link: &&Connection| link.arrivals.held_until().is_some_and(|until| now >= until);
        self.links.values().filter(due).map(|link| link.id).collect()
    }

    /// When something is due on a connection.
    pub(super) fn due(&self) -> Option<Instant> {
        let held = self.links.values().filter_map(|link| link.arrivals.held_until());
        self.links.values().map(Connection::due).chain(held).min()
    }

    /// A connection was made. It is closed at once if there are too many that have not said which camera they are.
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
            pinged: now,
            ping_due: now,
            wanted: Wanted::Yes,
            clock: ClockEstimator::default(),
            answers: 0,
            arrivals: Arrivals::default(),
        };
        let before = self.links.insert(id, link);
        // The driver gives each connection a new number.
        debug_assert!(before.is_none(), "two connections have the number {}", id.0);
        None
    }

    /// Somebody wants frames of a connection's camera now, or nobody does any more.
    pub(super) fn handle_wanted(&mut self, link: LinkId, is_wanted: bool) -> Option<EdgeOutput> {
        self.links.get_mut(&link)?.handle_wanted(is_wanted)
    }

    /// Returns the pings that are due, and the connections that are given up.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Due {
        let (mut outputs, mut given_up) = (Vec::new(), Vec::new());
        for (&id, link) in &mut self.links {
            given_up.extend(link.is_given_up(now).map(|reason| (id, reason)));
            if link.session.is_some() && now >= link.ping_due() {
                (link.pinged, link.ping_due) = (now, now + PING_INTERVAL);
                if matches!(link.wanted, Wanted::Demanded) {
                    link.wanted = Wanted::Asked(now);
                }
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
