//! Any events for an edge broker, in any order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::broker::NUMBER_MAX;
use crate::frame::Sequence;
use crate::history::{PastQuery, Tier};
use crate::source::SourceState;
use crate::subscription::{Missing, Next, Subscription};
use crate::wire::{HistoryCode, HistoryEnd, SourceReport};

/// An event for an edge broker.
#[derive(Clone, Debug)]
enum Input {
    Pass(u64),
    Connected(u64, u8),
    Closed(u64),
    Message(u64, Message),
    Header(u64, Box<FrameHeader>),
    Progress(u64, u64, u32),
    Complete(u64, u64, usize),
    Cancelled(u64, u64),
    Subscribe(u64, u64),
    Unsubscribe(u64),
    Forget,
    Ask(u64, Option<u64>),
    /// A frame for one of the numbers that were last asked for, or for none.
    Past(u64, usize, u64, usize),
    /// The end of the answer at one of these numbers.
    PastEnds(u64, usize),
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0u64..4, 1 => any::<u64>(), 1 => Just(NUMBER_MAX), 1 => Just(u64::MAX)]
}

fn any_camera_message() -> impl Strategy<Value = Message> {
    let instant = || (0u64..30_000_000_000).prop_map(Instant::from_nanos);
    prop_oneof![
        5 => (0usize..3, any_number(), 0u64..5, 0u64..3).prop_map(|(camera, epoch, attempt, started)| {
            Message::Hello(hello(["dock/cam1", "dock/cam2", "yard/cam1"][camera], epoch, attempt, started))
        }),
        1 => instant().prop_map(|t1| Message::Ping { t1 }),
        1 => [instant(), instant(), instant()].prop_map(|[t1, t2, t3]| Message::Pong { t1, t2, t3 }),
        1 => Just(Message::Status(Status::default())),
        1 => Just(Message::DiskStatus(DiskStatus::default())),
        1 => (1u8..=4, any::<u64>()).prop_map(|(state, ns)| Message::SourceReport(SourceReport {
            state: SourceState::from_code(state).expect("a state"),
            reason: String::new(),
            lasts: Duration::from_nanos(ns),
            retry: Some(Duration::from_nanos(ns)),
        })),
        1 => Just(Message::Demand(Demand::default())),
    ]
}

fn any_header() -> impl Strategy<Value = FrameHeader> {
    let range = (any_number(), any_number()).prop_map(|(first, count)| SkipRange {
        first: Sequence(first),
        count,
        reason: SkipReason::LinkBusy,
    });
    (
        any_number(),
        any_number(),
        prop_oneof![8 => Just(10u32), 1 => 0u32..50, 1 => any::<u32>()],
        any_number(),
        prop::collection::vec(range, 0..4),
    )
        .prop_map(|(epoch, sequence, bytes, captured, skipped)| {
            let mut header = header(epoch, sequence, bytes, skipped);
            header.meta.captured = Timestamp::from_nanos(captured);
            header
        })
}

fn any_input() -> impl Strategy<Value = Input> {
    let link = || 0u64..3;
    prop_oneof![
        4 => prop_oneof![0u64..300, 0u64..15_000].prop_map(Input::Pass),
        4 => (link(), 0u8..2).prop_map(|(link, identity)| Input::Connected(link, identity)),
        1 => link().prop_map(Input::Closed),
        8 => (link(), any_camera_message()).prop_map(|(link, message)| Input::Message(link, message)),
        8 => (link(), any_header()).prop_map(|(link, header)| Input::Header(link, Box::new(header))),
        2 => (link(), 0u64..4, any::<u32>()).prop_map(|(link, frame, bytes)| Input::Progress(link, frame, bytes)),
        6 => (link(), 0u64..4, prop_oneof![8 => Just(10usize), 1 => 0usize..50]).prop_map(|(link, frame, bytes)| Input::Complete(link, frame, bytes)),
        1 => (link(), 0u64..4).prop_map(|(link, frame)| Input::Cancelled(link, frame)),
        1 => (0u64..4, 0u64..20_000).prop_map(|(id, ms)| Input::Subscribe(id, ms)),
        1 => (0u64..4).prop_map(Input::Unsubscribe),
        1 => Just(Input::Forget),
        4 => (0u64..4, prop::option::of(1u64..7)).prop_map(|(after, before)| Input::Ask(after, before)),
        4 => (link(), 0usize..4, 0u64..6, 9usize..12)
            .prop_map(|(link, number, sequence, bytes)| Input::Past(link, number, sequence, bytes)),
        1 => (link(), 0usize..4).prop_map(|(link, number)| Input::PastEnds(link, number)),
    ]
}

/// An edge, and what an observer knows of it.
struct Scene {
    rig: Rig,
    subscriptions: Vec<Subscription>,
    open: BTreeSet<LinkId>,
    /// The numbers of frames of the past that were last asked for.
    numbers: Vec<u64>,
    asked: BTreeSet<u64>,
}

impl Scene {
    fn new() -> Self {
        let config = EdgeConfig { log_bytes_max: 40_000, cameras_max: 2, ..EdgeConfig::default() };
        let (open, asked) = (BTreeSet::new(), BTreeSet::new());
        Self { rig: Rig::with(config), subscriptions: Vec::new(), open, numbers: Vec::new(), asked }
    }

    fn input(&mut self, input: Input) -> Result<(), TestCaseError> {
        let (rig, epochs) = (&mut self.rig, 0..4);
        let number = |place: usize| self.numbers.get(place).copied().unwrap_or(place as u64);
        let in_epoch = |epoch, frame| FrameId { epoch: Epoch(epoch), sequence: Sequence(frame) };
        match input {
            Input::Pass(ms) => return self.pass(ms),
            Input::Connected(link, identity) => {
                rig.broker.handle_closed(rig.now, LinkId(link));
                rig.take();
                rig.connect(link, ["a", "b"][usize::from(identity)]);
                self.open.insert(LinkId(link));
            }
            Input::Closed(link) => {
                rig.broker.handle_closed(rig.now, LinkId(link));
                self.open.remove(&LinkId(link));
            }
            Input::Message(link, message) => rig.broker.handle_message(rig.now, LinkId(link), message),
            Input::Header(link, header) => {
                let _ = rig.broker.handle_frame_header(rig.now, LinkId(link), *header);
            }
            Input::Progress(link, frame, bytes) => epochs.for_each(|epoch| {
                rig.broker.handle_frame_progress(rig.now, LinkId(link), in_epoch(epoch, frame), bytes);
            }),
            Input::Complete(link, frame, bytes) => epochs.for_each(|epoch| {
                let payload = vec![0; bytes].into();
                rig.broker.handle_frame_complete(rig.now, LinkId(link), in_epoch(epoch, frame), payload);
            }),
            Input::Cancelled(link, frame) => {
                rig.broker.handle_frame_cancelled(rig.now, LinkId(link), in_epoch(1, frame));
            }
            Input::Subscribe(id, ms) => {
                let wall = WALL + rig.now.saturating_since(Instant::ZERO);
                let span = Span { end: Some(wall + Duration::from_millis(ms)), ..Span::LIVE };
                let clock = ClockAnchor { wall, monotonic: rig.now };
                let spec = SubscriptionSpec { span, ..SubscriptionSpec::live("dock/**".parse().unwrap()) };
                rig.broker.handle_subscribe(clock, SubscriptionId(id), spec);
                self.subscriptions.push(Subscription::new(span));
            }
            Input::Unsubscribe(id) => rig.broker.handle_unsubscribe(SubscriptionId(id)),
            Input::Forget => drop(rig.broker.handle_forget(&"dock/cam1".parse().expect("a valid name"))),
            Input::Ask(after, before) => {
                let (after, before) = (Some(in_epoch(0, after)), before.map(|before| in_epoch(0, before)));
                let query = PastQuery { after, before, tier_max: Tier::Camera, ..PastQuery::EVERY };
                let camera = "dock/cam1".parse().unwrap();
                self.asked.insert(rig.broker.handle_history_query(rig.now, &camera, query));
            }
            Input::Past(link, place, sequence, bytes) => {
                let request = number(place);
                let past = FrameHeader { history: request, ..header(0, sequence, 10, Vec::new()) };
                if rig.broker.handle_frame_header(rig.now, LinkId(link), past).is_ok() {
                    let payload = vec![0; bytes].into();
                    rig.broker.handle_history_complete(rig.now, LinkId(link), request, payload);
                }
            }
            Input::PastEnds(link, place) => {
                let end = HistoryEnd { request: number(place), code: HistoryCode::None, held_from: None };
                rig.broker.handle_message(rig.now, LinkId(link), Message::HistoryEnd(end));
            }
        }
        Ok(())
    }

    /// Lets time pass, and serves the timers.
    fn pass(&mut self, ms: u64) -> Result<(), TestCaseError> {
        let rig = &mut self.rig;
        let end = rig.now + Duration::from_millis(ms);
        let mut rounds = 0;
        while let Some(due) = rig.broker.poll_timeout().filter(|due| *due <= end) {
            rig.now = rig.now.max(due);
            rig.broker.handle_timeout(rig.now);
            rounds += 1;
            prop_assert!(rounds < 20 + ms, "the timer turns in a circle");
        }
        rig.now = end;
        Ok(())
    }

    /// Carries out the edge's outputs, and checks them.
    fn carry_out(&mut self) -> Result<(), TestCaseError> {
        for output in self.rig.take() {
            if let EdgeOutput::Send { message: Message::HistoryRequest(wanted), .. } = &output {
                self.numbers = (wanted.request..).take(wanted.count.into()).collect();
            }
            match output {
                EdgeOutput::Send { link, .. } => {
                    prop_assert!(self.open.contains(&link), "{:?} was closed", link);
                }
                EdgeOutput::Close { link } => drop(self.open.remove(&link)),
                EdgeOutput::History { request, .. } => {
                    prop_assert!(self.asked.remove(&request), "answered twice");
                }
                EdgeOutput::Attach { camera, log, .. } => {
                    for subscription in &mut self.subscriptions {
                        subscription.attach(camera.clone(), log.clone());
                    }
                }
                EdgeOutput::Detach { camera, .. } => {
                    for subscription in &mut self.subscriptions {
                        subscription.detach(&camera, Missing::default());
                    }
                }
                _ => {}
            }
        }
        for subscription in &mut self.subscriptions {
            while let Next::Frame(_) = subscription.next(WALL) {}
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever cameras say and do, in any order: nothing panics, timers advance, logs keep to their
    /// budget, each camera has one connection at most, and nothing is sent on a closed connection.
    #[test]
    fn nothing_that_happens_breaks_the_broker(inputs in prop::collection::vec(any_input(), 1..150)) {
        let mut scene = Scene::new();
        for input in inputs {
            scene.input(input)?;
            scene.carry_out()?;
            let cameras = scene.rig.broker.cameras(scene.rig.now);
            prop_assert!(cameras.len() <= 2);
            prop_assert!(cameras.iter().map(|camera| camera.log_bytes).sum::<u64>() <= 40_000);
        }
    }
}
