//! The edge broker against cameras that say anything at any time, and applications that come and go.
//!
//! Besides that nothing panics:
//! - every event has few outputs, and the next deadline lies after the one that was handled;
//! - nothing is said on a connection that the broker has closed, and what is said fits on the wire;
//! - the replica logs together stay within their budget, and there are no more cameras than allowed;
//! - a subscription gets each camera's frames in strictly increasing order, and between two deliveries of one epoch
//!   the skipped frames are exactly those whose sequences are missing;
//! - a log is found in order by every kind of query;
//! - whatever happened, a camera that behaves is taken in, asked for frames, and heard.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use mez_core::broker::edge::{
    DECODING_FRAMES_MAX, Decoded, EdgeBroker, EdgeConfig, EdgeOutput, Peer, SubscriptionId,
};
use mez_core::broker::{LinkId, NUMBER_MAX};
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Reference, Rung, Sequence, SkipRange,
    SkipReason,
};
use mez_core::log::{LogReader, Read};
use mez_core::name::CameraName;
use mez_core::subscription::{Deliver, Next, Span, Subscription};
use mez_core::trace::{CameraTrace, Stage};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{
    Demand, DiskStatus, FrameHeader, Hello, Message, MessageBuffer, RefuseCode, Report, SKIP_RANGES_MAX,
    Status, VERSION, Welcome,
};

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
/// Far above what any one event asks for: every connection, and every subscription of every camera, a few times.
const OUTPUTS_MAX: usize = 200;
const ORIGIN: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

/// Runs a script.
pub fn run(bytes: &[u8]) {
    play(bytes);
}

/// Runs a script and gives the number of frames that applications got.
pub fn play(bytes: &[u8]) -> u64 {
    let mut world = World::new();
    for step in steps(bytes) {
        world.step(step);
        world.drain();
        // Decoders take a few steps for a frame.
        if world.decoding.len() > 2 {
            world.decoded();
        }
        world.check();
    }
    // Whatever happened, an hour without a word ends every connection.
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
    /// What decoders are at work on.
    decoding: VecDeque<(CameraName, LinkId, Frame)>,
}

/// An application that checks what it gets.
struct Reader {
    subscription: Subscription,
    last: BTreeMap<CameraName, FrameId>,
}

impl World {
    fn new() -> Self {
        let config = EdgeConfig {
            log_bytes_max: LOG_BYTES_MAX,
            cameras_max: CAMERAS_MAX,
            frame_bytes_max: FRAME_BYTES_MAX,
            software: "fuzz".into(),
            ..EdgeConfig::default()
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
            decoding: VecDeque::new(),
        }
    }

    fn step(&mut self, Step { what, args: [a, b, c] }: Step) {
        let now = self.now;
        let slot = usize::from(a) % SLOTS;
        // A connection that is not there is as good as any: the broker must not mind.
        let link = self.slots[slot].unwrap_or(LinkId(u64::MAX));
        let frame = FrameId { epoch: Epoch(pick(&EPOCHS, c >> 5)), sequence: sequence(b) };
        match what % 18 {
            // A host connects: a is the slot, b who it is.
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
            // It says which camera it is: b names it, c its start and attempt.
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
            // A header: b is the sequence, c the epoch and the kind of header.
            2 | 3 => {
                if let Ok(()) = self.broker.handle_frame_header(now, link, header(frame, b, c & 0x1f)) {
                    assert!(self.slots[slot].is_some(), "a frame was accepted on a connection that is gone");
                }
                // Most frames arrive at once, so that logs fill.
                if what % 18 == 3 {
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
            // An application subscribes: a is its number, b the pattern, c the span and the contract.
            7 => {
                let id = SubscriptionId(u64::from(a % SUBSCRIPTIONS));
                self.broker.handle_unsubscribe(id);
                self.drain();
                let span = span(c);
                assert_eq!(span.validate(), Ok(()));
                let reader = Reader { subscription: Subscription::new(span), last: BTreeMap::new() };
                self.readers.insert(id, reader);
                let pattern = pick(&PATTERNS, b).parse().unwrap();
                self.broker.handle_subscribe(self.clock(), id, pattern, contract(c), span);
            }
            8 => {
                let id = SubscriptionId(u64::from(a % SUBSCRIPTIONS));
                self.readers.remove(&id);
                self.broker.handle_unsubscribe(id);
            }
            // An application reads; several times, so that it gets ahead.
            9 | 10 => self.read(SubscriptionId(u64::from(a % SUBSCRIPTIONS)), b % 8),
            11 => {
                let camera = pick(&NAMES, a).parse().unwrap();
                let payload = Bytes::from(vec![0; usize::from(c) << 9]);
                let _ = self.broker.handle_reply(&camera, frame, "people", payload);
            }
            12 => self.broker.handle_message(now, link, message(b, c, now)),
            13 => self.broker.handle_protocol_error(link, "nonsense"),
            14 => {
                if let Some(link) = self.slots[slot].take() {
                    self.broker.handle_closed(now, link);
                    self.closed.insert(link);
                }
            }
            15 => self.pause(pick(&PAUSES, a)),
            // Time passes unnoticed: the next event comes first.
            16 => self.now = Instant::from_nanos(now.as_nanos().saturating_add(pick(&PAUSES, a))),
            _ => self.query(a, b, c),
        }
    }

    /// A decoder is done with a frame.
    fn decoded(&mut self) {
        let Some((camera, link, frame)) = self.decoding.pop_front() else { return };
        let FrameMeta { id, width, height, .. } = frame.meta;
        let (payload, encoding) = (frame.payload, Encoding::Jpeg);
        let decoded = match id.sequence.0 % 8 {
            0 => Decoded::NotHeld,
            1 => Decoded::Failed,
            2 => Decoded::Passed,
            _ => Decoded::Still { payload, encoding, width, height },
        };
        self.broker.handle_decoded(self.now, &camera, link, id, decoded);
        self.drain();
    }

    fn clock(&self) -> ClockAnchor {
        ClockAnchor { wall: self.wall(), monotonic: self.now }
    }

    fn wall(&self) -> Timestamp {
        ORIGIN + self.now.saturating_since(Instant::from_nanos(1_000_000_000_000))
    }

    /// Lets time pass, as a driver does: until the deadline, and then until the end of the pause.
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

    /// Carries out what the broker wants.
    fn drain(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.broker.poll_output() {
            outputs += 1;
            assert!(outputs <= OUTPUTS_MAX, "one event asks for more than {OUTPUTS_MAX} things");
            match output {
                EdgeOutput::Send { link, message } => {
                    assert!(!self.closed.contains(&link), "{message:?} on a connection that is closed");
                    if link != LinkId(u64::MAX) {
                        assert!(self.slots.contains(&Some(link)));
                    }
                    crosses(message);
                }
                EdgeOutput::Close { link } => {
                    self.closed.insert(link);
                    for slot in &mut self.slots {
                        slot.take_if(|other| *other == link);
                    }
                }
                EdgeOutput::Attach { subscription, camera, log } => {
                    self.logs.insert(camera.clone(), log.clone());
                    if let Some(reader) = self.readers.get_mut(&subscription) {
                        reader.subscription.attach(camera, log);
                    }
                }
                EdgeOutput::Decode { camera, link, frame } => {
                    assert!(frame.meta.encoding.is_chained());
                    self.decoding.push_back((camera, link, *frame));
                    assert!(self.decoding.len() <= CAMERAS_MAX * DECODING_FRAMES_MAX);
                }
                EdgeOutput::Appended { .. }
                | EdgeOutput::ViewChanged { .. }
                | EdgeOutput::CameraChanged { .. }
                | EdgeOutput::History { .. } => {}
            }
        }
        // The number by which the script means "no connection".
        self.closed.remove(&LinkId(u64::MAX));
    }

    /// A camera that was there before, or the first, comes back and behaves, and an application that behaves is there.
    fn recover(&mut self) {
        let cameras = self.broker.cameras(self.now);
        let name = cameras.first().map_or("dock/cam1".into(), |camera| camera.camera.to_string());
        let name: CameraName = name.parse().unwrap();
        let id = SubscriptionId(u64::from(SUBSCRIPTIONS));
        let subscription = Subscription::new(Span::LIVE);
        self.readers.insert(id, Reader { subscription, last: BTreeMap::new() });
        self.broker.handle_subscribe(
            self.clock(),
            id,
            "**".parse().unwrap(),
            Contract::default(),
            Span::LIVE,
        );
        self.drain();
        while !self.decoding.is_empty() {
            self.decoded();
        }
        let mut epoch = Epoch(1);
        for _ in 0..2 {
            let link = LinkId(self.links);
            self.links += 1;
            self.slots[0] = Some(link);
            let peer = Peer { identity: "spiffe://site/camera".into(), cameras: vec!["**".parse().unwrap()] };
            self.broker.handle_connected(self.now, link, peer);
            let hello = Hello {
                version: VERSION,
                camera: name.clone(),
                epoch,
                attempt: 1,
                // Not that of a start in the script, which had whole seconds.
                anchor: ClockAnchor { wall: ORIGIN, monotonic: Instant::from_nanos(1) },
                software: String::new(),
            };
            self.broker.handle_message(self.now, link, Message::Hello(hello));
            let (mut newest, mut wanted, mut closed) = (None, false, false);
            while let Some(output) = self.broker.poll_output() {
                match output {
                    EdgeOutput::Send { message: Message::Welcome(welcome), .. } => newest = welcome.newest,
                    EdgeOutput::Send { message: Message::Demand(demand), .. } => {
                        wanted = !demand.contracts.is_empty();
                    }
                    EdgeOutput::Close { .. } => closed = true,
                    EdgeOutput::Attach { camera, log, .. } => {
                        if let Some(reader) = self.readers.get_mut(&id) {
                            reader.subscription.attach(camera, log);
                        }
                    }
                    _ => {}
                }
            }
            if closed {
                let taken = newest.expect("a camera that behaves is told why it is not taken in").epoch;
                if taken.0 >= NUMBER_MAX {
                    // Somebody who may be this camera has used up its epochs.
                    return;
                }
                epoch = Epoch(taken.0.max(epoch.0) + 1);
                continue;
            }
            assert!(wanted, "a camera that somebody wants is not told");
            let frame = FrameId { epoch, sequence: Sequence(0) };
            let taken = self.broker.handle_frame_header(self.now, link, header(frame, 0, 0));
            assert_eq!(taken, Ok(()));
            self.broker.handle_frame_complete(self.now, link, frame, vec![0; 64].into());
            self.drain();
            let delivered = self.delivered;
            self.read(id, 0);
            assert_eq!(self.delivered, delivered + 1, "a frame that arrived is not delivered");
            return;
        }
        panic!("a camera that does as it is told is not taken in");
    }

    fn check(&self) {
        let cameras = self.broker.cameras(self.now);
        assert!(cameras.len() <= CAMERAS_MAX);
        // Nobody here keeps a record, so nothing but the logs counts.
        let bytes: u64 = cameras.iter().map(|camera| camera.log_bytes).sum();
        assert!(bytes <= LOG_BYTES_MAX, "the logs hold {bytes} bytes");
    }

    fn read(&mut self, id: SubscriptionId, times: u8) {
        let wall = self.wall();
        let Some(reader) = self.readers.get_mut(&id) else { return };
        for _ in 0..=times {
            let delivery = match reader.subscription.next(wall) {
                Next::Frame(delivery) => delivery,
                Next::Pending => return,
                Next::Ended { .. } => break,
            };
            let id = delivery.record.frame.meta.id;
            self.delivered += 1;
            let skipped = delivery.skipped.total();
            if let Some(last) = reader.last.insert(delivery.camera.clone(), id) {
                assert!(id > last, "{}: frame {id} after {last}", delivery.camera);
                if id.epoch == last.epoch {
                    let missing = id.sequence.0 - last.sequence.0 - 1;
                    assert_eq!(skipped, missing, "{}: frame {id} after {last}", delivery.camera);
                }
            }
            for range in delivery.record.skipped.iter() {
                assert!(range.count > 0 && range.end() <= id.sequence, "{range:?} with frame {id}");
            }
        }
    }

    /// Looks into a log in every way that there is.
    fn query(&self, a: u8, b: u8, c: u8) {
        let camera: CameraName = pick(&NAMES, a).parse().unwrap();
        let captured = captured(b);
        if let Some(clock) = self.broker.capture_clock(self.now, &camera) {
            let frame = FrameId { epoch: Epoch(pick(&EPOCHS, c)), sequence: sequence(b) };
            let _ = clock.captured_at(frame, captured);
        }
        let Some(log) = self.logs.get(&camera) else { return };
        if let Some(found) = log.at(captured) {
            assert!(found.frame.meta.captured <= captured);
        }
        let mut records = 0;
        for range in log.between(captured, captured + std::time::Duration::from_nanos(u64::from(c) << 20)) {
            assert!(range.start < range.end && log.held().start <= range.start);
            for index in range {
                records += u64::from(log.get(index).is_some());
            }
        }
        let held = log.held();
        assert!(records <= held.end - held.start, "a range of times has more frames than the log");
        let index = log.index_of(FrameId { epoch: Epoch(pick(&EPOCHS, c)), sequence: sequence(b) });
        assert!((held.start..=held.end).contains(&index));
        let (mut cursor, mut last) = (log.cursor(u64::from(c)), None);
        loop {
            match cursor.next() {
                Read::Record(record) => {
                    let id = record.frame.meta.id;
                    assert!(last.replace(id).is_none_or(|last| last < id));
                }
                Read::Evicted { records } => assert!(records > 0),
                Read::Pending => break,
            }
        }
    }
}

/// Sizes of payloads: 0, usual ones, the limit, and more than the limit. The last is what a short frame brings.
const SIZES: [u16; 32] = [
    64, 64, 64, 64, 64, 64, 64, 64, 512, 512, 512, 512, 1000, 1000, 1000, 1000, 2048, 2048, 2048, 2048, 64,
    64, 64, 64, 64, 64, 64, 64, 0, 1, 2049, 65535,
];

/// Consecutive numbers, where streams of frames come from, and at the end the extremes.
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

/// Stamps of any order, before the camera's start and after the end of its clock.
fn trace(b: u8, kind: u8) -> CameraTrace {
    let mut trace = CameraTrace::default();
    for (place, stage) in Stage::ALL.into_iter().enumerate().filter(|(place, _)| (b >> (place % 8)) & 1 == 1)
    {
        let at = (u64::from(kind) << (8 * (place % 8))).wrapping_mul(1_000_003);
        trace.stamp(stage, Instant::from_nanos(if kind == 30 { u64::MAX } else { at }));
    }
    trace
}

fn header(id: FrameId, b: u8, kind: u8) -> FrameHeader {
    let range = |first: u64, count: u64, reason| SkipRange { first: Sequence(first), count, reason };
    let (chain, skipped) = match kind {
        0..16 => (ChainLink::still(id.sequence), Vec::new()),
        16 => (ChainLink::still(id.sequence), vec![range(0, u64::from(b), SkipReason::LinkBusy)]),
        17 => (ChainLink::still(id.sequence), vec![range(u64::MAX, u64::MAX, SkipReason::Stalled)]),
        18 => {
            let ranges = (0..SKIP_RANGES_MAX as u64).map(|n| range(n, u64::MAX, SkipReason::NotWanted));
            (ChainLink::still(id.sequence), ranges.collect())
        }
        // Ranges that overlap, are empty and go backwards.
        19 => {
            let ranges = [
                range(9, 3, SkipReason::LinkBusy),
                range(2, 0, SkipReason::Stalled),
                range(1, 10, SkipReason::LinkDown),
            ];
            (ChainLink::still(id.sequence), ranges.into())
        }
        20..24 => {
            let chain =
                ChainLink { chain: Sequence(0), index: id.sequence.0 as u32, reference: Reference::Previous };
            (chain, Vec::new())
        }
        _ => {
            let reference = Reference::Acknowledged(Sequence(u64::MAX));
            (ChainLink { chain: Sequence(u64::MAX), index: u32::MAX, reference }, Vec::new())
        }
    };
    let meta = FrameMeta {
        id,
        captured: captured(b),
        clock_source: ClockSource::Broker,
        width: if kind == 27 { 0 } else { 640 },
        height: 480,
        encoding: match kind {
            20..22 => Encoding::H264,
            22 | 23 | 28 => Encoding::Tiles,
            _ => Encoding::Jpeg,
        },
        rung: Rung::original(),
        chain,
    };
    let payload_bytes = match kind {
        31 => u32::MAX,
        _ => u32::from(pick(&SIZES, kind)),
    };
    FrameHeader {
        meta,
        payload_bytes,
        sent: Instant::from_nanos(u64::from(b)),
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: trace(b, kind),
        skipped,
    }
}

fn span(c: u8) -> Span {
    let deliver = if c & 1 == 0 { Deliver::Newest } else { Deliver::Every };
    let (begin, end) = match c >> 5 {
        0..=2 => (None, None),
        3 => (Some(captured(c)), None),
        4 => (Some(Timestamp::MIN), Some(captured(c))),
        5 => (Some(captured(3)), Some(captured(200))),
        6 => (None, Some(captured(c))),
        _ => (Some(Timestamp::MIN), Some(Timestamp::MAX)),
    };
    Span { begin, end, deliver }
}

fn contract(c: u8) -> Contract {
    let contract = Contract {
        latency_bound: (c & 2 == 0).then_some(std::time::Duration::from_millis(100)),
        priority: i32::from(c) - 128,
        on_infeasible: if c & 4 == 0 { OnInfeasible::Degrade } else { OnInfeasible::Stop },
        ..Contract::default()
    };
    assert_eq!(contract.validate(), Ok(()));
    contract
}

/// What else a camera may say, and what it may not.
fn message(b: u8, c: u8, now: Instant) -> Message {
    let number = pick(&NUMBERS, c);
    let instant = Instant::from_nanos(number);
    let frame = FrameId { epoch: Epoch(1), sequence: Sequence(number) };
    match b % 11 {
        0 => Message::Ping { t1: instant },
        1 => Message::Pong { t1: now, t2: instant, t3: instant },
        2 => Message::Pong { t1: instant, t2: instant, t3: Instant::from_nanos(u64::MAX) },
        3 | 4 => Message::Status(Status {
            published: number,
            refused: number,
            width: number as u32,
            height: number as u32,
            frames_per_second: if c & 0x80 == 0 { 15.0 } else { f64::NAN },
            log_bytes: number,
        }),
        5 => Message::Welcome(Welcome {
            version: VERSION,
            newest: Some(frame),
            frame_bytes_max: c.into(),
            software: String::new(),
        }),
        6 => Message::Refuse { code: RefuseCode::Full, text: String::new() },
        7 => Message::Demand(Demand::default()),
        10 => Message::DiskStatus(DiskStatus { bytes: number, lost: number, degraded: String::new() }),
        8 => Message::Report(Report::Complete { frame, bytes: 9, first: instant, last: instant }),
        _ => Message::Reply { frame, application: String::new(), payload: Bytes::new() },
    }
}

/// Puts a message on the wire and takes it off again.
pub(crate) fn crosses(message: Message) {
    let (mut bytes, mut buffer) = (Vec::new(), MessageBuffer::default());
    message.encode(&mut bytes);
    buffer.push(&bytes);
    assert_eq!(buffer.next(), Ok(Some(message)), "a message of ours does not survive the wire");
    assert_eq!(buffer.next(), Ok(None));
}
