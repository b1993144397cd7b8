//! Tests of readers that decode chains themselves, and of readers that need stills of chains.

use super::super::chains::BEHIND_FRAMES_MAX;
use super::super::*;
use crate::frame::{ChainLink, Encoding, Epoch, Frame, FrameId, FrameMeta, Reference, Sequence, SkipReason};
use crate::history::Unanswered;
use crate::log::{LogConfig, LogWriter, Record, log};
use crate::sample;

const LATER: Timestamp = Timestamp::from_nanos(1 << 60);
const H264: ChainKinds = ChainKinds::among(&[Encoding::H264]);

/// A frame's number, its encoding, and the frames that were skipped before it.
type Got = (u64, Encoding, Vec<(SkipReason, u64)>);

/// A camera's log, and one reader of it, which is given stills when [`Rig::answer`] is called.
struct Rig {
    log: LogWriter,
    reading: Subscription,
}

impl Rig {
    fn new(deliver: Deliver, kinds: ChainKinds) -> Self {
        let (log, reader) = log(LogConfig::default());
        let mut reading = Subscription::new(Span { deliver, ..Span::LIVE }).taking_chains(kinds);
        reading.attach("dock/cam1".parse().unwrap(), reader);
        Self { log, reading }
    }

    /// A frame comes that belongs to the chain that began with `first`.
    fn came(&mut self, first: u64, sequence: u64) {
        self.log.append_record(record(sequence, Encoding::H264, link(first, sequence))).unwrap();
    }

    /// A still crosses the link.
    fn crossed(&mut self, sequence: u64) {
        self.log
            .append_record(record(sequence, Encoding::Jpeg, ChainLink::still(Sequence(sequence))))
            .unwrap();
    }

    /// Answers the question for a still, if there is one: with the still if `is_made`. Returns the number of the frame.
    fn answer(&mut self, is_made: bool) -> Option<u64> {
        let (camera, StillQuery { frame, .. }) = self.reading.poll_still()?;
        let still = record(frame.sequence.0, Encoding::Jpeg, ChainLink::still(frame.sequence));
        let answer =
            if is_made { StillAnswer::Still(Box::new(still), None) } else { StillAnswer::NotDecoded };
        self.reading.handle_still(&camera, frame, answer);
        Some(frame.sequence.0)
    }

    /// The next delivery: its number, its encoding, and the frames that were skipped before it.
    fn next(&mut self) -> Option<Got> {
        match self.reading.next(LATER) {
            Next::Frame(delivery) => {
                let meta = delivery.record.frame.meta;
                Some((meta.id.sequence.0, meta.encoding, delivery.skipped.iter().collect()))
            }
            _ => None,
        }
    }

    /// The next delivery, if stills are made at once.
    fn next_made(&mut self) -> Option<Got> {
        self.next().or_else(|| self.answer(true).and_then(|_| self.next()))
    }

    fn all(&mut self) -> Vec<(u64, Encoding)> {
        let frames = std::iter::from_fn(|| self.next_made());
        frames.map(|(sequence, encoding, _)| (sequence, encoding)).collect()
    }
}

fn link(first: u64, sequence: u64) -> ChainLink {
    let index = (sequence - first) as u32;
    let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
    ChainLink { chain: Sequence(first), index, reference }
}

fn record(sequence: u64, encoding: Encoding, chain: ChainLink) -> Record {
    let meta = FrameMeta {
        encoding,
        chain,
        ..sample::meta(
            FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            Timestamp::from_nanos(sequence + 1),
        )
    };
    let frame = Frame { meta, payload: vec![0; 100].into() };
    sample::record(frame)
}

use Encoding::{H264 as Chained, Jpeg};

/// A reader that joins in the middle of a chain gets stills until the next chain begins, and from there on every frame of that chain, once.
#[test]
fn a_chain_is_entered_where_it_begins() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    for sequence in [3, 4] {
        rig.came(0, sequence);
        assert_eq!(rig.next(), None, "its still is not there yet");
        assert_eq!(rig.answer(true), Some(sequence));
        assert_eq!(rig.next(), Some((sequence, Jpeg, vec![])));
    }
    rig.came(5, 5);
    assert_eq!(rig.next(), Some((5, Chained, vec![])));
    assert_eq!((rig.next(), rig.answer(true)), (None, None), "it was delivered");
    for sequence in 6..10 {
        rig.came(5, sequence);
    }
    assert_eq!(rig.all(), [(6, Chained), (7, Chained), (8, Chained), (9, Chained)]);
}

/// Frames that no later frame needs are left out: frames before another chain, and all but the last of successive stills.
#[test]
fn the_newest_wins_where_a_chain_allows_it() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.came(0, 1);
    rig.came(2, 2);
    rig.came(2, 3);
    assert_eq!(rig.next(), Some((2, Chained, vec![(SkipReason::ApplicationBusy, 1)])));
    // A still in the middle of a chain does not end the chain.
    rig.crossed(4);
    let (second, mut after) = (link(2, 4), record(5, Encoding::H264, link(2, 5)));
    after.frame.meta.chain.index = second.index;
    rig.log.append_record(after).unwrap();
    assert_eq!(rig.all(), [(3, Chained), (4, Jpeg), (5, Chained)]);
    rig.crossed(6);
    rig.crossed(7);
    assert_eq!(rig.next(), Some((7, Jpeg, vec![(SkipReason::ApplicationBusy, 1)])));

    let mut every = Rig::new(Deliver::Every, H264);
    every.came(0, 0);
    every.came(0, 1);
    every.came(2, 2);
    every.crossed(3);
    every.crossed(4);
    assert_eq!(every.all(), [(0, Chained), (1, Chained), (2, Chained), (3, Jpeg), (4, Jpeg)]);
}

/// A reader that falls too far behind has lost the chain: the newest still comes, and
/// the account says how many frames were lost. A reader of every frame gets every frame.
#[test]
fn who_is_too_slow_for_a_chain_goes_on_with_stills() {
    let last = BEHIND_FRAMES_MAX + 1;
    let mut rig = Rig::new(Deliver::Newest, H264);
    let mut every = Rig::new(Deliver::Every, H264);
    for rig in [&mut rig, &mut every] {
        rig.came(0, 0);
        assert_eq!(rig.next(), Some((0, Chained, vec![])));
        (1..=last).for_each(|sequence| rig.came(0, sequence));
    }
    assert_eq!(rig.reading.chains_lost(), 0);
    assert_eq!(rig.next_made(), Some((last, Jpeg, vec![(SkipReason::ApplicationBusy, last - 1)])));
    assert_eq!(rig.reading.chains_lost(), 1);
    rig.came(0, last + 1);
    assert_eq!(rig.next_made(), Some((last + 1, Jpeg, vec![])), "it has lost what the others refer to");
    rig.came(last + 2, last + 2);
    assert_eq!(rig.next(), Some((last + 2, Chained, vec![])));
    assert_eq!(rig.reading.chains_lost(), 1);
    assert_eq!(every.all(), (1..=last).map(|sequence| (sequence, Chained)).collect::<Vec<_>>());
}

/// A chain of a kind that the application does not decode comes as stills. So does every frame after its decoder has failed.
#[test]
fn what_is_not_decoded_comes_as_stills() {
    let tiles = ChainKinds::among(&[Encoding::Tiles]);
    let mut rig = Rig::new(Deliver::Newest, tiles);
    rig.came(0, 0);
    assert_eq!(rig.next_made(), Some((0, Jpeg, vec![])));

    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.reading.leave_chain(&"dock/cam1".parse().unwrap());
    rig.came(0, 1);
    assert_eq!(rig.next_made(), Some((1, Jpeg, vec![])));
}

/// A frame that is not in the log ends the chain for frames that need it. Frames that do not need it are delivered.
#[test]
fn a_frame_that_is_missing_ends_the_chain() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.came(0, 2);
    assert_eq!(rig.next_made(), Some((2, Jpeg, vec![(SkipReason::LateOrLost, 1)])));
}

/// Frames that came while a still was made are skipped with a reason of their own.
#[test]
fn what_comes_while_a_still_is_made_has_its_reason() {
    let mut rig = Rig::new(Deliver::Newest, ChainKinds::NONE);
    rig.came(0, 1);
    assert_eq!(rig.next(), None);
    rig.came(0, 2);
    rig.came(0, 3);
    assert_eq!(rig.answer(true), Some(1));
    assert_eq!(rig.next(), Some((1, Jpeg, vec![])));
    rig.came(0, 4);
    rig.came(0, 5);
    let skipped = vec![(SkipReason::ApplicationBusy, 1), (SkipReason::EdgeBusy, 2)];
    assert_eq!(rig.next_made(), Some((5, Jpeg, skipped)));
}

/// A still that cannot be made is counted, and the next frame is looked for.
#[test]
fn a_still_that_is_not_made_is_counted() {
    let mut rig = Rig::new(Deliver::Every, ChainKinds::NONE);
    for (first, sequence) in [(0, 0), (0, 1), (2, 2)] {
        rig.came(first, sequence);
    }
    assert_eq!(rig.next_made(), Some((0, Jpeg, vec![])));
    assert_eq!((rig.next(), rig.answer(false)), (None, Some(1)));
    assert_eq!(rig.next_made(), Some((2, Jpeg, vec![(SkipReason::NotDecoded, 1)])));

    // The same holds if nothing is delivered any more.
    rig.came(2, 3);
    assert_eq!((rig.next(), rig.reading.poll_still().is_some()), (None, true));
    rig.reading.detach(&"dock/cam1".parse().unwrap(), Missing::default());
    let (again, reader) = log(LogConfig::default());
    rig.log = again;
    rig.reading.attach("dock/cam1".parse().unwrap(), reader);
    rig.crossed(5);
    let told = vec![(SkipReason::LinkDown, 1), (SkipReason::Evicted, 1)];
    assert_eq!(rig.next(), Some((5, Jpeg, told)));
}

/// No stills are asked for of frames that need an undecoded frame.
#[test]
fn frames_that_need_one_that_was_not_decoded_are_passed_over() {
    let mut rig = Rig::new(Deliver::Every, ChainKinds::NONE);
    rig.came(0, 0);
    assert_eq!((rig.next(), rig.answer(false)), (None, Some(0)));
    for sequence in 1..40 {
        rig.came(0, sequence);
    }
    rig.came(40, 40);
    assert_eq!((rig.next(), rig.answer(true)), (None, Some(40)), "39 frames need the first one");
    assert_eq!(rig.next(), Some((40, Jpeg, vec![(SkipReason::NotDecoded, 40)])));
    // Of two frames that need the same one, the first one is damaged.
    rig.came(40, 41);
    let beside =
        ChainLink { chain: Sequence(40), index: 2, reference: Reference::Acknowledged(Sequence(40)) };
    rig.log.append_record(record(42, Encoding::H264, beside)).unwrap();
    assert_eq!((rig.next(), rig.answer(false)), (None, Some(41)));
    assert_eq!(rig.next_made(), Some((42, Jpeg, vec![(SkipReason::NotDecoded, 1)])));
    // However many frames need the same one.
    rig.came(50, 50);
    assert_eq!((rig.next(), rig.answer(false)), (None, Some(50)));
    for sequence in 51..100 {
        let reference = Reference::Acknowledged(Sequence(50));
        let spare = ChainLink { chain: Sequence(50), index: (sequence - 50) as u32, reference };
        rig.log.append_record(record(sequence, Encoding::H264, spare)).unwrap();
    }
    assert_eq!((rig.next(), rig.answer(true)), (None, None));
}

/// A reading ends when the last still that it waits for is there.
#[test]
fn a_reading_does_not_end_before_its_last_still() {
    let (mut writer, reader) = log(LogConfig::default());
    let mut reading = Subscription::new(Span {
        begin: Some(Timestamp::MIN),
        end: Some(Timestamp::from_nanos(9)),
        deliver: Deliver::Every,
    });
    for sequence in 0..2 {
        writer.append_record(record(sequence, Chained, link(0, sequence))).unwrap();
    }
    let camera: CameraName = "dock/cam1".parse().unwrap();
    reading.attach(camera.clone(), reader);
    let mut got = Vec::new();
    loop {
        match reading.next(LATER) {
            Next::Frame(delivery) => got.push(delivery.record.frame.meta.id.sequence.0),
            Next::Pending => {
                let (_, StillQuery { frame, .. }) = reading.poll_still().expect("it waits for a still");
                let still = record(frame.sequence.0, Jpeg, ChainLink::still(frame.sequence));
                reading.handle_still(&camera, frame, StillAnswer::Still(Box::new(still), None));
            }
            Next::Ended { .. } => break,
        }
    }
    assert_eq!(got, [0, 1]);
}

/// A reader of every frame from as far as the camera gets the camera's own frame where
/// no still can be made here. If the camera cannot be asked, the reader is told.
#[test]
fn who_fills_asks_the_camera_for_what_cannot_be_decoded() {
    for holds in [true, false] {
        let (log, reader) = log(LogConfig::default());
        let span = Span { deliver: Deliver::Every, ..Span::LIVE };
        let mut rig = Rig { log, reading: Subscription::with_past(span, PastOptions::FILLED) };
        rig.reading.attach("dock/cam1".parse().unwrap(), reader);
        (0..3).for_each(|sequence| rig.came(0, sequence));
        assert_eq!(rig.next_made(), Some((0, Jpeg, vec![])));
        assert_eq!((rig.next(), rig.answer(false), rig.next()), (None, Some(1), None));
        let (camera, query) = rig.reading.poll_past().expect("the camera is asked");
        let id = |sequence| FrameId { epoch: Epoch(1), sequence: Sequence(sequence) };
        let asked = (0..5).filter(|sequence| query.spans(id(*sequence))).collect::<Vec<_>>();
        assert_eq!((asked, query.tier_max), (vec![1], Tier::Camera));
        let still = || record(1, Jpeg, ChainLink::still(Sequence(1)));
        let absent = PastAnswer::unanswered(Unanswered::CameraAbsent);
        let answer =
            if holds { PastAnswer { record: Some(still()), ..PastAnswer::default() } } else { absent };
        rig.reading.handle_past(&camera, answer);
        if holds {
            assert_eq!(rig.next(), Some((1, Jpeg, vec![])));
            assert_eq!(rig.next_made(), Some((2, Jpeg, vec![])));
            continue;
        }
        assert_eq!((rig.next(), rig.answer(true)), (None, Some(2)));
        let Next::Frame(delivery) = rig.reading.next(LATER) else { panic!("its still was made") };
        assert_eq!(delivery.skipped.iter().collect::<Vec<_>>(), [(SkipReason::NotDecoded, 1)]);
        assert_eq!(delivery.not_held.map(|told| told.reason), Some(NotHeldReason::CameraAbsent));
    }
}
