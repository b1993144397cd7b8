//! Frames of chains on their way into a replica log.

use super::*;
use crate::frame::{ChainKinds, ChainLink, Encoding, Reference, Sequence, SkipCounts, SkipRange, SkipReason};
use crate::subscription::{Next, Span, Subscription};
use crate::wire::FrameHeader;

/// A frame of the chain that began with `first`, which refers to the frame before it. Its index is the distance from `first`.
fn member(first: u64, sequence: u64, skipped: Vec<SkipRange>) -> FrameHeader {
    let mut header = header(3, sequence, 10, skipped);
    let index = (sequence - first) as u32;
    let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
    header.meta.encoding = Encoding::H264;
    header.meta.chain = ChainLink { chain: Sequence(first), index, reference };
    header
}

/// The same frame, which refers to a frame that had arrived.
fn after(refers: u64, header: FrameHeader) -> FrameHeader {
    let mut header = header;
    header.meta.chain.reference = Reference::Acknowledged(Sequence(refers));
    header
}

fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 10);
    rig.take();
    rig
}

fn held(rig: &Rig) -> Vec<u64> {
    let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
    log.held().filter_map(|index| log.get(index)).map(|record| record.frame.meta.id.sequence.0).collect()
}

/// The frames that a subscription gets, each with the skips before it.
fn skipped(rig: &Rig) -> Vec<(u64, SkipCounts)> {
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let (log, ..) = rig.broker.log(&camera).unwrap();
    let every = Span { deliver: crate::subscription::Deliver::Every, ..Span::LIVE };
    let mut reading =
        Subscription::new(every).taking_chains(ChainKinds::among(&[Encoding::H264, Encoding::Tiles]));
    reading.attach_from(camera, log, 0);
    let wall = crate::units::Timestamp::from_nanos(1 << 61);
    std::iter::from_fn(|| match reading.next(wall) {
        Next::Frame(delivery) => Some((delivery.record.frame.meta.id.sequence.0, delivery.skipped)),
        _ => None,
    })
    .collect()
}

fn counts(of: &[(SkipReason, u64)]) -> SkipCounts {
    let mut counts = SkipCounts::default();
    of.iter().for_each(|(reason, count)| counts.add(*reason, *count));
    counts
}

fn range(first: u64, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first: Sequence(first), count, reason }
}

#[test]
fn a_frame_of_a_chain_enters_the_log_as_it_came() {
    let mut rig = rig();
    rig.frame(1, member(5, 5, vec![])).unwrap();
    let outputs = rig.take();
    assert!(outputs.iter().any(|output| matches!(output, EdgeOutput::Appended { .. })), "{outputs:?}");
    let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
    let record = log.get(0).unwrap();
    assert_eq!((record.link_bytes, record.frame.payload.len()), (Some(10), 10));
    assert_eq!(record.frame.meta, member(5, 5, vec![]).meta);
    let stamps = log.get(0).unwrap().trace.expect("it came over the link");
    assert_eq!((stamps.arrived, stamps.decoded, stamps.logged), (rig.now, None, rig.now));
}

/// Frames that do not enter have a reason, and so have frames that only their
/// headers told of. Stills enter between the frames of a chain, and do not end it.
#[test]
fn none_is_lost_from_the_account() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    rig.frame(1, member(0, 1, vec![])).unwrap();
    rig.frame(1, header(3, 5, 10, vec![range(2, 2, SkipReason::LinkBusy)])).unwrap();
    rig.frame(1, after(4, member(0, 7, vec![range(6, 1, SkipReason::NotMade)]))).unwrap();
    rig.frame(1, after(1, member(0, 8, vec![]))).unwrap();
    assert_eq!(held(&rig), [0, 1, 5, 8], "4 never came, so nothing refers to it");
    let none = SkipCounts::default();
    let expected = [
        (0, none),
        (1, none),
        (5, counts(&[(SkipReason::LinkBusy, 2), (SkipReason::LateOrLost, 1)])),
        (8, counts(&[(SkipReason::NotMade, 1), (SkipReason::NotDecoded, 1)])),
    ];
    assert_eq!(skipped(&rig), expected);
    assert_eq!(rig.info().counters.not_decoded, 1);
    assert_eq!(refreshes(&mut rig), [7]);
}

/// Frames from a log on disk are restored as far as they can be decoded. Of a chain that
/// lacks a frame, the rest is left out, and the frames after it account for the rest.
#[test]
fn what_cannot_be_decoded_is_not_restored() {
    let mut edge = Rig::new();
    let record = |header: FrameHeader| Record {
        frame: crate::frame::Frame { meta: header.meta, payload: vec![0; 10].into() },
        skipped: header.skipped.into(),
        quality: Quality::default(),
        trace: None,
        link_bytes: None,
        arrived: Instant::ZERO,
    };
    let back = [
        member(1, 3, vec![]),
        member(4, 4, vec![]),
        member(4, 5, vec![]),
        member(4, 7, vec![range(6, 1, SkipReason::Damaged)]),
        member(4, 8, vec![]),
        header(3, 9, 10, vec![]),
        member(10, 10, vec![]),
        member(10, 11, vec![]),
    ];
    let start = (Epoch(3), hello("dock/cam1", 3, 1, 10).anchor);
    let left_out = edge.broker.restore(vec![("dock/cam1".parse().unwrap(), start, back.map(record).into())]);
    assert_eq!((left_out, held(&edge)), (3, vec![4, 5, 9, 10, 11]));
    let told = counts(&[(SkipReason::Damaged, 1), (SkipReason::NotDecoded, 2)]);
    let none = SkipCounts::default();
    assert_eq!(skipped(&edge), [(4, none), (5, none), (9, told), (10, none), (11, none)]);
    // A camera that is back begins a new chain: a chain of another connection is not continued.
    edge.hello(1, "a", 3, 1, 10);
    edge.frame(1, member(10, 12, vec![])).unwrap();
    assert_eq!(held(&edge).last(), Some(&11));
    edge.frame(1, member(13, 13, vec![])).unwrap();
    assert_eq!(held(&edge).last(), Some(&13));
}

/// A complete frame waits for an older one of its chain, and a frame that needs neither overtakes both.
/// The camera knows that the waiting frame has arrived, so it no longer reports the skips before it.
#[test]
fn what_a_waiting_frame_told_is_known_to_those_that_overtake_it() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    let older = member(0, 1, vec![]);
    let frame = older.meta.id;
    rig.broker.handle_frame_header(rig.now, LinkId(1), older).unwrap();
    rig.frame(1, member(0, 3, vec![range(2, 1, SkipReason::LinkBusy)])).unwrap();
    rig.frame(1, header(3, 4, 10, vec![])).unwrap();
    assert_eq!(held(&rig), [0, 4]);
    rig.broker.handle_frame_cancelled(rig.now, LinkId(1), frame);
    let expected = counts(&[(SkipReason::LinkBusy, 1), (SkipReason::LateOrLost, 2)]);
    assert_eq!(skipped(&rig), [(0, SkipCounts::default()), (4, expected)]);
}

/// Frames that need a late one are given up. When the late frame comes, it removes nothing from their account.
#[test]
fn what_is_known_of_later_frames_outlives_an_earlier_one() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    for sequence in [2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    rig.now += HELD_MAX;
    rig.broker.handle_timeout(rig.now);
    rig.frame(1, member(0, 1, vec![])).unwrap();
    rig.frame(1, member(5, 5, vec![range(4, 1, SkipReason::Stalled)])).unwrap();
    let told = counts(&[(SkipReason::NotDecoded, 3), (SkipReason::Stalled, 1)]);
    assert_eq!(skipped(&rig), [(0, SkipCounts::default()), (5, told)]);
    assert_eq!(rig.info().counters.not_decoded, 3);
}

fn whole(rig: &mut Rig, sequence: u64) {
    let id = FrameId { epoch: Epoch(3), sequence: Sequence(sequence) };
    rig.broker.handle_frame_complete(rig.now, LinkId(1), id, vec![0; 10].into());
}

/// A complete frame waits for older ones of its chain that are still arriving, and for no others. Once a newer chain has begun, it is of no use.
#[test]
fn a_chain_enters_in_order_of_its_frames() {
    let mut rig = rig();
    for header in [member(0, 0, vec![]), member(0, 1, vec![]), member(0, 2, vec![])] {
        rig.broker.handle_frame_header(rig.now, LinkId(1), header).unwrap();
    }
    whole(&mut rig, 1);
    assert_eq!(held(&rig), []);
    whole(&mut rig, 0);
    assert_eq!(held(&rig), [0, 1]);
    rig.frame(1, member(3, 3, vec![])).unwrap();
    assert_eq!(held(&rig), [0, 1, 3], "it needs none");
    whole(&mut rig, 2);
    assert_eq!(held(&rig), [0, 1, 3], "the next chain goes on");
    rig.broker.handle_frame_header(rig.now, LinkId(1), member(3, 5, vec![])).unwrap();
    rig.broker.handle_frame_header(rig.now, LinkId(1), member(3, 4, vec![])).unwrap();
    whole(&mut rig, 5);
    rig.take();
    rig.now += HELD_MAX * 2;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(refreshes(&mut rig), [], "4 is arriving");
    let four = FrameId { epoch: Epoch(3), sequence: Sequence(4) };
    rig.broker.handle_frame_cancelled(rig.now, LinkId(1), four);
    assert_eq!(refreshes(&mut rig), [5], "nothing will come of 4");
    assert_eq!(held(&rig), [0, 1, 3]);
}

/// The only packet of a frame was lost, so the edge knows nothing of the frame until it is sent
/// again. Frames that need it wait, and then none is lost. Frames that need none of them go first.
#[test]
fn frames_wait_for_one_that_was_lost_on_its_way() {
    let mut rig = rig();
    for sequence in [0, 2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    assert_eq!(held(&rig), [0]);
    rig.now += HELD_MAX / 2;
    rig.broker.handle_timeout(rig.now);
    rig.frame(1, member(0, 1, vec![])).unwrap();
    assert_eq!(held(&rig), [0, 1, 2, 3]);
    for header in [member(0, 5, vec![]), after(3, member(0, 6, vec![])), member(0, 7, vec![])] {
        rig.frame(1, header).unwrap();
    }
    assert_eq!(held(&rig), [0, 1, 2, 3, 6, 7], "6 needs 3 alone");
    rig.frame(1, member(0, 4, vec![])).unwrap();
    assert_eq!(held(&rig), [0, 1, 2, 3, 6, 7], "5 is behind, and 4 came for it alone");
    assert_eq!(rig.info().counters.not_decoded, 2);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

    /// Whatever the network does to the order of frames: every frame enters, in order.
    #[test]
    fn frames_enter_in_order_in_whatever_order_they_come(
        order in proptest::strategy::Strategy::prop_shuffle(proptest::strategy::Just((0..40).collect::<Vec<u64>>())),
    ) {
        let mut rig = rig();
        for sequence in order {
            rig.now += HELD_MAX / 50;
            rig.broker.handle_timeout(rig.now);
            rig.frame(1, member(0, sequence, vec![])).unwrap();
        }
        proptest::prop_assert_eq!(held(&rig), (0..40).collect::<Vec<u64>>());
    }
}

/// A lost frame does not come: after [`HELD_MAX`] the others are given up, and a keyframe is requested.
#[test]
fn frames_do_not_wait_forever() {
    let mut rig = rig();
    for sequence in [0, 2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    let due = rig.now + HELD_MAX;
    rig.take();
    while rig.now < due {
        rig.now = rig.broker.poll_timeout().expect("frames wait").min(due);
        rig.broker.handle_timeout(rig.now);
        let (now, asked) = (rig.now, refreshes(&mut rig));
        assert_eq!(asked, if now < due { vec![] } else { vec![2] }, "at {now:?}");
    }
    assert_eq!((held(&rig), rig.info().counters.not_decoded), (vec![0], 2));
}

/// The frames for which the camera was asked to begin a new chain.
fn refreshes(rig: &mut Rig) -> Vec<u64> {
    let asked = |message| match message {
        Message::Refresh { frame } => Some(frame.sequence.0),
        _ => None,
    };
    rig.messages(1).into_iter().filter_map(asked).collect()
}

/// The frames after the first of each chain refer to a frame that is missing.
#[test]
fn a_frame_that_stands_alone_is_asked_for_at_once_for_each_chain() {
    let mut rig = rig();
    let mut requests = Vec::new();
    for sequence in 0..60 {
        rig.now += 100 * Duration::from_millis(1);
        let chain = if sequence < 45 { 1_000 } else { 2_000 };
        let mut header = member(0, sequence, vec![]);
        header.meta.chain = ChainLink { chain: Sequence(chain), ..header.meta.chain };
        rig.frame(1, header).unwrap();
        requests.extend(refreshes(&mut rig));
    }
    assert_eq!(requests, [0, 20, 40, 45]);
    assert_eq!(held(&rig), []);
}

/// Before the beginning of a chain would be evicted, the camera is asked for another chain, which readers can join.
#[test]
fn a_chain_does_not_outgrow_its_log() {
    let mut rig = rig();
    let (mut chain, mut asked, mut begun) = (0, 0, 0);
    for sequence in 0..400 {
        rig.now += 100 * Duration::from_millis(1);
        let mut header = member(chain, sequence, vec![]);
        header.payload_bytes = 20_000;
        rig.frame(1, header).unwrap();
        asked = refreshes(&mut rig).len();
        begun += asked;
        if asked > 0 {
            chain = sequence + 1;
        }
        let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
        let newest = log.newest().unwrap().frame.meta;
        assert!(log.beginning_of(&newest).is_some(), "{sequence}");
    }
    assert!(asked <= 1 && (8..40).contains(&begun), "{begun} chains");
}

/// The driver has forgotten the connection by then.
#[test]
fn nothing_is_said_on_a_connection_that_is_over() {
    let mut rig = rig();
    // The first frame is never complete, and the others wait for it.
    let link = LinkId(1);
    rig.broker.handle_frame_header(rig.now, link, member(0, 0, vec![])).unwrap();
    for sequence in 1..=9 {
        let header = member(0, sequence, vec![]);
        let (id, payload) = (header.meta.id, vec![0; header.payload_bytes as usize]);
        rig.broker.handle_frame_header(rig.now, link, header).unwrap();
        rig.broker.handle_frame_complete(rig.now, link, id, payload.into());
    }
    rig.take();
    rig.broker.handle_closed(rig.now, link);
    let outputs = rig.take();
    assert_eq!(rig.info().counters.not_decoded, 9);
    assert!(!outputs.iter().any(|output| matches!(output, EdgeOutput::Send { .. })), "{outputs:?}");
}
