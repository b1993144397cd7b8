//! The camera broker against an edge that says anything at any time, and a link that does what it likes.
//!
//! Besides that nothing panics:
//! - every event has few outputs, and the next deadline lies after the one that was handled;
//! - nothing is said on a connection that the broker has closed, and connections do not pile up;
//! - frames are sent only where the edge has welcomed the camera and somebody wants them, one at a time, each once, in
//!   order, and of the epoch in which the connection was opened;
//! - a frame refers to none that was lost, nor to one of another connection;
//! - a frame's header fits on the wire, and its ranges are in order, without overlap;
//! - with every frame, each earlier one of the epoch is on its way, acknowledged, or accounted for in the header;
//! - whatever happened, an edge that behaves gets frames again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::camera::{CameraBroker, CameraConfig, CameraOutput, Transform, Transformed};
use mez_core::broker::{EdgeIndex, Intake, IntakeConfig, LinkId, PublishError, Published};
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::controller::named::PolicyName;
use mez_core::frame::{ChainLink, Encoding, Epoch, FrameId, Reference, Sequence};
use mez_core::log::{LogConfig, log};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{
    Demand, FRAME_HEADER_BYTES_MAX, FrameHeader, Hello, Message, RefuseCode, Report, SKIP_RANGES_MAX, Status,
    VERSION, Welcome,
};

use crate::edge_broker::crosses;
use crate::script::{NUMBERS, PAUSES, Step, pick, steps};

const EPOCH: Epoch = Epoch(3);
/// Far above what any one event asks for.
const OUTPUTS_MAX: usize = 100;
/// Attempts that hang, connections that wait for a welcome, and the one in use.
const LINKS_MAX: usize = 32;
/// Edges that the camera may choose from.
const EDGES: usize = 2;
const ORIGIN: ClockAnchor = ClockAnchor {
    wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
    monotonic: Instant::from_nanos(1_000_000_000_000),
};

/// Runs a script. The first byte says how large the camera's log is (bit 0: small enough to evict, else large enough that
/// every frame can be accounted for) and how the script ends (bit 1: at once, which is quicker, else with a recovery).
pub fn run(bytes: &[u8]) {
    play(bytes);
}

/// Runs a script and gives the number of frames that were sent.
pub fn play(bytes: &[u8]) -> usize {
    let Some((&size, script)) = bytes.split_first() else { return 0 };
    let mut world = World::new(size % 2 == 0);
    world.timeout(ORIGIN.monotonic);
    for step in steps(script) {
        world.step(step);
        world.drain();
    }
    let sent = world.sent.len();
    if size & 2 == 0 {
        world.recover();
    }
    sent
}

struct World {
    broker: CameraBroker,
    intake: Intake,
    now: Instant,
    /// Whether the log is large enough to hold everything that a script publishes.
    keeps_all: bool,
    /// Connections that the broker has asked for and that are neither made nor given up.
    dials: Vec<EdgeIndex>,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    raise: Option<Epoch>,
    /// What the codec is at work on.
    making: Option<Box<Transform>>,
    /// Frames that were sent, whatever became of them, and the last of them.
    sent: BTreeSet<FrameId>,
    last_sent: Option<FrameId>,
    /// The newest frame of the present epoch that the edge has acknowledged.
    told: Option<Sequence>,
    codec: Codec,
    /// Frames that were reset or refused, or whose connection is gone.
    lost: BTreeSet<FrameId>,
    /// The frame of a chain that was sent last, and where.
    chained: Option<(LinkId, FrameId)>,
}

/// A codec of chains, without pixels.
#[derive(Default)]
struct Codec {
    /// The first frame of the chain and the index of the last.
    chain: Option<(Sequence, u32)>,
    last: Option<Sequence>,
    arrived: Option<Sequence>,
}

impl Codec {
    fn told(&mut self, transform: &Transform) {
        self.arrived = self.arrived.max(transform.news.arrived.iter().copied().max());
        for lost in &transform.news.lost {
            self.last.take_if(|last| *last >= *lost);
            self.chain.take_if(|(first, _)| first == lost);
        }
    }

    fn link(&mut self, transform: &Transform) -> ChainLink {
        let sequence = transform.frame.meta.id.sequence;
        let chain = self.chain.filter(|_| transform.reference != Reference::Independent);
        let arrived = self.arrived.filter(|arrived| chain.is_some_and(|(first, _)| *arrived >= first));
        let reference = match (self.last, arrived) {
            (Some(_), _) => Reference::Previous,
            (None, Some(arrived)) => Reference::Acknowledged(arrived),
            (None, None) => Reference::Independent,
        };
        let link = match chain.filter(|_| reference != Reference::Independent) {
            Some((first, index)) => ChainLink { chain: first, index: index + 1, reference },
            None => ChainLink::still(sequence),
        };
        (self.chain, self.last) = (Some((link.chain, link.index)), Some(sequence));
        link
    }
}

/// A connection as the link sees it.
struct Link {
    epoch: Epoch,
    welcomed: bool,
    demand: Demand,
    sending: Option<FrameId>,
    unacknowledged: VecDeque<FrameId>,
    newest_sent: Option<FrameId>,
    /// For the frames that were sent here: how many bytes they have, and how many the edge has reported.
    bytes: BTreeMap<FrameId, (u32, u32)>,
}

impl World {
    fn new(keeps_all: bool) -> Self {
        let bytes_max = if keeps_all { 64 << 20 } else { 24 << 10 };
        let (writer, reader) = log(LogConfig::with_bytes_max(bytes_max));
        let config = CameraConfig {
            camera: "dock/cam1".parse().unwrap(),
            epoch: EPOCH,
            anchor: ORIGIN,
            software: "fuzz".into(),
            policy: PolicyName::default(),
            edges: EDGES,
        };
        Self {
            broker: CameraBroker::new(config, &reader, ORIGIN.monotonic),
            intake: Intake::new(
                writer,
                IntakeConfig { frame_bytes_max: 4096, ..IntakeConfig::new(EPOCH, ORIGIN) },
            ),
            now: ORIGIN.monotonic,
            keeps_all,
            dials: Vec::new(),
            links: BTreeMap::new(),
            next_link: 0,
            raise: None,
            making: None,
            sent: BTreeSet::new(),
            last_sent: None,
            told: None,
            codec: Codec::default(),
            lost: BTreeSet::new(),
            chained: None,
        }
    }

    fn step(&mut self, Step { what, args: [a, b, c] }: Step) {
        let now = self.now;
        match what % 17 {
            // Frames are published: a says how large, b how many; the broker hears of them now, unless c is odd.
            0 | 1 => {
                for _ in 0..=b % 8 {
                    self.publish(a);
                }
                if c & 1 == 0 {
                    self.broker.handle_published(now);
                }
            }
            // The codec is done: b says whether it failed, c how many bytes came out. Otherwise the broker looks at the log.
            2 => match self.making.take() {
                Some(transform) => self.transformed(&transform, b, c),
                None => self.broker.handle_published(now),
            },
            // An attempt to connect succeeds, or fails.
            3 if !self.dials.is_empty() => {
                let edge = self.dials.swap_remove(c as usize % self.dials.len());
                if b % 4 == 3 {
                    self.broker.handle_dial_failed(now, edge);
                } else {
                    let link = LinkId(self.next_link);
                    self.next_link += 1;
                    self.links.insert(
                        link,
                        Link {
                            epoch: self.broker.epoch(),
                            welcomed: false,
                            demand: Demand::default(),
                            sending: None,
                            unacknowledged: VecDeque::new(),
                            newest_sent: None,
                            bytes: BTreeMap::new(),
                        },
                    );
                    self.broker.handle_dialled(now, link, edge);
                }
            }
            4 => self.welcome(a, b, c),
            5 => self.demand(a, b, c),
            6 | 7 => self.report(a, b, c),
            // The last byte of a frame has left.
            8 => {
                let link = self.link(a);
                let Some(known) = self.links.get_mut(&link) else { return };
                let Some(frame) = known.sending.take() else { return };
                known.unacknowledged.push_back(frame);
                self.broker.handle_sent(now, link, frame);
            }
            9 => {
                let link = self.link(a);
                self.links.remove(&link);
                self.broker.handle_closed(now, link);
            }
            10 => {
                let number = Instant::from_nanos(pick(&NUMBERS, c));
                let message = match b % 4 {
                    0 => Message::Ping { t1: number },
                    1 => Message::Pong { t1: now, t2: number, t3: number },
                    2 => Message::Pong { t1: now - Duration::from_millis(c.into()), t2: now, t3: now },
                    _ => Message::Pong { t1: number, t2: number, t3: Instant::from_nanos(u64::MAX) },
                };
                self.broker.handle_message(now, self.link(a), message);
            }
            11 => {
                let codes = [
                    RefuseCode::Version,
                    RefuseCode::NotPermitted,
                    RefuseCode::NameHeld,
                    RefuseCode::Replaced,
                    RefuseCode::Protocol,
                    RefuseCode::Full,
                    RefuseCode::Stopping,
                ];
                let refuse = Message::Refuse { code: pick(&codes, b), text: "no".into() };
                self.broker.handle_message(now, self.link(a), refuse);
            }
            // Time passes, with the deadlines in it, or unnoticed.
            12 | 13 => self.pause(pick(&PAUSES, a), b),
            // A later epoch begins, as the broker has asked, or the intake's numbers come.
            14 => match self.raise.take() {
                Some(above) => {
                    let epoch = Epoch(above.0.max(self.broker.epoch().0).saturating_add(1));
                    self.intake.raise_epoch(epoch);
                    self.broker.handle_epoch(now, epoch);
                    self.told = None;
                }
                None => self.broker.handle_intake(pick(&NUMBERS, b), pick(&NUMBERS, c)),
            },
            // The edge stops the stream of a frame that is on its way.
            16 => {
                let link = self.link(a);
                let Some(known) = self.links.get_mut(&link) else { return };
                let frame = known.unacknowledged.iter().copied().chain(known.sending).nth(usize::from(b % 8));
                let Some(frame) = frame else { return };
                known.sending.take_if(|sending| *sending == frame);
                known.unacknowledged.retain(|other| *other != frame);
                self.lost.insert(frame);
                self.broker.handle_message(now, link, Message::Report(Report::Refused { frame }));
            }
            // What an edge does not say, or says to somebody else.
            15 => {
                let frame = FrameId { epoch: EPOCH, sequence: Sequence(pick(&NUMBERS, c)) };
                let message = match b % 4 {
                    3 => Message::Refresh { frame: self.last_sent.filter(|_| c & 1 == 0).unwrap_or(frame) },
                    0 => Message::Status(Status::default()),
                    1 => Message::Hello(Hello {
                        version: VERSION,
                        camera: "x".parse().unwrap(),
                        epoch: EPOCH,
                        attempt: 1,
                        anchor: ORIGIN,
                        software: String::new(),
                    }),
                    _ => Message::Reply { frame, application: "a".into(), payload: Bytes::new() },
                };
                self.broker.handle_message(now, self.link(a), message);
            }
            _ => {}
        }
    }

    /// One of the connections there are, counted from the newest; or one that there is not.
    fn link(&self, a: u8) -> LinkId {
        let unknown = LinkId(u64::MAX);
        self.links.keys().rev().nth(usize::from(a) % 4).copied().unwrap_or(unknown)
    }

    fn publish(&mut self, a: u8) {
        let frame = Published {
            payload: vec![a; 1 + usize::from(a) * 16].into(),
            encoding: Encoding::Jpeg,
            width: 64,
            height: 48,
            captured: None,
        };
        match self.intake.publish(self.now, frame) {
            Ok(_) => {}
            // A small log may be held by the frame that waits.
            Err(PublishError::Log(_)) => assert!(!self.keeps_all),
            Err(error) => panic!("{error}"),
        }
    }

    /// What came of a frame: nothing if b says so, or as many bytes as c says.
    fn transformed(&mut self, transform: &Transform, b: u8, c: u8) {
        let meta = &transform.frame.meta;
        let (id, chained) = (meta.id, transform.setting.is_chained());
        self.codec.told(transform);
        let transformed = match b % 8 {
            0 => {
                // Its state is gone.
                self.codec = Codec::default();
                Transformed::Failed
            }
            1 => Transformed::TooLarge { bytes: u32::from(c) },
            _ => Transformed::Made {
                payload: vec![1; usize::from(c) * 8].into(),
                encoding: if chained { Encoding::H264 } else { Encoding::Jpeg },
                width: 2,
                height: 2,
                rung: transform.setting.rung(),
                chain: if chained { self.codec.link(transform) } else { ChainLink::still(id.sequence) },
            },
        };
        self.broker.handle_transformed(self.now, id, transformed);
    }

    /// The edge takes the camera in; b and c say which frame it says it has.
    fn welcome(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let epoch = match b % 8 {
            0..=3 => None,
            4 => Some(EPOCH.0 - 1),
            5 => Some(self.broker.epoch().0),
            6 => Some(self.broker.epoch().0.saturating_add(1)),
            _ => Some(pick(&NUMBERS, c >> 4)),
        };
        let newest = epoch.map(|epoch| {
            // Often one that was sent: the edge got it, though the camera may not have heard.
            let sent = self.sent.iter().rev().nth(usize::from(c & 7)).map(|frame| frame.sequence);
            let any = Sequence(pick(&NUMBERS, c));
            FrameId { epoch: Epoch(epoch), sequence: if c & 8 == 0 { sent.unwrap_or(any) } else { any } }
        });
        let Some(known) = self.links.get_mut(&link) else { return };
        known.welcomed = true;
        let told = self.told;
        if let Some(newest) = newest.filter(|newest| newest.epoch == self.broker.epoch()) {
            self.told = told.max(Some(newest.sequence));
        }
        let frame_bytes_max = if c & 0x80 == 0 { 1 << 20 } else { 1000 };
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max, software: "fuzz".into() };
        self.broker.handle_message(self.now, link, Message::Welcome(welcome));
        self.drain();
        if !self.links.contains_key(&link) {
            // A frame that is not the camera's own acknowledges nothing: the broker has closed the connection.
            self.told = told;
        }
    }

    fn demand(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let contract = Contract {
            latency_bound: match c >> 4 {
                0 => None,
                bound => Some(Duration::from_nanos(pick(&PAUSES, bound).max(1))),
            },
            accuracy_floor: (a & 0x40 != 0).then_some(f64::from(a & 0x3f) / 63.0),
            on_infeasible: if a & 0x80 == 0 { OnInfeasible::Degrade } else { OnInfeasible::Skip },
            ..Contract::default()
        };
        let demand = Demand { revision: u64::from(b >> 2), contracts: vec![contract; usize::from(b & 3)] };
        if let Some(known) = self.links.get_mut(&link)
            && demand.revision >= known.demand.revision
        {
            known.demand = demand.clone();
        }
        self.broker.handle_message(self.now, link, Message::Demand(demand));
    }

    /// The edge says how a frame is arriving, or that it is there: b says which frame, c how much of it.
    fn report(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let on_the_way = self
            .links
            .get(&link)
            .into_iter()
            .flat_map(|known| known.unacknowledged.iter().copied().chain(known.sending))
            .nth(usize::from(b & 15));
        let frame = match on_the_way {
            Some(frame) if b & 0x80 == 0 => frame,
            _ => FrameId { epoch: EPOCH, sequence: Sequence(pick(&NUMBERS, b)) },
        };
        let known = self.links.get(&link).and_then(|known| known.bytes.get(&frame));
        let (size, arrived) = known.copied().unwrap_or((9, 0));
        let bytes = match c {
            0xff => u32::MAX,
            0xfe => size.saturating_add(1),
            0..=127 => size,
            c => size / 256 * u32::from(c & 0x7f),
        };
        let (first, now) =
            (Instant::from_nanos(pick(&NUMBERS, c)), Instant::from_nanos(pick(&NUMBERS, c >> 4)));
        let complete = !(128..0xf0).contains(&c);
        let report = if complete {
            Report::Complete { frame, bytes, first, last: now }
        } else {
            Report::Progress { frame, bytes, first, now }
        };
        if let Some(known) = self.links.get_mut(&link) {
            let on_its_way = known.sending == Some(frame) || known.unacknowledged.contains(&frame);
            let given_up = !on_its_way && known.newest_sent.is_some_and(|newest| frame <= newest);
            // A report of a frame on its way that makes no sense says nothing.
            let makes_sense = given_up || on_its_way && (arrived..=size).contains(&bytes);
            if !makes_sense {
                return self.broker.handle_message(self.now, link, Message::Report(report));
            }
            known.bytes.insert(frame, (size, bytes));
            if complete {
                if frame.epoch == self.broker.epoch() {
                    self.told = self.told.max(Some(frame.sequence));
                }
                known.sending.take_if(|sending| *sending == frame);
                known.unacknowledged.retain(|other| *other != frame);
            }
        }
        self.broker.handle_message(self.now, link, Message::Report(report));
    }

    /// Lets time pass, as a driver does: to the deadlines one after the other, and to the end of the pause. Where b is
    /// odd the driver is late, and only the end is noticed.
    fn pause(&mut self, nanos: u64, b: u8) {
        let end = Instant::from_nanos(self.now.as_nanos().saturating_add(nanos));
        if b & 1 == 0 {
            for _ in 0..16 {
                let due = self.broker.poll_timeout();
                if due > end {
                    break;
                }
                self.timeout(due.max(self.now));
            }
        }
        self.timeout(end);
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        self.broker.handle_timeout(now);
        self.drain();
        let due = self.broker.poll_timeout();
        assert!(due > now, "the deadline {due:?} has passed at {now:?}: a driver would spin");
    }

    /// All connections are lost, and from then on everybody behaves.
    fn recover(&mut self) {
        for link in std::mem::take(&mut self.links).into_keys() {
            self.broker.handle_closed(self.now, link);
        }
        while let Some(edge) = self.dials.pop() {
            self.broker.handle_dial_failed(self.now, edge);
        }
        self.drain();
        let sent = self.sent.len();
        // Longer than a camera waits after a refusal, and then two seconds.
        for _ in 0..32 {
            self.pause(250_000_000, 0);
            self.step(Step { what: 14, args: [0; 3] });
            self.drain();
            while !self.dials.is_empty() {
                self.step(Step { what: 3, args: [0; 3] });
                self.drain();
            }
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                self.serve(link);
            }
            self.publish(1);
            self.broker.handle_published(self.now);
            self.drain();
        }
        assert!(self.sent.len() > sent, "no frame is sent though everything works again");
    }

    /// What an edge that behaves has to say on a connection.
    fn serve(&mut self, link: LinkId) {
        let Some(known) = self.links.get(&link) else { return };
        let (welcomed, wanted, sending) = (known.welcomed, !known.demand.contracts.is_empty(), known.sending);
        if !welcomed {
            let position = self.links.keys().rev().position(|other| *other == link).unwrap_or(0);
            self.welcome(position as u8, 0, 0);
        }
        if !wanted {
            let demand = Demand { revision: 1, contracts: vec![Contract::default()] };
            if let Some(known) = self.links.get_mut(&link) {
                known.demand = demand.clone();
            }
            self.broker.handle_message(self.now, link, Message::Demand(demand));
        }
        self.broker.handle_message(self.now, link, Message::Ping { t1: self.now });
        self.drain();
        if let Some(frame) = sending
            && let Some(known) = self.links.get_mut(&link)
        {
            known.sending = None;
            let bytes = known.bytes[&frame].0;
            self.told = self.told.max(Some(frame.sequence));
            self.broker.handle_sent(self.now, link, frame);
            let report = Report::Complete { frame, bytes, first: self.now, last: self.now };
            self.broker.handle_message(self.now, link, Message::Report(report));
        }
    }

    /// Carries out what the broker wants.
    fn drain(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.broker.poll_output() {
            outputs += 1;
            assert!(outputs <= OUTPUTS_MAX, "one event asks for more than {OUTPUTS_MAX} things");
            match output {
                CameraOutput::Dial { edge } => self.dials.push(edge),
                CameraOutput::Send { link, message } => {
                    assert!(self.links.contains_key(&link), "{message:?} on a connection that is closed");
                    crosses(message);
                }
                CameraOutput::Transform(transform) => {
                    assert!(transform.deadline > self.now);
                    assert!(self.making.is_none(), "two frames are being made");
                    self.making = Some(transform);
                }
                // Nothing that a script sends is a profile.
                CameraOutput::ReadProfile { hash, .. } => self.broker.handle_profile(self.now, hash, None),
                CameraOutput::SendFrame { link, header, payload } => self.sends(link, &header, &payload),
                CameraOutput::Reset { link, frame } => {
                    let known =
                        self.links.get_mut(&link).expect("a frame is reset on a connection that is there");
                    let sending = known.sending.take_if(|sending| *sending == frame).is_some();
                    let waits = known.unacknowledged.contains(&frame);
                    known.unacknowledged.retain(|other| *other != frame);
                    assert!(sending || waits, "frame {frame} is reset, and is not on its way");
                    self.lost.insert(frame);
                }
                CameraOutput::Close { link } => {
                    self.links.remove(&link).expect("a connection is closed once");
                }
                CameraOutput::RaiseEpoch { above } => {
                    assert!(above >= self.broker.epoch());
                    self.raise = Some(above);
                }
                CameraOutput::Refused { .. }
                | CameraOutput::LinkChanged { .. }
                | CameraOutput::ReadHistory { .. }
                | CameraOutput::TransformPast { .. }
                | CameraOutput::Reply { .. } => {}
            }
        }
        assert!(self.links.len() <= LINKS_MAX, "{} connections", self.links.len());
        assert!(self.dials.len() <= LINKS_MAX, "{} attempts at once", self.dials.len());
    }

    /// Checks a frame that the broker sends.
    fn sends(&mut self, link: LinkId, header: &FrameHeader, payload: &Bytes) {
        let frame = header.meta.id;
        let refers = match header.meta.chain.reference {
            Reference::Independent => None,
            Reference::Previous => {
                let (carrier, last) = self.chained.expect("a frame refers to one that was sent");
                assert_eq!(carrier, link, "frame {frame} refers to one of another connection");
                Some(last)
            }
            Reference::Acknowledged(sequence) => Some(FrameId { sequence, ..frame }),
        };
        if let Some(refers) = refers {
            assert!(!self.lost.contains(&refers), "frame {frame} refers to {refers}, which was lost");
        }
        if header.meta.encoding.is_chained() {
            self.chained = Some((link, frame));
        }
        let known = self.links.get_mut(&link).expect("a frame is sent on a connection that is there");
        assert!(known.welcomed, "frame {frame} is sent before the edge has said welcome");
        assert!(!known.demand.contracts.is_empty(), "frame {frame} is sent though nobody wants it");
        assert_eq!(known.sending.replace(frame), None, "frame {frame} is sent beside another");
        assert_eq!(frame.epoch, known.epoch, "frame {frame} is of another epoch than its connection");
        known.newest_sent = Some(frame);
        known.bytes.insert(frame, (header.payload_bytes, 0));
        assert!(self.last_sent.is_none_or(|last| last < frame), "{frame} after {:?}", self.last_sent);
        self.last_sent = Some(frame);
        assert_eq!(header.payload_bytes as usize, payload.len());

        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert!(bytes.len() <= FRAME_HEADER_BYTES_MAX);
        assert_eq!(FrameHeader::decode(&bytes).as_ref(), Ok(header));
        assert!(header.skipped.len() <= SKIP_RANGES_MAX);
        let mut end = Sequence(0);
        for range in &header.skipped {
            assert!(
                range.count > 0 && range.first >= end && range.end() <= frame.sequence,
                "{:?}",
                header.skipped
            );
            end = range.end();
        }
        if self.keeps_all && header.skipped.len() < SKIP_RANGES_MAX {
            let first = self.told.map_or(0, |told| told.0.saturating_add(1));
            for sequence in first..frame.sequence.0 {
                let earlier = FrameId { sequence: Sequence(sequence), ..frame };
                let accounted =
                    header.skipped.iter().any(|range| (range.first..range.end()).contains(&earlier.sequence));
                let being_made = self.making.as_ref().is_some_and(|making| making.frame.meta.id == earlier);
                let on_its_way = being_made
                    || self
                        .links
                        .values()
                        .any(|link| link.unacknowledged.contains(&earlier) || link.sending == Some(earlier));
                assert!(
                    accounted || on_its_way,
                    "frame {earlier} is neither on its way nor accounted for with {frame}: {:?}",
                    header.skipped
                );
            }
        }
        self.sent.insert(frame);
    }
}
