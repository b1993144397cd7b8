//! Questions about frames of the past, as an edge puts them to a camera.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::frame::Sequence;
use crate::history::{PastAnswer, PastQuery, Tier, Unanswered};
use crate::subscription::Deliver;
use crate::wire::{Abilities, HistoryCode, HistoryEnd};

fn after(sequence: u64) -> PastQuery {
    PastQuery {
        after: Some(FrameId { epoch: Epoch(2), sequence: Sequence(sequence) }),
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Camera,
        quality: None,
    }
}

fn ask(rig: &mut Rig, sequence: u64) -> u64 {
    rig.broker.handle_history_query(rig.now, &"dock/cam1".parse().unwrap(), after(sequence))
}

type Answers = Vec<(u64, PastAnswer)>;

/// The answers, and the requests that went to the camera: their numbers, each with how many frames it asks for.
fn answers(rig: &mut Rig) -> (Answers, Vec<(u64, u16)>) {
    let (mut answers, mut asked) = (Vec::new(), Vec::new());
    for output in rig.take() {
        match output {
            EdgeOutput::History { request, answer } => answers.push((request, answer)),
            EdgeOutput::Send { message: Message::HistoryRequest(asks), .. } => {
                asked.push((asks.request, asks.count));
            }
            _ => {}
        }
    }
    (answers, asked)
}

/// A frame of an earlier start comes, is kept beside the replica, and answers the next reader without the camera.
#[test]
fn what_was_fetched_is_kept_apart_and_fetched_once() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let request = ask(&mut rig, 6);
    let asked = answers(&mut rig).1;
    assert_eq!((asked.len(), asked[0].1), (1, 2));
    let number = asked[0].0;
    let past = FrameHeader { history: number, ..header(2, 7, 10, Vec::new()) };
    rig.broker.handle_frame_header(rig.now, LinkId(1), past.clone()).unwrap();
    rig.broker.handle_history_complete(rig.now, LinkId(1), number, vec![1; 10].into());
    let (found, _) = answers(&mut rig);
    assert_eq!((found.len(), found[0].0), (1, request));
    assert_eq!(found[0].1.record.as_ref().unwrap().frame.meta, past.meta);
    assert_eq!((rig.info().newest, rig.info().counters.received), (None, 0));

    let again = ask(&mut rig, 6);
    let (found, asked) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.record.is_some(), asked.len()), (again, true, 0));
    // The held frame does not follow directly, so the frames in between are asked for.
    ask(&mut rig, 4);
    assert_eq!(answers(&mut rig).1.len(), 1);
}

/// A frame that was fetched smaller answers only readers that want it so. A later reader that wants the original gets the original.
#[test]
fn what_was_fetched_smaller_is_no_original() {
    const RUNG: &str = "jpeg/w32/q50/420";
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let smaller = PastQuery { quality: Some(RUNG.parse().unwrap()), ..after(6) };
    let camera = "dock/cam1".parse().unwrap();
    let mut fetched = |query: PastQuery, answered_as: &str| {
        rig.broker.handle_history_query(rig.now, &camera, query);
        let asked = rig.take().into_iter().find_map(|output| match output {
            EdgeOutput::Send { message: Message::HistoryRequest(asked), .. } => Some(asked),
            _ => None,
        });
        let asked = asked?;
        let rung = asked.rung.as_str().to_owned();
        let mut header = FrameHeader { history: asked.request, ..header(2, 7, 10, Vec::new()) };
        header.meta.rung = crate::frame::Rung::new(answered_as).unwrap();
        let taken = rig.broker.handle_frame_header(rig.now, LinkId(1), header).is_ok();
        rig.broker.handle_history_complete(rig.now, LinkId(1), asked.request, vec![1; 10].into());
        let (found, _) = answers(&mut rig);
        let found = found[0].1.record.as_ref().map(|record| record.frame.meta.rung.as_str().to_owned());
        assert_eq!(taken.then(|| answered_as.to_owned()), found);
        Some((rung, taken))
    };
    assert_eq!(fetched(smaller, "jpeg/w32/q10/420"), Some((RUNG.into(), false)), "another rung");
    assert_eq!(fetched(smaller, RUNG), Some((RUNG.into(), true)));
    assert_eq!(fetched(smaller, RUNG), None, "it is held");
    assert_eq!(fetched(after(6), "original"), Some(("original".into(), true)));
    assert_eq!(fetched(after(6), "original"), None);
    let other = PastQuery { quality: Some("jpeg/w64/q50/420".parse().unwrap()), ..after(6) };
    assert_eq!(fetched(other, RUNG), None, "the original is never less than what is asked for");
}

/// A data record has one form, and a source's own video comes as stills. A reader that
/// asks for another rung gets these, in order, and the camera is not asked again.
#[test]
fn what_has_no_other_form_answers_whatever_rung_is_asked_for() {
    let still = crate::history::still_of_video().rung();
    for (quality, encoding, rung) in [
        (Some("jpeg/w32/q50/420"), Encoding::Data, Rung::original()),
        (Some("original"), Encoding::Data, Rung::original()),
        (Some("original"), Encoding::Jpeg, still.clone()),
        (None, Encoding::Jpeg, still),
    ] {
        let mut rig = Rig::new();
        rig.hello(1, "a", 3, 1, 0);
        let query =
            |sequence| PastQuery { quality: quality.map(|rung| rung.parse().unwrap()), ..after(sequence) };
        let camera = "dock/cam1".parse().unwrap();
        rig.broker.handle_history_query(rig.now, &camera, query(6));
        let (first, count) = answers(&mut rig).1[0];
        assert_eq!(count, 2);
        for number in 0..2 {
            let mut header = FrameHeader { history: first + number, ..header(2, 7 + number, 10, Vec::new()) };
            (header.meta.encoding, header.meta.rung) = (encoding, rung.clone());
            if encoding == Encoding::Data {
                (header.meta.width, header.meta.height, header.meta.published) = (0, 0, (0, 0));
            }
            rig.broker.handle_frame_header(rig.now, LinkId(1), header).unwrap();
            rig.broker.handle_history_complete(rig.now, LinkId(1), first + number, vec![1; 10].into());
        }
        let mut found = Vec::new();
        for sequence in [6, 7] {
            if sequence == 7 {
                rig.broker.handle_history_query(rig.now, &camera, query(7));
            }
            for (_, answer) in answers(&mut rig).0 {
                found.extend(
                    answer.record.map(|record| (record.frame.meta.id.sequence.0, record.frame.meta.rung)),
                );
            }
        }
        assert_eq!(found, [(7, rung.clone()), (8, rung.clone())], "{quality:?}, {encoding:?}");
    }
}

/// The camera reports the end before a reader asks for more. It may have published frames since, so the end does not answer a later
/// question. Nor does it answer a question about frames before one that was not published yet when the camera reported the end.
#[test]
fn an_end_that_was_said_before_is_no_answer() {
    let id = |sequence| FrameId { epoch: Epoch(2), sequence: Sequence(sequence) };
    let bounded = PastQuery { before: Some(id(9)), ..after(7) };
    for (waits, query) in [(false, after(7)), (false, bounded), (true, bounded)] {
        let mut rig = Rig::new();
        rig.hello(1, "a", 3, 1, 0);
        ask(&mut rig, 6);
        let number = answers(&mut rig).1[0].0;
        let past = FrameHeader { history: number, ..header(2, 7, 10, Vec::new()) };
        rig.broker.handle_frame_header(rig.now, LinkId(1), past).unwrap();
        rig.broker.handle_history_complete(rig.now, LinkId(1), number, vec![1; 10].into());
        assert_eq!(answers(&mut rig).0.len(), 1);
        let camera = "dock/cam1".parse().unwrap();
        let question = waits.then(|| rig.broker.handle_history_query(rig.now, &camera, query));
        let held_from = Some(Timestamp::from_nanos(1));
        let end = HistoryEnd { request: number + 1, code: HistoryCode::None, held_from };
        rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
        let question = question.unwrap_or_else(|| rig.broker.handle_history_query(rig.now, &camera, query));
        let (found, asked) = answers(&mut rig);
        assert!(found.is_empty(), "{waits} {query:?}: {found:?}");
        let (number, _) = asked.into_iter().rfind(|(_, count)| *count > 0).expect("it is asked anew");
        // The end that answers the question itself counts.
        let end = HistoryEnd { request: number, code: HistoryCode::None, held_from };
        rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
        let (found, _) = answers(&mut rig);
        assert_eq!((found.len(), found[0].0, found[0].1.record.is_some()), (1, question, false));
    }
}

/// A camera may tell that it does not answer questions about the past. Then no reader waits for it.
#[test]
fn a_camera_that_never_answers_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let asked = ask(&mut rig, 6);
    rig.broker.handle_message(rig.now, LinkId(1), Message::Status(Status::default()));
    assert_eq!(answers(&mut rig).0.len(), 0, "nobody knows yet");
    rig.broker.handle_message(rig.now, LinkId(1), Message::Abilities(Abilities::default()));
    let unable = |request| (request, Some(Unanswered::Unable));
    let (found, _) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.unanswered), unable(asked));
    let again = ask(&mut rig, 6);
    let (found, sent) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.unanswered), unable(again));
    assert_eq!(sent.len(), 0, "it is not even asked");
}

#[test]
fn a_frame_of_the_past_that_was_not_asked_for_is_refused() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let unasked = FrameHeader { history: 5, ..header(2, 7, 10, Vec::new()) };
    assert!(matches!(
        rig.broker.handle_frame_header(rig.now, LinkId(1), unasked),
        Err(FrameRefused::NotAsked { .. })
    ));
    ask(&mut rig, 6);
    let request = answers(&mut rig).1[0].0;
    let other = FrameHeader { history: request, ..header(2, 6, 10, Vec::new()) };
    assert!(rig.broker.handle_frame_header(rig.now, LinkId(1), other).is_err(), "not after frame 6");
    let (found, _) = answers(&mut rig);
    assert!(found[0].1.record.is_none(), "whoever asked does not wait for ever");
    // A payload of another size than announced is no frame.
    ask(&mut rig, 6);
    let request = answers(&mut rig).1[0].0;
    let past = FrameHeader { history: request, ..header(2, 7, 10, Vec::new()) };
    rig.broker.handle_frame_header(rig.now, LinkId(1), past).unwrap();
    // The second frame does not come after the first.
    let again = FrameHeader { history: request + 1, ..header(2, 7, 10, Vec::new()) };
    assert!(rig.broker.handle_frame_header(rig.now, LinkId(1), again).is_err());
    rig.broker.handle_history_complete(rig.now, LinkId(1), request, vec![1; 9].into());
    assert!(answers(&mut rig).0[0].1.record.is_none());
}

/// A reader takes one frame after the other. More and more frames are on their way, in order, and each answers one question.
#[test]
fn who_goes_on_reading_has_frames_on_their_way() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let (mut sent, mut wanted) = (0, VecDeque::new());
    let mut counts = Vec::new();
    for sequence in 0..200 {
        let question = ask(&mut rig, sequence);
        loop {
            let (found, asked) = answers(&mut rig);
            for (request, count) in asked {
                counts.push(count);
                wanted.extend(request..request + u64::from(count));
            }
            assert!(wanted.len() <= 64, "{} frames are on their way", wanted.len());
            if let Some((answered, answer)) = found.into_iter().next() {
                let id = answer.record.expect("the camera holds it").frame.meta.id;
                assert_eq!((answered, id.sequence.0), (question, sequence + 1));
                break;
            }
            let number = wanted.pop_front().expect("somebody waits, so something was asked for");
            sent += 1;
            let past = FrameHeader { history: number, ..header(2, sent, 10, Vec::new()) };
            rig.broker.handle_frame_header(rig.now, LinkId(1), past).unwrap();
            rig.broker.handle_history_complete(rig.now, LinkId(1), number, vec![1; 10].into());
        }
    }
    assert!(counts.is_sorted() && counts[0] == 2 && counts.contains(&32), "{counts:?}");
    assert!(sent <= 200 + 64);
}

/// Every question is answered: by the camera, by the end of its connection, after a timeout, or at once if there is no camera.
#[test]
fn every_question_is_answered_once() {
    let mut rig = Rig::new();
    let nobody = ask(&mut rig, 6);
    assert_eq!(answers(&mut rig).0[0].0, nobody);
    rig.hello(1, "a", 3, 1, 0);
    rig.broker.handle_message(rig.now, LinkId(1), Message::Abilities(Abilities::ALL));
    let requests: Vec<u64> =
        (0..HISTORY_QUESTIONS_MAX as u64 + 1).map(|sequence| ask(&mut rig, sequence)).collect();
    let (found, asked) = answers(&mut rig);
    assert_eq!((found.len(), asked.len()), (1, HISTORY_QUESTIONS_MAX), "one too many");
    let held_from = Some(Timestamp::from_nanos(9));
    let end = HistoryEnd { request: asked[0].0, code: HistoryCode::None, held_from };
    rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
    rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
    let (found, _) = answers(&mut rig);
    assert_eq!((found.len(), found[0].1.held_from), (1, held_from));
    rig.now += HISTORY_TIME_MAX / 2;
    rig.broker.handle_message(rig.now, LinkId(1), Message::Status(Status::default()));
    rig.broker.handle_timeout(rig.now);
    rig.broker.handle_history_dropped(requests[1]);
    rig.broker.handle_closed(rig.now, LinkId(1));
    assert!(answers(&mut rig).0.is_empty(), "it may come back");
    rig.now = rig.broker.poll_timeout().unwrap().max(rig.now + CAMERA_RETURN_MAX);
    rig.broker.handle_timeout(rig.now);
    let (answered, _) = answers(&mut rig);
    assert!(answered.iter().all(|(_, answer)| answer.unanswered == Some(Unanswered::CameraAbsent)));
    let answered: Vec<u64> = answered.into_iter().map(|(request, _)| request).collect();
    assert_eq!(answered, requests[2..HISTORY_QUESTIONS_MAX]);
    rig.hello(2, "a", 3, 2, 0);
    let late = ask(&mut rig, 3);
    answers(&mut rig);
    rig.now = rig.broker.poll_timeout().unwrap().max(rig.now + HISTORY_TIME_MAX);
    rig.broker.handle_timeout(rig.now);
    assert_eq!(answers(&mut rig).0[0].0, late);
}

/// The numbers of the requests to a camera.
fn requests(messages: &[Message]) -> Vec<u64> {
    let number = |message: &Message| match message {
        Message::HistoryRequest(asks) => Some(asks.request),
        _ => None,
    };
    messages.iter().filter_map(number).collect()
}

/// After a start of the edge or of the camera, applications are back before the
/// camera is. Their questions wait for the camera, unless it has been gone for long.
#[test]
fn questions_wait_for_a_camera_that_is_on_its_way() {
    let mut rig = Rig::new();
    rig.broker.handle_started(rig.now);
    let early = ask(&mut rig, 6);
    assert!(answers(&mut rig).0.is_empty(), "the edge has just started");
    let asked = requests(&rig.hello(1, "a", 3, 1, 0));
    assert_eq!(asked.len(), 1, "put when the camera is there");
    let end = HistoryEnd { request: asked[0], code: HistoryCode::None, held_from: None };
    rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
    let (found, _) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.unanswered), (early, None));
    assert_eq!(found[0].1.camera_holds_from, Some(Timestamp::MAX), "it holds none at all");

    // Asked on a connection that breaks, and asked again on the next one.
    let broken = ask(&mut rig, 7);
    assert_eq!(answers(&mut rig).1.len(), 1);
    rig.broker.handle_closed(rig.now, LinkId(1));
    assert!(answers(&mut rig).0.is_empty());
    rig.now += CAMERA_RETURN_MAX / 2;
    rig.broker.handle_timeout(rig.now);
    let asked = requests(&rig.hello(2, "a", 3, 2, 0));
    let end = HistoryEnd { request: asked[0], code: HistoryCode::Busy, held_from: None };
    rig.broker.handle_message(rig.now, LinkId(2), Message::HistoryEnd(end));
    let (found, _) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.unanswered), (broken, Some(Unanswered::Busy)));

    // Gone for good.
    rig.broker.handle_closed(rig.now, LinkId(2));
    rig.now += CAMERA_RETURN_MAX;
    let late = ask(&mut rig, 8);
    let (found, _) = answers(&mut rig);
    assert_eq!((found[0].0, found[0].1.unanswered), (late, Some(Unanswered::CameraAbsent)));

    // Only a limited number of questions wait, and dropped questions get no answer.
    rig.hello(3, "a", 3, 3, 0);
    rig.broker.handle_closed(rig.now, LinkId(3));
    let waiting: Vec<u64> =
        (0..=HISTORY_QUESTIONS_MAX as u64).map(|sequence| ask(&mut rig, sequence)).collect();
    let (found, _) = answers(&mut rig);
    assert_eq!((found.len(), found[0].1.unanswered), (1, Some(Unanswered::Busy)));
    waiting[1..].iter().for_each(|question| rig.broker.handle_history_dropped(*question));
    rig.now += CAMERA_RETURN_MAX;
    rig.broker.handle_timeout(rig.now);
    assert_eq!(answers(&mut rig).0.len(), 1);
}

/// A reader of the past at an edge that has just started waits for cameras that are not known yet, and asks for none of their new frames.
#[test]
fn a_reading_waits_for_cameras_that_a_new_edge_does_not_know() {
    let mut rig = Rig::new();
    rig.broker.handle_started(rig.now);
    let wall = Timestamp::from_nanos(1_000_000_000_000);
    let end = Some(Timestamp::from_nanos(1));
    let span = Span { begin: Some(Timestamp::MIN), end, deliver: Deliver::Every };
    let spec = SubscriptionSpec { span, ..SubscriptionSpec::live("dock/cam1".parse().unwrap()) };
    let clock = ClockAnchor { wall, monotonic: rig.now };
    let until = rig.broker.handle_subscribe(clock, SubscriptionId(77), spec.clone());
    assert_eq!(until, Some(rig.now + CAMERA_RETURN_MAX));
    rig.greet(1, "dock/cam1", 3);
    let (mut attached, mut wanted) = (false, false);
    for output in rig.take() {
        attached |= matches!(output, EdgeOutput::Attach { subscription: SubscriptionId(77), .. });
        wanted |= matches!(output, EdgeOutput::Send { message: Message::Demand(demand), .. } if !demand.contracts.is_empty());
    }
    assert!(attached && !wanted, "attached: {attached}, wanted: {wanted}");
    // Now the camera is known, and the pattern selects no other.
    assert_eq!(rig.broker.handle_subscribe(clock, SubscriptionId(78), spec), None);
}

/// A camera that answers each request in order, with a frame for each number, when told to.
#[derive(Default)]
struct Camera {
    held: BTreeSet<u64>,
    /// The requests that are not answered yet.
    asked: VecDeque<crate::wire::HistoryRequest>,
    /// The last frame before each number at which a request may continue.
    ends: BTreeMap<u64, FrameId>,
    sent: u64,
}

impl Camera {
    /// Takes the edge's requests, and returns the edge's answers.
    fn listen(&mut self, rig: &mut Rig) -> Answers {
        let mut answers = Vec::new();
        for output in rig.take() {
            match output {
                EdgeOutput::History { request, answer } => answers.push((request, answer)),
                EdgeOutput::Send { message: Message::HistoryRequest(wanted), .. } if wanted.count == 0 => {
                    let holds = |asked: &crate::wire::HistoryRequest| {
                        (asked.request..asked.request + u64::from(asked.count)).contains(&wanted.request)
                    };
                    self.asked.retain(|asked| !holds(asked));
                }
                EdgeOutput::Send { message: Message::HistoryRequest(mut wanted), .. } => {
                    let end = |asked: &crate::wire::HistoryRequest| asked.request + u64::from(asked.count);
                    match self.asked.iter_mut().find(|asked| wanted.continues && end(asked) == wanted.request)
                    {
                        Some(asked) => asked.count += wanted.count,
                        None => {
                            if wanted.continues {
                                let Some(after) = self.ends.remove(&wanted.request) else { continue };
                                wanted.query.after = Some(after);
                            }
                            self.asked.push_back(wanted);
                        }
                    }
                }
                _ => {}
            }
        }
        answers
    }

    /// Answers the next number. Returns false if nothing is asked.
    fn answer(&mut self, rig: &mut Rig) -> bool {
        let Some(asked) = self.asked.front_mut() else { return false };
        let id = |sequence: &u64| FrameId { epoch: Epoch(2), sequence: Sequence(*sequence) };
        let number = asked.request;
        match self.held.iter().find(|sequence| asked.query.spans(id(sequence))) {
            Some(sequence) => {
                self.sent += 1;
                asked.query.after = Some(id(sequence));
                (asked.request, asked.count) = (number + 1, asked.count - 1);
                if asked.count == 0 {
                    self.ends.insert(number + 1, id(sequence));
                    self.asked.pop_front();
                }
                let past = FrameHeader { history: number, ..header(2, *sequence, 10, Vec::new()) };
                rig.broker.handle_frame_header(rig.now, LinkId(1), past).unwrap();
                rig.broker.handle_history_complete(rig.now, LinkId(1), number, vec![1; 10].into());
            }
            None => {
                self.asked.pop_front();
                let end = HistoryEnd { request: number, code: HistoryCode::None, held_from: None };
                rig.broker.handle_message(rig.now, LinkId(1), Message::HistoryEnd(end));
            }
        }
        true
    }
}

/// How the edge holds a frame that a reader wants in its original form.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Here {
    Not,
    Smaller,
    AsPublished,
}

/// A reader that has frames of the edge's own, asks as [`crate::subscription`] does, and
/// counts how often it waited for the camera although all requested frames had come.
fn read(here: &[Here], camera: &mut Camera, batched: bool) -> (Vec<u64>, u64) {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let id = |sequence: usize| FrameId { epoch: Epoch(2), sequence: Sequence(sequence as u64) };
    let quality = Some(crate::setting::Setting::ORIGINAL);
    let (mut last, mut got, mut waits) = (None::<usize>, Vec::new(), 0);
    loop {
        let begin = last.map_or(0, |last| last + 1);
        let held = (begin..here.len()).find(|place| here[*place] != Here::Not);
        let before = held.map(|held| if here[held] == Here::Smaller { held + 1 } else { held });
        let mut found = None;
        if before.is_none_or(|before| before > begin) {
            let query = PastQuery { before: before.map(id), quality, ..after(0) };
            let query = PastQuery { after: last.map(id), ..query };
            let question = rig.broker.handle_history_query(rig.now, &"dock/cam1".parse().unwrap(), query);
            let answer = loop {
                if let Some((answered, answer)) = camera.listen(&mut rig).pop() {
                    assert_eq!(answered, question);
                    break answer;
                }
                waits += 1;
                let on_the_way: usize = camera.asked.iter().map(|asked| usize::from(asked.count)).sum();
                assert!(on_the_way > 0, "it waits for {query:?} and nothing is asked");
                let answers = if batched { on_the_way } else { 1 };
                for _ in 0..answers {
                    camera.answer(&mut rig);
                }
            };
            found = answer.record.map(|record| {
                assert!(
                    query.spans(record.frame.meta.id),
                    "{} does not answer {query:?}",
                    record.frame.meta.id
                );
                record.frame.meta.id.sequence.0 as usize
            });
        }
        let Some(next) = found.or(held) else { return (got, waits) };
        got.push(next as u64);
        last = Some(next);
    }
}

proptest! {
    /// Whatever the edge and the camera hold: the reader gets each frame that one of them has, in order, and few frames cross in vain.
    #[test]
    fn frames_that_are_held_smaller_come_from_the_camera_in_order(
        runs in prop::collection::vec((0u8..3, prop::bool::weighted(0.8), 1usize..40), 1..8),
        batched in any::<bool>(),
    ) {
        let (mut here, mut camera) = (Vec::new(), Camera::default());
        for (kind, at_camera, frames) in runs {
            for _ in 0..frames {
                if at_camera {
                    camera.held.insert(here.len() as u64);
                }
                here.push([Here::Not, Here::Smaller, Here::AsPublished][usize::from(kind)]);
            }
        }
        let wanted = |place: &u64| here[*place as usize] != Here::Not || camera.held.contains(place);
        let expected: Vec<u64> = (0..here.len() as u64).filter(wanted).collect();
        let needed = expected.iter().filter(|place| here[**place as usize] != Here::AsPublished).count() as u64;
        let (got, _) = read(&here, &mut camera, batched);
        prop_assert_eq!(got, expected);
        prop_assert!(camera.sent <= needed + 64 * 8, "{} frames for {}", camera.sent, needed);
    }
}

/// A stretch that the edge has at a smaller rung is fetched as fast as one that
/// it does not have: in batches, and not with a round trip for each frame.
#[test]
fn frames_that_crossed_smaller_are_fetched_ahead() {
    for here in [Here::Smaller, Here::Not] {
        let mut camera = Camera { held: (0..500).collect(), ..Camera::default() };
        let (got, waits) = read(&[here; 500], &mut camera, true);
        assert_eq!(got.len(), 500);
        assert!(waits < 50, "{here:?}: {waits} round trips");
        assert!(camera.sent <= 502, "{here:?}: {} frames crossed", camera.sent);
    }
}

/// Two applications want the original of the newest frame. It is asked for once,
/// and crosses the link once. A reader that already has it waits for the next.
#[test]
fn the_newest_original_is_fetched_once_for_all_who_want_it() {
    let mut rig = Rig::new();
    rig.hello(1, "a", 3, 1, 0);
    let camera = "dock/cam1".parse().unwrap();
    let id = |sequence| FrameId { epoch: Epoch(2), sequence: Sequence(sequence) };
    let ask = |rig: &mut Rig, after| {
        let query = PastQuery::newest_original(Some(id(after)), Timestamp::MAX);
        rig.broker.handle_history_query(rig.now, &camera, query)
    };
    let questions = [3, 5, 7, 3].map(|after| ask(&mut rig, after));
    let asked = answers(&mut rig).1;
    assert_eq!((asked.len(), asked[0].1), (1, 1));
    // The reader that asked first no longer waits, but the others do.
    rig.broker.handle_history_dropped(questions[0]);
    assert_eq!(answers(&mut rig).1, []);
    let number = asked[0].0;
    // A slow link needs a minute for the frame, behind live frames.
    for _ in 0..60 {
        rig.now += Duration::from_secs(1);
        rig.broker.handle_message(rig.now, LinkId(1), Message::Abilities(Abilities::ALL));
        rig.broker.handle_timeout(rig.now);
    }
    rig.take();
    let past = FrameHeader { history: number, ..header(2, 7, 10, Vec::new()) };
    rig.broker.handle_frame_header(rig.now, LinkId(1), past).unwrap();
    rig.broker.handle_history_complete(rig.now, LinkId(1), number, vec![1; 10].into());
    let (found, asked) = answers(&mut rig);
    let mut answered: Vec<u64> = found.iter().map(|(question, _)| *question).collect();
    answered.sort_unstable();
    assert_eq!(answered, [questions[1], questions[3]]);
    assert!(found.iter().all(|(_, answer)| answer.record.is_some()));
    assert_eq!((asked.len(), asked[0].1), (1, 1), "who has the frame already waits for a newer one");
    // The frame was fetched, but does not tell which frame is the newest.
    ask(&mut rig, 5);
    let (found, asked) = answers(&mut rig);
    assert!(found.is_empty() && asked.is_empty(), "{found:?} {asked:?}");
}
