//! Readers that decode chains themselves, beside a replica of stills.

use super::super::*;
use crate::frame::{
    ChainLink, ClockSource, Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Reference, Rung, Sequence,
    SkipReason,
};
use crate::log::{LogConfig, LogWriter, Record, SHORT_LOG_FRAMES_MAX, ShortLogWriter, log, short_log};
use crate::units::Instant;

const LATER: Timestamp = Timestamp::from_nanos(1 << 60);
const H264: ChainKinds = ChainKinds { h264: true, tiles: false };

/// A frame's number, what it came as, and what was skipped before it.
type Got = (u64, Encoding, Vec<(SkipReason, u64)>);

/// A camera's two logs, and one reader of both.
struct Rig {
    came: ShortLogWriter,
    stills: LogWriter,
    reading: Subscription,
}

impl Rig {
    fn new(deliver: Deliver, kinds: ChainKinds) -> Self {
        let (came, as_came) = short_log(1 << 20);
        let (stills, reader) = log(LogConfig::default());
        let mut reading = Subscription::new(Span { deliver, ..Span::LIVE });
        let camera: CameraName = "dock/cam1".parse().unwrap();
        reading.attach(camera.clone(), reader);
        reading.take_chains(&camera, as_came, kinds);
        Self { came, stills, reading }
    }

    /// A frame comes, of the chain that began with `first`; a still of it is not there yet.
    fn came(&mut self, first: u64, sequence: u64) {
        assert!(self.came.append(record(sequence, Encoding::H264, link(first, sequence))));
    }

    /// The edge has decoded it.
    fn decoded(&mut self, sequence: u64) {
        let still = record(sequence, Encoding::Jpeg, ChainLink::still(Sequence(sequence)));
        self.stills.append_record(still).unwrap();
    }

    /// A still crosses.
    fn crossed(&mut self, sequence: u64) {
        let still = || record(sequence, Encoding::Jpeg, ChainLink::still(Sequence(sequence)));
        assert!(self.came.append(still()));
        self.stills.append_record(still()).unwrap();
    }

    /// What the application gets next, as what, and what was skipped before it.
    fn next(&mut self) -> Option<Got> {
        match self.reading.next(LATER) {
            Next::Frame(delivery) => {
                let meta = delivery.record.frame.meta;
                Some((meta.id.sequence.0, meta.encoding, delivery.skipped.iter().collect()))
            }
            _ => None,
        }
    }

    fn all(&mut self) -> Vec<(u64, Encoding)> {
        let frames = std::iter::from_fn(|| self.next());
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
        id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
        captured: Timestamp::from_nanos(sequence + 1),
        clock_source: ClockSource::Broker,
        width: 4,
        height: 4,
        published: (4, 4),
        encoding,
        rung: Rung::original(),
        chain,
    };
    let frame = Frame { meta, payload: vec![0; 100].into() };
    Record {
        frame,
        skipped: [].into(),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    }
}

use Encoding::{H264 as Chained, Jpeg};

/// Who joins in the middle of a chain gets stills until the next begins, and from there on every frame of it, once.
#[test]
fn a_chain_is_entered_where_it_begins() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    for sequence in [3, 4] {
        rig.came(0, sequence);
        assert_eq!(rig.next(), None, "it is not decoded yet");
        rig.decoded(sequence);
        assert_eq!(rig.next(), Some((sequence, Jpeg, vec![])));
    }
    rig.came(5, 5);
    assert_eq!(rig.next(), Some((5, Chained, vec![])), "nobody waits for the edge's decoder");
    rig.decoded(5);
    assert_eq!(rig.next(), None, "it was delivered");
    for sequence in 6..10 {
        rig.came(5, sequence);
        rig.decoded(sequence);
    }
    assert_eq!(rig.all(), [(6, Chained), (7, Chained), (8, Chained), (9, Chained)]);
}

/// What nothing needs any more is left out: frames before another chain, and of stills in a row all but the last.
#[test]
fn the_newest_wins_where_a_chain_allows_it() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.came(0, 1);
    rig.came(2, 2);
    rig.came(2, 3);
    assert_eq!(rig.next(), Some((2, Chained, vec![(SkipReason::ApplicationBusy, 1)])));
    // A still in the midst of a chain ends nothing.
    rig.crossed(4);
    let (second, mut after) = (link(2, 4), record(5, Encoding::H264, link(2, 5)));
    after.frame.meta.chain.index = second.index;
    assert!(rig.came.append(after));
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

/// Who falls too far behind has lost the chain: the newest still comes, and the account says what it cost.
#[test]
fn who_is_too_slow_for_a_chain_goes_on_with_stills() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    let last = SHORT_LOG_FRAMES_MAX as u64 + 1;
    for sequence in 1..=last {
        rig.came(0, sequence);
        rig.decoded(sequence);
    }
    assert_eq!(rig.reading.chains_lost(), 0);
    assert_eq!(rig.next(), Some((last, Jpeg, vec![(SkipReason::ApplicationBusy, last - 1)])));
    assert_eq!(rig.reading.chains_lost(), 1);
    rig.came(0, last + 1);
    assert_eq!(rig.next(), None);
    rig.decoded(last + 1);
    assert_eq!(rig.next(), Some((last + 1, Jpeg, vec![])), "it has lost what the others refer to");
    rig.came(last + 2, last + 2);
    assert_eq!(rig.next(), Some((last + 2, Chained, vec![])));
    assert_eq!(rig.reading.chains_lost(), 1);
}

/// A chain of another kind than the application decodes comes as stills, and so does everything after its decoder has failed.
#[test]
fn what_is_not_decoded_comes_as_stills() {
    let tiles = ChainKinds { h264: false, tiles: true };
    let mut rig = Rig::new(Deliver::Newest, tiles);
    rig.came(0, 0);
    assert_eq!(rig.next(), None);
    rig.decoded(0);
    assert_eq!(rig.next(), Some((0, Jpeg, vec![])));

    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    rig.decoded(0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.reading.leave_chain(&"dock/cam1".parse().unwrap());
    rig.came(0, 1);
    assert_eq!(rig.next(), None);
    rig.decoded(1);
    assert_eq!(rig.next(), Some((1, Jpeg, vec![])));
}

/// A frame for which there is no room among those that came is in the replica: the chain is over, and nothing is waited for.
#[test]
fn a_frame_that_is_missing_ends_the_chain() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 0);
    rig.decoded(0);
    assert_eq!(rig.next(), Some((0, Chained, vec![])));
    rig.decoded(1);
    assert_eq!(rig.next(), Some((1, Jpeg, vec![])));
    rig.came(0, 2);
    rig.decoded(2);
    assert_eq!(rig.next(), Some((2, Jpeg, vec![])));
}

/// What is stated of frames that were skipped while a chain is entered: those that the edge had not decoded yet could not be had.
#[test]
fn what_is_passed_over_for_a_chain_has_its_reason() {
    let mut rig = Rig::new(Deliver::Newest, H264);
    rig.came(0, 1);
    rig.decoded(1);
    assert_eq!(rig.next(), Some((1, Jpeg, vec![])));
    rig.came(0, 2);
    rig.decoded(2);
    rig.came(0, 3);
    rig.came(4, 4);
    let skipped = vec![(SkipReason::ApplicationBusy, 1), (SkipReason::EdgeBusy, 1)];
    assert_eq!(rig.next(), Some((4, Chained, skipped)));

    // Who wants every frame gets the stills that there are first.
    let mut every = Rig::new(Deliver::Every, H264);
    every.came(0, 1);
    every.decoded(1);
    every.came(0, 2);
    every.decoded(2);
    every.came(3, 3);
    assert_eq!(every.all(), [(1, Jpeg), (2, Jpeg), (3, Chained)]);
}
