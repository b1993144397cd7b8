//! Logs on disk that were cut, changed, copied, moved, rolled back or written by another program. No
//! wrong data is served, damage is reported, and nothing is removed.

use std::time::Duration;

use mez_core::broker::{Intake, IntakeConfig, Published};
use mez_core::frame::{Encoding, Epoch, SkipReason};
use mez_core::log::{LogConfig, Record, log};
use mez_core::name::CameraName;
use mez_core::store::{
    Bounds, DamageKind, Degraded, HeaderError, KEY_BYTES, KeyRing, MasterKey, RecordHead, Recovery,
    RecoveryConfig, RecoveryError, SegmentHeader, SegmentNumber, StoreConfig, StoreWriter, checksum, recover,
};
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_testbed::disk::{DiskBug, Faults, SimulatedDisk};

const CAMERA: &str = "dock/cam1";
const FRAMES: u64 = 12;
/// Bytes of a segment's header with the camera's name.
const HEADER_BYTES: usize = 122 + CAMERA.len();
const BEGIN: Instant = Instant::from_nanos(5_000_000_000);
const STEP: Duration = Duration::from_millis(40);

fn keys(bytes: &[u8]) -> KeyRing {
    KeyRing::new(bytes.iter().map(|byte| MasterKey::new([*byte; KEY_BYTES])).collect()).unwrap()
}

fn anchor() -> ClockAnchor {
    ClockAnchor { wall: Timestamp::from_nanos(1_700_000_000_000_000_000), monotonic: BEGIN }
}

fn payload(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; 20 + number as usize]
}

/// A log and its writer at work.
struct Broker {
    intake: Intake,
    writer: StoreWriter<SimulatedDisk>,
    now: Instant,
    published: u64,
    salt: u8,
}

impl Broker {
    fn start(disk: SimulatedDisk, camera: &str, keys: KeyRing, epoch: u64) -> Self {
        Self::resume(disk, camera, keys, epoch, LogConfig::default())
    }

    fn resume(mut disk: SimulatedDisk, camera: &str, keys: KeyRing, epoch: u64, memory: LogConfig) -> Self {
        let recovery = try_recover(&mut disk, camera, &keys).unwrap();
        let (writer, reader) = log(memory);
        let config =
            StoreConfig { segment_bytes: 600, ..StoreConfig::new(camera.parse().unwrap(), keys, 1 << 20) };
        let mut store =
            StoreWriter::new(disk, config, recovery.resume, reader.cursor_at_end(), BEGIN, anchor().wall);
        store.set_start(Epoch(epoch), anchor());
        let intake = Intake::new(writer, IntakeConfig::new(Epoch(epoch), anchor()));
        Self { intake, writer: store, now: BEGIN, published: 0, salt: epoch as u8 }
    }

    fn publish(&mut self) {
        let payload = payload(self.published).into();
        let frame = Published { payload, encoding: Encoding::Jpeg, width: 2, height: 2, captured: None };
        self.intake.publish(self.now, frame).unwrap();
        self.published += 1;
    }

    fn step(&mut self) {
        self.now += STEP;
        let salt = &mut self.salt;
        let mut draw = || {
            *salt = salt.wrapping_add(16);
            [*salt; 32]
        };
        while self.writer.step(self.now, anchor().wall_at(self.now), &mut draw) <= self.now {}
    }

    fn stop(mut self) -> SimulatedDisk {
        self.writer.close();
        for _ in 0..50 {
            self.step();
        }
        assert!(self.writer.is_settled(), "{:?}", self.writer.status());
        self.writer.into_storage()
    }
}

fn written(camera: &str, key: u8, epoch: u64) -> SimulatedDisk {
    let mut broker = Broker::start(SimulatedDisk::seeded(1), camera, keys(&[key]), epoch);
    for _ in 0..FRAMES {
        broker.publish();
        broker.step();
    }
    broker.stop()
}

/// A small log in several segments.
fn small_log() -> SimulatedDisk {
    let disk = written(CAMERA, 1, 1);
    assert!(disk.segments().len() >= 3, "{:?}", disk.segments());
    disk
}

fn try_recover(disk: &mut SimulatedDisk, camera: &str, keys: &KeyRing) -> Result<Recovery, RecoveryError> {
    let camera: CameraName = camera.parse().unwrap();
    let config =
        RecoveryConfig { camera: &camera, keys, bytes_max: u64::MAX, time_max: Duration::from_secs(1) };
    recover(disk, config, || BEGIN)
}

fn recovered(disk: &mut SimulatedDisk) -> Recovery {
    try_recover(disk, CAMERA, &keys(&[1])).unwrap()
}

/// Checks that frames come back as published, and contiguous except for stated holes.
fn assert_genuine(records: &[Record], what: &str) {
    for pair in records.windows(2) {
        let (a, b) = (pair[0].frame.meta.id, pair[1].frame.meta.id);
        let damaged: u64 = pair[1].skipped.iter().map(|range| range.count).sum();
        assert!(pair[1].skipped.iter().all(|range| range.reason == SkipReason::Damaged), "{what}");
        assert_eq!(a.sequence.0 + 1 + damaged, b.sequence.0, "{what}: not in one piece, and not a word");
    }
    for record in records {
        let number = record.frame.meta.id.sequence.0;
        assert_eq!(record.frame.payload, payload(number), "{what}: frame {number}");
    }
}

#[test]
fn a_log_comes_back_whole() {
    let recovery = recovered(&mut small_log());
    assert!(recovery.report.is_clean(), "{:?}", recovery.report);
    assert_eq!(recovery.records.len() as u64, FRAMES);
    let newest = recovery.records.last().map(|record| record.frame.meta.captured);
    assert_eq!(recovery.report.newest_captured, newest);
    assert_genuine(&recovery.records, "untouched");
    assert_eq!(recovery.start, Some((Epoch(1), anchor())));
}

#[test]
fn every_truncation_is_cut_cleanly() {
    let mut disk = small_log();
    for segment in disk.segments() {
        let whole = disk.bytes(segment).unwrap().clone();
        for length in 0..whole.len() {
            disk.bytes(segment).unwrap().truncate(length);
            let what = format!("segment {} cut to {length} bytes", segment.0);
            let recovery = recovered(&mut disk);
            assert_genuine(&recovery.records, &what);
            assert!((recovery.records.len() as u64) < FRAMES, "{what}");
            let report = recovery.report;
            assert_eq!(report.records + report.records_lost(), FRAMES, "{what}: {report:?}");
            *disk.bytes(segment).unwrap() = whole.clone();
        }
    }
}

#[test]
fn every_flipped_byte_is_noticed() {
    let mut disk = small_log();
    for segment in disk.segments() {
        for place in 0..disk.bytes(segment).unwrap().len() {
            for flip in [0x01, 0x80, 0xff] {
                let what = format!("segment {}, byte {place} changed by {flip:#04x}", segment.0);
                disk.bytes(segment).unwrap()[place] ^= flip;
                match try_recover(&mut disk, CAMERA, &keys(&[1])) {
                    Ok(recovery) => {
                        assert_genuine(&recovery.records, &what);
                        let report = recovery.report;
                        assert!(!report.is_clean(), "{what}: {report:?}");
                        assert_eq!(report.records + report.records_lost(), FRAMES, "{what}: {report:?}");
                        // A single byte costs at most the frame that it belongs to. A byte of a header costs none.
                        let costs = u64::from(place >= HEADER_BYTES);
                        assert_eq!(report.records_lost(), costs, "{what}: {report:?}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
                disk.bytes(segment).unwrap()[place] ^= flip;
            }
        }
    }
}

#[test]
fn damage_costs_what_is_damaged_and_is_named() {
    let mut disk = small_log();
    let middle = disk.segments()[1];
    // A byte of the last record of the segment, which ends with its payload.
    let last = disk.bytes(middle).unwrap().len() - 20;
    disk.bytes(middle).unwrap()[last] ^= 1;
    let recovery = recovered(&mut disk);
    assert_genuine(&recovery.records, "damage in the middle");
    let newest = recovery.records.last().unwrap().frame.meta.id;
    assert_eq!(newest.sequence.0, FRAMES - 1, "what comes after the damage is served");
    assert_eq!(recovery.records.len() as u64, FRAMES - 1, "what comes before the damage is served");
    let [damage] = &recovery.report.damages[..] else { panic!("{:?}", recovery.report) };
    assert_eq!((damage.segment, damage.kind), (middle, DamageKind::Torn));
    assert!(
        recovery.records.iter().all(|record| record.frame.meta.id.sequence.0 != damage.index),
        "{damage}"
    );
    assert_eq!(recovery.report.records_lost(), 1);
}

#[test]
fn a_segment_of_another_key_refuses_the_log_and_changes_nothing() {
    let mut disk = small_log();
    let before: Vec<_> = disk.segments();
    let error = try_recover(&mut disk, CAMERA, &keys(&[2])).unwrap_err();
    assert!(matches!(error, RecoveryError::Key { .. }), "{error}");
    let id = MasterKey::new([1; KEY_BYTES]).id().to_string();
    assert!(error.to_string().contains(&id) && error.to_string().contains("older keys first"), "{error}");
    assert_eq!(disk.segments(), before);
    // With a new key before the old one, everything is readable, and new records use the new key.
    assert_eq!(try_recover(&mut disk, CAMERA, &keys(&[1, 2])).unwrap().records.len() as u64, FRAMES);
    let mut broker = Broker::start(disk, CAMERA, keys(&[1, 2]), 2);
    broker.publish();
    broker.step();
    let mut disk = broker.stop();
    let newest = *disk.segments().last().unwrap();
    let header = SegmentHeader::decode(disk.bytes(newest).unwrap(), &keys(&[2])).unwrap().0;
    assert_eq!(header.key, MasterKey::new([2; KEY_BYTES]).id());
    assert_eq!(try_recover(&mut disk, CAMERA, &keys(&[1, 2])).unwrap().records.len() as u64, FRAMES + 1);
}

/// Checks that strange segments are reported and stay, and that a broker continues.
#[track_caller]
fn assert_strange(mut disk: SimulatedDisk, expected: &HeaderError) -> Recovery {
    let before = disk.segments();
    let recovery = recovered(&mut disk);
    let strange: Vec<_> = recovery.report.strange.iter().map(|strange| &strange.why).collect();
    assert!(strange.contains(&expected), "{:?}", recovery.report);
    assert!(!recovery.report.is_clean());
    assert_eq!(disk.segments(), before, "something was removed");
    let served = recovery.records.iter().map(|r| r.frame.meta.id).collect::<Vec<_>>();
    assert!(served.is_sorted() && served.windows(2).all(|pair| pair[0] != pair[1]), "{served:?}");

    let mut broker = Broker::start(disk, CAMERA, keys(&[1]), 9);
    broker.publish();
    broker.step();
    let mut disk = broker.stop();
    let after = disk.segments();
    assert!(before.iter().all(|segment| after.contains(segment)), "something was removed");
    let again = recovered(&mut disk);
    assert_eq!(again.records.last().unwrap().frame.meta.id.epoch, Epoch(9), "the broker does not go on");
    recovery
}

#[test]
fn a_segment_of_another_camera_is_passed_over() {
    let mut disk = small_log();
    let mut other = written("dock/cam2", 1, 7);
    let foreign = other.segments()[0];
    disk.put(SegmentNumber(99), other.bytes(foreign).unwrap().clone());
    assert_strange(disk, &HeaderError::Camera("dock/cam2".parse().unwrap()));
}

#[test]
fn a_file_that_is_no_segment_is_passed_over() {
    let mut disk = small_log();
    disk.put(SegmentNumber(99), b"a letter to somebody, much longer than a header has to be".repeat(20));
    assert_strange(disk, &HeaderError::Foreign);
}

#[test]
fn a_segment_of_a_later_version_is_passed_over() {
    let mut disk = small_log();
    let mut later = disk.bytes(SegmentNumber(0)).unwrap().clone();
    later[8] = 2;
    let sum = checksum(&later[..HEADER_BYTES - 4]);
    later[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    disk.put(SegmentNumber(99), later);
    assert_strange(disk, &HeaderError::Version(2));
}

#[test]
fn a_copied_segment_is_passed_over() {
    let mut disk = small_log();
    let copy = disk.bytes(SegmentNumber(0)).unwrap().clone();
    disk.put(SegmentNumber(99), copy);
    let recovery = assert_strange(disk, &HeaderError::Number(SegmentNumber(0)));
    assert_eq!(recovery.records.len() as u64, FRAMES);
}

#[test]
fn segments_that_were_exchanged_are_passed_over() {
    let mut disk = small_log();
    let (a, b) = (disk.segments()[0], disk.segments()[1]);
    let (first, second) = (disk.take(a).unwrap(), disk.take(b).unwrap());
    disk.put(a, second);
    disk.put(b, first);
    assert_strange(disk, &HeaderError::Number(a));
}

#[test]
fn an_older_copy_of_the_log_is_noticed() {
    let mut disk = small_log();
    let newest = *disk.segments().last().unwrap();
    disk.take(newest);
    let report = recovered(&mut disk).report;
    assert_eq!(report.missing, 1);
    assert!(!report.is_clean());
}

#[test]
fn expired_segments_that_are_there_again_are_removed() {
    let mut disk = small_log();
    let second = disk.segments()[1];
    let next = disk.segments().last().unwrap().next();
    *disk.bounds() = Some(Bounds { oldest: second, next, ..Bounds::default() });
    let recovery = recovered(&mut disk);
    assert_eq!(recovery.report.expired, 1);
    assert_eq!(disk.segments()[0], second);
    assert!((recovery.records.len() as u64) < FRAMES);
    // Segments that are not ours are not removed.
    let mut disk = small_log();
    disk.put(SegmentNumber(0), b"a letter to somebody".repeat(99));
    *disk.bounds() = Some(Bounds { oldest: second, next, ..Bounds::default() });
    assert!(recovered(&mut disk).report.strange_segments > 0);
    assert_eq!(disk.segments()[0], SegmentNumber(0));
}

#[test]
fn a_lost_state_folder_is_reported_and_costs_nothing() {
    let mut disk = small_log();
    *disk.bounds() = None;
    let recovery = recovered(&mut disk);
    assert!(recovery.report.bounds_lost);
    assert_eq!(recovery.records.len() as u64, FRAMES);
    assert_eq!(recovery.resume.newest_epoch, Some(Epoch(1)));
}

/// Anybody who can write to the disk can move records and correct their checksums.
fn with_moved_records(mut disk: SimulatedDisk) -> SimulatedDisk {
    let segment = disk.segments()[0];
    let bytes = disk.bytes(segment).unwrap();
    let (_, _, front) = SegmentHeader::decode(bytes, &keys(&[1])).unwrap();
    let first = RecordHead::decode(&bytes[front..]).unwrap();
    let at = front + first.record_bytes() as usize;
    let second = RecordHead::decode(&bytes[at..]).unwrap();
    let (mut one, mut two) =
        (bytes[front..at].to_vec(), bytes[at..at + second.record_bytes() as usize].to_vec());
    RecordHead { index: second.index, ..first }.encode(&mut one[..first.meta_range().end]);
    RecordHead { index: first.index, ..second }.encode(&mut two[..second.meta_range().end]);
    let moved = [two, one].concat();
    bytes[front..front + moved.len()].copy_from_slice(&moved);
    disk
}

#[test]
fn records_that_were_exchanged_are_not_served() {
    let mut disk = with_moved_records(small_log());
    let recovery = recovered(&mut disk);
    assert_genuine(&recovery.records, "records exchanged");
    let forged = recovery.report.damages.iter().filter(|d| d.kind == DamageKind::Forged).count();
    assert_eq!(forged, 2, "{:?}", recovery.report);
}

/// The check above would detect a reader that does not verify the place of a record.
#[test]
fn a_place_that_is_not_authenticated_is_noticed() {
    let mut disk = with_moved_records(small_log());
    disk.plant(DiskBug::UncheckedPlace, keys(&[1]));
    let served: Vec<u64> =
        recovered(&mut disk).records.iter().map(|record| record.frame.meta.id.sequence.0).collect();
    assert!(!served.is_sorted(), "{served:?}");
}

#[test]
fn a_clock_that_was_set_back_between_starts_changes_nothing() {
    let mut broker = Broker::start(small_log(), CAMERA, keys(&[1]), 2);
    // Half an hour before the existing segments.
    let mut salt = || [0xee; 32];
    broker.publish();
    for _ in 0..10 {
        broker.now += STEP;
        let wall = anchor().wall - Duration::from_secs(1_800);
        broker.writer.step(broker.now, wall, &mut salt);
    }
    let mut disk = broker.stop();
    assert_eq!(recovered(&mut disk).records.len() as u64, FRAMES + 1);
}

// ---- degraded ---------------------------------------------------------------------------------------------

/// A fault must be reported within a second of frames, and its end too.
fn degraded_by(faults: Faults, memory: LogConfig) -> (Degraded, u64) {
    let mut broker = Broker::resume(SimulatedDisk::seeded(3), CAMERA, keys(&[1]), 1, memory);
    let second = |broker: &mut Broker| {
        for _ in 0..25 {
            broker.publish();
            broker.step();
        }
    };
    second(&mut broker);
    assert_eq!(broker.writer.status().degraded, None);
    broker.writer.storage().set_faults(faults);
    second(&mut broker);
    let told = broker.writer.status().degraded.clone();
    second(&mut broker);
    assert!(broker.writer.status().degraded.is_some(), "it forgot");
    broker.writer.storage().set_faults(Faults::default());
    second(&mut broker);
    assert_eq!(broker.writer.status().degraded, None, "it does not notice the end");
    let (lost, published) = (broker.writer.status().lost, broker.published);
    let mut disk = broker.stop();
    let back = recovered(&mut disk).records.len() as u64;
    assert_eq!(back + lost, published, "frames are neither there nor counted as lost");
    (told.unwrap_or_else(|| panic!("{faults:?} is not told within a second")), lost)
}

#[test]
fn a_disk_that_is_full_fails_or_hangs_is_told_within_a_second_and_so_is_its_end() {
    let memory = LogConfig::default();
    let (full, lost) = degraded_by(Faults { full: true, ..Faults::default() }, memory);
    assert!(matches!(full, Degraded::Full(_)) && lost == 0, "{full}, {lost} lost");
    let (failing, _) = degraded_by(Faults { failing_writes: true, ..Faults::default() }, memory);
    assert!(matches!(failing, Degraded::Failing(_)), "{failing}");
    let (failing, _) = degraded_by(Faults { failing_syncs: true, ..Faults::default() }, memory);
    assert!(matches!(failing, Degraded::Failing(_)), "{failing}");
    let (slow, _) = degraded_by(Faults { stuck: true, ..Faults::default() }, memory);
    assert!(matches!(slow, Degraded::Slow(_)), "{slow}");
}

#[test]
fn frames_that_memory_cannot_keep_for_the_disk_are_counted() {
    let small = LogConfig::with_bytes_max(6_000);
    let (_, lost) = degraded_by(Faults { full: true, ..Faults::default() }, small);
    assert!(lost > 10, "{lost}");
}

// ---- nothing to do ----------------------------------------------------------------------------------------

impl Broker {
    /// Steps only when the writer asks for it, until it has nothing to do for a minute. Returns when it is due next, and the number of steps.
    fn step_until_idle(&mut self, mut due: Instant) -> (Instant, usize) {
        for steps in 1..1_000 {
            if due > self.now + Duration::from_secs(60) {
                return (due, steps - 1);
            }
            self.now = self.now.max(due);
            let salt = &mut self.salt;
            let mut draw = || {
                *salt = salt.wrapping_add(16);
                [*salt; 32]
            };
            due = self.writer.step(self.now, anchor().wall_at(self.now), &mut draw);
        }
        panic!("it never comes to rest: {:?}", self.writer.status());
    }
}

/// While no frames come, the writer does nothing. A frame is written at once and made durable within
/// the interval, and time without frames does not count as a slow disk.
#[test]
fn a_writer_with_nothing_to_do_sleeps_and_is_woken() {
    let mut broker = Broker::start(SimulatedDisk::seeded(4), CAMERA, keys(&[1]), 1);
    let (now, mut total) = (broker.now, 0);
    broker.step_until_idle(now);
    for frame in 1..=20 {
        broker.now += Duration::from_secs(3_000);
        let came = broker.now;
        broker.publish();
        let due = broker.writer.wake(came);
        assert!(due.saturating_since(came) <= Duration::from_millis(50), "it is called late");
        let (_, steps) = broker.step_until_idle(due);
        total += steps;
        let status = broker.writer.status();
        assert_eq!((status.records, status.degraded.clone()), (frame, None));
        assert_eq!((broker.writer.durable_index(), broker.writer.is_settled()), (frame, true));
        assert!(
            broker.now.saturating_since(came) <= Duration::from_millis(1_100),
            "it was made durable late"
        );
    }
    assert!(total <= 20 * 20, "{total} steps for 20 frames");
    assert_eq!(recovered(&mut broker.stop()).records.len(), 20);
}

/// Timed work is done in time: a faulty disk is tried again, and segments expire.
#[test]
fn a_writer_does_not_sleep_through_a_fault_or_an_expiry() {
    let mut broker = Broker::start(SimulatedDisk::seeded(5), CAMERA, keys(&[1]), 1);
    broker.writer.storage().set_faults(Faults { full: true, ..Faults::default() });
    broker.publish();
    let mut due = broker.writer.wake(broker.now);
    for _ in 0..50 {
        broker.now = due;
        due = broker.writer.step(broker.now, anchor().wall_at(broker.now), &mut || [9; 32]);
        assert!(
            due.saturating_since(broker.now) <= Duration::from_millis(50),
            "a full disk is slept through"
        );
    }
    assert!(matches!(broker.writer.status().degraded, Some(Degraded::Full(_))));
    broker.writer.storage().set_faults(Faults::default());
    broker.step_until_idle(due);
    assert_eq!((broker.writer.status().records, broker.writer.status().degraded.clone()), (1, None));

    let (writer, reader) = log(LogConfig::default());
    let age = Duration::from_secs(1_600);
    let config = StoreConfig {
        disk_age_max: Some(age),
        ..StoreConfig::new(CAMERA.parse().unwrap(), keys(&[1]), 1 << 20)
    };
    let store = StoreWriter::new(
        SimulatedDisk::seeded(6),
        config,
        Default::default(),
        reader.cursor_at_end(),
        BEGIN,
        anchor().wall,
    );
    let intake = Intake::new(writer, IntakeConfig::new(Epoch(1), anchor()));
    let mut broker = Broker { intake, writer: store, now: BEGIN, published: 0, salt: 1 };
    broker.publish();
    let mut due = broker.writer.wake(BEGIN);
    let mut slept = 0;
    while broker.writer.status().segments > 0 || slept == 0 {
        due = broker.step_until_idle(due).0;
        slept += 1;
        assert!(slept < 10);
        if broker.writer.status().segments > 0 {
            assert!(due <= BEGIN + age * 2, "it sleeps until {due:?}");
            broker.now = due;
        }
    }
    assert!(broker.now >= BEGIN + age, "it went too early");
    assert!(broker.writer.storage().segments().is_empty(), "what has expired is still there");
}
