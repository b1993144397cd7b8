//! Stories of a log that is written, kept, cut and altered.

use std::time::Duration;

use proptest::prelude::*;

use super::event::{Event, Kind, TEXT_BYTES_MAX};
use super::repeats::{CAMERAS_MAX, STRANGERS_MAX, STRANGERS_THINGS_MAX};
use super::*;
use crate::units::{Instant, Timestamp};

fn utc(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn refused(second: u64, who: &str, why: &str) -> Event {
    Event::new(utc(second), Kind::Refused, who).what("watch").cameras("yard/cam1").why(why)
}

/// A log of some records, as lines, and its head.
fn log(records: u64) -> (Vec<Vec<u8>>, Head) {
    let (mut chain, mut lines) = (Chain::EMPTY, Vec::new());
    for number in 0..records {
        let (line, next) = chain.with(refused(number, "app/counter", &format!("no grant {number}")));
        lines.push(line.into_bytes());
        chain = next;
    }
    (lines, chain.head(1))
}

fn verified(lines: &[Vec<u8>], head: Option<Head>, noted: Option<(u64, RecordHash)>) -> Report {
    let mut verifier = Verifier::new(head, noted);
    verifier.handle_file("1.jsonl");
    for line in lines {
        verifier.handle_line(line);
    }
    verifier.finish()
}

#[test]
fn a_log_as_it_was_written_is_whole() {
    let (lines, head) = log(20);
    let report = verified(&lines, Some(head), Some((7, RecordHash::of(&lines[6]))));
    assert!(report.is_whole(), "{:?}", report.flaws);
    assert_eq!((report.records, report.first, report.compared), (20, Some(1), Some(true)));
    assert_eq!(report.chain.head(1), head);
    assert_eq!(Head::parse(&head.to_line()), Ok(head));
    assert!(verified(&[], None, None).is_whole(), "no log is no damage");
}

/// For any changed byte of any record, the check names the record.
#[test]
fn every_altered_byte_is_noticed_and_named() {
    let (lines, head) = log(4);
    for (place, line) in lines.iter().enumerate() {
        for byte in 0..line.len() {
            let mut altered = lines.clone();
            altered[place][byte] ^= 1;
            let report = verified(&altered, Some(head), None);
            let number = place as u64 + 1;
            let is_named = |flaw: &Flaw| match flaw {
                Flaw::Altered { number: n, .. } | Flaw::NotTheHead { number: n, .. } => {
                    *n == number || *n + 1 == number
                }
                Flaw::NotARecord { at, .. } => at.line == number,
                Flaw::Missing { at, .. } | Flaw::OutOfOrder { at, .. } => {
                    at.line == number || at.line == number + 1
                }
                Flaw::Cut { .. } | Flaw::BeginningMissing { .. } => true,
                _ => false,
            };
            assert!(report.flaws.iter().any(is_named), "record {number}, byte {byte}: {:?}", report.flaws);
        }
    }
}

#[test]
fn a_record_that_is_gone_is_named() {
    let (lines, head) = log(6);
    for gone in 0..6 {
        let mut left = lines.clone();
        left.remove(gone);
        let report = verified(&left, Some(head), None);
        let number = gone as u64 + 1;
        let expected = match number {
            1 => "the beginning is missing: records 1 to 1 should still be there".into(),
            6 => "the end is missing: the head names record 6, but the last record is 5".into(),
            _ => format!("1.jsonl, line {number}: records {number} to {number} are missing before this line"),
        };
        let found: Vec<String> = report.flaws.iter().map(ToString::to_string).collect();
        assert_eq!(found, [expected]);
    }
}

#[test]
fn lines_that_are_put_in_or_in_place_of_a_record_are_named_once() {
    let (lines, head) = log(5);
    let mut more = lines.clone();
    more.insert(2, b"nothing of ours".to_vec());
    let flaws = verified(&more, Some(head), None).flaws;
    assert!(matches!(&flaws[..], [Flaw::NotARecord { at, behind: 2 }] if at.line == 3), "{flaws:?}");
    let mut other = lines.clone();
    other[2] = b"nothing of ours".to_vec();
    let flaws = verified(&other, Some(head), None).flaws;
    assert!(matches!(&flaws[..], [Flaw::NotARecord { at, behind: 2 }] if at.line == 3), "{flaws:?}");
    let mut twice = lines;
    twice.insert(3, twice[2].clone());
    let flaws = verified(&twice, Some(head), None).flaws;
    assert!(matches!(&flaws[..], [Flaw::OutOfOrder { number: 3, behind: 3, .. }]), "{flaws:?}");
}

/// An attacker who can write the files can write the head as well. A hash that was noted elsewhere shows the change.
#[test]
fn a_log_that_was_written_anew_is_noticed_by_what_was_noted_elsewhere() {
    let (lines, _) = log(9);
    let noted = (8, RecordHash::of(&lines[7]));
    let (shorter, head) = log(6);
    assert!(verified(&shorter, Some(head), None).is_whole());
    let flaws = verified(&shorter, Some(head), Some(noted)).flaws;
    assert!(matches!(&flaws[..], [Flaw::Cut { last: 6, head: 8, .. }]), "{flaws:?}");
    let mut chain = Chain::EMPTY;
    let mut forged = Vec::new();
    for number in 0..9 {
        let (line, next) = chain.with(refused(number, "app/other", "innocent"));
        forged.push(line.into_bytes());
        chain = next;
    }
    let flaws = verified(&forged, Some(chain.head(1)), Some(noted)).flaws;
    assert!(matches!(&flaws[..], [Flaw::NotTheHead { number: 8, .. }]), "{flaws:?}");
}

/// A kill between a record and its head leaves a head that is behind. A missing head is reported.
#[test]
fn a_head_may_be_behind_and_must_not_be_missing() {
    let (lines, head) = log(5);
    let behind = log(3).1;
    assert!(verified(&lines, Some(behind), None).is_whole());
    assert_eq!(verified(&lines, None, None).flaws, [Flaw::NoHead]);
    // Old files were deleted, as the head says.
    let kept = Head { oldest: 4, ..head };
    assert!(verified(&lines[3..], Some(kept), None).is_whole());
    let flaws = verified(&lines[4..], Some(kept), None).flaws;
    assert_eq!(flaws, [Flaw::BeginningMissing { from: 4, to: 4 }]);
}

#[test]
fn texts_that_are_too_long_are_cut_and_no_line_is_longer_than_readers_take() {
    let long = "\u{1}ü".repeat(TEXT_BYTES_MAX);
    let event =
        Event::new(utc(1), Kind::Refused, long.clone()).what(&*long).cameras(&*long).from(&*long).why(&*long);
    assert!(event.who.len() <= TEXT_BYTES_MAX && event.who.ends_with('…'));
    let (line, _) = Chain::EMPTY.with(event.clone());
    assert!(line.len() < LINE_BYTES_MAX && !line.chars().any(char::is_control), "{} bytes", line.len());
    assert_eq!(Record::parse(line.as_bytes()).unwrap().event, event);
}

/// A client that is refused every second for a day, for forty reasons, leaves fewer than 300 records, and every attempt is counted.
#[test]
fn a_flood_of_refusals_is_counted_in_few_records() {
    let mut repeats = Repeats::default();
    let (mut records, mut counted, attempts) = (0, 0, 24 * 3_600);
    for second in 0..attempts {
        let told = repeats.handle_timeout(at(second));
        let first =
            repeats.handle(at(second), refused(second, "app/thief", &format!("reason {}", second % 40)));
        for event in told.into_iter().chain(first) {
            (records, counted) = (records + 1, counted + event.count);
        }
    }
    counted += repeats.finish().iter().map(|event| event.count).sum::<u64>();
    assert_eq!(counted, attempts);
    assert!(records < 300, "{records} records");
}

/// Anybody can have many addresses. All of them together get no more room than a few.
#[test]
fn strangers_with_many_addresses_do_not_fill_the_log() {
    let mut repeats = Repeats::default();
    let (mut records, day) = (0, 24 * 3_600);
    for second in 0..day {
        records += repeats.handle_timeout(at(second)).len();
        let event = refused(second, &format!("10.{}.{}.7", second % 250, second % 199), "unknown authority");
        records += usize::from(repeats.handle(at(second), event).is_some());
    }
    assert!(records < (STRANGERS_MAX + 1) * (STRANGERS_THINGS_MAX + 1) * 60, "{records} records");
    let told = repeats.finish();
    assert!(
        told.iter().any(|event| event.who == "other addresses" && event.why.contains("the last was 10.")),
        "{told:?}"
    );
}

fn read(second: u64, camera: &str, begin: u64) -> Event {
    let span = Span { begin: Some(utc(begin)), missed: false, end: Some(utc(begin + 10)) };
    Event::new(utc(second), Kind::Read, "app/counter").what("frames").cameras(camera).span(span)
}

/// An application is refused often, and reads more cameras than are told apart. The log still names each camera.
#[test]
fn what_an_application_reads_cannot_be_hidden_behind_refusals_or_other_readings() {
    let mut repeats = Repeats::default();
    let mut records = Vec::new();
    for number in 0..40 {
        records.extend(repeats.handle(at(1), refused(1, "app/counter", &format!("no grant {number}"))));
    }
    records.clear();
    for camera in 0..30 {
        records.extend(repeats.handle(at(2), read(2, &format!("dock/cam{camera}"), 500)));
    }
    // Other times of the same camera.
    records.extend(repeats.handle(at(3), read(3, "dock/cam1", 100)));
    records.extend(repeats.handle(at(3), read(3, "dock/cam29", 100)));
    records.extend(repeats.handle_timeout(at(70)));
    records.retain(|event| event.kind == Kind::Read);
    let named: Vec<&str> = records.iter().flat_map(|event| event.cameras.split(", ")).collect();
    for camera in 0..30 {
        assert!(named.contains(&&*format!("dock/cam{camera}")), "{camera} is not in {records:?}");
    }
    assert_eq!(records.iter().map(|event| event.count).sum::<u64>(), 32);
    // From the first frame of any reading to the last.
    let rest = records.iter().find(|event| event.what == "other: frames").expect("there are too many");
    assert_eq!(rest.why, format!("several records together: from {}, until {}", utc(100), utc(510)));
    assert!(records.len() < 14, "{records:?}");
}

/// Readings of one camera in one record reach from the first frame to the last.
#[test]
fn readings_in_one_record_reach_from_the_first_frame_to_the_last() {
    let mut repeats = Repeats::default();
    assert!(repeats.handle(at(1), read(1, "dock/cam1", 500)).is_some());
    for begin in [300, 700, 400] {
        assert_eq!(repeats.handle(at(2), read(2, "dock/cam1", begin)), None);
    }
    let told = repeats.handle_timeout(at(70));
    assert_eq!((told.len(), told[0].count), (1, 3));
    assert_eq!(told[0].why, format!("from {}, until {}", utc(300), utc(710)));
    let open = Span { begin: None, missed: true, end: None };
    let all = Span { begin: Some(Timestamp::MIN), missed: false, end: Some(utc(1)) };
    assert_eq!(open.to_string(), "missed frames, then live, with no end");
    assert_eq!(open.with(all).to_string(), "from the oldest frame, with no end");
}

/// If one record cannot name all cameras, several records do.
#[test]
fn readings_of_more_cameras_than_a_record_can_name_get_more_records() {
    let mut repeats = Repeats::default();
    let camera = |number| format!("{}/cam{number}", "a-long-name-of-a-place".repeat(2));
    let mut told: Vec<Event> =
        (0..60).filter_map(|n| repeats.handle(at(1), read(1, &camera(n), 5))).collect();
    told.extend(repeats.handle(at(1), read(1, &camera(59), 5)));
    told.extend(repeats.handle_timeout(at(70)));
    let named: Vec<&str> = told.iter().flat_map(|event| event.cameras.split(", ")).collect();
    for camera in (0..60).map(camera) {
        assert_eq!(named.iter().filter(|named| **named == camera).count(), 1, "{camera} in {told:?}");
    }
    assert_eq!(told.iter().map(|event| event.count).sum::<u64>(), 61);
    assert!(told.iter().all(|event| event.cameras.len() <= TEXT_BYTES_MAX), "{told:?}");
}

/// With very many cameras, readings without room for their names are still counted.
#[test]
fn readings_of_very_many_cameras_are_counted() {
    let mut repeats = Repeats::default();
    let readings = CAMERAS_MAX as u64 + 500;
    let first = (0..readings).filter_map(|n| repeats.handle(at(1), read(1, &format!("dock/cam{n}"), 5)));
    let mut told: Vec<Event> = first.collect();
    told.extend(repeats.handle_timeout(at(70)));
    assert_eq!(told.iter().map(|event| event.count).sum::<u64>(), readings);
    assert!(
        told.len() < 50 && told.iter().any(|event| event.why.contains("beyond the first 1024")),
        "{told:?}"
    );
}

/// Requests for cameras that do not exist do not fill records with invented names.
#[test]
fn readings_of_no_camera_are_one_count() {
    let mut repeats = Repeats::default();
    let mut told: Vec<Event> = Vec::new();
    for number in 0..500 {
        let event = Event::new(utc(1), Kind::Read, "app/counter").what("frames");
        told.extend(repeats.handle(at(1), event.why(format!("no camera matches x/{number}"))));
    }
    for camera in 0..30 {
        told.extend(repeats.handle(at(2), read(2, &format!("dock/cam{camera}"), 5)));
    }
    told.extend(repeats.handle_timeout(at(70)));
    let of_none: Vec<&Event> = told.iter().filter(|event| event.cameras.is_empty()).collect();
    assert_eq!(of_none.iter().map(|event| event.count).collect::<Vec<u64>>(), [1, 499]);
    let named: Vec<&str> = told.iter().flat_map(|event| event.cameras.split(", ")).collect();
    assert!((0..30).all(|camera| named.contains(&&*format!("dock/cam{camera}"))), "{told:?}");
}

/// A client that is refused at a slow pace gets no more room either.
#[test]
fn refusals_at_a_slow_pace_are_counted_too() {
    let mut repeats = Repeats::default();
    let mut records = 0;
    for minute in 0..7 * 24 * 60 {
        records += repeats.handle_timeout(at(minute * 60)).len();
        records += usize::from(
            repeats.handle(at(minute * 60), refused(minute * 60, "app/thief", "no grant")).is_some(),
        );
    }
    assert!(records <= 7 * 24 + 10, "{records} records");
}

#[test]
fn the_first_of_each_and_what_nobody_can_repeat_is_recorded_at_once() {
    let mut repeats = Repeats::default();
    for _ in 0..1_000 {
        repeats.handle(at(1), refused(1, "app/thief", "no grant"));
    }
    let other = refused(1, "app/counter", "no grant");
    assert_eq!(repeats.handle(at(1), other.clone()), Some(other));
    for kind in [Kind::Rights, Kind::Revoked, Kind::Enrolled, Kind::Operated] {
        for second in 0..3 {
            let event = Event::new(utc(second), kind, "user/0");
            assert_eq!(repeats.handle(at(1), event.clone()), Some(event));
        }
    }
    // The other 999 are reported a minute later, in one record.
    assert_eq!(repeats.poll_timeout(), Some(at(61)));
    let told = repeats.handle_timeout(at(61));
    assert_eq!((told.len(), told[0].count, told[0].since), (1, 999, Some(utc(1))));
    // After a quiet hour, the event is forgotten.
    (62..4 * 3_600).for_each(|second| assert_eq!(repeats.handle_timeout(at(second)), []));
    assert_eq!(repeats.poll_timeout(), None);
}

#[test]
fn the_oldest_files_go_and_a_clock_that_is_a_year_ahead_costs_one_at_a_time() {
    let rotation = Rotation::new(1 << 20, Duration::from_secs(30 * 86_400));
    let file = |first| FileFacts { first, bytes: 64 << 10, written: utc(first * 86_400) };
    let files: Vec<FileFacts> = (1..=20).map(file).collect();
    assert_eq!((rotation.too_many(&files), rotation.too_many(&files[4..])), (4, 0));
    assert_eq!(rotation.too_many(&[FileFacts { bytes: 5 << 20, ..file(1) }]), 0, "the newest stays");
    assert!(!rotation.is_too_old(&files, utc(31 * 86_400)));
    assert!(rotation.is_too_old(&files, utc(400 * 86_400)));
    assert!(!rotation.is_too_old(&files[19..], utc(400 * 86_400)), "the newest stays");
    assert!(rotation.begins_file(64 << 10, 300) && !rotation.begins_file(0, 1 << 20));
}

fn some_event() -> impl Strategy<Value = Event> {
    let text = || "\\PC{0,40}|[\\x00-\\x7f]{0,20}";
    let kind = prop::sample::select(&Kind::ALL[..]);
    (any::<u64>(), kind, text(), text(), text(), text(), text(), any::<u64>(), any::<Option<u64>>()).prop_map(
        |(now, kind, who, what, cameras, from, why, count, since)| {
            let event = Event::new(Timestamp::from_nanos(now), kind, who).what(what).cameras(cameras);
            Event { count, since: since.map(Timestamp::from_nanos), ..event.from(from).why(why) }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(event in some_event(), number in 1..u64::MAX) {
        let record = Record { number, event, previous: RecordHash::of(b"x") };
        let line = record.to_line();
        prop_assert!(!line.contains('\n'));
        prop_assert_eq!(Record::parse(line.as_bytes()), Ok(record));
    }

    #[test]
    fn no_line_makes_the_check_panic(lines in prop::collection::vec("\\PC{0,60}|\\{\"n\":[0-9]{1,20},.{0,30}", 0..8)) {
        let (mut all, head) = log(3);
        all.splice(1..2, lines.into_iter().map(String::into_bytes));
        verified(&all, Some(head), Some((2, RecordHash::NONE)));
    }
}
