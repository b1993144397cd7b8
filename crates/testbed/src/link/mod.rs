//! Models a link between a camera host and an edge, and the connections on it, without sockets.
//!
//! All connections share one rate in each direction, with a bounded queue before the rate and a delay behind it. The bytes in flight of a connection
//! are bounded as on real links ([`mez_core::window`]). Each connection sends lost pieces first, then messages, then frames, the newest frame first.
//! The frames of an edge are its answers.
//! As long as the link holds, nothing is lost or reordered for the users of a connection, as with QUIC.
//!
//! While the link is *cut*, nothing passes, and neither end is told. Bytes in flight are sent again when the sender's next probe gets through. QUIC
//! doubles the time between two probes (RFC 9002, section 6.2), so an old connection may stay silent for as long again as the link was cut. Brokers
//! therefore dial a new connection.
//!
//! [`crate::channel`] explains how this model differs from other models of a path.
//!
//! A link is driven like a broker: call `handle_*` or a request, then [`Link::poll_output`] until it returns nothing, then wait until
//! [`Link::poll_timeout`].

mod connection;
mod direction;
mod incoming;
mod transmitter;
mod types;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::{DIAL_TIME_MAX, LinkId};
use mez_core::frame::FrameId;

use self::connection::{Connection, OutFrame};
use self::direction::{Chunk, Direction, Kind};
pub(crate) use self::transmitter::Transmitter;
use self::types::tell;
pub use self::types::{LinkOutput, LinkSpec, Side};
pub(crate) use self::types::{past_stream, request_of};
use crate::random::Random;
use crate::time::{Moment, ms, secs};

/// An end closes a connection after this long without a packet from the other end.
pub const IDLE_TIME_MAX: Duration = secs(10);
/// Pieces of a frame are of about this transmission time.
const PIECE_TIME_MS: u64 = 2;
/// The smallest piece of a frame, in bytes.
const PIECE_BYTES_MIN: u64 = 1200;
/// When the first message of a handshake is repeated. Each later repetition waits twice as long as the one before.
const HANDSHAKE_REPEAT: Duration = ms(150);
/// How long an end may delay an acknowledgement. It is part of the time between two probes.
const ACKNOWLEDGE_DELAY: Duration = ms(25);

struct Dial {
    id: LinkId,
    owner: u64,
    gives_up: Moment,
    /// When the first message is sent (again).
    next_try: Moment,
    pause: Duration,
    /// When the handshake completes, if the link is not cut before.
    completes: Option<Moment>,
}

/// A link. See the [module](self).
pub struct Link {
    spec: LinkSpec,
    random: Random,
    next_id: u64,
    directions: [Direction; 2],
    connections: BTreeMap<LinkId, Connection>,
    dials: Vec<Dial>,
    cut: bool,
    edge_listens: bool,
    /// For each direction, the connection that was served last. Service continues with the next connection.
    turn: [LinkId; 2],
    outputs: VecDeque<LinkOutput>,
}

impl Link {
    /// A link to an edge that listens. `first_id` is the number before that of the first connection.
    pub fn new(spec: LinkSpec, random: Random, first_id: u64) -> Self {
        Self {
            spec,
            random,
            next_id: first_id,
            directions: [
                Direction::new(spec.bits_per_second, spec.delay_up, spec.queue_bytes_max),
                Direction::new(spec.bits_per_second, spec.delay_down, spec.queue_bytes_max),
            ],
            connections: BTreeMap::new(),
            dials: Vec::new(),
            cut: false,
            edge_listens: true,
            turn: [LinkId(0); 2],
            outputs: VecDeque::new(),
        }
    }

    /// A link on a medium that other links share. The medium learns what enters the queues from
    /// [`Link::take_queued`], and reports transmissions with [`Link::handle_transmitted`].
    pub fn shared(spec: LinkSpec, random: Random, first_id: u64) -> Self {
        let mut link = Self::new(spec, random, first_id);
        link.directions.iter_mut().for_each(Direction::share);
        link
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Whether the link is cut.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// The present parameters of the link.
    pub fn spec(&self) -> LinkSpec {
        self.spec
    }

    /// How many live frames or answers of a side have unsent bytes on a connection.
    pub fn unsent_frames(&self, from: Side, connection: LinkId) -> usize {
        self.connections.get(&connection).map_or(0, |known| known.end(from).unsent_frames())
    }

    /// Unsent bytes of the payload of a camera's frame.
    pub fn unsent_bytes(&self, connection: LinkId, frame: FrameId) -> u64 {
        self.connections.get(&connection).map_or(0, |known| known.end(Side::Camera).unsent_bytes(frame))
    }

    /// The congestion window of a connection as long as its path was never full. `None` afterwards.
    pub fn opening(&self, connection: LinkId) -> Option<u64> {
        self.connections.get(&connection).and_then(|known| known.end(Side::Camera).opening())
    }

    /// How many frames of the past have unsent bytes on a connection. [`Link::unsent_frames`] does not count them.
    pub fn unsent_past(&self, connection: LinkId) -> usize {
        self.connections.get(&connection).map_or(0, |known| known.end(Side::Camera).unsent_past())
    }

    /// Whether a side has nothing in its queue and no lost piece to send again.
    pub fn is_idle(&self, from: Side) -> bool {
        self.directions[from as usize].is_idle()
            && !self.connections.values().any(|connection| connection.end(from).is_repairing())
    }

    /// How many connections a side has open.
    pub fn open_connections(&self, side: Side) -> usize {
        self.connections.values().filter(|connection| connection.end(side).open).count()
    }

    /// How many dials are in progress.
    pub fn dials(&self) -> usize {
        self.dials.len()
    }

    // ---- requests of the two sides ------------------------------------------------------------------------

    /// Begins to connect. The dial ends with [`LinkOutput::Dialled`] or [`LinkOutput::DialFailed`].
    pub fn dial(&mut self, now: Moment, owner: u64) {
        self.next_id += 1;
        self.dials.push(Dial {
            id: LinkId(self.next_id),
            owner,
            gives_up: now + DIAL_TIME_MAX,
            next_try: now,
            pause: HANDSHAKE_REPEAT,
            completes: None,
        });
        self.handle_dials(now);
    }

    /// Sends a message.
    pub fn send(&mut self, now: Moment, from: Side, connection: LinkId, message: Bytes) {
        self.say(now, from, connection, Kind::Message(message));
    }

    /// Sends a frame, or the answer to a frame, on a stream of its own.
    pub fn send_frame(
        &mut self,
        now: Moment,
        (from, id): (Side, LinkId),
        frame: FrameId,
        (header, payload): (Bytes, Bytes),
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = connection.end_mut(from);
        end.send_frame(OutFrame { frame, header: Some(header), payload, sent: 0 });
        self.pump(now, from);
    }

    /// Cancels a frame or an answer. Bytes that have left still arrive.
    pub fn reset(&mut self, now: Moment, (from, id): (Side, LinkId), frame: FrameId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.end_mut(from).drop_frame(frame);
        }
        self.call(now, from, id, Kind::Reset(frame));
    }

    /// Tells the sender of a frame or an answer that the side `at` does not want it.
    pub fn stop(&mut self, now: Moment, (at, id): (Side, LinkId), frame: FrameId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.end_mut(at).incoming.drop_frame(frame);
        }
        self.call(now, at, id, Kind::Stop(frame));
    }

    /// Closes a connection. The camera drops what is unsent; the edge's earlier messages are still sent.
    pub fn close(&mut self, now: Moment, from: Side, id: LinkId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = connection.end_mut(from);
        if !end.open {
            return;
        }
        end.open = false;
        match from {
            Side::Camera => {
                end.drop_all();
                end.call(Kind::Close);
            }
            Side::Edge => {
                end.drop_frames();
                end.say(Kind::Close);
            }
        }
        self.pump(now, from);
    }

    // ---- faults -------------------------------------------------------------------------------------------

    /// Changes the rate of both directions.
    pub fn set_rate(&mut self, now: Moment, bits_per_second: u64) {
        self.spec.bits_per_second = bits_per_second;
        for direction in &mut self.directions {
            direction.set_rate(now, bits_per_second);
        }
    }

    /// Cuts the link: nothing passes, and neither end is told.
    pub fn cut(&mut self, now: Moment) {
        if self.cut {
            return;
        }
        self.cut = true;
        for dial in &mut self.dials {
            dial.completes = None;
        }
        for connection in self.connections.values_mut() {
            if connection.resumes.is_none() {
                connection.silent_since = now;
            }
            connection.resumes = Some(Moment::NEVER);
        }
        for side in Side::BOTH {
            let lost = self.directions[side as usize].lose_all();
            for connection in self.connections.values_mut() {
                let id = connection.id;
                let end = connection.end_mut(side);
                if end.open {
                    end.lost(lost.iter().filter(|chunk| chunk.connection == id).cloned().collect());
                }
            }
            self.pump(now, side);
        }
    }

    /// Restores the link. Each connection works again from its next probe on.
    pub fn restore(&mut self, now: Moment) {
        if !self.cut {
            return;
        }
        self.cut = false;
        let round_trip_time = self.spec.round_trip_time();
        for connection in self.connections.values_mut() {
            let mut pause = round_trip_time + round_trip_time / 2 + ACKNOWLEDGE_DELAY;
            let mut probe = connection.silent_since + pause;
            while probe < now {
                pause *= 2;
                probe = probe + pause;
            }
            connection.resumes = Some(probe);
        }
    }

    /// Ends every connection. Both sides are told at once.
    pub fn break_all(&mut self, now: Moment) {
        for direction in &mut self.directions {
            direction.lose_all();
        }
        for (id, connection) in std::mem::take(&mut self.connections) {
            for to in Side::BOTH {
                if connection.end(to).open {
                    self.outputs.push_back(LinkOutput::Closed { to, connection: id });
                }
            }
        }
        for side in Side::BOTH {
            self.pump(now, side);
        }
    }

    /// Ends all dials of a process of the camera host.
    pub fn give_up_dials(&mut self, owner: u64) {
        self.dials.retain(|dial| dial.owner != owner);
    }

    /// Ends a process of the camera host, without closing its connections.
    pub fn lose_owner(&mut self, owner: u64) {
        self.give_up_dials(owner);
        for connection in self.connections.values_mut().filter(|connection| connection.owner == owner) {
            let end = connection.end_mut(Side::Camera);
            end.open = false;
            end.drop_all();
        }
    }

    /// Ends the edge's process, without closing its connections.
    pub fn lose_edge(&mut self) {
        self.edge_listens = false;
        for connection in self.connections.values_mut() {
            let end = connection.end_mut(Side::Edge);
            (end.open, end.was_open) = (false, true);
            end.drop_all();
        }
    }

    /// Starts an edge again. It resets connections that it does not know.
    pub fn edge_listens(&mut self) {
        self.edge_listens = true;
    }

    // ---- time ---------------------------------------------------------------------------------------------

    /// The next event, if there is one.
    pub fn poll_output(&mut self) -> Option<LinkOutput> {
        self.outputs.pop_front()
    }

    /// When [`Link::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Moment {
        let directions = self.directions.iter().map(Direction::due);
        let dials = self
            .dials
            .iter()
            .map(|dial| dial.completes.unwrap_or(Moment::NEVER).min(dial.next_try).min(dial.gives_up));
        let connections = self.connections.values().map(|connection| {
            let idle = Side::BOTH.into_iter().filter(|side| connection.end(*side).open);
            idle.map(|side| connection.end(side).heard + IDLE_TIME_MAX)
                .chain(connection.resumes)
                .chain(Side::BOTH.into_iter().filter_map(|side| connection.end(side).loss_due()))
                .chain(Side::BOTH.into_iter().filter_map(|side| connection.end(side).hear_due()))
                .min()
                .unwrap_or(Moment::NEVER)
        });
        directions.chain(dials).chain(connections).min().unwrap_or(Moment::NEVER)
    }

    /// Does all that is due at [`Link::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Moment) {
        for from in Side::BOTH {
            while let Some(chunk) = self.directions[from as usize].transmit(now) {
                self.set_off(now, from, chunk);
                self.pump(now, from);
            }
            while let Some(chunk) = self.directions[from as usize].arrive(now) {
                self.deliver(now, chunk, from.other());
            }
        }
        self.handle_dials(now);
        let mut resumed = false;
        for connection in self.connections.values_mut() {
            for side in Side::BOTH {
                resumed |= connection.end_mut(side).notice_losses(now);
                resumed |= connection.end_mut(side).hear(now);
            }
            if connection.resumes.is_some_and(|resumes| resumes <= now) {
                connection.resumes = None;
                resumed = true;
            }
        }
        if resumed {
            for side in Side::BOTH {
                self.pump(now, side);
            }
        }
        for connection in self.connections.values_mut() {
            for to in Side::BOTH {
                let end = connection.end_mut(to);
                if end.open && now.since(end.heard) >= IDLE_TIME_MAX {
                    end.open = false;
                    end.drop_all();
                    self.outputs.push_back(LinkOutput::Closed { to, connection: connection.id });
                }
            }
        }
        self.connections.retain(|_, connection| !connection.is_over());
    }

    /// Bytes of the next piece that has entered a side's queue and that the shared medium has not been told of.
    pub fn take_queued(&mut self, from: Side) -> Option<u64> {
        self.directions[from as usize].take_untold()
    }

    /// The shared medium has transmitted the first piece of a side's queue, or has given it up after its retries.
    pub fn handle_transmitted(&mut self, now: Moment, from: Side, arrives: bool) {
        if let Some(chunk) = self.directions[from as usize].transmitted() {
            match arrives {
                true => self.set_off(now, from, chunk),
                false => self.lose(now, from, chunk),
            }
        }
        self.pump(now, from);
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn say(&mut self, now: Moment, from: Side, id: LinkId, kind: Kind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = connection.end_mut(from);
        if end.open {
            end.say(kind);
            self.pump(now, from);
        }
    }

    fn call(&mut self, now: Moment, from: Side, id: LinkId, kind: Kind) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let end = connection.end_mut(from);
        if end.open {
            end.call(kind);
            self.pump(now, from);
        }
    }

    /// A piece has been transmitted: it travels on, or is lost.
    fn set_off(&mut self, now: Moment, from: Side, chunk: Chunk) {
        let lost = self.spec.lost_once_in > 0 && self.random.one_in(self.spec.lost_once_in);
        if !lost {
            return self.directions[from as usize].travel(now, chunk);
        }
        self.lose(now, from, chunk);
    }

    /// Loses a piece. Its sender notices the loss later.
    fn lose(&mut self, now: Moment, from: Side, chunk: Chunk) {
        // RFC 9002, section 6.1.2: a packet is declared lost 9/8 of a round trip after its sending, if a later packet was acknowledged.
        let noticed = now + self.spec.round_trip_time() * 9 / 8 + ACKNOWLEDGE_DELAY;
        if let Some(connection) = self.connections.get_mut(&chunk.connection) {
            connection.end_mut(from).lose(noticed, chunk);
        }
    }

    /// Moves pieces into the queue while it has room, one piece of each connection in turn.
    fn pump(&mut self, now: Moment, from: Side) {
        let piece_bytes =
            (self.spec.bits_per_second / 8 * PIECE_TIME_MS / 1000).clamp(PIECE_BYTES_MIN, 1 << 20) as u32;
        while self.directions[from as usize].has_room() {
            let last = self.turn[from as usize];
            let ready =
                |connection: &&Connection| connection.resumes.is_none() && connection.end(from).is_ready();
            let next = self
                .connections
                .range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded))
                .map(|(_, connection)| connection)
                .find(ready)
                .or_else(|| self.connections.values().find(ready))
                .map(|connection| connection.id);
            let Some(id) = next else { break };
            self.turn[from as usize] = id;
            let end = self.connections.get_mut(&id).expect("it was just found").end_mut(from);
            let chunk = match end.take_lost() {
                Some(chunk) => Chunk { left: now, ..chunk },
                None => {
                    let taken = end.take(piece_bytes).expect("an end that is not idle has something");
                    tell(&mut self.outputs, taken.told(from, id));
                    Chunk { connection: id, number: taken.number, kind: taken.kind, left: now }
                }
            };
            end.left(&chunk);
            self.directions[from as usize].push(now, chunk);
        }
        // A sender does not know that the link is cut. It sends until its window is full.
        for connection in self.connections.values_mut().filter(|connection| connection.resumes.is_some()) {
            let id = connection.id;
            let end = connection.end_mut(from);
            while end.has_window(self.spec.queue_bytes_max)
                && let Some(taken) = end.take(piece_bytes)
            {
                tell(&mut self.outputs, taken.told(from, id));
                end.lost_at_once(Chunk { connection: id, number: taken.number, kind: taken.kind, left: now });
            }
        }
    }

    fn deliver(&mut self, now: Moment, chunk: Chunk, to: Side) {
        let Some(connection) = self.connections.get_mut(&chunk.connection) else { return };
        let end = connection.end_mut(to);
        // `Kind::Open` has the first number, so numbered pieces wait for it. An end that was open before stays closed.
        let greets = to == Side::Edge && self.edge_listens && chunk.number.is_some() && !end.was_open;
        if !end.open && !greets {
            // The edge's host resets a connection that it does not know. A camera's process had its own port, so nothing answers.
            if to == Side::Edge && self.edge_listens && !matches!(chunk.kind, Kind::Close) {
                end.call(Kind::Close);
                self.pump(now, to);
            }
            return;
        }
        end.heard = now;
        // Acknowledgements are small, so they do not wait in the queue.
        let (heard, bytes) = (now + self.directions[to as usize].delay, chunk.bytes());
        connection.end_mut(to.other()).arrived(heard, chunk.left, bytes);
        let end = connection.end_mut(to);
        for kind in end.incoming.message(chunk.number, chunk.kind) {
            self.take(chunk.connection, kind, to);
        }
    }

    /// Processes what arrived, in its order.
    fn take(&mut self, id: LinkId, kind: Kind, to: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let owner = connection.owner;
        let end = connection.end_mut(to);
        match kind {
            Kind::Open => {
                (end.open, end.was_open) = (true, true);
                self.outputs.push_back(LinkOutput::Accepted { connection: id, owner });
            }
            Kind::Message(bytes) => {
                self.outputs.push_back(LinkOutput::Message { to, connection: id, bytes });
            }
            Kind::Frame { frame, header, bytes, end: until, payload } => {
                let total = payload.len() as u32;
                let grown = end.incoming.piece(frame, header, until - bytes, until, total);
                let opened = |header| LinkOutput::FrameOpened { to, connection: id, header };
                self.outputs.extend(grown.header.map(opened));
                self.outputs.extend(grown.bytes.map(|bytes| match bytes == total {
                    true => LinkOutput::FrameFinished { to, connection: id, frame, payload },
                    false => LinkOutput::FrameProgress { to, connection: id, frame, bytes },
                }));
            }
            Kind::Reset(frame) => {
                end.incoming.drop_frame(frame);
                self.outputs.push_back(LinkOutput::FrameCancelled { to, connection: id, frame });
            }
            Kind::Stop(frame) => {
                end.drop_frame(frame);
                self.outputs.push_back(LinkOutput::FrameStopped { to, connection: id, frame });
            }
            Kind::Close => {
                end.open = false;
                end.drop_all();
                self.outputs.push_back(LinkOutput::Closed { to, connection: id });
            }
        }
    }

    /// Advances the handshakes: the first message is repeated until it gets through, with doubled pauses.
    fn handle_dials(&mut self, now: Moment) {
        let round_trip_time = self.spec.round_trip_time().as_nanos() as u64;
        let mut ended = Vec::new();
        for dial in &mut self.dials {
            if dial.completes.is_some_and(|completes| completes <= now) {
                ended.push((dial.id, dial.owner, true));
                continue;
            }
            if dial.gives_up <= now {
                ended.push((dial.id, dial.owner, false));
                continue;
            }
            if dial.next_try <= now {
                dial.next_try = now + dial.pause;
                dial.pause *= 2;
                if !self.cut && self.edge_listens && dial.completes.is_none() {
                    // One round trip, or two if the edge first asks the camera to prove its address.
                    let handshake = self.random.within(round_trip_time..=2 * round_trip_time);
                    let queue = self.directions[Side::Camera as usize].queue_time();
                    dial.completes = Some(now + Duration::from_nanos(handshake) + queue);
                    self.outputs.push_back(LinkOutput::Knocked { connection: dial.id, owner: dial.owner });
                }
            }
        }
        for (id, owner, connected) in ended {
            self.dials.retain(|dial| dial.id != id);
            if connected {
                let mut connection = Connection::new(id, owner, now, self.spec.bounded);
                connection.end_mut(Side::Camera).say(Kind::Open);
                self.connections.insert(id, connection);
                self.pump(now, Side::Camera);
                self.outputs.push_back(LinkOutput::Dialled { connection: id, owner });
            } else {
                self.outputs.push_back(LinkOutput::DialFailed { owner });
            }
        }
    }
}

#[cfg(test)]
mod tests;
