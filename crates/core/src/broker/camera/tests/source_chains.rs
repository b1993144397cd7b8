//! Frames of a source's own video: they go as they are, with the frames that they need, as long as the link carries them.

use super::*;
use crate::broker::StreamPart;
use crate::frame::{ChainLink, Reference};
use crate::wire::Share;

const KEY: StreamPart = StreamPart::Key;
const NEEDED: StreamPart = StreamPart::Following { is_needed: true };
const SPARE: StreamPart = StreamPart::Following { is_needed: false };
const BUSY: SkipReason = SkipReason::LinkBusy;

fn part(rig: &mut Rig, part: StreamPart) -> FrameId {
    sized_part(rig, part, 100)
}

fn sized_part(rig: &mut Rig, part: StreamPart, bytes: usize) -> FrameId {
    let frame = Published {
        payload: vec![0; bytes].into(),
        encoding: Encoding::H264,
        width: 64,
        height: 48,
        captured: None,
    };
    let id = rig.intake.publish_part(rig.now, frame, part).unwrap();
    rig.broker.handle_published(rig.now);
    id
}

/// What is sent once the link is free, and how.
#[derive(Debug, PartialEq)]
enum Goes {
    AsItIs(u64, Vec<SkipRange>),
    Made(u64, Reference),
    Asks,
}

fn goes(rig: &mut Rig) -> Vec<Goes> {
    let told = |output: CameraOutput| match output {
        CameraOutput::SendFrame { header, .. } => {
            assert_eq!(header.meta.rung, Rung::original());
            Some(Goes::AsItIs(header.meta.id.sequence.0, header.skipped.clone()))
        }
        CameraOutput::Transform(transform) => {
            Some(Goes::Made(transform.frame.meta.id.sequence.0, transform.reference))
        }
        CameraOutput::AskKeyFrame => Some(Goes::Asks),
        _ => None,
    };
    rig.take().into_iter().filter_map(told).collect()
}

fn as_it_is(frame: u64, skipped: &[SkipRange]) -> Goes {
    Goes::AsItIs(frame, skipped.to_vec())
}

fn alone(frame: u64) -> Goes {
    Goes::Made(frame, Reference::Independent)
}

/// The codec has encoded its frame as the first of a chain; the frame arrives.
fn made(rig: &mut Rig, frame: FrameId) {
    let made = Transformed::Made {
        payload: vec![0; 50].into(),
        encoding: Encoding::H264,
        width: 64,
        height: 48,
        rung: Rung::new("h264/q20").unwrap(),
        chain: ChainLink::still(frame.sequence),
    };
    rig.broker.handle_transformed(rig.now, frame, made);
    rig.sent(1, frame);
    rig.complete(1, frame, 50);
}

#[test]
fn frames_of_a_chain_go_in_order_and_those_that_none_needs_are_skipped() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    assert_eq!(goes(&mut rig), [as_it_is(0, &[])]);
    // The link is busy with this frame.
    for kind in [NEEDED, NEEDED, SPARE, SPARE, NEEDED] {
        part(&mut rig, kind);
    }
    assert_eq!(goes(&mut rig), []);
    rig.sent(1, zero);
    for (frame, skipped_before) in [(1, vec![]), (2, vec![]), (5, vec![skipped(3, 2, BUSY)])] {
        assert_eq!(goes(&mut rig), [Goes::AsItIs(frame, skipped_before)]);
        rig.sent(1, FrameId { sequence: Sequence(frame), ..zero });
    }
    // A frame that no other needs goes where it waits for none.
    part(&mut rig, SPARE);
    assert_eq!(goes(&mut rig), [as_it_is(6, &[skipped(3, 2, BUSY)])]);
}

#[test]
fn a_key_frame_takes_the_place_of_all_before_it() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    for kind in [NEEDED, NEEDED, SPARE, KEY, NEEDED] {
        part(&mut rig, kind);
    }
    rig.take();
    rig.sent(1, zero);
    assert_eq!(goes(&mut rig), [as_it_is(4, &[skipped(1, 3, BUSY)])]);
}

/// A data record does not replace a picture that a later one needs. A newer picture replaces the record.
#[test]
fn data_records_go_between_pictures() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    let one = rig.publish_data(b"boxes");
    rig.sent(1, one);
    let two = part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [as_it_is(0, &[]), as_it_is(1, &[]), as_it_is(2, &[])]);
    // The link is busy with this frame.
    part(&mut rig, NEEDED);
    rig.publish_data(b"boxes");
    part(&mut rig, SPARE);
    rig.publish_data(b"boxes");
    rig.publish_data(b"boxes");
    rig.sent(1, two);
    let told = vec![skipped(4, 1, BUSY)];
    for (frame, skipped_before) in
        [(3, vec![]), (5, told.clone()), (7, [told, vec![skipped(6, 1, BUSY)]].concat())]
    {
        assert_eq!(goes(&mut rig), [Goes::AsItIs(frame, skipped_before)]);
        rig.sent(1, FrameId { sequence: Sequence(frame), ..zero });
    }
    for (kind, frame) in [(NEEDED, 8), (NEEDED, 9)] {
        let frame_sent = part(&mut rig, kind);
        assert_eq!(frame_sent.sequence, Sequence(frame));
        assert!(matches!(goes(&mut rig)[..], [Goes::AsItIs(sent, _)] if sent == frame));
        rig.sent(1, frame_sent);
    }
}

/// Without room for the pictures before it, a record goes alone, and the chain continues at a keyframe.
#[test]
fn a_record_goes_without_pictures_that_are_too_old() {
    let mut rig = Rig::connected(bound(200 * MS));
    let zero = part(&mut rig, KEY);
    for _ in 0..4 {
        rig.now += 100 * MS;
        part(&mut rig, NEEDED);
    }
    rig.publish_data(b"boxes");
    rig.sent(1, zero);
    assert_eq!(goes(&mut rig).last(), Some(&as_it_is(5, &[skipped(1, 4, BUSY)])));
    rig.sent(1, FrameId { sequence: Sequence(5), ..zero });
    part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [], "it needs one that did not go");
    part(&mut rig, KEY);
    assert_eq!(goes(&mut rig), [as_it_is(7, &[skipped(1, 4, BUSY), skipped(6, 1, BUSY)])]);
}

/// Without a floor, no rung is known to be good enough. But frames that wait for longer than a second are of no use, and the newest goes.
#[test]
fn a_chain_that_falls_behind_is_given_up_and_goes_on_at_a_key_frame() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    for _ in 0..12 {
        rig.now += 100 * MS;
        rig.message(1, Message::Ping { t1: rig.now });
        part(&mut rig, NEEDED);
    }
    rig.take();
    rig.sent(1, zero);
    assert_eq!(goes(&mut rig), [alone(12)], "the link had no room: a key frame would not help");
    rig.complete(1, zero, 100);
    made(&mut rig, FrameId { sequence: Sequence(12), ..zero });
    rig.take();
    part(&mut rig, KEY);
    assert_eq!(goes(&mut rig), [as_it_is(13, &[])]);
}

/// The chain is given up again, and the frame that was encoded tells the skipped frames.
#[test]
fn frames_that_were_given_up_are_told_with_their_reason() {
    let mut rig = Rig::connected(bound(200 * MS));
    let zero = part(&mut rig, KEY);
    for _ in 0..4 {
        rig.now += 100 * MS;
        part(&mut rig, NEEDED);
    }
    rig.sent(1, zero);
    assert_eq!(goes(&mut rig).last(), Some(&alone(4)));
    let frame = FrameId { sequence: Sequence(4), ..zero };
    made(&mut rig, frame);
    assert_eq!(frames_sent(&rig.take()), [(frame, vec![skipped(1, 3, BUSY)])]);
}

#[test]
fn a_lost_frame_costs_those_that_need_it_until_the_next_key_frame() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    let one = part(&mut rig, SPARE);
    rig.sent(1, one);
    rig.message(1, Message::Report(Report::Refused { frame: one }));
    let two = part(&mut rig, NEEDED);
    rig.sent(1, two);
    let told = vec![skipped(1, 1, SkipReason::Refused)];
    assert_eq!(
        goes(&mut rig),
        [as_it_is(0, &[]), as_it_is(1, &[]), as_it_is(2, &told)],
        "nobody needs the lost one"
    );
    let three = part(&mut rig, NEEDED);
    rig.sent(1, three);
    rig.take();
    rig.message(1, Message::Report(Report::Refused { frame: two }));
    let four = part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(4), Goes::Asks], "it needs 3, and that one the lost 2");
    made(&mut rig, four);
    rig.take();
    part(&mut rig, KEY);
    assert!(matches!(goes(&mut rig)[..], [Goes::AsItIs(5, _)]));
}

/// At the end of another connection there may be another decoder.
#[test]
fn another_connection_begins_with_a_frame_that_stands_alone() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    rig.complete(1, zero, 100);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.welcome(2, Some(zero));
    rig.demand(2, 1, vec![Contract::default()]);
    rig.take();
    rig.now += 100 * MS;
    part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(1), Goes::Asks]);
}

#[test]
fn an_edge_that_cannot_decode_gets_a_frame_that_stands_alone() {
    let mut rig = Rig::connected(Contract::default());
    for kind in [KEY, NEEDED] {
        let frame = part(&mut rig, kind);
        rig.sent(1, frame);
        rig.complete(1, frame, 100);
        rig.take();
        if kind == NEEDED {
            rig.message(1, Message::Refresh { frame });
        }
    }
    rig.now += 100 * MS;
    part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(2), Goes::Asks]);
}

/// The edge names the frame with which a chain began, if a reader joins late.
#[test]
fn a_long_chain_ends_when_the_edge_wants_another() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.take();
    let mut last = zero;
    for _ in 0..200 {
        rig.sent(1, last);
        rig.complete(1, last, 100);
        rig.now += 10 * MS;
        rig.message(1, Message::Ping { t1: rig.now });
        last = part(&mut rig, NEEDED);
        assert_eq!(goes(&mut rig), [as_it_is(last.sequence.0, &[])]);
    }
    rig.sent(1, last);
    rig.complete(1, last, 100);
    rig.message(1, Message::Refresh { frame: zero });
    rig.now += 100 * MS;
    part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(201), Goes::Asks]);
}

/// The codec must first decode all frames since the keyframe. That is no failure, and newer frames come meanwhile.
#[test]
fn a_codec_that_has_to_catch_up_is_given_the_newest_frame_again() {
    let mut rig = Rig::connected(Contract::default());
    rig.message(1, Message::Refresh { frame: FrameId::default() });
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    rig.message(1, Message::Report(Report::Refused { frame: zero }));
    rig.take();
    let one = part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(1), Goes::Asks]);
    rig.broker.handle_transformed(rig.now, one, Transformed::NotYet);
    assert_eq!(goes(&mut rig), [alone(1)], "there is no newer one");
    let two = part(&mut rig, NEEDED);
    rig.broker.handle_transformed(rig.now, one, Transformed::NotYet);
    assert_eq!(goes(&mut rig), [alone(2)]);
    made(&mut rig, two);
    let told = vec![skipped(0, 1, SkipReason::Refused), skipped(1, 1, SkipReason::NotMade)];
    assert_eq!(frames_sent(&rig.take()), [(two, told)]);
}

/// While the channel has no room, a frame goes now and then. A codec that catches up does not pause in between, or it would never finish.
#[test]
fn a_codec_catches_up_without_a_pause_while_the_channel_has_no_room() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    rig.message(1, Message::Report(Report::Refused { frame: zero }));
    rig.message(1, Message::Share(Share::Shed { lifetime: Duration::from_secs(1) }));
    rig.take();
    let mut newest = part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [alone(1), Goes::Asks]);
    for number in 2..5 {
        let given = std::mem::replace(&mut newest, part(&mut rig, NEEDED));
        rig.broker.handle_transformed(rig.now, given, Transformed::NotYet);
        assert_eq!(goes(&mut rig), [alone(number)]);
    }
    made(&mut rig, newest);
    assert_eq!(frames_sent(&rig.take()).len(), 1);
    part(&mut rig, NEEDED);
    assert_eq!(goes(&mut rig), [], "one was made a moment ago");
}

/// Whether the edge was last told that the source's own video is interrupted.
fn interrupted(rig: &mut Rig) -> Option<bool> {
    let told = |output: CameraOutput| match output {
        CameraOutput::Send { message: Message::FeasibilityReport(report), .. } => Some(report.interrupted),
        _ => None,
    };
    rig.now += 200 * MS;
    rig.message(1, Message::Ping { t1: rig.now });
    rig.broker.handle_timeout(rig.now);
    rig.take().into_iter().filter_map(told).last()
}

/// The cost of a lost frame is reported: frames are encoded at a rung until the next keyframe goes.
#[test]
fn the_edge_is_told_while_a_source_s_video_is_interrupted() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    assert_ne!(interrupted(&mut rig), Some(true));
    rig.message(1, Message::Report(Report::Refused { frame: zero }));
    let one = part(&mut rig, NEEDED);
    made(&mut rig, one);
    assert_eq!(interrupted(&mut rig), Some(true));
    let two = part(&mut rig, KEY);
    rig.sent(1, two);
    assert_eq!(interrupted(&mut rig), Some(false));
}

/// The log has dropped the beginning of a long chain. No codec has failed, so none rests when the next keyframe has come.
#[test]
fn a_chain_whose_beginning_the_log_has_dropped_costs_its_frames_and_no_codec() {
    let mut rig = Rig::connected(Contract::default());
    let zero = part(&mut rig, KEY);
    rig.sent(1, zero);
    rig.message(1, Message::Report(Report::Refused { frame: zero }));
    for _ in 0..10 {
        let frame = part(&mut rig, NEEDED);
        let asked = rig.take().into_iter().any(|output| {
            matches!(output, CameraOutput::Transform(transform) if transform.setting.to_string().starts_with("h264/"))
        });
        assert!(asked, "the video codec is in order");
        rig.broker.handle_transformed(rig.now, frame, Transformed::Lacking);
        rig.now += 100 * MS;
        rig.message(1, Message::Ping { t1: rig.now });
    }
    rig.take();
    part(&mut rig, KEY);
    let told = vec![skipped(0, 1, SkipReason::Refused), skipped(1, 10, SkipReason::NotMade)];
    assert_eq!(goes(&mut rig), [Goes::AsItIs(11, told)]);
}

/// A rung with frame skip would otherwise skip every keyframe, and never end.
#[test]
fn a_key_frame_goes_although_the_rung_leaves_it_out() {
    let profile = [5; 32];
    let contract = Contract { accuracy_floor: Some(0.9), profile: Some(profile), ..bound(1000 * MS) };
    let mut rig = Rig::connected(contract);
    rig.broker.handle_profile(rig.now, profile, Some(one_rung("h264/q20/skip3")));
    let mut sent = Vec::new();
    for number in 0..31 {
        rig.now += 100 * MS;
        rig.message(1, Message::Ping { t1: rig.now });
        rig.answer_ping(1);
        let frame = part(&mut rig, if number % 30 == 0 { KEY } else { NEEDED });
        rig.broker.handle_timeout(rig.now);
        for step in goes(&mut rig) {
            if let Goes::Made(..) = step {
                made(&mut rig, frame);
                rig.take();
            }
            sent.push(step);
        }
    }
    let considered = |step: &Goes| match step {
        Goes::AsItIs(frame, _) | Goes::Made(frame, _) => Some(*frame),
        Goes::Asks => None,
    };
    let sent: Vec<u64> = sent.iter().filter_map(considered).collect();
    assert_eq!(sent, [0, 4, 8, 12, 16, 20, 24, 28, 30], "one in four, and the key frame");
}

/// A keyframe that is too large for the edge is made smaller, and not requested again and again.
#[test]
fn a_key_frame_that_is_too_large_for_the_edge_is_made_smaller() {
    let mut rig = Rig::connected(Contract::default());
    sized_part(&mut rig, KEY, 1_001);
    assert_eq!(goes(&mut rig), [alone(0)]);
}

/// A link of `bytes_per_ms`, on which each frame is reported as it arrives; the codec makes frames of 1,500 bytes. The camera
/// publishes 25 frames a second, and every tenth is a keyframe. Returns one letter for each frame that was sent: original or rung.
fn sent_over(rig: &mut Rig, bytes_per_ms: usize, seconds: u64, sizes: (usize, usize)) -> String {
    sent_while(rig, bytes_per_ms, true, seconds, sizes)
}

/// The same where the codec makes frames, or always has earlier frames to decode first, as on a busy processor.
fn sent_while(
    rig: &mut Rig,
    bytes_per_ms: usize,
    makes: bool,
    seconds: u64,
    (key, other): (usize, usize),
) -> String {
    let mut sent = String::new();
    let mut busy: Option<(FrameId, usize, Instant)> = None;
    for ms in 0..seconds * 1000 {
        rig.now += MS;
        if ms % 100 == 0 {
            rig.message(1, Message::Ping { t1: rig.now });
            rig.answer_ping(1);
        }
        if ms % 40 == 0 {
            let kind = if ms % 400 == 0 { KEY } else { NEEDED };
            sized_part(rig, kind, if kind == KEY { key } else { other });
        }
        rig.broker.handle_timeout(rig.now);
        if let Some((frame, bytes, begun)) =
            busy.take_if(|(_, bytes, begun)| *begun + MS * (*bytes / bytes_per_ms) as u32 <= rig.now)
        {
            rig.sent(1, frame);
            let report = Report::Complete { frame, bytes: bytes as u32, first: begun, last: rig.now };
            rig.message(1, Message::Report(report));
        }
        for _ in 0..2 {
            for output in rig.take() {
                match output {
                    CameraOutput::Transform(transform) => {
                        let chain = ChainLink::still(transform.frame.meta.id.sequence);
                        let made = Transformed::Made {
                            payload: vec![0; 1_500.min(transform.bytes_max as usize)].into(),
                            encoding: Encoding::H264,
                            width: 64,
                            height: 48,
                            rung: transform.setting.rung(),
                            chain,
                        };
                        let made = if makes { made } else { Transformed::NotYet };
                        rig.broker.handle_transformed(rig.now, transform.frame.meta.id, made);
                    }
                    CameraOutput::SendFrame { header, .. } => {
                        sent.push(if header.meta.rung == Rung::original() { 'o' } else { 'r' });
                        busy = Some((header.meta.id, header.payload_bytes as usize, rig.now));
                    }
                    CameraOutput::Reset { .. } => busy = None,
                    _ => {}
                }
            }
        }
    }
    sent
}

/// An application that wants a few small pictures says so in its profile. The link would carry more, and the next application gets more at once.
#[test]
fn a_profile_may_do_without_the_sources_own_video() {
    let (profile, sizes) = ([6; 32], (12_000, 3_000));
    let contract = Contract { accuracy_floor: Some(0.0), profile: Some(profile), ..bound(1000 * MS) };
    let rig_with = |known: SizedProfile| {
        let mut rig = super::adapting::rig(vec![contract.clone()]);
        rig.broker.handle_profile(rig.now, profile, Some(known));
        rig
    };
    let usual = one_rung("h264/q20");
    let without = SizedProfile { profile: usual.profile.clone().without_source_video(), ..usual.clone() };
    let sent = sent_over(&mut rig_with(usual), 1_000, 6, sizes);
    assert!(sent.ends_with(&"o".repeat(30)), "{sent}");
    let mut rig = rig_with(without);
    let sent = sent_over(&mut rig, 1_000, 6, sizes);
    assert!(!sent.is_empty() && !sent.contains('o'), "{sent}");
    rig.demand(1, 2, vec![Contract::default()]);
    let sent = sent_over(&mut rig, 1_000, 2, sizes);
    assert!(sent.ends_with(&"o".repeat(30)), "its chain need not rest: {sent}");
}

/// With a floor the policy decides what is on time. A stream that the link carries goes as it is. When the link
/// becomes slower, the newest frame is made smaller. When the link is fast again, the stream goes as it is again.
#[test]
fn a_stream_goes_as_it_is_as_far_as_it_is_on_time() {
    let contract = Contract { accuracy_floor: Some(0.5), ..bound(100 * MS) };
    let mut rig = super::adapting::rig(vec![contract]);
    let sizes = (12_000, 3_000);
    let fast = sent_over(&mut rig, 1_000, 6, sizes);
    let (before, steady) = fast.split_at(fast.len() / 2);
    assert!(before.starts_with('r'), "nothing is known of the link: {fast}");
    assert!(steady.chars().all(|kind| kind == 'o'), "{fast}");
    let slow = sent_over(&mut rig, 40, 6, sizes);
    let made = slow.chars().skip(10).filter(|kind| *kind == 'r').count();
    assert!(made * 10 > (slow.len() - 10) * 9, "{slow}");
    let again = sent_over(&mut rig, 1_000, 20, sizes);
    assert!(again.ends_with(&"o".repeat(60)), "{again}");
}

/// On a busy processor nothing can be made of the stream: the codec never catches up with it. Then the chain rests no longer, however often it was
/// given up, and its next keyframe begins it.
#[test]
fn a_stream_goes_as_it_is_where_nothing_can_be_made_of_it() {
    let contract = Contract { accuracy_floor: Some(0.5), ..bound(100 * MS) };
    let mut rig = super::adapting::rig(vec![contract]);
    let sizes = (12_000, 3_000);
    let fast = sent_over(&mut rig, 1_000, 6, sizes);
    assert!(fast.ends_with("oooo"), "{fast}");
    // The link falls and comes back until the chain rests for a long time.
    for _ in 0..4 {
        sent_over(&mut rig, 40, 2, sizes);
        sent_over(&mut rig, 1_000, 10, sizes);
    }
    sent_over(&mut rig, 40, 2, sizes);
    let rests = sent_over(&mut rig, 1_000, 6, sizes);
    assert!(rests.chars().all(|kind| kind == 'r'), "{rests}");
    let busy = sent_while(&mut rig, 1_000, false, 4, sizes);
    assert!(busy.ends_with(&"o".repeat(20)), "{busy}");
}
