use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

mod adapting;
mod chains;
mod edges;
mod frame_skip;
mod history;
mod knobs;
mod negotiation;
mod settling;
mod share;
mod source;
mod source_chains;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{CameraBroker, CameraConfig, CameraOutput, Transform, Transformed};
use crate::broker::{
    EPOCH_BASE, EPOCH_MAX, EPOCH_RAISE_MAX, EdgeIndex, Intake, IntakeConfig, LinkId, NUMBER_MAX, Published,
    REFUSED_INTERVAL,
};
use crate::contract::{Contract, OnInfeasible};
use crate::controller::named::PolicyName;
use crate::data::DataRecord;
use crate::frame::{Encoding, Epoch, FrameId, Rung, Sequence, SkipRange, SkipReason};
use crate::log::{LogConfig, log};
use crate::profile::{ByteSizes, Profile, RungProfile, SizedProfile};
use crate::units::{ClockAnchor, Instant, Timestamp};
use crate::wire::{Demand, Message, RefuseCode, Report, Status, VERSION, Welcome};

const MS: Duration = Duration::from_millis(1);

/// A camera broker with its log, driven by hand.
struct Rig {
    now: Instant,
    intake: Intake,
    broker: CameraBroker,
    /// What the broker wanted done, but for pings and statuses.
    outputs: Vec<CameraOutput>,
    /// It has sent a ping that was not answered.
    asked: bool,
}

impl Rig {
    fn new() -> Self {
        Self::with_edges(1)
    }

    fn with_edges(edges: usize) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let anchor = ClockAnchor { wall: Timestamp::from_nanos(1 << 60), monotonic: now };
        let (writer, reader) = log(LogConfig::default());
        let config = CameraConfig {
            camera: "dock/cam1".parse().unwrap(),
            epoch: Epoch(3),
            anchor,
            software: "".into(),
            policy: PolicyName::default(),
            edges,
        };
        let broker = CameraBroker::new(config, &reader, now);
        let intake = Intake::new(writer, IntakeConfig::new(Epoch(3), anchor));
        Self { now, intake, broker, outputs: Vec::new(), asked: false }
    }

    /// With a connection on which the camera is welcome and wanted.
    fn connected(contract: Contract) -> Self {
        Self::connected_with(1, contract)
    }

    fn connected_with(edges: usize, contract: Contract) -> Self {
        let mut rig = Self::with_edges(edges);
        rig.welcome(1, None);
        rig.demand(1, 1, vec![contract]);
        rig.take();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            match output {
                CameraOutput::Send { message: Message::Ping { .. }, .. } => self.asked = true,
                CameraOutput::Send { message: Message::Status(_), .. } => {}
                output => self.outputs.push(output),
            }
        }
    }

    /// What the broker wanted done since this was last asked.
    fn take(&mut self) -> Vec<CameraOutput> {
        self.drain();
        std::mem::take(&mut self.outputs)
    }

    /// Lets time pass, serving the timer; the edge answers on the given connections all the while.
    fn pass(&mut self, duration: Duration, alive: &[u64]) {
        let end = self.now + duration;
        while self.broker.poll_timeout() <= end {
            self.now = self.now.max(self.broker.poll_timeout());
            for link in alive {
                self.message(*link, Message::Ping { t1: self.now });
            }
            self.broker.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn message(&mut self, link: u64, message: Message) {
        self.broker.handle_message(self.now, LinkId(link), message);
    }

    /// The edge answers the last ping, if it has not.
    fn answer_ping(&mut self, link: u64) {
        self.drain();
        if std::mem::take(&mut self.asked) {
            self.answer(link);
        }
    }

    /// The edge answers a ping, which took no time.
    fn answer(&mut self, link: u64) {
        self.message(link, Message::Pong { t1: self.now, t2: self.now, t3: self.now });
    }

    fn welcome(&mut self, link: u64, newest: Option<FrameId>) {
        self.welcome_at(0, link, newest);
    }

    fn welcome_at(&mut self, edge: usize, link: u64, newest: Option<FrameId>) {
        self.broker.handle_dialled(self.now, LinkId(link), EdgeIndex(edge));
        let welcome = Welcome { version: VERSION, newest, frame_bytes_max: 1000, software: "".into() };
        self.message(link, Message::Welcome(welcome));
    }

    fn demand(&mut self, link: u64, revision: u64, contracts: Vec<Contract>) {
        self.message(link, Message::Demand(Demand { revision, contracts }));
    }

    fn publish(&mut self, bytes: usize) -> FrameId {
        self.publish_image(bytes, (4, 4))
    }

    fn publish_image(&mut self, bytes: usize, (width, height): (u32, u32)) -> FrameId {
        let (payload, encoding) = (vec![0; bytes].into(), Encoding::Jpeg);
        let frame = Published { payload, encoding, width, height, captured: None };
        let id = self.intake.publish(self.now, frame).unwrap();
        self.broker.handle_published(self.now);
        id
    }

    fn publish_data(&mut self, body: &[u8]) -> FrameId {
        let content_type = "application/octet-stream".parse().unwrap();
        let record = DataRecord { content_type, of: None, body: Bytes::copy_from_slice(body) };
        let id = self.intake.publish(self.now, Published::data(&record, None)).unwrap();
        self.broker.handle_published(self.now);
        id
    }

    fn sent(&mut self, link: u64, frame: FrameId) {
        self.broker.handle_sent(self.now, LinkId(link), frame);
    }

    fn complete(&mut self, link: u64, frame: FrameId, bytes: u32) {
        let report = Report::Complete { frame, bytes, first: self.now, last: self.now };
        self.message(link, Message::Report(report));
    }
}

fn frames_sent(outputs: &[CameraOutput]) -> Vec<(FrameId, Vec<SkipRange>)> {
    let sent = |output: &CameraOutput| match output {
        CameraOutput::SendFrame { header, .. } => Some((header.meta.id, header.skipped.clone())),
        _ => None,
    };
    outputs.iter().filter_map(sent).collect()
}

fn resets(outputs: &[CameraOutput]) -> Vec<FrameId> {
    let reset = |output: &CameraOutput| match output {
        CameraOutput::Reset { frame, .. } => Some(*frame),
        _ => None,
    };
    outputs.iter().filter_map(reset).collect()
}

fn dials(outputs: &[CameraOutput]) -> usize {
    outputs.iter().filter(|output| matches!(output, CameraOutput::Dial { .. })).count()
}

fn skipped(first: u64, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first: Sequence(first), count, reason }
}

/// A rung of a profile: what its frames have, in bytes on average and how far they are from that; what it keeps; what it takes to be made.
fn rung(name: &str, bytes: (f64, f64), accuracy: f64, camera_time: Duration) -> RungProfile {
    RungProfile {
        rung: Rung::new(name).expect("a valid rung"),
        bytes: ByteSizes::around(bytes.0, bytes.1),
        accuracy,
        camera_time,
        detector_time: None,
    }
}

/// A profile of a single rung, of frames of 64×48 pixels.
fn one_rung(name: &str) -> SizedProfile {
    let profile = Profile::new(vec![rung(name, (100.0, 0.3), 0.95, 8 * MS)]).expect("a valid profile");
    SizedProfile { size: (64, 48), interval: None, profile }
}

fn bound(bound: Duration) -> Contract {
    Contract { latency_bound: Some(bound), ..Contract::default() }
}

/// The edge says "replaced" of a connection whose place another of ours has taken: no reason to stay away.
#[test]
fn a_connection_that_we_replaced_ourselves_does_not_hold_us_back() {
    let replaced = Message::Refuse { code: RefuseCode::Replaced, text: "".into() };
    let mut rig = Rig::connected(Contract::default());
    rig.pass(800 * MS, &[]);
    rig.broker.handle_dialled(rig.now, LinkId(2), EdgeIndex(0));
    rig.message(1, replaced.clone());
    rig.broker.handle_closed(rig.now, LinkId(2));
    rig.take();
    rig.pass(300 * MS, &[]);
    assert!(dials(&rig.take()) >= 1);

    let mut rig = Rig::connected(Contract::default());
    rig.message(1, replaced);
    rig.take();
    rig.pass(4900 * MS, &[]);
    assert_eq!(dials(&rig.take()), 0, "another start has replaced us, and we are back at once");
    rig.pass(200 * MS, &[]);
    assert_eq!(dials(&rig.take()), 1);
}

#[test]
fn a_connection_is_not_taken_where_another_works() {
    let mut rig = Rig::connected(Contract::default());
    rig.broker.handle_dialled(rig.now, LinkId(2), EdgeIndex(0));
    let outputs = rig.take();
    assert!(matches!(outputs[..], [CameraOutput::Close { link: LinkId(2) }]), "{outputs:?}");
    assert!(rig.broker.is_up());
}

/// After a dial was given up there is room for another, whatever became of the ones before.
#[test]
fn dials_are_bounded_and_never_cease() {
    let mut rig = Rig::new();
    rig.pass(Duration::from_secs(10), &[]);
    let begun = dials(&rig.take());
    assert_eq!(begun, 8, "nothing has answered yet");
    for _ in 0..begun {
        rig.broker.handle_dial_failed(rig.now, EdgeIndex(0));
    }
    rig.pass(Duration::from_secs(1), &[]);
    assert!((4..=5).contains(&dials(&rig.take())));
}

/// An epoch begins while two connections were told the one before.
#[test]
fn a_new_epoch_leaves_no_connection_of_the_old_one() {
    let mut rig = Rig::new();
    rig.publish(10);
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.pass(760 * MS, &[]);
    let taken = FrameId { epoch: Epoch(5), sequence: Sequence(7) };
    rig.welcome(2, Some(taken));
    let outputs = rig.take();
    assert!(outputs.iter().any(|output| matches!(output, CameraOutput::RaiseEpoch { above: Epoch(5) })));

    // Published under the old epoch, and not looked at before the new one begins.
    let old = Published {
        payload: vec![0; 10].into(),
        encoding: Encoding::Jpeg,
        width: 4,
        height: 4,
        captured: None,
    };
    rig.intake.publish(rig.now, old).unwrap();
    rig.intake.raise_epoch(Epoch(6));
    rig.broker.handle_epoch(rig.now, Epoch(6));
    let closed = rig.take();
    assert!(matches!(closed[..], [CameraOutput::Close { link: LinkId(1) }]), "{closed:?}");

    rig.broker.handle_published(rig.now);
    rig.welcome(3, Some(taken));
    rig.demand(3, 1, vec![Contract::default()]);
    assert_eq!(frames_sent(&rig.take()), [], "a frame of the old epoch was sent");
    let first = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(first, vec![])]);
}

/// Its messages may mean something else.
#[test]
fn an_edge_of_another_version_is_named_and_left_alone_for_a_while() {
    let mut rig = Rig::new();
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.message(
        1,
        Message::Welcome(Welcome {
            version: 77,
            newest: None,
            frame_bytes_max: 1000,
            software: String::new(),
        }),
    );
    let outputs = rig.take();
    let named = |output: &CameraOutput| matches!(output, CameraOutput::Refused { code: RefuseCode::Version, text } if text.contains("77"));
    assert!(outputs.iter().any(named), "{outputs:?}");
    assert!(!rig.broker.is_up());
    rig.pass(4 * REFUSED_INTERVAL / 5, &[]);
    assert_eq!(dials(&rig.take()), 0);
}

/// What was agreed on would no longer hold for frames on their way.
#[test]
fn an_edge_that_welcomes_twice_makes_no_sense() {
    let mut rig = Rig::connected(Contract::default());
    rig.message(
        1,
        Message::Welcome(Welcome {
            version: VERSION,
            newest: None,
            frame_bytes_max: 5,
            software: String::new(),
        }),
    );
    let outputs = rig.take();
    assert!(
        outputs.iter().any(|output| matches!(output, CameraOutput::Close { link: LinkId(1) })),
        "{outputs:?}"
    );
    assert!(!rig.broker.is_up());
}

/// The edge would refuse it on a connection of the new epoch, and count a frame refused that nobody misses.
#[test]
fn a_frame_that_is_being_made_does_not_survive_its_epoch() {
    let mut rig = Rig::connected(Contract { accuracy_floor: Some(0.9), ..bound(100 * MS) });
    let old = rig.publish_image(100_000, (1280, 960));
    assert!(rig.take().iter().any(|output| matches!(output, CameraOutput::Transform(_))));
    rig.intake.raise_epoch(Epoch(6));
    rig.broker.handle_epoch(rig.now, Epoch(6));
    rig.welcome(2, None);
    rig.demand(2, 1, vec![Contract::default()]);
    rig.take();
    rig.broker.handle_transformed(rig.now, old, adapting::transformed(old, Some(100)));
    assert_eq!(frames_sent(&rig.take()), []);
    let new = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(new, vec![])]);
}

/// What an edge says goes into the counter on disk: an absurd number would stay there.
#[test]
fn an_edge_raises_the_epoch_by_a_bounded_step() {
    let highest = EPOCH_BASE.0 + EPOCH_RAISE_MAX;
    for (said, is_believed) in [
        (u64::MAX, false),
        (NUMBER_MAX - 1, false),
        (EPOCH_MAX.0, false),
        (highest + 1, false),
        (highest, true),
    ] {
        let mut rig = Rig::new();
        rig.welcome(1, Some(FrameId { epoch: Epoch(said), sequence: Sequence(NUMBER_MAX) }));
        let outputs = rig.take();
        let raised = outputs.iter().any(|output| matches!(output, CameraOutput::RaiseEpoch { .. }));
        assert_eq!(raised, is_believed, "{said}: {outputs:?}");
        let text = outputs.iter().find_map(|output| match output {
            CameraOutput::Refused { text, .. } => Some(text.clone()),
            _ => None,
        });
        assert_eq!(text.is_some_and(|text| text.contains("mez cameras reset dock/cam1")), !is_believed);
        assert!(!rig.broker.is_up());
    }
}

/// A frame that the edge stops is skipped by that name, and its place is free for the next.
#[test]
fn a_frame_that_the_edge_stops_makes_room() {
    let mut rig = Rig::connected(Contract::default());
    for number in 0..40u64 {
        let frame = rig.publish(10);
        let sent = frames_sent(&rig.take());
        assert_eq!(sent.len(), 1, "frame {number} waits");
        let expected = (number > 0).then(|| skipped(0, number, SkipReason::Refused));
        assert_eq!(sent[0].1, Vec::from_iter(expected));
        if number % 2 == 0 {
            rig.sent(1, frame);
        }
        rig.message(1, Message::Report(Report::Refused { frame }));
    }
}

#[test]
fn a_frame_above_the_edges_limit_is_not_sent() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish(1001);
    assert_eq!(frames_sent(&rig.take()), []);
    let next = rig.publish(1000);
    assert_eq!(frames_sent(&rig.take()), [(next, vec![skipped(0, 1, SkipReason::Refused)])]);
}

/// Each frame of a camera that publishes seldom has its time, also after an outage.
#[test]
fn the_time_without_progress_begins_with_the_frame() {
    let mut rig = Rig::connected(bound(100 * MS));
    let first = rig.publish(10);
    rig.pass(400 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [first]);
    rig.pass(Duration::from_secs(60), &[1]);
    rig.answer(1);
    let second = rig.publish(10);
    assert_eq!(frames_sent(&rig.take())[0].0, second);
    rig.pass(100 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [], "the second frame was given up at once");
}

/// What arrives of a frame that was given up shows that the link is slow and not dead.
#[test]
fn a_report_of_a_frame_given_up_ends_the_outage() {
    let mut rig = Rig::connected(bound(100 * MS));
    let first = rig.publish(10);
    rig.pass(400 * MS, &[1]);
    rig.publish(10);
    let newest = rig.publish(10);
    let outputs = rig.take();
    assert_eq!((resets(&outputs), frames_sent(&outputs).len()), (vec![first], 1), "a frame was tried");
    rig.complete(1, first, 10);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent.iter().map(|(frame, _)| *frame).collect::<Vec<_>>(), [newest], "the outage goes on");
}

/// During an outage pings ask whether the link is back. Frames that were tried would be stale by then, and
/// stand before the newest.
#[test]
fn after_an_outage_the_first_frame_is_the_newest() {
    let mut rig = Rig::connected(bound(100 * MS));
    rig.answer(1);
    let lost = rig.publish(10);
    rig.sent(1, lost);
    rig.pass(400 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [lost]);
    let asked = rig.now;
    let mut pings = 0;
    let mut newest = lost;
    for _ in 0..20 {
        newest = rig.publish(10);
        rig.now += 100 * MS;
        rig.broker.handle_timeout(rig.now);
        while let Some(output) = rig.broker.poll_output() {
            pings += u32::from(matches!(output, CameraOutput::Send { message: Message::Ping { .. }, .. }));
            assert!(!matches!(output, CameraOutput::SendFrame { .. }), "a frame is tried");
        }
    }
    assert!(pings >= 19, "{pings} pings in two seconds");
    let before = Instant::from_nanos(asked.as_nanos() - 350_000_000);
    rig.message(1, Message::Pong { t1: before, t2: before, t3: before });
    assert_eq!(frames_sent(&rig.take()), [], "an answer to a ping from before the outage");
    rig.answer(1);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent.iter().map(|(frame, _)| *frame).collect::<Vec<_>>(), [newest]);
}

/// The limit doubles with every frame given up, up to five seconds, until one arrives.
#[test]
fn patience_grows_with_every_frame_given_up() {
    let mut rig = Rig::connected(bound(100 * MS));
    let mut limits = Vec::new();
    for _ in 0..8 {
        rig.answer(1);
        let frame = rig.publish(10);
        let begun = rig.now;
        while !resets(&rig.take()).contains(&frame) {
            rig.pass(10 * MS, &[1]);
        }
        limits.push(rig.now.saturating_since(begun).as_millis());
    }
    assert!(limits.is_sorted() && limits[0] <= 320 && limits[1] >= 2 * limits[0] - 20, "{limits:?}");
    assert_eq!(limits[7], 5000);
}

/// Pauses after which bytes go on are the link's usual way: they are not taken for outages again.
#[test]
fn patience_follows_the_pauses_of_the_link() {
    let mut rig = Rig::connected(bound(100 * MS));
    for _ in 0..3 {
        let frame = rig.publish(10);
        rig.take();
        rig.pass(290 * MS, &[1]);
        assert_eq!(resets(&rig.take()), []);
        rig.complete(1, frame, 10);
    }
    let frame = rig.publish(10);
    rig.take();
    rig.pass(570 * MS, &[1]);
    assert_eq!(resets(&rig.take()), []);
    rig.pass(30 * MS, &[1]);
    assert_eq!(resets(&rig.take()), [frame]);
}

#[test]
fn what_nobody_wants_any_more_is_cancelled() {
    let mut rig = Rig::connected(Contract::default());
    let sending = rig.publish(10);
    rig.publish(10);
    rig.take();
    rig.demand(1, 2, vec![]);
    assert_eq!(resets(&rig.take()), [sending]);
    rig.pass(Duration::from_secs(1), &[1]);
    rig.demand(1, 3, vec![Contract::default()]);
    assert_eq!(frames_sent(&rig.take()), [], "a frame from before the demand was sent");
    let frame = rig.publish(10);
    assert_eq!(frames_sent(&rig.take()), [(frame, vec![skipped(0, 2, SkipReason::NotWanted)])]);
}

/// Frames that were on their way when the link went down may have arrived; what lies beyond them keeps its reason.
#[test]
fn a_welcome_acknowledges_what_arrived_and_no_more() {
    let mut rig = Rig::connected(Contract::default());
    let arrived = rig.publish(10);
    rig.sent(1, arrived);
    let lost = rig.publish(10);
    rig.sent(1, lost);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.publish(10);
    rig.publish(10);
    rig.take();
    rig.welcome(2, Some(arrived));
    rig.demand(2, 1, vec![Contract::default()]);
    let sent = frames_sent(&rig.take());
    assert_eq!(sent[0].1, [skipped(1, 2, SkipReason::LinkDown)]);
}

/// What may happen to a camera broker, in any order.
#[derive(Clone, Debug)]
enum Input {
    Publish(usize),
    Pass(u64),
    Dialled(u64),
    DialFailed,
    Closed(u64),
    /// The frame that is being sent, or the one of this sequence.
    Sent(u64, Option<u64>),
    Stopped(u64, Option<u64>),
    /// All that was sent on a connection has arrived.
    Arrived(u64),
    Epoch(u64),
    /// The codec is done with its frame, or with one of this sequence: so many bytes came out, or nothing.
    Transformed(Option<u64>, Option<usize>),
    Message(u64, Message),
}

fn any_frame() -> impl Strategy<Value = FrameId> {
    (prop_oneof![0u64..6, any::<u64>()], prop_oneof![0u64..12, any::<u64>()])
        .prop_map(|(epoch, sequence)| FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) })
}

fn any_edge_message() -> impl Strategy<Value = Message> {
    let instant = || (0u64..30_000_000_000).prop_map(Instant::from_nanos);
    let newest = prop_oneof![9 => Just(None), 1 => any_frame().prop_map(Some)];
    let frame_bytes_max = prop_oneof![9 => Just(1000u32), 1 => 0u32..40];
    let contracts = prop::collection::vec((1u64..2_000, prop::option::of(0.0f64..=1.0), any::<bool>()), 0..4);
    let contracts = contracts.prop_map(|contracts| {
        let contract = |(ms, accuracy_floor, skip)| Contract {
            accuracy_floor,
            on_infeasible: if skip { OnInfeasible::Skip } else { OnInfeasible::Degrade },
            ..bound(Duration::from_millis(ms))
        };
        contracts.into_iter().map(contract).collect::<Vec<_>>()
    });
    let code = prop::sample::select(vec![
        RefuseCode::Version,
        RefuseCode::NameHeld,
        RefuseCode::Replaced,
        RefuseCode::Stopping,
    ]);
    prop_oneof![
        8 => (newest, frame_bytes_max).prop_map(|(newest, frame_bytes_max)| {
            Message::Welcome(Welcome { version: VERSION, newest, frame_bytes_max, software: String::new() })
        }),
        1 => code.prop_map(|code| Message::Refuse { code, text: String::new() }),
        2 => instant().prop_map(|t1| Message::Ping { t1 }),
        2 => [instant(), instant(), instant()].prop_map(|[t1, t2, t3]| Message::Pong { t1, t2, t3 }),
        8 => (0u64..9, contracts).prop_map(|(revision, contracts)| Message::Demand(Demand { revision, contracts })),
        8 => (any_frame(), 0u32..40, any::<bool>(), instant()).prop_map(|(frame, bytes, complete, at)| {
            Message::Report(match complete {
                true => Report::Complete { frame, bytes, first: at, last: at },
                false => Report::Progress { frame, bytes, first: at, now: at },
            })
        }),
        1 => Just(Message::Status(Status::default())),
    ]
}

fn any_input() -> impl Strategy<Value = Input> {
    let link = || prop_oneof![4 => Just(1u64), 2 => Just(2u64), 1 => Just(3u64)];
    let which = || prop::option::weighted(0.2, 0u64..20);
    prop_oneof![
        8 => (1usize..40).prop_map(Input::Publish),
        4 => prop_oneof![4 => 0u64..100, 1 => 0u64..6_000].prop_map(Input::Pass),
        1 => link().prop_map(Input::Dialled),
        1 => Just(Input::DialFailed),
        1 => link().prop_map(Input::Closed),
        6 => (link(), which()).prop_map(|(link, sequence)| Input::Sent(link, sequence)),
        2 => (link(), which()).prop_map(|(link, sequence)| Input::Stopped(link, sequence)),
        3 => link().prop_map(Input::Arrived),
        1 => (3u64..6).prop_map(Input::Epoch),
        8 => (which(), prop::option::weighted(0.9, 0usize..1_200)).prop_map(|(s, made)| Input::Transformed(s, made)),
        14 => (link(), any_edge_message()).prop_map(|(link, message)| Input::Message(link, message)),
    ]
}

/// A camera, and what a bystander knows of it.
struct Scene {
    rig: Rig,
    /// The frame of each connection that has bytes unsent.
    unsent: BTreeMap<LinkId, FrameId>,
    sent: std::collections::BTreeSet<FrameId>,
    under_way: BTreeMap<LinkId, Vec<(FrameId, u32)>>,
    making: Option<FrameId>,
}

impl Scene {
    fn named(&self, sequence: Option<u64>) -> Option<FrameId> {
        sequence.map(|sequence| FrameId { epoch: self.rig.broker.epoch(), sequence: Sequence(sequence) })
    }

    fn input(&mut self, input: Input) -> Result<(), TestCaseError> {
        match input {
            Input::Publish(bytes) => drop(self.rig.publish(bytes)),
            Input::Pass(ms) => return self.pass(ms),
            Input::Dialled(link) => {
                // Whoever makes connections numbers them anew.
                self.close(LinkId(link));
                let edge = EdgeIndex(link as usize % 2);
                self.rig.broker.handle_dialled(self.rig.now, LinkId(link), edge);
            }
            Input::DialFailed => self.rig.broker.handle_dial_failed(self.rig.now, EdgeIndex(0)),
            Input::Closed(link) => self.close(LinkId(link)),
            Input::Sent(link, sequence) => {
                if let Some(frame) = self.leaves(LinkId(link), sequence) {
                    self.rig.broker.handle_sent(self.rig.now, LinkId(link), frame);
                }
            }
            Input::Stopped(link, sequence) => {
                if let Some(frame) = self.leaves(LinkId(link), sequence) {
                    let refused = Message::Report(Report::Refused { frame });
                    self.rig.broker.handle_message(self.rig.now, LinkId(link), refused);
                }
            }
            Input::Arrived(link) => {
                for (frame, bytes) in self.under_way.remove(&LinkId(link)).unwrap_or_default() {
                    self.unsent.retain(|_, being_sent| *being_sent != frame);
                    self.rig.complete(link, frame, bytes);
                }
            }
            Input::Epoch(epoch) => {
                if Epoch(epoch) > self.rig.broker.epoch() {
                    self.rig.intake.raise_epoch(Epoch(epoch));
                    self.rig.broker.handle_epoch(self.rig.now, Epoch(epoch));
                }
            }
            Input::Transformed(sequence, made) => {
                if let Some(frame) = self.named(sequence).or(self.making) {
                    // What is said of a frame that no codec has is passed over.
                    self.making.take_if(|making| *making == frame);
                    let made = adapting::transformed(frame, made);
                    self.rig.broker.handle_transformed(self.rig.now, frame, made);
                }
            }
            Input::Message(link, message) => {
                if let Message::Report(Report::Complete { frame, .. }) = message
                    && self.unsent.get(&LinkId(link)) == Some(&frame)
                {
                    // The edge cannot have all of a frame that has not left; it is believed all the same.
                    self.unsent.remove(&LinkId(link));
                }
                self.rig.message(link, message);
            }
        }
        Ok(())
    }

    /// Time passes, and timers go off.
    fn pass(&mut self, ms: u64) -> Result<(), TestCaseError> {
        let rig = &mut self.rig;
        let end = rig.now + Duration::from_millis(ms);
        let mut rounds = 0;
        while rig.broker.poll_timeout() <= end {
            rig.now = rig.now.max(rig.broker.poll_timeout());
            rig.broker.handle_timeout(rig.now);
            rig.drain();
            rounds += 1;
            prop_assert!(rounds < 20 + ms, "the timer turns in a circle");
        }
        rig.now = end;
        Ok(())
    }

    fn close(&mut self, link: LinkId) {
        self.rig.broker.handle_closed(self.rig.now, link);
        self.unsent.remove(&link);
    }

    /// A frame has left a connection, or was stopped there: the one that is named, or the one that is being sent.
    fn leaves(&mut self, link: LinkId, sequence: Option<u64>) -> Option<FrameId> {
        let frame = self.named(sequence).or(self.unsent.get(&link).copied())?;
        self.unsent.retain(|known, being_sent| (*known, *being_sent) != (link, frame));
        Some(frame)
    }

    /// Looks at what the broker wants.
    fn check_outputs(&mut self) -> Result<(), TestCaseError> {
        for output in self.rig.take() {
            match output {
                CameraOutput::SendFrame { link, header, .. } => {
                    let id = header.meta.id;
                    prop_assert_eq!(self.unsent.insert(link, id), None, "two frames are unsent");
                    self.under_way.entry(link).or_default().push((id, header.payload_bytes));
                    prop_assert!(self.sent.insert(id), "{} was sent twice", id);
                    prop_assert_eq!(id.epoch, self.rig.broker.epoch());
                    let mut end = 0;
                    for range in &header.skipped {
                        prop_assert!(range.first.0 >= end && range.end() <= id.sequence && range.count > 0);
                        end = range.end().0;
                    }
                }
                CameraOutput::Reset { link, frame } if self.unsent.get(&link) == Some(&frame) => {
                    self.unsent.remove(&link);
                }
                CameraOutput::Close { link } => drop(self.unsent.remove(&link)),
                CameraOutput::Transform(transform) => {
                    let id = transform.frame.meta.id;
                    prop_assert_eq!(self.making.replace(id), None, "two frames are being made");
                    prop_assert!(!self.sent.contains(&id), "{} was sent before it was made", id);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever an edge says and a driver reports, in any order: nothing panics, timers get on, at most one frame of a
    /// connection has bytes unsent, no frame is sent twice, and a header's account is in order.
    #[test]
    fn nothing_that_happens_breaks_the_broker(inputs in prop::collection::vec(any_input(), 1..120)) {
        let rig = Rig::connected_with(2, bound(200 * MS));
        let (unsent, sent, under_way) = Default::default();
        let mut scene = Scene { rig, unsent, sent, under_way, making: None };
        for input in inputs {
            scene.input(input)?;
            scene.check_outputs()?;
        }
    }
}
