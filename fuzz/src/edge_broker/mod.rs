//! Fuzzes the edge broker with cameras that send anything at any time, and applications that come and go.
//!
//! Nothing may panic. Besides that, these must hold:
//! - every event has few outputs, and the next deadline is after the handled one;
//! - nothing is sent on a connection that the broker has closed, and every message fits on the wire;
//! - the replica logs together stay within their budget, and there are no more cameras than allowed;
//! - a subscription gets each camera's frames in strictly increasing order, and between two
//!   deliveries of one epoch the skipped frames are exactly those whose sequences are missing;
//! - a subscription that decodes chains itself gets a frame only after all frames that it refers to;
//! - every kind of query finds a log's frames in order;
//! - a request for the past is answered once, with a requested frame or with none, unless it was dropped;
//!   cameras get requests with new numbers, and a frame of the past is accepted only if its number was requested;
//! - the same holds for surveys, and their content was requested;
//! - the state of a contract has a short reason, and does not change without end;
//! - whatever happened, a camera that behaves is accepted, gets a demand and requests for the past, and its frames
//!   are delivered. If an earlier run of the edge left an epoch that cannot be followed, this holds after a reset.
//!
//! | step | what happens |
//! | --- | --- |
//! | 0, 1, 14, 15, 16 | connections come and go, cameras send their hello, time passes |
//! | 2–6, 12, 13 | messages of cameras: `cameras.rs`; cameras are reset |
//! | 7–11, 17, 20, 24 | requests of applications: `applications.rs` |
//! | 18, 19, 21, 22 | requests for the past and for surveys, and their answers |
//! | 23 | stills are made |

mod applications;
mod cameras;
mod checks;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use mez_core::broker::edge::{EdgeBroker, EdgeConfig, Peer, SubscriptionId};
use mez_core::broker::{LinkId, NUMBER_MAX};
use mez_core::controller::share::Channels;
use mez_core::frame::{Epoch, Frame, FrameId, Quality, Sequence};
use mez_core::history::{PastQuery, Tier};
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::session::Session;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Hello, Message, MessageBuffer, ReplyResult, VERSION};

use self::applications::Given;
use self::cameras::{SIZES, header, message};
pub use self::steps::LANGUAGE;
use crate::script::{NUMBERS, PAUSES, Step, pick, steps};

const NAMES: [&str; 4] = ["dock/cam1", "dock/cam2", "yard/a", "x"];
const PATTERNS: [&str; 6] = ["dock/cam1", "dock/*", "**", "*/a", "yard/**", "nobody"];
const PEERS: [(&str, &[&str]); 4] = [
    ("spiffe://site/camera/dock", &["dock/**"]),
    ("spiffe://site/camera/all", &["**"]),
    ("spiffe://site/camera/dock/cam1", &["dock/cam1"]),
    ("spiffe://site/camera/none", &[]),
];
const EPOCHS: [u64; 8] = [1, 1, 1, 2, 3, 0, NUMBER_MAX, u64::MAX];
const SLOTS: usize = 6;
const SUBSCRIPTIONS: u8 = 8;
const CAMERAS_MAX: usize = 3;
const LOG_BYTES_MAX: u64 = 48 << 10;
const FRAME_BYTES_MAX: u32 = 2 << 10;
const HISTORY_BYTES_MAX: u64 = 4 << 10;
/// Maximum number of requested numbers, the latest ones, that a camera can still answer.
const ASKED_MAX: usize = 8;
/// Maximum number of past frames that may still be arriving.
const ARRIVING_MAX: usize = 8;
/// Maximum number of outputs of one event. Far above what any event needs: every connection, and every subscription of every camera, a few times.
const OUTPUTS_MAX: usize = 200;
const ORIGIN: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// Runs a script.
pub fn run(bytes: &[u8]) {
    play(bytes);
}

/// Runs a script and returns the number of frames that applications got.
pub fn play(bytes: &[u8]) -> u64 {
    let mut world = World::new();
    if let Some(first) = steps(bytes).next() {
        world.restore(first);
    }
    for step in steps(bytes) {
        world.step(step);
        world.drain();
        // A still takes a few steps.
        if world.stills.len() > 2 {
            world.still_made();
        }
        world.check();
    }
    // Whatever happened, an hour of silence ends every connection.
    world.pause(3_600_000_000_000);
    world.drain();
    assert!(world.slots.iter().all(Option::is_none), "a silent connection is still there");
    let delivered = world.delivered;
    world.recover();
    delivered
}

struct World {
    broker: EdgeBroker,
    now: Instant,
    slots: [Option<LinkId>; SLOTS],
    links: u64,
    closed: BTreeSet<LinkId>,
    readers: BTreeMap<SubscriptionId, Reader>,
    logs: BTreeMap<CameraName, LogReader>,
    delivered: u64,
    /// The stills that applications wait for.
    stills: VecDeque<(SubscriptionId, CameraName, FrameId)>,
    /// Requests for the past that wait for an answer.
    questions: BTreeMap<u64, PastQuery>,
    /// Open requests for surveys, with their spans.
    surveys: BTreeMap<u64, (Timestamp, Timestamp)>,
    /// The last past frame that was an answer.
    last_past: Option<FrameId>,
    /// The last numbers requested from each camera, newest first.
    asked: BTreeMap<LinkId, VecDeque<u64>>,
    /// Past frames that are still arriving, with the number of missing bytes.
    arriving: Vec<(LinkId, u64, usize)>,
}

/// An application that checks what it gets.
struct Reader {
    session: Session,
    last: BTreeMap<CameraName, FrameId>,
    /// The chains that it decodes itself.
    given: BTreeMap<CameraName, Given>,
}

impl World {
    fn new() -> Self {
        let config = EdgeConfig {
            log_bytes_max: LOG_BYTES_MAX,
            cameras_max: CAMERAS_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
            forget_after: None,
            history_bytes_max: HISTORY_BYTES_MAX,
            channels: Channels::new(vec!["all=**".parse().expect("a channel")]).expect("one channel"),
            software: "fuzz".into(),
        };
        Self {
            broker: EdgeBroker::new(config),
            now: Instant::from_nanos(1_000_000_000_000),
            slots: [None; SLOTS],
            links: 0,
            closed: BTreeSet::new(),
            readers: BTreeMap::new(),
            logs: BTreeMap::new(),
            delivered: 0,
            stills: VecDeque::new(),
            questions: BTreeMap::new(),
            surveys: BTreeMap::new(),
            last_past: None,
            asked: BTreeMap::new(),
            arriving: Vec::new(),
        }
    }

    /// If the first step is of an unused kind, an earlier run of the edge left cameras and their frames.
    fn restore(&mut self, Step { what, args: [a, b, c] }: Step) {
        if what < 0xf0 {
            return;
        }
        let anchor = ClockAnchor { wall: ORIGIN, monotonic: self.now };
        let cameras = NAMES.iter().take(usize::from(a) % 5).map(|name| {
            let epoch = Epoch(pick(&EPOCHS, b));
            let record = |place: u8| {
                let id = FrameId { epoch, sequence: sequence(place.wrapping_mul(c)) };
                let meta = header(id, place, c & 7).meta;
                let frame = Frame { meta, payload: vec![0; usize::from(pick(&SIZES, c))].into() };
                Record {
                    frame,
                    skipped: Arc::new([]),
                    quality: Quality::default(),
                    trace: None,
                    link_bytes: None,
                    arrived: Instant::ZERO,
                }
            };
            (name.parse().unwrap(), (epoch, anchor), (0..b >> 2).map(record).collect())
        });
        let _ = self.broker.restore(cameras.collect());
        self.drain();
    }

    fn step(&mut self, Step { what, args: [a, b, c] }: Step) {
        let now = self.now;
        let slot = usize::from(a) % SLOTS;
        // A connection that does not exist is a valid input: the broker must ignore it.
        let link = self.slots[slot].unwrap_or(LinkId(u64::MAX));
        let frame = FrameId { epoch: Epoch(pick(&EPOCHS, c >> 5)), sequence: sequence(b) };
        match what % 25 {
            // A host connects. a is the slot, b its identity.
            0 => {
                if let Some(link) = self.slots[slot].take() {
                    self.broker.handle_closed(now, link);
                    self.closed.insert(link);
                }
                let (identity, cameras) = pick(&PEERS, b);
                let cameras = cameras.iter().map(|pattern| pattern.parse().unwrap()).collect();
                let link = LinkId(self.links);
                self.links += 1;
                self.slots[slot] = Some(link);
                self.broker.handle_connected(now, link, Peer { identity: identity.into(), cameras });
            }
            // The host sends its hello. b selects the camera's name, c its epoch and attempt.
            1 => {
                let hello = Hello {
                    version: if b >= 0xfe { u16::from(b) } else { VERSION },
                    camera: pick(&NAMES, b).parse().unwrap(),
                    epoch: Epoch(pick(&EPOCHS, c >> 5)),
                    attempt: u64::from(c & 0x0f),
                    anchor: ClockAnchor {
                        wall: if c & 0x10 == 0 { ORIGIN } else { Timestamp::MAX },
                        monotonic: now,
                    },
                    software: "camera".into(),
                };
                self.broker.handle_message(now, link, Message::Hello(hello));
            }
            // A header arrives. b is the sequence, c the epoch and the kind of header.
            2 | 3 => {
                if let Ok(()) = self.broker.handle_frame_header(now, link, header(frame, b, c & 0x1f)) {
                    assert!(self.slots[slot].is_some(), "a frame was accepted on a connection that is gone");
                }
                // Most frames arrive in one piece, so that logs fill.
                if what % 25 == 3 {
                    let payload = vec![b; usize::from(pick(&SIZES, c & 0x1f))];
                    self.broker.handle_frame_complete(now, link, frame, payload.into());
                }
            }
            4 => self.broker.handle_frame_progress(now, link, frame, u32::from(c) << 4),
            5 => {
                let payload = vec![b; usize::from(pick(&SIZES, c & 0x1f))];
                self.broker.handle_frame_complete(now, link, frame, payload.into());
            }
            6 => self.broker.handle_frame_cancelled(now, link, frame),
            7 => self.subscribe(a, b, c),
            8 => {
                let id = SubscriptionId(u64::from(a % SUBSCRIPTIONS));
                self.readers.remove(&id);
                self.broker.handle_unsubscribe(id);
            }
            // An application reads several times, so that it gets ahead.
            9 | 10 => self.read(SubscriptionId(u64::from(a % SUBSCRIPTIONS)), b % 8),
            11 => {
                let camera = pick(&NAMES, a).parse().unwrap();
                let result = ReplyResult::Opaque(Bytes::from(vec![0; usize::from(c) << 9]));
                let _ = self.broker.handle_reply(&camera, frame, "people", result);
            }
            12 => self.broker.handle_message(now, link, message(b, c, now)),
            13 if b >= 0xf0 => {
                let _ = self.broker.handle_reset(&pick(&NAMES, c).parse().unwrap());
            }
            13 => self.broker.handle_protocol_error(link, "nonsense"),
            14 => {
                if let Some(link) = self.slots[slot].take() {
                    self.broker.handle_closed(now, link);
                    self.closed.insert(link);
                }
            }
            15 => self.pause(pick(&PAUSES, a)),
            // Time passes, but the driver notices it only at the next event.
            16 => self.now = Instant::from_nanos(now.as_nanos().saturating_add(pick(&PAUSES, a))),
            17 => self.query(a, b, c),
            18 => self.ask(a, b, c),
            // A reader requests a survey, or a camera answers one.
            19 if c & 3 == 1 => self.survey(a, b, c >> 2),
            19 if c & 3 == 3 => self.surveyed(link, b, c >> 2),
            19 => self.drop_question(b),
            20 => self.update(a, b, c),
            21 => self.answers(link, frame, b, c, a & 0x40 == 0),
            22 => self.past_arrived(b, c),
            23 => self.still_made_as(b, c),
            _ => self.profiles(b, c),
        }
    }

    fn clock(&self) -> ClockAnchor {
        ClockAnchor { wall: self.wall(), monotonic: self.now }
    }

    fn wall(&self) -> Timestamp {
        ORIGIN + self.now.saturating_since(Instant::from_nanos(1_000_000_000_000))
    }

    /// Lets time pass like a driver: to the next deadlines, and then to the end of the pause.
    fn pause(&mut self, nanos: u64) {
        let end = Instant::from_nanos(self.now.as_nanos().saturating_add(nanos));
        for _ in 0..8 {
            match self.broker.poll_timeout() {
                Some(due) if due <= end => self.timeout(due.max(self.now)),
                _ => break,
            }
        }
        self.timeout(end);
    }

    fn timeout(&mut self, now: Instant) {
        self.now = now;
        self.broker.handle_timeout(now);
        if let Some(due) = self.broker.poll_timeout() {
            assert!(due > now, "the deadline {due:?} has passed at {now:?}: a driver would spin");
        }
        self.drain();
    }
}

/// Consecutive numbers, as in streams of frames, and the extremes at the end.
fn sequence(b: u8) -> Sequence {
    Sequence(if b < 0xf0 { b.into() } else { pick(&NUMBERS, b) })
}

/// Capture times of consecutive sequences, 10 ms apart, and the extremes.
fn captured(b: u8) -> Timestamp {
    match b {
        0xff => Timestamp::MAX,
        0xfe => Timestamp::MIN,
        _ => ORIGIN + std::time::Duration::from_millis(10 * u64::from(b)),
    }
}

/// Encodes a message and decodes it again.
pub(crate) fn crosses(mut message: Message) {
    if let Message::HistoryRequest(request) = &mut message {
        // These fields do not cross the wire: a camera asks only its own memory and disk.
        (request.query.tier_max, request.query.quality) = (Tier::Disk, None);
    }
    let (mut bytes, mut buffer) = (Vec::new(), MessageBuffer::default());
    message.encode(&mut bytes);
    buffer.push(&bytes);
    assert_eq!(buffer.next(), Ok(Some(message)), "a message of ours does not survive the wire");
    assert_eq!(buffer.next(), Ok(None));
}
