//! Frames of chains on their way into a replica log.

use super::*;
use crate::frame::{ChainLink, Encoding, Reference, Sequence, SkipCounts, SkipRange, SkipReason};
use crate::subscription::{Next, Span, Subscription};
use crate::wire::FrameHeader;

/// A frame of the chain that began with `first`, which refers to the one before; the index is the distance.
fn member(first: u64, sequence: u64, skipped: Vec<SkipRange>) -> FrameHeader {
    let mut header = header(3, sequence, 10, skipped);
    let index = (sequence - first) as u32;
    let reference = if index == 0 { Reference::Independent } else { Reference::Previous };
    header.meta.encoding = Encoding::H264;
    header.meta.chain = ChainLink { chain: Sequence(first), index, reference };
    header
}

/// The same, which refers to one that had arrived.
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

/// The frames that are to be decoded.
fn asked(rig: &mut Rig) -> Vec<u64> {
    let asked = |output| match output {
        EdgeOutput::Decode { frame, .. } => Some(frame.meta.id.sequence.0),
        _ => None,
    };
    rig.take().into_iter().filter_map(asked).collect()
}

fn still() -> Decoded {
    Decoded::Still { payload: vec![7; 99].into(), encoding: Encoding::Jpeg, width: 8, height: 6 }
}

fn decoded(rig: &mut Rig, sequence: u64, decoded: Decoded) {
    let id = FrameId { epoch: Epoch(3), sequence: Sequence(sequence) };
    rig.broker.handle_decoded(rig.now, &"dock/cam1".parse().unwrap(), LinkId(1), id, decoded);
}

fn held(rig: &Rig) -> Vec<u64> {
    let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
    log.held().filter_map(|index| log.get(index)).map(|record| record.frame.meta.id.sequence.0).collect()
}

/// What a subscription is told of the frames that it does not get.
fn skipped(rig: &Rig) -> Vec<(u64, SkipCounts)> {
    let camera: CameraName = "dock/cam1".parse().unwrap();
    let (log, ..) = rig.broker.log(&camera).unwrap();
    let every = Span { deliver: crate::subscription::Deliver::Every, ..Span::LIVE };
    let mut reading = Subscription::new(every);
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
fn a_frame_of_a_chain_enters_the_log_as_a_still_that_says_what_was_done() {
    let mut rig = rig();
    rig.frame(1, member(5, 5, vec![])).unwrap();
    assert_eq!((asked(&mut rig), held(&rig)), (vec![5], vec![]));
    let arrived = rig.now;
    rig.now += Duration::from_millis(8);
    decoded(&mut rig, 5, still());
    let (log, ..) = rig.broker.log(&"dock/cam1".parse().unwrap()).unwrap();
    let record = log.get(0).unwrap();
    // Ten bytes crossed the link, and the still has 99.
    assert_eq!((record.link_bytes, record.frame.payload.len()), (Some(10), 99));
    let meta = record.frame.meta;
    assert_eq!((meta.encoding, meta.chain), (Encoding::Jpeg, ChainLink::still(Sequence(5))));
    assert_eq!((meta.width, meta.height, meta.rung), (8, 6, member(5, 5, vec![]).meta.rung));
    let stamps = log.get(0).unwrap().trace.expect("it came over the link");
    assert_eq!((stamps.arrived, stamps.decoded, stamps.logged), (arrived, Some(rig.now), rig.now));
    decoded(&mut rig, 5, still());
    assert_eq!(held(&rig), [5], "it came once");
}

/// Whatever comes of them, in whatever order: frames enter in theirs, and those that are not shown have a reason, also for
/// what their headers alone told of others.
#[test]
fn frames_keep_their_order_and_none_is_lost_from_the_account() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    rig.frame(1, member(0, 1, vec![])).unwrap();
    rig.frame(1, after(1, member(0, 4, vec![range(2, 2, SkipReason::LinkBusy)]))).unwrap();
    rig.frame(1, header(3, 5, 10, vec![])).unwrap();
    rig.frame(1, after(4, member(0, 7, vec![range(6, 1, SkipReason::NotMade)]))).unwrap();
    assert_eq!(asked(&mut rig), [0, 1, 4, 7]);
    decoded(&mut rig, 7, still());
    decoded(&mut rig, 4, Decoded::Failed);
    assert_eq!(held(&rig), [], "others are before them");
    decoded(&mut rig, 0, still());
    assert_eq!(held(&rig), [0]);
    decoded(&mut rig, 1, Decoded::Passed);
    assert_eq!(held(&rig), [0, 5, 7]);
    let expected = [
        (0, SkipCounts::default()),
        (5, counts(&[(SkipReason::EdgeBusy, 1), (SkipReason::LinkBusy, 2), (SkipReason::NotDecoded, 1)])),
        (7, counts(&[(SkipReason::NotMade, 1)])),
    ];
    assert_eq!(skipped(&rig), expected);
    assert_eq!(rig.info().counters.not_decoded, 2);
}

/// A frame that is whole waits for an older one of its chain, and one that needs neither overtakes both. The camera knows that the one
/// that waits is here, so it says no more what became of those before it.
#[test]
fn what_a_waiting_frame_told_is_known_to_those_that_overtake_it() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    decoded(&mut rig, 0, still());
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

/// A frame that comes late, after others that needed it were given up, takes nothing from the account of those.
#[test]
fn what_is_known_of_later_frames_outlives_an_earlier_one() {
    let mut rig = rig();
    rig.frame(1, member(0, 0, vec![])).unwrap();
    decoded(&mut rig, 0, still());
    for sequence in [2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    rig.now += HELD_MAX;
    rig.broker.handle_timeout(rig.now);
    for sequence in [2, 3] {
        decoded(&mut rig, sequence, Decoded::NotHeld);
    }
    rig.frame(1, member(0, 1, vec![])).unwrap();
    rig.frame(1, member(5, 5, vec![range(4, 1, SkipReason::Stalled)])).unwrap();
    decoded(&mut rig, 5, still());
    let told = counts(&[(SkipReason::NotDecoded, 3), (SkipReason::Stalled, 1)]);
    assert_eq!(skipped(&rig), [(0, SkipCounts::default()), (5, told)]);
    assert_eq!(rig.info().counters.not_decoded, 3);
}

fn whole(rig: &mut Rig, sequence: u64) {
    let id = FrameId { epoch: Epoch(3), sequence: Sequence(sequence) };
    rig.broker.handle_frame_complete(rig.now, LinkId(1), id, vec![0; 10].into());
}

/// A whole frame waits for older ones of its chain that are still arriving, and for no others; once a newer chain has begun, it is of no use.
#[test]
fn a_chain_is_decoded_in_order_of_its_frames() {
    let mut rig = rig();
    for header in [member(0, 0, vec![]), member(0, 1, vec![]), member(0, 2, vec![])] {
        rig.broker.handle_frame_header(rig.now, LinkId(1), header).unwrap();
    }
    whole(&mut rig, 1);
    assert_eq!(asked(&mut rig), []);
    whole(&mut rig, 0);
    assert_eq!(asked(&mut rig), [0, 1]);
    rig.frame(1, member(3, 3, vec![])).unwrap();
    assert_eq!(asked(&mut rig), [3], "it needs none");
    whole(&mut rig, 2);
    assert_eq!(asked(&mut rig), [], "the decoder has gone on to the next chain");
    rig.broker.handle_frame_header(rig.now, LinkId(1), member(3, 5, vec![])).unwrap();
    rig.broker.handle_frame_header(rig.now, LinkId(1), member(3, 4, vec![])).unwrap();
    whole(&mut rig, 5);
    rig.now += HELD_MAX * 2;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(asked(&mut rig), [], "4 is arriving");
    let four = FrameId { epoch: Epoch(3), sequence: Sequence(4) };
    rig.broker.handle_frame_cancelled(rig.now, LinkId(1), four);
    assert_eq!(asked(&mut rig), [5], "nothing will come of 4");
}

/// The only packet of a frame was lost, so nothing is known of it here until it is sent again: those that need it wait for it, and then
/// none is lost. Those that need none of them go first.
#[test]
fn frames_wait_for_one_that_was_lost_on_its_way() {
    let mut rig = rig();
    for sequence in [0, 2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    assert_eq!(asked(&mut rig), [0]);
    rig.now += HELD_MAX / 2;
    rig.broker.handle_timeout(rig.now);
    rig.frame(1, member(0, 1, vec![])).unwrap();
    assert_eq!(asked(&mut rig), [1, 2, 3]);
    for header in [member(0, 5, vec![]), after(3, member(0, 6, vec![])), member(0, 7, vec![])] {
        rig.frame(1, header).unwrap();
    }
    assert_eq!(asked(&mut rig), [6, 7], "6 needs 3 alone");
    rig.frame(1, member(0, 4, vec![])).unwrap();
    assert_eq!(asked(&mut rig), [], "5 is behind, and 4 came for it alone");
    for sequence in [0, 1, 2, 3, 6, 7] {
        decoded(&mut rig, sequence, still());
    }
    assert_eq!(held(&rig), [0, 1, 2, 3, 6, 7]);
    assert_eq!(rig.info().counters.not_decoded, 2);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

    /// Whatever the network does to the order of frames: the decoder gets each, in order.
    #[test]
    fn frames_are_decoded_in_order_in_whatever_order_they_come(
        order in proptest::strategy::Strategy::prop_shuffle(proptest::strategy::Just((0..40).collect::<Vec<u64>>())),
    ) {
        let mut rig = rig();
        let mut given = Vec::new();
        for sequence in order {
            rig.now += HELD_MAX / 50;
            rig.broker.handle_timeout(rig.now);
            rig.frame(1, member(0, sequence, vec![])).unwrap();
            let mut decoding: VecDeque<u64> = asked(&mut rig).into();
            while let Some(next) = decoding.pop_front() {
                decoded(&mut rig, next, still());
                given.push(next);
                decoding.extend(asked(&mut rig));
            }
        }
        proptest::prop_assert_eq!(given, (0..40).collect::<Vec<u64>>());
    }
}

/// What was lost does not come: after [`HELD_MAX`] the others go on without it, and a frame that stands alone is asked for.
#[test]
fn frames_do_not_wait_forever() {
    let mut rig = rig();
    for sequence in [0, 2, 3] {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    decoded(&mut rig, 0, still());
    let due = rig.now + HELD_MAX;
    rig.take();
    while rig.now < due {
        rig.now = rig.broker.poll_timeout().expect("frames wait").min(due);
        rig.broker.handle_timeout(rig.now);
        let (now, asked) = (rig.now, asked(&mut rig));
        assert_eq!(asked, if now < due { vec![] } else { vec![2, 3] }, "at {now:?}");
    }
    decoded(&mut rig, 2, Decoded::NotHeld);
    decoded(&mut rig, 3, Decoded::NotHeld);
    assert_eq!(refreshes(&mut rig), [2]);
}

/// The frames for which the camera was asked to begin a new chain.
fn refreshes(rig: &mut Rig) -> Vec<u64> {
    let asked = |message| match message {
        Message::Refresh { frame } => Some(frame.sequence.0),
        _ => None,
    };
    rig.messages(1).into_iter().filter_map(asked).collect()
}

#[test]
fn a_frame_that_stands_alone_is_asked_for_at_once_for_each_chain() {
    let mut rig = rig();
    let mut requests = Vec::new();
    for sequence in 0..60 {
        rig.now += 100 * Duration::from_millis(1);
        let chain = if sequence < 45 { 0 } else { 45 };
        rig.frame(1, member(chain, sequence, vec![])).unwrap();
        decoded(&mut rig, sequence, Decoded::NotHeld);
        requests.extend(refreshes(&mut rig));
    }
    assert_eq!(requests, [0, 20, 40, 45]);
    assert_eq!(held(&rig), []);
}

/// What the decoder has no room for waits, in order, for as long as a frame may wait.
#[test]
fn what_waits_for_a_decoder_is_bounded() {
    let mut rig = rig();
    let room = DECODING_FRAMES_MAX as u64;
    for sequence in 0..3 * room {
        rig.frame(1, member(0, sequence, vec![])).unwrap();
    }
    assert_eq!(asked(&mut rig), (0..room).collect::<Vec<_>>());
    for sequence in 0..room {
        decoded(&mut rig, sequence, still());
        assert_eq!(asked(&mut rig), [sequence + room], "there is room for one more");
    }
    rig.now += HELD_MAX;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(asked(&mut rig), []);
    for sequence in room..2 * room {
        decoded(&mut rig, sequence, still());
    }
    rig.frame(1, member(100, 100, vec![])).unwrap();
    decoded(&mut rig, 100, still());
    let (newest, told) = skipped(&rig).pop().unwrap();
    assert_eq!((newest, told.of(SkipReason::EdgeBusy)), (100, room));
}

/// Whoever carries messages has forgotten the connection by then.
#[test]
fn nothing_is_said_on_a_connection_that_is_over() {
    let mut rig = rig();
    // The first never comes whole. The others wait for it, more of them than the decoder takes.
    let link = LinkId(1);
    rig.broker.handle_frame_header(rig.now, link, member(0, 0, vec![])).unwrap();
    for sequence in 1..=DECODING_FRAMES_MAX as u64 + 1 {
        let header = member(0, sequence, vec![]);
        let (id, payload) = (header.meta.id, vec![0; header.payload_bytes as usize]);
        rig.broker.handle_frame_header(rig.now, link, header).unwrap();
        rig.broker.handle_frame_complete(rig.now, link, id, payload.into());
    }
    rig.take();
    rig.broker.handle_closed(rig.now, link);
    let outputs = rig.take();
    let decode = |output: &&EdgeOutput| matches!(output, EdgeOutput::Decode { .. });
    assert_eq!(outputs.iter().filter(decode).count(), DECODING_FRAMES_MAX);
    assert!(!outputs.iter().any(|output| matches!(output, EdgeOutput::Send { .. })), "{outputs:?}");
}
