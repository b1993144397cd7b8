//! Streams that applications publish at the edge.

use proptest::prelude::*;

use super::*;
use crate::broker::PublishError;
use crate::data::{DataRecord, Origin};
use crate::history::{PastQuery, Tier, Unanswered};
use crate::source::SourceState;

fn stream(name: &str) -> CameraName {
    name.parse().expect("a valid name")
}

fn deriving(owner: &str) -> Deriving {
    Deriving { owner: owner.into(), of: vec![stream("dock/cam1")] }
}

fn start(epoch: u64) -> Option<(Epoch, ClockAnchor)> {
    let anchor = ClockAnchor { wall: WALL, monotonic: Instant::from_nanos(1_000_000_000) };
    Some((Epoch(epoch), anchor))
}

fn record(text: &str) -> Published {
    let of = Origin {
        camera: stream("dock/cam1"),
        frame: FrameId { epoch: Epoch(3), sequence: Sequence(7) },
        captured: Timestamp::from_nanos(5),
    };
    let content_type = "text/plain".parse().expect("a media type");
    let record = DataRecord { content_type, of: Some(of), body: text.to_owned().into() };
    Published::data(&record, None)
}

impl Rig {
    fn open(&mut self, id: u64, name: &str, owner: &str, epoch: u64) -> Result<Epoch, PublisherRefused> {
        let start = start(epoch).filter(|_| epoch > 0);
        self.broker.handle_publisher(PublisherId(id), &stream(name), deriving(owner), start)
    }

    fn publish(&mut self, id: u64, text: &str) -> Result<FrameId, DerivedError> {
        self.broker.handle_derived((self.now, self.now), PublisherId(id), record(text))
    }

    fn derived(&self, name: &str) -> CameraInfo {
        let infos = self.broker.cameras(self.now).into_iter();
        infos.into_iter().find(|info| info.camera == stream(name)).expect("it is known")
    }
}

fn id(epoch: u64, sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

/// Several workers of one principal publish records, and the edge numbers them as they come.
#[test]
fn records_of_several_workers_are_numbered_without_holes() {
    let mut rig = Rig::new();
    let above = rig.open(1, "dock/cam1/faces", "app/counter", 0).expect_err("it has no epoch");
    assert_eq!(above, PublisherRefused::NeedsEpoch { above: Epoch(0) });
    assert_eq!(rig.open(1, "dock/cam1/faces", "app/counter", 4), Ok(Epoch(4)));
    // The epoch of the second worker came too late to count.
    assert_eq!(rig.open(2, "dock/cam1/faces", "app/counter", 5), Ok(Epoch(4)));
    for (worker, sequence) in [(1, 0), (2, 1), (2, 2), (1, 3)] {
        assert_eq!(rig.publish(worker, "face"), Ok(id(4, sequence)));
    }
    let (log, epoch, _) = rig.broker.log(&stream("dock/cam1/faces")).expect("it is known");
    let held: Vec<_> = log.held().map(|index| log.get(index).expect("it is held").frame.meta).collect();
    assert_eq!((epoch, held.len()), (Epoch(4), 4));
    assert!(held.windows(2).all(|pair| pair[0].captured < pair[1].captured), "though the clock stands still");
    let info = rig.derived("dock/cam1/faces");
    assert_eq!(info.derived, Some((deriving("app/counter"), 2)));
    assert_eq!((info.connected, info.status.published, info.counters.received), (true, 4, 4));
    // A worker that leaves does not affect the other one.
    rig.broker.handle_publisher_gone(rig.now, PublisherId(1), Some("it was killed".into()));
    assert_eq!(rig.publish(1, "face"), Err(DerivedError::NotOpen));
    assert_eq!(rig.publish(2, "face"), Ok(id(4, 4)));
    assert!(rig.derived("dock/cam1/faces").connected);
}

/// Readers get the log, are woken, and hear of changes, as with a camera.
#[test]
fn a_derived_stream_is_read_as_a_camera() {
    let mut rig = Rig::new();
    let clock = ClockAnchor { wall: WALL, monotonic: rig.now };
    let spec = SubscriptionSpec::live("dock/**".parse().expect("a pattern"));
    rig.broker.handle_subscribe(clock, SubscriptionId(1), spec);
    rig.open(1, "dock/cam1/faces", "app/counter", 1).expect("it is free");
    let outputs = rig.take();
    assert!(outputs.iter().any(|output| matches!(output, EdgeOutput::Attach { .. })), "{outputs:?}");
    assert!(outputs.iter().any(|output| matches!(output, EdgeOutput::CameraChanged { up: true, .. })));
    assert!(!outputs.iter().any(|output| matches!(output, EdgeOutput::Send { .. })), "nobody is asked");
    rig.publish(1, "face").expect("it fits");
    assert!(rig.take().iter().any(|output| matches!(output, EdgeOutput::Appended { .. })));
    let view = rig.broker.view(rig.now, &stream("dock/cam1/faces"));
    assert!(view.connected && view.demands.len() == 1);
    let clock = rig.broker.capture_clock(rig.now, &stream("dock/cam1/faces")).expect("it is ours");
    let (at, error) = clock.captured_at(id(1, 0), WALL).expect("of this epoch");
    assert_eq!((at, error), (Instant::from_nanos(1_000_000_000), Duration::ZERO));

    rig.broker.handle_publisher_lost(rig.now, PublisherId(1), "no model".into());
    let state = |rig: &Rig| rig.derived("dock/cam1/faces").source.map(|source| source.state);
    assert_eq!(state(&rig), Some(SourceState::Lost));
    rig.publish(1, "face").expect("it fits");
    assert_eq!(state(&rig), Some(SourceState::Live));
    rig.take();
    rig.broker.handle_publisher_gone(rig.now, PublisherId(1), None);
    let outputs = rig.take();
    let down = outputs.iter().find_map(|output| match output {
        EdgeOutput::CameraChanged { up: false, reason, .. } => reason.clone(),
        _ => None,
    });
    assert_eq!(down.as_deref(), Some("the camera's source has ended"));
    assert_eq!(state(&rig), Some(SourceState::Ended));
}

/// The second to take a name is told who has it, whichever of the two is a camera.
#[test]
fn a_camera_and_a_derived_stream_cannot_have_one_name() {
    let mut rig = Rig::new();
    rig.greet(1, "dock/cam1", 3);
    let refused = rig.open(1, "dock/cam1", "app/counter", 1).expect_err("it is a camera");
    assert!(refused.to_string().contains("mez cameras forget dock/cam1"), "{refused}");
    // A camera that is not connected keeps its name, too.
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.open(1, "dock/cam1", "app/counter", 1).expect_err("it may come again");

    rig.open(2, "dock/cam1/faces", "app/counter", 1).expect("it is free");
    rig.take();
    rig.greet(2, "dock/cam1/faces", 9);
    let told = rig.messages(2).into_iter().find_map(|message| match message {
        Message::Refuse { code, text } => Some((code, text)),
        _ => None,
    });
    let (code, text) = told.expect("it is refused");
    assert_eq!(code, RefuseCode::NameHeld);
    assert!(text.contains("app/counter") && text.contains("mez cameras forget dock/cam1/faces"), "{text}");
    rig.publish(2, "face").expect("the stream goes on");
}

#[test]
fn another_principal_gets_a_stream_when_nobody_publishes_it() {
    let mut rig = Rig::new();
    rig.open(1, "dock/cam1/faces", "app/counter", 1).expect("it is free");
    let refused = rig.open(2, "dock/cam1/faces", "app/other", 0).expect_err("it is held");
    assert!(refused.to_string().contains("app/counter already publishes"), "{refused}");
    rig.broker.handle_publisher_gone(rig.now, PublisherId(1), None);
    assert_eq!(rig.open(2, "dock/cam1/faces", "app/other", 0), Ok(Epoch(1)));
    assert_eq!(rig.derived("dock/cam1/faces").identity, "app/other");
}

#[test]
fn one_principal_does_not_take_all_names_and_no_stream_takes_a_cameras_place() {
    let mut rig = Rig::with(EdgeConfig { cameras_max: 1, ..EdgeConfig::default() });
    let mut number = 0;
    for owner in 0..=DERIVED_MAX / DERIVED_OF_OWNER_MAX {
        for index in 0..=DERIVED_OF_OWNER_MAX {
            number += 1;
            let opened = rig.open(number, &format!("s/{owner}/{index}"), &format!("app/a{owner}"), 1);
            let expected = match (owner, index) {
                (4, _) => Err(PublisherRefused::TooMany),
                (_, DERIVED_OF_OWNER_MAX) if owner == 3 => Err(PublisherRefused::TooMany),
                (_, DERIVED_OF_OWNER_MAX) => {
                    Err(PublisherRefused::TooManyOfOwner { owner: format!("app/a{owner}") })
                }
                _ => Ok(Epoch(1)),
            };
            assert_eq!(opened, expected, "{owner} {index}");
        }
    }
    rig.greet(1, "dock/cam1", 1);
    assert!(rig.broker.cameras(rig.now).iter().any(|info| info.camera == stream("dock/cam1")));
}

/// Results are small beside frames, and must not push frames out of memory.
#[test]
fn a_derived_stream_has_an_eighth_of_a_cameras_memory() {
    let mut rig = Rig::with(EdgeConfig { log_bytes_max: 9 << 20, ..EdgeConfig::default() });
    rig.greet(1, "dock/cam1", 1);
    rig.open(1, "dock/cam1/faces", "app/counter", 1).expect("it is free");
    let share = |name| rig.broker.log(&stream(name)).expect("it is known").0.share().bytes_max;
    assert_eq!((share("dock/cam1"), share("dock/cam1/faces")), (8 << 20, 1 << 20));
    let large = rig.broker.handle_derived((rig.now, rig.now), PublisherId(1), record(&"x".repeat(1 << 20)));
    assert!(matches!(large, Err(DerivedError::Publish(PublishError::TooLarge { .. }))), "{large:?}");
    assert_eq!(rig.derived("dock/cam1/faces").status.refused, 1);
    assert_eq!(rig.publish(1, "face"), Ok(id(1, 0)), "a refused record takes no number");
}

/// The edge has all records of a stream: no question waits for a camera that could have more.
#[test]
fn a_question_for_the_past_is_answered_at_once() {
    let mut rig = Rig::new();
    rig.broker.handle_started(rig.now);
    rig.open(1, "dock/cam1/faces", "app/counter", 1).expect("it is free");
    rig.broker.handle_publisher_gone(rig.now, PublisherId(1), None);
    rig.take();
    let query = PastQuery { tier_max: Tier::Camera, ..PastQuery::EVERY };
    rig.broker.handle_history_query(rig.now, &stream("dock/cam1/faces"), query);
    let answers: Vec<_> = rig
        .take()
        .into_iter()
        .filter_map(|output| match output {
            EdgeOutput::History { answer, .. } => Some((answer.camera_holds_from, answer.unanswered)),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(Some(Timestamp::MAX), None::<Unanswered>)]);
    // The edge has the whole log, so there is nothing else to survey.
    let span = (Timestamp::MIN, Timestamp::MAX);
    let question = rig.broker.handle_survey_query(&stream("dock/cam1/faces"), span);
    let why = NotSurveyed::Unanswered(Unanswered::Unable);
    let told = |output: &EdgeOutput| matches!(output, EdgeOutput::Surveyed { question: of, survey: Err(told) } if (*of, *told) == (question, why));
    assert!(rig.take().iter().any(told));
}

/// An edge with logs on disk continues after their records, in a later epoch.
#[test]
fn a_stream_goes_on_after_a_restart_of_the_edge() {
    let mut rig = Rig::new();
    rig.open(1, "dock/cam1/faces", "app/counter", 3).expect("it is free");
    for sequence in 0..3 {
        assert_eq!(rig.publish(1, "face"), Ok(id(3, sequence)));
    }
    let (log, epoch, anchor) = rig.broker.log(&stream("dock/cam1/faces")).expect("it is known");
    let records: Vec<Record> = log.held().map(|index| log.get(index).expect("it is held")).collect();

    let mut rig = Rig::new();
    let (name, deriving) = (stream("dock/cam1/faces"), deriving("app/counter"));
    let kept = KeptStream { name, deriving, start: (epoch, anchor), records };
    assert_eq!(rig.broker.restore_derived(vec![kept]), 0);
    let info = rig.derived("dock/cam1/faces");
    assert_eq!((info.newest.map(|(id, _)| id), info.connected), (Some(id(3, 2)), false));
    rig.greet(2, "dock/cam1/faces", 9);
    assert!(rig.messages(2).iter().any(|message| matches!(message, Message::Refuse { .. })));
    let above = rig.open(1, "dock/cam1/faces", "app/counter", 3).expect_err("that one was");
    assert_eq!(above, PublisherRefused::NeedsEpoch { above: Epoch(3) });
    rig.open(1, "dock/cam1/faces", "app/counter", 4).expect("it is theirs");
    assert_eq!(rig.publish(1, "face"), Ok(id(4, 0)));
}

#[test]
fn whoever_publishes_a_stream_that_was_reset_begins_anew() {
    let mut rig = Rig::new();
    rig.open(1, "dock/cam1/faces", "app/counter", 3).expect("it is free");
    rig.broker.handle_forget(&stream("dock/cam1/faces")).expect_err("it is published");
    let forgotten = rig.broker.handle_reset(&stream("dock/cam1/faces")).expect("it is known");
    assert_eq!((forgotten.epoch, forgotten.connected), (Epoch(3), true));
    assert_eq!(rig.publish(1, "face"), Err(DerivedError::NotOpen));
    // The end of the old publisher does not end the new one.
    rig.open(2, "dock/cam1/faces", "app/counter", 4).expect("it is free");
    rig.broker.handle_publisher_gone(rig.now, PublisherId(1), None);
    assert_eq!(rig.publish(2, "face"), Ok(id(4, 0)));
    let reply =
        rig.broker.handle_reply(&stream("dock/cam1/faces"), id(4, 0), "", ReplyResult::Opaque(Bytes::new()));
    assert!(matches!(reply, Err(ReplyError::IsDerived { .. })), "{reply:?}");
}

/// An event for a derived stream.
#[derive(Clone, Debug)]
enum Step {
    Open(u64, bool),
    Publish(u64, usize),
    Gone(u64),
    Read,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u64..6, any::<bool>()).prop_map(|(id, is_other)| Step::Open(id, is_other)),
        12 => (0u64..6, 1usize..600).prop_map(|(id, bytes)| Step::Publish(id, bytes)),
        2 => (0u64..6).prop_map(Step::Gone),
        3 => Just(Step::Read),
        1 => (0u64..1_500).prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whoever publishes, in any order: numbers have no holes, records of two principals never mix, and memory
    /// keeps to its budget. The delivered and the skipped records of a reader make up all that was published.
    #[test]
    fn delivered_and_skipped_records_are_those_that_were_published(
        steps in prop::collection::vec(step(), 1..200),
        every: bool,
    ) {
        let mut rig = Rig::with(EdgeConfig { log_bytes_max: 20_000, ..EdgeConfig::default() });
        let name = "dock/cam1/faces";
        let (mut open, mut published) = (std::collections::BTreeMap::new(), 0);
        // The reader is there from the first record on.
        rig.open(100, name, "app/a", 1).expect("it is free");
        let (log, ..) = rig.broker.log(&stream(name)).expect("it is known");
        let deliver = if every { Deliver::Every } else { Deliver::Newest };
        let mut reader = Subscription::new(Span { deliver, ..Span::LIVE });
        reader.attach(stream(name), log);
        rig.broker.handle_publisher_gone(rig.now, PublisherId(100), None);
        let (mut delivered, mut skipped) = (0, 0);
        let mut last = None;
        let mut read = |delivered: &mut u64, skipped: &mut u64| {
            while let Next::Frame(delivery) = reader.next(WALL) {
                let id = delivery.record.frame.meta.id;
                assert!(last < Some(id), "a reader goes back");
                last = Some(id);
                *delivered += 1;
                *skipped += delivery.skipped.total();
            }
            last
        };
        for step in steps {
            match step {
                Step::Open(id, is_other) if !open.contains_key(&id) => {
                    let owner = if is_other { "app/b" } else { "app/a" };
                    let held = open.values().any(|other| *other != owner);
                    prop_assert_eq!(rig.open(id, name, owner, 9).is_err(), held);
                    if !held {
                        open.insert(id, owner);
                    }
                }
                Step::Open(..) => {}
                Step::Publish(id, bytes) => {
                    let frame = rig.publish(id, &"x".repeat(bytes));
                    prop_assert_eq!(frame.is_ok(), open.contains_key(&id), "{:?}", frame);
                    if let Ok(frame) = frame {
                        prop_assert_eq!(frame, id_of(published));
                        published += 1;
                    }
                }
                Step::Gone(id) => {
                    open.remove(&id);
                    rig.broker.handle_publisher_gone(rig.now, PublisherId(id), None);
                }
                Step::Read => {
                    read(&mut delivered, &mut skipped);
                }
                Step::Pass(ms) => rig.now += Duration::from_millis(ms),
            }
            rig.take();
            let info = rig.derived(name);
            prop_assert!(info.log_bytes <= 20_000);
            prop_assert_eq!((info.connected, info.status.published), (!open.is_empty(), published));
        }
        if let Some(last) = read(&mut delivered, &mut skipped) {
            prop_assert_eq!(last, id_of(published - 1));
        }
        prop_assert_eq!(delivered + skipped, published);
    }
}

fn id_of(sequence: u64) -> FrameId {
    id(1, sequence)
}
