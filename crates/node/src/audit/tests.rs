//! Tests of a log on disk: restarts, kills, full disks, and manipulation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use mez_core::audit::{Flaw, Record, Report};
use mez_core::units::{Instant, Timestamp};

use super::files::files_in;
use super::folder::{Folder, HEAD, audit_folder};
use super::*;

fn happened(number: u64) -> Event {
    Event::new(Timestamp::from_nanos(number), Kind::Rights, "rights.toml").what(format!("change {number}"))
}

fn append(folder: &mut Folder, events: &[Event]) -> (usize, Result<(), AuditError>) {
    folder.append(events, Instant::from_nanos(0), wall_now())
}

/// Writes a log of `records`. Each group of ten is written by a new start.
fn written(state: &Path, records: u64) {
    for start in 0..records / 10 {
        let (mut folder, found) = Folder::open(&audit_folder(state), Rotation::default()).unwrap();
        assert_eq!(found, []);
        let events: Vec<Event> = (0..10).map(|number| happened(start * 10 + number)).collect();
        let (count, result) = append(&mut folder, &events);
        result.unwrap();
        assert_eq!(count, 10);
    }
}

fn read(state: &Path) -> (Vec<Record>, Report) {
    let mut records = Vec::new();
    let report = AuditLog::of_state(state).unwrap().read(None, |record| records.push(record)).unwrap();
    (records, report)
}

fn flaws(report: &Report) -> Vec<String> {
    report.flaws.iter().map(ToString::to_string).collect()
}

fn only_file(state: &Path) -> std::path::PathBuf {
    let files = files_in(&audit_folder(state)).unwrap();
    assert_eq!(files.len(), 1);
    files[0].path.clone()
}

/// Waits until the log has the records that `seen` accepts.
fn until(state: &Path, seen: impl Fn(&[Record]) -> bool) -> (Vec<Record>, Report) {
    for _ in 0..3_000 {
        if audit_folder(state).is_dir() {
            let (records, report) = read(state);
            if seen(&records) {
                return (records, report);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("it was never written: {:?}", read(state));
}

#[test]
fn a_log_goes_on_over_restarts_and_only_its_owner_reads_it() {
    let state = tempfile::tempdir().unwrap();
    written(state.path(), 50);
    let (records, report) = read(state.path());
    assert!(report.is_whole(), "{:?}", flaws(&report));
    assert_eq!(records.len(), 50);
    assert!(records.iter().zip(1..).all(|(record, number)| record.number == number));
    for (path, mode) in [(audit_folder(state.path()), 0o700), (only_file(state.path()), 0o600)] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
}

/// A kill or a power cut within a line loses this line, and counts as no damage.
#[test]
fn a_line_that_was_never_finished_is_no_damage() {
    let state = tempfile::tempdir().unwrap();
    written(state.path(), 10);
    let mut bytes = fs::read(only_file(state.path())).unwrap();
    bytes.extend_from_slice(b"{\"n\":11,\"utc\":\"20");
    fs::write(only_file(state.path()), &bytes).unwrap();
    written(state.path(), 10);
    let (records, report) = read(state.path());
    assert!(report.is_whole(), "{:?}", flaws(&report));
    assert_eq!((records.len(), report.torn), (20, 1));
    assert_eq!(files_in(&audit_folder(state.path())).unwrap().len(), 2);
}

/// If records are cut off at the end, the next start notices it, and the gap stays visible.
#[test]
fn a_cut_end_is_recorded_at_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    written(state.path(), 20);
    let text = fs::read_to_string(only_file(state.path())).unwrap();
    let cut: String = text.lines().take(15).map(|line| format!("{line}\n")).collect();
    fs::write(only_file(state.path()), cut).unwrap();
    assert_eq!(
        flaws(&read(state.path()).1),
        ["the end is missing: the head names record 20, but the last record is 15"]
    );
    let (mut folder, found) = Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap();
    assert!(found[0].why.contains("the end is missing"), "{found:?}");
    append(&mut folder, &found).1.unwrap();
    append(&mut folder, &[happened(99)]).1.unwrap();
    let (records, report) = read(state.path());
    assert_eq!(records.last().unwrap().number, 22);
    let flaws = flaws(&report);
    assert!(flaws[0].contains("records 16 to 20 are missing"), "{flaws:?}");
    assert!(flaws[1].contains("record 21 says that the edge found the log damaged"), "{flaws:?}");
    // The damage is reported once, not at every start.
    drop(folder);
    assert_eq!(Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap().1, []);
}

#[test]
fn an_edited_record_a_missing_head_and_a_missing_file_are_named() {
    let state = tempfile::tempdir().unwrap();
    written(state.path(), 20);
    let path = only_file(state.path());
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole.replace("change 7\"", "change 8\"")).unwrap();
    let report = read(state.path()).1;
    assert!(
        matches!(&report.flaws[..], [Flaw::Altered { number: 8, at }] if at.line == 8),
        "{:?}",
        flaws(&report)
    );
    // Also for the last record, although no other record contains its hash.
    fs::write(&path, whole.replace("change 19\"", "change 18\"")).unwrap();
    assert_eq!(flaws(&read(state.path()).1), ["record 20 was changed: the head holds another hash"]);
    fs::write(&path, &whole).unwrap();

    let head = audit_folder(state.path()).join(HEAD);
    let kept = fs::read(&head).unwrap();
    fs::remove_file(&head).unwrap();
    assert_eq!(read(state.path()).1.flaws, [Flaw::NoHead]);
    fs::write(&head, kept).unwrap();

    fs::remove_file(&path).unwrap();
    let (mut folder, found) = Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap();
    assert_eq!(found[0].why, "all records up to 20 are missing");
    append(&mut folder, &found).1.unwrap();
    let flaws = flaws(&read(state.path()).1);
    assert!(flaws.iter().any(|flaw| flaw.contains("records 1 to 20 should still be there")), "{flaws:?}");
}

/// The file is deleted, cut or replaced while the edge writes it: the edge records this, and continues in a new file.
#[test]
fn what_happens_to_the_file_while_the_edge_runs_is_recorded() {
    type Attack = fn(&Path);
    let attacks: [(Attack, &str); 3] = [
        (|path| fs::remove_file(path).unwrap(), "was removed"),
        (|path| fs::write(path, b"").unwrap(), "has 0 bytes, but the edge has written"),
        (
            |path| {
                let copy = path.with_extension("copy");
                fs::copy(path, &copy).unwrap();
                fs::rename(copy, path).unwrap();
            },
            "another file replaced",
        ),
    ];
    for (attack, expected) in attacks {
        let state = tempfile::tempdir().unwrap();
        let (mut folder, _) = Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap();
        append(&mut folder, &[happened(1), happened(2)]).1.unwrap();
        attack(&only_file(state.path()));
        assert_eq!(append(&mut folder, &[happened(3)]).0, 1);
        let (records, report) = read(state.path());
        let [.., told, last] = &records[..] else { panic!("{records:?}") };
        assert!(told.event.kind == Kind::Damaged && told.event.why.contains(expected), "{told:?}");
        assert_eq!((last.number, last.event.what.as_str()), (4, "change 3"));
        assert!(!report.is_whole());
    }
    let state = tempfile::tempdir().unwrap();
    let (mut folder, _) = Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap();
    append(&mut folder, &[happened(1)]).1.unwrap();
    fs::remove_dir_all(audit_folder(state.path())).unwrap();
    assert_eq!(append(&mut folder, &[happened(2)]).0, 1);
    assert_eq!(read(state.path()).0.len(), 2);
}

#[test]
fn the_oldest_files_go_and_the_check_knows_it() {
    let state = tempfile::tempdir().unwrap();
    let rotation = Rotation { file_bytes_max: 4_000, ..Rotation::new(20_000, Duration::from_secs(1 << 30)) };
    let (mut folder, _) = Folder::open(&audit_folder(state.path()), rotation).unwrap();
    for number in 0..300 {
        append(&mut folder, &[happened(number)]).1.unwrap();
    }
    let events: Vec<Event> = (300..400).map(happened).collect();
    assert_eq!(append(&mut folder, &events).0, 100, "a batch larger than a file");
    let bytes: u64 =
        files_in(&audit_folder(state.path())).unwrap().iter().map(|f| f.facts().unwrap().bytes).sum();
    assert!(bytes <= 20_000, "{bytes} bytes");
    let (records, report) = read(state.path());
    assert!(report.is_whole(), "{:?}", flaws(&report));
    assert!(records[0].number > 100 && records.last().unwrap().number == 400);
    // One more file is missing than the edge removed.
    fs::remove_file(&files_in(&audit_folder(state.path())).unwrap()[0].path).unwrap();
    assert!(matches!(&read(state.path()).1.flaws[..], [Flaw::BeginningMissing { .. }]));
}

#[test]
fn one_edge_writes_a_log_and_another_one_is_told() {
    let state = tempfile::tempdir().unwrap();
    let _first = Folder::open(&audit_folder(state.path()), Rotation::default()).unwrap();
    let error =
        Folder::open(&audit_folder(state.path()), Rotation::default()).err().expect("it is held").to_string();
    assert!(error.contains("another edge writes") && error.contains("--state"), "{error}");
}

/// A log that cannot be written stops nothing. Events that are lost meanwhile are counted in the next record.
#[test]
fn what_cannot_be_recorded_is_counted_in_the_next_record_that_can() {
    let state = tempfile::tempdir().unwrap();
    // A file in place of the folder makes writing fail for every user.
    fs::write(audit_folder(state.path()), "").unwrap();
    let options = AuditOptions { folder: audit_folder(state.path()), rotation: Rotation::default() };
    let audit = Audit::start(options).unwrap();
    let mut states = audit.states().unwrap();
    let is_failing = |state: &AuditState| matches!(state, AuditState::Failing { .. });
    for _ in 0..3_000 {
        if is_failing(&states.borrow_and_update()) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(is_failing(&audit.state()), "{audit:?}");
    (0..7).for_each(|number| audit.note(happened(number)));
    fs::remove_file(audit_folder(state.path())).unwrap();
    let (records, report) = until(state.path(), |records| records.iter().any(|r| r.event.kind == Kind::Lost));
    assert!(report.is_whole(), "{:?}", flaws(&report));
    let lost = records.iter().find(|record| record.event.kind == Kind::Lost).unwrap();
    let kept = records.iter().filter(|record| record.event.kind == Kind::Rights).count() as u64;
    assert_eq!(lost.event.count + kept, 7, "{records:?}");
    audit.note(happened(8));
    until(state.path(), |records| records.iter().any(|r| r.event.what == "change 8"));
    assert_eq!(audit.state(), AuditState::Written);
}

/// A burst of refusals does not displace other records, and every refusal is counted at the end.
#[test]
fn a_flood_leaves_room_and_is_counted_when_the_edge_stops() {
    let state = tempfile::tempdir().unwrap();
    let options = AuditOptions { folder: audit_folder(state.path()), rotation: Rotation::default() };
    let audit = Audit::start(options).unwrap();
    for _ in 0..100_000 {
        audit.note(Event::new(wall_now(), Kind::Refused, "app/thief").what("watch").why("no grant"));
    }
    audit.note(happened(1));
    audit.stop();
    let (records, report) = read(state.path());
    assert!(report.is_whole(), "{:?}", flaws(&report));
    let refused: u64 = records.iter().filter(|r| r.event.kind == Kind::Refused).map(|r| r.event.count).sum();
    assert_eq!((refused, records.len()), (100_000, 4), "{records:?}");
    assert_eq!(records.last().unwrap().event.kind, Kind::Stopped);
}

/// A command that read the store's files reports it. The record names the file's owner, not the name in the report.
#[test]
fn what_a_command_tells_is_recorded_under_its_users_number() {
    let state = tempfile::tempdir().unwrap();
    let folder = audit_folder(state.path());
    let event = Event::new(wall_now(), Kind::Exported, "app/innocent").what("frames").cameras("dock/cam1");
    assert!(!told::tell(&folder, &event).unwrap(), "nobody keeps a log there");
    let audit = Audit::start(AuditOptions { folder: folder.clone(), rotation: Rotation::default() }).unwrap();
    until(state.path(), |_| true);
    assert!(told::tell(&folder, &event).unwrap());
    fs::write(folder.join("told/nonsense"), "?").unwrap();
    let started = Event { kind: Kind::Started, ..happened(1) };
    let forged = Record { number: 0, event: started, previous: mez_core::audit::RecordHash::NONE };
    let granted = Event::new(event.at, Kind::Rights, "").what("granted").cameras("dock/*");
    assert!(told::tell(&folder, &granted).unwrap() && told::tell(&folder, &granted).unwrap());
    fs::write(folder.join("told/forged"), forged.to_line()).unwrap();
    let (records, _) = until(state.path(), |records| {
        let of = |kind| records.iter().filter(|record| record.event.kind == kind).count();
        (of(Kind::Exported), of(Kind::Rights)) == (1, 2)
    });
    let told = records.iter().find(|record| record.event.kind == Kind::Exported).unwrap();
    assert_eq!(told.event.who, format!("user/{}", rustix::process::geteuid().as_raw()));
    assert_eq!(told.event.cameras, "dock/cam1");
    audit.stop();
    assert!(records.iter().all(|record| !record.event.what.starts_with("change")));
    assert_eq!(fs::read_dir(folder.join("told")).unwrap().count(), 0);
}

/// A follower gets each record once, across files.
#[test]
fn a_follower_gets_each_record_once() {
    let state = tempfile::tempdir().unwrap();
    let rotation = Rotation { file_bytes_max: 2_000, ..Rotation::default() };
    let (mut folder, _) = Folder::open(&audit_folder(state.path()), rotation).unwrap();
    append(&mut folder, &[happened(0)]).1.unwrap();
    let mut tail = AuditLog::of_state(state.path()).unwrap().tail(None).unwrap();
    let mut numbers = Vec::new();
    for number in 0..40 {
        tail.poll(|record| numbers.push(record.number)).unwrap();
        append(&mut folder, &[happened(number)]).1.unwrap();
    }
    tail.poll(|record| numbers.push(record.number)).unwrap();
    assert_eq!(numbers, (1..=41).collect::<Vec<u64>>());
    assert!(tail.finish().is_whole());
}
