mod anything;
mod chains;
mod derived;
mod entering;
mod forget;
mod inquiry;
mod looking_on;
mod past;
mod rest;
mod shares;
mod silence;
mod source;
mod surveys;
mod thief;

use std::time::Duration;

use super::*;
use crate::broker::NUMBER_MAX;
use crate::frame::{Encoding, Quality, Rung, Sequence, SkipRange, SkipReason};
use crate::sample;
use crate::subscription::{Deliver, Next, Span, Subscription};
use crate::trace::{CameraTrace, Stage};
use crate::units::Timestamp;
use crate::wire::{
    CONTRACTS_MAX, Demand, DiskStatus, FrameHeader, NegotiationResult, Report, Status, VERSION, Welcome,
};

const MS: Duration = Duration::from_millis(1);
const WALL: Timestamp = Timestamp::from_nanos(1 << 60);

/// An edge broker, driven by hand.
pub(super) struct Rig {
    pub(super) now: Instant,
    pub(super) broker: EdgeBroker,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(EdgeConfig { log_bytes_max: 1 << 20, ..EdgeConfig::default() })
    }

    pub(super) fn with(config: EdgeConfig) -> Self {
        Self { now: Instant::from_nanos(1_000_000_000), broker: EdgeBroker::new(config) }
    }

    pub(super) fn take(&mut self) -> Vec<EdgeOutput> {
        std::iter::from_fn(|| self.broker.poll_output()).collect()
    }

    /// The messages on a connection.
    pub(super) fn messages(&mut self, to: u64) -> Vec<Message> {
        let said = |output| match output {
            EdgeOutput::Send { link, message } if link == LinkId(to) => Some(message),
            _ => None,
        };
        self.take().into_iter().filter_map(said).collect()
    }

    fn connect(&mut self, link: u64, identity: &str) {
        let cameras = vec!["dock/**".parse().unwrap()];
        self.broker.handle_connected(self.now, LinkId(link), Peer { identity: identity.into(), cameras });
    }

    /// A connection of `identity` sends a hello as the start that took its anchor at `started`.
    pub(super) fn hello(
        &mut self,
        link: u64,
        identity: &str,
        epoch: u64,
        attempt: u64,
        started: u64,
    ) -> Vec<Message> {
        self.connect(link, identity);
        let message = Message::Hello(hello("dock/cam1", epoch, attempt, started));
        self.broker.handle_message(self.now, LinkId(link), message);
        self.messages(link)
    }

    /// A connection sends a hello as this camera, which every identity may be.
    pub(super) fn greet(&mut self, link: u64, camera: &str, epoch: u64) {
        let cameras = vec!["**".parse().unwrap()];
        self.broker.handle_connected(self.now, LinkId(link), Peer { identity: camera.into(), cameras });
        let message = Message::Hello(hello(camera, epoch, 1, 10));
        self.broker.handle_message(self.now, LinkId(link), message);
    }

    pub(super) fn frame(&mut self, link: u64, header: FrameHeader) -> Result<(), FrameRefused> {
        let (id, bytes) = (header.meta.id, header.payload_bytes as usize);
        self.broker.handle_frame_header(self.now, LinkId(link), header)?;
        self.broker.handle_frame_complete(self.now, LinkId(link), id, vec![0; bytes].into());
        Ok(())
    }

    pub(super) fn info(&self) -> CameraInfo {
        self.broker.cameras(self.now).remove(0)
    }
}

fn hello(camera: &str, epoch: u64, attempt: u64, started: u64) -> Hello {
    Hello {
        version: VERSION,
        camera: camera.parse().unwrap(),
        epoch: Epoch(epoch),
        attempt,
        anchor: ClockAnchor { wall: Timestamp::from_nanos(started), monotonic: Instant::from_nanos(started) },
        software: String::new(),
    }
}

pub(super) fn header(epoch: u64, sequence: u64, bytes: u32, skipped: Vec<SkipRange>) -> FrameHeader {
    FrameHeader {
        meta: sample::meta(
            FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) },
            Timestamp::from_nanos(sequence.saturating_add(1_000)),
        ),
        payload_bytes: bytes,
        sent: Instant::ZERO,
        expected_accuracy: None,
        infeasible: false,
        history: 0,
        trace: CameraTrace::default(),
        skipped,
    }
}

fn welcomed(messages: &[Message]) -> Option<Option<FrameId>> {
    messages.iter().find_map(|message| match message {
        Message::Welcome(welcome) => Some(welcome.newest),
        _ => None,
    })
}

fn refused(messages: &[Message]) -> Option<RefuseCode> {
    messages.iter().find_map(|message| match message {
        Message::Refuse { code, .. } => Some(*code),
        _ => None,
    })
}

#[test]
fn the_newest_connection_of_a_start_holds_the_name() {
    let mut rig = Rig::new();
    assert_eq!(welcomed(&rig.hello(1, "a", 3, 1, 10)), Some(None));
    assert_eq!(welcomed(&rig.hello(2, "a", 3, 2, 10)), Some(None));
    assert_eq!(
        refused(&rig.hello(3, "a", 3, 1, 10)),
        Some(RefuseCode::Replaced),
        "an older attempt came late"
    );
    assert_eq!(welcomed(&rig.hello(4, "a", 4, 1, 20)), Some(None), "a later start");
    assert_eq!(refused(&rig.hello(5, "a", 3, 9, 10)), Some(RefuseCode::Replaced), "the start before");
    assert_eq!(refused(&rig.hello(6, "b", 9, 1, 30)), Some(RefuseCode::NameHeld), "somebody else");
    assert!(rig.info().connected);
    rig.broker.handle_closed(rig.now, LinkId(4));
    assert_eq!(welcomed(&rig.hello(7, "b", 9, 1, 30)), Some(None));
}

/// Two starts have the same epoch, or one has an older epoch. That start is asked for a later one, and the name stays with its holder.
#[test]
fn an_epoch_belongs_to_one_start() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    rig.frame(1, header(3, 0, 10, vec![])).unwrap();
    rig.take();
    let taken = FrameId { epoch: Epoch(3), sequence: Sequence(NUMBER_MAX) };
    assert_eq!(welcomed(&rig.hello(2, "a", 3, 1, 20)), Some(Some(taken)));
    assert_eq!(
        rig.broker.handle_frame_header(rig.now, LinkId(2), header(3, 1, 10, vec![])),
        Err(FrameRefused::NotWelcome)
    );
    assert!(rig.frame(1, header(3, 1, 10, vec![])).is_ok(), "the name was taken away");

    rig.broker.handle_closed(rig.now, LinkId(1));
    assert_eq!(
        welcomed(&rig.hello(3, "a", 2, 1, 30)),
        Some(Some(taken)),
        "an older epoch, and nobody is connected"
    );
    assert_eq!(
        welcomed(&rig.hello(4, "a", 3, 2, 10)),
        Some(Some(FrameId { sequence: Sequence(1), ..taken }))
    );
}

#[test]
fn cameras_beyond_the_last_number_and_beyond_the_limit_are_refused() {
    let mut rig = Rig::with(EdgeConfig { cameras_max: 1, ..EdgeConfig::default() });
    assert_eq!(refused(&rig.hello(1, "a", NUMBER_MAX + 1, 1, 10)), Some(RefuseCode::Protocol));
    rig.hello(2, "a", 3, 1, 10);
    let beyond = rig.frame(2, header(3, NUMBER_MAX, 10, vec![]));
    assert!(matches!(beyond, Err(FrameRefused::Number { .. })));
    rig.connect(3, "b");
    rig.broker.handle_message(rig.now, LinkId(3), Message::Hello(hello("dock/cam2", 1, 1, 20)));
    assert_eq!(refused(&rig.messages(3)), Some(RefuseCode::Full));
    rig.connect(4, "c");
    rig.broker.handle_message(rig.now, LinkId(4), Message::Hello(hello("yard/cam1", 1, 1, 20)));
    assert_eq!(refused(&rig.messages(4)), Some(RefuseCode::NotPermitted));
}

#[test]
fn a_camera_of_another_version_is_told_who_is_older_and_disturbs_nobody() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    for (link, version) in [(2, 0), (3, VERSION + 1), (4, u16::MAX)] {
        rig.connect(link, "a");
        let greeting = Hello { version, ..hello("dock/cam1", 4, 1, 20) };
        rig.broker.handle_message(rig.now, LinkId(link), Message::Hello(greeting));
        let outputs = rig.take();
        let told = outputs.iter().any(|output| {
            matches!(output, EdgeOutput::Send { link: to, message: Message::Refuse { code: RefuseCode::Version, text } }
                if *to == LinkId(link) && text.contains(&format!("version {version}; update the older")))
        });
        assert!(
            told && outputs
                .iter()
                .any(|output| matches!(output, EdgeOutput::Close { link: to } if to.0 == link))
        );
    }
    assert_eq!(rig.frame(1, header(3, 0, 10, vec![])), Ok(()));
}

#[test]
fn what_arrives_at_once_is_bounded_in_frames_and_in_bytes() {
    let mut rig = Rig::with(EdgeConfig { log_bytes_max: 1 << 30, ..EdgeConfig::default() });
    rig.hello(1, "a", 3, 1, 10);
    let mut arrive = |sequence, bytes| {
        rig.broker.handle_frame_header(rig.now, LinkId(1), header(3, sequence, bytes, vec![]))
    };
    for sequence in 0..ARRIVING_FRAMES_MAX as u64 {
        assert_eq!(arrive(sequence, 10), Ok(()));
    }
    assert_eq!(arrive(100, 10), Err(FrameRefused::TooMany));
    let mut rig = Rig::with(EdgeConfig { log_bytes_max: 1 << 30, ..EdgeConfig::default() });
    rig.hello(1, "a", 3, 1, 10);
    let mut arrive = |sequence, bytes| {
        rig.broker.handle_frame_header(rig.now, LinkId(1), header(3, sequence, bytes, vec![]))
    };
    assert_eq!(arrive(0, 32 << 20), Ok(()));
    assert_eq!(arrive(1, 32 << 20), Ok(()));
    assert_eq!(arrive(2, 1), Err(FrameRefused::TooMany));
    assert_eq!(arrive(1, 1), Err(FrameRefused::TooMany));
}

/// A frame that a camera's share of the budget cannot hold is refused before its payload crosses, and the camera knows the limit.
#[test]
fn a_frame_that_no_log_can_hold_does_not_cross() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    rig.connect(2, "b");
    rig.broker.handle_message(rig.now, LinkId(2), Message::Hello(hello("dock/cam2", 1, 1, 20)));
    let messages = rig.messages(2);
    let limit = messages.iter().find_map(|message| match message {
        Message::Welcome(Welcome { frame_bytes_max, .. }) => Some(*frame_bytes_max),
        _ => None,
    });
    let limit = limit.unwrap();
    assert!((400 << 10..512 << 10).contains(&limit), "{limit}");
    assert!(rig.frame(1, header(3, 0, limit, vec![])).is_ok());
    assert_eq!(rig.info().counters.received, 1);
    let refused = rig.frame(1, header(3, 1, limit + 1, vec![]));
    assert_eq!(refused, Err(FrameRefused::TooLarge { bytes: limit + 1, bytes_max: limit }));
    assert!(
        matches!(rig.messages(1)[..], [.., Message::Report(Report::Refused { .. })]),
        "the camera is told"
    );
}

#[test]
fn late_frames_are_counted_and_answered() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let (early, late) = (header(3, 0, 10, vec![]), header(3, 1, 20, vec![]));
    rig.broker.handle_frame_header(rig.now, LinkId(1), early).unwrap();
    rig.frame(1, late).unwrap();
    rig.take();
    let first = FrameId { epoch: Epoch(3), sequence: Sequence(0) };
    rig.broker.handle_frame_complete(rig.now, LinkId(1), first, vec![0; 10].into());
    assert!(
        matches!(rig.messages(1)[..], [Message::Report(Report::Complete { frame, .. })] if frame == first)
    );
    let counters = rig.info().counters;
    assert_eq!((counters.received, counters.late, counters.bytes), (1, 1, 30));
}

/// A camera publishes 136 bytes a second, of which ten cross the link.
#[test]
fn what_crosses_the_link_stands_beside_what_is_published() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    assert_eq!(rig.info().traffic, None);
    for second in 0..4 {
        rig.frame(1, header(3, second, 10, vec![])).unwrap();
        let status = Status { published_bytes: 136 * (second + 1), ..Status::default() };
        rig.broker.handle_message(rig.now, LinkId(1), Message::Status(status));
        rig.now += Duration::from_secs(1);
    }
    let traffic = rig.info().traffic.unwrap();
    assert_eq!((traffic.published.0, traffic.crossed.0), (1_088.0, 80.0));
    assert_eq!((rig.info().status.published_bytes, rig.info().counters.bytes), (544, 40));
    rig.broker.handle_closed(rig.now, LinkId(1));
    assert_eq!(rig.info().traffic, None, "of a camera that is gone");
}

#[test]
fn demand_follows_the_subscriptions() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let subscribe = |rig: &mut Rig, id, priority| {
        let contract = Contract { priority, ..Contract::default() };
        let spec = SubscriptionSpec { contract, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
        let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
        rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
    };
    let demands = |rig: &mut Rig| -> Vec<(u64, Vec<i32>)> {
        let messages = rig.messages(1);
        let demand = |message| match message {
            Message::Demand(demand) => Some(demand),
            _ => None,
        };
        let priorities = |demand: Demand| demand.contracts.iter().map(|contract| contract.priority).collect();
        messages.into_iter().filter_map(demand).map(|demand| (demand.revision, priorities(demand))).collect()
    };
    subscribe(&mut rig, 1, 0);
    assert_eq!(demands(&mut rig), [(1, vec![0])]);
    subscribe(&mut rig, 2, 5);
    assert_eq!(demands(&mut rig), [(2, vec![5, 0])]);
    rig.broker.handle_unsubscribe(SubscriptionId(9));
    rig.broker.handle_unsubscribe(SubscriptionId(2));
    assert_eq!(demands(&mut rig), [(3, vec![0])]);
    rig.broker.handle_unsubscribe(SubscriptionId(1));
    assert_eq!(demands(&mut rig), [(4, vec![])]);
    // Of the demands that are ready at once, only the last is sent.
    for id in 10..100 {
        subscribe(&mut rig, id, 0);
    }
    let of_many = demands(&mut rig);
    assert_eq!(of_many.iter().map(|(_, contracts)| contracts.len()).collect::<Vec<_>>(), [CONTRACTS_MAX]);
}

/// A camera gets the latency bound less the way to the application, which can take at most half of
/// the bound. However many subscriptions look on without a floor, the contract stays in the demand.
#[test]
fn a_camera_is_asked_for_what_the_way_to_the_application_leaves() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let subscribe = |rig: &mut Rig, id, contract| {
        let spec = SubscriptionSpec { contract, ..SubscriptionSpec::live("dock/*".parse().unwrap()) };
        let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
        rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
    };
    let asked = |rig: &mut Rig| -> Vec<Option<Duration>> {
        let messages = rig.messages(1);
        let demands = messages.into_iter().filter_map(|message| match message {
            Message::Demand(demand) => Some(demand.contracts[0].latency_bound),
            _ => None,
        });
        demands.collect()
    };
    let (bound, ms) = (Duration::from_millis(100), Duration::from_millis);
    for id in 10..90 {
        subscribe(&mut rig, id, Contract { priority: 5, ..Contract::default() });
    }
    subscribe(
        &mut rig,
        1,
        Contract { latency_bound: Some(bound), accuracy_floor: Some(0.9), ..Contract::default() },
    );
    assert_eq!(asked(&mut rig).last(), Some(&Some(bound)));
    for (way, left) in [(ms(30), ms(70)), (Duration::MAX, ms(50)), (ms(0), bound)] {
        rig.broker.handle_way(SubscriptionId(1), way);
        assert_eq!(asked(&mut rig), [Some(left)]);
        let view = rig.broker.view(rig.now, &"dock/cam1".parse().unwrap());
        assert_eq!(view.demands[0].contract.latency_bound, Some(bound), "people are told what was asked");
    }
    rig.broker.handle_way(SubscriptionId(99), ms(30));
    assert!(asked(&mut rig).is_empty());
}

/// The outcomes that a camera reports count for its present demand, and for no other. The outcomes of a camera that is gone no longer count.
#[test]
fn what_a_camera_says_of_contracts_is_of_one_demand() {
    use crate::contract::negotiation::ContractOutcome;
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let subscribe = |rig: &mut Rig, id| {
        let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
        let spec = SubscriptionSpec::live("dock/*".parse().unwrap());
        rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
    };
    let negotiated = |rig: &Rig| rig.broker.view(rig.now, &"dock/cam1".parse().unwrap()).negotiated;
    let say = |rig: &mut Rig, revision, outcomes: &[Option<ContractOutcome>]| {
        rig.now += MS;
        let message = Message::NegotiationResult(NegotiationResult { revision, outcomes: outcomes.to_vec() });
        rig.broker.handle_message(rig.now, LinkId(1), message);
    };
    subscribe(&mut rig, 1);
    subscribe(&mut rig, 2);
    let (kept, lost) = (Some(ContractOutcome::Kept), Some(ContractOutcome::Conflict { with: 0 }));
    say(&mut rig, 2, &[kept, lost]);
    let since = rig.now;
    assert_eq!(negotiated(&rig), [(kept, since), (lost, since)]);
    // Only the reason changes: the contract is still not kept. The other reports are of another demand, or incomplete.
    say(&mut rig, 2, &[kept, Some(ContractOutcome::Outvoted)]);
    say(&mut rig, 1, &[lost, kept]);
    say(&mut rig, 2, &[lost]);
    assert_eq!(negotiated(&rig), [(kept, since), (Some(ContractOutcome::Outvoted), since)]);
    subscribe(&mut rig, 3);
    assert_eq!(negotiated(&rig), []);
    say(&mut rig, 3, &[kept, lost, kept]);
    rig.broker.handle_closed(rig.now, LinkId(1));
    assert_eq!(negotiated(&rig), []);
}

/// The end is fixed when the application subscribes, so that a change of the wall clock does not move it.
#[test]
fn demand_ends_with_the_span_by_the_monotonic_clock() {
    let mut rig = Rig::new();
    let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
    let span = Span { end: Some(WALL + 3_000 * MS), ..Span::LIVE };
    let spec = SubscriptionSpec { span, ..SubscriptionSpec::live("**".parse().unwrap()) };
    rig.broker.handle_subscribe(clock, SubscriptionId(1), spec);
    let ends = span.ends_at(&clock).unwrap();
    assert!(ends > rig.now + 3_000 * MS, "frames published before the end are still on their way");
    assert_eq!(rig.broker.poll_timeout(), Some(ends), "also while no camera is connected");
    let welcome = rig.hello(1, "a", 3, 1, 10);
    let contracts = |messages: Vec<Message>| -> Option<usize> {
        messages.into_iter().rev().find_map(|message| match message {
            Message::Demand(demand) => Some(demand.contracts.len()),
            _ => None,
        })
    };
    assert_eq!(contracts(welcome), Some(1));
    rig.broker.handle_timeout(ends - MS);
    assert_eq!(contracts(rig.messages(1)), None);
    rig.broker.handle_timeout(ends);
    assert_eq!(contracts(rig.messages(1)), Some(0));
}

/// Strangers with a certificate that connect and say nothing cannot fill the memory, nor keep other identities out.
#[test]
fn connections_without_a_camera_are_limited() {
    let mut rig = Rig::new();
    let peer = |identity: String| Peer { identity, cameras: vec!["**".parse().unwrap()] };
    let mut connect = |link: usize, identity: String| {
        rig.broker.handle_connected(rig.now, LinkId(link as u64), peer(identity));
        rig.take().into_iter().all(|output| !matches!(output, EdgeOutput::Close { .. }))
    };
    for link in 0..NAMELESS_LINKS_OF_IDENTITY_MAX {
        assert!(connect(link, "one".into()));
    }
    assert!(!connect(1_000, "one".into()));
    for link in NAMELESS_LINKS_OF_IDENTITY_MAX..NAMELESS_LINKS_MAX {
        assert!(connect(link, format!("other {link}")));
    }
    assert!(!connect(1_001, "yet another".into()));
    rig.broker.handle_closed(rig.now, LinkId(3));
    assert!(rig.take().is_empty());
    rig.hello(2_000, "a", 3, 1, 10);
    assert!(rig.info().connected, "one has gone, so one may come");
}

/// The stated error of a capture time covers the drift since.
#[test]
fn the_error_of_an_old_capture_instant_is_larger() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let stamp = Instant::from_nanos(500);
    rig.broker.handle_message(rig.now, LinkId(1), Message::Pong { t1: rig.now - MS, t2: stamp, t3: stamp });
    let clock = rig.broker.capture_clock(rig.now, &"dock/cam1".parse().unwrap()).unwrap();
    let id = FrameId { epoch: Epoch(3), sequence: Sequence(0) };
    let (at, error) = clock.captured_at(id, Timestamp::from_nanos(500)).unwrap();
    assert_eq!((at, error), (rig.now - MS / 2, MS / 2 + Duration::from_nanos(50)));
    let (_, later) = clock.captured_at(id, Timestamp::from_nanos(500) + 10_000 * MS).unwrap();
    assert!(later > error + 999 * Duration::from_micros(1) && later < error + Duration::from_micros(1001));
    assert_eq!(clock.captured_at(FrameId { epoch: Epoch(2), ..id }, Timestamp::from_nanos(500)), None);
}

/// The quality of a frame as the camera states it reaches the readers of the replica.
#[test]
fn a_replica_keeps_what_was_expected_of_a_frame() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let marked = FrameHeader { expected_accuracy: Some(0.91), infeasible: true, ..header(3, 0, 10, vec![]) };
    rig.frame(1, marked).unwrap();
    rig.frame(1, header(3, 1, 10, vec![])).unwrap();
    let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
    let quality = |index| log.get(index).unwrap().quality;
    assert_eq!(quality(0), Quality { expected_accuracy: Some(0.91), infeasible: true });
    assert_eq!(quality(1), Quality::default());
}

/// The times of a frame's stages reach the readers of the replica: the camera's stamps by its own clock, the edge's by the edge's clock.
#[test]
fn a_replica_knows_where_a_frame_was_when() {
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    let mut rig = Rig::new();
    rig.now = at(2_000);
    rig.hello(1, "a", 3, 1, 0);
    // The camera's clock is a second behind; the round trip took 4 ms.
    let pong = Message::Pong { t1: at(2_000), t2: at(1_002), t3: at(1_002) };
    rig.now = at(2_004);
    rig.broker.handle_message(rig.now, LinkId(1), pong);
    let mut header = header(3, 0, 10, vec![]);
    header.meta.captured = Timestamp::from_nanos(at(1_010).as_nanos());
    for (stage, ms) in [(Stage::Published, 1_011), (Stage::Queued, 1_013), (Stage::Sent, 9_999)] {
        header.trace.stamp(stage, at(ms));
    }
    let id = header.meta.id;
    rig.now = at(2_016);
    rig.broker.handle_frame_header(rig.now, LinkId(1), header).unwrap();
    rig.now = at(2_020);
    rig.broker.handle_frame_complete(rig.now, LinkId(1), id, vec![0; 10].into());
    let camera = "dock/cam1".parse().unwrap();
    let (log, ..) = rig.broker.log(&camera).unwrap();
    let record = log.get(0).unwrap();
    let stamps = record.trace.expect("it came over the link");
    let clock = rig.broker.capture_clock(rig.now, &camera).unwrap();
    let trace = clock.trace(id, record.frame.meta.captured, &stamps).unwrap();
    let ms: Vec<_> = trace.iter().map(|(stage, since)| (stage, since.as_millis())).collect();
    let expected = [
        (Stage::Published, 1),
        (Stage::Queued, 3),
        // The frame cannot have been sent after it arrived.
        (Stage::Sent, 6),
        (Stage::Arriving, 6),
        (Stage::Arrived, 10),
        (Stage::Logged, 10),
    ];
    assert_eq!(ms, expected);
    assert!(trace.error >= Some(Duration::from_millis(2)));
    let other = FrameId { epoch: Epoch(2), ..id };
    assert_eq!(clock.trace(other, record.frame.meta.captured, &stamps), None, "another start, another clock");
}

/// A camera has one connection: the holder of its name is refused before another one is accepted.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a camera has two connections")]
fn a_second_connection_of_a_camera_is_noticed() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let camera = rig.broker.roster.cameras.get_mut(&"dock/cam1".parse().unwrap()).unwrap();
    let start = camera.newest_start;
    camera.handle_taken_in((LinkId(2), 1), "a".into(), start);
}

/// A pong that waited behind a frame says nothing about the path.
#[test]
fn answers_behind_frames_do_not_measure_a_path() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let camera: CameraName = "dock/cam1".parse().unwrap();
    for sequence in 0..20 {
        let t1 = rig.now;
        rig.now += 150 * MS;
        rig.frame(1, header(3, sequence, 100, vec![])).unwrap();
        rig.now += 10 * MS;
        rig.broker.handle_message(
            rig.now,
            LinkId(1),
            Message::Pong { t1, t2: t1 + 80 * MS, t3: t1 + 80 * MS },
        );
        assert_eq!(rig.broker.view(rig.now, &camera).one_way_delay, None);
    }
}

/// The first pongs may have waited behind the first frames, so they must not count as the delay of the path.
#[test]
fn nothing_is_said_of_a_path_before_it_is_measured_well() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let mut answer = |took: Duration| {
        let (t1, half) = (rig.now, took / 2);
        rig.now += took;
        let pong = Message::Pong { t1, t2: t1 + half, t3: t1 + half };
        rig.broker.handle_message(rig.now, LinkId(1), pong);
        rig.broker.view(rig.now, &camera).one_way_delay
    };
    let said: Vec<_> = [332 * MS, 16 * MS].into_iter().chain([40 * MS; 5]).map(&mut answer).collect();
    assert_eq!(said, [None; 7]);
    assert_eq!(answer(40 * MS), Some(8 * MS));
}
