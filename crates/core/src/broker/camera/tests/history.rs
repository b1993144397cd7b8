//! Questions about frames of the past.

use super::*;
use crate::broker::camera::{HISTORY_REQUESTS_MAX, HISTORY_SHARE, live_traffic};
use crate::frame::{ChainLink, Reference};
use crate::history::{PastAnswer, PastQuery, Tier};
use crate::log::Record;
use crate::units::Timestamp;
use crate::wire::{HistoryCode, HistoryRequest};

fn question(request: u64, rung: &str) -> Message {
    let query = PastQuery {
        after: None,
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Disk,
        quality: None,
    };
    Message::HistoryRequest(HistoryRequest {
        request,
        query,
        rung: Rung::new(rung).unwrap(),
        count: 1,
        continues: false,
    })
}

/// Before the camera knows how large a frame the edge takes, it looks for none.
#[test]
fn who_has_not_welcomed_the_camera_asks_for_nothing() {
    let mut rig = Rig::new();
    rig.publish(10);
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    rig.message(1, question(1, Rung::ORIGINAL));
    let outputs = rig.take();
    assert!(
        outputs.iter().any(|output| matches!(output, CameraOutput::Close { link: LinkId(1) })),
        "{outputs:?}"
    );
    assert_eq!(ticket(&outputs), None);
}

/// A frame with number 0 would count as live.
#[test]
fn a_question_without_a_number_is_passed_over() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish(10);
    rig.take();
    rig.message(1, question(0, Rung::ORIGINAL));
    assert_eq!(ticket(&rig.take()), None);
    rig.message(1, question(1, Rung::ORIGINAL));
    assert!(ticket(&rig.take()).is_some());
}

fn several(request: u64, count: u16) -> Message {
    let Message::HistoryRequest(one) = question(request, "original") else { unreachable!() };
    Message::HistoryRequest(HistoryRequest { count, ..one })
}

/// The ticket of the requested look-up in the log.
fn ticket(outputs: &[CameraOutput]) -> Option<u64> {
    outputs.iter().find_map(|output| match output {
        CameraOutput::ReadHistory { ticket, .. } => Some(*ticket),
        _ => None,
    })
}

fn sent_of_the_past(outputs: &[CameraOutput]) -> Option<u64> {
    outputs.iter().find_map(|output| match output {
        CameraOutput::SendFrame { header, .. } if header.history > 0 => Some(header.history),
        _ => None,
    })
}

/// A frame of the past waits until the live frame has left. Afterwards the past rests.
#[test]
fn the_past_goes_behind_live_frames_and_takes_its_share() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish(500);
    let live: Vec<CameraOutput> = rig.take();
    let frame = live.iter().find_map(|o| match o {
        CameraOutput::SendFrame { header, .. } => Some(header.meta.id),
        _ => None,
    });
    let frame = frame.expect("the live frame goes at once");
    rig.broker.handle_message(rig.now, LinkId(1), question(1, "original"));
    rig.broker.handle_message(rig.now, LinkId(1), question(2, "original"));
    let record = rig.broker.published.newest().unwrap();
    let found = || PastAnswer { record: Some(record.clone()), ..PastAnswer::default() };
    let looked = ticket(&rig.take()).expect("it looks into its log");
    rig.broker.handle_history(rig.now, looked + 7, found());
    rig.broker.handle_history(rig.now, looked, found());
    assert_eq!(sent_of_the_past(&rig.take()), None, "the live frame has bytes not yet sent");
    rig.broker.handle_sent(rig.now, LinkId(1), frame);
    let outputs = rig.take();
    assert_eq!(sent_of_the_past(&outputs), Some(1));
    // The next frame is looked up meanwhile.
    let looked = ticket(&outputs).expect("the next question");
    rig.broker.handle_history(rig.now, looked, found());
    assert_eq!(sent_of_the_past(&rig.take()), None, "one at a time has bytes that have not left");
    let took = Duration::from_millis(20);
    rig.now += took;
    rig.broker.handle_history_sent(rig.now, LinkId(1), 1);
    assert_eq!(sent_of_the_past(&rig.take()), None, "the link rests from the past");
    rig.now += took.mul_f64(1.0 / HISTORY_SHARE - 1.0);
    rig.broker.handle_timeout(rig.now);
    assert_eq!(sent_of_the_past(&rig.take()), Some(2));
}

/// With all of the link's time there is no rest. An absurd share is replaced by the default.
#[test]
fn the_share_of_the_past_can_be_set() {
    for (share, rests) in [(1.0, 0), (0.5, 20), (f64::NAN, 60)] {
        let mut rig = Rig::connected(Contract::default());
        rig.publish(500);
        let record = rig.broker.published.newest().unwrap();
        rig.broker.handle_sent(rig.now, LinkId(1), record.frame.meta.id);
        rig.broker.set_history_share(share);
        for request in [1, 2] {
            rig.broker.handle_message(rig.now, LinkId(1), question(request, "original"));
        }
        let found = || PastAnswer { record: Some(record.clone()), ..PastAnswer::default() };
        let looked = ticket(&rig.take()).unwrap();
        rig.broker.handle_history(rig.now, looked, found());
        let looked = ticket(&rig.take()).unwrap();
        rig.broker.handle_history(rig.now, looked, found());
        rig.now += Duration::from_millis(20);
        rig.broker.handle_history_sent(rig.now, LinkId(1), 1);
        assert_eq!(sent_of_the_past(&rig.take()), (rests == 0).then_some(2), "{share}");
        rig.now += Duration::from_millis(rests);
        rig.broker.handle_timeout(rig.now);
        assert_eq!(sent_of_the_past(&rig.take()), (rests > 0).then_some(2), "{share}");
    }
}

/// A request for several frames is answered by successive frames, until there are no more.
/// A frame that the edge does not take is passed over. A withdrawn request delays no other.
#[test]
fn a_request_for_several_frames_goes_on_behind_each() {
    let mut rig = Rig::connected(Contract::default());
    rig.broker.handle_message(rig.now, LinkId(1), several(5, 3));
    rig.broker.handle_message(rig.now, LinkId(1), several(20, 3));
    rig.publish(10);
    let published = rig.broker.published.newest().unwrap();
    let live = published.frame.meta.id;
    rig.broker.handle_sent(rig.now, LinkId(1), live);
    let found = |sequence: u64, bytes: usize| {
        let mut record = published.clone();
        record.frame.meta.id.sequence = Sequence(sequence);
        record.frame.payload = vec![0; bytes].into();
        PastAnswer { record: Some(record), ..PastAnswer::default() }
    };
    let mut asked_after = Vec::new();
    let mut answers = [found(1, 10), found(2, 70 << 20), found(3, 10), PastAnswer::default()].into_iter();
    let (mut sent, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..6 {
        for output in rig.take() {
            match output {
                CameraOutput::ReadHistory { ticket, query } => {
                    asked_after.push(query.after.map(|after| after.sequence.0));
                    let Some(answer) = answers.next() else { continue };
                    rig.broker.handle_history(rig.now, ticket, answer);
                }
                CameraOutput::SendFrame { header, .. } if header.history > 0 => {
                    sent.push((header.history, header.meta.id.sequence.0));
                    rig.now += Duration::from_millis(1);
                    rig.broker.handle_history_sent(rig.now, LinkId(1), header.history);
                    rig.now += Duration::from_millis(10);
                    rig.broker.handle_timeout(rig.now);
                }
                CameraOutput::Send { message: Message::HistoryEnd(end), .. } => ended.push(end.request),
                _ => {}
            }
        }
    }
    assert_eq!(sent, [(5, 1), (6, 3)]);
    assert_eq!((ended, asked_after), (vec![7], vec![None, Some(1), Some(2), Some(3), None]));
    // A request that continues another is looked up after the frames that came. A request that continues an unknown one ends at once.
    rig.broker.handle_message(rig.now, LinkId(1), several(22, 0));
    let live = live_traffic(&rig.broker.live, &rig.broker.connections);
    assert_eq!(rig.broker.history.due(live), None);
    rig.broker.handle_message(rig.now, LinkId(1), several(30, 1));
    assert!(ticket(&rig.take()).is_some(), "the one that was withdrawn is in nobody's way");
}

/// A frame that is requested at a rung goes through a separate codec, one at a time, while no live frame is in a codec.
/// The next frame tells of those that could not be encoded. The codec takes no more than the past's share of the time.
#[test]
fn frames_of_the_past_are_made_into_what_was_asked_for() {
    const RUNG: &str = "jpeg/w32/q50/420";
    let mut rig = Rig::connected(Contract::default());
    rig.publish(500);
    let record = rig.broker.published.newest().unwrap();
    rig.broker.handle_sent(rig.now, LinkId(1), record.frame.meta.id);
    let Message::HistoryRequest(one) = question(5, RUNG) else { unreachable!() };
    rig.broker.handle_message(
        rig.now,
        LinkId(1),
        Message::HistoryRequest(HistoryRequest { count: 2, ..one }),
    );
    let work = |outputs: &[CameraOutput]| {
        outputs.iter().find_map(|output| match output {
            CameraOutput::TransformPast { ticket, transform } => Some((*ticket, transform.clone())),
            _ => None,
        })
    };
    let find = |rig: &mut Rig, outputs: &[CameraOutput], sequence: u64| {
        let mut record = record.clone();
        record.frame.meta.id.sequence = Sequence(sequence);
        let answer = PastAnswer { record: Some(record), ..PastAnswer::default() };
        rig.broker.handle_history(rig.now, ticket(outputs).expect("it looks into its log"), answer);
        rig.take()
    };
    let made = |rung: &str| Transformed::Made {
        payload: vec![1; 20].into(),
        encoding: Encoding::Jpeg,
        width: 32,
        height: 24,
        rung: Rung::new(rung).unwrap(),
        chain: ChainLink::still(Sequence(1)),
    };
    let outputs = rig.take();
    let outputs = find(&mut rig, &outputs, 1);
    let (number, transform) = work(&outputs).expect("a codec is given the frame");
    assert_eq!((transform.setting.to_string().as_str(), transform.reference), (RUNG, Reference::Independent));
    assert_eq!(sent_of_the_past(&outputs), None);

    // The codec took 20 ms and made less than was asked for: the frame is passed over, and the codec rests.
    rig.now += Duration::from_millis(20);
    rig.broker.handle_past_transformed(rig.now, number, made("jpeg/w32/q10/420"));
    let outputs = rig.take();
    let outputs = find(&mut rig, &outputs, 2);
    assert!(work(&outputs).is_none(), "the codec rests");
    rig.now += Duration::from_millis(60);
    rig.broker.handle_timeout(rig.now);
    let (number, _) = work(&rig.take()).expect("it has rested");
    // As for a frame of a source's own video that needs more decoding: the codec gets it again.
    rig.broker.handle_past_transformed(rig.now, number, Transformed::NotYet);
    rig.broker.handle_timeout(rig.now);
    let (number, _) = work(&rig.take()).expect("it goes on from where it came to");
    rig.broker.handle_past_transformed(rig.now, number + 1, made(RUNG));
    assert_eq!(sent_of_the_past(&rig.take()), None, "nobody asked for that");
    rig.broker.handle_past_transformed(rig.now, number, made(RUNG));
    let outputs = rig.take();
    let header = outputs.iter().find_map(|output| match output {
        CameraOutput::SendFrame { header, .. } => Some(header),
        _ => None,
    });
    let header = header.expect("the second frame goes");
    assert_eq!((header.history, header.meta.rung.as_str(), header.meta.width), (5, RUNG, 32));
    let not_made = SkipRange { first: Sequence(1), count: 1, reason: SkipReason::NotMade };
    assert_eq!(header.skipped, [not_made]);

    // The next frame is withdrawn while it is encoded: the codec gets no other frame before it is done.
    find(&mut rig, &outputs, 3);
    let withdrawn = HistoryRequest { request: 6, count: 0, ..one_of(RUNG) };
    rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryRequest(withdrawn));
    rig.broker.handle_message(rig.now, LinkId(1), question(9, RUNG));
    let outputs = rig.take();
    let outputs = find(&mut rig, &outputs, 1);
    assert!(work(&outputs).is_none(), "it is still at work");
    rig.broker.handle_past_transformed(rig.now, number + 1, made(RUNG));
    assert!(work(&rig.take()).is_some());
}

/// Requests for the past of a source's own video get stills, which need no other frame.
#[test]
fn the_past_of_video_is_given_as_stills() {
    let mut rig = Rig::connected(Contract::default());
    let video = |payload: usize| Published {
        payload: vec![0; payload].into(),
        encoding: Encoding::H264,
        width: 64,
        height: 48,
        captured: None,
    };
    rig.intake.publish_part(rig.now, video(500), crate::broker::StreamPart::Key).unwrap();
    rig.broker.handle_published(rig.now);
    let record = rig.broker.published.newest().unwrap();
    rig.broker.handle_sent(rig.now, LinkId(1), record.frame.meta.id);
    rig.message(1, question(5, Rung::ORIGINAL));
    let looks = ticket(&rig.take()).unwrap();
    let answer = PastAnswer { record: Some(record.clone()), ..PastAnswer::default() };
    rig.broker.handle_history(rig.now, looks, answer);
    let work = rig.take().into_iter().find_map(|output| match output {
        CameraOutput::TransformPast { ticket, transform } => Some((ticket, transform)),
        _ => None,
    });
    let (number, transform) = work.expect("a codec is given the frame");
    assert_eq!(transform.setting.to_string(), "jpeg/q95/420");
    let made = Transformed::Made {
        payload: vec![1; 20].into(),
        encoding: Encoding::Jpeg,
        width: 64,
        height: 48,
        rung: transform.setting.rung(),
        chain: ChainLink::still(record.frame.meta.id.sequence),
    };
    rig.broker.handle_past_transformed(rig.now, number, made);
    assert_eq!(sent_of_the_past(&rig.take()), Some(5));
}

/// A data record has one form: it goes as it was published, whatever rung is asked for, and no codec sees it.
#[test]
fn data_records_of_the_past_are_what_was_published_at_every_rung() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish_data(b"[1]");
    let record = rig.broker.published.newest().unwrap();
    rig.broker.handle_sent(rig.now, LinkId(1), record.frame.meta.id);
    rig.message(1, question(5, "jpeg/w32/q50/420"));
    let looks = ticket(&rig.take()).unwrap();
    let answer = PastAnswer { record: Some(record.clone()), ..PastAnswer::default() };
    rig.broker.handle_history(rig.now, looks, answer);
    let outputs = rig.take();
    let sent = outputs.iter().find_map(|output| match output {
        CameraOutput::SendFrame { header, .. } => Some((header.history, header.meta.clone())),
        _ => None,
    });
    assert_eq!(sent, Some((5, record.frame.meta)));
}

/// Whether the camera gives a frame of this epoch to an edge that asks for the past on this connection.
fn gives(rig: &mut Rig, link: u64, published: &Record, epoch: u64) -> bool {
    rig.message(link, several(100 * link + epoch, 1));
    let asked = ticket(&rig.take()).expect("its log is looked at");
    let mut record = published.clone();
    record.frame.meta.id = FrameId { epoch: Epoch(epoch), sequence: Sequence(1) };
    rig.broker.handle_history(rig.now, asked, PastAnswer { record: Some(record), ..PastAnswer::default() });
    rig.now += 60_000 * MS;
    rig.broker.handle_timeout(rig.now);
    let outputs = rig.take();
    if let Some(number) = sent_of_the_past(&outputs) {
        rig.broker.handle_history_sent(rig.now, LinkId(link), number);
        return true;
    }
    let passed = ticket(&outputs).expect("what is behind it is looked for");
    rig.broker.handle_history(rig.now, passed, PastAnswer::default());
    rig.take();
    false
}

/// The edge has accepted this start with an epoch, so it accepts no other start with the same epoch. Frames of that
/// epoch are this camera's, even after somebody else has made it continue with a later epoch. This does not hold for
/// an epoch that no edge has accepted, for one that the edge has accepted from another start, or at another edge.
#[test]
fn frames_of_an_epoch_that_the_edge_took_in_are_given_after_it_was_raised() {
    fn raise(rig: &mut Rig, to: u64) {
        rig.intake.raise_epoch(Epoch(to));
        rig.broker.handle_epoch(rig.now, Epoch(to));
        rig.take();
    }
    let last = |epoch| Some(FrameId { epoch: Epoch(epoch), sequence: Sequence(NUMBER_MAX) });
    let mut rig = Rig::with_edges(2);
    rig.welcome(1, None);
    rig.publish(10);
    let published = rig.broker.published.newest().unwrap();
    rig.take();
    rig.broker.handle_closed(rig.now, LinkId(1));
    rig.welcome(2, last(5));
    raise(&mut rig, 6);
    rig.welcome(3, last(8));
    raise(&mut rig, 9);
    rig.welcome(4, last(5));
    assert!(gives(&mut rig, 4, &published, 3), "the edge took it in");
    assert!(!gives(&mut rig, 4, &published, 6), "it was never taken in");
    rig.broker.handle_closed(rig.now, LinkId(4));

    rig.welcome_at(1, 5, None);
    assert!(!gives(&mut rig, 5, &published, 3), "another edge");
    rig.broker.handle_closed(rig.now, LinkId(5));

    // The edge has forgotten the camera, and accepted another start with its epoch.
    rig.welcome(6, last(9));
    raise(&mut rig, 10);
    rig.welcome(7, last(5));
    assert!(gives(&mut rig, 7, &published, 3));
    assert!(!gives(&mut rig, 7, &published, 9));
}

fn one_of(rung: &str) -> HistoryRequest {
    let Message::HistoryRequest(one) = question(0, rung) else { unreachable!() };
    one
}

#[test]
fn what_cannot_be_answered_is_said() {
    let mut rig = Rig::connected(Contract::default());
    let code = |outputs: Vec<CameraOutput>| {
        outputs.into_iter().find_map(|output| match output {
            CameraOutput::Send { message: Message::HistoryEnd(end), .. } => Some((end.request, end.code)),
            _ => None,
        })
    };
    for rung in ["jpeg/w640", "h264/w640/q32", "tiles/q80/420", "knobs/moving/q80", "jpeg/q80/420/skip1"] {
        rig.broker.handle_message(rig.now, LinkId(1), question(1, rung));
        assert_eq!(code(rig.take()), Some((1, HistoryCode::Rung)), "{rung}");
    }
    for request in 2..2 + HISTORY_REQUESTS_MAX as u64 {
        rig.broker.handle_message(rig.now, LinkId(1), question(request, "original"));
    }
    let looked = ticket(&rig.take()).unwrap();
    rig.broker.handle_message(rig.now, LinkId(1), question(99, "original"));
    assert_eq!(code(rig.take()), Some((99, HistoryCode::Busy)));
    rig.broker.handle_history(rig.now, looked, PastAnswer::default());
    assert_eq!(code(rig.take()), Some((2, HistoryCode::None)));
    // Requests on a connection that is gone are dropped.
    rig.broker.handle_closed(rig.now, LinkId(1));
    assert_eq!(sent_of_the_past(&rig.take()), None);
}

/// The question for the newest frame, from a reader that wants originals beside a contract.
fn newest(request: u64) -> Message {
    let query =
        PastQuery { tier_max: Tier::Disk, quality: None, ..PastQuery::newest_original(None, Timestamp::MAX) };
    let Message::HistoryRequest(one) = question(request, Rung::ORIGINAL) else { unreachable!() };
    Message::HistoryRequest(HistoryRequest { query, ..one })
}

/// The newest frame is looked up when the link is free for it, and not while a live frame is sent or the past rests.
#[test]
fn the_newest_original_is_looked_for_when_it_can_be_sent() {
    let mut rig = Rig::connected(Contract::default());
    rig.publish(500);
    let live = rig.broker.published.newest().unwrap();
    rig.take();
    rig.message(1, newest(1));
    assert_eq!(ticket(&rig.take()), None, "the live frame has bytes not yet sent");
    rig.broker.handle_sent(rig.now, LinkId(1), live.frame.meta.id);
    let looked = ticket(&rig.take()).expect("the link is free");
    let mut newer = live.clone();
    newer.frame.meta.id.sequence.0 += 1;
    let found = || PastAnswer { record: Some(newer.clone()), ..PastAnswer::default() };
    rig.broker.handle_history(rig.now, looked, found());
    assert_eq!(sent_of_the_past(&rig.take()), Some(1));
    rig.message(1, newest(2));
    let took = Duration::from_millis(20);
    rig.now += took;
    rig.broker.handle_history_sent(rig.now, LinkId(1), 1);
    assert_eq!(ticket(&rig.take()), None, "the past rests, and a newer frame may come");
    rig.now += took.mul_f64(1.0 / HISTORY_SHARE - 1.0);
    rig.broker.handle_timeout(rig.now);
    let looked = ticket(&rig.take()).expect("it may be sent now");
    rig.broker.handle_history(rig.now, looked, found());
    assert_eq!(sent_of_the_past(&rig.take()), Some(2));
}

/// A frame that was sent as it was published is not sent again, unless it was lost.
#[test]
fn an_original_that_was_sent_live_is_not_sent_again() {
    for lost in [false, true] {
        let mut rig = Rig::connected(Contract::default());
        rig.publish(500);
        let live = rig.broker.published.newest().unwrap();
        rig.broker.handle_sent(rig.now, LinkId(1), live.frame.meta.id);
        if lost {
            rig.broker.live.skip(live.frame.meta.id, SkipReason::Stalled);
        }
        rig.take();
        rig.message(1, newest(1));
        let looked = ticket(&rig.take()).expect("the link is free");
        let found = PastAnswer { record: Some(live.clone()), ..PastAnswer::default() };
        rig.broker.handle_history(rig.now, looked, found);
        let outputs = rig.take();
        let ends = outputs.iter().any(|output| {
            matches!(output, CameraOutput::Send { message: Message::HistoryEnd(end), .. } if end.code == HistoryCode::None)
        });
        assert_eq!((sent_of_the_past(&outputs).is_some(), ends), (lost, !lost));
    }
}
