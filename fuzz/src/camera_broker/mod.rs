//! Fuzzes the camera broker with an edge that sends anything at any time, and a link that behaves in any way.
//!
//! Nothing may panic. Besides that, these must hold:
//! - every event has few outputs, and the next deadline is after the handled one;
//! - nothing is sent on a connection that the broker has closed, and connections do not pile up;
//! - frames are sent only if the edge has welcomed the camera and has a demand, one at
//!   a time, each once, in order, and of the epoch in which the connection was opened;
//! - a frame does not refer to a lost frame, or to a frame of another connection;
//! - a frame's header fits on the wire, and its ranges are in order, without overlap;
//! - with every frame, each earlier frame of the epoch is in flight, acknowledged, or accounted for in the header;
//! - frames of the past are sent only if they were requested, one at a time, not
//!   while a live frame has unsent bytes, and not above the edge's limit of bytes;
//! - a part of a profile is requested only if a contract names the profile, and a profile above the limit is not read;
//! - surveys are made one at a time, of what was requested, and an edge accepts each answer;
//! - whatever happened, an edge that behaves gets frames again, and an answer to a request for the past.
//!
//! | step | what happens |
//! | --- | --- |
//! | 0, 1, 2, 18 | frames are published, made smaller, or not; the picture changes |
//! | 3, 8, 9, 14, 16 | the link: connections come and go, frames leave or are stopped, windows open, epochs are raised |
//! | 4–7, 10, 11, 15 | messages of an edge: `said.rs` |
//! | 12, 13 | time passes |
//! | 17, 19 | contracts that differ, and profiles: `said.rs` |
//! | 20–23 | requests for the past and for surveys, and their answers: `said.rs` |

mod checks;
mod codec;
mod said;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use mez_core::broker::camera::{CameraBroker, CameraConfig, SourceNews, Transform};
use mez_core::broker::{
    EdgeIndex, Intake, IntakeConfig, LinkId, PublishError, PublishPartError, Published, StreamPart,
};
use mez_core::contract::Contract;
use mez_core::controller::named::PolicyName;
use mez_core::frame::{Encoding, Epoch, FrameId, Sequence};
use mez_core::history::PastQuery;
use mez_core::log::{AppendError, LogConfig, LogReader, log};
use mez_core::profile::ProfileHash;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Demand, DiskStatus, Message, Report, TEXT_BYTES_MAX};

use self::codec::Codec;
pub use self::steps::LANGUAGE;
use crate::script::{NUMBERS, PAUSES, Step, pick, steps};

const EPOCH: Epoch = Epoch(3);
/// Maximum number of outputs of one event: far above what any event needs.
const OUTPUTS_MAX: usize = 100;
/// Number of edges from which the camera may choose.
const EDGES: usize = 2;
/// Maximum number of connections: hanging attempts, connections that wait for a welcome, and the one in use.
const LINKS_MAX: usize = 32;
/// Maximum number of look-ups of past frames, and of readings of profiles, that a script leaves open.
const LOOKS_MAX: usize = 64;
/// More requests for the past than a script can contain.
const ASKED_MAX: usize = crate::script::STEPS_MAX + 8;
const PICTURES: [(u32, u32, Encoding); 8] = [
    (64, 48, Encoding::Jpeg),
    (64, 48, Encoding::Bgr8),
    (1920, 1080, Encoding::Jpeg),
    (15, 400, Encoding::Png),
    (1, 1, Encoding::Gray8),
    (u32::MAX, u32::MAX, Encoding::Jpeg),
    (64, 48, Encoding::H264),
    (16, 16, Encoding::Tiles),
];
const ORIGIN: ClockAnchor = ClockAnchor {
    wall: Timestamp::from_nanos(1_700_000_000_000_000_000),
    monotonic: Instant::from_nanos(1_000_000_000_000),
};

/// Runs a script. Its first byte gives the size of the camera's log (bit 0: so small that it evicts;
/// otherwise so large that every frame can be accounted for), the end of the script (bit 1: immediate,
/// which is faster; otherwise with a recovery), and the policy that chooses rungs (bits 2 and 3).
pub fn run(bytes: &[u8]) {
    play(bytes);
}

/// Runs a script and returns the number of sent frames.
pub fn play(bytes: &[u8]) -> usize {
    let Some((&size, script)) = bytes.split_first() else { return 0 };
    let mut world = World::new(size % 2 == 0, pick(&PolicyName::ALL, size >> 2));
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
    /// Dials that the broker asked for and that have neither succeeded nor failed.
    dials: Vec<EdgeIndex>,
    links: BTreeMap<LinkId, Link>,
    next_link: u64,
    raise: Option<Epoch>,
    reader: LogReader,
    /// Width, height and encoding of published frames.
    picture: (u32, u32, Encoding),
    /// How the contracts of the next demands differ, and which profiles they name.
    contracts: (u8, u8),
    /// The offset of the next requested part of a profile.
    profile_offset: u32,
    /// Profiles that were received completely and are not read yet.
    reading: VecDeque<ProfileHash>,
    /// Open look-ups of past frames.
    looks: VecDeque<(u64, PastQuery)>,
    /// The survey that is being made.
    surveying: Option<(Timestamp, Timestamp)>,
    /// The numbers of the requested past frames, by connection.
    asked: Vec<(LinkId, Range<u64>)>,
    last_request: u64,
    /// The past frame that still has unsent bytes.
    past: Option<(LinkId, u64)>,
    /// Number of requests for the past that were answered.
    answers: u64,
    /// The frame in the codec.
    making: Option<Box<Transform>>,
    /// The past frame in the codec of the past.
    making_past: Option<(u64, Box<Transform>)>,
    /// The rungs at which past frames were requested.
    rungs: BTreeSet<&'static str>,
    /// All frames that were sent.
    sent: BTreeSet<FrameId>,
    /// The last frame that was sent.
    last_sent: Option<FrameId>,
    /// The newest frame of the current epoch that the edge has acknowledged.
    told: Option<Sequence>,
    codec: Codec,
    /// Frames that were reset or refused, or whose connection is gone.
    lost: BTreeSet<FrameId>,
    /// For each chain, the connection and the last frame that was sent.
    chained: BTreeMap<(Epoch, Sequence), (LinkId, FrameId)>,
}

/// A connection, as the link sees it.
struct Link {
    epoch: Epoch,
    welcomed: bool,
    demand: Demand,
    frame_bytes_max: u32,
    sending: Option<FrameId>,
    unacknowledged: VecDeque<FrameId>,
    newest_sent: Option<FrameId>,
    /// For each frame that was sent here: its bytes, and the bytes that the edge has reported.
    bytes: BTreeMap<FrameId, (u32, u32)>,
}

impl World {
    fn new(keeps_all: bool, policy: PolicyName) -> Self {
        let bytes_max = if keeps_all { 64 << 20 } else { 24 << 10 };
        let (writer, reader) = log(LogConfig::with_bytes_max(bytes_max));
        let config = CameraConfig {
            camera: "dock/cam1".parse().unwrap(),
            edges: EDGES,
            epoch: EPOCH,
            anchor: ORIGIN,
            software: "fuzz".into(),
            policy,
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
            reader,
            picture: PICTURES[0],
            contracts: (0, 0),
            profile_offset: 0,
            reading: VecDeque::new(),
            looks: VecDeque::new(),
            surveying: None,
            asked: Vec::new(),
            last_request: 0,
            past: None,
            answers: 0,
            making: None,
            making_past: None,
            rungs: BTreeSet::new(),
            sent: BTreeSet::new(),
            last_sent: None,
            told: None,
            codec: Codec::default(),
            lost: BTreeSet::new(),
            chained: BTreeMap::new(),
        }
    }

    fn step(&mut self, Step { what, args: [a, b, c] }: Step) {
        let now = self.now;
        match what % 24 {
            // Publishes frames: a gives their size, b their number. The broker is notified immediately, unless c is odd.
            0 | 1 => {
                // The publisher may give its own capture time.
                let captured = (b >= 0xf0).then(|| self.wall() - Duration::from_nanos(pick(&PAUSES, b)));
                for _ in 0..=b % 8 {
                    self.publish(a, captured);
                }
                if c & 1 == 0 {
                    self.broker.handle_published(now);
                }
            }
            // The codec finishes: b selects the outcome, c gives the bytes of the payload. If the codec has no frame, the broker looks at the log.
            2 => match self.making.take() {
                Some(transform) => self.transformed(&transform, b, c),
                None => self.broker.handle_published(now),
            },
            // An attempt to connect succeeds or fails.
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
                            frame_bytes_max: 0,
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
            // Some of a frame's bytes have left.
            8 if b & 1 == 1 => self.leaves(a, b, c),
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
                self.gone(link);
                self.broker.handle_closed(now, link);
            }
            10 => self.ping(a, b, c),
            11 => self.refuse(a, b),
            // Time passes. The driver meets or misses the deadlines within it.
            12 | 13 => self.pause(pick(&PAUSES, a), b),
            // A later epoch begins, if the broker has requested one; otherwise the intake reports its counts.
            14 => match self.raise.take() {
                Some(above) => {
                    let epoch = Epoch(above.0.max(self.broker.epoch().0).saturating_add(1));
                    self.intake.raise_epoch(epoch);
                    self.broker.handle_epoch(now, epoch);
                    self.told = None;
                }
                None if b & 0x80 == 0 => self.broker.handle_intake(pick(&NUMBERS, b), pick(&NUMBERS, c)),
                // The disk reports its status, or the link share of the past changes.
                None if b & 0x40 == 0 => {
                    let bytes = pick(&NUMBERS, c);
                    let degraded = if c & 0x40 == 0 { String::new() } else { "x".repeat(TEXT_BYTES_MAX) };
                    let disk = DiskStatus { bytes, lost: bytes, degraded };
                    self.broker.handle_disk((c & 0x80 == 0).then_some(disk));
                }
                // The camera's source is lost, or ends.
                None if b & 0x20 == 0 => {
                    let retry = (c & 1 == 0).then(|| Duration::from_millis(pick(&NUMBERS, c)));
                    let lost = SourceNews::Lost { reason: "x".repeat(usize::from(c)), retry };
                    self.broker.handle_source(now, if c & 2 == 0 { lost } else { SourceNews::Ended });
                }
                None => self.broker.set_history_share(f64::from(c) / 64.0 - 0.5),
            },
            // The link reports its congestion window, or that its path was full.
            16 if b & 0x80 != 0 => {
                let window = (c & 1 == 1).then(|| pick(&NUMBERS, c >> 1));
                self.broker.handle_window(self.link(a), window);
            }
            // The edge stops the stream of a frame that is in flight.
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
            15 => self.aside(a, b, c),
            // Sets how the contracts of the next demands differ, and which profiles they name.
            17 => self.contracts = (b, c),
            // Changes the camera's picture.
            18 => self.picture = pick(&PICTURES, b),
            19 if c & 0x80 != 0 && !self.reading.is_empty() => self.profile_read(b),
            19 => self.profile_part(a, b, c),
            20 => self.asks(a, b, c),
            21 => self.looked(b),
            // The edge requests a survey, or one is made.
            22 if b & 3 == 1 => self.survey(a, b >> 2, c),
            22 if b & 3 == 3 => self.surveyed(b >> 2, c),
            22 => self.past_left(),
            23 => self.past_transformed(b, c),
            _ => {}
        }
    }

    /// The link reports the unsent bytes of a frame. b selects the frame in transmission,
    /// or another one, as if the report crossed a cancel; c gives the bytes.
    fn leaves(&mut self, a: u8, b: u8, c: u8) {
        let link = self.link(a);
        let known = self.links.get(&link);
        let sending = known.and_then(|known| known.sending).filter(|_| b & 0x80 == 0);
        let frame = sending.unwrap_or(FrameId { epoch: EPOCH, sequence: Sequence(pick(&NUMBERS, b >> 1)) });
        let bytes = known.and_then(|known| known.bytes.get(&frame)).map_or(9, |(bytes, _)| u64::from(*bytes));
        let unsent = match c {
            0xff => u64::MAX,
            0xfe => bytes + 1,
            c => bytes * u64::from(c) / 0xfd,
        };
        self.broker.handle_unsent(self.now, link, frame, unsent);
    }

    /// One of the existing connections, counted from the newest, or one that does not exist.
    fn link(&self, a: u8) -> LinkId {
        let unknown = LinkId(u64::MAX);
        self.links.keys().rev().nth(usize::from(a) % 4).copied().unwrap_or(unknown)
    }

    /// The wall clock, which is never set.
    fn wall(&self) -> Timestamp {
        ORIGIN.wall_at(self.now)
    }

    fn publish(&mut self, a: u8, captured: Option<Timestamp>) {
        let (width, height, encoding) = self.picture;
        let payload = vec![a; 1 + usize::from(a) * 16].into();
        let frame = Published { payload, encoding, width, height, captured };
        let result = if encoding == Encoding::H264 {
            let part = match a % 3 {
                0 => StreamPart::Key,
                kind => StreamPart::Following { is_needed: kind == 1 },
            };
            match self.intake.publish_part(self.now, frame.clone(), part) {
                Err(PublishPartError::NoKeyFrame) => {
                    self.intake.publish_part(self.now, frame, StreamPart::Key)
                }
                result => result,
            }
        } else {
            self.intake.publish(self.now, frame).map_err(PublishPartError::from)
        };
        let result = result.map_err(|error| match error {
            PublishPartError::Publish(error) => error,
            PublishPartError::NoKeyFrame => panic!("a key frame needs nothing"),
        });
        match result {
            Ok(_) => {}
            Err(PublishError::Log(AppendError::CaptureTime { .. })) => assert!(captured.is_some()),
            // The waiting frame may take all of a small log.
            Err(PublishError::Log(_)) => assert!(!self.keeps_all),
            Err(error) => panic!("{error}"),
        }
    }

    /// Lets time pass like a driver: to each deadline in turn, and to the end of the pause. If b is odd, the driver is late and notices only the end.
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

    /// Drops all connections. From then on, every peer behaves.
    fn recover(&mut self) {
        for link in self.links.keys().copied().collect::<Vec<_>>() {
            self.gone(link);
            self.broker.handle_closed(self.now, link);
        }
        while let Some(edge) = self.dials.pop() {
            self.broker.handle_dial_failed(self.now, edge);
        }
        self.drain();
        let sent = self.sent.len();
        // As long as a camera waits after a refusal, plus two seconds.
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
            self.publish(1, None);
            self.broker.handle_published(self.now);
            self.drain();
        }
        assert!(self.sent.len() > sent, "no frame is sent though everything works again");
        let answers = self.answers;
        self.asks(0, 1, 0);
        // Longer than any pause of past frames in favour of live ones.
        for _ in 0..320 {
            if self.answers > answers {
                return;
            }
            self.drain();
            // Many frames may be skipped.
            while !self.looks.is_empty() {
                self.looked(0);
                self.drain();
            }
            self.past_transformed(1, 1);
            self.drain();
            self.past_left();
            for link in self.links.keys().copied().collect::<Vec<_>>() {
                self.serve(link);
            }
            self.pause(250_000_000, 0);
        }
        panic!("a question for the past has no answer though everything works");
    }

    /// Sends the messages of a well-behaved edge on a connection.
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
        if let Some(transform) = self.making.take() {
            self.transformed(&transform, 2, 1);
            self.drain();
        }
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
}
