//! Frames of chains for applications that decode them themselves.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::frame::{ChainKinds, ChainLink, Encoding, Reference, Sequence, SkipRange, SkipReason};
use crate::stills::{StillAnswer, StillQuery};
use crate::subscription::{Deliver, Delivery, Next, Span, Subscription};
use crate::units::Timestamp;
use crate::wire::FrameHeader;

const H264: ChainKinds = ChainKinds::among(&[Encoding::H264]);
const WALL: Timestamp = Timestamp::from_nanos(1 << 61);

fn camera() -> CameraName {
    "dock/cam1".parse().unwrap()
}

fn frame(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(3), sequence: Sequence(sequence) }
}

/// A frame of the chain that began with `first`.
fn member(first: u64, index: u32, sequence: u64, bytes: u32) -> FrameHeader {
    let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
    let mut header = header(3, sequence, bytes, vec![]);
    header.meta.encoding = Encoding::H264;
    header.meta.chain = ChainLink { chain: Sequence(first), index, reference };
    header
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    rig.take();
    rig
}

fn anchor(rig: &Rig) -> ClockAnchor {
    ClockAnchor { wall: WALL, monotonic: rig.now }
}

/// An application that decodes chains itself subscribes.
fn subscribe(rig: &mut Rig, id: u64, span: Span) -> Subscription {
    let spec = SubscriptionSpec { span, chains: H264, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
    rig.broker.handle_subscribe(anchor(rig), SubscriptionId(id), spec);
    Subscription::new(span).taking_chains(H264)
}

/// Gives a subscription the logs that it is to read. Returns the other outputs.
fn attach(rig: &mut Rig, id: u64, reading: &mut Subscription) -> Vec<EdgeOutput> {
    let mut others = Vec::new();
    for output in rig.take() {
        match output {
            EdgeOutput::Attach { subscription, camera, log } if subscription.0 == id => {
                reading.attach(camera, log);
            }
            other => others.push(other),
        }
    }
    others
}

fn refreshed(outputs: &[EdgeOutput]) -> Vec<FrameId> {
    let asked = outputs.iter().filter_map(|output| match output {
        EdgeOutput::Send { message: Message::Refresh { frame }, .. } => Some(*frame),
        _ => None,
    });
    asked.collect()
}

/// The answer of the part that makes stills.
fn still(rig: &Rig, frame: FrameId) -> StillAnswer {
    let (log, ..) = rig.broker.log(&camera()).unwrap();
    let Some(mut record) = log.get_frame(frame) else { return StillAnswer::Gone };
    record.frame.meta.encoding = Encoding::Jpeg;
    record.frame.meta.chain = ChainLink::still(frame.sequence);
    StillAnswer::Still(Box::new(record), None)
}

fn next(reading: &mut Subscription) -> Option<Delivery> {
    match reading.next(WALL) {
        Next::Frame(delivery) => Some(*delivery),
        _ => None,
    }
}

/// A frame is delivered as it came, and nothing decodes it.
#[test]
fn a_frame_is_handed_on_as_it_came() {
    let mut rig = rig();
    let mut reading = subscribe(&mut rig, 1, Span::LIVE);
    attach(&mut rig, 1, &mut reading);
    let mut header = member(5, 0, 5, 30);
    (header.expected_accuracy, header.infeasible) = (Some(0.93), true);
    rig.frame(1, header.clone()).unwrap();
    assert!(rig.take().iter().any(|output| matches!(output, EdgeOutput::Appended { .. })));
    let record = next(&mut reading).expect("it is there").record;
    assert_eq!((record.frame.meta, record.frame.payload.len()), (header.meta, 30));
    assert_eq!((record.quality.expected_accuracy, record.quality.infeasible), (Some(0.93), true));
    assert_eq!(record.trace.map(|trace| (trace.arrived, trace.decoded)), Some((rig.now, None)));
    assert!(next(&mut reading).is_none() && reading.poll_still().is_none());
}

/// A reader that decodes no chains asks for the still of the newest frame, and gets it with the account of the frames before.
#[test]
fn who_decodes_no_chains_gets_a_still() {
    let mut rig = rig();
    let mut reading = subscribe(&mut rig, 1, Span::LIVE).taking_chains(ChainKinds::NONE);
    attach(&mut rig, 1, &mut reading);
    rig.frame(1, member(0, 0, 0, 30)).unwrap();
    assert!(next(&mut reading).is_none());
    assert_eq!(reading.poll_still(), Some((camera(), StillQuery { frame: frame(0), newest: true })));
    assert_eq!(reading.poll_still(), None, "it is asked for once");
    rig.frame(1, member(0, 1, 1, 30)).unwrap();
    assert!(next(&mut reading).is_none(), "it waits");
    reading.handle_still(&camera(), frame(1), StillAnswer::NotDecoded);
    assert!(next(&mut reading).is_none(), "that was not its question");
    reading.handle_still(&camera(), frame(0), still(&rig, frame(0)));
    let got = next(&mut reading).expect("it is there");
    assert_eq!((got.record.frame.meta.id, got.record.frame.meta.encoding), (frame(0), Encoding::Jpeg));
    for sequence in [2, 3] {
        rig.frame(1, member(0, sequence, u64::from(sequence), 30)).unwrap();
    }
    assert!(next(&mut reading).is_none());
    reading.handle_still(&camera(), frame(3), StillAnswer::NotDecoded);
    assert_eq!(reading.poll_still(), Some((camera(), StillQuery { frame: frame(3), newest: true })));
    reading.handle_still(&camera(), frame(3), StillAnswer::NotDecoded);
    rig.frame(1, header(3, 4, 10, vec![])).unwrap();
    let got = next(&mut reading).expect("a still needs nobody");
    let told = [SkipReason::EdgeBusy, SkipReason::ApplicationBusy, SkipReason::NotDecoded];
    assert_eq!(told.map(|reason| got.skipped.of(reason)), [1, 1, 1], "{:?}", got.skipped);
}

/// As [`member`], captured `ago` ms before now, and referring to frame `refers`.
fn captured(rig: &Rig, ago: u32, (index, sequence, refers): (u32, u64, u64)) -> FrameHeader {
    let mut header = member(0, index, sequence, 30);
    header.meta.captured = Timestamp::from_nanos((rig.now - MS * ago).as_nanos());
    if index > 0 {
        header.meta.chain.reference = Reference::Acknowledged(Sequence(refers));
    }
    header
}

/// A camera whose link was silent for two seconds, and two readers that decode its chains:
/// one of the newest frame, and one of every frame. Both have the first frame of a chain.
fn after_silence() -> (Rig, [Subscription; 2]) {
    let mut rig = rig();
    let spans = [Span::LIVE, Span { deliver: Deliver::Every, ..Span::LIVE }];
    let mut number = 0;
    let mut readings = spans.map(|span| {
        number += 1;
        let mut reading = subscribe(&mut rig, number, span);
        attach(&mut rig, number, &mut reading);
        reading
    });
    let pong = |now: Instant| Message::Pong { t1: now, t2: now, t3: now };
    rig.broker.handle_message(rig.now, LinkId(1), pong(rig.now));
    let first = captured(&rig, 10, (0, 0, 0));
    rig.frame(1, first).unwrap();
    for reading in &mut readings {
        assert!(next(reading).is_some_and(|got| got.record.frame.meta.id == frame(0)));
    }
    rig.now += 2_000 * MS;
    rig.broker.handle_message(rig.now, LinkId(1), pong(rig.now));
    (rig, readings)
}

fn numbers(reading: &mut Subscription) -> Vec<u64> {
    std::iter::from_fn(|| next(reading)).map(|got| got.record.frame.meta.id.sequence.0).collect()
}

/// When a link is back, the frames in the network's queue come first. A reader of chains that takes the newest
/// frame gets the frames that the newest needs, and none of the others. A reader of every frame gets all.
#[test]
fn of_a_burst_after_a_silence_only_what_the_newest_needs_is_handed_on() {
    let (mut rig, [mut newest, mut every]) = after_silence();
    for (ago, stale) in [(1_900, (1, 1, 0)), (1_800, (2, 2, 1)), (1_700, (3, 3, 2))] {
        let stale = captured(&rig, ago, stale);
        rig.frame(1, stale).unwrap();
        rig.now += 2 * MS;
        assert_eq!(numbers(&mut newest), [] as [u64; 0], "it is stale");
    }
    let fresh = captured(&rig, 20, (4, 4, 0));
    rig.frame(1, fresh).unwrap();
    let got = next(&mut newest).expect("it is there");
    assert_eq!((got.record.frame.meta.id, got.skipped.of(SkipReason::LateOrLost)), (frame(4), 3));
    assert_eq!(numbers(&mut every), [1, 2, 3, 4]);
    let then = captured(&rig, 5, (5, 5, 4));
    rig.frame(1, then).unwrap();
    assert_eq!(numbers(&mut newest), [5], "the chain goes on");
}

/// A stale frame also waits for a newer one that takes long.
#[test]
fn a_stale_frame_of_a_chain_waits_for_a_newer_one_that_takes_long() {
    let (mut rig, [mut newest, _]) = after_silence();
    let stale = captured(&rig, 1_500, (1, 1, 0));
    rig.frame(1, stale).unwrap();
    for _ in 0..60 {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
        assert_eq!(numbers(&mut newest), [] as [u64; 0]);
    }
    let fresh = captured(&rig, 100, (2, 2, 0));
    rig.frame(1, fresh).unwrap();
    assert_eq!(numbers(&mut newest), [2]);
}

/// If the newest frame needs a stale one, this one and those that it needs are delivered first.
#[test]
fn a_stale_frame_that_the_newest_needs_is_handed_on() {
    let (mut rig, [mut newest, _]) = after_silence();
    for (ago, stale) in [(1_900, (1, 1, 0)), (1_800, (2, 2, 1))] {
        let stale = captured(&rig, ago, stale);
        rig.frame(1, stale).unwrap();
    }
    let fresh = captured(&rig, 20, (3, 3, 1));
    rig.frame(1, fresh).unwrap();
    assert_eq!(numbers(&mut newest), [1, 3]);
}

/// If no newer frame comes, the newest of those that came is better than nothing.
#[test]
fn stale_frames_of_a_chain_without_a_newer_one_are_handed_on_soon() {
    let (mut rig, [mut newest, mut every]) = after_silence();
    for (ago, stale) in [(1_900, (1, 1, 0)), (1_800, (2, 2, 1))] {
        let stale = captured(&rig, ago, stale);
        rig.frame(1, stale).unwrap();
    }
    assert_eq!(numbers(&mut every), [1], "a newer one has come");
    for _ in 0..100 {
        rig.now += 10 * MS;
        rig.broker.handle_timeout(rig.now);
    }
    assert_eq!(numbers(&mut newest), [1, 2], "the second one needs the first");
    assert_eq!(numbers(&mut every), [2]);
}

/// A reader that joins in the middle of a chain would wait for up to ten seconds. So the camera
/// is asked for another chain, for all waiting readers at once, and at most every two seconds.
#[test]
fn the_camera_is_asked_for_a_chain_that_can_be_joined_but_seldom() {
    let mut rig = rig();
    subscribe(&mut rig, 1, Span::LIVE);
    assert_eq!(refreshed(&rig.take()), [], "the first frame of a chain stands alone anyway");
    rig.frame(1, member(5, 0, 5, 30)).unwrap();
    rig.frame(1, member(5, 1, 6, 30)).unwrap();
    rig.take();
    subscribe(&mut rig, 2, Span::LIVE);
    assert_eq!(refreshed(&rig.take()), [frame(5)]);
    rig.now += Duration::from_millis(500);
    subscribe(&mut rig, 3, Span::LIVE);
    rig.broker.handle_chain_lost(rig.now, &camera());
    rig.broker.handle_timeout(rig.now);
    assert_eq!(refreshed(&rig.take()), [], "too soon");
    let due = rig.broker.poll_timeout().unwrap();
    assert!(due <= rig.now + Duration::from_millis(1_500));
    rig.now += Duration::from_millis(1_500);
    rig.broker.handle_message(rig.now, LinkId(1), Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now });
    rig.broker.handle_timeout(rig.now);
    assert_eq!(refreshed(&rig.take()), [frame(5)]);

    // All waiting readers join a chain that begins by itself.
    rig.now += Duration::from_millis(100);
    subscribe(&mut rig, 4, Span::LIVE);
    rig.frame(1, member(7, 0, 7, 30)).unwrap();
    rig.now += Duration::from_secs(2);
    rig.broker.handle_message(rig.now, LinkId(1), Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now });
    rig.broker.handle_timeout(rig.now);
    assert_eq!(refreshed(&rig.take()), []);
}

/// Stills take a part of the camera's share, once it has sent a chain.
#[test]
fn memory_stays_within_the_camera_s_share() {
    let mut rig = rig();
    let share = 1u64 << 20;
    let budget = |rig: &Rig| rig.broker.log(&camera()).unwrap().0.share().bytes_max;
    rig.frame(1, header(3, 0, 30_000, vec![])).unwrap();
    assert_eq!(budget(&rig), share);
    for sequence in 1..200 {
        rig.frame(1, member(1, sequence as u32 - 1, sequence, 30_000)).unwrap();
        let known = &rig.broker.roster.cameras.get(&camera()).expect("it is known").replica;
        assert_eq!(budget(&rig), share - share / 16);
        assert!(known.log_bytes() <= budget(&rig));
    }
}

/// A step in a random world.
#[derive(Clone, Debug)]
enum Step {
    /// The camera skips frames, and reports it.
    Skip(u64),
    /// The camera sends a frame: how it refers to others, and its bytes.
    Send(Refers, u32),
    /// A frame that is on its way arrives, or is lost.
    Arrive(usize, bool),
    /// The oldest question for a still is answered.
    Decode(u8),
    /// A reader takes its next frames.
    Read(usize, usize),
    /// A reader begins anew.
    Join(usize, bool),
    /// A reader's decoder has failed.
    Fail(usize),
    /// Time passes.
    Wait(u64),
}

#[derive(Clone, Copy, Debug)]
enum Refers {
    Still,
    Begin,
    Before,
    Back(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let refers = prop_oneof![
        1 => Just(Refers::Still),
        1 => Just(Refers::Begin),
        12 => Just(Refers::Before),
        3 => (0..4usize).prop_map(Refers::Back),
    ];
    prop_oneof![
        1 => (1u64..4).prop_map(Step::Skip),
        8 => (refers, prop_oneof![100u32..400, 4_000u32..20_000]).prop_map(|(refers, bytes)| Step::Send(refers, bytes)),
        8 => (0..3usize, prop::bool::weighted(0.9)).prop_map(|(place, whole)| Step::Arrive(place, whole)),
        8 => (0u8..12).prop_map(Step::Decode),
        6 => (0..READERS, 1..4usize).prop_map(|(reader, frames)| Step::Read(reader, frames)),
        1 => (0..READERS, any::<bool>()).prop_map(|(reader, every)| Step::Join(reader, every)),
        1 => (0..READERS).prop_map(Step::Fail),
        2 => (1u64..800).prop_map(Step::Wait),
    ]
}

const READERS: usize = 3;

/// An application with a decoder, which holds the frames that it was given.
struct Reader {
    id: u64,
    reading: Subscription,
    /// The frame of which the reader awaits a still.
    awaits: Option<FrameId>,
    last: Option<u64>,
    /// For each chain: the frames that the reader was given, and the index of the last.
    given: BTreeMap<u64, (u32, BTreeSet<u64>)>,
}

impl Reader {
    fn take(&mut self) -> bool {
        let delivery = next(&mut self.reading);
        self.awaits = self.reading.poll_still().map(|(_, query)| query.frame).or(self.awaits);
        let Some(delivery) = delivery else { return false };
        let meta = &delivery.record.frame.meta;
        let sequence = meta.id.sequence.0;
        if let Some(last) = self.last {
            assert!(sequence > last, "{sequence} came after {last}");
            let between = sequence - last - 1;
            assert_eq!(delivery.skipped.total(), between, "between {last} and {sequence}");
        }
        self.last = Some(sequence);
        if meta.encoding.is_chained() {
            let ChainLink { chain, index, reference } = meta.chain;
            let given = self.given.get(&chain.0);
            let decodes = match reference {
                Reference::Independent => true,
                Reference::Previous => given.is_some_and(|(last, _)| last + 1 == index),
                Reference::Acknowledged(refers) => {
                    given.is_some_and(|(_, frames)| frames.contains(&refers.0))
                }
            };
            assert!(decodes, "{sequence} refers to what was not handed on: {:?}", meta.chain);
            let entry = self.given.entry(chain.0).or_default();
            entry.0 = index;
            entry.1.insert(sequence);
        }
        true
    }
}

/// A camera that knows which of its frames have arrived.
#[derive(Default)]
struct Sender {
    next: u64,
    skipped: Vec<SkipRange>,
    chain: Option<(u64, u32)>,
    arrived: Vec<u64>,
    on_their_way: Vec<FrameHeader>,
}

impl Sender {
    fn send(&mut self, refers: Refers, bytes: u32) -> FrameHeader {
        let sequence = self.next;
        self.next += 1;
        let mut made = match (refers, self.chain) {
            (Refers::Still, _) => header(3, sequence, bytes, vec![]),
            (Refers::Before, Some((first, index))) => {
                self.chain = Some((first, index + 1));
                member(first, index + 1, sequence, bytes)
            }
            (Refers::Back(back), Some((first, index))) if self.arrived.len() > back => {
                self.chain = Some((first, index + 1));
                let mut made = member(first, index + 1, sequence, bytes);
                let refers = self.arrived[self.arrived.len() - 1 - back];
                made.meta.chain.reference = Reference::Acknowledged(Sequence(refers));
                made
            }
            _ => {
                self.chain = Some((sequence, 0));
                self.arrived.clear();
                member(sequence, 0, sequence, bytes)
            }
        };
        made.skipped = std::mem::take(&mut self.skipped);
        made
    }
}

/// An edge with a camera, its decoder and three applications.
struct Scene {
    rig: Rig,
    sender: Sender,
    readers: Vec<Reader>,
    subscriptions: u64,
}

impl Scene {
    fn new() -> Self {
        let (rig, sender) = (rig(), Sender::default());
        let mut scene = Self { rig, sender, readers: Vec::new(), subscriptions: 0 };
        for place in 0..READERS {
            let reader = scene.join(place == 0);
            scene.readers.push(reader);
        }
        scene
    }

    fn join(&mut self, every: bool) -> Reader {
        self.subscriptions += 1;
        let deliver = if every { Deliver::Every } else { Deliver::Newest };
        let reading = subscribe(&mut self.rig, self.subscriptions, Span { deliver, ..Span::LIVE });
        Reader { id: self.subscriptions, reading, awaits: None, last: None, given: BTreeMap::new() }
    }

    fn step(&mut self, step: Step) {
        let Self { rig, sender, .. } = self;
        match step {
            Step::Skip(count) => {
                let first = Sequence(sender.next);
                sender.skipped.push(SkipRange { first, count, reason: SkipReason::LinkBusy });
                sender.next += count;
            }
            Step::Send(refers, bytes) => {
                let header = sender.send(refers, bytes);
                if rig.broker.handle_frame_header(rig.now, LinkId(1), header.clone()).is_ok() {
                    sender.on_their_way.push(header);
                }
            }
            Step::Arrive(place, whole) if place < sender.on_their_way.len() => self.arrive(place, whole),
            Step::Arrive(..) => {}
            Step::Decode(outcome) => {
                let awaits = |reader: &&mut Reader| reader.awaits.is_some();
                let Some(reader) = self.readers.iter_mut().find(awaits) else { return };
                let Some(frame) = reader.awaits.take() else { return };
                let answer = if outcome == 0 { StillAnswer::NotDecoded } else { still(rig, frame) };
                reader.reading.handle_still(&camera(), frame, answer);
            }
            Step::Read(reader, frames) => {
                for _ in 0..frames {
                    self.readers[reader].take();
                }
            }
            Step::Join(reader, every) => {
                rig.broker.handle_unsubscribe(SubscriptionId(self.readers[reader].id));
                self.readers[reader] = self.join(every);
            }
            Step::Fail(reader) => {
                self.readers[reader].reading.leave_chain(&camera());
                rig.broker.handle_chain_lost(rig.now, &camera());
            }
            Step::Wait(ms) => {
                rig.now += Duration::from_millis(ms);
                let pong = Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now };
                rig.broker.handle_message(rig.now, LinkId(1), pong);
                rig.broker.handle_timeout(rig.now);
            }
        }
    }

    fn arrive(&mut self, place: usize, whole: bool) {
        let Self { rig, sender, .. } = self;
        let header = sender.on_their_way.remove(place);
        let (id, bytes) = (header.meta.id, header.payload_bytes as usize);
        if !whole {
            return rig.broker.handle_frame_cancelled(rig.now, LinkId(1), id);
        }
        let same = sender.chain.is_some_and(|(first, _)| first == header.meta.chain.chain.0);
        if header.meta.encoding.is_chained() && same {
            sender.arrived.push(id.sequence.0);
        }
        rig.broker.handle_frame_complete(rig.now, LinkId(1), id, vec![0; bytes].into());
    }

    /// Carries out the edge's outputs.
    fn carry_out(&mut self) {
        for output in self.rig.take() {
            match output {
                EdgeOutput::Attach { subscription, camera, log } => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == subscription.0);
                    let _ = reader.map(|reader| reader.reading.attach(camera, log));
                }
                EdgeOutput::Send { message: Message::Refresh { .. }, .. } => self.sender.chain = None,
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3_000 }))]

    /// Whatever is lost, late, evicted, not decoded or passed over, and whenever readers join: a frame of a chain is delivered only after
    /// all frames that it refers to. Frames come in order, and every frame is delivered or accounted for. The logs stay within their shares.
    #[test]
    fn no_frame_is_handed_on_before_what_it_refers_to(steps in proptest::collection::vec(step(), 20..250)) {
        let mut scene = Scene::new();
        for step in steps {
            scene.step(step);
            scene.carry_out();
            let known = &scene.rig.broker.roster.cameras.get(&camera()).expect("it is known").replica;
            prop_assert!(known.log_bytes() <= 1 << 20);
        }
        let Scene { rig, readers, .. } = &mut scene;
        for reader in readers {
            loop {
                while reader.take() {}
                let Some(frame) = reader.awaits.take() else { break };
                reader.reading.handle_still(&camera(), frame, still(rig, frame));
            }
        }
    }
}
