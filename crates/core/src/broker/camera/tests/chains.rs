//! Frames that refer to others, as the broker has them encoded.

use super::adapting::transformed;
use super::*;
use crate::broker::camera::News;
use crate::frame::{ChainLink, Reference};
use crate::setting::Form;

const HASH: [u8; 32] = [9; 32];

fn contract() -> Contract {
    Contract { accuracy_floor: Some(0.9), profile: Some(HASH), ..bound(Duration::from_secs(1)) }
}

/// A camera whose frames are all of one chain.
fn video() -> Rig {
    of_video(Rig::connected(contract()))
}

fn of_video(mut rig: Rig) -> Rig {
    rig.broker.handle_profile(rig.now, HASH, Some(one_rung("h264/q32")));
    rig
}

fn transforms(outputs: &[CameraOutput]) -> Vec<&Transform> {
    let mut transforms = Vec::new();
    for output in outputs {
        if let CameraOutput::Transform(transform) = output {
            transforms.push(&**transform);
        }
    }
    transforms
}

/// Publishes a frame, which the codec encodes at this place in a chain. Returns what the codec was told.
fn through(rig: &mut Rig, chain: impl FnOnce(u64) -> ChainLink) -> (FrameId, Reference, News) {
    rig.now += 100 * MS;
    let id = rig.publish_image(500, (64, 48));
    rig.broker.handle_timeout(rig.now);
    let outputs = rig.take();
    let [transform] = transforms(&outputs)[..] else { panic!("{id} is not made: {outputs:?}") };
    let told = (id, transform.reference, transform.news.clone());
    made(rig, id, chain(id.sequence.0));
    told
}

fn made(rig: &mut Rig, frame: FrameId, chain: ChainLink) {
    let (payload, rung) = (vec![0; 100].into(), Rung::new("h264/q32").unwrap());
    let made = Transformed::Made { payload, encoding: Encoding::H264, width: 64, height: 48, rung, chain };
    rig.broker.handle_transformed(rig.now, frame, made);
}

fn first(sequence: u64) -> ChainLink {
    ChainLink::still(Sequence(sequence))
}

fn next(chain: u64, index: u32) -> ChainLink {
    ChainLink { chain: Sequence(chain), index, reference: Reference::Previous }
}

fn sent_and_complete(rig: &mut Rig, frame: FrameId) {
    rig.sent(1, frame);
    rig.complete(1, frame, 100);
}

fn news(arrived: &[u64], lost: &[u64]) -> News {
    let all = |of: &[u64]| of.iter().copied().map(Sequence).collect();
    News { arrived: all(arrived), lost: all(lost) }
}

#[test]
fn a_chain_begins_alone_and_the_codec_is_told_what_arrived() {
    let mut rig = video();
    let (zero, reference, told) = through(&mut rig, first);
    assert_eq!((reference, told), (Reference::Independent, News::default()));
    sent_and_complete(&mut rig, zero);
    let (one, reference, told) = through(&mut rig, |_| next(0, 1));
    assert_eq!((reference, told), (Reference::Previous, news(&[0], &[])));
    rig.sent(1, one);
    rig.message(1, Message::Report(Report::Refused { frame: one }));
    let (_, reference, told) = through(&mut rig, |_| next(0, 2));
    assert_eq!((reference, told), (Reference::Previous, news(&[], &[1])));
}

/// The frame before is given up while the codec encodes a frame that refers to it. The encoded frame would be of no use.
#[test]
fn what_refers_to_a_frame_that_was_lost_meanwhile_is_not_sent() {
    let mut rig = video();
    let (zero, ..) = through(&mut rig, first);
    sent_and_complete(&mut rig, zero);
    let (one, ..) = through(&mut rig, |_| next(0, 1));
    rig.sent(1, one);
    rig.take();
    rig.now += 100 * MS;
    let two = rig.publish_image(500, (64, 48));
    assert_eq!(transforms(&rig.take()).len(), 1);
    rig.message(1, Message::Report(Report::Refused { frame: one }));
    made(&mut rig, two, next(0, 2));
    assert_eq!(frames_sent(&rig.take()), []);
    let after = |_| ChainLink { reference: Reference::Acknowledged(Sequence(0)), ..next(0, 3) };
    let (three, reference, told) = through(&mut rig, after);
    assert_eq!((reference, told), (Reference::Previous, news(&[], &[1, 2])));
    let skipped = vec![skipped(1, 1, SkipReason::Refused), skipped(2, 1, SkipReason::NotMade)];
    assert_eq!(frames_sent(&rig.take()), [(three, skipped)]);
}

/// An unexpected keyframe is compared with keyframes. Otherwise the next frames would be expected to be as large.
#[test]
fn what_is_expected_of_a_frame_is_set_right_where_it_stands_alone_after_all() {
    let mut rig = video();
    let (zero, ..) = through(&mut rig, first);
    sent_and_complete(&mut rig, zero);
    rig.now += 100 * MS;
    let frame = rig.publish_image(500, (64, 48));
    let (_, mut making) = rig.broker.live.take_made(frame).expect("it is made");
    let (going_on, alone) = making.usual_bytes;
    assert_eq!(making.expected_bytes, going_on as u32);
    let rung = Rung::new("h264/q32").unwrap();
    rig.broker.adapter.handle_made(rig.now, &mut making, (&rung, &next(0, 1)), 100);
    assert_eq!(making.expected_bytes, going_on as u32);
    rig.broker.adapter.handle_made(rig.now, &mut making, (&rung, &first(1)), 1_000);
    assert!(alone > 2.0 * going_on, "{alone}, {going_on}");
    let within_budget = making.bytes_max.map_or(alone, |most| alone.min(f64::from(most)));
    assert_eq!(making.expected_bytes, within_budget as u32);
}

#[test]
fn another_connection_a_refresh_and_ten_seconds_each_begin_a_new_chain() {
    let mut rig = video();
    let (zero, ..) = through(&mut rig, first);
    sent_and_complete(&mut rig, zero);
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.welcome(2, None);
    rig.demand(2, 1, vec![contract()]);
    let (one, reference, _) = through(&mut rig, first);
    assert_eq!(reference, Reference::Independent, "another connection");
    rig.sent(2, one);
    rig.complete(2, one, 100);

    let (two, reference, _) = through(&mut rig, |_| next(one.sequence.0, 1));
    assert_eq!(reference, Reference::Previous);
    rig.sent(2, two);
    rig.message(2, Message::Refresh { frame: zero });
    let (three, reference, _) = through(&mut rig, |_| next(one.sequence.0, 2));
    assert_eq!(reference, Reference::Previous, "what it could not decode is of an earlier chain");
    rig.sent(2, three);
    rig.message(2, Message::Refresh { frame: two });
    let (four, reference, _) = through(&mut rig, first);
    assert_eq!(reference, Reference::Independent, "it was asked for");
    rig.sent(2, four);
    rig.message(2, Message::Refresh { frame: four });
    let (five, reference, _) = through(&mut rig, |_| next(four.sequence.0, 1));
    assert_eq!(reference, Reference::Previous, "it was asked for too soon again");
    rig.sent(2, five);

    let owed = frames_until_one_stands_alone(&mut rig, four, 8);
    assert_eq!(owed, 8, "what was asked for too soon comes a second after the last");
    let chain = FrameId { sequence: Sequence(five.sequence.0 + 8), ..five };
    let frames = frames_until_one_stands_alone(&mut rig, chain, 100);
    assert!((99..=101).contains(&frames), "after {frames} frames of 100 ms");
}

/// Publishes every 100 ms until a frame must be a keyframe, which is the frame after `most` others. Returns how many frames that took.
fn frames_until_one_stands_alone(rig: &mut Rig, chain: FrameId, most: u32) -> u32 {
    for frames in 1..=2 * most {
        rig.message(2, Message::Ping { t1: rig.now });
        let (id, reference, _) = through(rig, |sequence| match frames >= most {
            true => first(sequence),
            false => next(chain.sequence.0, frames + 1),
        });
        rig.sent(2, id);
        rig.complete(2, id, 100);
        if reference == Reference::Independent {
            return frames;
        }
    }
    panic!("a chain never ends");
}

/// The edge keeps a frame until it has the frame that this one refers to. Only then
/// may others refer to it. If that frame never comes, the kept one is lost as well.
#[test]
fn frames_have_arrived_in_the_order_of_their_references() {
    let mut rig = video();
    let (zero, ..) = through(&mut rig, first);
    sent_and_complete(&mut rig, zero);
    let ids: Vec<FrameId> = (1..=4)
        .map(|index| {
            let (id, ..) = through(&mut rig, |_| next(0, index));
            rig.sent(1, id);
            id
        })
        .collect();
    rig.complete(1, ids[1], 100);
    let (five, _, told) = through(&mut rig, |_| next(0, 5));
    rig.sent(1, five);
    assert_eq!(told, news(&[], &[]), "2 waits for 1");
    rig.complete(1, ids[0], 100);
    let (six, _, told) = through(&mut rig, |_| next(0, 6));
    rig.sent(1, six);
    assert_eq!(told, news(&[1, 2], &[]));
    rig.complete(1, ids[3], 100);
    rig.message(1, Message::Report(Report::Refused { frame: ids[2] }));
    let after = |_| ChainLink { reference: Reference::Acknowledged(Sequence(2)), ..next(0, 7) };
    let (seven, reference, told) = through(&mut rig, after);
    assert_eq!((reference, told), (Reference::Previous, news(&[], &[3, 4, 5, 6])));
    sent_and_complete(&mut rig, seven);
    let (_, _, told) = through(&mut rig, |_| next(0, 8));
    assert_eq!(told, news(&[7], &[]), "it needs none of those");
}

/// A failure costs its frame. After two failures of the video codec, frames are changed tiles for
/// a while. After two failures of that codec too, they are stills. Then video is tried again.
#[test]
fn a_codec_that_fails_is_given_a_rest() {
    let mut rig = Rig::connected(Contract { accuracy_floor: Some(0.9), ..bound(Duration::from_secs(1)) });
    let mut made = String::new();
    for number in 0..60 {
        rig.now += 100 * MS;
        rig.message(1, Message::Ping { t1: rig.now });
        let id = rig.publish_image(900_000, (640, 480));
        rig.broker.handle_timeout(rig.now);
        let outputs = rig.take();
        let [transform] = transforms(&outputs)[..] else { panic!("{id} is not made") };
        made.push(match transform.setting.form {
            Form::H264(_) => 'v',
            Form::Tiles(_) => 't',
            _ => 's',
        });
        let fails = [3, 4, 11, 12].contains(&number);
        rig.broker.handle_transformed(rig.now, id, transformed(id, (!fails).then_some(300)));
        if !fails {
            sent_and_complete(&mut rig, id);
        }
    }
    // Two seconds of rest each.
    let (video, rest) = made.split_at(5);
    let stills = rest.trim_start_matches('t').trim_end_matches('v');
    assert_eq!(video, "vvvvv", "{made}");
    assert!(rest.starts_with("tttttttts"), "{made}");
    assert!((11..=14).contains(&stills.len()) && stills.chars().all(|form| form == 's'), "{made}");
}

/// A camera whose codec has made `frames` frames that took 90 ms each on the link.
fn slow_video(interval: Duration, frames: u32) -> Rig {
    let contract = Contract { latency_bound: Some(20 * MS), ..contract() };
    let mut rig = of_video(super::adapting::rig(vec![contract]));
    for index in 0..frames {
        rig.now += interval - 90 * MS;
        let id = rig.publish_image(500, (64, 48));
        let chain = if index == 0 { first(id.sequence.0) } else { next(0, index) };
        let (payload, rung) = (vec![0; 13_000].into(), Rung::new("h264/q32").unwrap());
        let made =
            Transformed::Made { payload, encoding: Encoding::H264, width: 64, height: 48, rung, chain };
        rig.broker.handle_transformed(rig.now, id, made);
        rig.sent(1, id);
        // 1.4 kB in ten milliseconds.
        let begun = rig.now;
        rig.now += 90 * MS;
        let report = Report::Complete { frame: id, bytes: 13_000, first: begun, last: rig.now };
        rig.message(1, Message::Report(report));
        rig.take();
    }
    rig
}

/// Publishes a frame, and reports every encoding as too large. Returns the budgets that were tried.
fn budgets_tried(rig: &mut Rig) -> Vec<u32> {
    let id = rig.publish_image(500, (64, 48));
    let mut budgets = Vec::new();
    loop {
        let outputs = rig.take();
        let Some(transform) = transforms(&outputs).first().copied() else { break budgets };
        assert_eq!(transform.frame.meta.id, id);
        budgets.push(transform.bytes_max);
        rig.now += MS;
        rig.broker.handle_transformed(rig.now, id, Transformed::TooLarge { bytes: 1 << 20 });
    }
}

/// A frame that exceeded its budget is encoded again with a larger one, because at
/// a low frame rate the next frame may be far off. A newer frame goes in its place.
#[test]
fn a_frame_that_did_not_fit_is_made_again_with_more_room() {
    let mut rig = slow_video(490 * MS, 30);
    rig.now += 100 * MS;
    let budgets = budgets_tried(&mut rig);
    assert!(budgets.len() > 2 && budgets.len() < 10 && budgets.last() > budgets.first(), "{budgets:?}");

    rig.now += 100 * MS;
    let older = rig.publish_image(500, (64, 48));
    assert_eq!(transforms(&rig.take())[0].frame.meta.id, older);
    let newer = rig.publish_image(500, (64, 48));
    rig.broker.handle_transformed(rig.now, older, Transformed::TooLarge { bytes: 1 << 20 });
    assert_eq!(transforms(&rig.take())[0].frame.meta.id, newer);
}

/// At a high frame rate the next frame goes in place of one that exceeded its budget.
/// But frames that exceed their budget one after the other do not leave the link silent.
#[test]
fn where_the_link_would_be_silent_for_long_a_frame_is_made_again() {
    let mut rig = slow_video(95 * MS, 60);
    rig.now += 5 * MS;
    assert_eq!(budgets_tried(&mut rig).len(), 1);
    rig.now += 94 * MS;
    assert!(budgets_tried(&mut rig).len() > 2);
}

/// A camera may stop without notice. Its last frame, if it exceeded its budget, is encoded again when the link has been silent for long.
#[test]
fn the_last_frame_of_a_camera_that_stops_is_made_again() {
    let mut rig = slow_video(95 * MS, 60);
    let begun = rig.now - 90 * MS;
    rig.now += 5 * MS;
    assert_eq!(budgets_tried(&mut rig).len(), 1);
    for (silent_ms, made) in [(199, 0), (200, 1)] {
        rig.now = begun + silent_ms * MS;
        rig.broker.handle_timeout(rig.now);
        assert_eq!(transforms(&rig.take()).len(), made, "after {silent_ms} ms");
    }
}
