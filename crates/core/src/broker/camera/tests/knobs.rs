//! Data records with declared knobs, over a simulated link, with a function that may fail.

use super::adapting::HASH;
use super::*;
use crate::frame::{ChainLink, FrameMeta};
use crate::history::{PastAnswer, PastQuery, Tier};
use crate::setting::{DeclaredKnobs, Form, KnobValue};
use crate::wire::{HistoryCode, HistoryRequest, ProfileUse, Share};

const INTERVAL: Duration = Duration::from_millis(100);
const BOUND: Duration = Duration::from_millis(150);
const DELAY: Duration = Duration::from_millis(3);
const MAKING: Duration = Duration::from_millis(2);
/// Bytes of a record as it is published, without its header.
const BODY_BYTES: usize = 40_000;

fn contract() -> Contract {
    Contract { accuracy_floor: Some(0.8), profile: Some(HASH), ..bound(BOUND) }
}

fn declared() -> DeclaredKnobs {
    let values = [10.0, 100.0, 300.0].map(|value| KnobValue::from_f64(value).expect("a value"));
    DeclaredKnobs::new(vec![("top".into(), values.to_vec())], vec![1]).expect("they can be declared")
}

fn profile(original: bool) -> SizedProfile {
    let mut rungs = vec![
        rung("data/top=10", (500.0, 0.1), 0.85, MAKING),
        rung("data/top=100", (4e3, 0.1), 0.93, MAKING),
        // Other rungs, which this stream does not have.
        rung("data/top=20", (800.0, 0.1), 0.99, MAKING),
        rung("data/n=1", (10.0, 0.1), 0.99, MAKING),
        rung("jpeg/q80/420", (10.0, 0.1), 0.99, MAKING),
    ];
    if original {
        rungs.push(rung("original", (BODY_BYTES as f64, 0.1), 1.0, Duration::ZERO));
    }
    SizedProfile { size: (0, 0), interval: None, profile: Profile::new(rungs).expect("a valid profile") }
}

fn rig(knobs: bool, profile: SizedProfile) -> Rig {
    let mut rig = Rig::new();
    if knobs {
        rig.broker.set_knobs(declared());
    }
    rig.broker.handle_dialled(rig.now, LinkId(1), EdgeIndex(0));
    let welcome = Welcome { version: VERSION, newest: None, frame_bytes_max: 1 << 20, software: "".into() };
    rig.message(1, Message::Welcome(welcome));
    // The two clocks agree.
    rig.message(1, Message::Pong { t1: rig.now, t2: rig.now, t3: rig.now });
    rig.demand(1, 1, vec![contract()]);
    rig.broker.handle_profile(rig.now, HASH, Some(profile));
    rig.take();
    rig
}

fn made(frame: FrameId, rung: Rung, bytes: usize) -> Transformed {
    let chain = ChainLink::still(frame.sequence);
    let payload = vec![0; bytes].into();
    Transformed::Made { payload, encoding: Encoding::Data, width: 0, height: 0, rung, chain }
}

fn bytes_of(rung: &Rung) -> usize {
    match rung.setting().expect("a rung").form {
        Form::Data(knobs) => 50 * knobs.iter().next().expect("a knob").1.get() as usize,
        _ => BODY_BYTES,
    }
}

/// A record that was sent.
#[derive(Debug)]
struct Sent {
    id: FrameId,
    rung: String,
    latency: Duration,
    expected_accuracy: Option<f64>,
    skipped: Vec<SkipRange>,
}

/// What the function does with a record.
#[derive(Clone, Copy, PartialEq)]
enum Function {
    Works,
    Fails,
}

/// Publishes records for `duration` over a link of `bytes_per_ms`. `at` gives what the function
/// does at a time in milliseconds. Returns what was sent, and when the function was asked.
fn run(
    rig: &mut Rig,
    duration: Duration,
    bytes_per_ms: f64,
    at: impl Fn(u64) -> Function,
) -> (Vec<Sent>, Vec<u64>) {
    let (begin, end) = (rig.now, rig.now + duration);
    let mut published = rig.now;
    let (mut sent, mut asked) = (Vec::new(), Vec::new());
    let mut captured = BTreeMap::new();
    let mut making: Option<(Instant, FrameId, Rung, Function)> = None;
    let mut left: Option<(Instant, FrameId)> = None;
    let mut whole: Vec<(Instant, Report)> = Vec::new();
    while rig.now < end || making.is_some() || left.is_some() || !whole.is_empty() {
        rig.now += MS;
        let now = rig.now;
        let ms = now.saturating_since(begin).as_millis() as u64;
        if now >= published + INTERVAL && now <= end {
            published = now;
            captured.insert(rig.publish_data(&[7; BODY_BYTES]), now);
        }
        if let Some((_, frame, rung, function)) = making.take_if(|(done, ..)| *done <= now) {
            let what = match function {
                Function::Works => made(frame, rung.clone(), bytes_of(&rung)),
                Function::Fails => Transformed::Failed,
            };
            rig.broker.handle_transformed(now, frame, what);
        }
        if let Some((_, frame)) = left.take_if(|(at, _)| *at <= now) {
            rig.sent(1, frame);
        }
        for (_, report) in whole.extract_if(.., |(at, _)| *at <= now) {
            rig.message(1, Message::Report(report));
        }
        rig.message(1, Message::Ping { t1: now });
        rig.answer_ping(1);
        rig.broker.handle_timeout(now);
        for output in rig.take() {
            match output {
                CameraOutput::Transform(transform) => {
                    asked.push(ms);
                    let rung = transform.setting.rung();
                    making = Some((now + MAKING, transform.frame.meta.id, rung, at(ms)));
                }
                CameraOutput::SendFrame { header, payload, .. } => {
                    let takes = Duration::from_secs_f64(payload.len() as f64 / bytes_per_ms / 1e3);
                    let (frame, bytes) = (header.meta.id, payload.len() as u32);
                    left = Some((now + takes, frame));
                    let (first, last) = (now + DELAY, now + takes + DELAY);
                    whole.push((last + DELAY, Report::Complete { frame, bytes, first, last }));
                    assert_eq!((header.meta.encoding, header.meta.published), (Encoding::Data, (0, 0)));
                    sent.push(Sent {
                        id: frame,
                        rung: header.meta.rung.as_str().into(),
                        latency: last.saturating_since(captured.get(&frame).copied().unwrap_or(begin)),
                        expected_accuracy: header.expected_accuracy,
                        skipped: header.skipped.clone(),
                    });
                }
                CameraOutput::Reset { frame, .. } => {
                    left.take_if(|(_, sending)| *sending == frame);
                    whole.retain(
                        |(_, report)| !matches!(report, Report::Complete { frame: of, .. } if *of == frame),
                    );
                }
                _ => {}
            }
        }
    }
    (sent, asked)
}

fn share(sent: &[Sent], rung: &str) -> f64 {
    sent.iter().filter(|sent| sent.rung == rung).count() as f64 / sent.len().max(1) as f64
}

#[test]
fn knobs_are_turned_as_far_as_the_link_asks() {
    let mut rig = rig(true, profile(true));
    // Records of 40 kB take 8 ms, 200 ms, and 2 s.
    for (bytes_per_ms, rung, accuracy) in
        [(5_000.0, "original", 1.0), (200.0, "data/top=100", 0.93), (20.0, "data/top=10", 0.85)]
    {
        let (sent, _) = run(&mut rig, Duration::from_secs(10), bytes_per_ms, |_| Function::Works);
        let steady = &sent[sent.len() / 2..];
        assert!(steady.len() > 40, "{} records in 5 s", steady.len());
        assert!(share(steady, rung) > 0.9, "{bytes_per_ms}: {steady:?}");
        let on_time = steady.iter().filter(|sent| sent.latency <= BOUND).count();
        assert!(on_time * 100 >= steady.len() * 98, "{bytes_per_ms}: {on_time} of {}", steady.len());
        assert!(
            steady
                .iter()
                .filter(|sent| sent.rung == rung)
                .all(|sent| sent.expected_accuracy == Some(accuracy)),
            "{steady:?}"
        );
    }
}

/// A faster link never gets coarser records.
#[test]
fn a_faster_link_gets_records_that_are_as_fine_or_finer() {
    let usual = |bytes_per_ms: f64| {
        let mut rig = rig(true, profile(true));
        let (sent, _) = run(&mut rig, Duration::from_secs(8), bytes_per_ms, |_| Function::Works);
        let ladder = ["data/top=10", "data/top=100", "original"];
        let late = &sent[sent.len() / 2..];
        (0..3).max_by(|one, other| share(late, ladder[*one]).total_cmp(&share(late, ladder[*other]))).unwrap()
    };
    // Records of 40 kB, ten a second, fill a link of 400 bytes per millisecond. At that rate the policy alternates between rungs.
    let rates = [12.0, 30.0, 50.0, 90.0, 200.0, 700.0, 1_500.0, 6_000.0];
    let places = rates.map(usual);
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!((places[0], places[7]), (0, 2));
}

#[test]
fn without_declared_knobs_records_go_as_they_are_and_the_profile_is_not_theirs() {
    let mut rig = rig(false, profile(false));
    let (sent, asked) = run(&mut rig, Duration::from_secs(2), 5_000.0, |_| Function::Works);
    assert_eq!(share(&sent, "original"), 1.0, "{sent:?}");
    assert!(sent.iter().all(|sent| sent.expected_accuracy.is_none()));
    assert!(asked.is_empty());
}

#[test]
fn a_profile_of_other_knobs_does_not_serve_the_stream() {
    let others =
        vec![rung("data/n=1", (10.0, 0.1), 0.99, MAKING), rung("data/top=20", (9.0, 0.1), 0.9, MAKING)];
    let profile = Profile::new(others).expect("a valid profile");
    let mut rig = rig(true, SizedProfile { size: (0, 0), interval: None, profile });
    let (sent, asked) = run(&mut rig, Duration::from_secs(2), 5_000.0, |_| Function::Works);
    assert_eq!(share(&sent, "original"), 1.0, "{sent:?}");
    assert!(asked.is_empty());
    assert_eq!(rig.broker.adapter.seen().expect("it was looked at").profile_use, ProfileUse::NoRung);
}

/// If the function fails, the record goes as it was published, which is the next rung, if that is in time.
#[test]
fn where_the_function_fails_the_record_goes_as_it_was_published_if_it_fits() {
    let mut rig = rig(true, profile(true));
    // The cap of the channel makes the policy want less than the link carries: 40 kB take 80 ms.
    let (sent, _) = run(&mut rig, Duration::from_secs(5), 500.0, |_| Function::Works);
    let first = sent.last().expect("records go").id.sequence.0 + 1;
    let fails = |ms: u64| if ms < 150 { Function::Fails } else { Function::Works };
    let (sent, asked) = run(&mut rig, Duration::from_secs(2), 500.0, fails);
    // Whatever the policy chose, each record was sent, or counted with a reason.
    let counted: u64 = sent.iter().flat_map(|sent| &sent.skipped).map(|range| range.count).sum();
    let last = sent.last().expect("records go").id.sequence.0;
    assert!(sent.len() as u64 + counted >= last + 1 - first, "{sent:?}");
    assert!(!asked.is_empty() || share(&sent, "original") > 0.9, "{sent:?}");
}

/// On a slow link the record is skipped and counted, because as it was published it would block the link.
#[test]
fn where_the_function_fails_and_the_original_is_too_large_the_record_is_not_made() {
    let mut rig = rig(true, profile(true));
    run(&mut rig, Duration::from_secs(5), 50.0, |_| Function::Works);
    let fails = |ms: u64| if ms < 150 { Function::Fails } else { Function::Works };
    let (sent, asked) = run(&mut rig, Duration::from_secs(2), 50.0, fails);
    assert!(asked.len() > 10, "one failure costs one record: {asked:?}");
    // Except a record that measures the link.
    assert!(share(&sent, "data/top=10") > 0.9, "{sent:?}");
    let not_made: Vec<u64> = sent
        .iter()
        .flat_map(|sent| &sent.skipped)
        .filter(|range| range.reason == SkipReason::NotMade)
        .map(|range| range.count)
        .collect();
    assert_eq!(not_made.iter().sum::<u64>(), 1, "{sent:?}");
}

/// After the second failure the function rests, for longer each time. Meanwhile records go as they were published, or are skipped and counted.
#[test]
fn a_function_that_goes_on_failing_rests() {
    let mut rig = rig(true, profile(true));
    run(&mut rig, Duration::from_secs(5), 200.0, |_| Function::Works);
    let (_, asked) = run(&mut rig, Duration::from_secs(60), 200.0, |_| Function::Fails);
    assert!((4..=12).contains(&asked.len()), "{asked:?}");
    let pauses: Vec<u64> =
        asked.windows(2).map(|pair| pair[1] - pair[0]).filter(|pause| *pause > 1_500).collect();
    assert!(pauses.len() >= 3 && pauses.is_sorted(), "{pauses:?}");
    let (sent, _) = run(&mut rig, Duration::from_secs(90), 200.0, |_| Function::Works);
    let last = &sent[sent.len() - 20..];
    assert!(share(last, "data/top=100") > 0.8, "it is used again when it works again: {last:?}");
}

/// One in two records goes. A picture between them is not skipped.
#[test]
fn records_are_left_out_as_the_rung_says() {
    let rungs = vec![rung("data/top=10/skip1", (500.0, 0.1), 0.9, MAKING)];
    let profile = Profile::new(rungs).expect("a valid profile");
    let mut rig = rig(true, SizedProfile { size: (0, 0), interval: None, profile });
    let (sent, _) = run(&mut rig, Duration::from_secs(4), 200.0, |_| Function::Works);
    let steady = &sent[sent.len() / 2..];
    assert!(steady.iter().all(|sent| sent.rung == "data/top=10/skip1"), "{steady:?}");
    for sent in steady {
        let left_out =
            SkipRange { first: Sequence(sent.id.sequence.0 - 1), count: 1, reason: SkipReason::LeftOut };
        assert_eq!(sent.skipped, [left_out]);
    }
    // After the last record, a record is skipped, and a picture is not.
    let last = sent.last().expect("records go").id;
    let mut meta = rig.broker.published.newest().expect("it is held").frame.meta;
    meta.id = last.next();
    let reason = |rig: &Rig, meta: &FrameMeta| {
        rig.broker.live.reason_to_wait(rig.now, rig.broker.connections.active(), meta)
    };
    assert_eq!(reason(&rig, &meta), SkipReason::LeftOut);
    meta.encoding = Encoding::Jpeg;
    assert_ne!(reason(&rig, &meta), SkipReason::LeftOut);
}

/// The answer to a question about the past at a rung: what a codec is asked for, or why there is nothing.
fn asked_of_the_past(rig: &mut Rig, rung: &str) -> Result<Option<Box<Transform>>, HistoryCode> {
    let record = rig.broker.published.newest().expect("there is a record");
    let query = PastQuery {
        after: None,
        before: None,
        begin: Timestamp::MIN,
        end: Timestamp::MAX,
        newest: false,
        tier_max: Tier::Disk,
        quality: None,
    };
    let rung = Rung::new(rung).expect("a rung");
    let request = HistoryRequest { request: 5, query, rung, count: 1, continues: false };
    rig.message(1, Message::HistoryRequest(request));
    for output in rig.take() {
        match output {
            CameraOutput::ReadHistory { ticket, .. } => {
                let answer = PastAnswer { record: Some(record.clone()), ..PastAnswer::default() };
                rig.broker.handle_history(rig.now, ticket, answer);
            }
            CameraOutput::Send { message: Message::HistoryEnd(end), .. } => return Err(end.code),
            _ => {}
        }
    }
    let outputs = rig.take();
    let past = outputs.into_iter().find_map(|output| match output {
        CameraOutput::TransformPast { transform, .. } => Some(transform),
        _ => None,
    });
    Ok(past)
}

#[test]
fn the_past_is_given_at_rungs_of_the_stream_and_no_other() {
    for (knobs, rung, expected) in [
        (true, "data/top=10", Ok(true)),
        (true, "jpeg/w32/q50/420", Ok(false)),
        (true, "data/top=20", Err(HistoryCode::Rung)),
        (true, "data/n=10", Err(HistoryCode::Rung)),
        (true, "data/top=10/skip1", Err(HistoryCode::Rung)),
        (false, "data/top=10", Err(HistoryCode::Rung)),
    ] {
        let mut rig = Rig::connected(Contract::default());
        if knobs {
            rig.broker.set_knobs(declared());
        }
        let record = rig.publish_data(b"[1,2,3]");
        rig.sent(1, record);
        rig.take();
        let asked = asked_of_the_past(&mut rig, rung);
        assert_eq!(asked.as_ref().map(Option::is_some).map_err(|code| *code), expected, "{rung}");
        if let Ok(Some(transform)) = asked {
            assert_eq!(transform.setting.to_string(), rung);
        }
    }
    // A picture has no such rung: it comes as it was published.
    let mut rig = Rig::connected(Contract::default());
    rig.broker.set_knobs(declared());
    let picture = rig.publish(100);
    rig.sent(1, picture);
    rig.take();
    assert!(asked_of_the_past(&mut rig, "data/top=10").expect("the rung is known").is_none());
}

/// A stream with knobs on a channel: the edge is told what its rungs cost, and records keep to the cap as pictures do.
#[test]
fn a_stream_with_knobs_takes_part_in_a_channel() {
    let mut rig = rig(true, profile(true));
    run(&mut rig, Duration::from_secs(3), 5_000.0, |_| Function::Works);
    rig.message(1, Message::Share(Share::Free));
    run(&mut rig, Duration::from_secs(3), 5_000.0, |_| Function::Works);
    let claim = rig.broker.negotiation.told_claim().expect("it was told");
    let accuracies: Vec<f64> = claim.steps.iter().map(|step| step.accuracy).collect();
    assert_eq!(accuracies, [0.85, 0.93, 1.0], "rungs that the stream does not have are left out");
    assert_eq!((claim.latency_bound, claim.floor), (BOUND, 0));
    assert!(claim.steps.windows(2).all(|steps| steps[0].bytes < steps[1].bytes), "{:?}", claim.steps);
    // Room for a hundred rows, then for ten.
    for (frame_bytes_max, rung) in [(8_000, "data/top=100"), (1_000, "data/top=10")] {
        let mut sent = Vec::new();
        for _ in 0..40 {
            let lifetime = Duration::from_millis(300);
            rig.message(1, Message::Share(Share::Cap { frame_bytes_max, lifetime }));
            sent.extend(run(&mut rig, INTERVAL, 5_000.0, |_| Function::Works).0);
        }
        assert!(sent.len() > 30, "{} records in four seconds", sent.len());
        assert!(share(&sent[2..], rung) == 1.0, "{frame_bytes_max}: {sent:?}");
    }
}
